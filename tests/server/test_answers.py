"""What the service answers is what the model answers, and what people search and decide is kept."""

from __future__ import annotations

import re
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.support.app import Serve, problem, samples
from tests.support.models import planted_split
from xmtc import load
from xmtc.data.dataset import as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.models.lexical import Lexical
from xmtc.models.parabel import Parabel
from xmtc.models.popularity import Popularity
from xmtc.server import model_host
from xmtc.server.clients import ClientNames
from xmtc.server.metrics import BUCKETS
from xmtc.workflows import hosted_model, saved_metrics
from xmtc.workflows.evaluate import evaluate_model
from xmtc.workflows.feedback import Feedback

Labels = list[list[dict[str, Any]]]


def right(folder: Path, texts: list[str], *arguments: Any, **how: Any) -> Labels:
    return [row["labels"] for row in load(folder).predict(texts, *arguments, **how).rows()]


def test_labels_are_those_of_the_model(serve: Serve, trained: dict[str, Path]) -> None:
    served = serve()
    texts = served.texts[:20]
    assert served.predict(*texts) == right(trained["tree"], texts)
    assert served.predict(*texts, k=2) == right(trained["tree"], texts, 2)
    assert served.predict(*texts, k=3.0) == right(trained["tree"], texts, 3)
    assert served.predict(*texts, threshold=0.3) == right(trained["tree"], texts, threshold=0.3)
    assert served.predict(*texts, threshold=0.3, k=1) == right(trained["tree"], texts, 1, threshold=0.3)
    assert served.predict() == []


def test_an_empty_text_and_any_script_are_answered(serve: Serve, trained: dict[str, Path]) -> None:
    texts = ["", " \n", "тест 测试 🙂", "a\u0000b", "e\u0301"]
    assert serve().predict(*texts) == right(trained["tree"], texts)


def test_a_text_without_a_known_word_is_marked(serve: Serve) -> None:
    served = serve()
    body = {"texts": [served.texts[0], "qqzz", ""], "k": 2}
    found = served.client.post("/v1/predict", json=body).json()["predictions"]
    assert [row.get("known_words") for row in found] == [None, False, False]
    assert [set(row) for row in found[:2]] == [{"labels"}, {"labels", "known_words"}]
    assert [len(row["labels"]) for row in found] == [2, 2, 2]
    sets = served.client.post("/v1/predict", json={**body, "threshold": 0.0}).json()["predictions"]
    assert [len(row["labels"]) for row in sets] == [2, 0, 0]
    why = {"text": "qqzz", "label": found[1]["labels"][0]["key"]}
    assert served.client.post("/v1/explain", json=why).json()["explanation"]["known_words"] is False


def test_some_labels_only_or_never(serve: Serve, trained: dict[str, Path]) -> None:
    served = serve()
    text = served.texts[0]
    keys = [label["key"] for label in served.predict(text)[0]]
    assert [label["key"] for label in served.predict(text, allow=keys[1:3])[0]] == keys[1:3]
    assert keys[0] not in [label["key"] for label in served.predict(text, deny=[keys[0]])[0]]
    assert served.predict(text, deny=[keys[0]]) == right(trained["tree"], [text], deny=[keys[0]])
    for key in load(trained["tree"]).labels.keys[: 2 * hosted_model.CACHED_FILTERS]:  # more choices than are remembered
        assert [label["key"] for label in served.predict(text, allow=[key], k=1)[0]] in ([key], [])


def test_requests_at_the_same_time_each_get_their_own(serve: Serve, trained: dict[str, Path]) -> None:
    served = serve(window=20)
    texts = served.texts[:60]
    expected = {k: right(trained["tree"], texts, k) for k in (1, 3)}

    def ask(i: int) -> tuple[int, int, Labels]:
        k = 1 + 2 * (i % 2)
        return i, k, served.predict(texts[i], texts[-i], k=k)

    with ThreadPoolExecutor(16) as pool:
        for i, k, found in pool.map(ask, range(1, 60)):
            assert found == [expected[k][i], expected[k][-i]]
    assert served.metrics()["xmtc_batches_total", "tree"] < 59, "nothing was tagged together"


