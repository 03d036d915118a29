"""Label names in texts: the reference in plain Python as the judge, and what must not change the result."""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
import time
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from tests.support.name_matching import Reference, Text
from xmtc.data.label_index import LabelIndex
from xmtc.lexical import matching
from xmtc.lexical.match_kernels import match_texts
from xmtc.lexical.match_types import FEATURES, MATCH
from xmtc.lexical.matching import Candidates, NameMatcher

WORDS = ["wind", "winds", "wind", "windy", "farm", "farms", "farming", "windfarm", "solar", "energy", "energies"]
WORDS += ["law", "laws", "an", "of", "offshore"]
VECTORS = ("frequency", "precision of the name", "cosine of the vectors")  # not set by the matcher


def drawn(seed: int, labels: int = 25, texts: int = 12) -> tuple[list[list[str]], list[str]]:
    """Random names (a preferred one and up to two alternatives per label), and random texts."""
    random = np.random.default_rng(seed)

    def phrase(most: int) -> str:
        return " ".join(random.choice(WORDS, size=random.integers(1, most)))

    names = [[phrase(5) for _ in range(random.integers(1, 4))] for _ in range(labels)]
    ends = [" ", " ", " ", " ", ". ", "\n", ", ", "? "]
    return names, ["".join(w + random.choice(ends) for w in phrase(40).split()) for _ in range(texts)]


def matcher_of(names: Sequence[Sequence[str]], corpus: Sequence[str], most: int, **links: Any) -> NameMatcher:
    keys = [f"k{i}" for i in range(len(names))]
    index = LabelIndex.from_keys(keys, [own[0] for own in names], [list(own[1:]) for own in names], **links)
    return NameMatcher.of(index, None, most).with_rarity(arrow(corpus), 1)


def arrow(texts: Sequence[str]) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(texts, pa.string())])


def found(matcher: NameMatcher, texts: Sequence[str], **options: Any) -> list[Candidates]:
    """The candidates of each text, without padding."""
    rows = []
    for part in matcher.candidates(arrow(texts), options.pop("threads", 1), **options):
        for labels, names, features in zip(*part, strict=True):
            used = labels >= 0
            rows.append(Candidates(labels[used], names[used], features[used]))
    return rows


def assert_row(features: NDArray[np.float32], expected: dict[str, float]) -> None:
    given = dict(zip(FEATURES, features.tolist(), strict=True))
    assert all(np.isnan(given.pop(name)) for name in VECTORS)
    assert given == pytest.approx(expected, rel=2e-5, abs=1e-6, nan_ok=True)


@pytest.mark.parametrize("seed", range(9))
def test_random_names_and_texts(seed: int) -> None:
    names, texts = drawn(seed)
    most = [3, 5, 30][seed % 3]
    corpus = texts[: 4 + seed]
    reference, matcher = Reference(names, corpus, most), matcher_of(names, corpus, most)
    for text, row in zip(texts, found(matcher, texts), strict=True):
        chosen, expected = reference.described(text)
        assert row.labels.tolist() == chosen, text
        assert row.names.tolist() == [expected[label][0] for label in chosen]
        for label, features in zip(chosen, row.features, strict=True):
            assert_row(features, expected[label][1])


def test_hundreds_of_names_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "MOST_OCCURRING", 400)
    names, texts = drawn(60, labels=400, texts=6)
    reference, matcher = Reference(names, texts, 3), matcher_of(names, texts, 3)
    for text, row in zip(texts, found(matcher, texts), strict=True):
        chosen, expected = reference.described(text)
        assert row.labels.tolist() == chosen  # smaller labels first where names are equally similar
        assert row.names.tolist() == [expected[label][0] for label in chosen]


def test_bounded_work(monkeypatch: pytest.MonkeyPatch) -> None:
    names, texts = drawn(61, labels=60)
    reference, matcher = Reference(names, texts, 5), matcher_of(names, texts, 5)
    monkeypatch.setattr(matching, "POSTINGS", 60)
    similar = 0
    for text, row in zip(texts, found(matcher, texts), strict=True):
        matches, _ = reference.matches(Text(text))
        similar += len(set(row.labels.tolist()) - set(matches))
        _, expected = reference.described(text)
        for label, features in zip(row.labels.tolist(), row.features, strict=True):
            for feature in ("similarity", "share of the name in the text", "match"):  # exact all the same
                assert features[FEATURES.index(feature)] == pytest.approx(expected[label][1][feature], rel=2e-5)
    assert similar
    monkeypatch.setattr(matching, "POSTINGS", 1)
    for text, row in zip(texts, found(matcher, texts), strict=True):
        matches, _ = reference.matches(Text(text))
        assert len(set(row.labels.tolist()) - set(matches)) <= 1


