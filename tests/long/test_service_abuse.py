"""A service that strangers can reach: what is wrong is refused in one line, and the next request is answered."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Answer, ForkedService, Service, everything, labels_of, serving, train_model

pytestmark = pytest.mark.long
pytest.importorskip("uvicorn", reason="runs the service")

GROWTH = 400
"""Megabytes that a service may take for all of this: 256 of bodies, which are not given back to the system at once."""
PROMPT = 5.0
"""Seconds within which a good request is answered whatever came before, on a busy machine."""
DEEP = 100_000
JSON = "application/json"
TLS_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(32)) + b"\x00" * 150
SECONDS = 2
"""What a request may take at a service that is in a hurry."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[list[dict[str, Any]]]]:
    """A model folder, texts, and the labels that they get."""
    folder = tmp_path_factory.mktemp("abuse") / "planted"
    model, texts = train_model(folder)
    return folder, texts, labels_of(model, texts)


@pytest.fixture(scope="module")
def patient(trained: Any) -> Iterator[Service]:
    with serving(trained[0]) as service:
        assert service.predict(trained[1]).labels() == trained[2]
        before = service.memory()
        yield service
        assert service.memory() < before + GROWTH


@pytest.fixture(scope="module")
def hasty(trained: Any) -> Iterator[Service]:
    with serving(trained[0], "--timeout", SECONDS, kind=ForkedService) as service:
        yield service


@pytest.fixture
def service(patient: Service, trained: Any) -> Iterator[Service]:
    """A service that must answer after the test as if nothing had been, and have nothing to tell of it."""
    before = patient.errors()
    yield patient
    still_answers(patient, trained)
    assert patient.errors() == before


@pytest.fixture
def hurried(hasty: Service, trained: Any) -> Iterator[Service]:
    """The same, of one that waits for nobody."""
    before = hasty.errors()
    yield hasty
    still_answers(hasty, trained)
    assert hasty.errors() == before


def still_answers(service: Service, trained: Any) -> None:
    _, texts, labels = trained
    started = time.monotonic()
    answer = service.predict(texts[:3])
    assert answer.status == 200, answer.body
    assert answer.labels() == labels[:3]
    assert time.monotonic() - started < PROMPT


def assert_problem(answer: Answer, *statuses: int) -> str:
    """One line that says what is wrong, with one of these statuses."""
    assert answer.status in statuses, answer.body[:500]
    assert answer.headers["content-type"].partition(";")[0] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == answer.status
    assert set(problem) == {"type", "title", "status", "detail"}
    detail: str = problem["detail"]
    assert detail.strip()
    assert "\n" not in detail
    assert len(answer.body) < 4000  # it does not give back what it was given
    return detail


def status_of(received: bytes) -> int:
    """The status of an answer; 0 where the connection was closed without one."""
    if not received:
        return 0
    assert received.startswith(b"HTTP/1.1 "), received[:200]
    return int(received[9:12])


def predict_with(**fields: Any) -> bytes:
    return json.dumps({"texts": ["a"], **fields}).encode()


NOT_JSON = {
    "nothing": b"",
    "cut off": b'{"texts": ["a"',
    "words": b"tag this, please",
    "single quotes": b"{'texts': ['a']}",
    "more behind it": b'{"texts": ["a"]} and more',
    "two values": b'{"texts": ["a"]}{"texts": ["a"]}',
    "a trailing comma": b'{"texts": ["a",]}',
    "lists without end": b"[" * DEEP,
    "nested lists": b'{"texts": ' + b"[" * DEEP + b"]" * DEEP + b"}",
    "nested objects": b'{"texts": ["a"], "model": ' + b'{"a": ' * DEEP + b"1" + b"}" * DEEP + b"}",
    "Latin-1": b'{"texts": ["caf\xe9"]}',
    "bytes cut off": b'{"texts": ["caf\xc3"]}',
    "overlong": b'{"texts": ["\xc0\xaf"]}',
    "surrogate in bytes": b'{"texts": ["\xed\xa0\x80"]}',
    "surrogate escaped": rb'{"texts": ["\ud800"]}',
    "surrogates the wrong way round": rb'{"texts": ["\udc00\ud800"]}',
    "byte order mark": b"\xef\xbb\xbf" + predict_with(),
    "UTF-16": predict_with().decode().encode("utf-16"),
    "compressed": bytes.fromhex("1f8b0800000000000003") + b"\x00" * 100,
    "control characters": b'{"texts": ["a\x01b"]}',
    "NUL": b"\x00" * 1000,
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=list(NOT_JSON))
@pytest.mark.parametrize("path", ["/v1/predict", "/v1/explain", "/v1/feedback"])
def test_bodies_that_are_not_json(service: Service, path: str, body: bytes) -> None:
    assert_problem(service.ask("POST", path, body=body), 400, 422)


