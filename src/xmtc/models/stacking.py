"""Stacking: boosted trees that rank labels by the probabilities and ranks that several models give them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import DataError
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.decisions import combining
from xmtc.decisions.calibration import logit, sigmoid
from xmtc.decisions.combining import EDGE, LEAST_PAIRS, Answer, Chances, Gathered
from xmtc.lexical.boosted_trees import BoostedTrees
from xmtc.lexical.tree_training import BoostingSettings

BOOSTING = BoostingSettings(trees=200, max_leaves=16, learning_rate=0.1, min_rows=40, l2=5.0)
SHARED = 4
"""Features that do not belong to one member: frequency, noisy-or, mean of the logits, number of members."""
PER_MEMBER = 3
"""Features of each member: logit, difference from its best label's logit, rank."""
MISSING = -12.0
"""Logit of a label that a member does not propose; those of proposed labels are at least −9.2."""
VALIDATION = 0.1
"""Fraction of the documents for early stopping."""
LEAST_DOCUMENTS = 100
"""Minimum number of documents to learn from."""


@dataclass(frozen=True)
class OutOfFold:
    """Predictions of models that were not trained on the documents they are for, to learn a combination from."""

    answers: Sequence[TopK]
    """For each member, the predictions for all documents."""
    folds: NDArray[np.int64]
    """(n,) the fold of each document."""
    counts: NDArray[np.int64]
    """(folds, L) training documents of each label when a fold was predicted."""
    index: LabelIndex
    """The labels of `counts`."""

    def numbered_answers(self, labels: LabelIndex, depth: int) -> list[Answer]:
        """The first `depth` labels of each prediction with other label numbers, and their scores."""
        found = []
        for answer in self.answers:
            numbers = labels.ids(answer.index.table["key"].combine_chunks())
            first = answer.labels[:, :depth]
            found.append((np.where(first >= 0, numbers[first], -1), answer.scores[:, :depth]))
        return found

    def numbered_counts(self, labels: LabelIndex) -> NDArray[np.int64]:
        """(folds, L) `counts` with other label numbers."""
        numbers = labels.ids(self.index.table["key"].combine_chunks())
        counts = np.zeros((len(self.counts), len(labels)), dtype=np.int64)
        counts[:, numbers[numbers >= 0]] = self.counts[:, numbers >= 0]
        return counts


@dataclass(frozen=True)
class StackedTrees:
    """Boosted trees on features of (document, label) pairs."""

    trees: BoostedTrees
    threads: int = field(default=1, compare=False)

    @classmethod
    def fit(
        cls, rows: NDArray[np.float32], hits: NDArray[np.bool_], documents: NDArray[np.int64], seed: int, threads: int
    ) -> StackedTrees:
        """Learn from the features (pairs, f), whether each label is true (pairs,), and its document (pairs,)."""
        if (rare := min(int(hits.sum()), int((~hits).sum()))) < LEAST_PAIRS or documents[-1] + 1 < LEAST_DOCUMENTS:
            raise DataError(
                f"{rare:,} true or wrong labels in {documents[-1] + 1:,} documents are too few to learn stacked trees; "
                f"the minimum is {LEAST_PAIRS} in {LEAST_DOCUMENTS}. Provide more documents, or set combine=noisy-or."
            )
        valid = np.random.default_rng(seed).random(int(documents[-1]) + 1) < VALIDATION
        held = valid[documents]
        targets = hits.astype(np.float32)
        trees = BoostedTrees.fit(
            rows[~held],
            targets[~held],
            settings=BOOSTING,
            valid=(rows[held], targets[held]) if held.any() else None,
            seed=seed,
            threads=threads,
        )
        return cls(trees, threads)

    def __call__(self, gathered: Gathered, frequency: Chances) -> Chances:
        """Compute probabilities (n, u), 0 if no member proposes the label."""
        chances = np.zeros(gathered.labels.shape)
        proposed: NDArray[np.bool_] = np.asarray(gathered.held.any(axis=0))
        rows = stacking_rows(gathered, frequency, proposed)
        chances[proposed] = sigmoid(self.trees.margins(rows, self.threads).astype(np.float64))
        return chances

    def shares(self, gathered: Gathered, frequency: Chances) -> Chances:
        """Return the contribution (m, n, u) of each member to the margin, compared with a missing label."""
        proposed: NDArray[np.bool_] = np.asarray(gathered.held.any(axis=0))
        whole = self.trees.margins(stacking_rows(gathered, frequency, proposed), self.threads)
        found = np.zeros((len(gathered.held), *gathered.labels.shape))
        for place in range(len(gathered.held)):
            keep = (np.arange(len(gathered.held)) != place)[:, None, None]
            without = replace(gathered, chances=gathered.chances * keep, held=gathered.held & keep)
            found[place][proposed] = whole - self.trees.margins(stacking_rows(without, frequency, proposed))
        return found

    def state(self) -> dict[str, NDArray[np.float32]]:
        """The arrays to save."""
        return self.trees.state()

    @classmethod
    def restored(cls, state: SavedState, members: int, threads: int) -> StackedTrees:
        """Restore from checked arrays."""
        return cls(BoostedTrees.restored(state, SHARED + PER_MEMBER * members), threads)


def stacking_rows(gathered: Gathered, frequency: Chances, chosen: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Build the features (pairs, f) of the chosen (n, u) pairs of documents and labels."""
    document, _ = np.nonzero(chosen)
    logits = [
        np.where(held[chosen], logit(chances[chosen], EDGE), MISSING)
        for held, chances in zip(gathered.held, gathered.chances, strict=True)
    ]
    together = logit(combining.noisy_or(gathered.chances[:, chosen][:, None])[0], EDGE)
    columns = [frequency[chosen], together, np.mean(logits, axis=0), gathered.held[:, chosen].sum(axis=0)]
    members = zip(logits, gathered.answers, gathered.held, combining.ranks(gathered), strict=True)
    for own, (labels, chances), held, ranks in members:
        best = chances.max(axis=1, initial=0.0)  # padding is −∞
        is_ranked = held[chosen] & (ranks[chosen] >= 0)
        columns += [own, own - logit(best, EDGE)[document], np.where(is_ranked, ranks[chosen], labels.shape[1])]
    return np.stack(columns, axis=1).astype(np.float32)
