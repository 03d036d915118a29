"""maacf as its users meet it: what it learns, the candidates of a tree, its folder, resuming, and what it explains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.support.models import QUICK, made, planted_split
from tests.support.networks import Watching, stop_at
from tests.support.tiny_encoder import write_encoder
from tests.support.tree_networks import Stopping
from xmtc import load
from xmtc.artifact import store
from xmtc.artifact.workspace import Workspace
from xmtc.core import config
from xmtc.core.errors import ConfigError, ModelFormatError
from xmtc.core.explanation import AspectEvidence, GroupEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels, as_dataset
from xmtc.labels.groups import label_groups
from xmtc.linear.forest import SearchParameters
from xmtc.metrics import precision
from xmtc.models import candidate_tree, maacf
from xmtc.models.maacf import Maacf

HERE = Runtime(device="cpu", threads=1, seed=5)
PAIRS = 4
WORDS = ("amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath")
"""Each tells its label; two that stand beside each other occur together most often."""
SMALL: dict[str, Any] = {
    **QUICK["maacf"],
    "corpus.width": 16,
    "encoder.cnn.dropout": 0.0,
    "encoder.cnn.filters": 16,
    "encoder.cnn.hidden": 16,
    "encoder.cnn.windows": [1],
    "encoder.cnn.word_dropout": 0.0,
    "head.hidden": 16,
    "training.batch_size": 16,
    "training.epochs": 8,
    "training.validation_size": 0,
    "training.learning_rate": 0.03,
}
TREE = {"head.layers": 3, "candidates.count": 3}
FEW = {"training.epochs": 2, "training.validate_every": 3, "training.validation_size": 16}

pytestmark = pytest.mark.usefixtures("one_thread")


def texts_of(count: int, seed: int) -> Dataset:
    """Two labels each: a pair, or any two."""
    chance = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        pair = int(chance.integers(PAIRS))
        chosen = [2 * pair, 2 * pair + 1] if chance.random() < 0.5 else chance.permutation(2 * PAIRS)[:2].tolist()
        words = [WORDS[label] for label in chosen] + [f"noise{n}" for n in chance.integers(0, 20, 5)]
        texts.append(" ".join(chance.permutation(words)))
        labels.append([f"label-{WORDS[label]}" for label in chosen])
    return as_dataset(texts, labels)


TRAIN, TEST = texts_of(160, 0), texts_of(60, 1)


def model_of(**changes: Any) -> Maacf:
    return Maacf(**{**SMALL, **changes})


def right(model: Maacf, test: Dataset, k: int = 2) -> float:
    return precision(model.predict(test, k).labels, align_labels(test, model.labels)[0], k)


def same_answers(left: Maacf, right: Any, k: int = 4) -> bool:
    one, other = left.predict(TEST, k), right.predict(TEST, k)
    return np.array_equal(one.labels, other.labels) and np.array_equal(one.scores, other.scores)


@pytest.fixture(scope="module")
def small_trees() -> Any:
    """Trees of several levels over the few labels, and a beam that leaves many of them out."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"LEAF": 2, "FAN_OUT": 2, "SEARCH": SearchParameters(beam=2, link=3)}.items():
            patch.setattr(candidate_tree, name, value)
        yield


@pytest.fixture(scope="module")
def proposed(small_trees: None) -> Maacf:
    """Three layers, and candidates of a tree."""
    return model_of(**TREE).fit(TRAIN, valid=TEST, runtime=HERE)


@pytest.fixture(scope="module")
def whole() -> Maacf:
    return model_of().fit(TRAIN, runtime=HERE)


# ---- learning

DRAWN = {"head.loss": "bpr", "head.negatives": 6, "head.hard": 0.5}


@pytest.mark.parametrize(
    "changes",
    [
        {"groups": 0},
        {"groups": 5, "head.layers": 1, "head.attention": "self"},
        {"head.loss": "bce", "head.negatives": 4, "head.hard": 0.0, "members": 2},
        DRAWN,
        {
            **DRAWN,
            "head.layers": 3,
            "candidates.kind": "none",
            "encoder.aspects": 3,
            "head.pool": 6,
            "training.epochs": 12,
        },
    ],
    ids=["no groups", "one layer", "members, drawn", "pairs", "pairs, three layers"],
)
def test_it_learns(changes: dict[str, Any]) -> None:
    model = model_of(**changes).fit(TRAIN, runtime=HERE)
    assert model._proposer is None
    assert right(model, TEST) > 0.9
    scores = model.predict(TEST, 3).scores
    assert ((scores >= 0) & (scores <= 1)).all()


