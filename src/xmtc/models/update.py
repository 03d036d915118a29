"""Updating a model with new documents and labels.

The update is applied to a copy, which replaces the model if it is not worse than before.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import DataError, RefusedError, UnsupportedError
from xmtc.core.kernel_cache import work_time
from xmtc.data.dataset import Csr, Dataset, stacked
from xmtc.data.label_index import LabelIndex
from xmtc.labels.name_documents import name_texts
from xmtc.metrics import ndcg
from xmtc.models.context import FitContext
from xmtc.models.relabelling import Labels, Relabelling, became, relabelled
from xmtc.models.replay import renewed

PREDICTED = 10
"""Labels predicted by the old model when looking for labels similar to a new one."""
MARGIN = 0.02
"""Maximum loss of nDCG@5; an update that loses more is refused."""
HELD_OUT = 1000
"""Maximum number of held-out new documents for validating an update; by default a tenth of the new ones."""
MIN_VALIDATION = 50
"""Minimum number of documents for validating an update; with fewer, the result would be noise."""


@dataclass(frozen=True)
class Request:
    """An update request. The labels of documents have their own numbering."""

    new: Dataset
    valid: Dataset | None = None
    replay: Dataset | None = None
    retire: Iterable[str] = ()
    merge: Mapping[str, str] | None = None
    margin: float = MARGIN
    force: bool = False
    is_validated: bool = True
    """Whether to hold out new documents for validation if no validation set is given."""
    vocabulary: LabelIndex | None = None
    """Current names and hierarchy of labels; its new labels are added if the model uses label names."""


@dataclass(frozen=True, eq=False)
class Change:
    """The input of a model's update. The labels of documents have the new numbering."""

    new: Dataset
    replay: Dataset | None
    """Earlier training documents."""
    labels: Relabelling
    documents_before: int
    counts_before: NDArray[np.int64]
    """(L before,) training documents of each label."""
    ask: Callable[[Dataset, int], tuple[Labels, NDArray[np.float32]]]
    """Predicts the best labels with the old model, in the old numbering, and their scores."""
    vocabulary: LabelIndex | None = None
    """The vocabulary of the update, if there is one."""
    name_weight: float = 0.0
    """Weight of the names of a new label, relative to one of its documents; 0 to ignore them."""

    @cached_property
    def documents(self) -> Dataset:
        """All documents to train on, the new ones first."""
        return self.new if self.replay is None else stacked([self.new, self.replay])

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n,) which of the documents were trained on before with the same labels."""
        known = np.arange(len(self.documents)) >= len(self.new)
        if self.labels.changes or self.labels.added:
            assert self.documents.labels is not None
            held = np.asarray(self.documents.labels @ (~self.labels.is_unchanged()).astype(np.float32)).ravel()
            known &= held == 0
        return known

    @cached_property
    def relatives(self) -> Csr:
        """(added, L before) old labels similar to each new one: those on its documents, or predicted for them.

        With a `name_weight`, the names of a label are one more document of this weight. Rows sum to one, or are empty
        if nothing is known about a new label.
        """
        if not self.labels.added or not len(self.labels.numbers):
            return sp.csr_array((self.labels.added, len(self.labels.numbers)), dtype=np.float32)
        near = self._near_documents()
        if not self.name_weight:
            return near
        first = len(self.labels.kept)
        assert self.documents.labels is not None
        counts = np.bincount(self.documents.labels.indices, minlength=len(self.labels.index))[first:].astype(np.float32)
        named = self._predicted(Dataset({"text": name_texts(self.labels.index).slice(first)}))
        return _shares(sp.csr_array(sp.diags_array(counts) @ near + np.float32(self.name_weight) * named))

    def _near_documents(self) -> Csr:
        """(added, L before) old labels on the documents of each new label, or predicted for them."""
        documents, labels = self.documents, self.documents.labels
        assert labels is not None
        first, before = len(self.labels.kept), len(self.labels.numbers)
        added = sp.csr_array(labels[:, first:])
        rows = np.flatnonzero(np.diff(added.indptr))
        if not len(rows):
            return sp.csr_array((self.labels.added, before), dtype=np.float32)
        shared = sp.csr_array(labels[rows, :first])
        held = sp.csr_array((shared.data, self.labels.kept[shared.indices], shared.indptr), shape=(len(rows), before))
        return _shares(sp.csr_array(added[rows].T @ (held + self._predicted(documents.take(rows)))))

    def _predicted(self, documents: Dataset) -> Csr:
        """(n, L before) the labels that the old model predicts; rows sum to one."""
        before = len(self.labels.numbers)
        found, scores = self.ask(documents, min(PREDICTED, before))
        likely = np.where((found >= 0) & np.isfinite(scores), np.maximum(scores, 0), 0).astype(np.float32)
        likely /= np.maximum(likely.sum(1, keepdims=True), np.finfo(np.float32).tiny)
        places = np.repeat(np.arange(len(documents)), found.shape[1]), np.maximum(found, 0).ravel()
        return sp.csr_array((likely.ravel(), places), shape=(len(documents), before))

    def carried(self, counts: NDArray[np.int64]) -> Csr:
        """(L, L before) each label as a mixture of old ones: itself, those merged into it by `counts`, or relatives."""
        before = len(self.labels.numbers)
        stay = np.flatnonzero(self.labels.numbers >= 0)
        weights = np.maximum(counts[stay], 1).astype(np.float64)
        totals = np.bincount(self.labels.numbers[stay], weights, len(self.labels.kept))
        places = self.labels.numbers[stay], stay
        own = sp.csr_array(
            ((weights / totals[places[0]]).astype(np.float32), places), shape=(len(self.labels.kept), before)
        )
        return sp.csr_array(sp.vstack([own, self.relatives])) if self.labels.added else own


def _shares(near: Csr) -> Csr:
    """Rows that sum to one, or are empty."""
    near.eliminate_zeros()
    totals = np.maximum(np.asarray(near.sum(axis=1)).ravel(), np.finfo(np.float32).tiny)
    near.data = (near.data / np.repeat(totals, np.diff(near.indptr))).astype(np.float32)
    return near


class Updatable(Protocol):
    """The interface that an update needs from a model."""

    training: dict[str, Any]
    history: list[dict[str, Any]]
    label_counts: NDArray[np.int64]

    @property
    def labels(self) -> LabelIndex:
        """The labels of the model."""

    @property
    def adds_unseen_labels(self) -> bool:
        """Whether new labels without documents are added."""

    @property
    def replay(self) -> Dataset | None:
        """The documents stored for replay."""

    @property
    def kept_for_replay(self) -> int:
        """Maximum number of documents stored for replay."""

    @property
    def name_weight(self) -> float:
        """Weight of a label's names in training."""

    def ask(self, documents: Dataset, k: int) -> tuple[Labels, NDArray[np.float32]]:
        """The k best labels of each document and their raw scores."""

    def learn(self, change: Change, run: FitContext) -> None:
        """Apply the update to this model."""

    def rename(self, change: Change) -> None:
        """Renew names and hierarchy of the labels, and nothing else."""

    def remember(self, documents: Dataset | None) -> None:
        """Store documents for replay."""


