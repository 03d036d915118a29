"""Candidates: a linear tree proposes labels, so that a network need not score them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Self

import numpy as np

from xmtc.config import Settings
from xmtc.dataset import Csr, Dataset
from xmtc.models.base import Labels, Mask, Run
from xmtc.models.parabel import Parabel
from xmtc.runtime import Runtime
from xmtc.store import State

PREFIX = "candidates"
"""What the names of all that is kept of a proposer begin with."""
BEAM = 20
"""Nodes that are followed on each level: more than where a tree has the last word."""


@dataclass(frozen=True)
class CandidateSettings(Settings):
    """Which labels the network scores."""

    kind: Literal["auto", "none", "tree"] = "auto"
    """All ('none'), or those that a linear tree proposes; 'auto' asks a tree where scoring all takes long."""
    count: int = 500
    """Labels that are proposed for a document."""

    of = "candidates"
    searched = False

    def check(self) -> None:
        self.require_range("count", 1)


class Proposer:
    """One linear tree on tf-idf."""

    def __init__(self, tree: Parabel) -> None:
        self._tree = tree

    @classmethod
    def fit(cls, train: Dataset, run: Run) -> Self:
        """A tree over the labels of training documents."""
        assert train.labels is not None
        tree = cls._new(np.bincount(train.labels.indices, minlength=train.labels.shape[1]), run.runtime)
        tree._fit(train, None, run)
        return cls(tree)

    @staticmethod
    def _new(counts: np.ndarray, runtime: Runtime) -> Parabel:
        tree = Parabel(trees=1, beam=BEAM)
        tree.label_counts, tree.runtime = counts, runtime
        return tree

    def best(self, batch: Dataset, count: int, allowed: Mask | None, runtime: Runtime) -> Labels:
        """(n, count) labels, −1 where there are fewer."""
        self._tree.runtime = runtime
        return self._tree._predict(batch, count, allowed)[0]

    def recall(self, batch: Dataset, truth: Csr, count: int, runtime: Runtime) -> float:
        """Share of the labels of documents that are proposed."""
        found = self.best(batch, min(count, truth.shape[1]), None, runtime)
        rows = np.repeat(np.arange(len(found)), found.shape[1])
        labels = found.ravel()
        is_there = np.asarray(truth[rows[labels >= 0], labels[labels >= 0]]) != 0
        return float(is_there.sum() / max(1, truth.nnz))

    def state(self) -> State:
        """What to keep, under names of its own."""
        state = self._tree._state()
        return State(
            {PREFIX: state.values},
            {f"{PREFIX}.{name}": array for name, array in state.arrays.items()},
            {f"{PREFIX}_{name}": table for name, table in state.tables.items()},
        )

    @classmethod
    def from_state(cls, state: State, counts: np.ndarray, runtime: Runtime) -> Self | None:
        """What was kept, if there was anything."""
        if PREFIX not in state.values:
            return None
        tree = cls._new(counts, runtime)
        begin, start = f"{PREFIX}.", f"{PREFIX}_"
        tree._restore(
            State(
                state.values[PREFIX],
                {name.removeprefix(begin): a for name, a in state.arrays.items() if name.startswith(begin)},
                {name.removeprefix(start): t for name, t in state.tables.items() if name.startswith(start)},
            )
        )
        return cls(tree)
