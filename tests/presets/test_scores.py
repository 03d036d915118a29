"""Metrics by which presets choose."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.core.errors import ConfigError
from xmtc.labels.propensity import inverse_propensities
from xmtc.metrics import psp
from xmtc.presets.scores import Measure, score_metrics

TRUTH = sp.csr_array(np.array([[1, 0, 0], [0, 1, 1]]))
LABELS = np.array([[0, 1, 2], [0, 2, 1]])
COUNTS = np.array([50, 5, 1])


def test_the_named_metric_is_computed() -> None:
    assert Measure.of("P@1", COUNTS, 56)(LABELS, TRUTH) == 0.5
    assert Measure.of("R@2", COUNTS, 56)(LABELS, TRUTH) == pytest.approx((1 + 0.5) / 2)


def test_propensities_are_those_of_the_training_set() -> None:
    expected = psp(LABELS, TRUTH, 3, inverse_propensities(COUNTS, 56))
    assert Measure.of("PSP@3", COUNTS, 56)(LABELS, TRUTH) == pytest.approx(expected)


@pytest.mark.parametrize("name", ["nDCG", "nDCG@0", "nDCG@11", "accuracy@5", "P@1.5", ""])
def test_others_are_refused_with_the_names_of_all(name: str) -> None:
    with pytest.raises(ConfigError, match=r"--metric must be one of P@5, nDCG@5, .* with a cut-off from 1 to 10"):
        Measure.of(name, COUNTS, 56)


def test_metrics_of_the_leaderboard() -> None:
    assert score_metrics(LABELS, TRUTH)["P@3"] == 0.5