@pytest.mark.long
@pytest.mark.parametrize("kind", ["attention_lstm", "transformer"])
def test_it_learns_with_other_encoders(kind: str, tmp_path: Path) -> None:
    train, test, _ = planted_split(800, 200, labels=60, seed=7)
    settings = made(QUICK[kind])
    own = {f"encoder.{kind}.{name.removeprefix('encoder.')}": settings[name] for name in settings if "encoder" in name}
    others = {name: value for name, value in settings.items() if "encoder" not in name}
    asked = {"encoder.kind": kind, "encoder.aspects": 2, "head.loss": "bce", "head.negatives": 0, "head.dropout": 0.0}
    model = Maacf(**{**others, **own, **asked}).fit(train, runtime=HERE)
    assert right(model, test, 1) > 0.8
    model.save(tmp_path / "model")
    answer = model.predict(test, 5)
    assert np.array_equal(load(tmp_path / "model", HERE).predict(test, 5).scores, answer.scores)


@pytest.mark.parametrize("changes", [{}, {"head.loss": "bpr", "head.negatives": 64, "head.hard": 1.0}])
def test_few_labels(changes: dict[str, Any]) -> None:
    """One label, and labels that never occur together: groups are empty."""
    texts = ["red", "blue red", "", "blue"] * 4
    for labels in ([["a"], [], ["a"], []] * 4, [["a"], ["b"], [], ["c"]] * 4):
        model = model_of(groups=3, **changes, **FEW).fit(texts, labels, runtime=HERE)
        assert (model._groups == -1).all()
        found = model.predict(["red", "", "unheard"], 5)
        assert (np.sort(found.labels[:, : len(model.labels)]) == np.arange(len(model.labels))).all()
        assert (found.labels[:, len(model.labels) :] == -1).all()
        assert np.isfinite(found.scores[:, : len(model.labels)]).all()
        evidence = model.explain("", "a").evidence
        assert [type(each) for each in evidence] == [AspectEvidence] * 2
        assert sum(each.attention for each in evidence) == pytest.approx(1.0, abs=1e-5)


