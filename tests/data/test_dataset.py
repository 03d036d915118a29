"""Dataset and what users hand over in its place: rows, ids and labels stay together."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.support.reading import label_sets
from xmtc.core.errors import DataError
from xmtc.data.dataset import Dataset, as_csr, as_dataset, as_labels, labels_from_lists, stacked, text_column
from xmtc.data.label_index import LabelIndex

COUNT = 11


def numbered(ids: bool = True) -> Dataset:
    """Document n says n in its text, its title, its features, its labels and its id."""
    dataset = as_dataset(np.arange(COUNT)[:, None] + 1, [[f"label {n}", "all"] for n in range(COUNT)])
    chunks = [[f"text {n}" for n in part] for part in (range(4), range(4, 5), range(5, COUNT))]
    return Dataset(
        fields={"title": text_column([f"title {n}" for n in range(COUNT)]), "text": pa.chunked_array(chunks)},
        features=dataset.features,
        labels=dataset.labels,
        label_index=dataset.label_index,
        ids=text_column([f"id {n}" for n in range(COUNT)]) if ids else None,
    )


def check_holds(dataset: Dataset, rows: list[int], prefix: str = "id ") -> None:
    assert len(dataset) == len(rows)
    assert dataset.fields["text"].to_pylist() == [f"text {n}" for n in rows]
    assert dataset.text().to_pylist() == [f"title {n}\ntext {n}" for n in rows]
    assert dataset.document_ids() == [f"{prefix}{n}" for n in rows]
    assert dataset.features.toarray().ravel().tolist() == [n + 1 for n in rows]
    assert label_sets(dataset) == [{f"label {n}", "all"} for n in rows]


class TestRows:
    @pytest.mark.parametrize(("ids", "prefix"), [(True, "id "), (False, "")])
    @pytest.mark.parametrize(
        "rows", [[], [0], [10, 0, 5], [3, 3, 3], list(range(COUNT)), np.array([4, 2], dtype=np.uint8)]
    )
    def test_take(self, rows, ids, prefix):
        check_holds(numbered(ids).take(rows), list(rows), prefix)

    @pytest.mark.parametrize(("ids", "prefix"), [(True, "id "), (False, "")])
    def test_takes_and_slices_of_takes_and_slices(self, ids, prefix):
        check_holds(numbered(ids).slice(2, 9).take([6, 0]).slice(0, 1), [8], prefix)

    def test_take_by_mask(self):
        check_holds(numbered().take(np.arange(COUNT) % 2 == 1), [1, 3, 5, 7, 9])

    @pytest.mark.parametrize("rows", [[-1], [COUNT], [0.5], [[0]], [True], ["a"], 3])
    def test_rows_that_are_not_there(self, rows):
        with pytest.raises(DataError) as caught:
            numbered().take(rows)
        assert str(caught.value).isprintable()

    @pytest.mark.parametrize(("ids", "prefix"), [(True, "id "), (False, "")])
    @given(start=st.integers(-2, COUNT + 3), stop=st.integers(-2, COUNT + 3))
    def test_slice(self, ids, prefix, start, stop):
        check_holds(numbered(ids).slice(start, stop), list(range(COUNT))[max(start, 0) : max(stop, 0)], prefix)

    @pytest.mark.parametrize("size", [1, 3, COUNT, 100])
    def test_batches(self, size):
        batches = list(numbered().batches(size))
        for number, batch in enumerate(batches):
            check_holds(batch, list(range(COUNT))[number * size : (number + 1) * size])
        assert sum(map(len, batches)) == COUNT

    def test_batches_of_nothing(self):
        with pytest.raises(DataError, match=r"must be an integer ≥ 1\. Got 0"):
            list(numbered().batches(0))

    def test_without_ids_rows_are_numbered(self):
        assert numbered(ids=False).document_ids() == [str(n) for n in range(COUNT)]


class TestParts:
    def test_nothing(self):
        with pytest.raises(DataError, match="needs text or features"):
            Dataset()
        with pytest.raises(DataError, match="needs text or features"):
            Dataset(ids=text_column(["a"]))

    def test_lengths_that_differ(self):
        with pytest.raises(DataError, match="field 'text' 2, ids 3"):
            Dataset(fields={"text": text_column(["a", "b"])}, ids=text_column(["1", "2", "3"]))
        with pytest.raises(DataError, match="2 documents but 1 label rows"):
            as_dataset(["a", "b"], [["x"]])

    def test_label_names_that_do_not_fit(self):
        with pytest.raises(DataError, match="2 label columns but 1 labels"):
            Dataset(
                fields={"text": text_column(["a"])},
                labels=sp.csr_array(np.ones((1, 2), np.float32)),
                label_index=LabelIndex.from_keys(["x"]),
            )

    def test_columns_without_names_are_numbered(self):
        dataset = as_dataset(["a"], np.ones((1, 3)))
        assert dataset.label_index.keys == dataset.label_index.names == ["0", "1", "2"]

    def test_features_have_no_text(self):
        with pytest.raises(DataError, match="features and no text"):
            as_dataset(np.eye(2)).text()


class Column:
    """As a column of a data frame: iterable, with `tolist`, and not a list."""

    ndim = 1

    def __init__(self, values: list) -> None:
        self.values = values

    def __iter__(self):
        return iter(self.values)

    def tolist(self) -> list:
        return self.values


class TestTexts:
    TEXTS = ("one", "größer 🥔", "")

    @pytest.mark.parametrize(
        "form",
        [
            list,
            tuple,
            iter,
            np.array,
            lambda texts: np.array(texts, dtype=object),
            lambda texts: (text for text in texts),
            lambda texts: Column(list(texts)),
            lambda texts: pa.array(texts),
            lambda texts: pa.chunked_array([texts]),
            lambda texts: pa.chunked_array([pa.array(texts, pa.large_string())]),
            lambda texts: dict.fromkeys(texts).keys(),
        ],
    )
    def test_forms(self, form):
        dataset = as_dataset(form(self.TEXTS))
        assert dataset.text().to_pylist() == list(self.TEXTS)
        assert dataset.text().type == pa.string()
        assert dataset.labels is None

    def test_a_dataset_stays_what_it_is(self):
        dataset = as_dataset(["a"])
        assert as_dataset(dataset) is dataset
        assert label_sets(as_dataset(dataset, [["x"]])) == [{"x"}]

    def test_no_texts(self):
        assert len(as_dataset([])) == 0
        assert as_dataset([], []).labels.shape == (0, 0)

    def test_half_a_surrogate_pair_is_replaced(self):
        assert as_dataset(["a\ud800b", "c"]).text().to_pylist() == ["a?b", "c"]

    @pytest.mark.parametrize(
        ("documents", "words"),
        [
            ("one text", "put it in a list"),
            (b"one text", "put it in a list"),
            (5, "must be a list of strings"),
            (None, "must be a list of strings"),
            ({"text": ["a"]}, "must be a list of strings"),
            (np.array("text"), "must be a list of strings"),
            (["a", None], "document 1 must be a string. Got NoneType"),
            (["a", float("nan")], "document 1 must be a string. Got float"),
            (["a", b"b"], "document 1 must be a string. Got bytes"),
            ([["a"]], "document 0 must be a string. Got list"),
            (np.arange(3), "document 0 must be a string. Got int"),
            (np.ones((1, 2, 3)), "document 0 must be a string. Got list"),
            (pa.chunked_array([[1, 2]]), "document 0 must be a string. Got int"),
            (pa.chunked_array([["a", None]]), "document 1 must be a string. Got NoneType"),
            (np.array([["a", "b"]]), "features must be a 2-d matrix of numbers. Got 2-d <U1"),
            (np.ones((2, 2), dtype=complex), "features must be a 2-d matrix of numbers"),
            (sp.csr_array(np.ones((2, 2), dtype=complex)), "features must be a 2-d matrix of numbers"),
            (sp.coo_array(np.ones(3)), "features must be a 2-d matrix of numbers. Got 1-d"),
            (np.array([[1.0, 2.0], [3.0, np.nan]]), "features of document 1 contain NaN or infinity"),
            (np.array([[1e300, 2.0]]), "features of document 0 contain NaN or infinity"),
            (sp.csr_matrix([[0, 1.0], [0, 0], [np.inf, 0]]), "features of document 2 contain"),
        ],
    )
    def test_refused(self, documents, words):
        with pytest.raises(DataError) as caught:
            as_dataset(documents)
        assert words in str(caught.value)
        assert str(caught.value).isprintable()


class TestMatrices:
    DENSE = np.array([[0, 2.5, 0], [1, 0, -3], [0, 0, 0]], dtype=np.float32)

    @pytest.mark.parametrize(
        "form",
        [
            np.asarray,
            lambda dense: dense.astype(np.float64),
            lambda dense: np.asfortranarray(dense),
            sp.csr_matrix,
            sp.csr_array,
            sp.csc_matrix,
            sp.coo_matrix,
            sp.coo_array,
            sp.lil_matrix,
            sp.dok_matrix,
            lambda dense: sp.csr_array(dense.astype(np.float64)),
        ],
    )
    def test_forms(self, form):
        features = as_dataset(form(self.DENSE)).features
        assert isinstance(features, sp.csr_array)
        assert features.dtype == np.float32
        assert features.has_canonical_format
        np.testing.assert_array_equal(features.toarray(), self.DENSE)

    @pytest.mark.parametrize("kind", [bool, np.int8, np.uint64])
    def test_whole_numbers(self, kind):
        assert as_csr(np.eye(2, dtype=kind), "features").toarray().tolist() == [[1, 0], [0, 1]]

    def test_entries_out_of_order_and_twice(self):
        matrix = sp.csr_array(([1.0, 2.0, 4.0], [2, 0, 2], [0, 3]), shape=(1, 3), dtype=np.float32)
        assert as_csr(matrix, "features").toarray().tolist() == [[2, 0, 5]]
        assert matrix.indices.tolist() == [2, 0, 2]  # the user's matrix is untouched

    def test_sums_beyond_float32(self):
        with pytest.raises(DataError, match="contain NaN or infinity"):
            as_csr(sp.csr_array(([3e38, 3e38], [0, 0], [0, 2]), shape=(1, 1), dtype=np.float32), "features")


class TestLabels:
    LISTS = (("b", "a"), (), ("a", "c", "a"))

    @pytest.mark.parametrize(
        "form",
        [
            list,
            tuple,
            iter,
            lambda lists: ((label for label in row) for row in lists),
            lambda lists: [set(row) for row in lists],
            lambda lists: [np.array(row, dtype=str) for row in lists],
            lambda lists: Column([Column(list(row)) for row in lists]),
            lambda lists: np.array([list(row) for row in lists], dtype=object),
        ],
    )
    def test_lists(self, form):
        dataset = as_dataset(["x", "y", "z"], form(self.LISTS))
        assert dataset.label_index.keys == ["a", "b", "c"]
        assert dataset.labels.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 1]]

    def test_whole_numbers_keep_their_order(self):
        matrix, index = labels_from_lists([[10, 9], [np.int32(9), -1], [2**70]])
        assert index.keys == ["-1", "9", "10", str(2**70)]
        assert matrix.toarray().tolist() == [[0, 1, 1, 0], [1, 1, 0, 0], [0, 0, 0, 1]]

    def test_numbers_among_words_are_words(self):
        _, index = labels_from_lists([[10, "9"], ["b"]])
        assert index.keys == ["10", "9", "b"]

    @pytest.mark.parametrize(
        "form",
        [
            np.asarray,
            sp.csr_matrix,
            sp.coo_array,
            sp.csc_array,
            lambda ones: ones.astype(bool),
            lambda ones: (ones * 3).astype(int),
        ],
    )
    def test_matrices(self, form):
        ones = np.array([[0, 1, 0], [1, 1, 0]])
        dataset = as_dataset(["x", "y"], form(ones))
        assert dataset.labels.toarray().tolist() == ones.tolist()
        assert dataset.label_index.keys == ["0", "1", "2"]

    def test_written_zeros_are_no_labels_and_stay_in_the_users_matrix(self):
        given_matrix = sp.csr_array(([0.0, 1.0, 1.0], [0, 1, 0], [0, 2, 3]), shape=(2, 2), dtype=np.float32)
        before = [array.copy() for array in (given_matrix.data, given_matrix.indices, given_matrix.indptr)]
        matrix, _ = as_labels(given_matrix)
        assert matrix.nnz == 2
        assert matrix.toarray().tolist() == [[0, 1], [1, 0]]
        for array, old in zip((given_matrix.data, given_matrix.indices, given_matrix.indptr), before, strict=True):
            np.testing.assert_array_equal(array, old)

    @pytest.mark.parametrize(
        ("labels", "words"),
        [
            ("x", "labels must be one list per document"),
            (b"x", "labels must be one list per document"),
            (5, "labels must be one list per document"),
            ({"a": ["x"]}, "labels must be one list per document"),
            (["x"], "the labels of document 0 must be a list such as ['a', 'b']. Got str"),
            ([["x"], None], "the labels of document 1 must be a list such as ['a', 'b']. Got NoneType"),
            (np.array(["x"]), "the labels of document 0 must be a list"),
            (np.array([3]), "the labels of document 0 must be a list"),
            ([["x"], ["y", 1.5]], "a label of document 1 must be a string or an integer. Got 1.5"),
            ([[None]], "a label of document 0 must be a string or an integer. Got None"),
            ([[True]], "a label of document 0 must be a string or an integer. Got True"),
            ([[np.ones((30, 30))]], "a label of document 0 must be a string or an integer"),
            ([["x", ""]], "a label of document 0 is empty"),
            ([["a\ud800"]], r"label 'a\ud800' contains an unpaired surrogate"),
            (np.array([[1, -1]]), "must be 0 or 1. Got -1"),
            (np.array([["a", "b"]]), "labels must be a 2-d matrix of numbers"),
            (np.array([[np.nan, 1.0]]), "labels of document 0 contain NaN or infinity"),
        ],
    )
    def test_refused(self, labels, words):
        with pytest.raises(DataError) as caught:
            as_dataset(["text"], labels)
        assert words in str(caught.value)
        assert str(caught.value).isprintable()


class TestLabelIndex:
    def test_unknown_keys_have_no_number(self):
        index = LabelIndex.from_keys(["b", "a"])
        assert index.ids(["a", "x", "b", "a"]).tolist() == [1, -1, 0, 1]
        assert index.ids([]).tolist() == []
        assert LabelIndex.from_keys([]).ids(["a"]).tolist() == [-1]

    def test_take_renumbers(self):
        index = LabelIndex.from_keys(["a", "b", "c"], names=["A", "B", "C"], alternatives=[["x"], [], ["z"]])
        part = index.take([2, 0])
        assert part.keys == ["c", "a"]
        assert part.names == ["C", "A"]
        assert part.table["alternatives"].to_pylist() == [["z"], ["x"]]
        assert part != index
        assert part == LabelIndex.from_keys(["c", "a"], names=["C", "A"], alternatives=[["z"], ["x"]])

    def test_further_columns(self):
        index = LabelIndex.from_keys(["a", "b", "c"], notes=[["n"], [], ["m", "o"]], status=["", "", "candidate"])
        assert index.saved_table().column_names[5:] == ["notes", "status"]  # the others are empty
        assert LabelIndex(index.saved_table()) == index
        assert index.take([2, 0]).table["notes"].to_pylist() == [["m", "o"], ["n"]]
        assert index.take([1]) == LabelIndex.from_keys(["b"])
        assert index.take([1]).saved_table().column_names[5:] == []
        joined = index.take([0, 1]).joined(index)
        assert joined == index
        old = index.table.select(["key", "name", "alternatives", "parents", "description"])
        assert LabelIndex(old) == LabelIndex.from_keys(["a", "b", "c"])
        with pytest.raises(KeyError):
            LabelIndex(old.drop_columns(["name"]))

    def test_a_million_labels_share_their_empty_columns(self):
        index = LabelIndex.numbered(1_000_000)
        starts = {index.table[name].chunk(0).buffers()[1].address for name in LabelIndex.further_columns}
        assert len(starts) == 1

    def test_numbered(self):
        assert LabelIndex.numbered(3) == LabelIndex.from_keys(["0", "1", "2"])
        assert LabelIndex.numbered(2, ["a", "a"]).names == ["a", "a"]

    @pytest.mark.parametrize(
        ("keys", "more", "words"),
        [
            (["a", "b", "a"], {}, "label 'a' occurs twice"),
            (["a", 5], {}, "a label must be a string. Got 5"),
            (["\ud800"], {}, r"label '\ud800' contains an unpaired surrogate"),
            (["a", "b"], {"names": ["A"]}, "2 labels but 1 values for 'name'"),
            (["a"], {"parents": [[], []]}, "1 labels but 2 values for 'parents'"),
            (["a"], {"related": [["b"], []]}, "1 labels but 2 values for 'related'"),
            (["a"], {"types": ["b"]}, "'types' must have one list of strings per label"),
            (["a"], {"schemes": [[None]]}, "'schemes' has missing values. Use an empty list."),
            (["a"], {"status": [None]}, "'status' has missing values. Use an empty string."),
            (["a"], {"notes": [["\ud800"]]}, "'notes' contains an unpaired surrogate"),
        ],
    )
    def test_refused(self, keys, more, words):
        with pytest.raises(DataError) as caught:
            LabelIndex.from_keys(keys, **more)
        assert words in str(caught.value)


def test_a_document_whose_fields_are_all_empty_keeps_its_row() -> None:
    fields = {
        "title": pa.chunked_array([["", "b", "", "d"]]),
        "body": pa.chunked_array([["", ""], ["c", "e"]]),
    }
    dataset = Dataset(fields=fields)
    assert dataset.text().to_pylist() == ["", "b", "c", "d\ne"]
    assert dataset.take([3, 0]).text().to_pylist() == ["d\ne", ""]
    assert dataset.slice(0, 1).text().to_pylist() == [""]


def test_take_across_chunks_keeps_the_order() -> None:
    texts = [f"text {number}" for number in range(100)]
    column = pa.chunked_array([texts[:7], texts[7:7], texts[7:60], texts[60:]], pa.string())
    dataset = Dataset(fields={"text": column}, ids=column)
    rows = np.random.default_rng(0).integers(0, 100, 500)
    taken = dataset.take(rows)
    assert taken.text().to_pylist() == [texts[row] for row in rows] == taken.document_ids()
    assert len(dataset.take([])) == 0


class TestPartialLabels:
    def dataset(self) -> Dataset:
        return as_dataset(
            ["one", "two", "three", "four"],
            [["a"], ["b"], [], ["c"]],
            [["b"], [], ["a", "d"], []],
            [False, True, False, True],
        )

    def test_rows_keep_their_decisions(self) -> None:
        dataset = self.dataset()
        assert dataset.label_index is not None
        assert dataset.label_index.keys == ["a", "b", "c", "d"]
        for part in (dataset.take([2, 0]), stacked([dataset.slice(2, 3), dataset.slice(0, 1)])):
            assert part.rejected is not None
            assert part.rejected.toarray().tolist() == [[1, 0, 0, 1], [0, 1, 0, 0]]
            assert part.partial is not None
            assert part.partial.tolist() == [True, True]
        batches = list(dataset.batches(1))
        assert [batch.partial is None for batch in batches] == [False, True, False, True]
        assert [batch.rejected is None for batch in batches] == [False, True, False, True]
        both = stacked(batches)
        assert both.rejected is not None
        assert dataset.rejected is not None
        assert (both.rejected != dataset.rejected).nnz == 0
        assert both.partial_rows().tolist() == dataset.partial_rows().tolist()

    def test_what_is_known(self) -> None:
        every = np.tile(np.array([0, 1, 2, 3, -1]), (4, 1))
        assert self.dataset().is_known(every).tolist() == [
            [True, True, False, False, True],
            [True] * 5,
            [True, False, False, True, True],
            [True] * 5,
        ]
        assert self.dataset().decided().toarray().tolist() == [[1, 1, 0, 0], [0, 1, 0, 0], [1, 0, 0, 1], [0, 0, 1, 0]]

    def test_complete_documents(self) -> None:
        complete = self.dataset().complete_documents()
        assert complete.text().to_pylist() == ["two", "four"]
        assert complete.partial is None
        assert complete.rejected is None
        whole = as_dataset(["x"], [["a"]])
        assert whole.complete_documents() is whole

    def test_a_label_that_is_only_rejected_is_no_label(self) -> None:
        dataset = self.dataset().without_rejected_only()
        assert dataset.label_index is not None
        assert dataset.label_index.keys == ["a", "b", "c"]
        assert dataset.rejected is not None
        assert dataset.rejected.toarray().tolist() == [[0, 1, 0], [0, 0, 0], [1, 0, 0], [0, 0, 0]]
        never = Dataset(features=sp.csr_array((1, 1)), labels=sp.csr_array((1, 3), dtype=np.float32))
        assert never.without_rejected_only() is never

    def test_defaults(self) -> None:
        assert as_dataset(["x"], [["a"]]).partial is None
        assert as_dataset(["x"], [["a"]], complete=True).partial is None
        assert as_dataset(["x"], [["a"]], complete=False).partial_rows().tolist() == [True]
        assert as_dataset(["x"], [["a"]], [[]]).partial_rows().tolist() == [True]
        given = as_dataset(np.eye(2), np.eye(2), np.eye(2)[::-1])
        assert given.rejected is not None
        assert given.rejected.toarray().tolist() == [[0, 1], [1, 0]]

    @pytest.mark.parametrize(
        ("labels", "rejected", "complete", "message"),
        [
            ([["a"]], [["a"]], None, "a label of document 0 is both accepted and rejected"),
            ([["a"]], [["a"], []], None, "1 lists of labels but 2 of rejected ones"),
            ([["a"]], np.eye(1), None, "'labels' and 'rejected' must have the same form"),
            (np.eye(1), np.ones((1, 2)), None, "'rejected' must have the shape of 'labels'"),
            (None, [["a"]], None, "'rejected' and 'complete' require 'labels'"),
            ([["a"]], None, [True, False], "'complete' must be a boolean, or one boolean for each of the 1 documents"),
            ([["a"]], None, 1, "'complete' must be a boolean"),
        ],
    )
    def test_what_is_wrong(self, labels: object, rejected: object, complete: object, message: str) -> None:
        with pytest.raises(DataError, match=message):
            as_dataset(["x"], labels, rejected, complete)
