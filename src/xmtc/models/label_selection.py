"""Conversion of label keys or numbers given by a caller to a model's label numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import DataError, nearest, shown
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK

Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]
Choice = Iterable[str] | NDArray[Any]
"""Labels given as keys, as an array of numbers, or as a boolean mask."""


def allowed_labels(labels: LabelIndex, allow: Choice | None, deny: Choice | None) -> Mask | None:
    """(L,) mask of the labels that may be returned; None for all."""
    if allow is None and deny is None:
        return None
    allowed = np.ones(len(labels), dtype=bool) if allow is None else _mask(labels, allow, "allow")
    if deny is not None:
        allowed = allowed & ~_mask(labels, deny, "deny")
    if not allowed.any():
        raise DataError(
            f"'allow' and 'deny' exclude all of the model's {len(labels):,} labels. Allow more, or deny fewer."
        )
    return None if allowed.all() else allowed


def _mask(labels: LabelIndex, choice: Choice, name: str) -> Mask:
    count = len(labels)
    if isinstance(choice, np.ndarray) and choice.dtype == bool and choice.shape == (count,):
        return choice
    if isinstance(choice, str) or not hasattr(choice, "__iter__"):
        raise DataError(f"'{name}' must be a list of label keys. Got {shown(repr(choice))}.")
    if isinstance(choice, np.ndarray) and choice.dtype.kind in "biuf":
        if choice.ndim != 1 or choice.dtype.kind not in "iu":
            form = f"{choice.ndim}-d {choice.dtype}"
            raise DataError(f"'{name}' must be label keys or a 1-d array of label numbers. Got {form}.")
        outside = choice[(choice < 0) | (choice >= count)]
        if outside.size:
            raise DataError(f"'{name}': label number {outside[0]} is out of range: the model has {count:,} labels.")
        numbers = choice
    else:
        numbers = _known(labels, [str(key) for key in choice], f"'{name}': label")
    mask = np.zeros(count, dtype=bool)
    mask[numbers] = True
    return mask


def _known(labels: LabelIndex, keys: list[str], what: str) -> Labels:
    """The numbers of these keys; DataError for unknown keys."""
    numbers = labels.ids(keys)
    if (numbers < 0).any():
        unknown = keys[int(np.argmax(numbers < 0))]
        close = nearest(unknown, labels.keys) or " Pass label keys."
        raise DataError(f"{what} '{shown(unknown)}' is not among the model's {len(labels):,} labels.{close}")
    return numbers


def padded(array: NDArray[Any], width: int, pad: float) -> NDArray[Any]:
    """Rows of labels or scores with at least `width` columns."""
    if array.shape[1] >= width:
        return array
    return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=pad)


def candidate_labels(labels: LabelIndex, candidates: Any, rows: int) -> Labels:
    """(n, c) label numbers, −1 as padding."""
    if isinstance(candidates, TopK):
        candidates = _renumbered(labels, candidates)
    if not isinstance(candidates, np.ndarray):
        candidates = _numbered(labels, candidates)
    numbers = np.asarray(candidates)
    if numbers.ndim != 2 or numbers.shape[0] != rows or numbers.dtype.kind not in "iu":
        raise DataError(f"candidates must be {rows} rows of label numbers. Got shape {numbers.shape}.")
    if numbers.size and int(numbers.max()) >= len(labels):
        raise DataError(f"label number {int(numbers.max())} is out of range: the model has {len(labels):,} labels.")
    return np.maximum(numbers.astype(np.int64), -1)


def _numbered(labels: LabelIndex, lists: Sequence[Sequence[str]]) -> Labels:
    """Lists of keys as an (n, c) array; DataError for unknown keys."""
    rows = [list(row) for row in lists]
    width = max((len(row) for row in rows), default=0)
    numbers = np.full((len(rows), width), -1, dtype=np.int64)
    flat = _known(labels, [str(key) for row in rows for key in row], "candidate")
    start = 0
    for i, row in enumerate(rows):
        numbers[i, : len(row)] = flat[start : start + len(row)]
        start += len(row)
    return numbers


def _renumbered(labels: LabelIndex, answer: TopK) -> Labels:
    """The labels of other predictions in this model's numbering."""
    if answer.index is labels:
        return answer.labels
    filled = answer.labels >= 0
    used, places = np.unique(answer.labels[filled], return_inverse=True)
    numbers = np.full(answer.labels.shape, -1, dtype=np.int64)
    numbers[filled] = _known(labels, answer.index.strings("key", used), "candidate")[places]
    return numbers
