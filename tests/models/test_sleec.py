"""sleec: pairs, singular value projection against a dense one, clusters, votes, explanations and resuming."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.linear.projection import match_products, near_pairs, residuals
from xmtc.models.sleec import Sleec
from xmtc.text.features import unit_rows

QUICK: dict[str, object] = {"width": 12, "rounds": 8, "neighbours": 5}


def label_rows(documents: int, seed: int) -> sp.csr_array:
    """Three of twelve labels each, rows of length one."""
    random = np.random.default_rng(seed)
    chosen = np.argsort(random.random((documents, 12)), axis=1)[:, :3]
    return unit_rows(sp.csr_array((chosen[:, :, None] == np.arange(12)).any(axis=1).astype(np.float32)))


def labels_of(chosen: np.ndarray, count: int) -> sp.csr_array:
    rows = np.arange(len(chosen))
    return sp.csr_array((np.ones(len(rows), np.float32), (rows, chosen)), shape=(len(rows), count))


def planted(documents: int = 300, topics: int = 6, seed: int = 0) -> tuple[sp.csr_array, sp.csr_array]:
    """Each topic has ten words and one label, as many documents on average as the others."""
    random = np.random.default_rng(seed)
    topic = random.integers(topics, size=documents)
    words = topic[:, None] * 10 + random.integers(10, size=(documents, 5))
    rows = np.repeat(np.arange(documents), 5)
    features = sp.csr_array((np.ones(rows.size, np.float32), (rows, words.ravel())), shape=(documents, 10 * topics))
    return features, labels_of(topic, topics)


class TestPairs:
    def test_the_nearest_of_each_both_ways(self) -> None:
        labels = label_rows(80, 0)
        exact = (labels @ labels.T).toarray()
        pairs = near_pairs(labels, 6)
        held = sp.csr_array((np.ones(pairs.nnz), pairs.indices, pairs.indptr), shape=pairs.shape).toarray() > 0
        assert (held == held.T).all()
        assert held.diagonal().all()
        np.testing.assert_allclose(pairs.toarray()[held], exact[held], atol=1e-6)
        for row in range(80):  # nobody who is left out is nearer than the sixth
            others = np.delete(exact[row], row)
            assert np.delete(exact[row], row)[~np.delete(held[row], row)].max() <= np.sort(others)[-6] + 1e-6
        assert not (near_pairs(labels, 6, seed=1).toarray() == pairs.toarray()).all()  # ties are broken by chance

    def test_hand_worked(self) -> None:
        labels = unit_rows(sp.csr_array(np.array([[1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], dtype=np.float32)))
        root = np.sqrt(0.5)
        expected = [[1, root, 0, 0], [root, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]]
        np.testing.assert_allclose(near_pairs(labels, 1).toarray(), expected, atol=1e-6)


def dense_projection(pairs: sp.csr_array, rank: int, rounds: int) -> np.ndarray:
    """The same with all inner products and all eigenvectors."""
    held = sp.csr_array((np.ones(pairs.nnz), pairs.indices, pairs.indptr), shape=pairs.shape).toarray() > 0
    wanted, found = pairs.toarray().astype(np.float64), np.zeros(pairs.shape)
    for _ in range(rounds):
        values, vectors = np.linalg.eigh(found + held * (wanted - found))
        kept = np.maximum(values[-rank:], 0.0)
        found = (vectors[:, -rank:] * kept) @ vectors[:, -rank:].T
    return found


class TestProjection:
    def test_equals_a_dense_projection(self) -> None:
        """With directions to spare for all that is there, round by round the same matrix."""
        labels = label_rows(14, 1)
        pairs = near_pairs(labels, 3)
        for rounds in (1, 5, 20):
            vectors = match_products(pairs, 4, rounds=rounds)
            np.testing.assert_allclose(vectors @ vectors.T, dense_projection(pairs, 4, rounds), atol=2e-3)

    @pytest.mark.parametrize("rounds", [5, 30])
    def test_as_good_as_a_dense_projection(self, rounds: int) -> None:
        """Directions that follow from round to round lag behind: twice the rounds make up for it."""
        pairs = near_pairs(label_rows(150, 2), 10)
        missing = float((residuals(pairs, match_products(pairs, 8, rounds=2 * rounds)).data ** 2).sum())
        exact, held = dense_projection(pairs, 8, rounds), pairs.toarray() != 0
        assert missing < float((((pairs.toarray() - exact) * held) ** 2).sum())

    def test_planted_vectors_are_found(self) -> None:
        """Inner products of vectors of four numbers, of which a third is known."""
        random = np.random.default_rng(3)
        planted = random.standard_normal((90, 4))
        known = random.random((90, 90)) < 0.2
        known |= known.T | np.eye(90, dtype=bool)
        pairs = sp.csr_array((planted @ planted.T * known).astype(np.float32))
        found = match_products(pairs, 4, rounds=300)
        np.testing.assert_allclose(found @ found.T, planted @ planted.T, atol=0.15)

    def test_rounds_come_nearer_and_threads_do_not_matter(self) -> None:
        pairs = near_pairs(label_rows(1500, 4), 5)
        missing = [
            float((residuals(pairs, match_products(pairs, 6, rounds=rounds)).data ** 2).sum())
            for rounds in (1, 3, 6, 12)
        ]
        assert (np.diff(missing) < 0).all()
        assert (match_products(pairs, 6, rounds=3, threads=2) == match_products(pairs, 6, rounds=3)).all()

    def test_more_numbers_than_documents(self) -> None:
        assert match_products(near_pairs(label_rows(3, 5), 2), 8, rounds=3).shape == (3, 8)


class TestModel:
    def test_several_clusters_learn_the_planted_topics(self) -> None:
        model = Sleec(cluster_size=100, learners=2, **QUICK).fit(*planted())
        assert model.facts["clusters"] == 6
        unseen, truth = planted(100, seed=1)
        assert (model.predict(unseen, 1).labels[:, 0] == truth.indices).mean() > 0.9

    def test_votes_are_shares_by_nearness(self) -> None:
        """One learner; each neighbour's vote is e to what its cosine is behind the nearest's, and they sum to one."""
        model = Sleec(learners=1, sharpness=3.0, **QUICK).fit(*planted())
        unseen = as_dataset(planted(20, seed=1)[0])
        found, cosines = model._nearest(unseen)
        votes = np.exp(3.0 * (cosines - cosines[:, :1]))
        votes /= votes.sum(axis=1, keepdims=True)
        held = planted()[1].indices[found]
        for row in range(20):
            scores = model.score_labels(unseen.slice(row, row + 1), np.arange(6)[None, :])[0]
            expected = [votes[row, held[row] == label].sum() for label in range(6)]
            np.testing.assert_allclose(scores, expected, atol=1e-6)

    def test_neighbours_are_the_nearest_of_the_nearest_cluster(self) -> None:
        model = Sleec(cluster_size=100, learners=1, **QUICK).fit(*planted())
        learner, rows = model._learners[0], model._features.transform(as_dataset(planted(30, seed=2)[0]), Runtime())
        found, cosines = learner.nearest(rows, 5, 1)
        chosen = (rows @ learner.centres).argmax(axis=1)
        for row, number in enumerate(chosen):
            cluster = learner.clusters[number]
            vector = rows[[row]].toarray()[:, cluster.columns] @ cluster.weights
            exact = (vector / np.linalg.norm(vector) @ cluster.vectors)[0]
            np.testing.assert_allclose(cosines[row], np.sort(exact)[::-1][:5], atol=1e-5)
            assert set(found[row]) <= set(cluster.members.tolist())

    def test_who_has_no_label_does_not_vote(self) -> None:
        features, labels = planted()
        silent = sp.csr_array(sp.diags_array((np.arange(300) % 3 > 0).astype(np.float32)) @ labels)
        silent.eliminate_zeros()
        model = Sleec(learners=1, **QUICK).fit(features, silent)
        found, _ = model._nearest(as_dataset(features))
        assert (found % 3 > 0).all()

    def test_more_neighbours_than_documents(self) -> None:
        features, labels = planted(8)
        model = Sleec(learners=2, sharpness=0.0, neighbours=50).fit(features, labels)
        scores = model.score_labels(features[:1], np.arange(6)[None, :])[0]
        np.testing.assert_allclose(scores, np.bincount(labels.indices, minlength=6) / 8, atol=1e-6)

    def test_explains_by_each_neighbour_once(self) -> None:
        texts = [f"{'salt pepper' if i % 2 else 'iron steel'} number{i % 5}" for i in range(40)]
        labels = [["spice"] if i % 2 else ["metal"] for i in range(40)]
        model = Sleec(learners=3, text__min_df=1, **QUICK).fit(texts, labels)
        found = model.explain("iron and steel", "metal")
        ids = [item.id for item in found.evidence]
        assert len(ids) == len(set(ids))
        assert sum(item.share for item in found.evidence) == pytest.approx(found.score, abs=1e-5)
        assert found.score == pytest.approx(1.0)

    def test_a_killed_training_goes_on_where_it_stopped(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        features, labels = planted()
        settings = {**QUICK, "cluster_size": 100, "learners": 2}
        whole = Sleec(**settings).fit(features, labels, runtime=Runtime(seed=5)).predict(features, 3)
        workspace, real, made = Workspace(tmp_path / "work"), Workspace.save, []
        workspace.begin({}, resume=False)

        def dying(self: Workspace, name: str, *what: object) -> None:
            if len(made) == 5:
                raise KeyboardInterrupt
            made.append(name)
            real(self, name, *what)  # type: ignore[arg-type]

        monkeypatch.setattr(Workspace, "save", dying)
        with pytest.raises(KeyboardInterrupt):
            Sleec(**settings).fit(features, labels, runtime=Runtime(seed=5), workspace=workspace)
        monkeypatch.setattr(Workspace, "save", real)
        again = Sleec(**settings).fit(features, labels, runtime=Runtime(seed=5), workspace=workspace)
        assert (again.predict(features, 3).labels == whole.labels).all()
        assert (again.predict(features, 3).scores == whole.scores).all()

    @pytest.mark.parametrize("settings", [{"learners": 0}, {"penalty": 0.0}, {"sharpness": -1.0}])
    def test_impossible_settings(self, settings: dict[str, object]) -> None:
        with pytest.raises(ConfigError, match=f"'{next(iter(settings))}' of sleec must be"):
            Sleec(**settings)
