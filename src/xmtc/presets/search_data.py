"""What a search aims at, and the documents that it trains and validates on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.data.dataset import Dataset
from xmtc.data.topk import TopK
from xmtc.presets.leaderboard import Leaderboard, TriedModel
from xmtc.presets.scores import Measure
from xmtc.presets.validation import Validation

DEPTH_OF_ANSWERS = 50
"""Labels per document that are kept of each model."""


def ignore_plan(board: Leaderboard) -> None:
    """Do not report the plan."""


@dataclass(frozen=True)
class SearchOptions:
    """What a search aims at, and its limits."""

    preset: str
    measure: Measure
    seconds: float | None
    max_ms: float | None = None
    """Milliseconds per document for the prediction of the final model."""
    max_mb: float | None = None
    """Size of the final model's folder in MiB."""
    valid: Dataset | None = None
    """Given validation documents."""
    most_folds: int = 5
    planned: Callable[[Leaderboard], None] = ignore_plan
    """Receives the leaderboard with the plan."""
    encoder: Path | None = None
    """Folder of a pretrained encoder for `best`."""

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of a prediction: time and size."""
        return (math.inf if self.max_ms is None else self.max_ms, math.inf if self.max_mb is None else self.max_mb)


@dataclass
class Tried:
    """A candidate with its out-of-fold predictions and its cost."""

    entry: TriedModel
    answer: TopK | None = None
    folder: Path | None = None
    """The model, trained on all documents."""


@dataclass
class SearchData:
    """Training documents, and how they are divided for validation."""

    train: Dataset
    valid: Dataset | None
    """Given validation documents; otherwise parts of the training documents are held out."""
    validation: Validation
    measured: Dataset = field(init=False)
    """The validation documents, in the order of the folds."""
    folds: NDArray[np.int64] = field(init=False)
    """(n,) the fold of each validation document."""
    counts: NDArray[np.int64] = field(init=False)
    """(folds, L) training documents of each label when a fold was predicted, scaled to the number of all documents:
    the final model is trained on all."""

    def __post_init__(self) -> None:
        parts = self.validation.parts
        assert self.train.labels is not None
        if self.valid is not None:
            self.measured = self.valid.take(parts[0][1])
            self.folds = np.zeros(len(self.measured), dtype=np.int64)
            self.counts = _label_counts(self.train)[None]
            return
        self.measured = self.train.take(np.concatenate([held for _, held in parts]))
        self.folds = np.repeat(np.arange(len(parts)), [len(held) for _, held in parts])
        whole = sp.csr_array(self.train.labels)
        width = int(whole.shape[1])
        found = [np.bincount(whole[rows].indices, minlength=width) * (len(self.train) / len(rows)) for rows, _ in parts]
        self.counts = np.rint(found).astype(np.int64)

    def parts(self) -> Iterator[tuple[Dataset, Dataset]]:
        """Documents to train on and to predict, for each fold."""
        if self.valid is not None:
            yield self.train, self.measured
            return
        for rows, held in self.validation.parts:
            yield self.train.take(rows), self.train.take(held)

    @property
    def rounds(self) -> float:
        """How many times the training set is learnt for one candidate, including the final training."""
        if self.valid is not None:
            return 1.0
        return 1.0 + sum(len(rows) for rows, _ in self.validation.parts) / len(self.train)


def _label_counts(documents: Dataset) -> NDArray[np.int64]:
    assert documents.labels is not None
    return np.bincount(documents.labels.indices, minlength=int(documents.labels.shape[1])).astype(np.int64)
