"""Splits: a partition of the right sizes that keeps every label in training, and equal texts on one side."""

from __future__ import annotations

import re
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xmtc.core.errors import ConfigError, DataError
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.splitting import split

Documents = list[tuple[str, list[int]]]

DOCUMENTS = st.lists(
    st.tuples(
        st.sampled_from(["", *(f"text {number}" for number in range(30))]), st.lists(st.integers(0, 12), max_size=3)
    ),
    min_size=10,
    max_size=60,
)


def made(documents: Documents) -> Dataset:
    return as_dataset([text for text, _ in documents], [[str(key) for key in keys] for _, keys in documents])


def check_parts(documents: Documents, parts: dict[str, Any], wanted: dict[str, int], together: bool) -> None:
    """Everything that is promised of a split, seen document by document."""
    rows = [row for part in parts.values() for row in part.tolist()]
    assert sorted(rows) == list(range(len(documents)))
    for part in parts.values():
        assert part.tolist() == sorted(part.tolist())
    trained = {key for row in parts["train"].tolist() for key in documents[row][1]}
    assert trained == {key for _, keys in documents for key in keys}
    where = {row: name for name, part in parts.items() for row in part.tolist()}
    groups: dict[object, list[int]] = {}
    for row, (text, _) in enumerate(documents):
        groups.setdefault(text if together and text else row, []).append(row)
    for group in groups.values():
        assert len({where[row] for row in group}) == 1
    for name, size in wanted.items():
        assert len(parts[name]) <= size
        if len(parts[name]) < size:  # then nothing that is left in training could be spared
            for group in groups.values():
                rest = set(parts["train"].tolist()) - set(group)
                left = {key for row in rest for key in documents[row][1]}
                spare = where[group[0]] == "train" and left == trained and len(group) <= size - len(parts[name])
                assert not spare, f"{name} could have taken {group}"


@settings(deadline=None, max_examples=150)
@given(
    DOCUMENTS, st.sampled_from([0.1, 0.25, 0.5]), st.sampled_from([0.0, 0.1, 0.3]), st.integers(0, 99), st.booleans()
)
def test_promises(documents: Documents, test: float, valid: float, seed: int, together: bool) -> None:
    dataset, n = made(documents), len(documents)
    wanted = {"test": round(test * n), **({"valid": round(valid * n)} if valid else {})}
    parts, refusal = {"train": np.arange(n), "test": np.arange(0), "valid": np.arange(0)}, ""
    try:
        parts = split(dataset, test, valid, seed, together=together)
    except DataError as error:
        refusal = str(error)
    if refusal:  # then a part has to stay empty
        assert refusal.startswith("no document can be held out for ")
        if "'valid'" in refusal:
            parts |= split(dataset, test, seed=seed, together=together)
        check_parts(documents, parts, wanted, together)
        return
    assert list(parts) == ["train", *(["valid"] if valid else []), "test"]
    check_parts(documents, parts, wanted, together)
    again = split(dataset, test, valid, seed, together=together)
    assert all(np.array_equal(parts[name], again[name]) for name in parts)


def test_sizes_are_exact_where_labels_allow_it() -> None:
    dataset = as_dataset([f"text {number}" for number in range(1003)], [[str(number % 7)] for number in range(1003)])
    sizes = {name: len(rows) for name, rows in split(dataset, 0.2, 0.1).items()}
    assert sizes == {"train": 702, "valid": 100, "test": 201}


def test_rare_labels_stay_in_train() -> None:
    labels = [["common", f"rare {number}"] if number % 2 else ["common"] for number in range(200)]
    parts = split(as_dataset([f"text {number}" for number in range(200)], labels), 0.4)
    assert len(parts["test"]) == 80
    assert not (parts["test"] % 2).any()


