"""An explanation as an HTML page: the text with shaded words, and the evidence in tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from xmtc.core.explanation import (
    AspectEvidence,
    Explanation,
    GroupEvidence,
    MemberEvidence,
    NeighbourEvidence,
    PathStep,
    TokenEvidence,
)
from xmtc.views.pages import render
from xmtc.views.shading import Stretch, levels, stretches

MOST_ROWS = 20


def page(found: Explanation) -> str:
    """Render an explanation as one self-contained HTML file without scripts."""
    cut = stretches(found)
    shades = levels(cut)
    texts = [found.text[each.start : each.end].replace("\r\n", "\n").replace("\r", "\n") for each in cut]
    tips = [_tip(each) if each.parts else "" for each in cut]
    sides = [("for", "attention" if found.shares else "evidence for the label")] if max(shades, default=0) > 0 else []
    if min(shades, default=0) < 0:
        sides.append(("against", "evidence against it"))
    label = " ".join(found.label.split())
    return render(
        "explanation.html",
        found=found,
        short_label=label if len(label) <= 90 else label[:89].rstrip() + "…",
        stretches=list(zip(texts, shades, tips, strict=True)),
        sides=sides,
        most_rows=MOST_ROWS,
        path=_path_rows(found.path),
        feature_peak=max((abs(item.weight) for item in found.features), default=0.0),
        **_evidence(found),
    )


def _tip(stretch: Stretch) -> str:
    """Tooltip with the weight and, if several pieces of evidence overlap, its parts."""
    if len(stretch.parts) == 1:
        return f"{stretch.weight:+.4f}"
    parts = sorted(stretch.parts, key=lambda part: (part.end - part.start, part.start))
    return f"{stretch.weight:+.4f} = {', '.join(f'{part.text} {part.weight:+.4f}' for part in parts)}"


def _evidence(found: Explanation) -> dict[str, Any]:
    """The evidence grouped by kind, as table rows."""
    tokens = [item for item in found.evidence if isinstance(item, TokenEvidence)]
    aspects = [(str(item.aspect), item) for item in found.evidence if isinstance(item, AspectEvidence)]
    groups = [(item.label, item) for item in found.evidence if isinstance(item, GroupEvidence)]
    weighted = (TokenEvidence, AspectEvidence, GroupEvidence)
    return {
        "tokens": sorted(tokens, key=lambda item: (-abs(item.weight), item.start)),
        "aspects": aspects,
        "groups": groups,
        "peak": max((abs(item.weight) for item in found.evidence if isinstance(item, weighted)), default=0.0),
        "steps": _path_rows(item for item in found.evidence if isinstance(item, PathStep)),
        "neighbours": [
            [
                f"{item.similarity:.4f}",
                "yes" if item.holds else "no",
                f"{100 * item.share:.1f} %" if item.holds else "",
                item.id,
                item.snippet,
                ", ".join(item.labels),
            ]
            for item in found.evidence
            if isinstance(item, NeighbourEvidence)
        ],
        "members": [
            [f"{item.score:.4f}", item.model, f"{100 * item.share:.0f} %"]
            for item in found.evidence
            if isinstance(item, MemberEvidence)
        ],
    }


def _path_rows(steps: Iterable[PathStep]) -> list[list[str]]:
    return [[f"{step.probability:.4f}", str(step.depth), ", ".join(step.labels)] for step in steps]
