"""The command line called in this process, a small corpus, and models trained once for all of these tests."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from xmtc.cli.main import main
from xmtc.data.demo_corpus import PlantedCorpus


@dataclass(frozen=True)
class Done:
    """How a command ended and what it said."""

    status: int
    out: str
    err: str

    def lines(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


def call(*arguments: object, stdin: str | bytes = "", ok: bool = True) -> Done:
    """`xmtc …` without a new process. An error that is no user's mistake comes out as it is and fails the test."""
    given = stdin.encode() if isinstance(stdin, str) else stdin
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for name in ("stdout", "stderr")}
    streams["stdin"] = io.TextIOWrapper(io.BufferedReader(io.BytesIO(given)), encoding="utf-8")  # type: ignore[arg-type]
    with mock.patch.multiple(sys, argv=["xmtc", *map(str, arguments)], **streams), pytest.raises(SystemExit) as ended:
        main()
    said = []
    for name in ("stdout", "stderr"):
        streams[name].flush()
        said.append(streams[name].buffer.getvalue().decode())  # type: ignore[attr-defined]
    done = Done(int(ended.value.code or 0), *said)
    if ok:
        assert done.status == 0, done.err
    return done


def mistake(*arguments: object, stdin: str | bytes = "") -> str:
    """The one line that a user's mistake gets."""
    done = call(*arguments, stdin=stdin, ok=False)
    assert done.status == 2, done
    assert done.err.startswith("xmtc: "), done.err
    assert done.err.count("\n") == 1, done.err
    assert done.err.endswith("\n")
    return done.err.removeprefix("xmtc: ").rstrip("\n")


@pytest.fixture(scope="session", autouse=True)
def _no_cache() -> Iterator[None]:
    with mock.patch.dict(os.environ, {"XMTC_CACHE": "off"}):
        yield


@pytest.fixture(scope="session")
def corpus() -> PlantedCorpus:
    return PlantedCorpus(documents=700, labels=40, words_per_document=25, seed=3)


@pytest.fixture(scope="session")
def data(corpus: PlantedCorpus, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.jsonl, test.jsonl, and the same labels on made-up features as train.txt and test.txt."""
    folder = tmp_path_factory.mktemp("data")
    for name, start, stop in (("train", 0, 600), ("test", 600, 700)):
        with (folder / f"{name}.jsonl").open("w") as handle:
            corpus.write_jsonl(handle, start, stop)
        rows = [row for batch in corpus.batches(start=start, stop=stop) for row in batch.labels]
        noise = np.random.default_rng(start)
        lines = [f"{stop - start} 60 40"]
        for row in rows:
            features = {**dict.fromkeys(row, 1.0), 40 + int(noise.integers(20)): 0.3}
            pairs = " ".join(f"{number}:{value}" for number, value in sorted(features.items()))
            lines.append(f"{','.join(map(str, row))} {pairs}")
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def models(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one_vs_all, knn and popularity, trained on text, and `features`, trained on features."""
    folder = tmp_path_factory.mktemp("models")
    for name in ("one_vs_all", "knn", "popularity"):
        call("train", data / "train.jsonl", "--model", name, "--out", folder / name)
    call("train", data / "train.txt", "--model", "one_vs_all", "--out", folder / "features")
    return folder


@pytest.fixture(scope="session")
def ova(models: Path) -> Path:
    return models / "one_vs_all"


@pytest.fixture
def label_text(corpus: PlantedCorpus) -> tuple[str, str]:
    """A label's name and a text that speaks of it."""
    return corpus.label_name(1), f"The {' and '.join(corpus.label_words(1))} of the years"
