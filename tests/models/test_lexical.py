"""The model lexical on planted documents: labels that no training document has are found by their names."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tampering import arrays_of, copied, put_arrays
from xmtc import Consensus, Lexical, Parabel, load
from xmtc.core.errors import ConfigError, ModelFormatError
from xmtc.core.explanation import TokenEvidence
from xmtc.core.runtime import Runtime
from xmtc.data.label_index import LabelIndex
from xmtc.lexical.match_types import FEATURES

KINDS = ["solar", "coastal", "medieval", "digital", "rural", "nuclear", "tropical", "alpine"]
THINGS = ["farm", "harbour", "library", "forest", "railway", "bridge"]
FILLER = ["this", "text", "was", "written", "about", "some", "matters", "which", "people", "know", "well", "enough"]
RANDOM = np.random.default_rng(8)
NAMES = [f"{kind} {thing}" for kind in KINDS for thing in THINGS]
NAMES = [NAMES[i] for i in RANDOM.permutation(48)]
NAMES[40] = "Windkraftanlage"
OTHERS = ["".join(RANDOM.choice(list("bdfgklmprtvz")) + v for v in RANDOM.choice(list("aeiou"), 4)) for _ in NAMES]
"""An alternative name of each label, which resembles no other name."""
USED = 36
"""Labels with training documents; the names of the others occur in them now and then."""
INDEX = LabelIndex.from_keys([f"k{i}" for i in range(48)], NAMES, [[other] for other in OTHERS])
QUICK: dict[str, Any] = {"scorer": {"trees": 30, "min_rows": 5}, "candidates": 30}
RUNTIME = Runtime(threads=1, seed=1)


def sentence(random: np.random.Generator, *names: str) -> str:
    words = random.choice(FILLER, size=12).tolist()
    for name in names:
        words.insert(int(random.integers(0, 12)), name)
    return " ".join(words)


def documents(count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    """Texts with names of their labels, also as parts of longer words, and with single words of other names."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        own = random.choice(USED, size=random.integers(1, 4), replace=False).tolist()
        names = [NAMES[i] if random.random() < 0.6 else OTHERS[i] for i in own]
        names = [name if random.random() < 0.7 else f"{name.replace(' ', '')}ung" for name in names]
        names += [random.choice(KINDS)] + [NAMES[random.integers(USED, 48)]] * (random.random() < 0.2)
        parts = [sentence(random, name) for name in names]
        texts.append(". ".join(parts))
        labels.append([f"k{i}" for i in own])
    return texts, labels


TEXTS, LABELS = documents(300, 1)


def fitted(**settings: Any) -> Lexical:
    return Lexical(**{**QUICK, **settings}).fit(TEXTS, LABELS, vocabulary=INDEX, runtime=RUNTIME)


@pytest.fixture(scope="module")
def model() -> Lexical:
    return fitted()


@pytest.fixture
def own(model: Lexical, tmp_path: Path) -> Lexical:
    """A copy to update."""
    model.save(tmp_path / "own")
    found = load(tmp_path / "own")
    assert isinstance(found, Lexical)
    return found


def first(model: Any, texts: list[str]) -> list[str]:
    """The best label of each text, '' if there is none."""
    return [row[0][0] if row else "" for row in model.predict(texts, 1).pairs()]


def unseen_texts(names: list[str]) -> list[str]:
    random = np.random.default_rng(3)
    return [sentence(random, name) for name in names]


