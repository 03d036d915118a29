"""A client that sends only the largest and worst texts delays others no more than one that sends random ones."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.app import samples
from tests.support.flooding import flooding_words, random_words
from tests.support.service import Answer, ForkedService, Service, background, labels_of, serving, train_model

pytestmark = pytest.mark.long
pytest.importorskip("uvicorn", reason="runs the service")

WORDS = 125_000
"""Words of a text of a million characters, the largest that a service takes."""
TEXTS = 31
"""Texts of a request of 31 MB."""
PHASE = 4.0
"""Seconds of one measurement."""
SLACK = 0.05
"""Seconds by which a busy machine may delay a request."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[list[dict[str, Any]]]]:
    folder = tmp_path_factory.mktemp("flooding") / "planted"
    model, texts = train_model(folder)
    return folder, texts, labels_of(model, texts)


@pytest.fixture(scope="module")
def bodies() -> dict[str, bytes]:
    """The largest request of random texts and of flooding ones."""
    made = {}
    for name, words in (("random", random_words), ("flood", flooding_words)):
        several = [" ".join(words(WORDS, seed)) for seed in range(2)]
        made[name] = json.dumps({"texts": [several[at % 2] for at in range(TEXTS)]}).encode()
    assert len(made["random"]) == len(made["flood"])
    return made


@pytest.fixture(scope="module")
def service(trained: Any) -> Iterator[Service]:
    with serving(trained[0], kind=ForkedService) as service:
        yield service


def send(service: Service, body: bytes) -> Answer:
    return service.ask("POST", "/v1/predict", body=body, timeout=60)


def delays(service: Service, trained: Any, busy: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds that small requests take while another client is busy; all of them are answered rightly."""
    _, texts, labels = trained
    found: list[float] = []
    with background(busy) as raised:
        time.sleep(0.5)
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(found) < 20:
            started = time.monotonic()
            answer = service.predict(texts[:2])
            found.append(time.monotonic() - started)
            assert answer.status == 200, answer.body[:300]
            assert answer.labels() == labels[:2]
    assert not raised
    return found


def p95(values: list[float]) -> float:
    return statistics.quantiles(values, n=20)[-1]


def test_floods_delay_others_no_more_than_random_texts(
    service: Service, trained: Any, bodies: dict[str, bytes]
) -> None:
    found: dict[str, list[float]] = {"random": [], "flood": []}
    large: list[float] = []

    def busy(name: str) -> None:
        started = time.monotonic()
        assert send(service, bodies[name]).status in (200, 503)
        large.append(time.monotonic() - started)

    for name in ("random", "flood", "flood", "random"):
        found[name] += delays(service, trained, partial(busy, name), PHASE)
    medians, slowest = ({name: measure(found[name]) for name in found} for measure in (statistics.median, p95))
    print(medians, slowest, statistics.median(large))
    assert medians["flood"] <= 2 * medians["random"] + SLACK, (medians, slowest)
    assert slowest["flood"] <= 2 * slowest["random"] + SLACK, (medians, slowest)
    assert slowest["flood"] < statistics.median(large) / 2, "small requests wait for large ones"


def test_explanations_of_floods_do_not_lock_others_out(service: Service, trained: Any) -> None:
    text = " ".join(flooding_words(25_000))
    body = {"text": text[:200_000], "label": trained[2][0][0]["key"]}
    calls = [lambda: service.ask("POST", "/v1/explain", body, timeout=60)] * 4
    with background(*calls):
        assert p95(delays(service, trained, calls[0], PHASE / 2)) < 5


def predicted(service: Service) -> float:
    """Texts that the model has predicted."""
    counted = samples(service.ask("GET", "/metrics").body.decode())
    return next(value for (name, *_), value in counted.items() if name == "xmtc_texts_total")


def assert_idle(service: Service, trained: Any, before: float) -> None:
    """The thread is free after the text in progress, and the request that began it is not continued."""
    started = time.monotonic()
    assert service.predict(trained[1][:3]).labels() == trained[2][:3]
    assert time.monotonic() - started < 2
    after = predicted(service)
    time.sleep(1)
    assert predicted(service) == after < before + TEXTS, "texts of the request are still being predicted"


def test_a_request_that_timed_out_leaves_the_thread(trained: Any, bodies: dict[str, bytes]) -> None:
    with serving(trained[0], "--timeout", 1, kind=ForkedService) as service:
        assert send(service, bodies["flood"]).status == 503
        assert_idle(service, trained, 0)


def test_a_client_that_goes_away_leaves_the_thread(service: Service, trained: Any, bodies: dict[str, bytes]) -> None:
    before = predicted(service)
    body = bodies["flood"]
    head = "POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with service.connect() as connection:
        connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        until = time.monotonic() + 20
        while predicted(service) == before and time.monotonic() < until:
            time.sleep(0.05)
    assert_idle(service, trained, before)
