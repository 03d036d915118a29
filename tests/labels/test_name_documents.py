"""Names of labels as documents: texts, features that grow by the words of names, and label features with names."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.data.label_index import LabelIndex
from xmtc.labels.name_documents import NameDocuments, has_names, has_word_keys, name_texts, with_names
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings

INDEX = LabelIndex.from_keys(
    ["a", "b", "c", "d"], ["Wind power", "solar cell", "?", "cell"], [["wind energy", "turbines"], [], [], []]
)
TEXTS = ["wind power and more wind", "the power of cells", "cell walls and more", "the wind", "turbines once"]


def test_texts_have_all_names_of_a_label() -> None:
    assert name_texts(INDEX).to_pylist() == ["Wind power\nwind energy\nturbines", "solar cell\n", "?\n", "cell\n"]
    assert has_names(INDEX)
    assert not has_names(LabelIndex.from_keys(["a", "b"]))
    assert not has_names(LabelIndex.numbered(0))
    assert has_names(LabelIndex.from_keys(["a", "b"], ["a", "b"], [[], ["c"]]))


def test_keys_that_are_words_of_the_texts() -> None:
    features, _ = DocumentFeatures.fit(
        as_dataset([*TEXTS, "in 1984", "in 1984", "a b", "a b"]), TextSettings(), Runtime()
    )

    def are_words(*keys: str) -> bool:
        return has_word_keys(LabelIndex.from_keys(keys), features, Runtime())

    assert are_words("wind-power", "Power_plants", "nothing-known")
    assert are_words("wind", "p12")  # half of them
    assert not are_words("wind", "p12", "p13")
    assert not are_words("1984", "1984-85")  # numbers
    assert not are_words("a", "b", "wind2", "http://wind.example/power")
    assert name_texts(LabelIndex.from_keys(["wind_power"])).to_pylist() == ["wind power\n"]


def test_words_of_names_are_added_and_known_words_keep_their_weight() -> None:
    runtime = Runtime()
    features, _ = DocumentFeatures.fit(as_dataset(TEXTS), TextSettings(), runtime)
    names, grown = NameDocuments.of(name_texts(INDEX), features, len(TEXTS), runtime)
    assert features.tfidf is not None
    assert grown.tfidf is not None
    before, after = features.tfidf.terms.to_pylist(), grown.tfidf.terms.to_pylist()
    assert after[: len(before)] == before
    assert sorted(after[len(before) :]) == ["cell", "energy", "solar", "turbines"]  # 'cell' and 'turbines': one text
    np.testing.assert_array_equal(grown.tfidf.idf[: len(before)], features.tfidf.idf)
    idf = dict(zip(after, grown.tfidf.idf.tolist(), strict=True))
    np.testing.assert_allclose(idf["solar"], 1 + np.log(6 / 2), rtol=1e-6)  # as in one of five documents
    np.testing.assert_allclose(idf["cell"], 1 + np.log(6 / 3), rtol=1e-6)
    assert names.labels.tolist() == [0, 1, 3]  # '?' has no words
    np.testing.assert_allclose(names.rows.multiply(names.rows).sum(axis=1), 1, rtol=1e-5)
    assert names.matrix().toarray().tolist() == [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 1]]
    np.testing.assert_array_equal(names.by_label().toarray()[[0, 1, 3]], names.rows.toarray())
    assert names.by_label().toarray()[2].tolist() == [0.0] * grown.width


def test_more_names_than_documents_have_valid_weights() -> None:
    """A word in all of many names and in no document would have a negative idf."""
    index = LabelIndex.from_keys([str(i) for i in range(100)], [f"motif n{i}" for i in range(100)])
    features, _ = DocumentFeatures.fit(as_dataset(TEXTS), TextSettings(min_df=1), Runtime())
    for idf in ("smooth", "plain"):
        features, _ = DocumentFeatures.fit(as_dataset(TEXTS), TextSettings(min_df=1, idf=idf), Runtime())
        grown = NameDocuments.of(name_texts(index), features, len(TEXTS), Runtime())[1]
        assert grown.tfidf is not None
        assert (grown.tfidf.idf > 0).all()


def test_label_features_with_names() -> None:
    features = sp.csr_array(np.array([[0.6, 0.8, 0], [0, 0, 0], [1, 0, 0], [0, 1, 0]], dtype=np.float32))
    names = sp.csr_array(np.array([[0, 0, 1], [0, 0.6, 0.8], [0, 0, 0], [0, 1, 0]], dtype=np.float32))
    found = with_names(features, names, 0.5).toarray()
    expected = features.toarray() + 0.5 * names.toarray()
    expected[1] = names.toarray()[1]  # no documents: the name alone, whatever the weight
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
    without = with_names(features, names, 0.0)
    np.testing.assert_allclose(without.toarray()[[0, 2, 3]], features.toarray()[[0, 2, 3]], rtol=1e-6)
    assert without.nnz == 6
    apart = with_names(features, names, 0.5, apart=True).toarray()
    expected = np.hstack([features.toarray(), 0.5 * names.toarray()])
    expected[1, 3:] = names.toarray()[1]
    np.testing.assert_allclose(apart, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6)
