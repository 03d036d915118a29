"""A service for minutes under all at once: load, new models, updates from feedback, slow clients and killed workers.

Every answer is that of a model that was in place, and neither memory nor open files grow.
XMTC_SOAK_SECONDS sets the duration; 1800 is half an hour.
"""

from __future__ import annotations

import http.client
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.models import planted_split
from tests.support.service import Answer, Service, background, labels_of, serving
from xmtc import load
from xmtc.models.parabel import Parabel
from xmtc.workflows.feedback import Feedback, feedback_path

pytestmark = pytest.mark.long
pytest.importorskip("uvicorn", reason="runs the service")

SECONDS = float(os.environ.get("XMTC_SOAK_SECONDS", "120"))
LATE = 30.0
"""Seconds for which a model may still answer after another has taken its place, on a busy machine."""
MEMORY, FILES = 32.0, 40
"""Megabytes and open files that a process may have more at the end than once it was warm."""
HALF = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"


@dataclass
class Known:
    """A model that is or was in place: its answers, and when it was replaced."""

    name: str
    labels: list[list[dict[str, Any]]]
    until: float = float("inf")


@dataclass
class Soak:
    """What all threads share."""

    service: Service
    folder: Path
    texts: list[str]
    keys: list[str]
    random: random.Random = field(default_factory=lambda: random.Random(29))
    known: list[Known] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    posted: list[str] = field(default_factory=list)
    killed: float = float("-inf")
    """When a worker was last killed or not yet back."""
    wrong: list[str] = field(default_factory=list)

    def ask(self, method: str, path: str, content: Any = None) -> Answer | None:
        """An answer with status 2xx; None where a killed worker took the request with it."""
        try:
            answer = self.service.ask(method, path, content, timeout=90)
        except (OSError, http.client.HTTPException) as error:
            if time.monotonic() - self.killed > LATE:
                self.wrong.append(f"{method} {path}: {error!r} while no worker was killed")
            self.counts["lost"] += 1
            return None
        if answer.status == 503 and time.monotonic() - self.killed < LATE:
            self.counts["503"] += 1
            return None
        if answer.status not in (200, 201):
            self.wrong.append(f"{method} {path} {str(content)[:200]}: {answer.status} {answer.body[:300]!r}")
            return None
        self.counts[path.partition("?")[0]] += 1
        return answer

    # ---- clients

    def predict(self) -> None:
        some = self.random.sample(range(len(self.texts)), self.random.choice((1, 3, 20)))
        asked = time.monotonic()
        answer = self.ask("POST", "/v1/predict", {"texts": [self.texts[number] for number in some]})
        if answer is None:
            return
        found = answer.labels()
        by = [known for known in list(self.known) if found == [known.labels[number] for number in some]]
        if not by:
            self.wrong.append(f"labels of no model for texts {some}: {answer.body[:300]!r}")
        elif max(known.until for known in by) < asked - LATE:
            self.wrong.append(f"labels of '{by[0].name}', which was replaced {asked - by[0].until:.0f} s before")
        else:
            self.counts[f"by {by[-1].name[0]}"] += 1

    def explain(self) -> None:
        number = self.random.randrange(len(self.texts))
        key = self.random.choice(self.known[-1].labels[number])["key"]
        answer = self.ask("POST", "/v1/explain", {"text": self.texts[number], "label": key})
        if answer is not None:
            found = answer.json()
            if (found["label"]["key"], found["explanation"]["text"]) != (key, self.texts[number]):
                self.wrong.append(f"explanation of another label or text: {answer.body[:300]!r}")
        time.sleep(0.05)

    def search(self) -> None:
        key = self.random.choice(self.keys)
        answer = self.ask("GET", f"/v1/labels?q={key.replace(' ', '%20')}&limit=5")
        if answer is not None and key not in [label["key"] for label in answer.json()["labels"]]:
            self.wrong.append(f"label '{key}' is not found: {answer.body[:300]!r}")
        self.ask("GET", self.random.choice(("/v1/models", "/metrics", "/healthz", "/", "/openapi.json")))
        time.sleep(0.05)

    def decide(self) -> None:
        text = f"{self.random.choice(self.texts)} {self.counts['decisions']}"
        self.counts["decisions"] += 1
        accepted, rejected = self.random.sample(self.keys, 2)
        body = {"text": text, "accepted": [accepted], "rejected": [rejected], "complete": self.random.random() < 0.2}
        if self.ask("POST", "/v1/feedback", body) is not None:
            self.posted.append(text)
        time.sleep(0.1)

    def dawdle(self) -> None:
        """Half of a request, and gone."""
        with suppress(OSError):
            held = [self.service.connect() for _ in range(10)]
            for one in held:
                one.sendall(HALF[: self.random.randrange(1, len(HALF))])
            time.sleep(0.5)
            for one in held:
                one.close()

    # ---- changes

    def put(self, source: Path, name: str) -> None:
        """A copy of this model in the place of the one that is served."""
        new, old = (self.folder.with_name(f"{kind}-{self.counts['swaps']}") for kind in ("new", "old"))
        shutil.copytree(source, new)
        self.known.append(Known(name, labels_of(load(new), self.texts)))
        self.folder.rename(old)
        new.rename(self.folder)
        for known in self.known[:-1]:
            known.until = min(known.until, time.monotonic())
        shutil.rmtree(old)
        self.counts["swaps"] += 1

    def update(self, base: Path, number: int) -> Path:
        """A model that has learnt from the feedback so far."""
        exported, updated = (self.folder.with_name(f"{kind}-{number}") for kind in ("feedback", "update"))
        xmtc("feedback", "export", feedback_path(self.folder), "--out", exported)
        xmtc("update", base, exported, "--out", updated, "--threads", 1, "--force")
        return updated

    def kill_worker(self, spared: int) -> None:
        self.killed = time.monotonic()
        victim = next(process for process in self.service.workers() if process != spared)
        os.kill(victim, signal.SIGKILL)
        self.counts["kills"] += 1
        for _ in range(8):  # half of the connections wait until there is a worker again
            with suppress(OSError, http.client.HTTPException):
                self.service.ask("GET", "/healthz", timeout=90)
            self.killed = time.monotonic()