def test_n_grams_of_few_names_count_if_a_frequent_one_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [[f"wind{i:02d}"] for i in range(40)] + [["cheesecake"]]
    texts = ["windmill", "cheesecakes", *["cheesecake"] * 20]
    matcher = matcher_of(names, texts, 5)
    monkeypatch.setattr(matching, "POSTINGS", 30)
    (row,) = found(matcher, ["windmill windmill. Cheesecakeshop"])
    assert row.labels.tolist() == [40]


@pytest.mark.parametrize("seed", [20, 21, 22])
def test_allowed_is_the_full_ranking_without_the_others(seed: int) -> None:
    names, texts = drawn(seed)
    reference, matcher = Reference(names, texts, 4), matcher_of(names, texts, 4)
    for share in (0.5, 0.1, 0.0):
        allowed = np.random.default_rng(seed).random(len(names)) < share
        everything = found(matcher_of(names, texts, len(names)), texts)
        for text, row, full in zip(texts, found(matcher, texts, allowed=allowed), everything, strict=True):
            chosen, expected = reference.described(text, set(np.flatnonzero(allowed).tolist()))
            assert row.labels.tolist() == chosen
            for label, features in zip(chosen, row.features, strict=True):
                assert_row(features, expected[label][1])
            kept = full.labels[allowed[full.labels]].tolist()
            assert kept[: len(chosen[:4])] == chosen[:4]


def test_wanted_labels_have_the_features_that_candidates_have() -> None:
    names, texts = drawn(30)
    reference, matcher = Reference(names, texts, 4), matcher_of(names, texts, 4)
    random = np.random.default_rng(3)
    wanted = np.stack([random.permutation(len(names))[:9] for _ in texts]).astype(np.int64)
    wanted[random.random(wanted.shape) < 0.2] = -1
    (part,) = matcher.candidates(arrow(texts), 1, wanted=wanted)
    assert part.labels.tolist() == wanted.tolist()
    for i, (text, row) in enumerate(zip(texts, found(matcher, texts), strict=True)):
        candidates = dict(zip(row.labels.tolist(), row.features, strict=True))
        _, expected = reference.described(text)
        for j, label in enumerate(wanted[i].tolist()):
            if label < 0:
                assert part.names[i, j] == -1
                continue
            assert part.names[i, j] == expected[label][0]
            assert_row(part.features[i, j], expected[label][1])
            if label in candidates:
                assert part.features[i, j].tobytes() == candidates[label].tobytes()


def test_only_names_are_the_labels_that_occur() -> None:
    names, texts = drawn(31)
    matcher = matcher_of(names, texts, 40)
    for text, row, full in zip(texts, found(matcher, texts, only_names=True), found(matcher, texts), strict=True):
        matches, _ = Reference(names, texts, 40).matches(Text(text))
        assert row.labels.tolist() == list(matches)
        kinds = dict(zip(full.labels.tolist(), full.features[:, MATCH].tolist(), strict=True))
        assert row.features[:, MATCH].tolist() == [kinds[label] for label in matches]


