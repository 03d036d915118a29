"""Small hierarchies of labels, and slow reference computations on them."""

from __future__ import annotations

from collections import deque

import numpy as np

from xmtc.data.label_index import LabelIndex
from xmtc.labels.redundancy import Keep


def index_of(parents: dict[str, list[str]]) -> LabelIndex:
    return LabelIndex.from_keys(list(parents), parents=list(parents.values()))


PLANTS = index_of(
    {
        "plant": [],
        "tree": ["plant"],
        "fruit": ["plant"],
        "oak": ["tree"],
        "apple": ["tree", "fruit"],
        "rock": ["mineral"],  # the parent is not a label
        "self": ["self"],
    }
)


def drawn(seed: int, count: int = 40, acyclic: bool = False) -> LabelIndex:
    rng = np.random.default_rng(seed)
    links = [rng.integers(0, max(label, 1) if acyclic else count, rng.integers(0, 3)) for label in range(count)]
    return index_of({f"k{label}": [f"k{parent}" for parent in found] for label, found in enumerate(links)})


def slow_above(labels: LabelIndex, start: int) -> dict[int, int]:
    """Steps up to each label above a label, itself included, by a search in Python."""
    parents = labels.table["parents"].to_pylist()
    steps, waiting = {start: 0}, deque([start])
    while waiting:
        at = waiting.popleft()
        for key in parents[at]:
            parent = int(labels.ids([key])[0])
            if parent >= 0 and parent not in steps:
                steps[parent] = steps[at] + 1
                waiting.append(parent)
    return steps


Above = list[set[int]]


def all_above(labels: LabelIndex) -> Above:
    """The labels above each label."""
    return [set(slow_above(labels, label)) - {label} for label in range(len(labels))]


def irredundant(above: Above, ranking: list[int], scores: list[float], keep: Keep, k: int) -> list[int]:
    """The first k labels of a ranking without redundant ones: the definition, word for word."""
    score = dict(zip(ranking, scores, strict=True))

    def displaces(other: int, label: int) -> bool:
        narrow, broad = (other, label) if keep == "narrowest" else (label, other)
        higher = ranking.index(other) < ranking.index(label)
        strong = score[other] >= score[label] / 2 if score[label] > 0 else higher
        return strong and broad in above[narrow] and narrow not in above[broad]

    left: list[int] = []
    for m in range(1, len(ranking) + 1):
        first = ranking[:m]
        left = [label for label in first if not any(displaces(other, label) for other in first)]
        if len(left) == k:
            break
    return left
