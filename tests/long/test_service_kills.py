"""A service that is asked to end, killed, or has its model replaced, while others rely on it."""

from __future__ import annotations

import http.client
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.support.app import samples
from tests.support.service import ForkedService, Service, background, everything, labels_of, serving, train_model
from xmtc.artifact.store import read_manifest
from xmtc.models.base import Model
from xmtc.models.popularity import Popularity
from xmtc.workflows.feedback import Feedback, feedback_path

pytestmark = pytest.mark.long
pytest.importorskip("uvicorn", reason="runs the service")

KILLS = 50
AT_ONCE = 2
"""Services that are starting while another is killed."""
SOON = 15.0
"""Seconds within which a change shows, on a machine that has other things to do."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Model, Path]]:
    """Three models with different labels."""
    place = tmp_path_factory.mktemp("models")
    return [(train_model(place / str(seed), seed)[0], place / str(seed)) for seed in (7, 8, 9)]


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    return train_model(tmp_path_factory.mktemp("texts") / "again")[1]


@pytest.fixture
def folder(models: list[tuple[Model, Path]], tmp_path: Path) -> Path:
    """The first model, where a test may do with it what it likes."""
    return Path(shutil.copytree(models[0][1], tmp_path / "served"))


def wait_for(what: Callable[[], bool], seconds: float = SOON) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.02)


def refuses(service: Service) -> bool:
    try:
        service.connect(1).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False


@pytest.mark.parametrize(("how", "workers"), [(signal.SIGTERM, 1), (signal.SIGTERM, 2), (signal.SIGINT, 1)])
def test_what_is_at_work_is_answered_before_the_end(
    models: list[tuple[Model, Path]], texts: list[str], folder: Path, how: signal.Signals, workers: int
) -> None:
    long = [" ".join(texts[number : number + 20]) for number in range(100)] * 4
    right = labels_of(models[0][0], long[:100]) * 4
    body = json.dumps({"texts": long}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    service = Service(folder, "--workers", workers)
    try:
        idle = [service.connect() for _ in range(10)]
        asked = [service.connect(30) for _ in range(16)]
        for connection in asked:
            connection.sendall(head.encode() + b"\r\n\r\n" + body)
        time.sleep(0.3)
        service.process.send_signal(how)
        time.sleep(0.3)
        assert service.process.poll() is not None or refuses(service)
        for connection in asked:
            received = everything(connection)
            assert received.startswith(b"HTTP/1.1 200 "), received[:300]
            predictions = json.loads(received.partition(b"\r\n\r\n")[2])["predictions"]
            assert [prediction["labels"] for prediction in predictions] == right
        assert service.process.wait(10) == 0
        assert "Traceback" not in service.errors()
        assert refuses(service)
        assert all(everything(connection) == b"" for connection in idle)
    finally:
        service.kill()


@pytest.mark.parametrize("workers", [1, 2])
def test_an_idle_service_ends_at_once(folder: Path, workers: int) -> None:
    with serving(folder, "--workers", workers, kind=Service if workers > 1 else ForkedService) as service:
        held = [service.connect() for _ in range(20)]
        kept = http.client.HTTPConnection("127.0.0.1", service.port, timeout=5)
        kept.request("GET", "/healthz")  # answered, and open for more
        assert kept.getresponse().read()
        started = time.monotonic()
        assert service.stop() == 0
        assert time.monotonic() - started < 5
        kept.close()
        for connection in held:
            connection.close()


def test_a_slow_client_does_not_keep_it_from_ending(folder: Path) -> None:
    with serving(folder, "--timeout", 1, kind=ForkedService) as service, service.connect() as connection:
        connection.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{")
        time.sleep(0.2)
        assert service.stop() == 0


def metrics(service: Service) -> dict[tuple[str, ...], float]:
    return samples(service.ask("GET", "/metrics").body.decode())


def test_one_process_of_two_is_killed(models: list[tuple[Model, Path]], texts: list[str], folder: Path) -> None:
    """Only what it was at work on is lost, and another takes its place."""
    right = labels_of(models[0][0], texts[:5])
    lost: list[Exception] = []
    answered: list[float] = []

    def ask() -> None:
        try:
            answer = service.predict(texts[:5])
        except (OSError, http.client.HTTPException) as error:
            lost.append(error)
            return
        assert answer.status == 200
        assert answer.labels() == right
        answered.append(time.monotonic())

    with serving(folder, "--workers", 2) as service:
        before = service.workers()
        assert len(before) == 2
        with background(*[ask] * 4) as raised:
            time.sleep(0.3)
            os.kill(before[0], signal.SIGKILL)
            killed = time.monotonic()
            wait_for(lambda: before[0] not in service.workers() and len(service.workers()) == 2)
            wait_for(lambda: metrics(service)["xmtc_processes",] == 2, 30)  # until it has begun
        assert raised == []
        counted = metrics(service)["xmtc_texts_total", "served"]
        assert counted >= 5 * len(answered), "what the killed process counted is lost"
        assert len(lost) <= 4
        assert max(later - earlier for earlier, later in itertools.pairwise(answered)) < SOON
        assert answered[-1] > killed + 1
        assert before[1] in service.workers()
        assert [service.predict(texts[:5]).labels() for _ in range(10)] == [right] * 10


def alive(process: int) -> bool:
    """Whether it runs; one that has ended may be listed as long as nobody has asked how."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_processes_end_with_the_one_that_started_them(folder: Path) -> None:
    service = Service(folder, "--workers", 2)
    workers = service.workers()
    service.process.kill()
    service.process.wait()
    try:
        wait_for(lambda: not any(alive(worker) for worker in workers))
        assert refuses(service)
    finally:
        service.kill()
        for worker in filter(alive, workers):
            os.kill(worker, signal.SIGKILL)


