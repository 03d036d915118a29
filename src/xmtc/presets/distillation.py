"""Distillation: a slow, accurate teacher improves the training set of a fast linear student.

The student is trained on soft targets, a mixture of the annotators' labels and the teacher's probabilities. A model
takes whole labels only, so each document occurs several times, once for each of a few levels: a copy has the labels
whose target reaches its level. The copies of a document together weigh as much as the document alone.

The lowest level follows from the teacher's probabilities of the labels that it ranks fifth. Where documents have few
labels these are small, and copies at high levels would all look the same from the third label on; where documents have
many, low levels would add labels that belong to ranks far below the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset, align_labels, not_accepted, stacked
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK
from xmtc.metrics import ndcg
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.models.replay import sample
from xmtc.models.update import complete_documents

TRUTH = 0.75
"""Weight of the annotators' labels in the targets; the teacher's probabilities have the rest."""
COST = 1.5
"""Factor of the student's cost of errors: soft targets contain less noise, and may be fitted more closely."""
COPIES = 4
"""Number of levels, and hence of copies of each document."""
RANK = 5
"""The lowest level is half the mean probability of the teacher's label of this rank, within `LOWEST`."""
LOWEST = 0.02, 0.35
HIGHEST = 0.7
"""The highest level. Levels are at equal ratios."""
STUDENTS = ("bonsai", "one_vs_all", "parabel")
"""Models whose training is unchanged if each document occurs several times at a part of its cost."""


@dataclass(frozen=True)
class TeacherLabels:
    """The teacher's labels for each document, out of fold if the document was in its training set."""

    labels: NDArray[np.int64]
    """(n, k) label numbers of the taught data set, −1 as padding; in any order."""
    probabilities: NDArray[np.float64]
    """(n, k) probability of each label; padding is ignored. Labels that are not listed have probability 0."""

    def __post_init__(self) -> None:
        if self.labels.ndim != 2 or self.labels.shape != self.probabilities.shape:
            raise DataError(
                "labels and probabilities of a teacher must be (n, k) arrays. "
                f"Got the shapes {self.labels.shape} and {self.probabilities.shape}."
            )
        given = self.probabilities[self.labels >= 0]
        if not ((given >= 0) & (given <= 1)).all():
            raise DataError("probabilities of a teacher must be from 0 to 1. Calibrate the teacher first.")

    @classmethod
    def of(cls, labels: ArrayLike, probabilities: ArrayLike) -> Self:
        """From arrays of any number type."""
        return cls(np.asarray(labels, dtype=np.int64), np.asarray(probabilities, dtype=np.float64))

    @classmethod
    def aligned(cls, answers: TopK, index: LabelIndex) -> Self:
        """Renumber the teacher's labels by the index of a data set; labels unknown there become padding."""
        numbers = answers.labels
        if answers.index is not index and len(answers.index):
            known = index.ids(answers.index.table["key"].combine_chunks())
            numbers = np.where(numbers >= 0, known[numbers], -1)
        return cls.of(numbers, answers.scores)

    def levels(self) -> tuple[float, ...]:
        """The levels of the copies, ascending; documents that the teacher has no labels for do not count."""
        listed = np.where(self.labels >= 0, self.probabilities, 0.0)[(self.labels >= 0).any(axis=1)]
        if listed.shape[1] < RANK or not len(listed):
            fifth = 0.0
        else:
            fifth = float(np.partition(listed, -RANK, axis=1)[:, -RANK].mean())
        lowest = float(np.clip(fifth / 2, *LOWEST))
        return tuple(float(level) for level in np.geomspace(lowest, HIGHEST, COPIES))

    def matrix(self, width: int) -> Csr:
        """(n, width) the probabilities; of a label listed twice, the larger one."""
        is_listed = self.labels >= 0
        if is_listed.any() and self.labels.max() >= width:
            raise DataError(f"label {self.labels.max()} of the teacher is out of range for {width:,} labels.")
        rows, places = np.nonzero(is_listed)
        columns, values = self.labels[rows, places], self.probabilities[rows, places]
        order = np.lexsort((-values, columns, rows))
        rows, columns, values = rows[order], columns[order], values[order]
        is_first = np.ones(len(rows), dtype=bool)
        is_first[1:] = (rows[1:] != rows[:-1]) | (columns[1:] != columns[:-1])
        kept = (values[is_first].astype(np.float32), (rows[is_first], columns[is_first]))
        found = sp.csr_array(kept, shape=(len(self.labels), width))
        found.eliminate_zeros()
        return found


