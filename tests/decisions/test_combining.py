"""Answers made one: hand-worked cases, and slow references."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from xmtc.core.errors import DataError
from xmtc.decisions import combining
from xmtc.decisions.combining import Answer, Gathered, Learnt

PADS = -np.inf


def answer(*rows: dict[int, float], width: int = 4) -> Answer:
    """Labels and chances as a model gives them, best first."""
    labels, chances = np.full((len(rows), width), -1), np.full((len(rows), width), PADS, np.float32)
    for row, found in enumerate(rows):
        for place, (label, chance) in enumerate(sorted(found.items(), key=lambda pair: -pair[1])):
            labels[row, place], chances[row, place] = label, chance
    return labels, chances


def gathered(*answers: Answer) -> Gathered:
    return combining.gather(answers, combining.union(answers))


class TestUnion:
    def test_by_hand(self) -> None:
        first, second = answer({7: 0.9, 2: 0.5}, {}), answer({2: 0.6, 1: 0.4, 9: 0.1}, {3: 0.2})
        assert combining.union([first, second]).tolist() == [[1, 2, 7, 9], [3, -1, -1, -1]]

    @settings(max_examples=50)
    @given(
        st.lists(st.lists(st.dictionaries(st.integers(0, 12), st.floats(0.01, 1), max_size=5), min_size=2, max_size=2))
    )
    def test_against_dictionaries(self, documents: list[list[dict[int, float]]]) -> None:
        answers = [answer(*(row[member] for row in documents), width=6) for member in range(2)]
        found = gathered(*answers)
        for row, members in enumerate(documents):
            labels = [label for label in found.labels[row].tolist() if label >= 0]
            assert labels == sorted(set(members[0]) | set(members[1]))
            for column, label in enumerate(labels):
                for place, member in enumerate(members):
                    assert found.held[place, row, column] == (label in member)
                    assert found.chances[place, row, column] == np.float32(member.get(label, 0))
            assert not found.held[:, row, len(labels) :].any()


class TestFormulas:
    def test_noisy_or_by_hand(self) -> None:
        """1 − (1 − 0.6)(1 − 0.5) = 0.8; a label that one of them lacks keeps the other's chance."""
        found = gathered(answer({3: 0.6, 5: 0.2}), answer({3: 0.5, 8: 0.7}))
        assert found.labels.tolist() == [[3, 5, 8]]
        assert combining.noisy_or(found.chances)[0] == pytest.approx([0.8, 0.2, 0.7])

    def test_noisy_or_of_three(self) -> None:
        found = gathered(answer({0: 0.5}), answer({0: 0.5}), answer({0: 0.2, 1: 0.1}))
        assert combining.noisy_or(found.chances)[0] == pytest.approx([0.8, 0.1])

    def test_average_by_hand(self) -> None:
        found = gathered(answer({3: 0.6, 5: 0.2}), answer({3: 0.5, 8: 0.8}))
        assert combining.average(found.chances)[0] == pytest.approx([0.55, 0.1, 0.4])
        assert combining.average(found.chances, (3, 1))[0] == pytest.approx([0.575, 0.15, 0.2])

    def test_shares_say_who_spoke_for_a_label(self) -> None:
        found = gathered(answer({0: 0.75}), answer({0: 0.5, 1: 0.3}))
        told = combining.shares(found.chances, "noisy-or")[:, 0]
        assert told[:, 0] == pytest.approx([np.log(4), np.log(2)])
        assert told[:, 1] == pytest.approx([0, -np.log(0.7)])
        assert combining.shares(found.chances, "average", (1, 3))[:, 0, 0] == pytest.approx([0.75, 1.5])


Planted = tuple[Gathered, np.ndarray, np.ndarray]


def weighted(weights: list[float]) -> Learnt:
    """Weights of two members; those that are not given are 0."""
    return Learnt(np.array([*weights, *[0.0] * (13 - len(weights))]))