def test_a_model_is_named_or_the_first_is_meant(serve: Serve, trained: dict[str, Path]) -> None:
    served = serve("near", "tree")
    text = served.texts[1]
    assert served.predict(text) == served.predict(text, model="near") == right(trained["near"], [text])
    assert served.predict(text, model="tree") == right(trained["tree"], [text])
    words = served.refused("/v1/predict", {"texts": ["a"], "model": "tre"}, 404)
    assert words == "no model 'tre'. Did you mean 'tree'?"


@pytest.mark.parametrize(("name", "kind"), [("tree", "tokens"), ("near", "neighbours")])
def test_why(serve: Serve, trained: dict[str, Path], name: str, kind: str) -> None:
    served = serve(name)
    text = served.texts[2]
    label = served.predict(text, k=1)[0][0]
    for meant in (label["key"], label["name"]):
        answer = served.post("/v1/explain", {"text": text, "label": meant}).json()
        assert answer["model"] == name
        assert answer["label"]["key"] == label["key"]
        assert answer["label"]["score"] == pytest.approx(label["score"])
        assert answer["explanation"]["kind"] == kind
        assert answer["explanation"]["evidence"]
    direct = load(trained[name]).explain(text, label["key"]).to_json()
    assert answer["explanation"]["evidence"][0].keys() == direct["evidence"][0].keys()
    assert answer["explanation"]["features"] == []


def test_why_a_name_matches(serve: Serve, tmp_path: Path) -> None:
    """The features of a match are part of the answer."""
    names = ["barley", "rye bread", "oat milk", "wheat flour"]
    pairs = [(one, other) for one in names for other in names if one != other] * 10
    texts = [f"{one} here and there, {one} at home, and no {other}" for one, other in pairs]
    Lexical(documents=80).fit(texts, [[one] for one, _ in pairs]).save(tmp_path / "names")
    served = serve(tmp_path / "names")
    text = "We bought barley."
    answer = served.post("/v1/explain", {"text": text, "label": "barley"}).json()["explanation"]
    assert [word["text"] for word in answer["evidence"]] == ["barley"]
    assert answer["features"]
    direct = load(tmp_path / "names").explain(text, "barley")
    assert answer["features"] == [asdict(feature) for feature in direct.features]
    other = served.post("/v1/explain", {"text": text, "label": "oat milk"}).json()["explanation"]
    assert other["evidence"] == []
    assert other["features"]


def test_what_cannot_explain_says_so_as_the_command_line_does(serve: Serve) -> None:
    words = serve("often").refused("/v1/explain", {"text": "a", "label": "l"})
    assert "is not among the model's 60 labels" in words
    served = serve("often")
    key = served.predict("a", k=1)[0][0]["key"]
    words = served.refused("/v1/explain", {"text": "a", "label": key})
    assert words == "popularity cannot explain its predictions. Models that can are marked 'explain' in: xmtc models"


def test_what_is_served_is_told(serve: Serve, trained: dict[str, Path]) -> None:
    told = serve("tree", "often", max_texts=7).client.get("/v1/models").json()
    assert [model["name"] for model in told["models"]] == ["tree", "often"]
    tree = told["models"][0]
    assert tree["kind"] == "parabel"
    assert tree["labels"] == 60
    assert tree["settings"]["trees"] == 1
    assert tree["training"]["documents"] == 800
    assert "explain" in tree["can"]
    assert not tree["calibrated"]
    assert not tree["threshold"]
    assert tree["metrics"] is None
    assert tree["feedback"]
    assert told["limits"]["texts"] == 7