def post_until_it_fails(service: Service, key: str, names: Any, sent: list[str], kept: dict[str, int]) -> None:
    """Feedback, one after the other on one connection; `kept` are those that the service acknowledged."""
    connection = http.client.HTTPConnection("127.0.0.1", service.port, timeout=10)
    try:
        while True:
            text = f"text {next(names)} " + "x" * random.choice([0, 0, 100, 20_000])
            sent.append(text)
            body = json.dumps({"text": text, "accepted": [key], "rejected": []})
            connection.request("POST", "/v1/feedback", body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            found = json.loads(answer.read())
            assert answer.status == 201, found
            kept[text] = found["id"]
    except (OSError, http.client.HTTPException, json.JSONDecodeError):
        pass  # it is dead
    finally:
        connection.close()


def test_feedback_outlasts_any_kill(tmp_path: Path) -> None:
    """Of a model that is loaded at once: a service starts for each kill."""
    folder, key = tmp_path / "served", "spice"
    Popularity().fit(["salt", "iron"], [[key], ["metal"]]).save(folder, overwrite=True)
    chance, names = random.Random(1), itertools.count()
    sent: list[str] = []
    kept: dict[str, int] = {}
    with ThreadPoolExecutor(AT_ONCE) as starter:
        coming = deque(starter.submit(ForkedService, folder) for _ in range(AT_ONCE))
        for number in range(KILLS):
            service = coming.popleft().result()
            if number + AT_ONCE < KILLS:
                coming.append(starter.submit(ForkedService, folder))
            wanted = len(kept) + chance.randint(1, 14)
            arguments = (service, key, names, sent, kept)
            threads = [threading.Thread(target=post_until_it_fails, args=arguments) for _ in range(4)]
            for thread in threads:
                thread.start()
            wait_for(lambda wanted=wanted: len(kept) >= wanted)  # type: ignore[misc]
            time.sleep(chance.uniform(0, 0.02))  # at any moment of writing the next
            service.kill()
            for thread in threads:
                thread.join(20)
            found = {record.text: record.id for record in Feedback(feedback_path(folder), read_only=True).records()}
            assert kept.items() <= found.items()
            assert found.keys() <= set(sent)
    assert len(kept) > 5 * KILLS
    command = [sys.executable, "-m", "xmtc", "feedback", "export", str(folder), "--output", "out.jsonl"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert kept.keys() <= {row["text"] for row in rows}
    assert all(row["labels"] == [key] for row in rows)


def answers_seen(service: Service, texts: list[str], known: list[Any], seen: list[int]) -> Callable[[], None]:
    """A client that notes which of the known models answers, and takes nothing else."""

    def ask() -> None:
        answer = service.predict(texts)
        assert answer.status == 200, answer.body
        seen.append(known.index(answer.labels()))

    return ask


@pytest.mark.parametrize("workers", [1, 2])
def test_a_model_is_replaced_under_load(
    models: list[tuple[Model, Path]], texts: list[str], folder: Path, workers: int
) -> None:
    """Every request is answered by the model of before or by the new one, whole."""
    known = [labels_of(model, texts[:20]) for model, _ in models]
    seen: list[int] = []
    with serving(folder, "--workers", workers, kind=Service if workers > 1 else ForkedService) as service:
        with background(*[answers_seen(service, texts[:20], known, seen)] * 4) as raised:
            for turn in (2, 0, 1):
                models[turn][0].save(folder, overwrite=True)
                seen.clear()
                wait_for(lambda turn=turn: seen[-20:] == [turn] * 20)  # type: ignore[misc]
                if workers == 1:
                    assert set(seen[seen.index(turn) + 4 :]) == {turn}  # none after it but those on their way
            assert raised == []
        found = service.ask("GET", "/v1/models").json()["models"][0]
        assert found["labels"] == len(models[1][0].labels)
        text, label = texts[0], known[1][0][0]
        explained = service.ask("POST", "/v1/explain", {"text": text, "label": label["key"]}).json()["label"]
        assert explained["score"] == pytest.approx(label["score"], abs=1e-5)


def test_a_model_learns_under_load(texts: list[str], models: list[tuple[Model, Path]], folder: Path) -> None:
    """`xmtc update` of the folder that is served."""
    new = folder.parent / "new.jsonl"
    rows: list[Any] = [{"text": f"{text} zorbex quillam", "labels": ["a label of today"]} for text in texts[:100]]
    new.write_text("".join(json.dumps(row) + "\n" for row in rows))
    asked = [row["text"] for row in rows[:5]]
    with serving(folder, kind=ForkedService) as service:
        statuses: set[int] = set()
        with background(*[lambda: statuses.add(service.predict(texts[:20]).status)] * 2) as raised:
            command = [
                sys.executable,
                "-m",
                "xmtc",
                "update",
                str(folder),
                str(new),
                "--threads",
                "1",
                "--force",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
            assert done.returncode == 0, done.stderr
            wait_for(lambda: any(row["key"] == "a label of today" for row in service.predict(asked).labels()[0]))
        assert raised == []
        assert statuses == {200}
        assert service.predict(asked).labels() == labels_of(Model.load(folder), asked)


def truncated(folder: Path) -> None:
    (path,) = folder.glob("arrays-*")
    os.truncate(path, path.stat().st_size // 2)


def without_arrays(folder: Path) -> None:
    (path,) = folder.glob("arrays-*")
    path.unlink()


def with_garbage(kind: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (path,) = folder.glob(f"{kind}-*")
        path.write_bytes(os.urandom(path.stat().st_size))

    return damage


def no_json(folder: Path) -> None:
    (folder / "model.json").write_text('{"format": 1, "model": "para')


def no_object(folder: Path) -> None:
    (folder / "model.json").write_text("[]")


def changed(**values: Any) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "model.json").write_text(json.dumps({**read_manifest(folder), **values}))

    return damage


DAMAGES: dict[str, Callable[[Path], None]] = {
    "arrays cut off": truncated,
    "arrays missing": without_arrays,
    "arrays of garbage": with_garbage("arrays"),
    "labels of garbage": with_garbage("labels"),
    "words of garbage": with_garbage("terms"),
    "no JSON": no_json,
    "not an object": no_object,
    "another kind of model": changed(model="no_such_model"),
    "a later format": changed(format=999),
    "settings that do not exist": changed(settings={"no such": 1}),
    "no state": changed(state={}),
    "files by number": changed(files=17),
    "features": changed(training={"documents": 1, "input": "features"}),
}


def put(source: Path, folder: Path) -> None:
    """A model copied over another, model.json last, as if it were whole."""
    for path in sorted(source.iterdir(), key=lambda path: path.name == "model.json"):
        shutil.copy(path, folder / f"{path.name}.new")
        (folder / f"{path.name}.new").rename(folder / path.name)


def test_a_damaged_model_leaves_the_old_one(
    models: list[tuple[Model, Path]], texts: list[str], folder: Path, tmp_path: Path
) -> None:
    """It is said once, the old model goes on, and a good one that comes then is taken."""
    known = [labels_of(model, texts[:20]) for model, _ in models]
    seen: list[int] = []
    with serving(folder, kind=ForkedService) as service:
        with background(answers_seen(service, texts[:20], known, seen)) as raised:
            for name, damage in DAMAGES.items():
                bad = Path(shutil.copytree(models[2][1], tmp_path / name))
                damage(bad)
                before = service.errors()
                put(bad, folder)
                wait_for(lambda before=before: service.errors() != before)  # type: ignore[misc]
                said = service.errors()[len(before) :]
                assert said.count("\n") == 1, f"{name}: {said}"
                assert "keeping the previous model" in said
            assert raised == []
            assert set(seen) == {0}
            put(models[1][1], folder)
            seen.clear()
            wait_for(lambda: seen[-5:] == [1] * 5)
        assert raised == []
        assert service.ask("GET", "/readyz").status == 200


def test_a_deleted_folder_leaves_the_old_one(models: list[tuple[Model, Path]], texts: list[str], folder: Path) -> None:
    known = [labels_of(model, texts[:20]) for model, _ in models]
    seen: list[int] = []
    label = known[0][0][0]
    with serving(folder, kind=ForkedService) as service:
        with background(answers_seen(service, texts[:20], known, seen)) as raised:
            shutil.rmtree(folder)
            time.sleep(1)  # ten looks at the folder
            assert set(seen) == {0}
            explained = service.ask("POST", "/v1/explain", {"text": texts[0], "label": label["key"]})
            assert explained.json()["label"]["score"] == pytest.approx(label["score"], abs=1e-5)
            assert service.ask("GET", "/v1/models").status == 200
            assert service.ask("GET", f"/v1/labels?q={label['key'].split()[0]}").json()["labels"]
            shutil.copytree(models[1][1], folder)
            seen.clear()
            wait_for(lambda: seen[-5:] == [1] * 5)
        assert raised == []
