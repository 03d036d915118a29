"""Models exported to ONNX: their predictions are those of the original; damaged graphs are refused in one line."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
onnx = pytest.importorskip("onnx", reason="onnx is not installed")
pytest.importorskip("torch", reason="PyTorch is not installed")

import xmtc
from tests.support.models import QUICK, TREE, made, planted_split
from xmtc.core.errors import ModelFormatError, UnsupportedError
from xmtc.models.base import Model
from xmtc.models.onnx import OnnxModel
from xmtc.onnx.graph import OnnxGraph

pytestmark = pytest.mark.usefixtures("one_thread")

TRAIN, TEST, _ = planted_split(240, 60, labels=30, seed=3)
KINDS: dict[str, dict[str, Any]] = {
    "attention_lstm": {},
    "attention_xml": {"head.hidden": [32, 16], "members": 2},
    "transformer": {},
    "xml_cnn": {"members": 2, "frozen": True},
    "xml_rnn": {},
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest) -> tuple[Model, OnnxModel]:
    """A model, and the model that its export gives."""
    name: str = request.param
    if name == "transformer":
        pytest.importorskip("transformers", reason="transformers is not installed")
    settings = {**made(QUICK[name]), **KINDS[name], "training.epochs": 2}
    model = xmtc.create(name, **settings).fit(TRAIN)
    return model, OnnxModel.of(model, model.to_onnx())


def test_probabilities_are_those_of_the_original(pair: tuple[Model, OnnxModel]) -> None:
    """For texts of many lengths in one batch, an empty one and one without known words; and with labels left out."""
    model, exported = pair
    texts = [*TEST.text().to_pylist(), "", "ζζζ", " ".join(TEST.text().to_pylist()[:9])]
    for how in ({}, {"allow": [model.labels.name(3), model.labels.name(17), model.labels.name(20)]}):
        ours, theirs = model.predict(texts, 30, **how), exported.predict(texts, 30, **how)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        np.testing.assert_allclose(ours.scores, theirs.scores, atol=1e-6)
        np.testing.assert_array_equal(ours.known_words, theirs.known_words)


def test_scores_of_given_labels(pair: tuple[Model, OnnxModel]) -> None:
    model, exported = pair
    given = np.array([[4, -1, 11], [29, 0, 4]])
    texts = TEST.text().to_pylist()[:2]
    np.testing.assert_allclose(model.score_labels(texts, given), exported.score_labels(texts, given), atol=1e-6)


def test_one_text_or_many(pair: tuple[Model, OnnxModel]) -> None:
    _, exported = pair
    texts = TEST.text().to_pylist()[:5]
    together = exported.predict(texts, 4).scores
    np.testing.assert_allclose(together, [exported.predict([text], 4).scores[0] for text in texts], atol=1e-6)


def test_eight_bits(pair: tuple[Model, OnnxModel]) -> None:
    """A quarter of the weights' size, apart from those of LSTMs and convolutions; nearly the same probabilities."""
    model, exported = pair
    small = exported.quantised()
    assert small.config.int8
    assert not exported.config.int8
    assert small.graph.bytes < 0.7 * exported.graph.bytes
    labels, scores = model.ask(TEST, 10)
    found = small.score_labels(TEST, labels)
    assert 0 < np.abs(found - scores).max() < 0.03


def test_saved_and_loaded(pair: tuple[Model, OnnxModel], tmp_path: Path) -> None:
    model, exported = pair
    exported.save(tmp_path / "m")
    loaded = xmtc.load(tmp_path / "m")
    assert type(loaded) is OnnxModel
    assert loaded.config.exported == model.name
    assert loaded.labels.keys == model.labels.keys
    np.testing.assert_array_equal(loaded.label_counts, model.label_counts)
    np.testing.assert_array_equal(loaded.predict(TEST, 6).scores, exported.predict(TEST, 6).scores)


def test_ties_are_ordered_by_label_number() -> None:
    from xmtc.models.onnx import _best

    scores = np.array([[0.25, 0.5, 0.0, 0.5, -np.inf, 0.25]], dtype=np.float32)
    labels, given = _best(scores, 5)
    assert labels.tolist() == [[1, 3, 0, 5, 2]]
    np.testing.assert_array_equal(given, [[0.5, 0.5, 0.25, 0.25, 0.0]])
    assert _best(scores, 1)[0].tolist() == [[1]]


# ---- what cannot be exported, trained or updated


@pytest.mark.parametrize("name", ["dxml", "maacf", "rank_ae", "parabel"])
def test_models_that_cannot_be_exported(name: str) -> None:
    settings = {**made(QUICK.get(name, {})), **({"training.epochs": 1} if name in QUICK else {})}
    model = xmtc.create(name, **settings).fit(TRAIN.take(np.arange(40)))
    with pytest.raises(UnsupportedError, match=f"{name} cannot be exported to ONNX. Models that can are marked"):
        model.to_onnx()


