"""Training curves small enough to stand beside others: the loss and the validation score, each a picture of its own."""

from __future__ import annotations

from collections.abc import Sequence

from xmtc.views.line_chart import line_chart
from xmtc.views.training_curves import Curve, averaged

_MOST_POINTS = 150


def small_curves(name: str, curves: Sequence[Curve], against: str = "epoch") -> list[str]:
    """One SVG for the losses of a training and one for its scores; only those for which there is something to draw."""
    runs = list(dict.fromkeys(curve.run for curve in curves))
    names = [_told(curve, len(runs) > 1) for curve in curves]
    losses = {
        told: [(point.at, point.value) for point in averaged(curve.losses, _MOST_POINTS)]
        for told, curve in zip(names, curves, strict=True)
        if curve.losses
    }
    scores = {
        told: [(point.at, 100 * point.value) for point in curve.scores]
        for told, curve in zip(names, curves, strict=True)
        if curve.scores
    }
    best = {
        told: (curve.best.at, 100 * curve.best.value)
        for told, curve in zip(names, curves, strict=True)
        if curve.best is not None
    }
    below = f"{against}s"
    found = []
    if losses:
        found.append(line_chart(f"{name}: training loss", losses, below=below, beside="loss", points=False))
    if scores:
        title = f"{name}: validation score"
        found.append(line_chart(title, scores, below=below, beside="nDCG@5, %", rings=best))
    return found


def _told(curve: Curve, several: bool) -> str:
    """What sets a curve apart from the others of its model: the member, the level; '' where there is but one."""
    member = curve.run.rpartition(", ")[2] if several else ""
    level = "" if curve.level is None else f"level {curve.level + 1}"
    return ", ".join(words for words in (member, level) if words)