def taught(
    documents: Dataset,
    labels: ArrayLike,
    probabilities: ArrayLike,
    *,
    truth: float = TRUTH,
    levels: Sequence[float] | None = None,
    annotated: NDArray[np.bool_] | None = None,
) -> Dataset:
    """The training set of a student: a copy of all documents for each level, one after the other.

    `labels` (n, k) has the teacher's label numbers, padded with −1, and `probabilities` (n, k) their probabilities. The
    target of a label is `truth` if the annotators gave it, plus 1 − `truth` times its probability. `annotated` (n,)
    marks the documents that have been annotated, all by default; in the others, the target is the probability.
    `levels` are chosen from the teacher's probabilities if they are not given.

    Rejected labels never become labels. In documents with partial labels, accepted labels stay in all copies, unknown
    labels have their probability as target, and those that the teacher does not list stay unknown.
    """
    if documents.labels is None:
        raise DataError("distillation requires labels. Pass one list of labels per document.")
    teacher = TeacherLabels.of(labels, probabilities)
    if len(teacher.labels) != len(documents):
        raise DataError(
            f"{len(documents):,} documents but {len(teacher.labels):,} rows of the teacher. Pass one row per document."
        )
    if not 0 <= truth <= 1:
        raise ConfigError(f"'truth' of distillation must be a number from 0 to 1. Got {truth:g}.")
    levels = teacher.levels() if levels is None else levels
    if not levels or not all(0 < level <= 1 for level in levels):
        raise ConfigError("'levels' of distillation must be numbers above 0 and up to 1.")
    targets, unknown = _targets(documents, teacher, truth, annotated)
    together = stacked([_copy(documents, targets, unknown, level) for level in levels])
    return replace(together, whole_vocabulary=documents.whole_vocabulary)


def _targets(
    documents: Dataset, teacher: TeacherLabels, truth: float, annotated: NDArray[np.bool_] | None
) -> tuple[Csr, Csr]:
    """(n, L) targets from 0 to 1, and the teacher's labels of partial documents that annotators left open."""
    given = documents.labels
    assert given is not None
    expected = teacher.matrix(int(given.shape[1]))
    if documents.rejected is not None:
        expected = not_accepted(expected, documents.rejected)
    partial = documents.partial_rows()
    unknown = _scaled(not_accepted(expected, given), partial.astype(np.float32))
    by_annotators = np.where(partial, 1.0, truth)
    by_teacher = np.where(partial, 0.0, 1.0 - truth)
    if annotated is not None:
        by_teacher = np.where(annotated | partial, by_teacher, 1.0)
    return sp.csr_array(_scaled(given, by_annotators) + _scaled(expected, by_teacher) + unknown), unknown


