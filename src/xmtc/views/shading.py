"""How strongly each stretch of a text speaks for a label, for a terminal and for a page.

Evidence may overlap, as a pair of words overlaps its two words: where it does, weights are added, so that each
character is shown once. Strength is relative to the strongest stretch, in five steps; what weighs less than a tenth
of it stays unshaded.
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
    """A range of characters under the same evidence; there is none between the words that count."""

    start: int
    end: int
    parts: tuple[TokenEvidence, ...] = ()

    @property
    def weight(self) -> float:
        return math.fsum(part.weight for part in self.parts)


def stretches(found: Explanation) -> list[Stretch]:
    """The whole text cut wherever evidence begins or ends; in order, without gaps or overlaps."""
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
    """From −5 for what speaks most against the label over 0, unshaded, to 5 for what speaks most for it."""
    weights = [stretch.weight for stretch in cut]
    peak = max(map(abs, weights), default=0.0)
    return [int(math.copysign(int(STEPS * abs(weight) / peak + 0.5), weight)) if weight else 0 for weight in weights]
