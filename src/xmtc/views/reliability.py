"""Reliability diagrams: predicted scores against observed precision.

Each point is one of the equal-mass bins: x is its mean score, with a bar from its lowest to its highest score, y is the
fraction of its labels that are true. Calibrated scores lie on the diagonal; the shaded area is the distance to it. The
panel below shows the cumulative distribution of the scores.
"""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING

from xmtc.core.errors import shown
from xmtc.views.pages import several
from xmtc.views.plot import Axes, Plot, draw_points, file_title, new_figure, plot_style, write_above
from xmtc.views.svg import gid
from xmtc.views.theme import ACCENT, FAINT, FILL

if TYPE_CHECKING:
    from xmtc.metrics import Reliability


@plot_style()
def reliability_plot(name: str, found: Reliability) -> Plot:
    """Plot two panels: score against observed precision, and the distribution of the scores."""
    title = file_title(name)
    error = f"expected calibration error {found.error:.4f}"
    bins = several(len(found.bins), "equal-sized bin")
    fact = f"{found.pairs:,} predictions (top {found.k} of each document) in {bins}"
    figure = new_figure(100 + max(400, 9 * len(title), 7 * len(fact)), 710)
    diagram, scores = figure.subplots(2, height_ratios=(4.4, 1))
    _draw_diagram(diagram, found)
    diagram.set_title(title, pad=44)
    write_above(diagram, error, 22, fontsize=12)
    write_above(diagram, fact, 6, fontsize=12)
    _draw_spread(scores, found)
    about = f"Mean score against observed precision: {error}; {fact}. Calibrated scores lie on the diagonal."
    return Plot(figure, f"Reliability of {title}", about)


@plot_style()
def small_reliability_plot(name: str, found: Reliability) -> Plot:
    """Plot the diagram alone, small enough for a grid of plots."""
    words = f"expected calibration error {found.error:.4f}"
    figure = new_figure(336, 350)
    axes = figure.add_subplot()
    _draw_diagram(axes, found)
    axes.set_title(shown(name, 34), pad=26)
    write_above(axes, words, 6, fontsize=12)
    about = f"Mean score against observed precision of {name}: {words}. Calibrated scores lie on the diagonal."
    return Plot(figure, f"Reliability of {name}", about)


def _draw_diagram(axes: Axes, found: Reliability) -> None:
    tenths = [tenth / 10 for tenth in range(0, 11, 2)]
    words = [f"{tenth:g}" for tenth in tenths]
    axes.set(xlabel="score", ylabel="observed precision", xlim=(0, 1), ylim=(0, 1), aspect="equal", anchor="W")
    axes.set_xticks(tenths, words)
    axes.set_yticks(tenths, words)
    axes.text(0.03, 0.95, "underconfident", color=FAINT)
    axes.text(0.97, 0.03, "overconfident", color=FAINT, ha="right")
    scores, shares = [each.confidence for each in found.bins], [each.accuracy for each in found.bins]
    outline = ([*scores, *reversed(scores)], [*shares, *reversed(scores)])
    axes.fill(*outline, color=ACCENT, alpha=0.16, linewidth=0, gid=gid("gap"))
    axes.plot([0, 1], [0, 1], color=FAINT, linewidth=1, linestyle="dashed", gid=gid("diagonal"))
    axes.vlines(scores, shares, scores, color=ACCENT, alpha=0.55, linewidth=1, gid=gid("distance"))
    lowest, highest = [each.lowest for each in found.bins], [each.highest for each in found.bins]
    axes.hlines(shares, lowest, highest, color=FILL, linewidth=4, gid=gid("range"))
    axes.plot(scores, shares, color=ACCENT, gid=gid("curve"))
    tips = [
        f"scores {each.lowest:.4f} to {each.highest:.4f}, mean {each.confidence:.4f}: "
        f"{each.accuracy:.4f} of {each.count:,} are true"
        for each in found.bins
    ]
    draw_points(axes, list(zip(scores, shares, strict=True)), 0, tips, size=3.4, color=ACCENT, kind="bin")


def _draw_spread(axes: Axes, found: Reliability) -> None:
    """Draw the cumulative distribution of the scores, known at the bin edges and linear in between."""
    ends = [(found.bins[0].lowest, 0.0)]
    for each, count in zip(found.bins, accumulate(each.count for each in found.bins), strict=True):
        ends.append((each.highest, 100 * count / found.pairs))
    axes.set(title="Cumulative distribution of scores", xlabel="score", ylabel="predictions (%)")
    axes.set(xlim=(0, 1), ylim=(0, 100), yticks=[0, 50, 100])
    axes.set_xticks([tenth / 10 for tenth in range(0, 11, 2)], [f"{tenth / 10:g}" for tenth in range(0, 11, 2)])
    outline = [(0.0, 0.0), *ends, (1.0, 100.0), (1.0, 0.0)]
    axes.fill(*zip(*outline, strict=True), color=FILL, gid=gid("spread"))
