"""Scores against how often they are right: by hand, on planted scores whose error is known, and as a picture."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.cli.show import reliability_table, reliability_words
from xmtc.core.errors import DataError
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.metrics import Reliability, ReliabilityBin, reliability
from xmtc.views.reliability import reliability_plot
from xmtc.views.svg import gid

SVG = "{http://www.w3.org/2000/svg}"
Array = np.ndarray[Any, Any]


def answer(labels: Any, scores: Any, known: int = 10) -> TopK:
    return TopK(labels, scores, LabelIndex.from_keys([str(label) for label in range(known)]))


def held(rows: list[list[int]], labels: int = 10) -> sp.csr_array:
    truth = np.zeros((len(rows), labels), dtype=np.float32)
    for row, numbers in enumerate(rows):
        truth[row, numbers] = 1
    return sp.csr_array(truth)


def found(top: TopK, truth: sp.csr_array, k: int = 5, bins: int = 15) -> Reliability:
    result = reliability(top, truth, k, bins)
    assert result is not None
    return result


def planted(right: Any, documents: int = 20_000, seed: int = 0) -> tuple[TopK, sp.csr_array]:
    """Five labels a document with scores drawn evenly; each is true with the probability that `right` makes of it."""
    drawn = np.random.default_rng(seed)
    scores = -np.sort(-drawn.random((documents, 5)), axis=1)
    truth = sp.csr_array((drawn.random((documents, 5)) < right(scores)).astype(np.float32))
    return answer(np.tile(np.arange(5), (documents, 1)), scores, known=5), truth


# ---- the measure


def test_by_hand() -> None:
    # Sorted: 0.1 miss, 0.2 hit | 0.5 miss, 0.7 hit | 0.9 hit; five pairs in three bins.
    top = answer([[0, 1, 2], [3, 4, -1]], [[0.9, 0.5, 0.2], [0.7, 0.1, -np.inf]])
    result = found(top, held([[0, 2], [3]]), bins=3)
    assert (result.k, result.pairs) == (5, 5)
    expected = [(2, 0.15, 0.5, 0.1, 0.2), (2, 0.6, 0.5, 0.5, 0.7), (1, 0.9, 1.0, 0.9, 0.9)]
    for each, numbers in zip(result.bins, expected, strict=True):
        assert tuple(vars(each).values()) == pytest.approx(numbers, abs=1e-6)
    assert result.error == pytest.approx((2 * 0.35 + 2 * 0.1 + 1 * 0.1) / 5, abs=1e-6)


def test_only_the_first_k_count() -> None:
    top = answer([[0, 1], [2, 3]], [[0.75, 0.5], [0.75, 0.5]])
    result = found(top, held([[1], [2]]), k=1, bins=1)
    assert result.bins == (ReliabilityBin(2, 0.75, 0.5, 0.75, 0.75),)
    assert result.error == 0.25


@pytest.mark.parametrize("seed", range(4))
def test_agrees_with_the_definition(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    labels = drawn.integers(-1, 12, (50, 6))  # pads, repeats, and labels beyond the truth
    scores = drawn.integers(0, 8, (50, 6)) / 8  # with ties
    truth = [np.flatnonzero(drawn.random(10) < 0.3).tolist() for _ in range(50)]
    pairs = []
    for row, numbers in enumerate(labels.tolist()):
        for rank, label in enumerate(numbers[:5]):
            if label >= 0 and label not in numbers[:rank]:
                pairs.append((scores[row, rank], label in truth[row]))
    pairs.sort(key=lambda pair: pair[0])
    shared = [(score, np.mean([hit for other, hit in pairs if other == score])) for score, _ in pairs]
    error = 0.0
    for part in np.array_split(np.array(shared), 15):
        error += len(part) / len(pairs) * abs(part[:, 0].mean() - part[:, 1].mean())
    result = found(answer(labels, scores, known=12), held(truth))
    assert result.pairs == len(pairs)
    assert result.error == pytest.approx(error, abs=1e-12)


def test_calibrated_scores_have_next_to_no_error() -> None:
    assert found(*planted(lambda scores: scores)).error < 0.012


@pytest.mark.parametrize("gap", [0.1, 0.25])
def test_overconfident_scores_have_the_planted_error(gap: float) -> None:
    result = found(*planted(lambda scores: (1 - gap) * scores))
    assert result.error == pytest.approx(gap / 2, abs=0.012)  # scores are 0.5 on average
    assert sum(each.confidence > each.accuracy for each in result.bins) >= 13


def test_too_low_scores_have_an_error_too() -> None:
    assert found(*planted(lambda scores: scores + (1 - scores) / 2)).error == pytest.approx(0.25, abs=0.012)


def test_bins_have_equal_mass_and_follow_each_other() -> None:
    result = found(*planted(lambda scores: scores, documents=101))
    assert sorted({each.count for each in result.bins}, reverse=True) == [34, 33]  # 505 pairs in 15
    counts = [each.count for each in result.bins]
    assert counts == sorted(counts, reverse=True)
    assert sum(counts) == result.pairs == 505
    for first, second in zip(result.bins, result.bins[1:], strict=False):
        assert first.lowest <= first.confidence <= first.highest <= second.lowest


def test_fewer_pairs_than_bins() -> None:
    result = found(answer([[0, 1]], [[0.5, 0.25]]), held([[0]]))
    assert [each.count for each in result.bins] == [1, 1]
    assert result.error == pytest.approx((0.5 + 0.25) / 2)


def test_ties_share_their_hits() -> None:
    top = answer([[0], [1], [2], [3]], [[0.5]] * 4)
    first, second = found(top, held([[0], [1], [], []]), bins=2).bins
    assert (first.accuracy, second.accuracy) == (0.5, 0.5)
    # Sorted: 0.25 miss | 0.5 hit, 0.5 miss, 0.5 miss; the middle one of the ties is in the first of two bins.
    other = answer([[0], [1], [2], [3]], [[0.5], [0.25], [0.5], [0.5]])
    first, second = found(other, held([[0], [], [], []]), bins=2).bins
    assert (first.accuracy, second.accuracy) == pytest.approx((1 / 6, 1 / 3))


@pytest.mark.parametrize("seed", range(3))
def test_the_order_of_documents_with_many_ties_does_not_matter(seed: int) -> None:
    drawn = np.random.default_rng(seed)
    scores = -np.sort(-drawn.integers(0, 4, (300, 5)) / 4, axis=1)
    truth = sp.csr_array((drawn.random((300, 5)) < 0.4).astype(np.float32))
    labels = np.tile(np.arange(5), (300, 1))
    expected = found(answer(labels, scores, known=5), truth)
    mixed = drawn.permutation(300)
    assert found(answer(labels, scores[mixed], known=5), truth[mixed]) == expected


def test_the_order_of_documents_does_not_matter() -> None:
    top, truth = planted(lambda scores: scores**2, documents=200)
    mixed = np.random.default_rng(1).permutation(200)
    other = TopK(top.labels[mixed], top.scores[mixed], top.index)
    assert len(np.unique(top.scores)) == top.scores.size
    assert found(other, truth[mixed]) == found(top, truth)


def test_a_repeated_label_counts_once() -> None:
    top = answer([[0, 0, 1]], [[0.75, 0.5, 0.25]])
    assert [each.lowest for each in found(top, held([[0]])).bins] == [0.25, 0.75]


def test_a_label_beyond_the_truth_is_a_miss() -> None:
    result = found(answer([[9]], [[1.0]]), held([[0]], labels=2))
    assert result.bins == (ReliabilityBin(1, 1.0, 0.0, 1.0, 1.0),)


def test_both_ends_are_probabilities() -> None:
    assert found(answer([[0, 1]], [[1.0, 0.0]]), held([[0]])).error == 0.0


@pytest.mark.parametrize("score", [1.001, -0.001, math.inf, -math.inf, math.nan])
def test_other_scores_are_none(score: float) -> None:
    top = answer([[0, 1]], [[0.5, score]])
    assert reliability(top, held([[0]])) is None
    assert reliability(top, held([[0]]), k=1) is not None  # only what is looked at counts


def test_without_predictions_there_is_none() -> None:
    assert reliability(answer([[-1, -1]], [[-np.inf, -np.inf]]), held([[0]])) is None
    assert reliability(answer(np.empty((1, 0)), np.empty((1, 0))), held([[0]])) is None


@pytest.mark.parametrize(("k", "bins", "name"), [(0, 15, "k"), (5, 0, "bins"), (5, 1.5, "bins")])
def test_bad_numbers_are_refused(k: Any, bins: Any, name: str) -> None:
    with pytest.raises(DataError, match=f"'{name}' must be an integer ≥ 1"):
        reliability(answer([[0]], [[0.5]]), held([[0]]), k, bins)


def test_rows_must_fit() -> None:
    with pytest.raises(DataError, match="1 rows"):
        reliability(answer([[0]], [[0.5]]), held([[0], [1]]))


# ---- words and picture

SOME = Reliability(5, 0.2, (ReliabilityBin(1200, 0.25, 0.5, 0.125, 0.375), ReliabilityBin(1199, 0.75, 0.6, 0.5, 1.0)))


def drawn(name: str = "model", of: Reliability = SOME) -> ElementTree.Element:
    return ElementTree.fromstring(reliability_plot(name, of).svg())


def artist(axes: Any, kind: str) -> Any:
    (found,) = [each for each in axes.get_children() if each.get_gid() == gid(kind)]
    return found


def test_words_and_table() -> None:
    assert reliability_words(SOME) == "expected calibration error of the top 5 labels: 0.2000 (2 equal-sized bins)"
    assert reliability_words(Reliability(5, 0.2, SOME.bins[:1])).endswith("(1 equal-sized bin)")
    assert reliability_table(SOME).splitlines() == [
        "scores            mean score  observed precision  pairs",
        "-------------------------------------------------------",
        "0.1250 to 0.3750      0.2500              0.5000  1,200",
        "0.5000 to 1.0000      0.7500              0.6000  1,199",
    ]


def test_points_lie_where_their_numbers_are() -> None:
    axes, _ = reliability_plot("model", SOME).figure.axes
    assert (axes.get_xlim(), axes.get_ylim(), axes.get_aspect()) == ((0, 1), (0, 1), 1)
    assert artist(axes, "diagonal").get_xydata().tolist() == [[0, 0], [1, 1]]
    (bins,) = [each for each in axes.collections if (each.get_gid() or "").startswith("bin|")]
    points = [(each.confidence, each.accuracy) for each in SOME.bins]
    assert [tuple(place) for place in bins.get_offsets().tolist()] == points
    ranges = [line.tolist() for line in artist(axes, "range").get_segments()]
    assert ranges == [[[each.lowest, each.accuracy], [each.highest, each.accuracy]] for each in SOME.bins]
    distances = [line.tolist() for line in artist(axes, "distance").get_segments()]
    assert distances == [[[x, y], [x, x]] for x, y in points]  # each ends at the diagonal


def test_the_svg_shows_the_points_in_proportion() -> None:
    picture = drawn()
    first, second = picture.iterfind(f".//{SVG}circle[@class='bin']")
    diagonal = picture.find(f".//{SVG}path[@class='diagonal']")
    assert diagonal is not None
    left, bottom, right, top = (float(number) for number in re.findall(r"[\d.]+", diagonal.attrib["d"]))
    assert right - left == pytest.approx(bottom - top, abs=0.2)
    for each, bin_ in zip((first, second), SOME.bins, strict=True):
        assert float(each.attrib["cx"]) == pytest.approx(left + (right - left) * bin_.confidence, abs=0.2)
        assert float(each.attrib["cy"]) == pytest.approx(bottom - (bottom - top) * bin_.accuracy, abs=0.2)


def test_nothing_lies_outside_the_picture() -> None:
    for name in ("m", "x" * 300):
        plot = reliability_plot(name, found(*planted(lambda scores: scores, documents=40)))
        plot.figure.draw_without_rendering()
        width, height = 72 * plot.figure.get_size_inches()
        box = plot.figure.get_tightbbox()
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert 72 * box.x1 <= width
        assert 72 * box.y1 <= height


def test_the_picture_says_what_it_shows() -> None:
    picture = drawn('<b> & "c"')
    assert picture.attrib["role"] == "img"
    assert picture.findtext(f"{SVG}title") == 'Reliability of <b> & "c"'
    assert "expected calibration error 0.2000" in (picture.findtext(f"{SVG}desc") or "")
    words = ["".join(each.itertext()) for each in picture.iter(f"{SVG}text")]
    assert {'<b> & "c"', "score", "observed precision", "expected calibration error 0.2000"} <= set(words)
    assert any(said.startswith("2,399 predictions") for said in words)
    tips = [each.findtext(f"{SVG}title") for each in picture.iterfind(f".//{SVG}circle[@class='bin']")]
    assert tips[0] == "scores 0.1250 to 0.3750, mean 0.2500: 0.5000 of 1,200 are true"
    assert drawn("a\x00b\ud800") is not None  # what XML cannot carry


def test_the_panel_below_adds_up_the_pairs() -> None:
    _, axes = reliability_plot("model", SOME).figure.axes
    (left, bottom), *inner, (right, top), (_, end), _ = artist(axes, "spread").get_xy().tolist()
    assert (left, bottom, right, top, end) == (0, 0, 1, 100, 0)
    assert [number for pair in inner for number in pair] == pytest.approx(
        [0.125, 0.0, 0.375, 100 * 1200 / 2399, 1.0, 100.0]
    )
