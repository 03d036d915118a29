"""rank_ae as a whole: what it learns and keeps, what it shows of its attention, and what it refuses."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

torch = pytest.importorskip("torch")

from tests.support.models import QUICK, planted_split
from tests.support.networks import Watching, stop_at
from xmtc import load
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import read_folder
from xmtc.artifact.workspace import Workspace
from xmtc.core.config import Range, changed, space, to_mapping
from xmtc.core.errors import ConfigError, DataError, ModelFormatError, UnsupportedError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.metrics import precision
from xmtc.models import rank_ae
from xmtc.models.popularity import Popularity
from xmtc.models.rank_ae import RankAe, RankAeSettings
from xmtc.nn.prediction import candidate_scores
from xmtc.text.sequences import FIRST_WORD, PADDING, UNKNOWN

RUNTIME = Runtime(device="cpu", threads=1, seed=5)
TINY: dict[str, Any] = {
    "corpus.width": 6,
    "encoder.code": 5,
    "head.hidden": 7,
    "lstm.units": 4,
    "text.min_df": 1,
    "training.epochs": 2,
    "training.batch_size": 8,
    "training.learning_rate": 0.02,
}
CHOSEN = [sorted({number % 4, number * 7 % 4}) for number in range(40)]
TEXTS = [
    " ".join([*(f"noise{number * place % 11}" for place in range(number % 6)), *(f"word{label}" for label in chosen)])
    for number, chosen in enumerate(CHOSEN)
]
TRUTH = [[f"label{label}" for label in chosen] for chosen in CHOSEN]
UNSEEN = ["word1 word2 noise3", "noise1", "", "nobody knows", "word0"]
MATRIX = sp.csr_array(np.random.default_rng(0).normal(size=(40, 9)) * (np.arange(360).reshape(40, 9) % 3 == 0))


def tiny(**settings: Any) -> RankAe:
    return RankAe(**{**TINY, **settings})


def trained(documents: Any = TEXTS, how: Any = None, **settings: Any) -> Any:
    """Few documents, two epochs; settings with two underscores for a dot."""
    given = {name.replace("__", "."): value for name, value in settings.items()}
    return tiny(**given).fit(documents, TRUTH, runtime=RUNTIME, **(how or {}))


def same_answers(left: Any, right: Any, documents: Any = UNSEEN) -> bool:
    ours, theirs = left.predict(documents, 4), right.predict(documents, 4)
    return bool(np.array_equal(ours.labels, theirs.labels) and np.array_equal(ours.scores, theirs.scores))


# ---- learning


def counted(dataset: Dataset, words: dict[str, int]) -> sp.csr_array:
    """Word counts by a route of their own."""
    rows, columns = [], []
    for row, text in enumerate(dataset.text().to_pylist()):
        for word in text.lower().replace(".", "").split():
            if word in words:
                rows.append(row)
                columns.append(words[word])
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, columns)), shape=(len(dataset), len(words)))


@pytest.fixture(scope="module")
def corpus() -> tuple[Dataset, Dataset, float]:
    """Few planted texts, and the P@1 of popularity on them."""
    train, test, _ = planted_split(300, 100, labels=12, seed=5)
    baseline = Popularity().fit(train)
    return train, test, precision(baseline.predict(test, 1), align_labels(test, baseline.labels)[0], 1)


_READING = {"reads": "sequence", "lstm.units": 16, "lstm.dropout": 0.1, "sequence.max_tokens": 60}
LEARNING: dict[str, dict[str, Any]] = {  # texts as they come are learnt with all other models
    "label sets alone": {"head.decode_from": "label", "training.epochs": 10},
    "straight": {"head.straight": True, "training.epochs": 6},
    "matrix": {"columns": "idf", "training.epochs": 8},
    "sequence": {**_READING, "training.epochs": 8},
}


@pytest.mark.parametrize("name", LEARNING)
def test_planted_labels_are_learnt(name: str, corpus: tuple[Dataset, Dataset, float]) -> None:
    train, test, popular = corpus
    documents, unseen = train, test
    if name == "matrix":
        found = sorted({word for text in train.text().to_pylist() for word in text.lower().replace(".", "").split()})
        words = {word: number for number, word in enumerate(found)}
        documents, unseen = counted(train, words), counted(test, words)
    model = RankAe(**{**QUICK["rank_ae"], **LEARNING[name]}).fit(
        documents, train.labels, runtime=Runtime(threads=2, seed=3)
    )
    truth = align_labels(test, train.label_index)[0]
    assert precision(model.predict(unseen, 1), truth, 1) > max(0.75, popular + 0.3)


# ---- keeping


KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "text": (TEXTS, {"members": 2}),
    "parts of words": (TEXTS, {"text__char_ngrams": (3, 4), "text__word_ngrams": 2, "most_features": 6}),
    "matrix": (MATRIX, {"columns": "idf", "encoder__residual": True}),
    "straight": (TEXTS, {"head__straight": True, "head__decode_from": "both", "frozen": True, "members": 2}),
    "sequence": (TEXTS, {"reads": "sequence", "vectors": "corpus"}),
    "documents alone": (TEXTS, {"head__decode_from": "feature", "encoder__attention": False}),
}


@pytest.mark.parametrize("name", KINDS)
def test_a_saved_model_answers_alike(name: str, tmp_path: Path) -> None:
    documents, settings = KINDS[name]
    model = trained(documents, **settings)
    model.save(tmp_path / "model")
    loaded = load(tmp_path / "model", RUNTIME)
    assert type(loaded) is RankAe
    assert not [name for name in read_folder(tmp_path / "model")[1].arrays if "label_rows" in name]
    assert same_answers(loaded, model, MATRIX if documents is MATRIX else UNSEEN)
    if documents is not MATRIX:
        assert loaded.explain(TEXTS[5], "label1") == model.explain(TEXTS[5], "label1")


def test_members_are_averaged() -> None:
    model = trained(members=2)
    first, second = (member.network for member in model._members)
    assert not torch.equal(first.head.output.rows, second.head.output.rows)
    documents, every = model._documents(as_dataset(UNSEEN)), np.tile(np.arange(4), (len(UNSEEN), 1))
    parts = [candidate_scores([network], documents, every) for network in (first, second)]
    assert np.abs(parts[0] - parts[1]).max() > 1e-3
    assert np.allclose(model.score_labels(UNSEEN, every), (parts[0] + parts[1]) / 2, atol=1e-6)


@pytest.mark.parametrize("reads", ["bag", "sequence"])
def test_an_interrupted_training_goes_on(reads: str, tmp_path: Path) -> None:
    """Words are skipped, labels left out and numbers dropped, and all draws are the same again."""
    settings = {"reads": reads, "members": 2, "training__skipped_words": 0.3}
    settings |= {"head__dropout": 0.2, "head__label_dropout": 0.3, "head__decode_from": "both"}
    whole = trained(**settings)
    for step in (1, 7):
        (folder := tmp_path / str(step)).mkdir()
        with pytest.raises(KeyboardInterrupt):
            trained(how={"progress": Watching(stop_at(step), which=1), "workspace": Workspace(folder)}, **settings)
        assert Workspace(folder).has("checkpoint-1")
        resumed = trained(how={"workspace": Workspace(folder)}, **settings)
        assert same_answers(resumed, whole)
        assert resumed.facts == whole.facts


def test_words_are_skipped_in_training_alone() -> None:
    for reads in ("bag", "sequence"):
        still = {"reads": reads, "encoder__dropout": 0.0, "lstm__dropout": 0.0, "lstm__word_dropout": 0.0}
        skipping = trained(training__skipped_words=0.4, **still)
        assert not same_answers(skipping, trained(training__skipped_words=0.0, **still))
        assert same_answers(skipping, skipping)


def test_parts_that_do_not_fit_are_refused() -> None:
    for documents, change in ((TEXTS, {"width": 5}), (MATRIX, {"width": 8})):
        model = trained(documents)
        state = model._state()
        state.values.update(change)
        with pytest.raises(
            (ValueError, ModelFormatError), match=r"word vectors have shape \d+ × 6, but|has \d+ rows, expected 5"
        ):
            copy.copy(model)._restore(SavedState(state))
    model = trained(MATRIX, columns="idf")
    state = model._state()
    state.arrays["columns"] = state.arrays["columns"][1:]
    with pytest.raises(ModelFormatError, match="'columns' has shape 8, expected 9"):
        copy.copy(model)._restore(SavedState(state))


def test_small_trainings() -> None:
    """One document, one label, one word, nothing to validate on, documents without a word or a label."""
    for reads in ("bag", "sequence"):
        for texts, truth in (
            (["one word"], [["a"]]),
            (["", "xx"], [["a"], ["b"]]),
            (["same"] * 30, [["a"], [], ["b"]] * 10),
        ):
            model = tiny(reads=reads).fit(texts, truth, runtime=RUNTIME)
            answer = model.predict([*texts, "", "never seen"], 5)
            assert np.isfinite(answer.scores[:, 0]).all()
            assert (answer.labels[:, len(model.labels) :] == -1).all()
    model = tiny().fit(np.eye(3), [["a"], ["b"], ["a", "b"]], runtime=RUNTIME)
    assert np.isfinite(model.predict(np.zeros((2, 3)), 2).scores).all()


# ---- explaining


def preferring(model: Any, *words: str) -> Any:
    """The same model, whose attention opens for some words and is nearly shut for all others.

    Vectors of words are zero but for those: the LSTM, if there is one, remembers nothing and passes them on.
    """
    for network in (member.network for member in model._members):
        branch = network.encoder
        with torch.no_grad():
            network.table.zero_()
            for word in words:
                network.table[FIRST_WORD + model._reader.words.index(word)] = 1.0
            branch.squeeze.weight.fill_(1.0)
            branch.squeeze.bias.zero_()
            branch.excite.weight.fill_(1.0)
            branch.excite.bias.fill_(-4.0)
            if branch.states is not None:
                units = branch.states.units
                for direction in ("forward", "backward"):
                    for part in ("input", "state", "bias"):
                        getattr(branch.states, f"{direction}_{part}").zero_()
                    bias = getattr(branch.states, f"{direction}_bias")
                    bias[:units], bias[units : 2 * units], bias[3 * units :] = 50.0, -50.0, 50.0
                    getattr(branch.states, f"{direction}_input")[2 * units : 3 * units] = 1.0
    return model


TEXT = "Noise1 word2, noise3 WORD0! noise4 unheard word2 (noise1)"


@pytest.mark.parametrize("reads", ["bag", "sequence"])
class TestExplaining:
    def test_words_that_attention_prefers_come_first(self, reads: str) -> None:
        model = preferring(trained(reads=reads, members=2), "word0", "word2")
        found = model.explain(TEXT, "label1")
        assert found.shares
        assert sum(item.weight for item in found.evidence) == pytest.approx(1.0)
        assert all(item.text == TEXT[item.start : item.end] for item in found.evidence)
        places = [(item.start, item.end) for item in found.evidence]
        assert len(places) == len(set(places))
        assert {item.text for item in found.evidence[:3]} == {"word2", "WORD0"}
        others = {"Noise1", "noise3", "noise4", "noise1"} | ({"unheard"} if reads == "sequence" else set())
        assert {item.text for item in found.evidence[3:]} == others
        assert found.evidence[2].weight > 3 * found.evidence[3].weight
        weights = [item.weight for item in found.evidence]
        assert weights == sorted(weights, reverse=True)

    def test_it_is_the_same_for_every_label(self, reads: str) -> None:
        model = trained(reads=reads)
        first, second = model.explain(TEXT, "label1"), model.explain(TEXT, "label3")
        assert first.evidence == second.evidence
        assert (first.label, second.label) == ("label1", "label3")
        every = model.score_labels([TEXT], [["label1", "label3"]])[0]
        assert [first.score, second.score] == pytest.approx(every.tolist(), abs=1e-6)

    def test_without_attention_words_are_worth_their_weight(self, reads: str) -> None:
        model, text = trained(reads=reads, encoder__attention=False), "word1 noise3 word0"
        found = {item.text: item.weight for item in model.explain(text, "label1").evidence}
        worth = dict.fromkeys(text.split(), 1.0)
        if reads == "bag":
            bag = model._reader.encode(as_dataset([text]), RUNTIME)
            names = model._reader.words
            worth = {names[i - FIRST_WORD]: float(w) for i, w in zip(bag.ids, bag.weights, strict=True)}
            assert len(set(worth.values())) > 1
        assert found == pytest.approx({word: weight / sum(worth.values()) for word, weight in worth.items()})

    def test_texts_with_little_to_show(self, reads: str) -> None:
        model = trained(reads=reads)
        assert model.explain("", "label1").evidence == ()
        assert [item.text for item in model.explain("word1", "label1").evidence] == ["word1"]
        shown = {item.text for item in model.explain("unheard of", "label1").evidence}
        assert shown == (set() if reads == "bag" else {"unheard", "of"})


def test_stretches_of_several_features_are_shown_once() -> None:
    model = trained(text__char_ngrams=(3, 4), text__word_ngrams=2)
    found = model.explain("word1 noise3 word1", "label1")
    places = [(item.start, item.end) for item in found.evidence]
    assert len(places) == len(set(places))
    assert {(0, 5), (6, 12), (13, 18)} <= set(places)
    assert all(item.text == "word1 noise3 word1"[item.start : item.end] for item in found.evidence)
    assert sum(item.weight for item in found.evidence) == pytest.approx(1.0)


def test_what_is_not_read_is_not_shown() -> None:
    model = trained(most_features=2)
    assert len({item.text for item in model.explain("word1 noise3 word0 noise5", "label1").evidence}) == 2
    model = trained(reads="sequence", sequence__max_tokens=2)
    assert {item.text for item in model.explain("word1 noise3 word0 noise5", "label1").evidence} == {"word1", "noise3"}


# ---- word vectors


@pytest.mark.parametrize(
    "settings",
    [{}, {"text__word_ngrams": 2}, {"text__char_ngrams": (3, 4), "text__word_ngrams": 2}, {"reads": "sequence"}],
    ids=["words", "pairs", "parts", "sequence"],
)
def test_a_file_of_vectors(settings: dict[str, Any], tmp_path: Path) -> None:
    """Words in the file start there, in whatever case; all others, parts of words among them, are drawn."""
    random = np.random.default_rng(0)
    given = {word: random.normal(size=6).round(4) for word in ("word0", "Word1", "noise3", "elsewhere", "word2 word3")}
    lines = [f"{word} {' '.join(map(str, vector))}" for word, vector in given.items()]
    (tmp_path / "vectors.txt").write_text("\n".join(lines) + "\n")
    model = trained(vectors=str(tmp_path / "vectors.txt"), frozen=True, **settings)
    table, words = model._members[0].network.table.detach().numpy(), model._reader.words
    assert table.shape == (model._reader.size, 6)
    known = {"word0": "word0", "word1": "Word1", "noise3": "noise3"}
    if "word2 word3" in words:
        known["word2 word3"] = "word2 word3"
    for word, form in known.items():
        assert np.allclose(table[FIRST_WORD + words.index(word)], given[form])
    drawn = [number for number, word in enumerate(words) if word not in known]
    rest = table[[UNKNOWN, *(FIRST_WORD + number for number in drawn)]]
    assert not table[PADDING].any()
    assert len(np.unique(rest, axis=0)) == len(drawn) + 1
    spread = np.std([given[form] for form in known.values()])
    assert rest.std() == pytest.approx(spread, rel=0.3)
    named = sum(bool(word) for word in words)
    assert model.facts["words with a vector"] == f"{100 * len(known) / named:.1f} %"


# ---- refusing


def test_what_cannot_be_read_is_refused_in_a_line(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=r"a feature matrix has no word order\. Use reads = 'bag'\."):
        trained(MATRIX, reads="sequence")
    (tmp_path / "vectors.txt").write_text("word0 1 2\n")
    with pytest.raises(UnsupportedError, match=r"a feature matrix has no words to look up.*Use vectors = 'random'\."):
        trained(MATRIX, vectors=str(tmp_path / "vectors.txt"))
    on_matrix = trained(MATRIX)
    with pytest.raises(UnsupportedError, match="trained on a feature matrix"):
        on_matrix.predict(TEXTS)
    with pytest.raises(UnsupportedError, match="trained on a feature matrix"):
        on_matrix.explain("a text", "label0")
    for reads in ("bag", "sequence"):
        with pytest.raises(UnsupportedError, match="trained on text"):
            trained(reads=reads).predict(MATRIX)
        group = "text" if reads == "bag" else "sequence"
        with pytest.raises(DataError, match=rf"lower {group}\.min_df"):
            tiny(reads=reads).fit(["…", ""], [["a"], ["b"]])


def test_too_many_straight_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_ae, "MOST_WEIGHTS", 59)
    with pytest.raises(
        ConfigError, match=r"'head\.straight' of rank_ae would need 15 × 4 weights, .*\. Use head\.straight ="
    ):
        trained(head__straight=True, head__decode_from="both")
    monkeypatch.setattr(rank_ae, "MOST_WEIGHTS", 60)
    trained(head__straight=True, head__decode_from="both")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"vectors": "corpus"},
            r"'vectors' of rank_ae must be 'random' or a file with reads = 'bag'\. Got 'corpus'\.",
        ),
        ({"vectors": ""}, "'vectors' of rank_ae"),
        ({"members": 0}, "'members' of rank_ae"),
        ({"most_features": 0}, "'most_features' of rank_ae"),
        ({"reads": "backwards"}, "'reads' of rank_ae"),
        ({"columns": "tf"}, "'columns' of rank_ae"),
        (
            {"reads": "sequence", "head.straight": True},
            r"'head.straight' of rank_ae requires reads = 'bag'",
        ),
        (
            {"head.straight": True, "head.decode_from": "label"},
            r"'head.straight' of rank_ae needs decoding from documents\.",
        ),
        ({"encoder.reduction": 0}, "'reduction' of encoder"),
        ({"encoder.code": 0}, "'code' of encoder"),
        ({"encoder.activation": "softmax"}, "'activation' of encoder"),
        ({"encoder.dropout": 1.0}, "'dropout' of encoder"),
        ({"head.hidden": 0}, "'hidden' of head"),
        ({"head.decode_from": "nothing"}, "'decode_from' of head"),
        ({"head.loss": "hinge"}, "'loss' of head"),
        ({"head.feature_loss": "hinge"}, "'feature_loss' of head"),
        ({"head.balance": -0.1}, "'balance' of head"),
        ({"head.feature_balance": -1}, "'feature_balance' of head"),
        ({"head.dropout": 1.0}, "'dropout' of head"),
        ({"head.label_dropout": 1.0}, "'label_dropout' of head"),
        ({"head.ranking.margin": -1}, "'margin' of the ranking loss"),
        ({"sequence.max_tokens": 0}, "'max_tokens' of sequence"),
        ({"lstm.units": 0}, "'units' of lstm"),
        ({"training.skipped_words": 1.0}, "'skipped_words' of training"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        RankAe(**settings)
    assert "\n" not in str(caught.value)


def test_the_ends_of_what_is_searched_are_accepted() -> None:
    start = RankAeSettings()
    assert not [name for name in space(start) if name.startswith("lstm.")]  # which a bag does not have
    for name, tried in space(start).items():
        for value in (tried.low, tried.high) if isinstance(tried, Range) else tried.values:
            changed(start, {name: value})


@pytest.mark.parametrize("name", RankAe.ablations)
def test_ablations_are_other_models_that_train(name: str) -> None:
    ablated = changed(RankAeSettings(), RankAe.ablations[name])
    assert to_mapping(ablated) != to_mapping(RankAeSettings())
    model = tiny(**{**RankAe.ablations[name], "training.epochs": 1}).fit(TEXTS, TRUTH, runtime=RUNTIME)
    assert not same_answers(model, trained(training__epochs=1))
