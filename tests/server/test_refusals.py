"""What a service refuses, and in which words."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.app import Serve, problem
from xmtc.core.errors import ConfigError
from xmtc.models.parabel import Parabel
from xmtc.server import batching
from xmtc.workflows.hosted_model import check_servable, folder_names
from xmtc.workflows.serve import ServeRequest

BAD = [
    ({"text": ["a"]}, "unknown field 'text'. Did you mean 'texts'?"),
    (
        {},
        "'texts' is missing. Fields: texts, k, threshold, model, allow, deny, under, scheme, collection, type, "
        "only_used, only_unused, hierarchy, details.",
    ),
    ({"texts": "a"}, "'texts' must be a list of strings. Got 'a'."),
    ({"texts": ["a", 5]}, "'texts[1]' must be a string. Got 5."),
    ({"texts": ["a", None]}, "'texts[1]' must be a string. Got null."),
    ({"texts": ["a"], "k": 0}, "'k' must be an integer ≥ 1. Got 0."),
    ({"texts": ["a"], "k": 1.5}, "'k' must be an integer ≥ 1. Got 1.5."),
    ({"texts": ["a"], "k": True}, "'k' must be an integer ≥ 1. Got True."),
    ({"texts": ["a"], "k": "5"}, "'k' must be an integer ≥ 1. Got '5'."),
    ({"texts": ["a"], "k": 11}, "'k' must be at most 10. Got 11."),
    ({"texts": ["a"], "threshold": "high"}, "'threshold' must be a number or 'auto'. Got 'high'."),
    ({"texts": ["a"], "threshold": True}, "'threshold' must be a number or 'auto'. Got True."),
    ({"texts": ["a"], "threshold": 1e39}, "'threshold' must be a number or 'auto'. Got 1e+39."),
    ({"texts": ["a"] * 5}, "5 texts exceed the limit of 4 per request. Send fewer texts."),
    ({"texts": ["a" * 101]}, "a text in 'texts' has 101 characters, more than 100. Shorten it."),
    ({"texts": ["a"], "model": 3}, "'model' must be a string. Got 3."),
    ({"texts": ["a"], "allow": "x"}, "'allow' must be a list of strings. Got 'x'."),
    (
        {"texts": ["a"], "allow": []},
        "'allow' and 'deny' exclude all of the model's 60 labels. Allow more, or deny fewer.",
    ),
    (["a"], "the body must be a JSON object. Got a list."),
    ("a", "the body must be a JSON object. Got 'a'."),
    (None, "the body must be a JSON object. Got null."),
]


@pytest.mark.parametrize(("content", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_a_body_that_is_wrong_gets_one_line(serve: Serve, content: Any, words: str) -> None:
    served = serve(max_texts=4, max_characters=100, max_k=10)
    answer = served.client.post(
        "/v1/predict", content=json.dumps(content), headers={"content-type": "application/json"}
    )
    assert answer.status_code == 422
    assert problem(answer) == words
    assert served.predict(served.texts[0][:100])


def test_a_label_that_is_not_there_is_named(serve: Serve) -> None:
    words = serve().refused("/v1/predict", {"texts": ["a"], "allow": ["no such label"]})
    assert words.startswith("label of 'allow' 'no such label' is not among the model's 60 labels.")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"texts": ["a"]',
        b'{"texts": [NaN]}x',
        b"\xff\xfe",
        b'{"texts": ["\xff"]}',
        b'{"texts": ["\\ud800"]}',
    ],
)
def test_what_is_not_json_is_a_bad_request(serve: Serve, body: bytes) -> None:
    answer = serve().client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert problem(answer).startswith("the body is not JSON: ")


def test_many_mistakes_cost_no_more_than_one(serve: Serve) -> None:
    client = serve(max_body=8).client
    many = {"texts": [1] * 500_000}, {"texts": ["a"], "allow": [1] * 500_000}, {f"x{i}": 1 for i in range(100_000)}
    words = (
        "'texts[0]' must be a string. Got 1.",
        "'allow[0]' must be a string. Got 1.",
        "the body has more than 100 unknown fields",
    )
    for content, start in zip(many, words, strict=True):
        begun = time.perf_counter()
        answer = client.post("/v1/predict", content=json.dumps(content), headers={"content-type": "application/json"})
        assert answer.status_code == 422
        assert problem(answer).startswith(start)
        assert time.perf_counter() - begun < 2
    begun = time.perf_counter()
    answer = client.post("/v1/predict", json={"texts": [], "model": "ab" * 2_000_000})
    assert answer.status_code == 404
    assert len(problem(answer)) < 200
    assert time.perf_counter() - begun < 2


@pytest.mark.parametrize("name", ["int", "float", "list[str]", "0", ""])
def test_a_field_with_a_strange_name_is_just_not_known(serve: Serve, name: str) -> None:
    words = serve().refused("/v1/predict", {"texts": ["a"], name: 1})
    assert words.startswith("unknown field '")


def test_labels_of_all_texts_together_are_bounded(serve: Serve) -> None:
    served = serve(max_k=1000)
    words = served.refused("/v1/predict", {"texts": ["a"] * 101, "k": 1000})
    assert words == "texts × k = 101,000 exceeds the limit of 100,000. Send fewer texts or lower k."
    assert len(served.predict(*["a"] * 101)) == 101


def test_bytes_at_work_are_bounded_and_given_back(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServeRequest, "max_in_flight_bytes", property(lambda _: 1_500))
    served = serve()
    for _ in range(5):
        assert served.predict("a" * 900)
    monkeypatch.setattr(ServeRequest, "max_in_flight_bytes", property(lambda _: 500))
    answer = served.post("/v1/predict", {"texts": ["a" * 900]})
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "1"
    assert served.predict("a" * 100)


def test_explanations_that_wait_are_bounded(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batching, "MAX_WAITING_CALLS", 0)
    words = serve().refused("/v1/explain", {"text": "a", "label": "b"}, 429)
    assert words == "0 requests are already waiting for 'tree'. Try again in a moment."


@pytest.mark.parametrize("depth", [1_000, 200_000])
def test_nesting_without_end_is_refused(serve: Serve, depth: int) -> None:
    body = b'{"texts": ' + b"[" * depth + b"]" * depth + b"}"
    answer = serve().client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
    assert answer.status_code in (400, 422)
    assert len(problem(answer)) < 300


def test_other_kinds_of_content_are_refused(serve: Serve) -> None:
    client = serve().client
    for kind in ("text/plain", "application/x-www-form-urlencoded", "", "application/jsonx"):
        answer = client.post("/v1/predict", content=b'{"texts": ["a"]}', headers={"content-type": kind})
        assert answer.status_code == 415
        assert problem(answer).startswith("the body must be JSON.")
    kind = "Application/JSON; charset=utf-8"
    assert client.post("/v1/predict", content=b'{"texts": []}', headers={"content-type": kind}).status_code == 200


def test_a_body_has_a_size_whether_it_says_so_or_not(serve: Serve) -> None:
    client = serve(max_body=1).client
    large = json.dumps({"texts": ["a" * 600_000] * 2}).encode()
    kind = {"content-type": "application/json"}
    assert client.post("/v1/predict", content=large, headers=kind).status_code == 413
    answer = client.post("/v1/predict", content=iter([large[:500_000], large[500_000:]]), headers=kind)
    assert answer.status_code == 413
    assert problem(answer) == "the body exceeds 1,048,576 bytes. Send fewer texts per request."


@pytest.mark.parametrize(
    ("query", "start"),
    [("limit=x", "'limit' cannot be 'x'"), ("limit=0", "'limit' cannot be '0'"), ("q=" + "a" * 201, "'q' cannot be")],
)
def test_a_query_that_is_wrong_gets_one_line(serve: Serve, query: str, start: str) -> None:
    answer = serve().client.get(f"/v1/labels?{query}")
    assert answer.status_code == 422
    assert problem(answer).startswith(start)


def test_paths_and_methods_that_are_not_there(serve: Serve) -> None:
    client = serve().client
    for path in (
        "/v1/nothing",
        "/page/../app.py",
        "/page/..%2Fapp.py",
        "/page/%2Fetc%2Fpasswd",
        "/page/",
        "/page/x.py",
    ):
        answer = client.get(path)
        assert answer.status_code == 404, path
        problem(answer)
    answer = client.put("/v1/predict")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "POST"
    assert problem(answer).startswith("'/v1/predict' does not support PUT.")


def test_a_key_opens_what_it_guards_and_nothing_else_does(serve: Serve) -> None:
    client = serve(api_key="correct-horse").client
    guarded = [("POST", "/v1/predict"), ("POST", "/v1/feedback"), ("GET", "/v1/models"), ("GET", "/metrics")]
    for method, path in guarded:
        for given in (None, "Bearer wrong", "correct-horse", "Basic correct-horse", "Bearer "):
            answer = client.request(method, path, headers={} if given is None else {"authorization": given})
            assert answer.status_code == 401, (path, given)
            assert client.request(method, path + "%0a").status_code == 401
            assert client.request(method, path + "/").status_code == 401
            assert answer.headers["www-authenticate"] == "Bearer"
            assert "Authorization: Bearer KEY" in problem(answer)
    assert client.get("/v1/models", headers={"authorization": "Bearer correct-horse"}).status_code == 200
    assert client.get("/metrics", headers={"authorization": "bearer correct-horse"}).status_code == 200
    for path in ("/", "/healthz", "/readyz", "/openapi.json"):
        assert client.get(path).status_code == 200


def test_a_body_without_the_key_is_not_read(serve: Serve) -> None:
    read: list[int] = []

    def body() -> Any:
        for number in range(3):
            read.append(number)
            yield b" " * 1000

    client = serve(api_key="correct-horse").client
    kind = {"content-type": "application/json"}
    assert client.post("/v1/predict", content=body(), headers=kind).status_code == 401
    assert len(read) <= 1


def test_openapi_says_where_the_key_is_wanted(serve: Serve) -> None:
    told = serve(api_key="correct-horse").client.get("/openapi.json").json()
    assert told["components"]["securitySchemes"]["HTTPBearer"]["scheme"] == "bearer"
    guarded = {path for path, ways in told["paths"].items() for way in ways.values() if way.get("security")}
    assert guarded == {"/v1/predict", "/v1/explain", "/v1/feedback", "/v1/models", "/v1/labels", "/metrics"}
    assert "securitySchemes" not in serve().client.get("/openapi.json").json()["components"]


def test_the_key_is_wanted_before_a_method_is_refused(serve: Serve) -> None:
    client = serve(api_key="correct-horse").client
    assert client.put("/v1/predict").status_code == 401
    assert client.put("/v1/predict", headers={"authorization": "Bearer correct-horse"}).status_code == 405
    assert client.post("/healthz").status_code == 405
    assert client.get("/page/nothing.js").status_code == 404
    for host in ("localhost/healthz?", "localhost/page/", "a b"):  # what a URL made of it would look like counts not
        assert client.get("/v1/nothing", headers={"host": host}).status_code == 401


def test_other_host_names_are_refused_where_they_are_told_apart(serve: Serve) -> None:
    client = serve(host="127.0.0.1").client
    for good in ("localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:80", "[::1]:8000", "[::1]"):
        assert client.get("/healthz", headers={"host": good}).status_code == 200, good
    for bad in ("evil.example", "evil.example:8000", "localhost.evil.example", ""):
        answer = client.get("/healthz", headers={"host": bad})
        assert answer.status_code == 421, bad
        problem(answer)


def test_nothing_invites_other_sites(serve: Serve) -> None:
    client = serve().client
    for answer in (
        client.get("/healthz", headers={"origin": "http://evil.example"}),
        client.options(
            "/v1/predict", headers={"origin": "http://evil.example", "access-control-request-method": "POST"}
        ),
    ):
        assert not [name for name in answer.headers if name.startswith("access-control")]
    page = client.get("/")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"


def test_a_slow_model_is_given_up_and_goes_on(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(timeout=0.5)
    loaded = served.host[None].current
    quick = loaded.predict

    def slow(*given: Any) -> Any:
        time.sleep(1.0)
        return quick(*given)

    monkeypatch.setattr(loaded, "predict", slow)
    words = served.refused("/v1/predict", {"texts": ["a"]}, 503)
    assert words == "timed out after 0.5 s. Send fewer texts per request."
    monkeypatch.setattr(loaded, "predict", quick)
    time.sleep(0.7)
    assert served.predict(served.texts[0])


def test_a_failure_of_ours_is_a_500_that_says_so(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    served = serve(raises=False)

    def broken(*_: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(served.host[None].current, "predict", broken)
    words = served.refused("/v1/predict", {"texts": ["a"]}, 500)
    assert words == "internal error. See the standard error of the service, and please report it."


def test_openapi_has_an_example_for_every_body(serve: Serve) -> None:
    told = serve(max_texts=9).client.get("/openapi.json").json()
    posts = {path: way["post"] for path, way in told["paths"].items() if "post" in way}
    assert set(posts) == {"/v1/predict", "/v1/explain", "/v1/feedback"}
    for path, way in posts.items():
        content = way["requestBody"]["content"]["application/json"]
        assert set(content["example"]) <= set(content["schema"]["properties"]), path
        good = "201" if path == "/v1/feedback" else "200"
        assert way["responses"][good]["content"]["application/json"]["example"], path
        assert "application/problem+json" in way["responses"]["422"]["content"], path
    texts = posts["/v1/predict"]["requestBody"]["content"]["application/json"]["schema"]["properties"]["texts"]
    assert texts["maxItems"] == 9
    assert not re.search(r"https?://", json.dumps(told)), "OpenAPI points elsewhere"


def test_folders_that_cannot_be_served_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="two models are named 'm'"):
        folder_names([tmp_path / "a" / "m", tmp_path / "b" / "m"])
    (tmp_path / "today").symlink_to(tmp_path / "v3")
    assert list(folder_names([tmp_path / "today"])) == ["today"], "the name is that of the link, which stays"
    import numpy as np

    Parabel(trees=1).fit(np.eye(8), [[str(i % 2)] for i in range(8)]).save(tmp_path / "numbers")
    with pytest.raises(ConfigError, match="was trained on a feature matrix, not on texts"):
        check_servable(tmp_path / "numbers")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"max_texts": 0}, {"max_body": -1}, {"timeout": 0}, {"timeout": float("nan")}, {"window": 1000}),
        *({"hostname": ("a*b",)}, {"hostname": ("*.*.example",)}),
    ],
)
def test_limits_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ServeRequest(folders=(Path("m"),), **wrong)


ELSEWHERE = [
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "cross-site", "Origin": "http://testserver"},
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Host": "testserver:8000", "Origin": "http://testserver:8001"},
    {"Origin": "http://testserver.evil.example"},
    {"Origin": "file://"},
    {"Origin": ""},
]


@pytest.mark.parametrize("headers", ELSEWHERE, ids=str)
def test_what_changes_something_is_refused_from_pages_elsewhere(
    serve: Serve, headers: dict[str, str], tmp_path: Path
) -> None:
    served = serve(host="0.0.0.0", hostname=("testserver",), feedback=tmp_path)
    for path in ("/v1/feedback", "/v1/predict", "/v1/explain", "/nowhere"):
        answer = served.post(path, {"text": "a", "complete": True}, headers=headers)
        assert answer.status_code == 403, path
        assert problem(answer).startswith("requests from other web sites are not allowed.")
    for path in ("/v1/models", "/v1/labels", "/"):
        answer = served.client.get(path, headers=headers)  # which changes nothing, and which they cannot read
        assert answer.status_code == 200
        assert not [name for name in answer.headers if name.startswith("access-control")]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "same-origin", "Origin": "https://proxy.example"},  # the proxy has changed Host
        {"Sec-Fetch-Site": "none"},
        {"Origin": "http://testserver"},
        {"Origin": "https://TESTSERVER"},  # TLS ends at a proxy
        {"Origin": "https://tags.example:8443"},  # named by --hostname
        {"Host": "testserver:8000", "Origin": "http://testserver:8000"},
    ],
    ids=str,
)
def test_its_own_page_and_programs_are_served(serve: Serve, headers: dict[str, str], tmp_path: Path) -> None:
    served = serve(host="0.0.0.0", hostname=("testserver", "tags.example"), feedback=tmp_path)
    assert served.post("/v1/feedback", {"text": "a", "complete": True}, headers=headers).status_code == 201


def test_forms_of_other_pages_are_not_read(serve: Serve, tmp_path: Path) -> None:
    """What a page elsewhere can send without asking first has another content type, whatever its headers."""
    served = serve(feedback=tmp_path)
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=a", ""):
        answer = served.client.post(
            "/v1/feedback", content='{"text": "a", "complete": true}', headers={"Content-Type": kind}
        )
        assert answer.status_code == 415, kind
    assert not list(tmp_path.iterdir())


def test_compressed_bodies_are_refused(serve: Serve) -> None:
    served = serve()
    answer = served.post("/v1/predict", {"texts": ["a"]}, headers={"Content-Encoding": "gzip"})
    assert (answer.status_code, problem(answer)) == (
        415,
        "compressed bodies are not supported. Send no Content-Encoding, not 'gzip'.",
    )
    assert served.post("/v1/predict", {"texts": ["a"]}, headers={"Content-Encoding": "identity"}).status_code == 200
