"""Vectors of texts as features of linear models, next to tf-idf."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import xmtc
from tests.support.tiny_encoder import write_encoder
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, DataError, MissingExtraError, UnsupportedError
from xmtc.core.progress import silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.models.context import FitContext
from xmtc.models.dense_source import read_text_vectors
from xmtc.models.registry import model_class
from xmtc.nn.neighbours.text_vectors import DenseSettings
from xmtc.text import cache
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings

RUNTIME = Runtime(threads=1, device="cpu", seed=3)
MODELS = ("parabel", "bonsai", "one_vs_all")
SPICES, METALS = [f"spice{n}" for n in range(40)], [f"metal{n}" for n in range(40)]


def documents(words: int = 30, copies: int = 6) -> tuple[list[str], list[list[str]]]:
    """Texts of the labels food and tool with the first words of their kind, and of the label both with all pairs."""
    chance = np.random.default_rng(0)
    texts, labels = [], []
    for _ in range(copies):
        for number in range(words):
            other = int(chance.integers(words))
            texts += [f"{SPICES[number]} {SPICES[other]}", f"{METALS[number]} {METALS[other]}"]
            labels += [["food"], ["tool"]]
    for number in range(len(SPICES)):
        texts += [f"{SPICES[number]} {METALS[number]}"] * 2
        labels += [["both"]] * 2
    return texts, labels


UNSEEN = [f"{word}" for word in SPICES[30:]] + [f"{word}" for word in METALS[30:]]
"""Texts of words that occur in documents of the label both only."""


@pytest.fixture(scope="module")
def word_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Word vectors in which words of one kind are near to each other."""
    chance = np.random.default_rng(1)
    lines = []
    for words, place in ((SPICES, 0), (METALS, 1)):
        for word in words:
            vector = chance.normal(size=12) * 0.1
            vector[place] += 1.0
            lines.append(" ".join([word, *(f"{value:.4f}" for value in vector)]))
    path = tmp_path_factory.mktemp("words") / "vectors.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("transformers")
    return write_encoder(tmp_path_factory.mktemp("encoder"), [*SPICES, *METALS])


def trained(name: str, source: object, **settings: Any) -> Any:
    texts, labels = documents()
    return model_class(name)(**{"dense.source": str(source), **settings}).fit(texts, labels, runtime=RUNTIME)