def test_a_label_with_two_documents_keeps_one() -> None:
    labels = [[f"pair {number // 2}"] for number in range(100)]
    parts = split(as_dataset([f"text {number}" for number in range(100)], labels), 0.9)
    assert len(parts["test"]) == 50  # not 90: one of each pair stays
    assert len(set((parts["train"] // 2).tolist())) == 50


def test_documents_without_labels_are_spread_like_others() -> None:
    labels = [["a"] if number % 2 else [] for number in range(4000)]
    held = split(as_dataset([f"text {number}" for number in range(4000)], labels), 0.25)["test"]
    assert len(held) == 1000
    assert 430 < (held % 2 == 0).sum() < 570


def test_seeds_differ_and_are_the_same_on_every_machine() -> None:
    dataset = as_dataset([f"text {number}" for number in range(20)], [["a"]] * 20)
    assert split(dataset, 0.3, seed=0)["test"].tolist() == [1, 2, 3, 11, 13, 15]
    assert split(dataset, 0.3, seed=1)["test"].tolist() != split(dataset, 0.3, seed=0)["test"].tolist()


def test_every_document_is_held_out_about_equally_often() -> None:
    dataset = as_dataset([f"text {number}" for number in range(50)], [["a"]] * 50)
    times = np.zeros(50)
    for seed in range(400):
        times[split(dataset, 0.2, seed=seed)["test"]] += 1
    assert 45 < times.min() <= times.max() < 120  # 80 expected, deviation 8


def test_together_changes_nothing_without_equal_texts() -> None:
    dataset = as_dataset([f"text {number}" for number in range(60)], [[str(number % 9)] for number in range(60)])
    one, other = split(dataset, 0.3, 0.1), split(dataset, 0.3, 0.1, together=False)
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_equal_texts_and_rows_stay_together() -> None:
    texts = [f"text {number // 4}" for number in range(400)]
    for dataset in (
        as_dataset(texts, [["a"]] * 400),
        as_dataset(np.repeat(np.eye(100, dtype=np.float32), 4, axis=0), [["a"]] * 400),
    ):
        parts = split(dataset, 0.2)
        assert len(parts["test"]) == 80
        assert not set((parts["test"] // 4).tolist()) & set((parts["train"] // 4).tolist())
        apart = split(dataset, 0.2, together=False)
        assert set((apart["test"] // 4).tolist()) & set((apart["train"] // 4).tolist())


def test_equal_texts_count_as_often_as_they_are_there() -> None:
    """Each label has four documents and two texts: one of the texts stays."""
    texts, labels = [f"text {number // 2}" for number in range(200)], [[f"{number // 4}"] for number in range(200)]
    parts = split(as_dataset(texts, labels), 0.9)
    assert len(parts["test"]) == 100
    assert set((parts["train"] // 4).tolist()) == set(range(50))


def test_empty_texts_go_their_own_ways() -> None:
    parts = split(as_dataset(["", "  "] * 50, [["a"]] * 100), 0.3)
    assert len(parts["test"]) == 30


def test_without_labels_or_text() -> None:
    assert len(split(as_dataset([f"text {number}" for number in range(10)]), 0.2)["test"]) == 2
    assert len(split(Dataset(labels=sp.csr_array(np.ones((10, 2), dtype=np.float32))), 0.2)["test"]) == 2


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((0.0,), "'test' of a split must be a fraction between 0 and 1, such as 0.1. Got 0."),
        ((1.0,), "'test' of a split"),
        ((float("nan"),), "'test' of a split"),
        ((-0.1,), "'test' of a split"),
        ((0.1, 1.0), "'valid' of a split"),
        ((0.1, -0.1), "'valid' of a split"),
        ((0.5, 0.5), "must be less than 1"),
        ((0.1, 0.1, -1), "'seed' of a split must be an integer ≥ 0. Got -1."),
        ((0.1, 0.1, 1.5), "'seed' of a split"),
    ],
)
def test_wrong_shares(shares: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        split(as_dataset([f"text {number}" for number in range(100)], [["a"]] * 100), *shares)


def test_too_few_documents() -> None:
    three = as_dataset(["a", "b", "c"], [["x"]] * 3)
    with pytest.raises(DataError, match=r"3 documents are too few: a fraction of 0\.1 leaves none for 'test'"):
        split(three, 0.1)
    with pytest.raises(DataError, match="none for 'valid'"):
        split(three, 0.4, 0.1)
    with pytest.raises(DataError, match="none is left for training"):
        split(as_dataset(["a"], [["x"]]), 0.9)
    with pytest.raises(DataError, match="no document can be held out for 'test'"):
        split(as_dataset(["a", "b", "c"], [["x"], ["y"], ["z"]]), 0.4)


def test_many_documents_are_split_in_seconds() -> None:
    generator = np.random.default_rng(0)
    n, width = 200_000, 100_000
    numbers = np.minimum((width ** generator.random(5 * n)).astype(np.int64), width - 1)
    labels = sp.csr_array((np.ones(5 * n, dtype=np.float32), numbers, np.arange(0, 5 * n + 1, 5)), shape=(n, width))
    labels.sum_duplicates()
    texts = pa.chunked_array([pa.array(np.arange(n)).cast(pa.string())])
    started = time.process_time()
    parts = split(Dataset({"text": texts}, labels=labels), 0.1, 0.1)
    assert time.process_time() - started < 5  # 0.6 s on a quiet machine
    assert [len(rows) for rows in parts.values()] == [160_000, 20_000, 20_000]
    kept = np.bincount(labels[parts["train"]].indices, minlength=width) > 0
    assert (kept == (np.bincount(labels.indices, minlength=width) > 0)).all()
