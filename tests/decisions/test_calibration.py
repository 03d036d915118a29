"""Scores made into probabilities, against scikit-learn and against planted miscalibration."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.isotonic import IsotonicRegression

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import ConfigError, DataError, ModelFormatError
from xmtc.decisions.calibration import LEAST_PAIRS, Calibration, fit_calibration, isotonic_blocks

METHODS = ("isotonic", "platt")
Pairs = tuple[NDArray[np.float64], NDArray[np.bool_]]


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-values))


def planted(slope: float, offset: float, pairs: int = 20_000, seed: int = 0) -> Pairs:
    """Scores, and hits that come true at σ(slope · score + offset)."""
    random = np.random.default_rng(seed)
    scores = random.normal(0.0, 1.5, pairs)
    return scores, random.random(pairs) < sigmoid(slope * scores + offset)


def calibration_error(chances: NDArray[Any], hits: NDArray[np.bool_], bins: int = 15) -> float:
    """Expected calibration error: |mean probability − share of hits| over bins of like probability."""
    place = np.minimum((chances * bins).astype(int), bins - 1)
    gaps = np.bincount(place, weights=chances, minlength=bins) - np.bincount(place, weights=hits, minlength=bins)
    return float(np.abs(gaps).sum() / len(hits))


@st.composite
def scored_pairs(draw: st.DrawFn) -> Pairs:
    """Pairs with many ties, hits and misses among them."""
    count = draw(st.integers(LEAST_PAIRS, 60))
    scores = draw(st.lists(st.integers(-8, 8), min_size=count, max_size=count))
    hits = [True, False, *draw(st.lists(st.booleans(), min_size=count - 2, max_size=count - 2))]
    return np.array(scores, dtype=np.float64) / draw(st.sampled_from([1.0, 3.0, 1e-6, 1e-30])), np.array(hits)


@settings(max_examples=150, derandomize=True)
@given(scored_pairs())
def test_blocks_are_those_of_scikit_learn(pairs: Pairs) -> None:
    scores, hits = pairs
    lowest, highest, block_hits, counts = isotonic_blocks(scores, hits)
    ranks = np.unique(scores, return_inverse=True)[1].ravel()  # scikit-learn takes close scores for the same
    expected = IsotonicRegression().fit(ranks, hits).predict(ranks)  # (m,)
    order = np.argsort(scores, kind="stable")
    np.testing.assert_allclose(np.repeat(block_hits / counts, counts.astype(int)), expected[order], atol=1e-12)
    ends = np.cumsum(counts.astype(int))
    assert (lowest == scores[order][ends - counts.astype(int)]).all()
    assert (highest == scores[order][ends - 1]).all()


@settings(max_examples=150, derandomize=True)
@given(scored_pairs(), st.sampled_from(METHODS))
def test_a_calibration_never_falls_and_is_never_certain(pairs: Pairs, method: Any) -> None:
    scores, hits = pairs
    calibration = fit_calibration(method, scores, hits)
    reach = np.abs(scores).max() or 1.0
    asked = np.sort(np.concatenate([scores, np.linspace(-2 * reach, 2 * reach, 200), [np.inf]]))
    chances = calibration.apply(asked)
    assert chances.dtype == np.float32
    assert (np.diff(chances) >= 0).all()
    assert chances.min() >= 0
    assert chances.max() <= 1
    if method == "isotonic":
        assert chances.min() > 0
        assert chances.max() < 1


def test_isotonic_by_hand() -> None:
    """Blocks {1: 0 of 4}, {2, 3: 2 of 4} and {5: 2 of 2} each gain 0.4 of a hit in one pair more.

    0.48 of the middle one is uncertain by √(0.48 · 0.52 / 5) = 0.22, more than half the way to either neighbour.
    """
    scores = np.array([1, 1, 1, 1, 2, 2, 3, 3, 5, 5], dtype=np.float64)
    hits = np.array([0, 0, 0, 0, 1, 1, 0, 0, 1, 1], dtype=bool)
    calibration = fit_calibration("isotonic", scores, hits)
    np.testing.assert_allclose(calibration.points, [1, 2, 3, 5])
    np.testing.assert_allclose(calibration.chances, [0.08, 0.28, 0.64, 0.8])
    expected = [0.08, 0.08, 0.18, 0.28, 0.46, 0.64, 0.72, 0.8, 0.8]
    np.testing.assert_allclose(calibration.apply([-9, 1, 1.5, 2, 2.5, 3, 4, 5, 9]), expected, rtol=1e-6)


def test_a_wide_block_is_nearly_flat() -> None:
    """Scores that part hits from misses: what is far from the border is as certain as what is farther."""
    random = np.random.default_rng(4)
    scores = np.concatenate([random.uniform(0.0, 0.4, 900), random.uniform(0.6, 1.0, 100)])
    calibration = fit_calibration("isotonic", scores, scores > 0.5)
    chances = calibration.apply([0.0, 0.2, 0.39, 0.61, 0.8, 1.0])
    assert chances[:3].max() < 0.005
    assert chances[3:].min() > 0.97


def test_added_pairs_do_not_turn_the_order_around() -> None:
    """One miss at the bottom, which by itself would rise to 0.25, is pooled with the block above it."""
    scores = np.repeat([0.0, 1.0, 2.0], [1, 1000, 1000])
    hits = np.concatenate([[False], np.arange(1000) < 10, np.ones(1000, dtype=bool)])
    calibration = fit_calibration("isotonic", scores, hits)
    rate = 1010 / 2001
    share = (10 + 2 * rate) / 1003
    unsure = np.sqrt(share * (1 - share) / 1003)
    np.testing.assert_allclose(calibration.points, [0, 1, 2])
    np.testing.assert_allclose(calibration.chances, [share - unsure, share + unsure, (1000 + rate) / 1001])


@pytest.mark.parametrize("method", METHODS)
def test_planted_miscalibration_is_put_right(method: Any) -> None:
    """Scores that are far too sure of themselves, judged on pairs that the calibration has not seen."""
    scores, hits = planted(0.5, -1.0)
    sure = sigmoid(2 * scores)  # the truth is σ(0.25 · logit − 1)
    half = len(scores) // 2
    chances = fit_calibration(method, sure[:half], hits[:half]).apply(sure[half:])
    before, after = calibration_error(sure[half:], hits[half:]), calibration_error(chances, hits[half:])
    assert before > 0.2
    assert after < 0.025


def test_isotonic_follows_a_shape_that_is_no_sigmoid() -> None:
    random = np.random.default_rng(1)
    scores = random.random(40_000)
    hits = random.random(len(scores)) < np.where(scores < 0.5, 0.2, 0.4)
    errors = [calibration_error(fit_calibration(m, scores, hits).apply(scores), hits, 200) for m in METHODS]  # type: ignore[arg-type]
    assert errors[0] < errors[1] / 2
    assert fit_calibration("isotonic", scores, hits).apply([0.25, 0.75]) == pytest.approx([0.2, 0.4], abs=0.02)


def test_isotonic_keeps_most_scores_apart() -> None:
    scores, hits = planted(1.0, 0.0, 2000)
    chances = fit_calibration("isotonic", scores, hits).apply(scores)
    blocks = len(isotonic_blocks(scores, hits)[0])
    assert len(np.unique(chances)) > 0.9 * len(scores) > 10 * blocks


@pytest.mark.parametrize(("slope", "offset"), [(1.0, 0.0), (0.4, -2.0), (3.0, 1.0)])
def test_platt_finds_the_planted_line(slope: float, offset: float) -> None:
    calibration = fit_calibration("platt", *planted(slope, offset, 200_000))
    assert not calibration.logits
    assert calibration.slope == pytest.approx(slope, rel=0.03)
    assert calibration.offset == pytest.approx(offset, abs=0.03)


def test_platt_takes_probabilities_by_their_logits() -> None:
    scores, hits = planted(0.5, -1.0, 100_000)
    calibration = fit_calibration("platt", sigmoid(scores), hits)
    assert calibration.logits
    assert calibration.slope == pytest.approx(0.5, rel=0.03)
    assert calibration.offset == pytest.approx(-1.0, abs=0.03)
    assert calibration.apply([0.5]) == pytest.approx(sigmoid(np.array([-1.0])), abs=0.01)
    assert np.isfinite(calibration.apply([0.0, 1.0, 1.5, -0.5])).all()


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_platt_is_the_least_cross_entropy(scale: float) -> None:
    """At the best line, the errors sum to nothing, by themselves and times the scores; whatever the scores' unit."""
    scores, hits = planted(1.0, 0.5, 500)
    calibration = fit_calibration("platt", scores * scale, hits)
    targets = np.where(hits, (hits.sum() + 1) / (hits.sum() + 2), 1 / ((~hits).sum() + 2))
    errors = sigmoid(calibration.slope * scores * scale + calibration.offset) - targets
    assert abs(errors.mean()) < 1e-8
    assert abs((errors * scores).mean()) < 1e-8