def test_of_many_names_that_occur_the_longest_are_candidates(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [[f"{'bcdfghjklmpqrtvwz'[: i + 1]}x"] for i in range(17)]
    texts = [" ".join(name for (name,) in names), names[2][0], ""]
    matcher = matcher_of(names, texts, 3)
    assert set(found(matcher, texts)[0].labels.tolist()) == set(range(17))
    monkeypatch.setattr(matching, "MOST_OCCURRING", 4)
    (first, second, third) = found(matcher, texts, only_names=True)
    assert set(first.labels.tolist()) == set(range(10, 17))
    assert (second.labels.tolist(), third.labels.tolist()) == ([2], [])
    allowed = np.arange(17) < 10
    assert set(found(matcher, texts, only_names=True, allowed=allowed)[0].labels.tolist()) == set(range(3, 10))


def test_hierarchy() -> None:
    names, texts = drawn(40)
    random = np.random.default_rng(4)
    parents = [
        sorted({int(p) for p in random.integers(0, i, size=random.integers(0, 3))}) if i else [] for i in range(25)
    ]
    related = [[int(i) for i in {random.integers(0, 25)} - {label}] for label in range(25)]
    reference = Reference(names, texts, 30)
    for label in range(25):
        for parent in parents[label]:
            reference.links["broader"][label].add(parent)
            reference.links["narrower"][parent].add(label)
        for other in related[label]:
            reference.links["related"][label].add(other)
            reference.links["related"][other].add(label)
    as_keys = [[[f"k{i}" for i in own] for own in links] for links in (parents, related)]
    matcher = matcher_of(names, texts, 30, parents=as_keys[0], related=as_keys[1])
    seen = np.zeros(3)
    places = [FEATURES.index(f"{kind} labels found") for kind in ("broader", "narrower", "related")]
    for text, row in zip(texts, found(matcher, texts), strict=True):
        _, expected = reference.described(text)
        for label, features in zip(row.labels.tolist(), row.features, strict=True):
            assert_row(features, expected[label][1])
        seen += row.features[:, places].sum(axis=0)
    assert (seen > 0).all()


def bytes_of(rows: list[Candidates]) -> list[bytes]:
    return [row.labels.tobytes() + row.names.tobytes() + row.features.tobytes() for row in rows]


def test_scratch_memory_is_restored() -> None:
    names, texts = drawn(50, texts=30)
    matcher = matcher_of(names, texts, 5)
    texts = [*texts, "", "unknown words alone", *texts[::-1]]
    rows = bytes_of(found(matcher, texts))
    assert rows[:30] == rows[:31:-1]
    assert rows == bytes_of([found(matcher_of(names, texts[:30], 5), [text])[0] for text in texts])
    mask, wanted = np.arange(25) % 3 == 0, np.tile(np.arange(25), (len(texts), 1))
    for options in ({"allowed": mask}, {"wanted": wanted}, {"only_names": True}):  # leave nothing behind either
        list(matcher.candidates(arrow(texts), 1, **options))
        assert bytes_of(found(matcher, texts)) == rows


def test_threads_do_not_change_the_result() -> None:
    names, texts = drawn(51, texts=600)  # several blocks
    matcher = matcher_of(names, texts, 5)
    wanted = np.random.default_rng(0).integers(0, 25, size=(600, 3))
    for options in ({}, {"wanted": wanted}, {"allowed": np.arange(25) % 2 == 0}):
        one, four = (found(matcher, texts, threads=threads, **options) for threads in (1, 4))
        assert len(one) == 600
        assert bytes_of(one) == bytes_of(four)
    again = matcher.with_rarity(arrow(texts), 4).rarity
    assert [array.tobytes() for array in again] == [array.tobytes() for array in matcher.rarity]


def features_of(matcher: NameMatcher, text: str, label: int) -> dict[str, float]:
    (part,) = matcher.candidates(arrow([text]), 1, wanted=np.array([[label]]))
    return dict(zip(FEATURES, part.features[0, 0].tolist(), strict=True))


def test_kinds_of_matches() -> None:
    matcher = matcher_of([["wind farm"], ["solar law"], ["offshore wind farm"]], ["wind"], 5)
    for text, kind in {
        "a wind farm": 4,
        "two Wind Farms": 3,
        "the farm has wind": 2,
        "farms with winds": 1,
        "the wind. A farm": 0,
        "the wind\nA farm": 0,
        "the wind. Farm": 4,
        "the wind\nFarm": 0,
        "wind\nfarm wind": 2,
        "the wind.\nFarm": 0,
        "farm": 0,
        "A farm. The farm, wind and farms. Wind farms": 3,
    }.items():
        assert features_of(matcher, text, 0)["match"] == kind, text
    parts = features_of(matcher, "Offshore wind farms", 0)
    assert parts["part of a longer match"] == 1
    assert features_of(matcher, "Offshore wind farms", 2)["part of a longer match"] == 0
    assert features_of(matcher, "wind farms. Offshore wind farms", 0)["part of a longer match"] == 0


@pytest.mark.parametrize("name", ["Web 2.0", "St. Gallen", "U.S. history", "Who's afraid?", "D. H. Lawrence", ".NET"])
def test_names_with_full_stops(name: str) -> None:
    matcher = matcher_of([[name], ["wind farm"]], ["wind"], 5)
    for text in (name, f"wind. About {name}. Farm", f"Nothing. {name.upper()}\nthe farm"):
        assert features_of(matcher, text, 0)["match"] == 4, text
        assert features_of(matcher, text, 1)["match"] == 0, text


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("风能", "关于风能的研究"),
        ("東京", "東京のデータベースの研究"),
        ("データ", "東京のデータベース"),
        ("ลม", "พลังงานลมไทย"),
        ("𠀀𠀁", "研𠀀𠀁究"),
    ],
)
def test_scripts_without_spaces(name: str, text: str) -> None:
    matcher = matcher_of([["wind farm"], [name], ["太阳能"]], ["wind"], 5)
    assert [row.labels.tolist() for row in found(matcher, [text, f"DNA{text}", "xyz"])] == [[1], [1], []]
    assert features_of(matcher, text, 1)["share of the name in the text"] > 0.3