Learner = TypeVar("Learner", bound=Updatable)


def as_trained(dataset: Dataset, training: Mapping[str, Any], what: str) -> Dataset:
    """Return documents with labels if they match the model's input; otherwise raise an error."""
    if dataset.labels is None or dataset.label_index is None:
        raise DataError(f"{what} documents require labels. Pass one list of labels per document.")
    kind, width = "text" if dataset.has_text else "features", training.get("features")
    if kind != training["input"]:
        raise UnsupportedError(f"this model was trained on {training['input']}. Got {kind} for the update.")
    if width is not None and dataset.features is not None and dataset.features.shape[1] != width:
        raise DataError(
            f"the model was trained on {width:,} features. Got a matrix with {dataset.features.shape[1]:,} columns. "
            "Pass the same features."
        )
    return dataset.used_labels() if dataset.whole_vocabulary else dataset


def complete_documents(dataset: Dataset, what: str) -> Dataset:
    """The documents whose labels are all known; DataError if there are none."""
    complete = dataset.complete_documents()
    if len(dataset) and not len(complete):
        raise DataError(
            f"{what} requires complete labels, but all {len(dataset):,} documents have unknown ones. Add others."
        )
    return complete


def nothing_new(training: Mapping[str, Any]) -> Dataset:
    """An empty dataset, for an update that only removes or merges labels."""
    labels = sp.csr_array((0, 0), dtype=np.float32)
    if training["input"] == "features":
        return Dataset(features=sp.csr_array((0, training["features"]), dtype=np.float32), labels=labels)
    return Dataset({"text": pa.chunked_array([], pa.string())}, labels=labels)


