"""Splits that keep every label in training, folds that spread every label; equal texts stay together in both."""

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
from xmtc.data.splitting import document_groups, folds, split

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


@settings(max_examples=150)
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


# ---- folds


def in_folds(labels: Any, fold_of: Any, count: int) -> Any:
    """(count, L) documents of each label in each fold."""
    table = np.zeros((count, labels.shape[1]), dtype=int)
    np.add.at(table, (np.repeat(fold_of, np.diff(labels.indptr)), labels.indices), 1)
    return table


@settings(max_examples=150)
@given(DOCUMENTS, st.integers(2, 7), st.integers(0, 99), st.booleans(), st.none() | st.integers(2, 9))
def test_promises_of_folds(documents: Documents, count: int, seed: int, together: bool, patients: int | None) -> None:
    dataset = made(documents)
    groups = None if patients is None else np.arange(len(documents)) % patients
    error = None
    try:
        fold_of = folds(dataset, count, seed, together=together, groups=groups)
    except DataError as refusal:
        error = refusal
    if error is not None:
        texts = {text if together and text else str(row) for row, (text, _) in enumerate(documents)}
        assert "too few for" in str(error)
        assert patients is not None or len(texts) < count
        return
    assert sorted(set(fold_of.tolist())) == list(range(count))
    assert np.array_equal(fold_of, folds(dataset, count, seed, together=together, groups=groups))
    for row, (text, _) in enumerate(documents):
        for other in range(row):
            if (together and text and text == documents[other][0]) or (
                groups is not None and groups[row] == groups[other]
            ):
                assert fold_of[row] == fold_of[other]
    sizes = np.bincount(fold_of)
    if groups is None and not together:
        assert sizes.max() - sizes.min() <= 1
    assert groups is not None or sizes.max() - sizes.min() <= 1 + max(
        sum(text == other for other, _ in documents) for text, _ in documents
    )


def test_a_label_is_in_as_many_folds_as_it_has_documents() -> None:
    """Labels with 1, 2, 3 … 12 documents each, one per document, in random order."""
    wanted = [label for label in range(300) for _ in range(label % 12 + 1)]
    order = np.random.default_rng(0).permutation(len(wanted))
    dataset = as_dataset([f"text {number}" for number in order], [[f"{wanted[number]:03}"] for number in order])
    assert dataset.labels is not None
    for count in (2, 5, 10):
        table = in_folds(dataset.labels, folds(dataset, count), count)
        assert ((table > 0).sum(axis=0) == np.minimum(table.sum(axis=0), count)).all()
        assert (table.max(axis=0) - table.min(axis=0) <= 1).all()
        assert np.ptp(table.sum(axis=1)) <= 1


def test_documents_with_several_labels_are_spread_by_the_rarest() -> None:
    """Pairs of documents share a rare label; all have one of three frequent labels."""
    labels = [[f"pair {number // 2}", "abc"[number % 3]] for number in range(600)]
    dataset = as_dataset([f"text {number}" for number in range(600)], labels)
    fold_of = folds(dataset, 5)
    assert (fold_of[::2] != fold_of[1::2]).all()
    assert dataset.labels is not None
    table = in_folds(dataset.labels, fold_of, 5)[:, :3]
    assert dataset.label_index is not None
    assert dataset.label_index.keys[:3] == ["a", "b", "c"]
    assert (abs(table - 40) <= 2).all()  # 200 / 5


def test_documents_without_labels_even_out_the_folds() -> None:
    labels = [["a"]] * 7 + [[]] * 96
    sizes = np.bincount(folds(as_dataset([f"text {number}" for number in range(103)], labels), 5))
    assert sorted(sizes.tolist()) == [20, 20, 21, 21, 21]


def test_folds_differ_with_the_seed_and_are_the_same_on_every_machine() -> None:
    dataset = as_dataset([f"text {number}" for number in range(12)], [[str(number % 5)] for number in range(12)])
    assert folds(dataset, 3).tolist() == [0, 1, 2, 0, 1, 2, 2, 0, 1, 2, 1, 0]
    assert folds(dataset, 3, seed=1).tolist() != folds(dataset, 3).tolist()


