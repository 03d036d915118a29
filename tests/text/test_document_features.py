"""Document features: weights of the columns of a matrix, and the power of the idf of words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.models.base import Model
from xmtc.models.bonsai import Bonsai
from xmtc.models.one_vs_all import OneVsAll
from xmtc.models.parabel import Parabel
from xmtc.text.cache import tokens_of
from xmtc.text.features import DocumentFeatures, column_idf
from xmtc.text.tfidf import TextSettings, Tfidf

ONE_THREAD = Runtime(threads=1)
TEXTS = ["common rare", "common other", "common other", "common", "common rare third", "third common"]


def matrix() -> sp.csr_array:
    """Column 0 in all 8 rows, columns 1 to 4 in two rows each."""
    dense = np.zeros((8, 5), dtype=np.float32)
    dense[:, 0] = 3.0
    dense[np.arange(8), 1 + np.arange(8) // 2] = 2.0
    return sp.csr_array(dense)


class TestColumns:
    def test_are_multiplied_by_idf(self) -> None:
        features, rows = DocumentFeatures.fit(as_dataset(matrix()), TextSettings(), ONE_THREAD, weighing="idf")
        idf = np.array([1 + np.log(9 / 9), *[1 + np.log(9 / 3)] * 4])
        expected = matrix().toarray() * idf
        expected /= np.linalg.norm(expected, axis=1, keepdims=True)
        np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-5)
        np.testing.assert_array_equal(rows.toarray(), features.transform(as_dataset(matrix()), ONE_THREAD).toarray())

    def test_stay_as_given_by_default(self) -> None:
        features, rows = DocumentFeatures.fit(as_dataset(matrix()), TextSettings(), ONE_THREAD)
        assert features.columns is None
        np.testing.assert_allclose(rows.toarray()[0], np.array([3, 2, 0, 0, 0]) / np.sqrt(13), rtol=1e-6)

    @pytest.mark.parametrize("model_class", [Parabel, Bonsai, OneVsAll])
    def test_belong_to_the_model(self, model_class: type[Model], tmp_path: Path) -> None:
        labels = [[str(row // 2)] for row in range(8)]
        model = model_class(columns="idf").fit(matrix(), labels)
        expected = column_idf(matrix())
        np.testing.assert_array_equal(model._features.columns, expected)  # type: ignore[attr-defined]
        model.save(tmp_path / "model")
        loaded = model_class.load(tmp_path / "model")
        before, after = model.predict(matrix(), k=3), loaded.predict(matrix(), k=3)
        np.testing.assert_array_equal(before.labels, after.labels)
        np.testing.assert_array_equal(before.scores, after.scores)
        assert loaded.tag(matrix()[[0]], k=3) == loaded.predict(matrix()[[0]], k=3).pairs()[0]
        loaded.update(matrix()[:2], labels[:2], force=True)
        np.testing.assert_array_equal(loaded._features.columns, expected)  # type: ignore[attr-defined]


class TestIdfPower:
    @pytest.mark.parametrize("form", ["smooth", "plain"])
    def test_raises_the_weights(self, form: str) -> None:
        tokens = tokens_of(pa.chunked_array([TEXTS]), ONE_THREAD)
        one = Tfidf.fit(tokens, TextSettings(idf=form))
        steep = Tfidf.fit(tokens, TextSettings(idf=form, idf_power=1.5))
        assert one.terms == steep.terms
        np.testing.assert_allclose(steep.idf, one.idf.astype(np.float64) ** 1.5, rtol=1e-5)

    def test_of_words_added_in_an_update(self) -> None:
        tokens = tokens_of(pa.chunked_array([TEXTS]), ONE_THREAD)
        more = tokens_of(pa.chunked_array([["novel words", "novel words"]]), ONE_THREAD)
        one = Tfidf.fit(tokens, TextSettings()).grown(more, 8)
        steep = Tfidf.fit(tokens, TextSettings(idf_power=2.0)).grown(more, 8)
        assert one.terms == steep.terms
        assert "novel" in one.terms.to_pylist()
        np.testing.assert_allclose(steep.idf, one.idf.astype(np.float64) ** 2, rtol=1e-5)

    def test_must_be_small(self) -> None:
        with pytest.raises(ConfigError, match="idf_power"):
            TextSettings(idf_power=3.0)