class TestUnseenLabels:
    def test_preferred_and_alternative_names(self, model: Lexical) -> None:
        assert model.label_counts[USED:].tolist() == [0] * (48 - USED)
        assert first(model, unseen_texts(NAMES[USED:])) == NAMES[USED:]
        assert first(model, unseen_texts(OTHERS[USED:])) == NAMES[USED:]

    def test_inflected_names(self, model: Lexical) -> None:
        plural = {"library": "libraries"}
        names = [name for name in NAMES[USED:] if " " in name]
        texts = [f"{name.split()[0]} {plural.get(name.split()[1], name.split()[1] + 's')}" for name in names]
        assert first(model, unseen_texts(texts)) == names
        assert first(model, ["Viele WINDKRAFTANLAGEN stehen hier", "der Windkraftanlage"]) == ["Windkraftanlage"] * 2

    def test_part_of_a_compound(self, model: Lexical) -> None:
        (row,) = model.predict(["Offshorewindkraftanlagen stehen hier"], 3).pairs()
        assert row[0][0] == "Windkraftanlage"

    def test_used_labels_are_found_too(self, model: Lexical) -> None:
        texts, labels = documents(60, 2)
        answers = model.predict(texts, 3).pairs()
        keys = {name: f"k{i}" for i, name in enumerate(NAMES)}
        assert sum(keys[row[0][0]] in own for row, own in zip(answers, labels, strict=True)) >= 57

    def test_hidden_labels_teach_to_judge_unused_ones(self, model: Lexical) -> None:
        plain = fitted(hidden_labels=0.0)
        texts, numbers = unseen_texts(NAMES[USED:]), np.arange(USED, 48)[:, None]
        hidden, shown = (found.score_labels(texts, numbers).mean() for found in (model, plain))
        assert hidden > 2 * shown
        assert shown < 0.2

    def test_a_text_without_any_match(self, model: Lexical) -> None:
        answer = model.predict(["xyzzy quux", "", *unseen_texts(NAMES[:1])], 5)
        assert answer.known_words is not None
        assert answer.known_words.tolist() == [False, False, True]
        assert answer.labels[:2].tolist() == [[-1] * 5] * 2
        assert model.tag("xyzzy quux") == []

    def test_label_keys_without_names(self) -> None:
        """Numbers as keys: no text has them, and none is returned; a text that has one gets its label."""
        model = Lexical(**QUICK).fit(["some text", "other words", "more of it"], [["817"], ["923"], ["817"]])
        assert first(model, ["some text", "number 923"]) == ["", "923"]

    def test_one_document(self) -> None:
        model = Lexical(**QUICK).fit(
            ["a solar farm"], [["k0"]], vocabulary=LabelIndex.from_keys(["k0"], ["solar farm"])
        )
        assert first(model, ["the solar farms"]) == ["solar farm"]


