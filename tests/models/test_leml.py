"""leml: settings, explanations and resuming; the algebra is tested in test_low_rank, the rest by the contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.models.leml import Leml
from xmtc.text.features import unit_rows


def planted(documents: int = 400, seed: int = 0) -> tuple[sp.csr_array, sp.csr_array]:
    """Features of four topics with 30 words each; each topic brings three labels together."""
    random = np.random.default_rng(seed)
    topics = random.integers(4, size=documents)
    words = topics[:, None] * 30 + random.integers(30, size=(documents, 12))
    rows = np.repeat(np.arange(documents), 12)
    features = sp.csr_array((np.ones(rows.size, np.float32), (rows, words.ravel())), shape=(documents, 120))
    labels = sp.csr_array(np.kron(np.eye(4), np.ones((1, 3)))[topics].astype(np.float32))
    return features, labels


def test_a_rank_as_large_as_the_topics_suffices() -> None:
    features, labels = planted()
    unseen, truth = planted(100, seed=1)
    found = Leml(rank=4).fit(features, labels).predict(unseen, 3)
    assert (np.sort(found.labels, axis=1) == truth.indices.reshape(100, 3)).all()
    three = Leml(rank=3, bias=0).fit(features, labels).predict(unseen, 3)
    assert not (np.sort(three.labels, axis=1) == truth.indices.reshape(100, 3)).all()


def test_labels_of_a_topic_have_one_direction() -> None:
    vectors = Leml(rank=4).fit(*planted()).label_vectors()
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    together = np.kron(np.eye(4), np.ones((3, 3))) > 0
    assert (unit @ unit.T)[together].min() > 0.99
    assert (unit @ unit.T)[~together].max() < 0.9


def test_bias_is_what_labels_start_from() -> None:
    """A document without features is estimated as often as its label occurs; without a bias, not at all."""
    random = np.random.default_rng(2)
    features = sp.csr_array(random.standard_normal((300, 5)).astype(np.float32))
    labels = sp.csr_array((np.arange(300)[:, None] % 10 < np.array([8, 2])).astype(np.float32))
    nothing, both = sp.csr_array((1, 5), dtype=np.float32), np.array([[0, 1]])
    estimate = 0.5 + np.log(1 / Leml(bias=1.0).fit(features, labels).score_labels(nothing, both) - 1) / -4
    np.testing.assert_allclose(estimate, [[0.8, 0.2]], atol=0.05)
    plain = Leml(bias=0.0).fit(features, labels).score_labels(nothing, both)
    np.testing.assert_allclose(plain, 1 / (1 + np.exp(2)), atol=1e-6)


def test_columns_weighed_by_idf_count_rare_words_more() -> None:
    features, labels = planted()
    weighed = Leml(columns="idf").fit(features, labels)._features
    held = np.bincount(features.indices, minlength=120)
    assert weighed.weights is not None
    assert weighed.weights.argmax() == held.argmin()
    rows = weighed.of(features)
    np.testing.assert_allclose((rows[:, :-1] ** 2).sum(axis=1), 1.0, atol=1e-5)
    assert (rows[:, [-1]].toarray() == 1.0).all()


def test_a_killed_training_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = planted()
    whole = Leml(rank=4, sweeps=4).fit(features, labels, runtime=Runtime(seed=5))
    workspace, real = Workspace(tmp_path / "work"), Workspace.save
    workspace.begin({}, resume=False)

    def dying(self: Workspace, name: str, *what: object) -> None:
        if name == "sweep-3":
            raise KeyboardInterrupt
        real(self, name, *what)  # type: ignore[arg-type]

    monkeypatch.setattr(Workspace, "save", dying)
    with pytest.raises(KeyboardInterrupt):
        Leml(rank=4, sweeps=4).fit(features, labels, runtime=Runtime(seed=5), workspace=workspace)
    monkeypatch.setattr(Workspace, "save", real)
    assert [path.name for path in (tmp_path / "work").glob("*.safetensors")] == ["sweep-2.safetensors"]
    again = Leml(rank=4, sweeps=4).fit(features, labels, runtime=Runtime(seed=5), workspace=workspace)
    assert (again.label_vectors() == whole.label_vectors()).all()


@pytest.mark.parametrize("settings", [{"rank": 0}, {"penalty": 0.0}, {"bias": -1.0}, {"penalised": "nobody"}])
def test_impossible_settings(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"'{next(iter(settings))}' of leml must be"):
        Leml(**settings)


def test_longer_rows_are_told_from_shorter_ones() -> None:
    """A word alone and the same word among many have the same direction in none but the second copy."""
    features = sp.csr_array(np.array([[1, 0, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]], dtype=np.float32))
    model = Leml(longer=0.5).fit(features, [["a"], ["b"], ["a", "b"]])
    rows = model._features.of(unit_rows(features)).toarray()
    expected = [[1, 0, 0, 0, 0.5, 0, 0, 0, 1], [0.5] * 8 + [1], [0] * 8 + [1]]
    np.testing.assert_allclose(rows, expected, atol=1e-6)


def test_explanations_add_up_with_both_copies() -> None:
    texts = ["salt and pepper", "pepper lemon pepper", "iron steel", "steel and copper"]
    model = Leml(longer=0.3, text__min_df=1).fit(texts, [["spice"], ["spice", "fruit"], ["metal"], ["metal"]])
    found = model.explain("lemon and pepper pepper", "spice")
    margin = found.constant + sum(item.weight for item in found.evidence)
    assert 1 / (1 + np.exp(-margin)) == pytest.approx(found.score, abs=1e-5)
