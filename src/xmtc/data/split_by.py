"""Split documents by a field: a part without common groups, such as patients, or the latest documents."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.data.dataset import Dataset
from xmtc.data.splitting import Rows, check_seed, document_groups, random_order

_NUMBER = re.compile(r"[-+]?\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,3})?", re.ASCII)
_YEAR = re.compile(r"\d{4}", re.ASCII)
_MONTH = re.compile(r"\d{4}-\d{2}", re.ASCII)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS = range(1500, 2200)  # other numbers of four digits are not taken for years unless the field is said to be a time
_LENGTHS = (4, 7, 10)  # of a year, a month and a day as text


@dataclass(frozen=True)
class SplitBy:
    """A field to split documents by, and whether its values are groups or times; None to decide by the values."""

    field: str
    kind: Literal["group", "time"] | None = None

    @classmethod
    def parse(cls, text: str) -> SplitBy:
        """Parse 'FIELD', 'FIELD:group' or 'FIELD:time'."""
        name, _, kind = text.rpartition(":")
        by = cls(name, "group" if kind == "group" else "time") if kind in ("group", "time") else cls(text)
        if not by.field.strip():
            raise ConfigError(f"'{shown(text)}' names no field to split by. Pass FIELD, FIELD:group or FIELD:time.")
        return by


@dataclass(frozen=True, eq=False)
class FieldSplit:
    """Documents to train on and documents held out, split by a field."""

    kind: Literal["group", "time"]
    train: Rows
    held_out: Rows
    since: str | None = None
    """The earliest value held out, if the field is a time."""


def split_by(dataset: Dataset, by: SplitBy, fraction: float, seed: int = 0, *, together: bool = True) -> FieldSplit:
    """Hold out about this fraction of the documents, by the values of a field (`Dataset.split_values`).

    Groups: no value is on both sides; they are drawn at random, the same for a seed on every machine. With `together`,
    documents with the same text (or features and labels) are on the same side as well.
    Times: the latest documents are held out; equal times are on the same side. A text that recurs later is held out
    although it was trained on: that is what a model meets in use.

    Documents with partial labels are never held out. They are left out of training where their group or time is held
    out.
    """
    if not 0 < fraction < 1:
        raise ConfigError(f"the fraction to hold out must be between 0 and 1, such as 0.1. Got {fraction:g}.")
    check_seed(seed)
    values = split_values(dataset, by)
    times = None if by.kind == "group" else _times(values, by)
    complete = ~dataset.partial_rows()
    if not complete.any():
        raise DataError("no document has complete labels, so none can be held out. Add documents with complete labels.")
    if times is not None:
        return _latest(values, times, complete, by, fraction)
    codes = np.asarray(values.dictionary_encode().combine_chunks().indices, dtype=np.int64)
    held = _held_groups(document_groups(dataset, together, codes), complete, by, fraction, seed)
    return FieldSplit("group", np.flatnonzero(~held), np.flatnonzero(held & complete))


def split_values(dataset: Dataset, by: SplitBy) -> pa.ChunkedArray:
    """The value of each document in the field to split by; `DataError` if a document has none."""
    values, name = dataset.split_values, shown(by.field)
    if values is None:
        raise DataError(f"the documents were read without '{name}'. Read them with split_field=\"{name}\".")
    if values.null_count:
        raise DataError(
            f"{values.null_count:,} of {len(values):,} documents have no '{name}' to split by. "
            "Add it to each document, or split by another field."
        )
    return values


def is_time(dataset: Dataset, by: SplitBy) -> bool:
    """Whether the values of the field are times: if `by` says so, or else if they look like times.

    Dates, years (1500 to 2199) and numbers that never decrease and seldom repeat, such as timestamps, look like times.
    """
    return by.kind != "group" and _times(split_values(dataset, by), by) is not None


def _times(values: pa.ChunkedArray, by: SplitBy) -> NDArray[np.float64] | None:
    """(n,) the times as numbers; None if they look like groups. `DataError` if `by` says that they are times."""
    encoded = values.dictionary_encode().combine_chunks()
    different, codes = encoded.dictionary.to_pylist(), np.asarray(encoded.indices, dtype=np.int64)
    if all(map(_NUMBER.fullmatch, different)):
        numbers = np.array([float(value) for value in different])
        if not np.isfinite(numbers).all():
            return _refuse_as_time(different[int(np.argmin(np.isfinite(numbers)))], by)
        dates = all(len(value) in (4, 8) and _instant(value) is not None and _is_recent(value) for value in different)
        rising = len(different) > len(codes) / 2 and bool((np.diff(numbers[codes]) >= 0).all())
        if not dates or len({len(value) for value in different}) == 1:  # not a mixture of 2024 and 20240531
            return numbers[codes] if by.kind == "time" or dates or rising else None
    if (instants := _instants_of_arrow(encoded.dictionary)) is not None:
        recent = by.kind == "time" or all(map(_is_recent, different))
        return instants[codes] if recent else None
    for value in different:
        if _instant(value) is None or not (by.kind == "time" or _is_recent(value)):
            return _refuse_as_time(value, by)
    # Dates of different precision are compared by the coarsest: 2024 is neither before nor after 2024-05-31.
    length = min(map(len, map(_dated, different)))
    coarse = next((each for each in _LENGTHS if length <= each), None)
    seconds = [_instant(value if coarse is None else _dated(value)[:coarse]) for value in different]
    return np.array(seconds, dtype=np.float64)[codes]


def _refuse_as_time(value: str, by: SplitBy) -> NDArray[np.float64] | None:
    """None, since the values are groups; `DataError` if they should be times."""
    if by.kind == "time":
        raise DataError(
            f"'{shown(value)}' in '{shown(by.field)}' is not a time. Write dates such as 2024-05-31, years or numbers, "
            f"or pass {shown(by.field)}:group."
        )
    return None


def _is_recent(value: str) -> bool:
    return value[:4].isdigit() and int(value[:4]) in _YEARS


def _dated(value: str) -> str:
    """A date or time with dashes: '2024/05/31' and '20240531' as '2024-05-31'."""
    dashed = value.replace("/", "-")
    return f"{dashed[:4]}-{dashed[4:6]}-{dashed[6:]}" if re.match(r"\d{8}", dashed) else dashed


def _instants_of_arrow(values: pa.Array) -> NDArray[np.float64] | None:
    """Parse dates, or times with seconds, all of the same form, much faster than one by one; None for any others."""
    lengths = np.asarray(pc.utf8_length(values))
    if not ((lengths == 10).all() or (lengths >= 19).all()):
        return None
    for zone in (None, "UTC"):
        try:
            return np.asarray(values.cast(pa.timestamp("us", zone)).cast(pa.int64()), dtype=np.float64) / 1e6
        except pa.ArrowException:
            continue
    return None


def _instant(value: str) -> float | None:
    """Seconds since 1970 of an ISO date or time, a month or a year; None if it is none. Without a zone, it is UTC."""
    text = value.replace("/", "-")
    text += "-01-01" if _YEAR.fullmatch(text) else "-01" if _MONTH.fullmatch(text) else ""
    try:
        moment = datetime.fromisoformat(text)
        return ((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH).total_seconds()
    except (ValueError, OverflowError):
        return None


def _latest(
    values: pa.ChunkedArray, times: NDArray[np.float64], complete: NDArray[np.bool_], by: SplitBy, fraction: float
) -> FieldSplit:
    """Hold out the documents from a time on, so that their number is closest to the one asked for."""
    name = shown(by.field)
    different, numbers = np.unique(times, return_inverse=True)
    counts = np.bincount(numbers.reshape(-1), weights=complete, minlength=len(different))
    later = np.cumsum(counts[::-1])[::-1]  # complete documents from each time on
    cuts = np.flatnonzero((later > 0) & (np.arange(len(different)) > 0))
    if not len(cuts):
        since = shown(values[0].as_py())
        raise DataError(
            f"all documents that can be held out have the earliest '{name}' ({since}), so none is later than the "
            "others. Split by another field."
        )
    gaps = np.abs(later[cuts] - fraction * complete.sum())
    cut = different[cuts[np.flatnonzero(gaps == gaps.min())[-1]]]
    held = times >= cut
    first = values[int(np.flatnonzero(times == cut)[0])].as_py()
    return FieldSplit("time", np.flatnonzero(~held), np.flatnonzero(held & complete), str(first))


def _held_groups(
    groups: Rows, complete: NDArray[np.bool_], by: SplitBy, fraction: float, seed: int
) -> NDArray[np.bool_]:
    """(n,) whether the group of each document is held out: groups in random order that fit, then the closest."""
    sizes = np.bincount(groups, weights=complete).astype(np.int64)
    chosen = np.zeros(len(sizes), dtype=bool)
    left = min(round(fraction * int(sizes.sum())), int(sizes.sum()) - 1)
    order = random_order(len(sizes), seed)
    order = order[sizes[order] > 0]
    for group, size in zip(order.tolist(), sizes[order].tolist(), strict=True):
        if size <= left:
            chosen[group] = True
            left -= size
    rest = order[~chosen[order]]
    smallest = rest[np.argmin(sizes[rest])]  # some group is left: not all documents were wanted
    if not chosen.any() or (len(rest) > 1 and sizes[smallest] - left < left):
        chosen[smallest] = True
    held: NDArray[np.bool_] = chosen[groups]
    if held.all() or not held.any():
        raise DataError(
            f"the documents cannot be split by '{shown(by.field)}': all have the same value, or values are connected "
            "by equal texts. Split by another field."
        )
    return held