def test_label_trees_cannot_be_exported() -> None:
    settings = {**made(QUICK["attention_xml"]), **TREE, "training.epochs": 1}
    model = xmtc.create("attention_xml", **settings).fit(TRAIN.take(np.arange(60)))
    with pytest.raises(UnsupportedError, match="attention_xml with a label tree cannot be exported"):
        model.to_onnx()


@pytest.fixture(scope="module")
def small() -> OnnxModel:
    model = xmtc.create("xml_cnn", **{**QUICK["xml_cnn"], "training.epochs": 1}).fit(TRAIN.take(np.arange(60)))
    return OnnxModel.of(model, model.to_onnx())


def test_exported_models_are_neither_trained_nor_updated(small: OnnxModel) -> None:
    with pytest.raises(UnsupportedError, match=r"onnx cannot be trained\. Train a neural model, then: xmtc export"):
        OnnxModel().fit(TRAIN)
    with pytest.raises(UnsupportedError, match="onnx cannot be updated"):
        small.update(TRAIN)
    with pytest.raises(UnsupportedError, match="onnx cannot explain"):
        small.explain("a text", 0)


# ---- damage


def proto(graph: OnnxGraph) -> Any:
    return onnx.load_model_from_string(graph.nodes)


def without_table(graph: OnnxGraph) -> OnnxGraph:
    return OnnxGraph(graph.nodes, {name: part for name, part in graph.weights.items() if not name.endswith("table")})


def other_file(graph: OnnxGraph) -> OnnxGraph:
    """The table comes from a file outside the folder."""
    model = proto(graph)
    held = next(part for part in model.graph.initializer if part.name.endswith("table"))
    held.external_data[0].value = "/etc/hostname"
    return OnnxGraph(model.SerializeToString(), without_table(graph).weights)


def short_table(graph: OnnxGraph) -> OnnxGraph:
    """Consistent, but with fewer rows than the reader has words."""
    model = proto(graph)
    held = next(part for part in model.graph.initializer if part.name.endswith("table"))
    held.dims[0] = 9
    return OnnxGraph(model.SerializeToString(), {**graph.weights, held.name: graph.weights[held.name][:9].copy()})


def strange_operator(graph: OnnxGraph) -> OnnxGraph:
    model = proto(graph)
    model.graph.node[2].op_type = "Nonsense"
    return OnnxGraph(model.SerializeToString(), graph.weights)


def strange_domain(graph: OnnxGraph) -> OnnxGraph:
    model = proto(graph)
    model.opset_import.add(domain="org.example", version=1)
    return OnnxGraph(model.SerializeToString(), graph.weights)


def fewer_labels(graph: OnnxGraph) -> OnnxGraph:
    """The network has one label less."""
    model, weights = proto(graph), dict(graph.weights)
    for held in model.graph.initializer:
        if held.name.endswith("head.rows") or held.name.endswith("head.bias"):
            array = weights[held.name] if held.name in weights else onnx.numpy_helper.to_array(held)
            held.dims[0] -= 1
            if held.name in weights:
                weights[held.name] = array[:-1].copy()
            else:
                held.CopyFrom(onnx.numpy_helper.from_array(array[:-1].copy(), held.name))
    return OnnxGraph(model.SerializeToString(), weights)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda graph: OnnxGraph(graph.nodes[: len(graph.nodes) // 2], graph.weights), "the ONNX graph is damaged"),
        (lambda graph: OnnxGraph(b"", graph.weights), "onnxruntime cannot run the ONNX graph"),
        (without_table, "table' is missing"),
        (lambda graph: OnnxGraph(graph.nodes, {**graph.weights, "more": np.zeros(3, np.float32)}), "is not part of"),
        (other_file, "the ONNX graph refers to other files"),
        (short_table, "onnxruntime cannot run the ONNX graph"),
        (strange_operator, "onnxruntime cannot run the ONNX graph"),
        (strange_domain, "the ONNX graph uses operators of 'org.example'"),
        (fewer_labels, "does not return 30 probabilities"),
    ],
)
def test_damaged_graphs_are_refused_in_one_line(small: OnnxModel, tmp_path: Path, damage: Any, words: str) -> None:
    """Sealed with a fitting hash, as by somebody who means harm."""
    model = copy.copy(small)
    model._graph = damage(small.graph)
    model.save(tmp_path / "m")
    with pytest.raises(ModelFormatError, match=words) as caught:
        xmtc.load(tmp_path / "m")
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path / 'm'}: ")
