"""What grows in an update, against what is built at once or by slow and plain ways."""

from __future__ import annotations

import copy
import itertools
import math
import re
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from tests.support.models import planted_split
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.labels.tree import LabelTree, homes_of
from xmtc.linear.neighbours import InvertedIndex
from xmtc.models.parabel import Parabel
from xmtc.text.feature_selection import CHARACTERS, WORD
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings, Tfidf
from xmtc.text.tokens import Tokens, tokenise

OLD = ["red apple pie", "red apple tree", "apple tree bark", "a red pie", "pie tree"]
NEW = ["green pear pie", "green pear and red apple pie", "the pear tree pie", "green tea"]
WAYS: dict[str, dict[str, object]] = {
    "words": {},
    "pairs": {"word_ngrams": 2},
    "triples": {"word_ngrams": 3, "min_df": 1},
    "characters": {"char_ngrams": (3, 4)},
    "everything": {"word_ngrams": 2, "char_ngrams": (2, 5), "idf": "plain", "sublinear": False},
}


def tokens(texts: list[str]) -> Tokens:
    return tokenise(pa.chunked_array([pa.array(texts, pa.string())]))


def counted(text: str, settings: TextSettings) -> Counter[tuple[int, str]]:
    """How often a text holds each (kind, term)."""
    words = [word for word in re.findall(r"\w+", text.lower()) if len(word) >= settings.min_token_length]
    found: Counter[tuple[int, str]] = Counter()
    for length in range(1, settings.word_ngrams + 1):
        for at in range(len(words) - length + 1):
            found[WORD, " ".join(words[at : at + length])] += 1
    if settings.char_ngrams:
        for word, length in itertools.product(words, range(settings.char_ngrams[0], settings.char_ngrams[1] + 1)):
            for at in range(len(word) + 3 - length):
                found[CHARACTERS, f"<{word}>"[at : at + length]] += 1
    return found


def features(tfidf: Tfidf) -> list[tuple[int, str]]:
    return list(zip(tfidf.kinds.tolist(), tfidf.terms.to_pylist(), strict=True))


def expected_rows(texts: list[str], tfidf: Tfidf) -> NDArray[np.float64]:
    rows = np.zeros((len(texts), len(tfidf)))
    for row, text in enumerate(texts):
        counts = counted(text, tfidf.settings)
        for number, feature in enumerate(features(tfidf)):
            if counts[feature]:
                count = 1 + math.log(counts[feature]) if tfidf.settings.sublinear else counts[feature]
                rows[row, number] = count * tfidf.idf[number]
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.divide(rows, lengths, out=rows, where=lengths > 0)


@pytest.mark.parametrize("way", WAYS)
class TestTfidf:
    def settings(self, way: str) -> TextSettings:
        return TextSettings(**WAYS[way])  # type: ignore[arg-type]

    def test_equals_a_slow_reference(self, way: str) -> None:
        settings = self.settings(way)
        old = Tfidf.fit(tokens(OLD), settings)
        grown = old.grown(tokens(NEW), len(OLD) + len(NEW))
        frequencies: Counter[tuple[int, str]] = Counter()
        for text in NEW:
            frequencies.update(counted(text, settings).keys())
        fresh = {feature for feature, count in frequencies.items() if count >= settings.min_df} - set(features(old))
        assert (WORD, "pear") in fresh
        assert features(grown)[: len(old)] == features(old)
        assert set(features(grown)[len(old) :]) == fresh
        assert len(grown) == len(old) + len(fresh)
        assert (grown.idf[: len(old)] == old.idf).all()
        for feature, idf in zip(features(grown)[len(old) :], grown.idf[len(old) :], strict=True):
            seen, among = frequencies[feature], 1 + len(OLD) + len(NEW)
            # Of the texts before, nothing is known but that the feature was too rare there.
            if settings.idf == "smooth":
                assert idf == pytest.approx(math.log(among / (1 + seen)) + 1, rel=1e-5)
            else:
                assert idf == pytest.approx(math.log(among / seen), rel=1e-5)
        for texts in (OLD, NEW, ["green red pear apple tree tree", "nothing known", ""]):
            np.testing.assert_allclose(grown.transform(tokens(texts)).toarray(), expected_rows(texts, grown), atol=1e-6)

    def test_texts_without_anything_new_are_as_before(self, way: str) -> None:
        old = Tfidf.fit(tokens(OLD), self.settings(way))
        grown = old.grown(tokens(["zuzu xoxo", "xoxo zuzu"]), 7)
        assert len(grown) > len(old)
        before, after = old.transform(tokens(OLD)), grown.transform(tokens(OLD))
        assert (before.indices == after.indices).all()
        assert (before.data == after.data).all()

    def test_nothing_new(self, way: str) -> None:
        old = Tfidf.fit(tokens(OLD), self.settings(way))
        assert old.grown(tokens(OLD), 10) is old
        assert old.grown(tokens([]), 5) is old

    def test_again_and_through_a_folder(self, way: str) -> None:
        """Growing twice finds the n-grams of both times; what is kept answers as what was grown."""
        settings = self.settings(way)
        grown = Tfidf.fit(tokens(OLD), settings).grown(tokens(NEW), 9)
        more = ["green quince jam", "green quince pie"]
        twice = grown.grown(tokens(more), 11)
        arrays, table = twice.state()
        loaded = Tfidf.from_state(settings, table, SavedState(State(arrays=arrays)))
        for texts in (OLD, NEW, more):
            found = twice.transform(tokens(texts))
            np.testing.assert_allclose(found.toarray(), expected_rows(texts, twice), atol=1e-6)
            assert (loaded.transform(tokens(texts)) != found).nnz == 0
        evidence = loaded.evidence(more[0], dict.fromkeys(range(len(loaded)), 1.0))
        assert sum(item.weight for item in evidence) == pytest.approx(
            loaded.transform(tokens(more[:1])).sum(), rel=1e-5
        )