class TestExplanations:
    @pytest.mark.parametrize("name", [NAMES[2], NAMES[USED], OTHERS[USED + 1]])
    def test_marked_words(self, model: Lexical, name: str) -> None:
        text = f"Über große {name.title()}s ¿und\n{' '.join(FILLER)}"
        best = model.predict([text], 1).pairs()[0][0]
        found = model.explain(text, best[0])
        assert found.score == pytest.approx(best[1], abs=1e-6)
        marked = [item for item in found.evidence if isinstance(item, TokenEvidence)]
        expected = set(f"{name.title()}s".split())
        assert {text[item.start : item.end] for item in marked} == {item.text for item in marked} == expected
        margin = found.constant + sum(item.weight for item in marked)
        assert 1 / (1 + np.exp(-margin)) == pytest.approx(found.score, abs=1e-5)

    def test_features(self, model: Lexical, monkeypatch: pytest.MonkeyPatch) -> None:
        text = unseen_texts(NAMES[:1])[0]
        monkeypatch.setattr("xmtc.models.lexical.EXPLAINED", 2)
        found = model.explain(text, NAMES[0])
        first, *largest, others = found.features
        assert (first.feature, others.feature) == ("match", "all other features")
        assert len(largest) == 2
        assert {item.feature for item in largest} < set(FEATURES)
        weights = [abs(item.weight) for item in largest]
        assert weights == sorted(weights, reverse=True)
        margin = found.constant + sum(item.weight for item in found.features)
        assert 1 / (1 + np.exp(-margin)) == pytest.approx(found.score, abs=1e-5)
        monkeypatch.setattr("xmtc.models.lexical.EXPLAINED", len(FEATURES))
        every = model.explain(text, NAMES[0]).features
        assert {item.feature for item in every} <= set(FEATURES)
        assert sum(item.weight for item in every) == pytest.approx(sum(item.weight for item in found.features))
        values = {item.feature: item.value for item in model.explain("nothing of it", NAMES[0]).features}
        assert values.get("first position") is None

    def test_codes_in_words(self, model: Lexical, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("xmtc.models.lexical.EXPLAINED", len(FEATURES))
        monkeypatch.setattr(model._scorer, "contributions", lambda row: np.ones(len(FEATURES)))
        other = OTHERS[USED]
        for text, match, kind in [
            (f"a {NAMES[USED]}", f"side by side: {NAMES[USED]}", f"preferred: {NAMES[USED]}"),
            (f"the {other}", f"side by side: {other}", f"alternative: {other}"),
            ("", "none", f"preferred: {NAMES[USED]}"),
        ]:
            found = {item.feature: item for item in model.explain(text, NAMES[USED]).features}
            assert found["match"].shown_value() == match
            assert found["kind of name"].shown_value() == kind
            assert found["length of the text"].shown_value() == str(len(text.split()))

    @pytest.mark.parametrize("text", ["", "nothing of it", "xyzzy"])
    def test_labels_that_do_not_match(self, model: Lexical, text: str) -> None:
        found = model.explain(text, NAMES[0])
        assert found.evidence == ()
        assert 1 / (1 + np.exp(-found.constant)) == pytest.approx(found.score, abs=1e-5)
        assert found.score < 0.1


def same(one: Lexical, other: Lexical) -> None:
    """Both models give the same answers and explanations."""
    texts = [*documents(20, 9)[0], *unseen_texts(NAMES[USED:]), ""]
    for k in (3, 40):
        first, second = one.predict(texts, k), other.predict(texts, k)
        assert first.labels.tolist() == second.labels.tolist()
        assert first.scores.tobytes() == second.scores.tobytes()
    assert one.explain(texts[0], 3) == other.explain(texts[0], 3)


def test_saved_and_loaded(model: Lexical, own: Lexical) -> None:
    same(model, own)
    assert own.facts == model.facts


def test_deep_copy(model: Lexical) -> None:
    model.predict(TEXTS[:3])  # with scratch memory
    same(model, copy.deepcopy(model))


def test_threads_do_not_change_the_model(model: Lexical) -> None:
    settings = Lexical(**QUICK)
    same(model, settings.fit(TEXTS, LABELS, vocabulary=INDEX, runtime=Runtime(threads=3, seed=1)))


def test_scores_of_given_labels_are_those_of_predict(model: Lexical) -> None:
    texts = documents(20, 9)[0]
    answer = model.predict(texts, 10)
    assert model.score_labels(texts, answer.labels).tobytes() == answer.scores.tobytes()


def test_allow_is_the_full_ranking_without_the_others() -> None:
    texts, model = documents(20, 9)[0], fitted(candidates=48)
    limited = model.predict(texts, 5, allow=[f"k{i}" for i in range(0, 48, 5)]).pairs()
    for row, everything in zip(limited, model.predict(texts, 48).pairs(), strict=True):
        assert row == [(name, score) for name, score in everything if NAMES.index(name) % 5 == 0][:5]


class TestUpdate:
    def test_a_new_vocabulary(self, own: Lexical, tmp_path: Path) -> None:
        before = own.predict(TEXTS[:20], 1)
        own.update(vocabulary=LabelIndex.from_keys(["k40", "new"], ["wind turbine", "coral reef"], [[], ["atoll"]]))
        assert len(own.labels) == 49
        assert first(own, ["the coral reefs", "an atoll", "a wind turbine"]) == ["coral reef"] * 2 + ["wind turbine"]
        assert own.predict(TEXTS[:20], 1).labels.tolist() == before.labels.tolist()
        own.save(tmp_path / "new")
        again = load(tmp_path / "new")
        assert isinstance(again, Lexical)
        same(own, again)
        assert first(again, ["an atoll"]) == ["coral reef"]

    def test_new_documents_decide(self, own: Lexical) -> None:
        """A label that people accept rises; one whose name occurs in vain falls; others stay."""
        random = np.random.default_rng(4)
        accepted, in_vain, other = NAMES[USED], NAMES[USED + 1], NAMES[USED + 2]
        ask = [sentence(np.random.default_rng(7), name) for name in (accepted, in_vain, other)]
        numbers = np.arange(USED, USED + 3)[:, None]
        before = own.score_labels(ask, numbers)[:, 0]
        texts = [sentence(random, accepted) + ". " + sentence(random, in_vain) for _ in range(10)]
        own.update(texts, [[f"k{USED}"]] * 10)
        after = own.score_labels(ask, numbers)[:, 0]
        assert after[0] > before[0]
        assert after[1] < 0.5 * before[1]
        assert after[2] == pytest.approx(before[2], abs=0.05)
        found = own.explain(ask[1], in_vain)
        margin = found.constant + sum(item.weight for item in found.evidence if isinstance(item, TokenEvidence))
        assert 1 / (1 + np.exp(-margin)) == pytest.approx(found.score, abs=1e-5)

    def test_decisions_on_single_labels(self, own: Lexical) -> None:
        """A rejected label falls; labels that nobody decided on stay."""
        name, other = NAMES[USED], NAMES[USED + 1]
        texts = [f"{sentence(np.random.default_rng(i), name)}. {other}" for i in range(10)]
        numbers = np.tile([USED, USED + 1], (10, 1))
        before = own.score_labels(texts, numbers)
        own.update(texts, [[]] * 10, rejected=[[f"k{USED}"]] * 10, complete=False)
        after = own.score_labels(texts, numbers)
        assert (after[:, 0] < 0.5 * before[:, 0]).all()
        assert after[:, 1] == pytest.approx(before[:, 1], abs=0.02)

    def test_merged_labels_take_the_mean_of_their_changes(self, own: Lexical) -> None:
        own._offsets = np.where(np.arange(48) == 2, 3, 0).astype(np.float32)
        before = own.label_counts[[2, 20, 30]]
        own.update(merge={"k20": "k2", "k30": "k2"})
        assert own._offsets[own.labels.find("k2")] == pytest.approx(3 * before[0] / before.sum())
        assert np.count_nonzero(own._offsets) == 1

    def test_retired_and_merged_labels(self, own: Lexical) -> None:
        own.update(retire=["k0"], merge={"k1": "k2"})
        assert len(own.labels) == 46
        assert first(own, unseen_texts(NAMES[3:6])) == NAMES[3:6]
        answer = own.predict(unseen_texts(NAMES[:1]), 48).pairs()[0]
        assert NAMES[0] not in [name for name, _ in answer]


def test_unknown_labels_of_partial_documents_are_not_wrong() -> None:
    """Half of the labels are missing: they count as wrong only in complete documents."""
    given, rejected = [own[:1] for own in LABELS], [["k47"] for _ in LABELS]
    score = {}
    for complete in (True, False):
        model = Lexical(**QUICK, hidden_labels=0.0)
        model.fit(TEXTS, given, rejected=rejected, complete=complete, vocabulary=INDEX, runtime=RUNTIME)
        texts, labels = documents(40, 6)
        numbers = np.array([[int(own[0][1:])] for own in labels])
        score[complete] = float(model.score_labels(texts, numbers).mean())
    assert score[False] > score[True] + 0.1


def test_language() -> None:
    with pytest.raises(ConfigError, match="no stemmer for language 'xx'"):
        Lexical(language="xx")
    if importlib.util.find_spec("snowballstemmer") is None:
        pytest.skip("needs snowballstemmer")
    model = fitted(language="de")
    assert first(model, ["Viele Windkraftanlagen stehen hier"]) == ["Windkraftanlage"]


@pytest.fixture(scope="module")
def synonyms(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str], list[str]]:
    """A file of vectors of 30 names, each with a synonym that has no letter in common with it."""
    random = np.random.default_rng(11)

    def word(consonants: str, vowels: str) -> str:
        return "".join(random.choice(list(consonants)) + random.choice(list(vowels)) for _ in range(4))

    names, others = ([word(*letters) for _ in range(30)] for letters in (("bdfgkl", "ae"), ("mnprst", "iou")))
    lines = []
    for pair in zip(names, others, strict=True):
        centre = random.standard_normal(24)
        lines += [f"{each} {' '.join(map(str, centre + 0.2 * random.standard_normal(24)))}" for each in pair]
    path = tmp_path_factory.mktemp("vectors") / "vectors.txt"
    path.write_text("\n".join(lines) + "\n")
    return path, names, others