WRONG = {
    "null": b"null",
    "a number": b"17",
    "a string": b'"text"',
    "a list": b"[]",
    "no texts": b"{}",
    "another field": predict_with(top=5),
    "a field of objects": predict_with(__class__={}),
    "one string": predict_with(texts="a"),
    "an object of texts": predict_with(texts={"0": "a"}),
    "numbers as texts": predict_with(texts=[1]),
    "null as a text": predict_with(texts=["a", None]),
    "lists as texts": predict_with(texts=[["a"]]),
    "too many texts": predict_with(texts=["a"] * 1001),
    "millions of texts": predict_with(texts=[""] * 3_000_000),
    "a text too long": predict_with(texts=["a" * 1_000_001]),
    "k of 0": predict_with(k=0),
    "k below 0": predict_with(k=-1),
    "k too large": predict_with(k=1001),
    "k of 2^63": predict_with(k=2**63),
    "k of 4,000 digits": b'{"texts": ["a"], "k": ' + b"9" * 4000 + b"}",
    "k of 10,000 digits": b'{"texts": ["a"], "k": ' + b"9" * 10_000 + b"}",
    "k of a million digits": b'{"texts": ["a"], "k": ' + b"9" * 1_000_000 + b"}",
    "k below 0 of 4,000 digits": b'{"texts": ["a"], "k": -' + b"9" * 4000 + b"}",
    "k and a half": predict_with(k=1.5),
    "k in words": predict_with(k="5"),
    "k that is true": predict_with(k=True),
    "k of 1e999": b'{"texts": ["a"], "k": 1e999}',
    "k of NaN": b'{"texts": ["a"], "k": NaN}',
    "k of Infinity": b'{"texts": ["a"], "k": Infinity}',
    "threshold of NaN": b'{"texts": ["a"], "threshold": NaN}',
    "threshold of -Infinity": b'{"texts": ["a"], "threshold": -Infinity}',
    "threshold of 1e999": b'{"texts": ["a"], "threshold": 1e999}',
    "threshold of 4,000 digits": b'{"texts": ["a"], "threshold": ' + b"9" * 4000 + b"}",
    "threshold in words": predict_with(threshold="high"),
    "threshold that was not tuned": predict_with(threshold="auto"),
    "threshold that is true": predict_with(threshold=True),
    "threshold in a list": predict_with(threshold=[0.5]),
    "labels that there are not": predict_with(allow=["no such label"]),
    "labels denied that there are not": predict_with(deny=["no such label"]),
    "labels as a string": predict_with(allow="tariffs"),
    "labels by number": predict_with(deny=[1]),
    "a million labels": predict_with(allow=["x"] * 1_000_000),
    "a label of a million characters": predict_with(allow=["x" * 1_000_000]),
    "a model by number": predict_with(model=1),
}


@pytest.mark.parametrize("body", WRONG.values(), ids=list(WRONG))
def test_requests_that_ask_for_what_is_not_given(service: Service, body: bytes) -> None:
    assert_problem(service.ask("POST", "/v1/predict", body=body), 400, 422)


@pytest.mark.parametrize("name", ["other", "", "../planted", "planted/..", "/etc", "\x00", "planted\n", "x" * 100_000])
def test_models_that_are_not_served(service: Service, name: str) -> None:
    for path, body in (
        ("/v1/predict", {"texts": ["a"]}),
        ("/v1/explain", {"text": "a", "label": "b"}),
        ("/v1/feedback", {"text": "a"}),
    ):
        assert_problem(service.ask("POST", path, {**body, "model": name}), 404, 422)