def planted(weights: list[float], seed: int = 0) -> Planted:
    """Chances of two members for one label a document, and hits that come true as the weights say."""
    random = np.random.default_rng(seed)
    count = 40_000
    members = [answer(*({0: value} for value in random.beta(0.7, 0.7, count)), width=1) for _ in range(2)]
    gap = random.random(count) < 0.3
    members[1][0][gap], members[1][1][gap] = -1, PADS
    found = gathered(*members)
    frequency = random.uniform(0, 5, (count, 1))
    return found, frequency, random.random((count, 1)) < weighted(weights)(found, frequency)


class TestLearnt:
    def test_finds_planted_weights(self) -> None:
        weights = [-0.5, 0.2, 0.6, 1.0, 0.5, 0.0, -1.0]
        found, frequency, hits = planted(weights)
        learnt = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])
        assert np.abs(learnt(found, frequency) - weighted(weights)(found, frequency)).mean() < 0.01

    def test_finds_weights_that_depend_on_the_frequency(self) -> None:
        """One member is right about frequent labels, the other about rare ones and about those without documents."""
        weights = [-1.0, 0.1, 0.2, 0.1, 1.2, 0.0, -1.0, 0.8, 0.0, 0.3, -0.2, 0.0, 0.1]
        found, frequency, _ = planted(weights)
        frequency = np.where(np.arange(len(frequency))[:, None] % 4 == 0, 0.0, frequency)
        chances = weighted(weights)(found, frequency)
        hits = np.random.default_rng(5).random(chances.shape) < chances
        learnt = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])
        assert np.abs(learnt(found, frequency) - chances).mean() < 0.01
        assert learnt.weights[7] == pytest.approx(0.8, abs=0.15)

    def test_labels_without_documents_matter_from_few_pairs_on(self) -> None:
        """The members are too sure of them; other weights do not depend on the frequency then."""
        weights = [0.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0, -2.0]
        found, frequency, _ = planted(weights)
        few = slice(0, 2000)
        found = Gathered(found.labels[few], found.chances[:, few], found.held[:, few])
        frequency = np.where(np.arange(2000)[:, None] % 4 == 0, 0.0, frequency[few] + 0.1)
        chances = weighted(weights)(found, frequency)
        hits = np.random.default_rng(5).random(chances.shape) < chances
        learnt = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])
        assert learnt.weights[7] == pytest.approx(-2.0, abs=0.4)
        assert (learnt.weights[8:] == 0).all()

    @pytest.mark.parametrize(("unseen", "outcome"), [(3, False), (3, True), (100, False)])
    def test_labels_without_documents_that_are_all_wrong_or_all_right(self, unseen: int, outcome: bool) -> None:
        """Few pairs say little; many of them say more, but no weight runs away."""
        found, frequency, hits = planted([0.0, 0.0, 0.0, 1.0, 0.5, 0.0, 0.0])
        few = slice(0, 1000)
        found = Gathered(found.labels[few], found.chances[:, few], found.held[:, few])
        frequency, hits = frequency[few] + 0.1, hits[few]
        frequency[:unseen], hits[:unseen] = 0.0, outcome
        weight = combining.learn(combining.design_matrix(found, frequency), hits[:, 0]).weights[7]
        assert np.sign(weight) == (1 if outcome else -1)
        assert abs(weight) < (2 if unseen == 3 else 6)

    def test_no_weight_is_negative_at_frequencies_beyond_those_learnt_from(self) -> None:
        """A member that is worth less with each frequency keeps the say it has at the largest one."""
        weights = [0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, -0.18, 0.0, 0.0]
        found, frequency, _ = planted(weights)
        chances = weighted(weights)(found, frequency)
        hits = np.random.default_rng(5).random(chances.shape) < chances
        learnt = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])
        assert learnt.weights[10] < -0.1
        assert learnt.most_frequent == frequency.max()
        for often in (8.0, 20.0):
            answers = [gathered(answer({0: 0.5}), answer({0: chance})) for chance in (0.2, 0.9)]
            low, high = (float(learnt(each, np.full((1, 1), often))[0, 0]) for each in answers)
            assert low <= high

    def test_equals_scikit_learn(self) -> None:
        found, frequency, hits = planted([0.3, 0.1, 0.5, 0.7, 0.4, 0.0, -0.5], seed=1)
        columns = combining.design_matrix(found, frequency)
        peer = LogisticRegression(C=1 / combining._RIDGE, fit_intercept=False, tol=1e-9, max_iter=2000)
        peer.fit(columns, hits[:, 0])
        ours = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])(found, frequency)[:, 0]
        np.testing.assert_allclose(ours, peer.predict_proba(columns)[:, 1], atol=1e-4)

    def test_a_sole_member_that_is_right_is_left_alone(self) -> None:
        """Scores that are probabilities already come out as they went in."""
        random = np.random.default_rng(0)
        chances = random.uniform(0.02, 0.98, 30_000)
        member = answer(*({0: value} for value in chances), width=1)
        found, nothing = gathered(member), np.zeros((30_000, 1))
        hits = random.random((30_000, 1)) < chances[:, None]
        learnt = combining.learn(combining.design_matrix(found, nothing), hits[:, 0])
        assert np.abs(learnt(found, nothing)[:, 0] - chances).mean() < 0.01

    def test_nobody_is_trusted_less_for_being_surer(self) -> None:
        """A member that is wrong the surer it is gets no say."""
        found, frequency, hits = planted([0.0, 0.0, 0.0, 1.0, -0.8, 0.0, 0.0])
        learnt = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])
        assert learnt.weights[4] == 0
        assert learnt.weights[3] > 0.5

    def test_a_label_that_nobody_has_is_not_likely(self) -> None:
        """Weights are learnt from labels that somebody has, and say nothing of others."""
        found, frequency, hits = planted([2.0, 0.2, 0.1, 1.0, 0.5, 0.0, 0.0])
        learnt = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])
        nobody = Gathered(found.labels, found.chances * 0, found.held & False)
        assert (learnt(nobody, frequency) == 0).all()

    def test_shares_are_what_a_member_adds(self) -> None:
        found, frequency, hits = planted([-0.5, 0.2, 0.3, 1.0, 0.5, 0.0, -1.0])
        learnt = combining.learn(combining.design_matrix(found, frequency), hits[:, 0])
        told = learnt.shares(found, frequency)
        both = found.held.all(axis=0)
        without = Gathered(found.labels, found.chances * [[[0]], [[1]]], found.held & [[[False]], [[True]]])

        def margin(gathered: Gathered) -> np.ndarray:
            chances = np.clip(learnt(gathered, frequency), 1e-12, 1)
            return np.log(chances) - np.log1p(-chances)

        np.testing.assert_allclose(told[0][both], (margin(found) - margin(without))[both], atol=1e-6)
        assert told[1][~found.held[1]] == pytest.approx(0, abs=1e-9)

    def test_round_trip(self) -> None:
        learnt = Learnt(np.arange(13.0), 4.5)
        again = Learnt.restored(learnt.values(), 2)
        assert (again.weights == learnt.weights).all()
        assert again.most_frequent == 4.5
        older = Learnt.restored({"weights": list(range(7))}, 2)
        assert older.weights.tolist() == [*range(7), *[0.0] * 6]
        assert Learnt.restored(older.values(), 2).most_frequent == np.inf
        with pytest.raises(ValueError, match="learnt weights are invalid"):
            Learnt.restored(learnt.values(), 3)
        with pytest.raises(ValueError, match="learnt weights are invalid"):
            Learnt.restored({"weights": [np.nan] * 7}, 2)
        with pytest.raises(ValueError, match="the largest frequency of learnt weights is invalid"):
            Learnt.restored({"weights": [0.0] * 7, "most_frequent": -1}, 2)

    def test_nothing_to_learn_from(self) -> None:
        rows = combining.design_matrix(gathered(answer({0: 0.5}), answer({0: 0.5})), np.zeros((1, 1)))
        for hits in (np.array([True]), np.array([False])):
            with pytest.raises(DataError, match="too few to learn weights"):
                combining.learn(rows, hits)