def test_word_vectors_find_synonyms(synonyms: tuple[Path, list[str], list[str]], tmp_path: Path) -> None:
    path, names, others = synonyms
    index = LabelIndex.from_keys([f"k{i}" for i in range(30)], names)
    random = np.random.default_rng(1)
    drawn = random.integers(0, 20, size=240).tolist()
    texts, labels = [sentence(random, others[i]) for i in drawn], [[f"k{i}"] for i in drawn]
    texts[::4] = [f"{text}. {random.choice(others[20:])}" for text in texts[::4]]  # words that no text has are unknown
    ask = [sentence(random, other) for other in others[20:]]
    model = Lexical(**QUICK, word_vectors=str(path)).fit(texts, labels, vocabulary=index, runtime=RUNTIME)
    assert sum(a == b for a, b in zip(first(model, ask), names[20:], strict=True)) >= 9
    plain = Lexical(**QUICK).fit(texts, labels, vocabulary=index, runtime=RUNTIME)
    assert first(plain, ask) == [""] * 10
    model.save(tmp_path / "m")
    path.rename(tmp_path / "elsewhere.txt")  # a saved model does not need the file
    again = load(tmp_path / "m")
    (tmp_path / "elsewhere.txt").rename(path)
    assert again.predict(ask, 5).scores.tobytes() == model.predict(ask, 5).scores.tobytes()