def test_explanations_and_feedback_that_make_no_sense(service: Service, trained: Any) -> None:
    key = trained[2][0][0]["key"]
    for path, body in (
        ("/v1/explain", {"text": "a"}),
        ("/v1/explain", {"text": "a", "label": "no such label"}),
        ("/v1/explain", {"text": "a", "label": ""}),
        ("/v1/explain", {"text": "a", "label": 0}),
        ("/v1/explain", {"text": ["a"], "label": key}),
        ("/v1/explain", {"text": "a" * 1_000_001, "label": key}),
        ("/v1/feedback", {"accepted": [key]}),
        ("/v1/feedback", {"text": "a", "accepted": ["no such label"], "rejected": []}),
        ("/v1/feedback", {"text": "a", "accepted": [], "rejected": ["no such label"]}),
        ("/v1/feedback", {"text": "a", "accepted": key, "rejected": []}),
        ("/v1/feedback", {"text": "a", "accepted": [key], "rejected": [key]}),
        ("/v1/feedback", {"text": "a" * 1_000_001, "accepted": [key], "rejected": []}),
    ):
        assert_problem(service.ask("POST", path, body), 422, 404)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=-1", "limit=x", "limit=1e3", "limit=" + "9" * 5000, "limit=100000", "model=other"]
)
def test_searches_that_make_no_sense(service: Service, query: str) -> None:
    assert_problem(service.ask("GET", f"/v1/labels?q=a&{query}"), 422, 404)


@pytest.mark.parametrize("query", ["q=%ff%fe", "q=%00", "q=" + "a" * 20_000, "q=" + "%F0%9F%8D%95" * 500, "q=.*%28%5B"])
def test_odd_words_are_only_searched_for(service: Service, query: str) -> None:
    answer = service.ask("GET", f"/v1/labels?{query}")
    assert answer.status in (200, 400, 422)
    assert answer.status != 200 or answer.json()["labels"] == []


def test_of_two_fields_of_one_name_the_last_counts_or_none(service: Service, trained: Any) -> None:
    _, texts, labels = trained
    body = f'{{"texts": [{json.dumps(texts[0])}], "texts": [{json.dumps(texts[1])}]}}'.encode()
    answer = service.ask("POST", "/v1/predict", body=body)
    if answer.status == 200:
        assert answer.labels() == labels[1:2]
    else:
        assert_problem(answer, 400, 422)


def test_null_is_as_good_as_nothing(service: Service, trained: Any) -> None:
    _, texts, labels = trained
    nothing = dict.fromkeys(("k", "threshold", "model", "allow", "deny", "under", "only_used", "hierarchy", "details"))
    for field in nothing:
        assert service.predict(texts[:1], **{field: None}).labels() == labels[:1]
    assert service.predict(texts[:1], **nothing).labels() == labels[:1]


def test_odd_texts_are_texts(service: Service) -> None:
    texts = ["", " ", "\x00", "\u202e\u2028\ufeff", "🍕" * 1000, "a" * 1_000_000, "\U0010ffff", "<script>", "%s{}", "é"]
    answer = service.predict(texts)
    assert answer.status == 200
    assert len(answer.labels()) == len(texts)


@pytest.mark.parametrize(
    "kind",
    [
        "",
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data; boundary=x",
        "application/xml",
        "json",
        ",",
    ],
)
def test_bodies_of_another_kind(service: Service, kind: str) -> None:
    assert_problem(service.ask("POST", "/v1/predict", body=predict_with(), headers={"Content-Type": kind}), 415)


def test_no_body_at_all(service: Service) -> None:
    for path in ("/v1/predict", "/v1/explain", "/v1/feedback"):
        assert_problem(service.ask("POST", path), 400, 415, 422)