def test_platt_of_falling_or_equal_scores_is_flat() -> None:
    scores, hits = planted(-1.0, 0.0, 2000)
    for given_scores in (scores, np.full(2000, 3.0)):
        calibration = fit_calibration("platt", given_scores, hits)
        assert calibration.slope == 0
        np.testing.assert_allclose(calibration.apply([-5.0, 5.0, np.inf]), hits.mean(), atol=0.01)


def test_platt_stays_finite_where_scores_part_hits_from_misses() -> None:
    scores = np.repeat([-1.0, 2.0], 20)
    calibration = fit_calibration("platt", scores, scores > 0)
    np.testing.assert_allclose(calibration.apply([-1.0, 2.0]), [1 / 22, 21 / 22], rtol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_pads_stay_and_shapes_too(method: Any) -> None:
    calibration = fit_calibration(method, *planted(1.0, 0.0, 200))
    scores = np.array([[2.0, 1.0, -np.inf], [np.inf, -np.inf, -np.inf]], dtype=np.float32)
    chances = calibration.apply(scores)
    assert chances.shape == scores.shape
    assert ((chances == -np.inf) == (scores == -np.inf)).all()
    assert (chances[scores > -np.inf] > 0.5).all()
    assert calibration.apply(np.zeros((0, 3))).shape == (0, 3)
    with pytest.raises(DataError, match="is NaN"):
        calibration.apply([np.nan])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("within", [True, False])
def test_what_is_kept_gives_the_same_calibration(method: Any, within: bool) -> None:
    scores, hits = planted(1.0, 0.0, 300)
    scores = sigmoid(scores) if within else scores
    calibration = fit_calibration(method, scores, hits)
    values = json.loads(json.dumps(calibration.values()))
    assert all(array.dtype == np.float64 for array in calibration.arrays().values())
    again = Calibration.restored(values, SavedState(State(arrays=calibration.arrays())))
    np.testing.assert_array_equal(again.apply(scores), calibration.apply(scores))


@pytest.mark.parametrize(
    ("values", "arrays"),
    [
        ({}, {}),
        ({"method": "beta"}, {}),
        ({"method": "isotonic"}, {"points": [0.0]}),
        ({"method": "isotonic"}, {"points": [], "chances": []}),
        ({"method": "isotonic"}, {"points": [0.0, 1.0], "chances": [0.5]}),
        ({"method": "isotonic"}, {"points": [1.0, 0.0], "chances": [0.1, 0.2]}),
        ({"method": "isotonic"}, {"points": [0.0, 1.0], "chances": [0.2, 0.1]}),
        ({"method": "isotonic"}, {"points": [0.0, 1.0], "chances": [0.2, 1.1]}),
        ({"method": "isotonic"}, {"points": [0.0, 1.0], "chances": [np.nan, 0.1]}),
        ({"method": "isotonic"}, {"points": [0.0], "chances": [np.nan]}),
        ({"method": "platt", "slope": -1.0, "offset": 0.0, "logits": True}, {}),
        ({"method": "platt", "slope": 1.0, "offset": float("nan"), "logits": True}, {}),
        ({"method": "platt", "slope": None, "offset": 0.0, "logits": True}, {}),
        ({"method": "platt", "slope": 1.0, "offset": 0.0, "logits": "yes"}, {}),
        ({"method": "platt", "slope": 1.0, "offset": 0.0}, {}),
    ],
)
def test_parts_that_do_not_fit_are_refused(values: dict[str, Any], arrays: dict[str, Any]) -> None:
    given = {name: np.array(array) for name, array in arrays.items()}
    with pytest.raises((ValueError, KeyError, TypeError, ModelFormatError)):
        Calibration.restored(values, SavedState(State(arrays=given)))


def test_too_little_to_fit_on_is_refused() -> None:
    scores, hits = np.linspace(0, 1, 20), np.arange(20) > 10
    with pytest.raises(DataError, match=r"9 scored labels are too few.*more validation documents"):
        fit_calibration("platt", scores[:9], hits[:9])
    for same, which in ((np.ones(20, dtype=bool), "all"), (np.zeros(20, dtype=bool), "none")):
        with pytest.raises(DataError, match=f"{which} of the 20 scored labels.*more validation documents"):
            fit_calibration("isotonic", scores, same)
    for bad in (np.inf, -np.inf, np.nan, 1e39):
        with pytest.raises(DataError, match="infinite or NaN"):
            fit_calibration("isotonic", np.append(scores, bad), np.append(hits, True))
    with pytest.raises(DataError, match=r"\(20,\) and \(19,\)"):
        fit_calibration("isotonic", scores, hits[1:])
    with pytest.raises(ConfigError, match=r"isotonic, platt\. Got 'beta'"):
        fit_calibration("beta", scores, hits)  # type: ignore[arg-type]