def test_a_name_with_a_repeated_word_at_the_end_of_a_text() -> None:
    """The word is rarest at the second place of the name, and first found at its last but one."""
    matcher = matcher_of([["hotel bora bora"], ["hotel one"], ["hotel two"], ["hotel"]], ["x"], 5)
    found_ = features_of(matcher, "hotel bora bora", 0)
    assert (found_["match"], found_["words of the name"]) == (4, 3)
    assert features_of(matcher, "hotel bora bora", 3)["part of a longer match"] == 1


def test_texts_with_hardly_any_words() -> None:
    matcher = matcher_of([["wind farm"], ["beer"], ["!!!"]], ["wind"], 5)
    empty, marks, one, unknown = found(matcher, ["", " … !", "beer", "xyzzyx"])
    for row in (empty, marks, unknown):
        assert row.labels.tolist() == []
    assert one.labels.tolist() == [1]
    values = dict(zip(FEATURES, one.features[0].tolist(), strict=True))
    assert values["match"] == 4
    assert values["relative similarity"] == values["share of the name in one word"] == values["title only"] == 1
    assert found(matcher, []) == []
    nothing = features_of(matcher, "", 2)  # neither the text nor the name has words
    assert (nothing["similarity"], nothing["match"], nothing["words of the name"]) == (0, 0, 0)


def test_names_without_any_word() -> None:
    matcher = matcher_of([["!!!"], ["?"]], ["some text"], 5)
    assert [row.labels.tolist() for row in found(matcher, ["some text", ""])] == [[], []]
    assert matcher.matched_words("some text", 0) == []
    assert matcher.matched_words("", 1) == []


def test_long_texts_take_linear_time() -> None:
    names = [["wind farm"], ["wind"], ["farm"], ["farm of wind farms"], ["solar wind farm"]]
    matcher = matcher_of(names, ["wind"], 5)
    for text in ("wind farm " * 150_000, "wind. " * 150_000 + "farm. " * 150_000 + "solar", "farm wind\n" * 150_000):
        began = time.perf_counter()
        (row,) = found(matcher, [text])
        assert time.perf_counter() - began < 5  # quadratic time would be minutes
        assert {1, 2} <= set(row.labels.tolist())


class Nearest:
    """Finds labels 6 and 1 for every text."""

    def embed(self, texts: pa.ChunkedArray) -> int:
        return len(texts)

    def search(self, texts: int, k: int, allowed: Any = None) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        best = [label if allowed is None or allowed[label] else -1 for label in (6, 1)][:k]
        return np.tile(np.array(best), (texts, 1)), np.ones((texts, len(best)), np.float32)

    def score(self, texts: int, candidates: NDArray[Any]) -> NDArray[np.float32]:
        assert len(candidates) == texts
        return (candidates / 8).astype(np.float32)


class AllNear(Nearest):
    """Finds as many labels as wanted for every text, lower numbers first."""

    def search(self, texts: int, k: int, allowed: Any = None) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        best = np.flatnonzero(allowed)[:k]
        return np.tile(best, (texts, 1)), np.ones((texts, len(best)), np.float32)