def xmtc(*arguments: object) -> None:
    command = [sys.executable, "-m", "xmtc", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr


def usage(process: int) -> tuple[float, int]:
    """Megabytes that a process has for itself, and its open files."""
    status = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) / 1024, len(os.listdir(f"/proc/{process}/fd"))


def flat(samples: list[tuple[float, int]], what: str) -> None:
    """The last quarter needs no more than the second one did."""
    quarter = len(samples) // 4
    warm, end = samples[quarter : 2 * quarter], samples[-quarter:]
    for number, most in ((0, MEMORY), (1, FILES)):
        before, after = (sorted(one[number] for one in part)[len(part) // 2] for part in (warm, end))
        unit = ("MB", "open files")[number]
        print(f"{what}: {before:.0f} {unit} when warm, {after:.0f} at the end")
        assert after <= before + most, f"{what} grows from {before:.0f} to {after:.0f} {unit}"


def test_all_at_once(tmp_path: Path) -> None:
    train, test, _ = planted_split(800, 200, labels=60, seed=7)
    models = {"a": Parabel(trees=1).fit(train), "b": Parabel(trees=1, leaf_size=8).fit(train)}
    for name, model in models.items():
        model.save(tmp_path / name)
    folder = Path(shutil.copytree(tmp_path / "a", tmp_path / "served"))
    texts = test.text().to_pylist()[:40]
    right = {name: labels_of(model, texts) for name, model in models.items()}
    assert all(first != second for first, second in zip(right["a"], right["b"], strict=True))
    with serving(folder, "--workers", 2, "--max-daily-feedback", 10_000_000) as service:
        soak = Soak(service, folder, texts, list(models["a"].labels.keys))
        soak.known.append(Known("a", right["a"]))
        spared = min(service.workers())
        watched: dict[str, list[tuple[float, int]]] = {"supervisor": [], "worker": []}
        stop = threading.Event()

        def watch() -> None:
            watched["supervisor"].append(usage(service.process.pid))
            watched["worker"].append(usage(spared))
            stop.wait(0.5)

        clients = [*[soak.predict] * 3, soak.explain, soak.search, soak.decide, soak.dawdle, watch]
        started, turn = time.monotonic(), 0
        with background(*clients) as raised:
            while time.monotonic() - started < SECONDS and not raised and not soak.wrong:
                time.sleep(4)
                turn += 1
                if turn % 4 == 3 and soak.posted:
                    soak.put(soak.update(tmp_path / "a", turn), f"update {turn}")
                else:
                    soak.put(tmp_path / "ab"[turn % 2], "ab"[turn % 2])
                if turn % 3 == 0:
                    time.sleep(1)
                    soak.kill_worker(spared)
            stop.set()
        assert raised == []
        assert soak.wrong == []
        assert spared in service.workers(), "the worker that was spared has crashed"
        told = [line for line in service.errors().splitlines() if "new model loaded" not in line]
        assert len([line for line in told if "crashed (signal 9), restarting" in line]) == soak.counts["kills"]
        assert len(told) == soak.counts["kills"], told
    print(dict(soak.counts))
    kept = {record.text for record in Feedback(feedback_path(folder), read_only=True).records()}
    assert kept >= set(soak.posted), "feedback that was confirmed is lost"
    for kind in ("by a", "by b", "by u", "/v1/explain", "/v1/labels", "/v1/feedback", "kills"):
        assert soak.counts[kind], f"nothing of kind '{kind}' in {dict(soak.counts)}"
    for what, samples in watched.items():
        flat(samples, what)
    assert soak.counts["lost"] <= len(clients) * soak.counts["kills"]