def test_answers_are_those_of_the_best_weights(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """And of nothing that was worked out from the weights of the last check."""
    given = iter([0.5, 0.9, 0.3, 0.2, *[0.1] * 100])
    judged = Maacf._validation_score
    monkeypatch.setattr(Maacf, "_validation_score", lambda *all_of_it: judged(*all_of_it) * 0 + next(given))
    model = model_of(**{**FEW, "training.epochs": 1}).fit(TRAIN, runtime=HERE)
    assert model.facts["nDCG@5 held out"] == 0.9
    model.save(tmp_path / "model")
    assert same_answers(model, load(tmp_path / "model", HERE))


# ---- candidates


def by_hand(model: Maacf, texts: Dataset, proposals: np.ndarray, k: int) -> list[list[tuple[int, float]]]:
    """The best of a document's candidates by the scores of all labels."""
    count = len(model.labels)
    scores = model.score_labels(texts, np.tile(np.arange(count), (len(texts), 1)))
    return [
        sorted(((int(label), float(row[label])) for label in held if label >= 0), key=lambda p: (-p[1], p[0]))[:k]
        for held, row in zip(proposals, scores, strict=True)
    ]


def check_rows(found: Any, expected: list[list[tuple[int, float]]]) -> None:
    for labels, scores, row in zip(found.labels, found.scores, expected, strict=True):
        held = labels >= 0
        assert labels[held].tolist() == [label for label, _ in row]
        assert scores[held] == pytest.approx([score for _, score in row], abs=1e-6)


class TestCandidates:
    def proposals(self, model: Maacf, texts: Dataset, count: int, allowed: Any = None) -> np.ndarray:
        assert model._proposer is not None
        return model._proposer.best(texts, count, allowed, HERE)

    def test_are_scored_as_all_labels_are(self, proposed: Maacf) -> None:
        held = self.proposals(proposed, TEST, 3)
        check_rows(proposed.predict(TEST, 3), by_hand(proposed, TEST, held, 3))
        everything = by_hand(proposed, TEST, np.tile(np.arange(2 * PAIRS), (len(TEST), 1)), 3)
        reached = [{label for label, _ in row} <= set(own.tolist()) for row, own in zip(everything, held, strict=True)]
        assert not all(reached)  # some answers are others without candidates
        assert right(proposed, TEST) > 0.85

    def test_as_many_as_answers(self, proposed: Maacf) -> None:
        """However few are to be proposed; the beam reaches four."""
        found = proposed.predict(TEST, 9)
        assert ((found.labels >= 0).sum(1) == 4).all()
        check_rows(found, by_hand(proposed, TEST, self.proposals(proposed, TEST, 9), 9))
        assert (proposed.predict(TEST, 40).labels[:, 2 * PAIRS :] == -1).all()

    def test_lists_of_labels(self, proposed: Maacf) -> None:
        for label in range(2 * PAIRS):
            found = proposed.predict(TEST, 3, allow=np.array([label]))
            assert (found.labels[:, 0] == label).all()
            assert (found.labels[:, 1:] == -1).all()
        allowed = np.arange(2 * PAIRS) % 3 > 0
        expected = by_hand(proposed, TEST, self.proposals(proposed, TEST, 3, allowed), 4)
        check_rows(proposed.predict(TEST, 4, deny=np.flatnonzero(~allowed)), expected)
        given = [["label-amber", "label-heath"]] * len(TEST)
        names = {name for row in proposed.predict(TEST, 2, candidates=given).names() for name in row}
        assert names == {"label-amber", "label-heath"}

    def test_recall(self, proposed: Maacf) -> None:
        truth = align_labels(TEST, proposed.labels)[0]
        assert proposed._proposer is not None
        slow = {}
        for count in (1, 2, 3, 50):
            held = self.proposals(proposed, TEST, min(count, 2 * PAIRS))
            hits = [label in held[row] for row in range(len(TEST)) for label in truth[[row]].indices]
            slow[count] = np.mean(hits)
            assert proposed._proposer.recall(TEST, truth, count, HERE) == pytest.approx(slow[count])
        assert 0.3 < slow[1] <= 0.5 < slow[2]  # a document has two
        assert proposed.facts["recall of 3 candidates"] == f"{100 * slow[3]:.2f} %"
        assert proposed.training["found"]["recall of 3 candidates"] == proposed.facts["recall of 3 candidates"]

    def test_recall_is_of_documents_that_the_tree_has_not_seen(
        self, small_trees: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seen: dict[str, Any] = {}
        fit, recall = candidate_tree.Proposer.fit, candidate_tree.Proposer.recall

        def fitted(train: Dataset, *more: Any) -> Any:
            seen["learnt"] = train.text().to_pylist()
            return fit(train, *more)

        def watched(self: Any, batch: Dataset, *more: Any) -> float:
            seen["watched"], seen["recall"] = batch.text().to_pylist(), recall(self, batch, *more)
            return float(seen["recall"])

        monkeypatch.setattr(candidate_tree.Proposer, "fit", fitted)
        monkeypatch.setattr(candidate_tree.Proposer, "recall", watched)
        changes = {**TREE, **FEW, "candidates.count": 1, "training.epochs": 1}
        model = model_of(**changes).fit(TRAIN, runtime=HERE)
        assert len(seen["watched"]) == 16
        assert sorted(seen["learnt"] + seen["watched"]) == sorted(TRAIN.text().to_pylist())
        assert 0 < seen["recall"] <= 0.5
        assert model.facts["recall of 1 candidates"] == f"{100 * seen['recall']:.2f} %"
        model = model_of(**{**changes, "training.validation_size": 0}).fit(TRAIN, runtime=HERE)
        assert seen["learnt"] == TRAIN.text().to_pylist()
        assert model.facts == {}
        model.fit(TRAIN, valid=as_dataset(["amber", "birch"], [[], []]), runtime=HERE)
        assert model.facts == {}  # nothing can be missed

    def test_where_they_are_asked_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fast = {**FEW, "training.epochs": 1}
        for changes, many, expected in (
            ({}, 1000, False),
            ({}, 3, True),
            ({"head.layers": 3}, 1000, True),
            ({"head.layers": 3, "candidates.kind": "none"}, 3, False),
            ({"candidates.kind": "tree"}, 1000, True),
        ):
            monkeypatch.setattr(maacf, "MANY", many)
            model = model_of(**fast, **changes).fit(TRAIN.slice(0, 60), runtime=HERE)
            assert (model._proposer is not None) == expected

    def test_texts_without_words(self, proposed: Maacf) -> None:
        found = proposed.predict(["", "unheard of", "amber"], 2)
        assert (found.labels >= 0).all()
        assert np.isfinite(found.scores).all()
        assert found.labels[0].tolist() == found.labels[1].tolist()


# ---- the folder


class TestFolder:
    @pytest.mark.parametrize("changes", [{"groups": 0}, {"members": 2, "frozen": True}, {"head.attention": "self"}])
    def test_a_loaded_model_is_the_same(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        model = model_of(**FEW, **changes).fit(TRAIN, runtime=HERE)
        model.save(tmp_path / "model")
        loaded = load(tmp_path / "model", HERE)
        assert same_answers(model, loaded)
        assert loaded.explain(TEST.text()[0].as_py(), "label-amber") == model.explain(
            TEST.text()[0].as_py(), "label-amber"
        )

    def test_with_candidates(self, tmp_path: Path, proposed: Maacf) -> None:
        proposed.save(tmp_path / "model")
        loaded = load(tmp_path / "model", HERE)
        assert isinstance(loaded, Maacf)
        assert loaded._proposer is not None
        assert same_answers(proposed, loaded)
        assert same_answers(proposed, loaded, 9)
        loaded.save(tmp_path / "again")
        assert same_answers(proposed, load(tmp_path / "again", HERE))

    @pytest.mark.long
    def test_a_transformer_needs_its_folder_no_more(self, tmp_path: Path) -> None:
        encoder = write_encoder(tmp_path / "encoder", WORDS, width=16)
        asked = {"encoder.kind": "transformer", "encoder.transformer.path": str(encoder), "text.max_tokens": 12}
        model = model_of(**FEW, **asked, **{"encoder.transformer.hidden": 16}).fit(TRAIN, runtime=HERE)
        first, second = model._members[0].network.encoder.encoders
        assert not torch.equal(first.pretrained.state_dict().popitem()[1], second.pretrained.state_dict().popitem()[1])
        model.save(tmp_path / "model")
        encoder.rename(tmp_path / "gone")
        assert same_answers(model, load(tmp_path / "model", HERE))

    @pytest.mark.parametrize(
        ("name", "damage", "message"),
        [
            ("groups", lambda groups: groups[:-1], "has shape 7 × 2, expected 8 × 2"),
            ("groups", lambda groups: groups[:, :1], "has shape 8 × 1, expected 8 × 2"),
            ("groups", lambda groups: groups + 1, "expected ≥ -1 and < 8"),
            ("groups", lambda groups: groups - 2, "expected ≥ -1 and < 8"),
            ("groups", lambda groups: None, "groups"),
            ("0.head.rows", lambda rows: rows[:-1], r"head\.rows has shape \(7, 16\), expected \(8, 16\)"),
            ("candidates.forest.numbers", lambda numbers: numbers[:-1], "'model.candidates.forest.numbers' has shape"),
            ("candidates.forest.numbers", lambda numbers: None, "numbers"),
        ],
    )
    def test_damage_is_told_in_a_line(
        self, proposed: Maacf, tmp_path: Path, name: str, damage: Any, message: str
    ) -> None:
        proposed.save(tmp_path / "model")
        manifest, state = store.read_folder(tmp_path / "model")
        changed = damage(state.arrays[f"model.{name}"])
        state.arrays = {key: array for key, array in state.arrays.items() if key != f"model.{name}"}
        if changed is not None:
            state.arrays[f"model.{name}"] = np.ascontiguousarray(changed)
        store.write_folder(tmp_path / "damaged", manifest, state)
        with pytest.raises(ModelFormatError, match=message) as caught:
            load(tmp_path / "damaged", HERE)
        assert "\n" not in str(caught.value)


# ---- stopping and going on


class TestResume:
    @pytest.mark.parametrize("changes", [{}, DRAWN])
    def test_stopped_in_the_second_member(self, tmp_path: Path, changes: dict[str, Any]) -> None:
        asked = {**FEW, **changes, "members": 2}
        expected = model_of(**asked).fit(TRAIN, runtime=HERE)
        stopping = Watching(stop_at(7), which=1)
        with pytest.raises(KeyboardInterrupt):
            model_of(**asked).fit(TRAIN, runtime=HERE, progress=stopping, workspace=Workspace(tmp_path))
        assert Workspace(tmp_path).has("checkpoint-1")
        model = model_of(**asked).fit(TRAIN, runtime=HERE, workspace=Workspace(tmp_path))
        assert same_answers(model, expected)
        assert model.facts == expected.facts

    def test_stopped_while_the_tree_grows(self, tmp_path: Path, small_trees: None) -> None:
        asked = {**FEW, **TREE}
        expected = model_of(**asked).fit(TRAIN, runtime=HERE)
        for level in (1, 2):
            stopping = Stopping(f"training candidates, level {level} of 3", 0)
            with pytest.raises(KeyboardInterrupt):
                model_of(**asked).fit(TRAIN, runtime=HERE, progress=stopping, workspace=Workspace(tmp_path))
        assert Workspace(tmp_path).has("member-0")
        going_on = Stopping()
        model = model_of(**asked).fit(TRAIN, runtime=HERE, progress=going_on, workspace=Workspace(tmp_path))
        assert [title for title in going_on.opened if title.startswith("training")] == [
            "training candidates, level 2 of 3",
            "training candidates, level 3 of 3",
        ]
        assert same_answers(model, expected)
        assert model.facts == expected.facts


# ---- explaining


class TestExplaining:
    def test_shares_and_labels(self, whole: Maacf) -> None:
        expected = label_groups(align_labels(TRAIN, whole.labels)[0], 2)
        for row, label in enumerate(WORDS[:6]):
            reasons = whole.explain(TEST.text()[row].as_py(), f"label-{label}")
            aspects = [each for each in reasons.evidence if isinstance(each, AspectEvidence)]
            around = [each for each in reasons.evidence if isinstance(each, GroupEvidence)]
            assert reasons.kind == "groups"
            assert list(reasons.evidence) == [*aspects, *around]
            for part in (aspects, around):
                assert sum(each.attention for each in part) == pytest.approx(1.0, abs=1e-5)
                assert [each.weight for each in part] == sorted((each.weight for each in part), reverse=True)
            assert sorted(each.aspect for each in aspects) == [1, 2]
            group = {whole.labels.name(other) for other in expected[whole.labels.find(f"label-{label}")].tolist()}
            assert {each.label for each in around} == group
            assert f"label-{WORDS[row ^ 1]}" in group  # what it mostly stands beside

    def test_weights_are_differences_of_logits(self) -> None:
        """Of one layer all that depends on the text is a sum of them: what is left is the same for every text."""
        model = model_of(**{"head.layers": 1, "groups": 2, **FEW}).fit(TRAIN, runtime=HERE)
        left = []
        for text in TEST.text().to_pylist()[:12]:
            score = float(model.score_labels([text], [["label-cedar"]])[0, 0])
            reasons = model.explain(text, "label-cedar")
            assert reasons.score == pytest.approx(score)
            left.append(np.log(score / (1 - score)) - sum(each.weight for each in reasons.evidence))
        assert np.ptp(left) < 1e-4

    def test_of_several_members_the_mean(self) -> None:
        model = model_of(members=2, **FEW).fit(TRAIN, runtime=HERE)
        text, members = TEST.text()[0].as_py(), model._members
        whole = {each.aspect: each.weight for each in model.explain(text, "label-cedar").evidence[:2]}
        parts = []
        for member in members:
            model._members = [member]
            parts.append({each.aspect: each.weight for each in model.explain(text, "label-cedar").evidence[:2]})
        assert parts[0] != parts[1]
        for aspect, weight in whole.items():
            assert weight == pytest.approx((parts[0][aspect] + parts[1][aspect]) / 2, abs=1e-6)


# ---- settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"groups": -1}, "'groups' of maacf must be"),
        ({"encoder.aspects": 0}, "'aspects' of encoder must be"),
        ({"encoder.kind": "lstm"}, "attention_lstm"),
        ({"candidates.count": 0}, "'count' of candidates must be"),
        ({"head.layers": 4}, "'layers' of head must be"),
        ({"head.loss": "bpr", "head.negatives": 0}, "'negatives' of head must be ≥ 1"),
    ],
)
def test_settings_that_make_no_sense(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        model_of(**changes)
    assert "\n" not in str(caught.value)


def test_a_transformer_without_a_folder() -> None:
    with pytest.raises(ConfigError, match=r"^'path' of encoder\.transformer must be the folder"):
        model_of(**{"encoder.kind": "transformer"}).fit(TRAIN, runtime=HERE)


def test_a_search_leaves_out_encoders_that_are_not_in_use() -> None:
    space = config.space(Maacf().config)
    assert {"encoder.aspects", "head.hidden", "head.hard"} <= set(space)
    assert not [name for name in space if name.startswith(("encoder.cnn", "encoder.attention", "encoder.transformer"))]
