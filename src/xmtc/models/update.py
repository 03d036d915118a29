"""Learning from new documents and new labels: what a system is handed, and what surrounds it.

A system changes a copy of the model; the copy takes the model's place when it is found no worse than before.
"""

from __future__ import annotations

import copy
import time
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
from xmtc.data.dataset import Csr, Dataset, stacked
from xmtc.data.label_index import LabelIndex
from xmtc.metrics import ndcg
from xmtc.models.context import FitContext
from xmtc.models.relabelling import Labels, Relabelling, became, relabelled
from xmtc.models.replay import renewed

ASKED = 10
"""Labels that the model before an update is asked for, where the labels nearest to a new one are looked for."""
MARGIN = 0.02
"""Of nDCG@5: an update that loses more is refused."""
HELD_OUT = 1000
"""New documents that an update is judged by, at most; a tenth of them where no others are given."""
LEAST_JUDGED = 50
"""Documents without which nothing is said of an update: of fewer, chance decides."""


@dataclass(frozen=True)
class Request:
    """What is asked of an update. Documents have labels under numbers of their own."""

    new: Dataset
    valid: Dataset | None = None
    replay: Dataset | None = None
    retire: Iterable[str] = ()
    merge: Mapping[str, str] | None = None
    margin: float = MARGIN
    force: bool = False
    is_judged: bool = True
    """Whether new documents are held out to judge the update by, where no others are given."""


@dataclass(frozen=True, eq=False)
class Change:
    """What a system learns from in an update. Labels of documents have the numbers of afterwards."""

    new: Dataset
    replay: Dataset | None
    """Documents that were learnt from before."""
    labels: Relabelling
    documents_before: int
    counts_before: NDArray[np.int64]
    """(L before,) training documents of each label."""
    ask: Callable[[Dataset, int], tuple[Labels, NDArray[np.float32]]]
    """The best labels, under the numbers of before, that the model of before finds, and their scores."""

    @cached_property
    def documents(self) -> Dataset:
        """All that there is to learn from, the new ones first."""
        return self.new if self.replay is None else stacked([self.new, self.replay])

    @property
    def known(self) -> NDArray[np.bool_]:
        """(n,) which of the documents were learnt from before with the labels that they have now."""
        known = np.arange(len(self.documents)) >= len(self.new)
        if self.labels.changes or self.labels.added:
            assert self.documents.labels is not None
            made_of = np.bincount(self.labels.numbers[self.labels.numbers >= 0], minlength=len(self.labels.index))
            held = np.asarray(self.documents.labels @ (made_of != 1).astype(np.float32)).ravel()
            known &= held == 0
        return known

    @cached_property
    def relatives(self) -> Csr:
        """(added, L before) the labels nearest to each new one: those beside it, and those that its documents get.

        Rows add up to one, or are empty where nothing is known of a new label.
        """
        documents, labels = self.documents, self.documents.labels
        assert labels is not None
        first, before = len(self.labels.kept), len(self.labels.numbers)
        added = sp.csr_array(labels[:, first:])
        rows = np.flatnonzero(np.diff(added.indptr))
        if not len(rows) or not before:
            return sp.csr_array((self.labels.added, before), dtype=np.float32)
        beside = sp.csr_array(labels[rows, :first])
        held = sp.csr_array((beside.data, self.labels.kept[beside.indices], beside.indptr), shape=(len(rows), before))
        found, scores = self.ask(documents.take(rows), min(ASKED, before))
        likely = np.where((found >= 0) & np.isfinite(scores), np.maximum(scores, 0), 0).astype(np.float32)
        likely /= np.maximum(likely.sum(1, keepdims=True), np.finfo(np.float32).tiny)
        places = np.repeat(np.arange(len(rows)), found.shape[1]), np.maximum(found, 0).ravel()
        predicted = sp.csr_array((likely.ravel(), places), shape=(len(rows), before))
        near = sp.csr_array(added[rows].T @ (held + predicted))
        near.eliminate_zeros()
        totals = np.maximum(np.asarray(near.sum(axis=1)).ravel(), np.finfo(np.float32).tiny)
        near.data = (near.data / np.repeat(totals, np.diff(near.indptr))).astype(np.float32)
        return near

    def carried(self, counts: NDArray[np.int64]) -> Csr:
        """(L, L before) what each label is made of: itself, the labels that became it by `counts`, or its relatives."""
        before = len(self.labels.numbers)
        stay = np.flatnonzero(self.labels.numbers >= 0)
        weights = np.maximum(counts[stay], 1).astype(np.float64)
        totals = np.bincount(self.labels.numbers[stay], weights, len(self.labels.kept))
        places = self.labels.numbers[stay], stay
        own = sp.csr_array(
            ((weights / totals[places[0]]).astype(np.float32), places), shape=(len(self.labels.kept), before)
        )
        return sp.csr_array(sp.vstack([own, self.relatives])) if self.labels.added else own


