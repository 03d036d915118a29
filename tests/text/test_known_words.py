"""Which documents have a known word: remembered with the data set that was converted, and never for another."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.text.features import DocumentFeatures
from xmtc.text.known_words import KnownWords, rows_with_values
from xmtc.text.tfidf import TextSettings

RUNTIME = Runtime(threads=1)


def fitted(documents: object) -> DocumentFeatures:
    return DocumentFeatures.fit(as_dataset(documents), TextSettings(min_df=1), RUNTIME)[0]


def test_words_and_features() -> None:
    texts = fitted(["red apple", "green pear"])
    assert texts.known_words(as_dataset(["an apple", "none", ""]), RUNTIME).tolist() == [True, False, False]
    matrix = fitted(np.eye(3, dtype=np.float32))
    stored_zero = sp.csr_array((np.array([0.0, 2.0], np.float32), [0, 1], [0, 1, 2, 2]), shape=(3, 3))
    assert matrix.known_words(as_dataset(stored_zero), RUNTIME).tolist() == [False, True, False]


def test_rows_without_values() -> None:
    assert rows_with_values(sp.csr_array((0, 4), dtype=np.float32)).tolist() == []
    assert rows_with_values(sp.csr_array(np.array([[0, 0], [0, -1], [0, 0]], np.float32))).tolist() == [
        False,
        True,
        False,
    ]


def test_a_batch_is_converted_once_and_others_are_not_confused(monkeypatch: pytest.MonkeyPatch) -> None:
    features = fitted(["red apple", "green pear"])
    calls: list[Dataset] = []
    convert = DocumentFeatures._rows

    def counted(self: DocumentFeatures, dataset: Dataset, runtime: Runtime) -> sp.csr_array:
        calls.append(dataset)
        return convert(self, dataset, runtime)

    monkeypatch.setattr(DocumentFeatures, "_rows", counted)
    first, second = as_dataset(["apple", "?"]), as_dataset(["?", "apple"])
    features.transform(first, RUNTIME)
    assert features.known_words(first, RUNTIME).tolist() == [True, False]
    assert calls == [first]
    features.transform(second, RUNTIME)
    assert features.known_words(first, RUNTIME).tolist() == [True, False]  # converted again
    assert calls == [first, second, first]


def test_a_copy_remembers_nothing() -> None:
    known, documents = KnownWords(), as_dataset(["a"])
    known.remember(documents, np.array([True]))
    assert known.get(documents) is not None
    for other in (copy.deepcopy(known), pickle.loads(pickle.dumps(known)), copy.deepcopy(fitted(["red apple"]))._known):
        assert other.get(documents) is None
    del documents
    assert known._latest is not None
    assert known._latest[0]() is None  # the data set is not kept alive