@pytest.mark.parametrize("name", MODELS)
def test_vectors_find_words_that_tfidf_does_not_know_with_the_label(name: str, word_file: Path) -> None:
    texts, labels = documents()
    plain = model_class(name)().fit(texts, labels, runtime=RUNTIME)
    expected = ["food"] * 10 + ["tool"] * 10
    assert [found[0] for found in plain.predict(UNSEEN, 1).names()] == ["both"] * 20
    model = trained(name, word_file, **{"dense.weight": 1.0})
    assert [found[0] for found in model.predict(UNSEEN, 1).names()] == expected


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["words", "encoder"])
def test_saved_models_need_no_source(
    name: str, kind: str, word_file: Path, encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    (shutil.copy if kind == "words" else shutil.copytree)(word_file if kind == "words" else encoder, source)
    model = trained(name, source, **{"dense.weight": 0.5})
    expected = model.predict(UNSEEN, 3)
    model.save(tmp_path / "model")
    shutil.rmtree(source, ignore_errors=True)
    source.unlink(missing_ok=True)
    again = xmtc.load(tmp_path / "model", RUNTIME)
    found = again.predict(UNSEEN, 3)
    assert (found.labels == expected.labels).all()
    assert (found.scores == expected.scores).all()
    assert again.tag(UNSEEN[0], 1)[0][0] == expected.names()[0][0]

    more = [f"{METALS[0]} gem{number % 4}" for number in range(24)] + ["gem1 gem2", "gem2 gem3"]
    again.update(more, [["jewel"]] * len(more), force=True)
    assert [names[0] for names in again.predict(["gem1", "gem3 gem2"], 1).names()] == ["jewel", "jewel"]
    again.save(tmp_path / "updated")
    last = xmtc.load(tmp_path / "updated", RUNTIME)
    assert (last.predict(UNSEEN, 3).scores == again.predict(UNSEEN, 3).scores).all()


@pytest.mark.parametrize("name", MODELS)
def test_contributions_add_up_to_the_margin(name: str, encoder: Path) -> None:
    model = trained(name, encoder, **{"dense.weight": 2.0})
    for label in ("food", "tool"):
        found = model.explain(f"{SPICES[3]} and {METALS[31]}", label)
        assert found.text_vector != 0.0
        margin = found.constant + found.text_vector + sum(item.weight for item in found.evidence)
        if name == "one_vs_all":
            assert 1 / (1 + np.exp(-margin)) == pytest.approx(found.score, abs=1e-4)
        else:
            assert np.exp(-(max(0.0, 1 - margin) ** 3)) == pytest.approx(found.path[-1].probability, abs=1e-4)
    assert model_class(name)().fit(*documents(), runtime=RUNTIME).explain(SPICES[3], "food").text_vector == 0.0


def test_names_of_labels_have_vectors(word_file: Path) -> None:
    """A label without documents is found by words that are near to its name."""
    index = xmtc.LabelIndex.from_keys(["food", "tool", "both", "metal35"])
    texts, labels = documents()
    texts += [f"{METALS[35]} {METALS[36]}"] * 2  # so that the word of the name has a vector
    labels += [["tool"]] * 2
    model = model_class("one_vs_all")(**{"dense.source": str(word_file), "label_names": 5.0})
    model.fit(texts, labels, vocabulary=index, runtime=RUNTIME)
    scores = model.score_labels([METALS[38], SPICES[38]], [["metal35"]] * 2)[:, 0]
    plain = model_class("one_vs_all")(label_names=5.0).fit(texts, labels, vocabulary=index, runtime=RUNTIME)
    without = plain.score_labels([METALS[38], SPICES[38]], [["metal35"]] * 2)[:, 0]
    assert scores[0] > scores[1] + 0.01
    assert abs(without[0] - without[1]) < 0.01


def test_feature_rows(word_file: Path) -> None:
    """The vector comes first, with its own length, then tf-idf; a text without known words has neither."""
    texts, labels = documents()
    dataset = as_dataset(texts, labels)
    run = FitContext(RUNTIME, silent, Workspace())
    dense = read_text_vectors(DenseSettings(source=str(word_file), weight=0.25), dataset, run)
    features, rows = DocumentFeatures.fit(dataset, TextSettings(), RUNTIME, dense=dense)
    _, words = DocumentFeatures.fit(dataset, TextSettings(), RUNTIME)
    assert rows.shape == (len(texts), features.width) == (len(texts), 12 + words.shape[1])
    assert (rows[:, 12:] != words).nnz == 0
    lengths = np.sqrt(rows[:, :12].multiply(rows[:, :12]).sum(axis=1))
    assert lengths == pytest.approx(np.full(len(texts), 0.25), abs=1e-6)
    asked = as_dataset([texts[0], "", "nothing known"])
    assert features.transform(asked, RUNTIME)[[0]].toarray() == pytest.approx(rows[[0]].toarray(), abs=1e-6)
    assert np.diff(features.transform(asked, RUNTIME).indptr)[1:].tolist() == [0, 0]
    assert features.known_words(asked, RUNTIME).tolist() == [True, False, False]

    extra = as_dataset(["platinum gold spice3"] * 3)
    grown, added = features.grown(extra, len(texts) + 3, RUNTIME)
    assert grown.width == features.width + 2
    assert (grown.transform(extra, RUNTIME) != added).nnz == 0
    again = grown.widened(dataset, rows, RUNTIME)
    assert (again != grown.transform(dataset, RUNTIME)).nnz == 0
    assert again.shape[1] == grown.width


def test_folds_and_refits_embed_a_text_once(encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from xmtc.nn.neighbours.sentence_encoder import SentenceEncoder  # imports PyTorch

    monkeypatch.setattr(cache, "WORTHWHILE_TEXTS", 8)
    embedded: list[str] = []
    embed = SentenceEncoder.embed

    def counted(self: SentenceEncoder, texts: Any, *rest: Any) -> Any:
        embedded.extend(texts.to_pylist())
        return embed(self, texts, *rest)

    monkeypatch.setattr(SentenceEncoder, "embed", counted)
    texts, labels = documents()
    cached = Runtime(threads=1, device="cpu", cache=tmp_path / "cache")
    settings = {"dense.source": str(encoder), "label_names": 0.0}
    first = model_class("parabel")(**settings).fit(texts, labels, runtime=cached)
    assert sorted(embedded) == sorted(set(texts))
    embedded.clear()
    again = model_class("parabel")(**settings).fit(texts, labels, runtime=cached)
    model_class("one_vs_all")(**settings).fit(texts[50:300], labels[50:300], runtime=cached)
    assert embedded == []
    assert (again.predict(UNSEEN, 3).scores == first.predict(UNSEEN, 3).scores).all()


def test_an_encoder_by_name(encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XMTC_ENCODERS", str(encoder))
    texts, labels = documents()
    by_path = model_class("parabel")(**{"dense.source": str(encoder)}).fit(texts, labels, runtime=RUNTIME)
    by_name = model_class("parabel")(**{"dense.source": encoder.name}).fit(texts, labels, runtime=RUNTIME)
    assert (by_name.predict(UNSEEN, 3).scores == by_path.predict(UNSEEN, 3).scores).all()


class TestTrainedEncoder:
    """The encoder of a transformer model of xmtc."""

    @pytest.fixture(scope="class")
    @classmethod
    def folder(cls, encoder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
        settings = {"encoder.path": str(encoder), "encoder.hidden": 8, "encoder.rate": 1.0, "text.max_tokens": 12}
        model = model_class("transformer")(**settings, **{"training.epochs": 1, "training.batch_size": 64})
        folder = tmp_path_factory.mktemp("trained") / "model"
        model.fit(*documents(words=10, copies=3), runtime=RUNTIME).save(folder)
        return folder

    def test_embeds_the_mean_of_its_states(self, folder: Path) -> None:
        import torch

        model: Any = xmtc.load(folder, RUNTIME)
        texts = [f"{SPICES[1]} {METALS[2]}", SPICES[5], " ".join(METALS)]
        found = model.embed(texts)
        network = model._members[0].network
        for text, vector in zip(texts, found, strict=True):
            words = network.table[torch.from_numpy(model._reader.encode(as_dataset([text]), RUNTIME).ids).long()]
            with torch.no_grad():
                states = network.encoder.pretrained(inputs_embeds=words[None])[0][0]
            assert len(states) <= 12
            expected = states.mean(0) / states.mean(0).norm()
            assert vector == pytest.approx(expected.numpy(), abs=1e-5)

    def test_as_a_source(self, folder: Path, tmp_path: Path) -> None:
        model = trained("parabel", folder, **{"dense.max_tokens": 6})
        vectors = xmtc.load(folder, RUNTIME).embed([SPICES[5]])
        row = model._features.transform(as_dataset([SPICES[5]]), RUNTIME)
        assert row.data[: vectors.shape[1]] == pytest.approx(vectors[0] * 0.7, abs=1e-3)
        model.save(tmp_path / "model")
        again = xmtc.load(tmp_path / "model", RUNTIME)
        assert (again.predict(UNSEEN, 3).scores == model.predict(UNSEEN, 3).scores).all()


class TestMistakes:
    """One line each: what, where, and the remedy."""

    def test_no_such_source(self, tmp_path: Path) -> None:
        with pytest.raises(DataError, match=r"nowhere: does not exist. Pass a folder .* xmtc doctor$"):
            trained("parabel", tmp_path / "nowhere")

    def test_other_folders(self, tmp_path: Path) -> None:
        pytest.importorskip("transformers")
        with pytest.raises(DataError, match=r"config.json is missing. Pass the folder of a pretrained encoder"):
            trained("parabel", tmp_path)
        texts, labels = documents()
        xmtc.Popularity().fit(texts, labels).save(tmp_path / "model")
        with pytest.raises(UnsupportedError, match=r"the model popularity has no encoder for texts. Use a transformer"):
            trained("parabel", tmp_path / "model")

    def test_matrices_have_no_text(self, word_file: Path) -> None:
        model = model_class("one_vs_all")(**{"dense.source": str(word_file)})
        with pytest.raises(UnsupportedError, match=r"dense features need texts. Train on texts, or leave out dense"):
            model.fit(np.eye(4), [["a"], ["b"]] * 2)

    def test_values(self) -> None:
        with pytest.raises(ConfigError, match="'weight' of dense must be a number > 0"):
            xmtc.Parabel(dense={"weight": 0.0})

    def test_missing_packages(self, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(MissingExtraError, match=r"needs PyTorch and transformers. Install .*xmtc\[transformers\]"):
            trained("parabel", encoder)
