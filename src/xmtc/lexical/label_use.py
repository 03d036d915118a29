"""How labels were used in training documents: features of candidates beside those of the match."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from xmtc.data.dataset import Csr
from xmtc.decisions.thresholds import hits_among
from xmtc.lexical.match_types import FREQUENCY, MATCH, PRECISION
from xmtc.lexical.matching import Candidates

PRIOR = 2.0
"""Weight of the average precision of all names in the precision of one name, in documents."""


class NameUse(NamedTuple):
    """How often the names of labels occur in training documents, and how often the label was assigned then."""

    matched: NDArray[np.int64]  # (L,) documents in which a name of the label occurs
    confirmed: NDArray[np.int64]  # (L,) those of them with the label

    @classmethod
    def none(cls, labels: int) -> NameUse:
        """No documents."""
        return cls(np.zeros(labels, dtype=np.int64), np.zeros(labels, dtype=np.int64))

    def counted(self, found: Candidates, labels: Csr) -> NameUse:
        """Add documents with their candidates and their labels."""
        occurs = (found.labels >= 0) & (found.features[:, :, MATCH] > 0)
        right = occurs & hits_among(found.labels, labels)
        return NameUse(
            *(
                count + np.bincount(found.labels[mask], minlength=len(count))
                for count, mask in zip(self, (occurs, right), strict=True)
            )
        )

    def relabelled(self, numbers: NDArray[np.int64], labels: int) -> NameUse:
        """Renumber the labels; −1 drops a label, and counts of merged labels are added."""
        new = NameUse.none(labels)
        stay = np.flatnonzero(numbers >= 0)
        for counts, before in zip(new, self, strict=True):
            np.add.at(counts, numbers[stay], before[stay])
        return new


def label_features(counts: NDArray[np.int64], names: NameUse) -> NDArray[np.float32]:
    """(L, 2) frequency of each label, and precision of its name.

    A label without training documents has frequency 0 and no precision.
    """
    average = names.confirmed.sum() / max(int(names.matched.sum()), 1)
    precision = (names.confirmed + PRIOR * average) / (names.matched + PRIOR)
    precision[(counts == 0) | (names.matched == 0)] = np.nan
    return np.stack([np.log1p(counts), precision], axis=1).astype(np.float32)


def add_use(found: Candidates, use: NDArray[np.float32]) -> NDArray[np.float32]:
    """Write the features of labels (L, 2) into those of their candidates, in place."""
    found.features[:, :, FREQUENCY] = use[found.labels, 0]
    found.features[:, :, PRECISION] = use[found.labels, 1]
    return found.features


def padded_rows(labels: Csr) -> NDArray[np.int64]:
    """(n, c) the labels of each document, padded with −1."""
    counts = np.diff(labels.indptr)
    out = np.full((len(counts), max(int(counts.max(initial=0)), 1)), -1, dtype=np.int64)
    out[np.arange(out.shape[1]) < counts[:, None]] = labels.indices
    return out
