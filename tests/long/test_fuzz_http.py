"""Requests made by a grammar, right ones and damaged ones: each gets the right answer or a problem in one line."""

from __future__ import annotations

import json
import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_grammar import Case, Grammar
from tests.support.service import Answer, ForkedService, Service, everything, labels_of, serving, train_model
from xmtc.core.runtime import Runtime
from xmtc.workflows.feedback import Feedback, FeedbackRecord, feedback_path
from xmtc.workflows.hosted_model import HostedModel, PredictOptions, VocabularyFilter

pytestmark = pytest.mark.long
pytest.importorskip("uvicorn", reason="runs the service")

CASES = int(os.environ.get("XMTC_FUZZ_CASES", "2500"))
SEED = int(os.environ.get("XMTC_FUZZ_SEED", "29"))
PROBE = 100
"""Cases between two probes with known answers."""
REFUSALS = (400, 404, 408, 413, 415, 422, 429, 503)
FIELDS = {
    "/v1/predict": (
        {"texts"},
        {"k", "threshold", "model", "allow", "deny", "under", "scheme", "only_used", "hierarchy", "details"},
    ),
    "/v1/explain": ({"text", "label"}, {"model"}),
    "/v1/feedback": ({"text"}, {"accepted", "rejected", "complete", "withdraw", "model"}),
}
"""Required and optional fields of each body."""


def send(service: Service, case: Case) -> Answer | None:
    """The answer to a case; None where the connection was closed without one."""
    head = f"{case.method} {case.path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    head += "".join(f"{name}: {value}\r\n" for name, value in case.headers.items())
    if case.chunks is not None:
        body = b"".join(case.chunks)
        head += "Transfer-Encoding: chunked\r\n"
    else:
        body = case.body
        if "Content-Length" not in case.headers and case.method == "POST":
            head += f"Content-Length: {len(body)}\r\n"
    with service.connect(20) as connection:
        with suppress(OSError):  # it may refuse and close before it has all
            connection.sendall(head.encode("latin-1") + b"\r\n" + body)
            if case.is_cut:
                connection.shutdown(socket.SHUT_WR)
        received = everything(connection)
    if not received:
        return None
    top, _, content = received.partition(b"\r\n\r\n")
    status, *lines = top.decode("latin-1").split("\r\n")
    assert status.startswith("HTTP/1.1 "), received[:200]
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    assert int(headers["content-length"]) == len(content), "more or less than was announced"
    return Answer(int(status[9:12]), headers, content)


def check_problem(answer: Answer) -> None:
    assert answer.status in REFUSALS, answer.status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail"}
    assert problem["status"] == answer.status
    assert problem["detail"].strip()
    assert "\n" not in problem["detail"]
    assert len(answer.body) < 4_000, "it gives back what it was given"


def parsed(case: Case) -> dict[str, Any]:
    """The fields of a body that was accepted, which must be JSON for a strict parser, too, and have the right types."""

    def refuse(word: str) -> None:
        raise ValueError(word)

    value = json.loads(case.body.decode("utf-8"), parse_constant=refuse)
    assert isinstance(value, dict)
    required, optional = FIELDS[case.path]
    assert required <= set(value) <= required | optional
    json.dumps(value, ensure_ascii=False).encode()  # without halves of surrogate pairs
    for name in {"text", "label"} & set(value):
        assert isinstance(value[name], str)
    for name in {"texts", "accepted", "rejected"} & set(value):
        assert all(isinstance(item, str) for item in value[name])
        assert isinstance(value[name], list)
    assert isinstance(value.get("model"), str | None)
    assert isinstance(value.get("complete", False), bool)
    assert isinstance(value.get("withdraw", False), bool)
    assert case.headers.get("Content-Encoding", "identity") == "identity"
    assert case.headers["Content-Type"].strip().partition(";")[0].strip().lower() == "application/json"
    return value


class Expected:
    """What the service has to answer."""

    def __init__(self, folder: Path) -> None:
        self._model = HostedModel(folder, Runtime(threads=1))
        self.feedback: list[tuple[str, tuple[str, ...], tuple[str, ...], bool]] = []

    def check(self, case: Case, answer: Answer) -> None:
        """Compare the answer to a request that was accepted with that of the model."""
        if case.method == "GET":
            self._check_get(case, answer)
            return
        value = parsed(case)
        if case.path == "/v1/predict":
            k, threshold = value.get("k"), value.get("threshold")
            lists = (
                None if value.get(name) is None else tuple(dict.fromkeys(value[name])) for name in ("allow", "deny")
            )
            under = tuple(dict.fromkeys(value.get("under") or ()))
            vocabulary = VocabularyFilter(under, used=True if value.get("only_used") else None)
            details = bool(value.get("details"))
            options = PredictOptions(None if k is None else int(k), threshold, *lists, vocabulary, "keep", details)
            right = self._model.predict(value["texts"], options) if value["texts"] else []
            assert answer.json()["predictions"] == json.loads(json.dumps(right)), "wrong labels"
        elif case.path == "/v1/explain":
            label, explanation = self._model.explain(value["text"], value["label"])
            assert answer.json()["label"]["key"] == label["key"]
            assert answer.json()["explanation"]["text"] == explanation["text"] == value["text"]
        else:
            lists = (tuple(value.get(name, ())) for name in ("accepted", "rejected"))
            self.feedback.append((value["text"], *lists, value.get("complete", False)))  # type: ignore[arg-type]
            assert answer.json()["id"] == len(self.feedback)

    def _check_get(self, case: Case, answer: Answer) -> None:
        if case.path.startswith("/v1/labels?"):
            assert len(answer.json()["labels"]) <= 100
        elif case.path.startswith("/v1/"):
            assert answer.json()


def test_every_answer_is_right_or_a_problem(tmp_path: Path) -> None:
    folder = tmp_path / "planted"
    model, texts = train_model(folder)
    probe, right = texts[:5], labels_of(model, texts[:5])
    grammar = Grammar(SEED, texts[:50], model.labels.keys)
    expected, accepted, statuses = Expected(folder), 0, {0: 0}
    with serving(folder, "--timeout", 5, "--max-characters", 100_000, kind=ForkedService) as service:
        for number in range(CASES):
            case = grammar.case()
            try:
                answer = send(service, case)
                status = 0 if answer is None else answer.status
                statuses[status] = statuses.get(status, 0) + 1
                if answer is None:
                    assert case.is_cut, "no answer"
                elif answer.status in (200, 201):
                    assert not case.is_cut, "accepted although it is not whole"
                    accepted += 1
                    expected.check(case, answer)
                else:
                    check_problem(answer)
                    assert not case.is_valid, answer.body
                if number % PROBE == 0:
                    assert service.predict(probe).labels() == right, "the service no longer answers as it should"
            except Exception as error:
                pytest.fail(f"seed {SEED}, case {number}: {type(error).__name__}: {error}\n{case}")
        assert service.predict(probe).labels() == right
        assert service.errors() == ""
    records: list[FeedbackRecord] = list(Feedback(feedback_path(folder), read_only=True).records())
    assert [(found.text, found.accepted, found.rejected, found.complete) for found in records] == expected.feedback
    assert accepted > CASES // 6, statuses
    assert sum(statuses.get(status, 0) for status in (400, 415, 422)) > CASES // 3, statuses