class Updatable(Protocol):
    """What an update needs of a model."""

    training: dict[str, Any]
    history: list[dict[str, Any]]
    label_counts: NDArray[np.int64]

    @property
    def labels(self) -> LabelIndex: ...
    @property
    def replay(self) -> Dataset | None: ...
    @property
    def kept_for_replay(self) -> int: ...
    def ask(self, documents: Dataset, k: int) -> tuple[Labels, NDArray[np.float32]]: ...
    def learn(self, change: Change, run: FitContext) -> None: ...
    def remember(self, documents: Dataset | None) -> None: ...


Learner = TypeVar("Learner", bound=Updatable)


def as_trained(dataset: Dataset, training: Mapping[str, Any], what: str) -> Dataset:
    """Documents with labels, if they are of the kind that a model was trained on."""
    if dataset.labels is None or dataset.label_index is None:
        raise DataError(f"{what} documents need labels. Give one list of labels a document.")
    kind, width = "text" if dataset.has_text else "features", training.get("features")
    if kind != training["input"]:
        raise UnsupportedError(f"this model was trained on {training['input']}. Got {kind} in an update.")
    if width is not None and dataset.features is not None and dataset.features.shape[1] != width:
        raise DataError(
            f"the model knows {width:,} features. Got a matrix with {dataset.features.shape[1]:,} columns. "
            "Give it the features that it was trained on."
        )
    return dataset


def nothing_new(training: Mapping[str, Any]) -> Dataset:
    """No documents, as an update that only retires or merges labels has them."""
    labels = sp.csr_array((0, 0), dtype=np.float32)
    if training["input"] == "features":
        return Dataset(features=sp.csr_array((0, training["features"]), dtype=np.float32), labels=labels)
    return Dataset({"text": pa.chunked_array([], pa.string())}, labels=labels)


def carry_out(model: Learner, request: Request, run: FitContext) -> Learner:
    """A copy of the model that has learnt what is new; the model itself stays as it is."""
    started = time.perf_counter()
    assert request.new.label_index is not None
    known = became(entry["merged"] for entry in model.history)
    merge = dict(request.merge or {})
    labels = relabelled(model.labels, request.new.label_index, request.retire, merge, known)
    new, held, valid = labels.taken_over(request.new), None, request.valid
    if valid is None and request.is_judged and len(new) >= 10 * LEAST_JUDGED:
        new, held = _parted(new, run.runtime.seed)
    judged = held if valid is None else labels.taken_over(valid)
    if judged is not None and len(judged) < LEAST_JUDGED:
        judged = None
    replay = request.replay if request.replay is not None else model.replay
    change = Change(
        new,
        None if replay is None or not len(replay) else labels.taken_over(replay),
        labels,
        int(model.training["documents"]),
        model.label_counts,
        lambda batch, k: model.ask(batch, k),
    )
    before = None if judged is None else _quality(model, judged, labels.numbers)
    updated = copy.copy(model)
    updated.learn(change, run)
    after = None if judged is None else _quality(updated, judged, None)
    if before is not None and after is not None and after < before - request.margin and not request.force:
        raise RefusedError(
            f"the update would lower nDCG@5 from {100 * before:.2f} to {100 * after:.2f} on {len(judged or ()):,} "
            f"documents, by more than {100 * request.margin:g}. Look at the new documents, or use --force."
        )
    whole = new if held is None else stacked([new, held])  # those held out are learnt from when they are seen again
    updated.remember(renewed(change.replay, whole, change.documents_before, model.kept_for_replay, run.runtime.seed))
    updated.history = [
        *model.history,
        {
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "documents": len(new),
            "replayed": 0 if change.replay is None else len(change.replay),
            "labels added": labels.added,
            "labels retired": int((labels.numbers < 0).sum()),
            "merged": merge,
            "judged by": 0 if judged is None else len(judged),
            "held out": held is not None and judged is not None,
            "nDCG@5 before": None if before is None else round(before, 4),
            "nDCG@5 after": None if after is None else round(after, 4),
            "forced": request.force,
            "seconds": round(time.perf_counter() - started, 3),
        },
    ]
    return updated


def _parted(new: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """New documents to learn from, and those that are held out to judge the update by."""
    order = np.random.default_rng([seed, 13]).permutation(len(new))
    count = min(HELD_OUT, len(new) // 10)
    return new.take(np.sort(order[count:])), new.take(np.sort(order[:count]))


def _quality(model: Updatable, documents: Dataset, numbers: Labels | None) -> float:
    """nDCG@5, labels having the numbers of afterwards; `numbers` are those that the model's own have become."""
    assert documents.labels is not None
    found, _ = model.ask(documents, min(5, len(model.labels)))
    return ndcg(found if numbers is None else np.where(found >= 0, numbers[found], -1), documents.labels, 5)