def _scaled(matrix: Csr, factors: NDArray[Any]) -> Csr:
    """Multiply rows by factors; drop zeros."""
    values = matrix.data * np.repeat(factors, np.diff(matrix.indptr)).astype(np.float32)
    scaled = sp.csr_array((values, matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
    scaled.eliminate_zeros()
    return scaled


def _ones(matrix: Csr, kept: NDArray[np.bool_]) -> Csr:
    """A 1 for each of these entries."""
    found = sp.csr_array((kept.astype(np.float32), matrix.indices, matrix.indptr), shape=matrix.shape, copy=True)
    found.eliminate_zeros()
    found.sort_indices()
    return found


def _copy(documents: Dataset, targets: Csr, unknown: Csr, level: float) -> Dataset:
    accepted = _ones(targets, targets.data >= np.float32(level))
    rejected = documents.rejected
    if unknown.nnz:
        unlikely = _ones(unknown, unknown.data < np.float32(level))
        rejected = unlikely if rejected is None else sp.csr_array(rejected + unlikely)
    return replace(documents, labels=accepted, rejected=rejected)


def distil(
    documents: Dataset,
    teacher: TopK,
    student: str,
    settings: Mapping[str, Any] | None = None,
    *,
    unlabelled: tuple[Dataset, TopK] | None = None,
    valid: Dataset | None = None,
    runtime: Runtime | None = None,
    progress: Progress = silent,
    workspace: Workspace | None = None,
) -> Model:
    """Train a linear model on documents and a teacher's probabilities of their labels.

    `teacher` has the teacher's answers for the documents, each by a teacher that was trained without the document: one
    that has seen the document repeats its labels. Some 20 to 50 labels for each are enough. `unlabelled` has further
    documents with the teacher's answers. With `valid`, documents that the teacher has not been trained on, a student
    that is worse than one trained without the teacher is replaced by the latter. Held-out training documents are no
    substitute: the teacher's answers for the others depend on their labels.
    """
    taught_documents = _TaughtDocuments.of(documents, teacher, unlabelled)
    trainer = _Student(student, settings or {}, runtime or Runtime())
    workspace = workspace or Workspace()
    plain: Model = trainer.plain(documents, progress, workspace.inner("plain"))
    model: Model = trainer.taught(taught_documents, _cost_of(plain), progress, workspace.inner("taught"))
    facts: dict[str, Any] = {"taught": True}
    if valid is not None:
        qualities = [_quality(each, valid) for each in (plain, model)]
        facts["valid nDCG@5"] = {"plain": round(qualities[0], 4), "taught": round(qualities[1], 4)}
        if qualities[1] < qualities[0]:
            model, facts["taught"] = plain, False
    model.facts = {**plain.facts, **facts}
    model.training = {**model.training, "documents": len(documents), "found": model.facts}
    return model


def _cost_of(model: Model) -> float:
    """The cost of errors that a linear model was trained with."""
    return float(model.facts.get("cost", model.config.cost))


def _quality(model: Model, valid: Dataset) -> float:
    complete = complete_documents(valid, "validation")
    truth, _ = align_labels(complete, model.labels)
    return float(ndcg(model.predict(complete, k=5).labels, truth, 5))


class _TaughtDocuments(NamedTuple):
    """Documents with labels, then those without, and the teacher's answers for both."""

    documents: Dataset
    teacher: TeacherLabels
    annotated: NDArray[np.bool_]  # (n,)

    @classmethod
    def of(cls, documents: Dataset, answers: TopK, unlabelled: tuple[Dataset, TopK] | None) -> _TaughtDocuments:
        if documents.labels is None or documents.label_index is None:
            raise DataError("distillation requires labels. Pass one list of labels per document.")
        teacher = TeacherLabels.aligned(answers, documents.label_index)
        if unlabelled is None:
            return cls(documents, teacher, np.ones(len(documents), dtype=bool))
        more, theirs = unlabelled
        if documents.has_text != more.has_text:
            raise DataError("documents with and without labels must both be texts, or both feature matrices.")
        none = sp.csr_array((len(more), documents.labels.shape[1]), dtype=np.float32)
        more = replace(more, labels=none, label_index=documents.label_index, rejected=None, partial=None)
        both = stacked([documents, more])
        further = TeacherLabels.aligned(theirs, documents.label_index)
        if len(further.labels) != len(more) or len(teacher.labels) != len(documents):
            raise DataError("the teacher's answers must have one row per document, in the same order.")
        width = max(teacher.labels.shape[1], further.labels.shape[1])
        joined = [
            np.concatenate([_widened(a, width, fill), _widened(b, width, fill)])
            for a, b, fill in (
                (teacher.labels, further.labels, -1),
                (teacher.probabilities, further.probabilities, 0.0),
            )
        ]
        both = replace(both, whole_vocabulary=documents.whole_vocabulary)
        return cls(both, TeacherLabels.of(*joined), np.arange(len(both)) < len(documents))

    def own(self) -> Dataset:
        """The annotated documents."""
        return self.documents if self.annotated.all() else self.documents.take(np.flatnonzero(self.annotated))


def _widened(values: NDArray[Any], width: int, fill: float) -> NDArray[Any]:
    return np.pad(values, ((0, 0), (0, width - values.shape[1])), constant_values=fill)


class _Student:
    """Trains a linear model, plainly or on a teacher's targets."""

    def __init__(self, name: str, settings: Mapping[str, Any], runtime: Runtime) -> None:
        if name not in STUDENTS:
            raise ConfigError(f"a teacher can teach {', '.join(STUDENTS)}. Got '{name}'.")
        self._class, self._settings, self._runtime = model_class(name), settings, runtime

    def plain(self, documents: Dataset, progress: Progress = silent, workspace: Workspace | None = None) -> Any:
        """Train on the annotators' labels."""
        model = self._class(**self._settings)
        return model.fit(documents, runtime=self._runtime, progress=progress, workspace=workspace)

    def taught(
        self,
        taught_documents: _TaughtDocuments,
        cost: float,
        progress: Progress = silent,
        workspace: Workspace | None = None,
    ) -> Any:
        """Train on copies of the documents; settings per document are rescaled, so that the copies count as one."""
        model = self._class(**self._settings)
        own, levels = model.config, taught_documents.teacher.levels()
        lower = cost * COST / len(levels)
        model.config = replace(
            own,
            cost=lower,
            prune=own.prune * min(1.0, cost) / min(1.0, lower),
            text=replace(own.text, min_df=own.text.min_df * len(levels)),
            keep_replay=0,
        )
        numbers, probabilities = taught_documents.teacher.labels, taught_documents.teacher.probabilities
        training = taught(
            taught_documents.documents, numbers, probabilities, levels=levels, annotated=taught_documents.annotated
        )
        model.fit(training, runtime=self._runtime, progress=progress, workspace=workspace)
        model.config, model._cost = own, cost  # updates have each document once
        documents = taught_documents.own()
        truth, _ = align_labels(documents, model.labels)
        model.label_counts = np.bincount(truth.indices, minlength=len(model.labels))[: len(model.labels)]
        model.remember(sample(documents, model.kept_for_replay, self._runtime.seed))
        return model
