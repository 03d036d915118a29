"""Rows with named values from any file format: find text, labels and id, and check them."""

from __future__ import annotations

import ast
import math
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xmtc.core.errors import DataError, nearest, shown
from xmtc.core.files import has_surrogate
from xmtc.core.parsing import parse_json
from xmtc.data.records import ReadOptions, Records, json_kind

TEXT_FIELDS = ("title", "abstract", "body", "content", "description")
LABEL_FIELDS = ("labels", "tags", "label", "subjects", "categories", "keywords", "subject_uris")
ID_FIELDS = ("id", "uid", "document_id")
KEY_PARTS = ("key", "uri", "id")
"""Fields with the key of a label that is an object."""
NAME_PARTS = ("name", "label", "prefLabel")
"""Fields with the name of a label that is an object."""


@dataclass(frozen=True)
class Columns:
    """Names of the columns with text, labels and id."""

    text: tuple[str, ...]
    labels: str
    id: str
    rejected: str | None = None
    """Field with the labels known to be wrong, if the format has one."""
    complete: str | None = None
    """Field that states whether the labels are complete, if the format has one."""
    split: str | None = None
    """Field by which documents will be split, if the options name one."""


def first_of(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first of these fields that a row has; None if it has none."""
    return next((row[name] for name in names if row.get(name) is not None), None)


def usual_names(names: list[str], options: ReadOptions) -> list[str]:
    """Convert usual column names to lower case: 'Text' becomes 'text', unless the options name 'Text'."""
    asked_for = {*(options.text_fields or ()), options.label_field, options.id_field, options.split_field}
    usual = {"text", *TEXT_FIELDS, *LABEL_FIELDS, *ID_FIELDS} - set(names)
    return [name.lower() if name.lower() in usual and name not in asked_for else name for name in names]


def choose_columns(names: Collection[str], texts: Collection[str], options: ReadOptions, place: str) -> Columns:
    """Choose the columns: those in the options, or the usual names.

    `names` are all fields of the first row, `texts` those that may be text. The text is 'text' or else all usual text
    fields, since later documents may have fields that the first one lacks.
    """
    as_text = options.text_fields or ()
    usual = (name for name in LABEL_FIELDS if name in names and name not in as_text)
    labels = options.label_field or next(usual, LABEL_FIELDS[0])
    if labels in as_text:
        raise DataError(f"{place}: '{shown(labels)}' is used for both text and labels. Choose another field for one.")
    identifier = options.id_field or next((name for name in ID_FIELDS if name in names), ID_FIELDS[0])
    if options.text_fields:
        return Columns(tuple(options.text_fields), labels, identifier, split=options.split_field)
    if "text" in names:
        return Columns(("text",), labels, identifier, split=options.split_field)
    if not any(name in names and name in texts for name in TEXT_FIELDS):
        found = ", ".join(shown(name) for name in list(names)[:8]) or "none"
        raise DataError(f'{place}: no text field (found: {found}). Rename it to "text", or pass --text-field NAME.')
    usual_texts = tuple(name for name in TEXT_FIELDS if name in texts or name not in names)
    return Columns(usual_texts, labels, identifier, split=options.split_field)


def check_columns(columns: Columns, names: Sequence[str], options: ReadOptions, place: str) -> Columns:
    """Check the columns against the header of a table; drop usual text columns that do not exist."""
    if options.text_fields is None:
        columns = replace(columns, text=tuple(name for name in columns.text if name in names))
    wanted = [*columns.text, *([columns.labels] if options.labelled else [])]
    wanted += filter(None, [options.id_field, options.split_field])
    for name in wanted:
        if name not in names:
            found = ", ".join(shown(column) for column in names[:8])
            what = "labels" if name == columns.labels else "text" if name in columns.text else "ids"
            what = "split" if name == options.split_field and name not in columns.text else what
            raise DataError(
                f"{place}: no column '{shown(name)}' for the {what} (found: {found})."
                f"{nearest(name, names) or f' Pass --{FLAGS[what]} NAME.'}"
            )
    return columns


FLAGS = {"labels": "label-field", "text": "text-field", "ids": "id-field", "split": "split-by"}


class RowBatch:
    """Collects rows into `Records`; invalid rows are reported as bad lines."""

    def __init__(self, path: str | Path, columns: Columns, options: ReadOptions) -> None:
        self.path, self.columns, self.options = path, columns, options
        self._lines: list[int] = []
        self._ids: list[str] = []
        self._texts: list[list[str]] = []
        self._labels: list[list[str]] = []
        self._rejected: list[list[str]] = []
        self._partial: list[bool] = []
        self._names: dict[str, str] = {}
        self._values: list[str | None] = []

    def add(self, number: int, row: Mapping[str, Any]) -> None:
        """Add one row; `number` is its line number."""
        place, columns = f"{self.path}:{number}", self.columns
        try:
            texts = [text_of(row, name, columns.text, place) for name in columns.text]
            labels = self._labels_of(row, place)
            rejected, is_partial = self._decisions_of(row, labels, place)
            identifier = identifier_of(row.get(columns.id), number, place)
            value = None if columns.split is None else split_value(row.get(columns.split), columns.split, place)
            self._check_whole(texts, [*labels, *rejected], place)
        except DataError as error:
            self.options.bad_lines.add(error)
            return
        self._lines.append(number)
        self._ids.append(identifier)
        self._texts.append(texts)
        self._labels.append(labels)
        self._rejected.append(rejected)
        self._partial.append(is_partial)
        self._values.append(value)

    def _labels_of(self, row: Mapping[str, Any], place: str) -> list[str]:
        name = self.columns.labels
        if self.options.ignore_labels:
            return []
        if name not in row:
            if self.options.labelled:
                raise DataError(f"{place}: no '{shown(name)}'. Add a list of labels, which may be empty: [].")
            return []
        return labels_of(row[name], name, place, self.options, self._names)

    def _decisions_of(self, row: Mapping[str, Any], labels: list[str], place: str) -> tuple[list[str], bool]:
        """Rejected labels, and whether the labels are partial: the default if a document has rejected labels."""
        if self.options.ignore_labels:
            return [], False
        given = None if self.columns.rejected is None else row.get(self.columns.rejected)
        complete = None if self.columns.complete is None else row.get(self.columns.complete)
        if complete is not None and not isinstance(complete, bool):
            raise DataError(f"{place}: 'complete' must be true or false. Got {json_kind(complete)}.")
        rejected = [] if given is None else labels_of(given, "rejected", place, self.options, self._names)
        for key in set(labels).intersection(rejected):
            raise DataError(f"{place}: label '{shown(key)}' is both accepted and rejected. Remove it from one list.")
        return rejected, given is not None if complete is None else not complete

    def _check_whole(self, texts: list[str], labels: list[str], place: str) -> None:
        """Raise `DataError` for unpaired surrogates, which JSON allows and UTF-8 does not."""
        for name, text in (
            *zip(self.columns.text, texts, strict=True),
            *((self.columns.labels, key) for key in labels),
        ):
            if not text.isascii() and has_surrogate(text):
                raise DataError(
                    f"{place}: '{shown(name)}' contains an unpaired surrogate. Write the complete character."
                )

    def records(self) -> Records:
        """Return all rows added so far."""
        by_field = zip(*self._texts, strict=True) if self._texts else ([] for _ in self.columns.text)
        return Records(
            ids=self._ids,
            lines=self._lines,
            fields={
                name: pa.array(list(texts), pa.string())
                for name, texts in zip(self.columns.text, by_field, strict=True)
            },
            label_counts=[len(row) for row in self._labels],
            label_keys=pa.array([key for row in self._labels for key in row], pa.string()),
            label_names=self._names,
            rejected_counts=[len(row) for row in self._rejected] if any(self._rejected) else None,
            rejected_keys=pa.array([key for row in self._rejected for key in row], pa.string()),
            partial=np.array(self._partial) if any(self._partial) else None,
            split_values=None if self.columns.split is None else self._values,
        )


def text_of(row: Mapping[str, Any], name: str, fields: tuple[str, ...], place: str) -> str:
    """Return the text of one field; a document may lack some of its text fields, but not all."""
    value = row.get(name)
    if isinstance(value, str):
        return value
    if value is None and len(fields) > 1 and any(isinstance(row.get(other), str) for other in fields):
        return ""
    if name not in row:
        wanted = f"'{shown(name)}'" if len(fields) == 1 else f"one of {', '.join(map(shown, fields))}"
        raise DataError(f"{place}: no text. Every line needs {wanted}.")
    raise DataError(f"{place}: '{shown(name)}' must be a string. Got {json_kind(value)}.")


def identifier_of(value: Any, number: int, place: str) -> str:
    """Return a document's id, or its line number from 0 if it has none."""
    if value is None:
        return str(number - 1)
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value).encode("utf-8", "replace").decode()
    raise DataError(f"{place}: 'id' must be a string or an integer. Got {json_kind(value)}.")