def carry_out(model: Learner, request: Request, run: FitContext) -> Learner:
    """An updated copy of the model; the model itself is not changed."""
    started = work_time()
    known = became(entry["merged"] for entry in model.history)
    merge = dict(request.merge or {})
    accepted = request.new.without_rejected_only().label_index  # rejecting a label does not create it
    assert accepted is not None
    if request.vocabulary is not None and model.adds_unseen_labels:
        accepted = accepted.joined(request.vocabulary)
    labels = relabelled(model.labels, accepted, request.retire, merge, known).renewed(request.vocabulary)
    new, held, valid = labels.taken_over(request.new), None, request.valid
    if valid is None and request.is_validated and (~new.partial_rows()).sum() >= 10 * MIN_VALIDATION:
        new, held = _split(new, run.runtime.seed)
    validation = held if valid is None else labels.taken_over(valid.complete_documents())
    if validation is not None and len(validation) < MIN_VALIDATION:
        validation = None
    replay = request.replay if request.replay is not None else model.replay
    change = Change(
        new,
        None if replay is None or not len(replay) else labels.taken_over(replay),
        labels,
        int(model.training["documents"]),
        model.label_counts,
        lambda batch, k: model.ask(batch, k),
        request.vocabulary,
        model.name_weight,
    )
    before = None if validation is None else _quality(model, validation, labels.numbers)
    updated = copy.copy(model)
    changes = bool(len(new) or labels.changes or labels.added or merge)
    is_learnt = changes or request.vocabulary is None or model.adds_unseen_labels
    if is_learnt:
        updated.learn(change, run)
    else:  # only names and hierarchy change
        updated.rename(change)
    after = None if validation is None else _quality(updated, validation, None)
    if before is not None and after is not None and after < before - request.margin and not request.force:
        raise RefusedError(
            f"the update would lower nDCG@5 from {100 * before:.2f} to {100 * after:.2f} on {len(validation or ()):,} "
            f"documents, by more than the margin of {100 * request.margin:g}. Check the new documents, or use --force."
        )
    whole = new if held is None else stacked([new, held])  # held-out documents may be replayed later
    updated.remember(renewed(change.replay, whole, change.documents_before, model.kept_for_replay, run.runtime.seed))
    updated.history = [
        *model.history,
        {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "documents": len(new),
            "replayed": 0 if change.replay is None or not is_learnt else len(change.replay),
            "labels added": labels.added,
            "labels retired": int((labels.numbers < 0).sum()),
            "merged": merge,
            **_vocabulary_counts(request.vocabulary, model.labels, labels.index),
            "judged by": 0 if validation is None else len(validation),
            "held out": held is not None and validation is not None,
            "nDCG@5 before": None if before is None else round(before, 4),
            "nDCG@5 after": None if after is None else round(after, 4),
            "forced": request.force,
            "seconds": round(work_time() - started, 3),
        },
    ]
    return updated


def _vocabulary_counts(vocabulary: LabelIndex | None, before: LabelIndex, after: LabelIndex) -> dict[str, int]:
    """The size of the vocabulary of an update, and how many of its labels changed in the model and were left out."""
    if vocabulary is None:
        return {}
    keys = vocabulary.table["key"].combine_chunks()
    old, new = before.ids(keys), after.ids(keys)
    both = (old >= 0) & (new >= 0)
    return {
        "vocabulary": len(vocabulary),
        "labels updated": int(before.take(old[both]).differs(after.take(new[both])).sum()),
        "labels left out": int((new < 0).sum()),
    }


def _split(new: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Split new documents into those to train on and those held out for validation, which have complete labels."""
    order = np.random.default_rng([seed, 13]).permutation(len(new))
    complete = ~new.partial_rows()[order]
    chosen = np.flatnonzero(complete)[: min(HELD_OUT, int(complete.sum()) // 10)]
    return new.take(np.sort(np.delete(order, chosen))), new.take(np.sort(order[chosen]))


def _quality(model: Updatable, documents: Dataset, numbers: Labels | None) -> float:
    """nDCG@5 in the new label numbering; `numbers` maps the model's own labels to it."""
    assert documents.labels is not None
    found, _ = model.ask(documents, min(5, len(model.labels)))
    return ndcg(found if numbers is None else np.where(found >= 0, numbers[found], -1), documents.labels, 5)
