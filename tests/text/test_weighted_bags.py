"""Bags of weighed features: which are read, under which numbers and weights, and what becomes of the rest."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import DataError, UnsupportedError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.text.sequences import FIRST_WORD, UNKNOWN
from xmtc.text.tfidf import TextSettings
from xmtc.text.weighted_bags import BagReader, Bags

RUNTIME = Runtime(threads=1)
TEXTS = ["cat cat sat", "dog sat", "", "…", "cat ran far", "zebra"]
MATRIX = np.array(
    [[3.0, 0.0, 4.0, 0.0], [0.0, 0.0, 0.0, 0.0], [0.0, -2.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]], dtype=np.float32
)


def fitted(documents: Any = TEXTS, weighing: Any = "given", most: int = 1000, **text: Any) -> tuple[BagReader, Bags]:
    settings = TextSettings(**{"min_df": 1, **text})
    return BagReader.fit(as_dataset(documents), settings, weighing, most, RUNTIME)


def rows_of(bags: Bags) -> list[dict[int, float]]:
    """Number → weight of each document."""
    pairs = zip(np.split(bags.ids, bags.indptr[1:-1]), np.split(bags.weights, bags.indptr[1:-1]), strict=True)
    return [dict(zip(ids.tolist(), weights.tolist(), strict=True)) for ids, weights in pairs]


def equal(left: Bags, right: Bags) -> bool:
    same = all(np.array_equal(ours, theirs) for ours, theirs in zip(left, right, strict=True))
    return same and [part.dtype for part in left] == [part.dtype for part in right]


class TestText:
    def test_words_have_numbers_and_their_tfidf(self) -> None:
        reader, bags = fitted()
        number = {word: place + FIRST_WORD for place, word in enumerate(reader.words)}
        assert sorted(number) == ["cat", "dog", "far", "ran", "sat", "zebra"]
        assert reader.size == 6 + FIRST_WORD
        often, seldom = 1 + math.log(7 / 3), 1 + math.log(7 / 2)  # in two texts of six, and in one
        cat, sat = often * (1 + math.log(2)), often
        found = rows_of(bags)
        length = math.hypot(cat, sat)
        assert found[0] == pytest.approx({number["cat"]: cat / length, number["sat"]: sat / length})
        assert found[1] == pytest.approx(
            {number["sat"]: often / math.hypot(often, seldom), number["dog"]: seldom / math.hypot(often, seldom)}
        )
        assert found[5] == {number["zebra"]: 1.0}
        assert (bags.indptr.dtype, bags.ids.dtype, bags.weights.dtype) == (np.int64, np.int32, np.float32)

    def test_a_text_without_a_word_has_an_unknown_one_of_no_weight(self) -> None:
        reader, bags = fitted()
        assert rows_of(bags)[2:4] == [{UNKNOWN: 0.0}, {UNKNOWN: 0.0}]
        for texts in (["", "cat"], ["cat", ""], ["", ""], ["never seen", "cat", "", ""]):
            found = rows_of(reader.encode(as_dataset(texts), RUNTIME))
            assert [row == {UNKNOWN: 0.0} for row in found] == [text != "cat" for text in texts]

    def test_training_texts_are_read_alike_again(self) -> None:
        for settings in ({}, {"most": 1}, {"word_ngrams": 2, "char_ngrams": (3, 4)}, {"min_df": 2}):
            reader, bags = fitted(**settings)
            assert equal(reader.encode(as_dataset(TEXTS), RUNTIME), bags)

    def test_columns_are_weighed_only_in_matrices(self) -> None:
        assert equal(fitted(weighing="idf")[1], fitted()[1])

    def test_words_and_parts_of_words(self) -> None:
        reader, _ = fitted(["new york", "new york"], word_ngrams=2, char_ngrams=(3, 3))
        named = [word for word in reader.words if word]
        assert sorted(named) == ["new", "new york", "york"]
        assert len(reader.words) == reader.size - FIRST_WORD > len(named)

    def test_no_texts(self) -> None:
        nothing = Dataset(fields=as_dataset(["x"]).take(np.empty(0, dtype=np.int64)).fields)
        bags = fitted()[0].encode(nothing, RUNTIME)
        assert (bags.indptr.tolist(), bags.ids.tolist(), bags.weights.tolist()) == ([0], [], [])


class TestMatrix:
    def test_columns_have_numbers_and_rows_unit_length(self) -> None:
        reader, bags = fitted(MATRIX)
        assert reader.size == 4 + FIRST_WORD
        assert reader.words == []
        found = rows_of(bags)
        assert found[0] == pytest.approx({2: 0.6, 4: 0.8})
        assert found[1] == {UNKNOWN: 0.0}
        assert found[2] == {3: -1.0}
        assert found[3] == pytest.approx({2: 0.5, 3: 0.5, 4: 0.5, 5: 0.5})

    def test_idf_of_columns(self) -> None:
        reader, bags = fitted(MATRIX, "idf")
        idf = [1 + math.log(5 / (1 + held)) for held in (2, 2, 2, 1)]
        assert reader.columns == pytest.approx(np.array(idf))
        assert rows_of(bags)[0] == pytest.approx({2: 0.6, 4: 0.8})  # both columns are as frequent
        length = math.sqrt(sum(weight * weight for weight in idf))
        assert rows_of(bags)[3] == pytest.approx({FIRST_WORD + place: idf[place] / length for place in range(4)})
        assert rows_of(bags)[2] == pytest.approx({3: -1.0})

    @pytest.mark.parametrize("weighing", ["given", "idf"])
    def test_rows_of_any_length_and_form_are_read_alike(self, weighing: str) -> None:
        reader, bags = fitted(MATRIX, weighing)
        longer = reader.encode(as_dataset(sp.csr_array(7 * MATRIX)), RUNTIME)
        assert rows_of(longer)[1] == {UNKNOWN: 0.0}
        assert np.array_equal(longer.ids, bags.ids)
        assert np.allclose(longer.weights, bags.weights, atol=1e-7)
        assert equal(reader.encode(as_dataset(MATRIX), RUNTIME), bags)
        assert reader.encode(as_dataset(MATRIX[:0]), RUNTIME).indptr.tolist() == [0]

    def test_zeros_that_are_written_are_none(self) -> None:
        """A sparse matrix may hold zeros; its columns are as frequent as those of the dense one."""
        values = np.array([3, 0, 4, -2, 1, 1, 1, 1], dtype=np.float32)
        held = sp.csr_array((values, [0, 1, 2, 1, 0, 1, 2, 3], [0, 3, 3, 4, 8]))
        for weighing in ("given", "idf"):
            (reader, found), (expected, plain) = fitted(held, weighing), fitted(MATRIX, weighing)
            assert weighing == "given" or reader.columns == pytest.approx(expected.columns)
            assert equal(found, plain)
            assert equal(expected.encode(as_dataset(held), RUNTIME), plain)
        assert held.nnz == 8  # the user's matrix stays as it is


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_the_heaviest_features_are_kept(most: int) -> None:
    random = np.random.default_rng(most)
    matrix = random.normal(size=(30, 9)) * (random.random((30, 9)) < 0.5)
    matrix[0], matrix[1] = 1.0, 0.0  # all weigh the same: the first ones are kept
    whole, cut = rows_of(fitted(matrix)[1]), rows_of(fitted(matrix, most=most)[1])
    assert cut[0] == pytest.approx({FIRST_WORD + place: 1 / 3 for place in range(most)})
    for before, after in zip(whole, cut, strict=True):
        heaviest = sorted(before.items(), key=lambda pair: (-abs(pair[1]), pair[0]))[:most]
        assert after == dict(heaviest)  # as heavy as before, though others are gone
        assert list(after) == sorted(after)


class TestTake:
    def test_rows_in_the_order_asked_for(self) -> None:
        for bags in (fitted()[1], fitted(MATRIX)[1]):
            count = len(bags.indptr) - 1
            for rows in ([count - 1, 0], [2, 2, 1], list(range(count)), []):
                part = bags.take(np.array(rows, dtype=np.int64))
                assert len(part.indptr) == len(rows) + 1
                assert rows_of(part) == ([rows_of(bags)[row] for row in rows] if rows else [{}])
                assert [each.dtype for each in part] == [each.dtype for each in bags]


class TestState:
    @pytest.mark.parametrize(
        ("documents", "weighing"), [(TEXTS, "given"), (MATRIX, "given"), (MATRIX, "idf")], ids=["text", "matrix", "idf"]
    )
    def test_there_and_back(self, documents: Any, weighing: str) -> None:
        reader, bags = fitted(documents, weighing, most=2)
        state = reader.state()
        others = {**state.arrays, "0.table": np.zeros((9, 2), np.float32)}  # a model's weights lie beside
        back = BagReader.from_state(TextSettings(min_df=1), 2, SavedState(State(state.values, others, state.tables)))
        assert back.size == reader.size
        assert back.words == reader.words
        assert equal(back.encode(as_dataset(documents), RUNTIME), bags)
        again = back.state()
        assert again.values == state.values
        assert again.arrays.keys() == state.arrays.keys()

    @pytest.mark.parametrize("columns", [np.ones(3, np.float32), np.ones((4, 1), np.float32), np.float32(1.0)])
    def test_weights_of_other_columns_are_refused(self, columns: Any) -> None:
        state = fitted(MATRIX, "idf")[0].state()
        state.arrays["columns"] = np.asarray(columns)
        with pytest.raises(ValueError, match="columns"):
            BagReader.from_state(TextSettings(), 9, SavedState(state))


def test_the_other_kind_of_document_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="trained on text"):
        fitted()[0].encode(as_dataset(MATRIX), RUNTIME)
    with pytest.raises(UnsupportedError, match="trained on a feature matrix"):
        fitted(MATRIX)[0].encode(as_dataset(TEXTS), RUNTIME)
    with pytest.raises(DataError, match="the model has 4 features"):
        fitted(MATRIX)[0].encode(as_dataset(MATRIX[:, :3]), RUNTIME)
    with pytest.raises(DataError, match=r"lower text\.min_df"):
        fitted(["…", ""])