def test_folds_without_labels_or_text() -> None:
    texts = as_dataset([f"text {number}" for number in range(10)])
    assert np.bincount(folds(texts, 5)).tolist() == [2] * 5
    labels = Dataset(labels=sp.csr_array(np.ones((10, 2), dtype=np.float32)))
    assert np.bincount(folds(labels, 5)).tolist() == [2] * 5
    features = as_dataset(np.repeat(np.eye(6), 2, axis=0), [["a"]] * 12)
    fold_of = folds(features, 3)
    assert (fold_of[::2] == fold_of[1::2]).all()
    assert np.bincount(fold_of).tolist() == [4] * 3


def test_equal_features_with_different_labels_are_different_documents() -> None:
    dataset = as_dataset(np.ones((6, 2)), [["a"], ["a"], ["b"], ["a", "b"], ["a", "b"], ["c"]])
    assert document_groups(dataset).tolist() == [0, 0, 1, 2, 2, 3]
    texts = as_dataset(["same"] * 3, [["a"], ["b"], ["a"]])
    assert document_groups(texts).tolist() == [0, 0, 0]


def test_groups_of_different_sizes_make_even_folds() -> None:
    generator = np.random.default_rng(0)
    patients = (100 * generator.random(2000) ** 2).astype(int)
    labels = [[str(label)] for label in generator.integers(0, 40, 2000)]
    dataset = as_dataset([f"text {number}" for number in range(2000)], labels)
    fold_of = folds(dataset, 5, groups=[f"patient {patient}" for patient in patients])
    assert [len(set(fold_of[patients == patient])) for patient in set(patients)] == [1] * len(set(patients))
    assert np.ptp(np.bincount(fold_of)) <= 20


def test_groups_that_share_a_text_are_merged() -> None:
    texts = [f"text {number}" for number in range(30)]
    texts[29] = texts[0]
    dataset = as_dataset(texts, [["a"]] * 30)
    fold_of = folds(dataset, 3, groups=np.arange(30) // 3)
    assert len(set(fold_of[[0, 1, 2, 27, 28, 29]])) == 1
    apart = [folds(dataset, 3, seed, together=False, groups=np.arange(30) // 3) for seed in range(20)]
    assert any(one[0] != one[29] for one in apart)


@pytest.mark.parametrize("count", [1, 0, True, 2.0, "5"])
def test_wrong_number_of_folds(count: Any) -> None:
    with pytest.raises(ConfigError, match=re.escape(f"'count' of folds must be an integer ≥ 2. Got {count!r}.")):
        folds(as_dataset(["a", "b", "c"], [["x"]] * 3), count)


def test_folds_of_too_few_documents() -> None:
    three = as_dataset(["a", "b", "c"], [["x"]] * 3)
    with pytest.raises(DataError, match=r"^3 documents are too few for 4 folds\. Choose fewer folds\.$"):
        folds(three, 4)
    with pytest.raises(DataError, match=r"^2 documents or groups of documents are too few for 3 folds\."):
        folds(three, 3, groups=[0, 1, 1])
    with pytest.raises(DataError, match=r"^'groups' must have one value for each of the 3 documents\.$"):
        folds(three, 3, groups=[0, 1])
    with pytest.raises(ConfigError, match="'seed' of a split"):
        folds(three, 3, -1)


def test_many_documents_are_folded_in_seconds() -> None:
    generator = np.random.default_rng(0)
    n, width = 100_000, 35_000
    numbers = np.minimum((width ** generator.random(3 * n)).astype(np.int64), width - 1)
    labels = sp.csr_array((np.ones(3 * n, dtype=np.float32), numbers, np.arange(0, 3 * n + 1, 3)), shape=(n, width))
    labels.sum_duplicates()
    texts = pa.chunked_array([pa.array(np.arange(n)).cast(pa.string())])
    started = time.process_time()
    fold_of = folds(Dataset({"text": texts}, labels=labels), 5)
    assert time.process_time() - started < 6  # 1.0 s on a quiet machine
    assert np.bincount(fold_of).tolist() == [20_000] * 5
    table = in_folds(labels, fold_of, 5)
    counts = table.sum(axis=0)
    spread = (table > 0).sum(axis=0) == np.minimum(counts, 5)
    assert spread[(counts >= 2) & (counts <= 10)].mean() > 0.99  # 0.49 at random
    frequent = counts >= 500
    assert (abs(table - counts / 5)[:, frequent] <= 0.03 * counts[frequent] / 5).all()