def test_nearest_vectors_are_further_candidates() -> None:
    names = [[name] for name in ("wind", "solar", "law", "cheese", "bread", "beer", "honey", "milk")]
    matcher = matcher_of(names, ["x"], 5)
    matcher.vectors = Nearest()
    one, two = found(matcher, ["solar wind", "nothing else"])
    assert one.labels.tolist() == [1, 0, 6]
    assert two.labels.tolist() == [6, 1]
    assert one.features[:, FEATURES.index("cosine of the vectors")].tolist() == [1 / 8, 0, 6 / 8]
    allowed = np.arange(8) > 1
    assert [row.labels.tolist() for row in found(matcher, ["solar wind"], allowed=allowed)] == [[6]]
    assert [row.labels.tolist() for row in found(matcher, ["solar wind", "x"], only_names=True)] == [[1, 0], []]
    (part,) = matcher.candidates(arrow(["solar"]), 1, wanted=np.array([[4, -1, 6]]))
    assert part.labels.tolist() == [[4, -1, 6]]
    assert part.features[0, [0, 2], -1].tolist() == [0.5, 0.75]


class InOneThread(Nearest):
    """Notes the threads that it is called in."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def embed(self, texts: pa.ChunkedArray) -> int:
        self.threads.add(threading.get_ident())
        return super().embed(texts)

    def score(self, texts: int, candidates: NDArray[Any]) -> NDArray[np.float32]:
        self.threads.add(threading.get_ident())
        return super().score(texts, candidates)


def test_vectors_are_computed_in_the_calling_thread() -> None:
    names, texts = drawn(51, texts=600)  # several blocks
    matcher = matcher_of(names, texts, 5)
    matcher.vectors = vectors = InOneThread()
    one, four = (found(matcher, texts, threads=threads) for threads in (1, 4))
    assert bytes_of(one) == bytes_of(four)
    assert vectors.threads == {threading.get_ident()}


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda matcher: pickle.loads(pickle.dumps(matcher))])
def test_copies(copied: Callable[[NameMatcher], NameMatcher]) -> None:
    names, texts = drawn(52)
    matcher = matcher_of(names, texts, 5)
    matcher.vectors = Nearest()
    rows = bytes_of(found(matcher, texts))
    other = copied(matcher)
    assert isinstance(other.vectors, Nearest)
    assert bytes_of(found(other, texts)) == rows


def interpreted(function: Any) -> Callable[..., Any]:
    """A kernel in plain Python, where an index out of bounds is an error."""
    plain = getattr(function, "py_func", None) or inspect.unwrap(function)
    used = {name: plain.__globals__[name] for name in plain.__code__.co_names if name in plain.__globals__}
    own = {name: interpreted(value) if hasattr(value, "py_func") else value for name, value in used.items()}
    return FunctionType(plain.__code__, own, plain.__name__)


def test_few_candidates_among_many_similar_and_near_names(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [[f"wind{i:02d}"] for i in range(80)]
    matcher = matcher_of(names, ["x"], 2)
    matcher.vectors = AllNear()
    allowed = np.arange(80) > 2
    with monkeypatch.context() as patched:
        patched.setattr(matching, "match_texts", interpreted(match_texts))
        (plain,) = found(matcher, ["windmill"], allowed=allowed)
    (compiled,) = found(matcher, ["windmill"], allowed=allowed)
    assert plain.labels.tolist() == compiled.labels.tolist() == list(range(3, 53))


def test_renewed_names_keep_the_rarity_of_their_words() -> None:
    texts = ["wind law", "wind", "wind solar"]
    matcher = matcher_of([["wind"], ["law"], ["solar"]], texts, 5)
    new = matcher.renewed(LabelIndex.from_keys(["a", "b"], ["wind", "cheese"]))
    rarity = {word: features_of(matcher, word, i)["rarest word of the name"] for i, word in enumerate(("wind", "law"))}
    assert rarity["wind"] < rarity["law"]
    assert features_of(new, "wind", 0)["rarest word of the name"] == rarity["wind"]
    assert features_of(new, "cheese", 1)["rarest word of the name"] == rarity["law"]
    assert [row.labels.tolist() for row in found(new, ["cheeses", "law"])] == [[1], []]


def test_matched_words() -> None:
    matcher = matcher_of([["Windkraftanlage"], ["wine (drink)"]], ["x"], 5)
    text = "Über Straßen: Windkraftanlagen, Windkraft & wines."
    marked = [(word.text, text[word.start : word.end]) for word in matcher.matched_words(text, 0)]
    assert marked == [(word, word) for word in ("Windkraftanlagen", "Windkraft")]
    weights = [word.weight for word in matcher.matched_words(text, 0)]
    assert 1 > weights[0] > weights[1] > 0
    assert [word.text for word in matcher.matched_words(text, 1)] == ["wines"]
    assert matcher.matched_words("", 0) == []