def test_document_features_grow_or_stay() -> None:
    text, rows = DocumentFeatures.fit(as_dataset(OLD), TextSettings(), Runtime())
    grown, found = text.grown(as_dataset(NEW), 9, Runtime())
    assert found.shape == (4, grown.width)
    assert grown.width > text.width == rows.shape[1]
    same, nothing = text.grown(as_dataset([]), 5, Runtime())
    assert same is text
    assert nothing.shape == (0, text.width)
    matrix, _ = DocumentFeatures.fit(as_dataset(np.eye(3)), TextSettings(), Runtime())
    assert matrix.grown(as_dataset(np.eye(2, 3)), 5, Runtime())[0] is matrix


@pytest.mark.parametrize(("first", "second", "width"), [(50, 30, 40), (50, 30, 70), (1, 200, 41), (60, 0, 40)])
def test_an_index_that_grew_equals_one_built_at_once(first: int, second: int, width: int) -> None:
    chance = np.random.default_rng(first + width)
    old = sp.csr_array(sp.random_array((first, 40), density=0.2, rng=chance, format="csr"), dtype=np.float32)
    new = sp.csr_array(sp.random_array((second, width), density=0.2, rng=chance, format="csr"), dtype=np.float32)
    wide = sp.csr_array((old.data, old.indices, old.indptr), shape=(first, width))
    whole = InvertedIndex.build(sp.csr_array(sp.vstack([wide, new])))
    kept = InvertedIndex.build(old)
    before = [array.copy() for array in kept[:3]]
    grown = kept.grown(new)
    for ours, theirs in zip(grown, whole, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    for array, copied in zip(kept[:3], before, strict=True):
        np.testing.assert_array_equal(array, copied)
    queries = sp.csr_array(sp.random_array((20, width), density=0.3, rng=chance, format="csr"), dtype=np.float32)
    for ours, theirs in zip(grown.nearest(queries, 7), whole.nearest(queries, 7), strict=True):
        np.testing.assert_array_equal(ours, theirs)


# ---- label trees


def random_tree(chance: np.random.Generator, labels: int) -> LabelTree:
    starts, count = [], 1
    while True:
        if len(starts) == 3 or (starts and chance.random() < 0.3):  # the labels
            cuts = np.sort(chance.choice(np.arange(1, labels), count - 1, replace=False))
            return LabelTree(chance.permutation(labels), (*starts, np.concatenate([[0], cuts, [labels]])))
        sizes = chance.integers(1, 4, count)
        starts.append(np.concatenate([[0], np.cumsum(sizes)]))
        count = int(sizes.sum())


def nested(tree: LabelTree, level: int = 0, node: int = 0) -> list[object]:
    """The tree as lists in lists, labels innermost; siblings in their order."""
    children = range(int(tree.starts[level][node]), int(tree.starts[level][node + 1]))
    if level + 1 == tree.depth:
        return [int(tree.order[place]) for place in children]
    return [nested(tree, level + 1, child) for child in children]


def revised_slowly(lists: list[object], numbers: dict[int, int], joining: dict[int, list[int]]) -> list[object]:
    """Labels renumbered, those that go taken out, new ones put at the ends of leaves, which are counted from 0."""
    leaf = itertools.count()

    def walk(node: list[object]) -> list[object]:
        if node and isinstance(node[0], int):
            return [numbers[label] for label in node if label in numbers] + joining.get(next(leaf), [])  # type: ignore[index]
        return [child for child in (walk(child) for child in node) if child]  # type: ignore[arg-type]

    return walk(lists)


@pytest.mark.parametrize("seed", range(25))
def test_a_revised_tree_equals_a_slow_reference(seed: int) -> None:
    chance = np.random.default_rng(seed)
    labels = int(chance.integers(30, 60))
    tree = random_tree(chance, labels)
    kept = np.sort(chance.permutation(labels)[: int(chance.integers(1, labels + 1))])
    homes = chance.integers(0, tree.nodes(tree.depth - 1), int(chance.integers(0, 12)))
    revision = tree.revised(kept, homes)
    revision.tree.check()
    numbers = {int(label): number for number, label in enumerate(kept)}
    joining: dict[int, list[int]] = {}
    for number, leaf in enumerate(homes.tolist()):
        joining.setdefault(leaf, []).append(len(kept) + number)
    assert nested(revision.tree) == revised_slowly(nested(tree), numbers, joining)
    assert len(revision.tree) == len(kept) + len(homes)
    for level in range(tree.depth):  # a node is the one below which its labels were
        was, now = tree.node_of(level), revision.tree.node_of(level)
        assert (revision.nodes[level][now[: len(kept)]] == was[kept]).all()
        if level == tree.depth - 1:
            assert (revision.nodes[level][now[len(kept) :]] == homes).all()
    for place, label in zip(revision.places, revision.tree.order, strict=True):
        assert (place < 0) == (label >= len(kept))
        assert place < 0 or tree.order[place] == kept[label]


def test_a_tree_that_stays_is_the_same() -> None:
    tree = random_tree(np.random.default_rng(3), 40)
    revision = tree.revised(np.arange(40), np.empty(0, dtype=np.int64))
    assert nested(revision.tree) == nested(tree)
    assert [nodes.tolist() for nodes in revision.nodes] == [list(range(tree.nodes(i))) for i in range(tree.depth)]


class TestHomes:
    TREE = LabelTree(np.arange(6), (np.array([0, 3]), np.array([0, 2, 4, 6])))  # room for three more in each leaf

    def test_where_the_nearest_lie(self) -> None:
        near = np.array([[0.3, 0.3, 0.4, 0, 0, 0], [0, 0, 0, 0.2, 0.1, 0.2], [0, 0, 1, 0, 0, 0]])
        assert homes_of(self.TREE, sp.csr_array(near)).tolist() == [0, 2, 1]

    def test_full_leaves_pass_on(self) -> None:
        near = np.zeros((12, 6))
        near[:, 0], near[:, 5] = 0.7, 0.3
        homes = homes_of(self.TREE, sp.csr_array(near))
        assert homes[:6].tolist() == [0, 0, 0, 2, 2, 2]
        assert homes[6:9].tolist() == [1, 1, 1]  # room is all that is left to go by
        assert sorted(homes[9:].tolist()) == [0, 1, 2]  # and then they share the rest

    def test_nothing_is_known(self) -> None:
        uneven = LabelTree(np.arange(6), (np.array([0, 3]), np.array([0, 4, 5, 6])))
        homes = homes_of(uneven, sp.csr_array((5, 6), dtype=np.float32))
        assert np.bincount(homes, minlength=3).tolist() == [0, 3, 2]
        assert homes_of(uneven, sp.csr_array((0, 6), dtype=np.float32)).tolist() == []


def test_planted_new_labels_join_the_leaf_of_their_neighbour() -> None:
    """Labels of one cluster occur together: a new one goes where the others of its cluster are."""
    train, test, _ = planted_split(900, 300, labels=40, seed=5)
    model = Parabel(trees=1, leaf_size=10).fit(train)
    assert test.labels is not None
    (tree, _) = model._forest._trees[0]
    home = tree.node_of(tree.depth - 1)
    hits = 0
    for beside in np.argsort(-model.label_counts)[:4].tolist():
        key = model.labels.key(beside)
        rows = [row for row in range(len(test)) if beside in test.labels[[row]].indices]
        again = copy.copy(model)
        again.update([test.text()[row].as_py() for row in rows], [[key, "new"]] * len(rows))
        (grown, _) = again._forest._trees[0]
        hits += grown.node_of(tree.depth - 1)[-1] == home[beside]
    assert hits == 4
