"""Rankings without redundant labels: of a label and its broader labels, the narrowest or the broadest.

A label is displaced by a narrower label with at least half its score, so that a narrower label with hardly any score
does not remove a good one. Take the first m labels of a ranking and, of these, only those that none of the m displaces.
The result has the labels for the smallest m that leaves k of them; for all labels of the ranking if no m does.
`broadest` exchanges narrower and broader. A label whose score is not positive is displaced only by labels that rank
higher. Labels that are broader than each other, in a cycle, are neither.
"""

from __future__ import annotations

from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.labels.hierarchy import Hierarchy

Keep = Literal["narrowest", "broadest"]
Numbers = NDArray[np.int64]
DEEPER = 2
"""How many times as many labels are ranked at first, and in each further attempt."""
DEPTH = 1_000
"""Number of labels at which the ranking of a document ends, unless k is larger."""
SHARE = 0.5
"""The fraction of a label's score that a label needs to displace it."""
CELLS = 1 << 22
"""Labels ranked at once when documents are ranked deeper."""


class Rank(Protocol):
    """Ranks the labels of documents to a depth."""

    def __call__(self, dataset: Dataset, k: int, *, candidates: Numbers | None) -> TopK:
        """The k best labels of each document."""
        ...


class Irredundant:
    """Leaves out labels that a narrower or a broader returned label makes redundant."""

    def __init__(self, hierarchy: Hierarchy, keep: Keep) -> None:
        self._hierarchy, self._keep = hierarchy, keep

    @classmethod
    def of(cls, labels: LabelIndex, how: str) -> Irredundant | None:
        """The selection of this kind; None to keep all labels."""
        if how == "keep":
            return None
        if how not in ("narrowest", "broadest"):
            raise ConfigError(f"'hierarchy' must be keep, narrowest or broadest. Got {shown(repr(how))}.")
        hierarchy = Hierarchy.of(labels)
        if not hierarchy:
            raise DataError(no_hierarchy("leave out 'hierarchy'"))
        return cls(hierarchy, "narrowest" if how == "narrowest" else "broadest")

    def ranked(
        self, rank: Rank, dataset: Dataset, k: int, allowed: NDArray[np.bool_] | None, candidates: Numbers | None
    ) -> TopK:
        """The first k labels of each document after redundant ones are left out, as if the 1,000 best were ranked.

        Beyond that, or beyond 2k labels, nothing is ranked: a document may get fewer than k labels.
        """
        k = min(k, self._hierarchy.label_count)
        most = self._hierarchy.label_count if allowed is None else int(np.count_nonzero(allowed))
        if candidates is None:
            most = min(most, max(DEPTH, DEEPER * k))
            depth = min(DEEPER * k, most)
        else:
            most = depth = min(most, candidates.shape[1])
        answer, rows = self._reduced(rank(dataset, depth, candidates=candidates), k)
        while len(rows) and depth < most:
            depth = min(DEEPER * depth, most)
            left = [rows[:0]]
            for block in np.array_split(rows, -(-len(rows) * depth // CELLS)):
                deeper, unfinished = self._reduced(rank(dataset.take(block), depth, candidates=None), k)
                answer.labels[block], answer.scores[block] = deeper.labels, deeper.scores
                left.append(block[unfinished])
            rows = np.concatenate(left)
        return answer

    def reduced(self, top: TopK, k: int | None) -> TopK:
        """The first k labels of each document after redundant ones are left out; all that are left if k is None."""
        return self._reduced(top, top.k if k is None else k)[0]

    def _reduced(self, top: TopK, k: int) -> tuple[TopK, Numbers]:
        """(n, k) labels, and the documents that may get more of them if they are ranked deeper."""
        places, full = irredundant_places(top.labels, top.scores, self._hierarchy, self._keep, k)
        labels = np.append(top.labels, np.full((len(top), 1), -1), axis=1)  # place −1 is the padding
        scores = np.append(top.scores, np.full((len(top), 1), np.float32(-np.inf)), axis=1)
        found = top.relabelled(np.take_along_axis(labels, places, axis=1), np.take_along_axis(scores, places, axis=1))
        return found, np.flatnonzero(~full & (top.labels >= 0).all(axis=1))


def no_hierarchy(remedy: str) -> str:
    """The message for labels without broader labels."""
    return (
        "no label of the model has a broader label among the labels. "
        f"Train with a vocabulary that gives broader labels (--labels), or {remedy}."
    )


def irredundant_places(
    labels: Numbers, scores: NDArray[np.float32], hierarchy: Hierarchy, keep: Keep, k: int
) -> tuple[Numbers, NDArray[np.bool_]]:
    """(n, k) places of the labels to return in rankings (n, d), padded with −1; (n,) which rows have all k.

    Rankings are padded with −1 at the end. A row without k labels may get more if it is ranked deeper.
    """
    count, depth = labels.shape
    displaced = _displaced(labels, scores, hierarchy, keep)  # (n, d) a label is returned for place < m ≤ displaced
    place = np.arange(depth)
    alive = (labels >= 0) & (displaced > place)
    changes = np.zeros((count, depth + 2), dtype=np.int64)  # of the number of labels returned, at each m
    changes[:, 1 : depth + 1] += alive
    rows, places = np.nonzero(alive)
    np.subtract.at(changes, (rows, displaced[rows, places] + 1), 1)
    enough = np.cumsum(changes, axis=1)[:, : depth + 1] == k  # the number grows by at most 1 at a time
    full = enough.any(axis=1)
    m = np.where(full, enough.argmax(axis=1), depth)[:, None]
    chosen = alive & (place < m) & (displaced >= m)
    found = np.full((count, k), -1, dtype=np.int64)
    rows, places = np.nonzero(chosen)
    sizes = chosen.sum(axis=1)
    found[rows, np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = places
    return found, full


def _displaced(labels: Numbers, scores: NDArray[np.float32], hierarchy: Hierarchy, keep: Keep) -> Numbers:
    """(n, d) the first place of a label that displaces the label at each place; d if there is none."""
    depth = labels.shape[1]
    displaced = np.full(labels.shape, depth, dtype=np.int64)
    rows, places = np.nonzero(labels >= 0)
    used, numbers = np.unique(labels[rows, places], return_inverse=True)
    narrow, broad = _strict_pairs(used, hierarchy)
    removed, remover = (broad, narrow) if keep == "narrowest" else (narrow, broad)
    order = np.argsort(remover, kind="stable")
    starts = np.searchsorted(remover[order], np.arange(len(used) + 1))
    sizes = np.diff(starts)[numbers]
    each = np.repeat(np.arange(len(numbers)), sizes)
    at = np.repeat(starts[numbers] - (np.cumsum(sizes) - sizes), sizes) + np.arange(len(each))
    wanted = rows[each] * len(used) + removed[order][at]  # the label to remove, in the same row
    codes = rows * len(used) + numbers
    by_code = np.argsort(codes)
    target = by_code[np.minimum(np.searchsorted(codes, wanted, sorter=by_code), len(codes) - 1)]
    present = codes[target] == wanted
    target, each = target[present], each[present]
    own, other = scores[rows[target], places[target]], scores[rows[each], places[each]]
    strong = (places[each] < places[target]) | ((own > 0) & (other >= SHARE * own))
    target, each = target[strong], each[strong]
    np.minimum.at(displaced, (rows[target], places[target]), places[each])
    return displaced


def _strict_pairs(used: Numbers, hierarchy: Hierarchy) -> tuple[Numbers, Numbers]:
    """(narrower, broader) positions in `used` of labels of which one is above the other, but not also below it."""
    above = hierarchy.above(used)
    narrow = np.repeat(np.arange(len(used)), np.diff(above.indptr))
    at = np.minimum(np.searchsorted(used, above.indices), max(len(used) - 1, 0))
    kept = (used[at] == above.indices) & (at != narrow) if len(used) else np.zeros(0, dtype=bool)
    narrow, broad = narrow[kept], at[kept]
    codes = narrow * len(used) + broad
    strict = ~np.isin(codes, broad * len(used) + narrow)
    return narrow[strict], broad[strict]