def test_other_methods(service: Service) -> None:
    for method, path in (
        ("GET", "/v1/predict"),
        ("PUT", "/v1/predict"),
        ("DELETE", "/v1/feedback"),
        ("POST", "/v1/models"),
        ("PATCH", "/"),
        ("POST", "/healthz"),
        ("TRACE", "/metrics"),
    ):
        answer = service.ask(method, path)
        assert_problem(answer, 405)
        assert answer.headers["allow"]
    for method in ("BREW", "get", "X" * 50):
        assert status_of(service.raw(f"{method} / HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode(), 2)) in (400, 405, 501)


def test_who_has_no_key_is_let_nowhere(trained: Any) -> None:
    key = "correct-horse-battery"
    environment = {**os.environ, "XMTC_API_KEY": key}
    with serving(trained[0], environment=environment, kind=ForkedService) as service:
        wrong = [
            "",
            key,
            "Bearer",
            "Bearer ",
            f"Basic {key}",
            f"Bearer {key[:-1]}",
            f"Bearer {key}x",
            "Bearer é" * 1000,
        ]
        for headers in ({}, *({"Authorization": value} for value in wrong)):
            for method, path in (
                ("POST", "/v1/predict"),
                ("POST", "/v1/feedback"),
                ("GET", "/v1/models"),
                ("GET", "/v1/labels"),
                ("GET", "/metrics"),
                ("GET", "/v1/nothing"),
            ):
                answer = service.ask(method, path, headers=headers)
                assert key not in assert_problem(answer, 401)
                assert answer.headers["www-authenticate"] == "Bearer"
        for path in (
            "//v1/models",
            "/V1/models",
            "/v1//models",
            "/./v1/models",
            "/page/../v1/models",
            "/%76%31/models",
        ):
            sent = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n"
            assert status_of(service.raw(sent.encode())) in (400, 401, 404)
        for path in ("/", "/healthz", "/readyz", "/openapi.json"):
            assert service.ask("GET", path).status == 200
        body = json.dumps({"texts": trained[1][:3]}).encode()
        answer = service.ask("POST", "/v1/predict", body=body, headers={"Authorization": f"Bearer {key}"})
        assert answer.labels() == trained[2][:3]
        assert key not in service.errors()


PATHS = (
    *("/page/../../etc/passwd", "/../../../../etc/passwd", "/page/..%2f..%2f..%2fetc%2fpasswd", "/page//etc/passwd"),
    *("/page/%2e%2e/%2e%2e/%2e%2e/etc/passwd", "/page/..%252f..%252fetc%252fpasswd", "/page/....//....//etc/passwd"),
    *("/page/..\\..\\etc\\passwd", "/page/%5c..%5c..%5cetc%5cpasswd", "/page/index.html%00.js", "/page/%00", "/page/"),
    *(
        "//etc/passwd",
        "/page/../__init__.py",
        "/page/..%2f__init__.py",
        "/page/~root",
        "/page/file:%2f%2f%2fetc%2fpasswd",
    ),
    *(
        "/page/%ff",
        "/page/%c0%ae%c0%ae/etc/passwd",
        "/v1/",
        "/v1/nothing",
        "/v1/predict/",
        "/docs",
        "/.git/config",
        "/*",
    ),
    *(
        "/page",
        "/page/;/index.html",
        "/%",
        "/page/%zz",
        "/page/" + "a" * 30_000,
        "/page/" + "../" * 5_000 + "etc/passwd",
    ),
)


@pytest.mark.parametrize("path", PATHS, ids=[path[:40] for path in PATHS])
def test_paths_that_lead_nowhere(service: Service, path: str) -> None:
    """Sent as they are: a client library would tidy them up."""
    received = service.raw(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode())
    assert status_of(received) in (400, 404, 405, 414, 431)
    assert b"root:" not in received
    assert b"import" not in received


@pytest.mark.parametrize(
    "line",
    [
        *(b"GET /\x00 HTTP/1.1", b"GET /page/\xff\xfe HTTP/1.1", b"GET / HTTP/1.1 HTTP/1.1", b"GET  / HTTP/1.1"),
        *(b"GET / HTTP/9.9", b"GET / HTP/1.1", b"GET\t/\tHTTP/1.1", b"GET HTTP/1.1", b" GET / HTTP/1.1", b"GET /"),
        *(b"/ GET HTTP/1.1", b"CONNECT example.org:443 HTTP/1.1", b"PRI * HTTP/2.0", b"OPTIONS * HTTP/1.1"),
        *(
            b"GET / page HTTP/1.1",
            b"GET http:// HTTP/1.1",
            b"GET http://[::1/ HTTP/1.1",
            b"GET ? HTTP/1.1",
            b"\xff" * 100,
        ),
    ],
)
def test_request_lines_that_are_none(service: Service, line: bytes) -> None:
    """Refused or closed; some parsers are lenient with blanks, and then it is a request like any other."""
    received = service.raw(line + b"\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", 3)
    assert status_of(received) in (0, 200, 400, 404, 405, 421, 501, 505)


@pytest.mark.parametrize(
    "sent", [b"GET /\r\n\r\n", b"\x00" * 5000, b"hello\r\n\r\n", TLS_HELLO, b"\r\n" * 1000, b"{}\r\n\r\n"]
)
def test_what_is_not_http(service: Service, sent: bytes) -> None:
    with service.connect(3) as connection:
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        assert status_of(everything(connection)) in (0, 400)


HEADERS = {
    "no host": b"Accept: */*\r\n",
    "two hosts": b"Host: 127.0.0.1\r\nHost: evil.example\r\n",
    "another host": b"Host: evil.example\r\n",
    "another host with our port": b"Host: evil.example:80\r\n",
    "a host that looks like ours": b"Host: 127.0.0.1.evil.example\r\n",
    "an empty host": b"Host:\r\n",
    "blanks before the colon": b"Host: 127.0.0.1\r\nX-A : b\r\n",
    "no colon": b"Host: 127.0.0.1\r\nX-A b\r\n",
    "NUL": b"Host: 127.0.0.1\r\nX-A: a\x00b\r\n",
    "no name": b"Host: 127.0.0.1\r\n: b\r\n",
    "a length below 0": b"Host: 127.0.0.1\r\nContent-Length: -1\r\n",
    "a length in words": b"Host: 127.0.0.1\r\nContent-Length: five\r\n",
    "two lengths": b"Host: 127.0.0.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n",
    "a length beyond all": b"Host: 127.0.0.1\r\nContent-Length: 99999999999999999999999\r\n",
    "length and chunks": b"Host: 127.0.0.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n",
    "another encoding": b"Host: 127.0.0.1\r\nTransfer-Encoding: gzip\r\n",
    "a header of a megabyte": b"Host: 127.0.0.1\r\nX-A: " + b"a" * (1 << 20) + b"\r\n",
    "a name of a megabyte": b"Host: 127.0.0.1\r\n" + b"a" * (1 << 20) + b": b\r\n",
    "100,000 headers": b"Host: 127.0.0.1\r\n" + b"X-A: b\r\n" * 100_000,
}


@pytest.mark.parametrize("headers", HEADERS.values(), ids=list(HEADERS))
def test_headers_that_are_wrong(service: Service, headers: bytes) -> None:
    request = b"POST /v1/predict HTTP/1.1\r\nContent-Type: application/json\r\n" + headers + b"\r\n" + predict_with()
    assert status_of(service.raw(request, 3)) in (0, 400, 408, 411, 413, 415, 421, 422, 431, 501)


def test_good_hosts_are_served(service: Service) -> None:
    for host in ("127.0.0.1", "localhost", f"127.0.0.1:{service.port}", f"localhost:{service.port}", "LOCALHOST"):
        assert service.ask("GET", "/healthz", headers={"Host": host}).status == 200


def test_a_wrong_host_is_told_so(service: Service) -> None:
    """A page elsewhere whose name leads here shall not read answers."""
    for method, path in (("GET", "/v1/models"), ("GET", "/"), ("POST", "/v1/predict")):
        assert_problem(service.ask(method, path, headers={"Host": "evil.example"}), 400, 421)


def test_who_names_no_host_is_refused(service: Service) -> None:
    assert status_of(service.raw(b"GET /v1/models HTTP/1.1\r\nConnection: close\r\n\r\n")) in (400, 421)
    hosts = b"Host: evil.example\r\nHost: 127.0.0.1\r\n"
    assert status_of(service.raw(b"GET /v1/models HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n")) in (400, 421)


def test_absolute_addresses_name_their_host(service: Service) -> None:
    sent = "GET http://{0}/healthz HTTP/1.1\r\nHost: {0}\r\nConnection: close\r\n\r\n"
    assert status_of(service.raw(sent.format("evil.example").encode())) in (400, 404, 421)
    assert status_of(service.raw(sent.format("127.0.0.1").encode())) in (200, 400, 404)


def test_pages_elsewhere_cannot_use_the_service(service: Service) -> None:
    origin = {"Origin": "https://evil.example"}
    asks = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    before = service.ask("OPTIONS", "/v1/predict", headers=asks)
    assert_problem(before, 400, 403, 405)
    simple = service.ask(
        "POST", "/v1/feedback", body=b'{"text": "a"}', headers={**origin, "Content-Type": "text/plain"}
    )
    assert_problem(simple, 403, 415)
    answers = [before, simple, service.ask("GET", "/v1/models", headers=origin)]
    assert not any(name.startswith("access-control") for answer in answers for name in answer.headers)


def test_too_large_by_its_own_words(service: Service) -> None:
    """Refused before the body is there, and without waiting for it."""
    started = time.monotonic()
    for length in ((32 << 20) + 1, 10**12):
        head = f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {JSON}\r\nContent-Length: {length}"
        for expecting in ("", "\r\nExpect: 100-continue"):
            with service.connect() as connection:
                connection.sendall(f"{head}{expecting}\r\n\r\n".encode())
                received = connection.recv(1 << 16)
            assert status_of(received) == 413
    assert time.monotonic() - started < PROMPT


def test_too_large_without_a_word(service: Service) -> None:
    """Chunks that never end: the service stops to listen soon after what it takes."""
    head = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    sent, piece = 0, b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
    with service.connect(5) as connection:
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n")
        with suppress(OSError):
            while sent < 200:
                connection.sendall(piece)
                sent += 1
        received = everything(connection)
    assert status_of(received) in (0, 413)
    assert sent < 80


def test_many_large_bodies_that_never_end(trained: Any) -> None:
    """Each is small enough, and together they are more than the service wants to hold."""
    head = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    piece = b"%x\r\n" % (1 << 20) + b" " * (1 << 20) + b"\r\n"
    with serving(trained[0], kind=ForkedService) as service:
        still_answers(service, trained)
        before, held = service.memory(), [service.connect(5) for _ in range(20)]
        try:
            for connection in held:
                with suppress(OSError):
                    connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + 31 * piece)
            time.sleep(0.5)
            assert service.memory() < before + 400  # of 620 that were sent
            still_answers(service, trained)
        finally:
            for connection in held:
                connection.close()
        until = time.monotonic() + 5
        while "all from 127.0.0.1" not in service.errors():
            assert time.monotonic() < until, "the log does not tell who sent them"
            time.sleep(0.1)


@pytest.mark.parametrize(
    "chunk", [b"zz\r\n", b"-1\r\n", b"ffffffffffffffffffff\r\n", b"5\r\nabcdefgh\r\n", b"5;" + b"a" * 200_000]
)
def test_chunks_that_are_none(service: Service, chunk: bytes) -> None:
    head = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with service.connect(3) as connection:
        with suppress(OSError):
            connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk)
            connection.shutdown(socket.SHUT_WR)
        assert status_of(everything(connection)) in (0, 400, 413)