def split_value(value: Any, name: str, place: str) -> str | None:
    """Return the value by which a document is split, as a string without surrounding space; None if it has none."""
    if isinstance(value, (float, Decimal)) and math.isfinite(value):
        return number_text(float(value))
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None or isinstance(value, str):
        return (value or "").encode("utf-8", "replace").decode().strip() or None
    kind = "NaN or infinity" if isinstance(value, float) else json_kind(value)
    raise DataError(f"{place}: '{shown(name)}' must be a string or a number. Got {kind}.")


def split_column(values: pa.Array) -> pa.Array | None:
    """Convert strings, numbers or dates as `split_value` does; None for any other type."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    kind = values.type
    if pa.types.is_integer(kind):
        return values.cast(pa.string())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        values = values.cast(pa.timestamp("us", kind.tz), safe=False) if pa.types.is_timestamp(kind) else values
        return pa.array([None if day is None else day.isoformat() for day in values.to_pylist()], pa.string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        numbers = values.cast(pa.float64())
        if pc.all(pc.is_finite(numbers)).as_py() is False:
            return None
        return pa.array([None if v is None else number_text(v) for v in numbers.to_pylist()], pa.string())
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
        return None
    stripped = pc.utf8_trim_whitespace(values.cast(pa.string()))
    return pc.if_else(pc.equal(stripped, ""), pa.scalar(None, pa.string()), stripped)


def number_text(value: float) -> str:
    """Write a number as text, equal numbers in the same way: 2024.0 as '2024'."""
    return str(int(value)) if value.is_integer() and abs(value) < 1e16 else repr(value)


def labels_of(value: Any, name: str, place: str, options: ReadOptions, names: dict[str, str]) -> list[str]:
    """Return the labels of one document: a list of keys, or of objects with a key and a name, added to `names`."""
    if not isinstance(value, list):
        if value is None and not options.labelled:
            return []
        raise DataError(f'{place}: \'{shown(name)}\' must be a list such as ["a", "b"]. Got {json_kind(value)}.')
    out = []
    for item in value:
        label = item
        if isinstance(item, dict):
            label, called = first_of(item, KEY_PARTS), first_of(item, NAME_PARTS)
            label = item if label is None else label
            if isinstance(label, str) and isinstance(called, str) and called and not has_surrogate(called):
                names[label] = called
        if isinstance(label, str):
            out.append(label)
        elif isinstance(label, int) and not isinstance(label, bool):
            out.append(str(label))
        else:
            raise DataError(f"{place}: a label must be a string or an integer. Got {json_kind(label)}.")
    if "" in out:
        raise DataError(f"{place}: a label is empty. Remove it from the list.")
    return out


def cell_labels(cell: str, separator: str, place: str) -> list[Any]:
    """Parse labels in one table cell: a JSON or Python list, or keys with a separator."""
    text = cell.strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [part for part in (part.strip() for part in cell.split(separator)) if part]
    try:
        return list(parse_json(text, any_number=True))
    except ValueError:
        found = _python_list(text)
    if found is None:
        raise DataError(f'{place}: {shown(text, 40)} is not a list of labels. Write ["a", "b"] or a{separator}b.')
    return found


_ITEM = r"""'[^'\\]*+(?:\\.[^'\\]*+)*+'|"[^"\\]*+(?:\\.[^"\\]*+)*+"|[-+]?\d{1,4000}+"""
_ITEMS = re.compile(_ITEM, re.DOTALL)
_LIST = re.compile(rf"\[\s*+(?:(?:{_ITEM})(?:\s*+,\s*+|\s++|(?=\])))*+\]", re.DOTALL)


def _python_list(text: str) -> list[Any] | None:
    """Parse ['a', 'b'] as printed by Python or ['a' 'b'] as printed by NumPy; None for anything else."""
    if not _LIST.fullmatch(text):
        return None
    items = _ITEMS.findall(text)
    if "\\" not in text:
        return [item[1:-1] if item[0] in "'\"" else int(item) for item in items]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes such as '\d' are kept as they are
            return [ast.literal_eval(item) for item in items]
    except (ValueError, SyntaxError):
        return None
