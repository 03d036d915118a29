"""Shade the words of a text by the strength of their evidence for a label, for the terminal and for pages.

Evidence may overlap, as a bigram overlaps its two words; there the weights are added, so that each character is shown
once. Strength is relative to the strongest stretch, in five steps; weights below a tenth of it are not shaded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from xmtc.core.explanation import Explanation, TokenEvidence

STEPS = 5


@dataclass(frozen=True)
class Stretch:
    """A range of characters with the same evidence; none between words that have evidence."""

    start: int
    end: int
    parts: tuple[TokenEvidence, ...] = ()

    @property
    def weight(self) -> float:
        """Sum of the weights of the evidence."""
        return math.fsum(part.weight for part in self.parts)


def stretches(found: Explanation) -> list[Stretch]:
    """Split the text wherever evidence begins or ends; in order, without gaps or overlaps."""
    size = len(found.text)
    tokens = [item for item in found.evidence if isinstance(item, TokenEvidence) and item.start < min(item.end, size)]
    begins: dict[int, list[TokenEvidence]] = {}
    for token in tokens:
        begins.setdefault(max(token.start, 0), []).append(token)
    cuts = sorted({0, size, *begins, *(min(token.end, size) for token in tokens)})
    cut: list[Stretch] = []
    open_now: list[TokenEvidence] = []
    for start, end in pairwise(cuts):
        open_now = [token for token in open_now if token.end > start] + begins.get(start, [])
        cut.append(Stretch(start, end, tuple(open_now)))
    return cut


def levels(cut: Sequence[Stretch]) -> list[int]:
    """Shading levels from −5 (strongest evidence against the label) over 0 (none) to 5 (strongest evidence for it)."""
    weights = [stretch.weight for stretch in cut]
    peak = max(map(abs, weights), default=0.0)
    return [int(math.copysign(int(STEPS * abs(weight) / peak + 0.5), weight)) if weight else 0 for weight in weights]