def test_headers_without_end(service: Service) -> None:
    sent, piece = 0, b"X-Header: " + b"a" * 1000 + b"\r\n"
    with service.connect(5) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        with suppress(OSError):
            while sent < 20_000:
                connection.sendall(piece)
                sent += 1
        assert status_of(everything(connection)) in (0, 400, 431)
    assert sent < 20_000, "20 MB of headers were read"


def request_for(texts: list[str], **more: Any) -> bytes:
    body = json.dumps({"texts": texts, **more}).encode()
    head = (
        f"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    )
    return head.encode() + b"\r\n\r\n" + body


def test_requests_sent_together_are_answered_in_turn(service: Service, trained: Any) -> None:
    _, texts, labels = trained
    with service.connect(5) as connection:
        connection.sendall(b"".join(request_for([text]) for text in texts[:20]))
        found, reader = [], connection.makefile("rb")
        for _ in range(20):
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            length = 0
            while (line := reader.readline()) != b"\r\n":
                name, _, value = line.decode().partition(":")
                length = int(value) if name.lower() == "content-length" else length
            found.append(json.loads(reader.read(length))["predictions"][0]["labels"])
    assert found == labels[:20]


def test_clients_that_say_no_more(service: Service, trained: Any) -> None:
    """Half of a connection closed: what was asked may be answered, and is closed then."""
    for sent in (request_for(trained[1][:1]), request_for(trained[1])[:-5], b"GET / HT", b""):
        with service.connect(5) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            started = time.monotonic()
            assert status_of(everything(connection)) in (0, 200, 400, 408)
            assert time.monotonic() - started < 4


def test_clients_that_go_away(service: Service, trained: Any) -> None:
    """While their requests wait or are at work, or before they are there."""
    whole = request_for(trained[1] * 5)
    for turn in range(60):
        connection = service.connect()
        connection.sendall(whole[: len(whole) - 10 * (turn % 3)])
        if turn % 2:  # with a reset
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        connection.close()


def test_clients_that_only_hold_the_line(service: Service, trained: Any) -> None:
    held = [service.connect() for _ in range(300)]
    try:
        still_answers(service, trained)
    finally:
        for connection in held:
            connection.close()


def drip(service: Service, first: bytes, rest: bytes, every: float) -> tuple[bytes, float]:
    """Send the rest a byte at a time; what came back, and after how many seconds the service had enough."""
    started = time.monotonic()
    with service.connect(every) as connection:
        connection.sendall(first)
        received = b""
        for at in range(len(rest)):
            try:
                connection.sendall(rest[at : at + 1])
                came = connection.recv(1 << 16)
            except TimeoutError:
                continue
            except OSError:
                break
            received += came
            if not came:
                break
        return received, time.monotonic() - started


@pytest.mark.parametrize("cut", [0, 1, 40], ids=["no request line", "in the request line", "in the headers"])
def test_slow_headers(hurried: Service, cut: int) -> None:
    request = request_for(["a"])
    received, seconds = drip(hurried, request[:cut], request[cut : cut + 30], 0.5)
    assert status_of(received) in (0, 400, 408)
    assert seconds < SECONDS + 4


def test_slow_body(hurried: Service) -> None:
    body = len(b'{"texts": ["a"]}')
    received, seconds = drip(
        hurried, request_for(["a" * 200])[:-100], request_for(["a" * 200])[-100 : -100 + 2 * body], 0.5
    )
    assert status_of(received) in (0, 408, 503)
    assert seconds < SECONDS + 4


def test_many_slow_clients_keep_nobody_waiting(hurried: Service, trained: Any) -> None:
    held = [hurried.connect() for _ in range(200)]
    for number, connection in enumerate(held):
        connection.sendall(request_for(["a"])[: 10 + number % 80])
    try:
        still_answers(hurried, trained)
        until = time.monotonic() + SECONDS + 5
        for connection in held:
            connection.settimeout(max(0.1, until - time.monotonic()))
            assert status_of(everything(connection)) in (0, 400, 408)
        assert time.monotonic() < until
    finally:
        for connection in held:
            connection.close()


def test_clients_that_do_not_read(hurried: Service, trained: Any) -> None:
    """What they asked for is not kept for them for ever."""
    request = request_for(["a"] * 1000, k=60)
    with hurried.connect() as connection:
        connection.sendall(request)
        head = connection.recv(1 << 16).partition(b"\r\n\r\n")[0].decode()
        length = int(head.lower().partition("content-length: ")[2].split()[0])
    assert length > 3_000_000
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", hurried.port))
        connection.sendall(request * 5)
        time.sleep(SECONDS + 2)
        connection.settimeout(5)
        assert len(everything(connection)) < 5 * length


def at_once(calls: int, service: Service, texts: list[str]) -> list[Answer | None]:
    """The answers to one request sent many times at once; None where the service closed before it had all of it."""
    found: list[Answer | None] = []
    body = json.dumps({"texts": texts}).encode()

    def ask() -> None:
        try:
            found.append(service.ask("POST", "/v1/predict", body=body))
        except ConnectionError:
            found.append(None)

    threads = [threading.Thread(target=ask) for _ in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(found) == calls
    return found


def test_work_that_takes_too_long(trained: Any) -> None:
    """Who waits is told; the model goes on with the next request when it is done."""
    long = (" ".join(trained[1]) * 20)[:1_000_000]
    with serving(trained[0], "--timeout", 1, kind=ForkedService) as service:
        answers = at_once(12, service, [long] * 15)
        late = [answer for answer in answers if answer is None or answer.status != 200]
        assert late
        for answer in late:
            assert answer is None or assert_problem(answer, 408, 503)
        until = time.monotonic() + 30
        while service.predict(trained[1][:3]).status != 200 and time.monotonic() < until:
            time.sleep(0.2)
        still_answers(service, trained)


def test_more_than_can_wait(trained: Any) -> None:
    """Some are asked to come again, and all others are answered as ever."""
    _, texts, labels = trained
    long = (" ".join(texts) * 20)[:500_000]
    with serving(trained[0], "--queue", 400, kind=ForkedService) as service:
        busy = threading.Thread(target=lambda: service.predict([long] * 60))
        busy.start()
        time.sleep(0.3)
        found = [answer for answer in at_once(20, service, texts[:100]) if answer is not None]
        busy.join(60)
        assert len(found) == 20
        refused = [answer for answer in found if answer.status != 200]
        assert 0 < len(refused) < len(found)
        for answer in refused:
            assert_problem(answer, 429)
            assert int(answer.headers["retry-after"]) >= 1
        assert all(answer.labels() == labels[:100] for answer in found if answer.status == 200)
        still_answers(service, trained)
