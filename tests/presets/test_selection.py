"""The choice of ensemble members: by the score of the combination on other documents, within limits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.presets.scores import Measure
from xmtc.presets.selection import Ballots, CrossFit, select

LABELS, DOCUMENTS = 30, 1200
FREE = (math.inf, math.inf)


def ballots(quality: dict[str, tuple[float, range]]) -> Ballots:
    """One label per document. A model finds it with a probability, for the labels that it knows, and is sure of it."""
    generator = np.random.default_rng(0)
    right = generator.integers(LABELS, size=DOCUMENTS)
    truth = sp.csr_array((np.ones(DOCUMENTS), (np.arange(DOCUMENTS), right)), shape=(DOCUMENTS, LABELS))
    answers = {}
    for name, (chance, known) in quality.items():
        found = (generator.random(DOCUMENTS) < chance) & np.isin(right, known)
        labels = np.stack([generator.permutation(LABELS)[:8] for _ in range(DOCUMENTS)])
        scores = np.sort(generator.random((DOCUMENTS, 8)).astype(np.float32) * 0.4)[:, ::-1].copy()
        for row in np.flatnonzero(found):
            rest = labels[row][labels[row] != right[row]][:7]
            labels[row] = np.concatenate([[right[row]], rest])
            scores[row, 0] = 0.5 + 0.5 * generator.random()
        answers[name] = (labels, scores)
    return Ballots(answers, truth, lambda rows, labels: np.zeros(labels.shape))


def measure() -> Measure:
    return Measure.of("P@1", np.ones(LABELS, dtype=np.int64), DOCUMENTS)


def free(names: NDArray[np.str_] | list[str]) -> dict[str, tuple[float, float]]:
    return {str(name): (1.0, 10.0) for name in names}


HALVES = {"low": (0.9, range(15)), "high": (0.9, range(15, 30)), "noise": (0.0, range(0))}


def test_complementary_models_are_chosen_and_noise_is_not() -> None:
    found = select(ballots(HALVES), measure(), costs=free(list(HALVES)), most=FREE, seed=0, threads=1)
    assert found is not None
    assert sorted(found.names) == ["high", "low"]
    assert found.score > 0.8  # each alone: about 0.45


def test_the_score_is_that_of_other_documents() -> None:
    """A combination of two models without any information is not better than chance."""
    worthless = ballots({"a": (0.0, range(0)), "b": (0.0, range(0))})
    labels = CrossFit(worthless).labels(["a", "b"], "stacked")
    assert measure()(labels, worthless.truth) < 0.09  # 1 / 30


@pytest.mark.parametrize(("most", "chosen"), [((1.5, math.inf), 1), ((math.inf, 10.0), 1), ((2.0, 20.0), 2)])
def test_members_keep_to_the_limits(most: tuple[float, float], chosen: int) -> None:
    found = select(ballots(HALVES), measure(), costs=free(list(HALVES)), most=most, seed=0, threads=1)
    assert found is not None
    assert len(found.names) == chosen


def test_an_expensive_model_gives_way_to_cheap_ones() -> None:
    models = {**HALVES, "large": (0.8, range(30))}
    costs = {**free(list(HALVES)), "large": (9.0, 10.0)}
    found = select(ballots(models), measure(), costs=costs, most=(3.0, math.inf), seed=0, threads=1)
    assert found is not None
    assert "large" not in found.names


def test_no_model_fits() -> None:
    assert select(ballots(HALVES), measure(), costs=free(list(HALVES)), most=(0.5, 99.0), seed=0, threads=1) is None


@pytest.mark.parametrize("is_right", [True, False])
def test_models_that_are_always_right_or_wrong_cannot_be_calibrated(is_right: bool) -> None:
    """The best of them is chosen, alone."""
    right = np.arange(200) % LABELS
    truth = sp.csr_array((np.ones(200), (np.arange(200), right)), shape=(200, LABELS))
    labels = (right + (not is_right))[:, None] % LABELS
    scores = np.linspace(0.1, 0.9, 200, dtype=np.float32)[:, None]
    given = Ballots(dict.fromkeys("ab", (labels, scores)), truth, lambda rows, labels: np.zeros(labels.shape))
    found = select(given, measure(), costs=free(["a", "b"]), most=FREE, seed=0, threads=1)
    assert found is not None
    assert len(found.names) == 1
    assert found.score == float(is_right)


def test_few_documents_are_combined_without_learning() -> None:
    few = ballots(HALVES).take(np.arange(12))
    found = select(few, measure(), costs=free(list(HALVES)), most=FREE, seed=0, threads=1)
    assert found is not None
    assert found.combine in ("noisy-or", "learnt")
