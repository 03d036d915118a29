"""The documents that candidate models are compared on: never trained on, in any part, in any disguise."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmtc.core.errors import ConfigError, DataError
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.split_by import SplitBy
from xmtc.presets.search_data import SearchData
from xmtc.presets.validation import Validation, given_validation, plan_validation


def made(count: int = 100, *, values: list[str] | None = None, texts: list[str] | None = None, **how: Any) -> Dataset:
    texts = texts or [f"text {number}" for number in range(count)]
    dataset = as_dataset(texts, [["all", str(number // 10)] for number in range(len(texts))], **how)
    return dataset if values is None else replace(dataset, split_values=pa.chunked_array([values], pa.string()))


def test_folds() -> None:
    found = plan_validation(made(), folds=5, fraction=0.2, seed=0)
    assert (found.kind, found.field, found.since, len(found.parts), found.documents) == ("folds", None, None, 5, 100)
    assert sorted(row for _, held in found.parts for row in held.tolist()) == list(range(100))
    for train, held in found.parts:
        assert sorted([*train, *held]) == list(range(100))
        assert np.bincount(held // 10).tolist() == [2] * 10  # two of the ten documents of each label
    assert found.describe() == "5 folds, stratified for rare labels; documents with equal texts stay together"
    again, other = (plan_validation(made(), folds=5, fraction=0.2, seed=seed) for seed in (0, 1))
    assert all(np.array_equal(one[1], same[1]) for one, same in zip(found.parts, again.parts, strict=True))
    assert not all(np.array_equal(one[1], same[1]) for one, same in zip(found.parts, other.parts, strict=True))


def test_one_part_held_out_at_random() -> None:
    found = plan_validation(made(), folds=1, fraction=0.2, seed=0)
    ((train, held),) = found.parts
    assert (found.kind, found.documents, len(train)) == ("held out", 20, 80)
    assert sorted([*train, *held]) == list(range(100))
    assert set(train // 10) == set(range(10))
    assert found.describe() == (
        "20 documents held out at random; every label keeps a training document, and documents with equal texts stay "
        "together"
    )


@pytest.mark.parametrize("kind", [None, "group"])
def test_folds_with_groups(kind: Any) -> None:
    patients = [f"patient {number % 15}" for number in range(100)]
    by = SplitBy("patient", kind)
    found = plan_validation(made(values=patients), folds=5, fraction=0.2, seed=0, split_by=by)
    assert (found.kind, found.field, found.documents) == ("folds", "patient", 100)
    for train, held in found.parts:
        assert not {patients[row] for row in train} & {patients[row] for row in held}
        assert len(train) + len(held) == 100
        assert 13 <= len(held) <= 27
    assert found.describe() == (
        "5 folds, stratified for rare labels; documents with the same 'patient' or equal texts stay together"
    )


def test_one_part_with_groups() -> None:
    patients = [f"patient {number % 20}" for number in range(100)]
    found = plan_validation(made(values=patients), folds=1, fraction=0.2, seed=0, split_by=SplitBy("patient"))
    ((train, held),) = found.parts
    assert (found.kind, found.field, found.documents, len(train)) == ("by group", "patient", 20, 80)
    assert not {patients[row] for row in train} & {patients[row] for row in held}
    assert found.describe() == (
        "20 documents held out by 'patient'; documents with the same 'patient' or equal texts stay together"
    )


@pytest.mark.parametrize("count", [1, 5])
def test_times_are_always_one_part(count: int) -> None:
    years = [str(2000 + number * 7 % 20) for number in range(100)]
    by = SplitBy("year")
    found = plan_validation(made(values=years), folds=count, fraction=0.15, seed=0, split_by=by)
    ((train, held),) = found.parts
    assert (found.kind, found.field, found.since, found.documents) == ("by time", "year", "2017", 15)
    assert max(years[row] for row in train) < min(years[row] for row in held)
    assert found.describe() == ("the latest 15 documents by 'year', from 2017 on; earlier ones are trained on")
    grouped = plan_validation(made(values=years), folds=count, fraction=0.15, seed=0, split_by=SplitBy("year", "group"))
    assert grouped.kind == ("folds" if count > 1 else "by group")


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["", *"abcdefghijkl"]), st.integers(0, 12), st.booleans()), min_size=20, max_size=60
    ),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([None, "group", "time"]),
)
def test_nothing_leaks(documents: list[tuple[str, int, bool]], count: int, kind: Any) -> None:
    """Texts and groups of a part are not trained on, partial documents included, and those are never validated on."""
    dataset = made(
        values=[str(2000 + number) for _, number, _ in documents],
        texts=[text for text, _, _ in documents],
        complete=[complete for _, _, complete in documents],
    )
    by = None if kind is None else SplitBy("f", kind)
    error = None
    try:
        found = plan_validation(dataset, folds=count, fraction=0.3, seed=0, split_by=by)
    except DataError as refusal:
        error = refusal
    if error is not None:
        assert re.search(r"too few|cannot be split|no document can be held out|complete labels|earliest", str(error))
        return
    everywhere = [row for _, held in found.parts for row in held.tolist()]
    assert len(set(everywhere)) == len(everywhere) == found.documents
    for train, held in found.parts:
        assert len(train)
        assert len(held)
        assert all(documents[row][2] for row in held)
        assert not set(train.tolist()) & set(held.tolist())
        if kind != "time":
            assert not ({documents[row][0] for row in train} & {documents[row][0] for row in held}) - {""}
        if kind == "group":
            assert not {documents[row][1] for row in train} & {documents[row][1] for row in held}
        if kind == "time":
            assert max(documents[row][1] for row in train) < min(documents[row][1] for row in held)
        left_out = set(range(len(documents))) - set(train.tolist()) - set(held.tolist())
        assert not any(documents[row][2] for row in left_out)
    if found.kind == "folds":
        assert len(everywhere) == sum(complete for _, _, complete in documents)


def test_partial_documents_of_their_own_are_always_trained_on() -> None:
    dataset = made(complete=[number % 4 > 0 for number in range(100)])
    found = plan_validation(dataset, folds=5, fraction=0.2, seed=0)
    assert found.documents == 75
    for train, held in found.parts:
        assert len(held) == 15
        assert {*range(0, 100, 4)} <= set(train.tolist())


def test_documents_of_their_own() -> None:
    found = given_validation(made(100), made(30, complete=[number > 4 for number in range(30)]))
    ((train, held),) = found.parts
    assert (found.kind, found.documents) == ("given", 25)
    assert train.tolist() == list(range(100))
    assert held.tolist() == list(range(5, 30))
    assert found.describe() == "25 documents given for validation"
    with pytest.raises(DataError, match="validation requires complete labels, but all 30 documents have unknown ones"):
        given_validation(made(100), made(30, complete=False))


def test_large_numbers_are_easy_to_read() -> None:
    rows = np.arange(12_345)
    assert Validation("given", ((rows, rows),)).describe() == "12,345 documents given for validation"


@pytest.mark.parametrize(
    ("how", "error", "message"),
    [
        ({"folds": 0}, ConfigError, "'folds' must be an integer ≥ 1. Got 0."),
        ({"folds": 200}, DataError, "100 documents are too few for 200 folds. Choose fewer folds."),
        ({"folds": 1, "fraction": 1.0}, ConfigError, "a fraction between 0 and 1, such as 0.1. Got 1."),
        ({"seed": -1}, ConfigError, "'seed' of a split must be an integer ≥ 0. Got -1."),
        (
            {"split_by": SplitBy("year")},
            DataError,
            "the documents were read without 'year'. Read them with split_field=\"year\".",
        ),
    ],
)
def test_wrong_plans(how: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=re.escape(message)):
        plan_validation(made(), **{"folds": 5, "fraction": 0.2, "seed": 0, **how})


def test_documents_with_unknown_labels_only() -> None:
    for count in (1, 5):
        with pytest.raises(DataError, match="complete labels, but all 100 documents have unknown ones"):
            plan_validation(made(complete=False), folds=count, fraction=0.2, seed=0)


@pytest.mark.parametrize("folds", [1, 4])
def test_label_counts_are_in_proportion_to_all_documents(folds: int) -> None:
    """The frequency of a label is the same for out-of-fold predictions and for the final model."""
    documents = made(400)
    data = SearchData(documents, None, plan_validation(documents, folds=folds, fraction=0.25, seed=0))
    assert data.counts.shape == (folds, 41)
    assert documents.label_index is not None
    every = documents.label_index.keys.index("all")
    assert data.counts[:, every].tolist() == [400] * folds
    assert abs(np.delete(data.counts, every, axis=1) - 10).max() <= 3  # 7 or 8 of 10 documents
