"""Choose the documents to compare models on: stratified folds, or a part held out at random, by group or by time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from xmtc.core.errors import DataError, check_positive, shown
from xmtc.data.dataset import Dataset
from xmtc.data.split_by import SplitBy, is_time, split_values
from xmtc.data.split_by import split_by as split_documents_by
from xmtc.data.splitting import Rows, document_groups, split
from xmtc.data.splitting import folds as stratified


@dataclass(frozen=True, eq=False)
class Validation:
    """Parts of a training set to validate on; models for a part are trained on the rest."""

    kind: Literal["folds", "held out", "by group", "by time", "given"]
    parts: tuple[tuple[Rows, Rows], ...]
    """Rows to train on and rows to validate on, of each part. A document is validated on at most once."""
    field: str | None = None
    """The field by which documents are split."""
    since: str | None = None
    """The earliest value of that field that is held out, if it is a time."""

    @cached_property
    def documents(self) -> int:
        """Number of documents to validate on, in all parts."""
        return sum(len(held) for _, held in self.parts)

    def describe(self) -> str:
        """A sentence for people about how the documents were chosen."""
        name, number = shown(self.field or ""), f"{self.documents:,} documents"
        if self.kind == "given":
            return f"{number} given for validation"
        if self.kind == "by time":
            return f"the latest {number} by '{name}', from {shown(self.since or '')} on; earlier ones are trained on"
        if self.kind == "by group":
            return f"{number} held out by '{name}'; documents with the same '{name}' or equal texts stay together"
        if self.kind == "held out":
            return (
                f"{number} held out at random; every label keeps a training document, and documents with equal texts "
                "stay together"
            )
        same = "equal texts" if self.field is None else f"the same '{name}' or equal texts"
        return f"{len(self.parts)} folds, stratified for rare labels; documents with {same} stay together"


def given_validation(train: Dataset, valid: Dataset) -> Validation:
    """Validation on a data set of its own; rows to validate on are rows of that data set."""
    held = np.flatnonzero(~valid.partial_rows())
    if not len(held):
        raise DataError(
            f"validation requires complete labels, but all {len(valid):,} documents have unknown ones. Add others."
        )
    return Validation("given", ((np.arange(len(train)), held),))


def plan_validation(
    documents: Dataset, *, folds: int, fraction: float, seed: int, split_by: SplitBy | None = None
) -> Validation:
    """Choose the documents to validate on.

    By a field with times, the latest `fraction` is held out. Otherwise two or more `folds` are stratified, or with
    one, `fraction` of the documents is held out; by a field with groups, no group is on both sides.

    Documents with partial labels are never validated on. They are trained on, except those that have the text or the
    group of a held-out document, or a time that is held out.
    """
    check_positive("folds", folds)
    by = split_by
    if by is not None and by.kind is None and folds > 1:
        by = replace(by, kind="time" if is_time(documents, by) else "group")
    if by is not None and (folds == 1 or by.kind == "time"):
        return _by_field(documents, by, fraction, seed)
    complete = np.flatnonzero(~documents.partial_rows())
    if not len(complete):
        raise DataError(
            f"validation requires complete labels, but all {len(documents):,} documents have unknown ones. Add others."
        )
    values = None if by is None else split_values(documents, by).dictionary_encode().combine_chunks().indices
    groups = document_groups(documents, groups=None if values is None else np.asarray(values, dtype=np.int64))
    asked = documents if len(complete) == len(documents) else documents.take(complete)
    if folds == 1:
        held = split(asked, fraction, seed=seed)["test"]
        return Validation("held out", (_part(complete[held], groups),))
    fold_of = stratified(asked, folds, seed, together=False, groups=groups[complete])
    parts = tuple(_part(complete[fold_of == fold], groups) for fold in range(folds))
    return Validation("folds", parts, None if by is None else by.field)


def _by_field(documents: Dataset, by: SplitBy, fraction: float, seed: int) -> Validation:
    found = split_documents_by(documents, by, fraction, seed)
    kind: Literal["by time", "by group"] = "by time" if found.kind == "time" else "by group"
    return Validation(kind, ((found.train, found.held_out),), by.field, found.since)


def _part(held: Rows, groups: Rows) -> tuple[Rows, Rows]:
    """Rows to train on and rows to validate on: no group of documents is on both sides."""
    on_other_side = np.zeros(int(groups.max()) + 1, dtype=bool)
    on_other_side[groups[held]] = True
    return np.flatnonzero(~on_other_side[groups]), held