def test_measures_that_were_kept_are_told_while_the_model_is_the_same(
    serve: Serve, trained: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "measured"
    shutil.copytree(trained["tree"], folder)
    test = planted_split(800, 200, labels=60, seed=7)[1]
    result = evaluate_model(load(folder), test)
    saved_metrics.save_metrics(folder, Path("some/test.jsonl"), result)
    told = serve(folder).client.get("/v1/models").json()["models"][0]["metrics"]
    assert told["P@1"] == pytest.approx(result.metrics["P@1"])
    assert told["measured"]["file"] == "test.jsonl"
    assert told["measured"]["documents"] == 200
    load(folder).calibrate(test).save(folder, overwrite=True)
    assert serve(folder).client.get("/v1/models").json()["models"][0]["metrics"] is None
    saved_metrics.metrics_path(folder).write_text("{")
    assert saved_metrics.read_metrics(folder) is None


def test_calibrated_scores_and_tuned_sets(serve: Serve, trained: dict[str, Path], tmp_path: Path) -> None:
    test = planted_split(800, 200, labels=60, seed=7)[1]
    load(trained["tree"]).calibrate(test).save(tmp_path / "sure")
    served = serve(tmp_path / "sure")
    told = served.client.get("/v1/models").json()["models"][0]
    assert told["calibrated"]
    assert told["threshold"]
    texts = served.texts[:30]
    assert served.predict(*texts, threshold="auto") == right(tmp_path / "sure", texts, threshold="auto")
    words = served.refused("/v1/predict", {"texts": ["a"], "threshold": 2})
    assert words == "'threshold' must be from 0 to 1, since scores are probabilities. Got 2.0."
    words = serve().refused("/v1/predict", {"texts": ["a"], "threshold": "auto"})
    assert words == "this model has no tuned threshold. Tune one with: xmtc calibrate DIR VALID"


def test_labels_are_found_by_their_names(serve: Serve, trained: dict[str, Path]) -> None:
    served = serve()
    labels = load(trained["tree"]).labels
    name = labels.names[17]
    found = served.client.get("/v1/labels", params={"q": name[:4].upper()}).json()
    assert found["model"] == "tree"
    assert name in [label["name"] for label in found["labels"]]
    assert all(name[:4].lower() in label["name"].lower() for label in found["labels"])
    few = served.client.get("/v1/labels", params={"limit": 3}).json()
    counts = [label["documents"] for label in few["labels"]]
    assert len(counts) == 3
    assert counts == sorted(load(trained["tree"]).label_counts.tolist(), reverse=True)[:3]
    assert few["more"]
    assert served.client.get("/v1/labels", params={"q": "nothing is called so"}).json()["labels"] == []


def test_feedback_is_kept_beside_the_model(serve: Serve, tmp_path: Path) -> None:
    served = serve("tree", "near", feedback=tmp_path)
    keys = [label["key"] for label in served.predict(served.texts[0], k=3)[0]]
    first = {"text": served.texts[0], "accepted": keys[:2], "rejected": keys[2:]}
    answer = served.post("/v1/feedback", first)
    assert answer.status_code == 201
    second = served.post("/v1/feedback", {"text": "тест", "rejected": [keys[0]]})
    assert second.json()["id"] > answer.json()["id"]
    records = list(Feedback(tmp_path / "tree.feedback.sqlite").records())
    assert [(found.text, list(found.accepted), list(found.rejected)) for found in records] == [
        (first["text"], keys[:2], keys[2:]),
        ("тест", [], [keys[0]]),
    ]
    assert records[0].version == served.client.get("/v1/models").json()["models"][0]["version"]
    assert not (tmp_path / "near.feedback.sqlite").exists()


def test_feedback_that_cannot_be_meant_is_refused(serve: Serve, tmp_path: Path) -> None:
    served = serve(feedback=tmp_path)
    key = served.predict("a", k=1)[0] or [{"key": served.host[None].current.model.labels.keys[0]}]
    known = key[0]["key"]
    words = served.refused("/v1/feedback", {"text": "a", "accepted": [known], "rejected": [known]})
    assert words == f"label '{known}' is both accepted and rejected. Remove it from one list."
    words = served.refused("/v1/feedback", {"text": "a", "accepted": [known, "no such"]})
    assert words == "label of 'accepted' 'no such' is not among the model's 60 labels. Give labels by key."
    words = served.refused("/v1/feedback", {"text": "a"})
    assert words.startswith("the feedback contains no decision. ")
    words = served.refused("/v1/feedback", {"text": "a", "accepted": [known], "withdraw": True})
    assert words == "'withdraw' cannot be combined with a decision. Leave out either of them."
    assert not list(tmp_path.iterdir()), "something was kept"


def test_complete_and_withdrawn_feedback(serve: Serve, tmp_path: Path) -> None:
    served = serve(feedback=tmp_path)
    key = served.host[None].current.model.labels.keys[0]
    bodies: list[dict[str, Any]] = [
        {"text": "a", "accepted": [key], "complete": True},
        {"text": "b", "complete": True},
        {"text": "b", "withdraw": True},
        {"text": "c", "rejected": [key]},
    ]
    assert [served.post("/v1/feedback", body).status_code for body in bodies] == [201] * 4
    records = list(Feedback(tmp_path / "tree.feedback.sqlite").records())
    assert [(found.text, found.accepted, found.rejected, found.complete) for found in records] == [
        ("a", (key,), (), True),
        ("b", (), (), True),
        ("b", (), (), False),
        ("c", (), (key,), False),
    ]


def test_feedback_has_quotas(serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    proxied = {"host": "0.0.0.0", "trusted_proxy": ("192.0.2.1",)}
    monkeypatch.setattr(ClientNames, "is_proxy", lambda _, address: address == "testclient")
    served = serve(feedback=tmp_path, max_daily_feedback=2, max_daily_feedback_size=1, max_feedback=4, **proxied)

    def give(client: str, text: str = "a") -> Any:
        return served.post("/v1/feedback", {"text": text, "complete": True}, headers={"X-Forwarded-For": client})

    assert [give(client).status_code for client in ("198.51.100.1", "198.51.100.2", "198.51.100.1")] == [201] * 3
    refused = give("198.51.100.1")
    assert refused.status_code == 429
    assert 0 < int(refused.headers["retry-after"]) <= 86_400
    assert problem(refused) == (
        "this client has reached its limit of 2 records of feedback per day. Continue tomorrow (UTC), or raise "
        "--max-daily-feedback."
    )
    large = "x" * 600_000
    assert give("198.51.100.2", large).status_code == 201
    assert give("198.51.100.3", large).status_code == 201
    refused = give("198.51.100.3", large)
    assert refused.status_code == 429
    assert problem(refused).endswith(
        "limit of 1 MiB of feedback per day. Continue tomorrow (UTC), or raise --max-daily-feedback-size."
    )
    statuses = [give(f"198.51.100.{number}", large).status_code for number in range(4, 10)]
    assert statuses == [201] * 4 + [507] * 2
    assert problem(give("198.51.100.11", large)) == (
        "the feedback file has reached its limit of 4 MiB. Export and move it, or raise --max-feedback."
    )
    assert (tmp_path / "tree.feedback.sqlite").stat().st_size < 4 << 20
    assert served.metrics()["xmtc_feedback_total", "tree"] == 9


def test_feedback_that_cannot_be_kept_says_so_and_not_where(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "tree.feedback.sqlite").write_text("not a database at all, " * 100)
    served = serve(feedback=tmp_path)
    words = served.refused("/v1/feedback", {"text": "a", "complete": True}, 503)
    assert words == "feedback could not be saved. See the standard error of the service."
    assert len(served.lines) == 1
    assert served.lines[0].startswith(f"{tmp_path / 'tree.feedback.sqlite'}: is damaged or not a feedback file")


def test_a_model_that_is_saved_anew_takes_over(
    serve: Serve, trained: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_host, "POLL_SECONDS", 0.02)
    folder = tmp_path / "changing"
    shutil.copytree(trained["tree"], folder)
    served = serve(folder)
    text = served.texts[0]
    before = served.client.get("/v1/models").json()["models"][0]["version"]

    def wait_for(done: Any) -> None:
        until = time.monotonic() + 20
        while not done():
            assert time.monotonic() < until
            time.sleep(0.02)

    Parabel(trees=1).fit(["ham and bread", "oil with vinegar"] * 10, [["x"], ["y"]] * 10).save(folder, overwrite=True)
    wait_for(lambda: served.client.get("/v1/models").json()["models"][0]["version"] != before)
    assert {label["key"] for label in served.predict("ham and bread")[0]} <= {"x", "y"}
    wait_for(lambda: served.lines == ["changing: new model loaded (2 labels)"])
    (folder / "damaged").write_text("{}")
    (folder / "damaged").replace(folder / "model.json")  # in one step, as saving does: an empty file is another change
    wait_for(lambda: len(served.lines) == 2)
    assert served.lines[1].startswith("changing: keeping the previous model; the new one failed to load.")
    assert {label["key"] for label in served.predict("ham and bread")[0]} <= {"x", "y"}
    shutil.rmtree(folder)
    time.sleep(0.1)
    assert served.predict("ham and bread")
    load(trained["tree"]).save(folder, overwrite=True)
    wait_for(lambda: len(served.lines) == 3)
    assert served.lines[2].startswith("changing: new model loaded")
    assert served.predict(text) == right(trained["tree"], [text])


def test_health_and_counters(serve: Serve) -> None:
    served = serve()
    assert served.client.get("/healthz").json() == {"status": "ok"}
    assert served.client.get("/readyz").json() == {"status": "ready"}
    served.predict("a", "b")
    assert problem(served.client.get("/nowhere")) == "no such path '/nowhere'. See /openapi.json for all paths."
    answer = served.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    counted = served.metrics()
    assert counted["xmtc_texts_total", "tree"] == 2
    assert counted["xmtc_requests_total", "/v1/predict", "200"] == 1
    assert counted["xmtc_requests_total", "other", "404"] == 1
    assert counted["xmtc_request_seconds_count", "/v1/predict"] == 1
    assert counted["xmtc_request_seconds_bucket", "+Inf", "/v1/predict"] == 1
    assert counted["xmtc_processes",] == 1
    assert counted["xmtc_resident_bytes",] > 1e6
    assert counted["xmtc_cpu_seconds_total",] > 0


SERIES = {
    "counter": {
        "xmtc_texts_total": {"model"},
        "xmtc_batches_total": {"model"},
        "xmtc_model_seconds_total": {"model"},
        "xmtc_explanations_total": {"model"},
        "xmtc_feedback_total": {"model"},
        "xmtc_dropped_connections_total": set(),
        "xmtc_model_loads_total": {"model"},
        "xmtc_model_failed_loads_total": {"model"},
        "xmtc_requests_total": {"route", "status"},
        "xmtc_cpu_seconds_total": set(),
    },
    "gauge": {"xmtc_waiting_texts": {"model"}, "xmtc_resident_bytes": set(), "xmtc_processes": set()},
    "histogram": {"xmtc_request_seconds": {"route"}},
}
"""What dashboards rely on."""


def test_metrics_have_the_names_types_and_labels_that_dashboards_rely_on(serve: Serve) -> None:
    served = serve("tree", "near")
    served.client.get("/healthz")
    text = served.client.get("/metrics").text
    found: dict[str, dict[str, set[str]]] = {}
    for family in text_string_to_metric_families(text):
        name = family.name + "_total" * (family.type == "counter")
        found.setdefault(family.type, {})[name] = {label for one in family.samples for label in one.labels} - {"le"}
    assert found == SERIES
    counted = served.metrics()
    for name in (name for group in SERIES.values() for name, labels in group.items() if labels == {"model"}):
        assert (name, "tree") in counted, "series of models start at 0"
        assert (name, "near") in counted
    bounds = re.findall(r'xmtc_request_seconds_bucket{le="([^"]+)",route="/healthz"}', text)
    assert bounds == [*map(str, BUCKETS), "+Inf"]


def test_refusals_are_counted_under_their_route(serve: Serve) -> None:
    served = serve("tree", api_key="correct-horse", hostname=("testserver",))
    served.post("/v1/predict", {"texts": ["a"]})
    served.client.get("/v1/models", headers={"host": "evil.example"})
    served.client.get("/page/nothing.js")
    text = served.client.get("/metrics", headers={"authorization": "Bearer correct-horse"}).text
    counted = samples(text)
    assert counted["xmtc_requests_total", "/v1/predict", "401"] == 1
    assert counted["xmtc_requests_total", "/v1/models", "421"] == 1
    assert counted["xmtc_requests_total", "/page", "404"] == 1


@pytest.fixture(scope="module")
def plants(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose labels have broader labels, notes and schemes; the more frequent, the broader."""
    keys = ["plant", "tree", "oak", "rock"]
    index = LabelIndex.from_keys(
        keys,
        [key.title() for key in keys],
        parents=[[], ["plant"], ["tree"], ["mineral"]],
        descriptions=["", "", "x" * 600, ""],
        notes=[[], [f"note {number}" for number in range(12)], ["x" * 600, "a scope note"], []],
        schemes=[["living"], ["living"], ["living"], []],
    )
    train = as_dataset(["a text"] * 8, [keys[: 4 - row % 4] for row in range(8)])
    assert train.labels is not None
    assert train.label_index is not None
    train = replace(train, labels=train.labels[:, train.label_index.ids(keys)], label_index=index)
    folder = tmp_path_factory.mktemp("plants") / "plants"
    Popularity().fit(train).save(folder)
    return folder


def test_labels_by_the_vocabulary(serve: Serve, plants: Path) -> None:
    served = serve(plants)
    keys = lambda **fields: [label["key"] for label in served.predict("a", k=4, **fields)[0]]  # noqa: E731
    assert keys() == ["plant", "tree", "oak", "rock"]
    assert keys(under=["Tree"]) == keys(under=["tree"], scheme=["living"]) == ["tree", "oak"]
    assert keys(under=["tree"], deny=["oak"], only_used=True) == ["tree"]
    assert keys(under=[], hierarchy=None, only_unused=False) == keys()
    assert keys(hierarchy="narrowest") == ["oak", "rock"]
    assert keys(hierarchy="broadest") == ["plant", "rock"]
    for fields, words in (
        ({"under": ["tre"]}, "label 'tre' is not among the model's 4 labels. Did you mean 'Tree'?"),
        ({"scheme": ["alive"]}, "scheme 'alive' does not occur among the model's labels."),
        ({"type": ["x"]}, "no label of the model has a type."),
        ({"only_unused": True}, "all of the model's 4 labels have training documents."),
        ({"only_unused": True, "only_used": True}, "'only_used' and 'only_unused' exclude all labels."),
        (
            {"under": ["rock"], "allow": ["tree"]},
            "none of the model's 4 labels remains for under 'rock' with 'allow' and 'deny'.",
        ),
        ({"under": ["rock"] * 101}, "'under' cannot be a list: list should have at most 100 items"),
        ({"hierarchy": "narrow"}, "'hierarchy' cannot be 'narrow'"),
        ({"details": 1}, "'details' cannot be 1"),
    ):
        assert served.refused("/v1/predict", {"texts": ["a"], **fields}).startswith(words)
    assert "broader label" in serve().refused("/v1/predict", {"texts": ["a"], "hierarchy": "narrowest"})


def test_details_of_labels(serve: Serve, plants: Path) -> None:
    served = serve(plants)
    (labels,) = served.predict("a", k=4, details=True)
    assert [label["broader"] for label in labels] == [[], ["Plant"], ["Tree"], ["mineral"]]
    assert [label["documents"] for label in labels] == [8, 6, 4, 2]
    assert labels[1]["notes"] == [f"note {number}" for number in range(10)]  # shortened, like long texts
    assert labels[2]["description"] == "x" * 499 + "…"
    assert labels[2]["notes"] == ["a scope note"]  # not the description again
    assert labels[2]["schemes"] == ["living"]
    assert set(served.predict("a")[0][0]) == {"key", "name", "score"}
    (found,) = served.client.get("/v1/labels?q=tree").json()["labels"]
    assert {name: found[name] for name in ("broader", "documents", "schemes")} == {
        "broader": ["Plant"],
        "documents": 6,
        "schemes": ["living"],
    }