def test_a_consensus_returns_unseen_labels(model: Lexical, tmp_path: Path) -> None:
    model.save(tmp_path / "lexical")
    Parabel(trees=1, text={"min_df": 1}).fit(TEXTS, LABELS, vocabulary=INDEX, runtime=RUNTIME).save(
        tmp_path / "parabel"
    )
    both = Consensus(members=[str(tmp_path / "parabel"), str(tmp_path / "lexical")])
    both.fit(*documents(60, 5), vocabulary=INDEX, runtime=RUNTIME)
    answer = both.predict(unseen_texts(NAMES[USED:]), 5).pairs()
    assert [name in [found for found, _ in row] for name, row in zip(NAMES[USED:], answer, strict=True)] == [True] * 12


DAMAGES: dict[str, Any] = {
    "matcher.names.owners": 48,
    "matcher.names.first": -1,
    "matcher.names.kinds": 4,
    "matcher.names.ambiguity": -1,
    "matcher.names.indptr": 1 << 40,
    "matcher.names.forms": 1 << 30,
    "matcher.names.stems": -1,
    "matcher.names.form_table": 0,
    "matcher.names.stem_table": 0,
    "matcher.names.anchor_indptr": -1,
    "matcher.names.anchored": 1 << 30,
    "matcher.grams.table": 0,
    "matcher.grams.idf": np.nan,
    "matcher.grams.indptr": 1 << 40,
    "matcher.grams.grams": 1 << 30,
    "matcher.grams.scales": np.inf,
    "matcher.grams.posting_indptr": -1,
    "matcher.grams.postings": -1,
    "matcher.rarity.grams": -1,
    "matcher.rarity.stems": np.nan,
    "matcher.near.broader_indptr": 5,
    "names.matched": -1,
    "names.confirmed": 1 << 50,
    "offsets": 99,
    "scorer.feature": len(FEATURES),
    "scorer.leaf": 200,
}
"""A number that makes each array inconsistent when it takes the place of the last but one."""


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_folder(saved: Path, tmp_path: Path, name: str) -> None:
    folder = copied(saved, tmp_path / "damaged")
    arrays = arrays_of(folder, "arrays")
    (key,) = [each for each in arrays if each.endswith(f"model.{name}") or each == name]
    arrays[key][-2] = DAMAGES[name]
    put_arrays(folder, "arrays", arrays, repair=True)
    with pytest.raises(ModelFormatError):
        load(folder)


@pytest.fixture(scope="module")
def saved(model: Lexical, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lexical") / "model"
    model.save(path)
    return path


@pytest.mark.parametrize("table", ["names.stem_table", "names.form_table", "grams.table"])
def test_an_empty_table(saved: Path, tmp_path: Path, table: str) -> None:
    """Numbers of words or n-grams must not refer to a table without any."""
    folder = copied(saved, tmp_path / "damaged")
    arrays = arrays_of(folder, "arrays")
    part, empty = "model.matcher.", np.empty(0, dtype=np.float32)
    arrays[f"{part}{table}"] = np.empty(0, dtype=np.uint64)
    if table == "names.stem_table":
        arrays[f"{part}names.stems"][:] = 0
        arrays[f"{part}names.anchor_indptr"] = np.zeros(1, np.int64)
        arrays[f"{part}names.anchored"] = np.empty(0, np.int32)
        arrays[f"{part}rarity.stems"] = empty
    elif table == "names.form_table":
        arrays[f"{part}names.forms"][:] = 0
    else:
        arrays[f"{part}grams.grams"][:] = 0
        arrays[f"{part}grams.posting_indptr"] = np.zeros(1, np.int64)
        arrays[f"{part}grams.postings"] = np.empty(0, np.int32)
        arrays[f"{part}grams.idf"] = arrays[f"{part}rarity.grams"] = empty
    put_arrays(folder, "arrays", arrays, repair=True)
    with pytest.raises(ModelFormatError):
        load(folder)


def test_names_that_occur_come_first_if_nothing_was_learnt() -> None:
    """Too few documents for a split of the trees: similar names score less than those that occur."""
    names = ["apples", "bread", "cheese", "dates", "market stalls"]
    texts = [f"Today we bought {names[day % 4]} at the market, day {day}." for day in range(40)]
    labels = [[names[day % 4]] for day in range(40)]
    model = Lexical().fit(texts, labels, vocabulary=LabelIndex.from_keys(names))
    assert model.facts == {"trees": 0}
    occurs, similar = model.predict(["fresh market stalls", "we read a marketing report about breadth"], 5).pairs()
    assert occurs[0][0] == "market stalls"
    assert {label for label, _ in similar} == {"bread", "market stalls"}
    assert max(score for _, score in similar) < 0.1 < occurs[0][1]
    found = model.explain("we read a marketing report about breadth", "bread")
    assert 1 / (1 + np.exp(-found.constant)) == pytest.approx(found.score, abs=1e-5)
