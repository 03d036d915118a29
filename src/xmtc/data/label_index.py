"""LabelIndex: the numbered labels of a data set or a model: key, names, place in the hierarchy and notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError, nearest, shown
from xmtc.core.files import has_surrogate

Csr: TypeAlias = sp.csr_array

LABEL_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("name", pa.string()),
        ("alternatives", pa.list_(pa.string())),
        ("parents", pa.list_(pa.string())),
        ("description", pa.string()),
        ("related", pa.list_(pa.string())),
        ("notes", pa.list_(pa.string())),
        ("schemes", pa.list_(pa.string())),
        ("collections", pa.list_(pa.string())),
        ("types", pa.list_(pa.string())),
        ("status", pa.string()),
    ]
)
FURTHER = ("related", "notes", "schemes", "collections", "types", "status")
"""Columns that a table may lack; they are empty for most vocabularies."""

FEW = 20
"""Up to this many labels, strings are looked up one by one."""


class LabelIndex:
    """Numbered labels with key, display name, alternative names and further data of the vocabulary.

    `parents` and `related` have the keys of broader and related labels; `notes`, `schemes`, `collections` and `types`
    are lists of strings; `status` is '' for labels in use, otherwise a word such as 'candidate'. Backed by an Arrow
    table, so that a million labels can be memory-mapped.
    """

    columns: ClassVar = {"key": pa.string(), "name": pa.string(), "alternatives": pa.list_(pa.string())}
    """Columns of a saved table, without missing values."""
    further_columns: ClassVar = {name: LABEL_SCHEMA.field(name).type for name in FURTHER}
    """Columns that a saved table may have, without missing values; they are written only if they are not empty."""

    def __init__(self, table: pa.Table, ancestors: LabelIndex | None = None) -> None:
        self.table = _complete(table)
        self.ancestors = ancestors
        """Broader labels of the vocabulary that are not labels of this index, but link them."""

    @classmethod
    def from_keys(
        cls,
        keys: Sequence[str],
        names: Sequence[str] | None = None,
        alternatives: Sequence[Sequence[str]] | None = None,
        parents: Sequence[Sequence[str]] | None = None,
        descriptions: Sequence[str] | None = None,
        *,
        related: Sequence[Sequence[str]] | None = None,
        notes: Sequence[Sequence[str]] | None = None,
        schemes: Sequence[Sequence[str]] | None = None,
        collections: Sequence[Sequence[str]] | None = None,
        types: Sequence[Sequence[str]] | None = None,
        status: Sequence[str] | None = None,
    ) -> LabelIndex:
        """Create labels from plain lists with one value per label; names default to the keys, the rest to nothing."""
        key = string_array(keys)
        if len(key) != len(pc.unique(key)):
            raise DataError(f"label '{shown(_repeated(key))}' occurs twice. Remove the duplicate.")
        return cls(
            _label_table(
                key,
                names,
                alternatives=alternatives,
                parents=parents,
                description=descriptions,
                related=related,
                notes=notes,
                schemes=schemes,
                collections=collections,
                types=types,
                status=status,
            )
        )

    @classmethod
    def numbered(cls, count: int, names: Sequence[str] | None = None) -> LabelIndex:
        """Create labels with the keys '0', '1', …, as for the columns of a matrix."""
        return cls(_label_table(pa.array(np.arange(count)).cast(pa.string()), names))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelIndex) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]

    @property
    def keys(self) -> list[str]:
        """Keys of all labels."""
        return list(self.table["key"].to_pylist())

    @property
    def names(self) -> list[str]:
        """Display names of all labels."""
        return list(self.table["name"].to_pylist())

    def name(self, label: int) -> str:
        """Return the display name of a label by number."""
        return str(self.table["name"][label].as_py())

    def key(self, label: int) -> str:
        """Return the key of a label by number."""
        return str(self.table["key"][label].as_py())

    def strings(self, column: str, labels: ArrayLike) -> list[str]:
        """Return one column ('key', 'name', 'description') of the labels with these numbers."""
        numbers = np.asarray(labels, dtype=np.int64)
        if len(numbers) <= FEW:  # cheaper than `take` on the column
            values = self.table[column]
            return [values[number].as_py() for number in numbers.tolist()]
        return list(self.table[column].take(pa.array(numbers)).to_pylist())

    def ids(self, keys: Sequence[str] | pa.Array) -> NDArray[np.int64]:
        """Return the number of each key, −1 for unknown keys."""
        wanted = keys if isinstance(keys, pa.Array) else string_array(keys)
        if not len(wanted):
            return np.empty(0, dtype=np.int64)
        found = pc.index_in(wanted, value_set=self.table["key"].combine_chunks())
        return np.asarray(pc.fill_null(found, -1), dtype=np.int64)

    def described(self) -> dict[str, int]:
        """Return the number of alternative names, and of labels with alternatives, broader labels, …"""

        def filled(column: str) -> int:
            return int(pc.sum(pc.greater(pc.list_value_length(self.table[column]), 0)).as_py() or 0)

        return {
            "alternative_names": int(pc.sum(pc.list_value_length(self.table["alternatives"])).as_py() or 0),
            "with_alternatives": filled("alternatives"),
            "with_broader": filled("parents"),
            "with_related": filled("related"),
            "with_notes": filled("notes"),
        }

    def find(self, label: str) -> int:
        """Return the number of a label given by key, name or alternative; exact matches come first."""
        label = label.encode("utf-8", "replace").decode()
        for column in ("key", "name"):
            exact = pc.index(self.table[column], label).as_py()
            if exact >= 0:
                return int(exact)
        folded = label.casefold()
        for number, (key, name, others) in enumerate(
            zip(self.keys, self.names, self.table["alternatives"].to_pylist(), strict=True)
        ):
            if folded in (key.casefold(), name.casefold(), *(other.casefold() for other in others)):
                return number
        close = nearest(label, self.names) or " Check its spelling."
        raise DataError(f"label '{shown(label)}' is not among the model's {len(self):,} labels.{close}")

    def joined(self, other: LabelIndex) -> LabelIndex:
        """Return these labels followed by the labels of `other` with new keys."""
        others = np.flatnonzero(self.ids(other.table["key"].combine_chunks()) < 0)
        if not len(others) and other.ancestors is None:
            return self
        joined = LabelIndex(pa.concat_tables([self.table, other.table.take(pa.array(others))]))
        ancestors = self.ancestors or other.ancestors
        if self.ancestors is not None and other.ancestors is not None:
            ancestors = self.ancestors.joined(other.ancestors)
        return joined if ancestors is None else joined.with_ancestors(ancestors)

    def with_ancestors(self, ancestors: LabelIndex) -> LabelIndex:
        """Return these labels with the given ancestors, except those that are labels themselves."""
        others = np.flatnonzero(self.ids(ancestors.table["key"].combine_chunks()) < 0)
        return LabelIndex(self.table, ancestors.take(others) if len(others) else None)

    def renewed(self, other: LabelIndex) -> LabelIndex:
        """Return these labels with the data of the labels of `other` with the same keys.

        A column that is empty throughout `other` is kept, as is the name of a label that has none in `other`.
        """
        places = other.ids(self.table["key"].combine_chunks())
        table = self.table
        for at, column in enumerate(LABEL_SCHEMA.names[1:], start=1):
            new = other.table[column]
            has = np.asarray(pc.not_equal(new, other.table["key"])) if column == "name" else np.ones(len(other), bool)
            if (column != "name" and not _has_values(new)) or not has.any():
                continue
            rows = np.where((places >= 0) & has[places], len(self) + places, np.arange(len(self)))
            both = pa.chunked_array([*table[column].chunks, *new.chunks], new.type)
            table = table.set_column(at, column, both.take(pa.array(rows)))
        return LabelIndex(table, self.ancestors)

    def differs(self, other: LabelIndex) -> NDArray[np.bool_]:
        """(L,) which labels have other data than those with the same numbers in `other`."""
        found = np.zeros(len(self), dtype=bool)
        for column in LABEL_SCHEMA.names:
            pair = self.table[column], other.table[column]
            if pair[0].type != pa.string():
                pair = tuple(pc.binary_join(each, "\0") for each in pair)
            found |= np.asarray(pc.fill_null(pc.not_equal(*pair), False))
        return found

    def with_lists(self, column: str, lists: Mapping[int, Sequence[str]]) -> LabelIndex:
        """Return these labels with other values of a column of lists; `lists` has those of some labels by number."""
        if not lists:
            return self
        old = self.table[column]
        both = pa.chunked_array([*old.chunks, pa.array(lists.values(), old.type)], old.type)
        rows = np.arange(len(self))
        rows[list(lists)] = len(self) + np.arange(len(lists))
        at = self.table.schema.get_field_index(column)
        return LabelIndex(self.table.set_column(at, column, both.take(pa.array(rows))), self.ancestors)

    def take(self, labels: ArrayLike) -> LabelIndex:
        """Return the labels with these numbers, renumbered in this order."""
        return LabelIndex(self.saved_table().take(pa.array(np.asarray(labels, dtype=np.int64))), self.ancestors)

    def saved_table(self) -> pa.Table:
        """Return the table without further columns that are empty, which need not be written."""
        return self.table.select(
            [name for name in LABEL_SCHEMA.names if name not in FURTHER or _has_values(self.table[name])]
        )


def string_array(values: Sequence[str]) -> pa.Array:
    """Convert label strings to an Arrow array; the error names a value that is not valid text."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        bad = next(value for value in values if has_surrogate(value))
        raise DataError(f"label '{shown(bad)}' contains an unpaired surrogate. Write the complete character.") from None
    except pa.ArrowException:
        wrong = next((value for value in values if not isinstance(value, str)), values)
        raise DataError(f"a label must be a string. Got {shown(repr(wrong))}.") from None


def _label_table(key: pa.Array, names: Sequence[str] | None = None, **given: Sequence[Any] | None) -> pa.Table:
    """Return a table of the given columns; the others are empty."""
    columns = {"key": key, "name": key if names is None else string_array(names)}
    columns |= {name: _column(name, values) for name, values in given.items() if values}
    for name, column in columns.items():
        if len(column) != len(key):
            raise DataError(f"{len(key):,} labels but {len(column):,} values for '{name}'. Pass one per label.")
    return pa.table(columns)


def _column(name: str, values: Sequence[Any]) -> pa.Array:
    """Convert the values of one column; the error names the column."""
    kind = LABEL_SCHEMA.field(name).type
    what = "string" if kind == pa.string() else "list of strings"
    try:
        if kind != pa.string() and any(isinstance(value, str) for value in values):  # Arrow would split them
            raise TypeError
        column = pa.array(values, kind)
    except UnicodeEncodeError:
        raise DataError(f"'{name}' contains an unpaired surrogate. Write the complete character.") from None
    except (pa.ArrowException, TypeError):
        raise DataError(f"'{name}' must have one {what} per label. Check the values.") from None
    if name in FURTHER and (column.null_count or (kind != pa.string() and column.values.null_count)):
        raise DataError(f"'{name}' has missing values. Use an empty {what.split()[0]}.")
    return column


def _complete(table: pa.Table) -> pa.Table:
    """Return the columns of `LABEL_SCHEMA`; missing and empty ones share the memory of one array of zeros."""
    count = table.num_rows
    present = {"key", "name", *table.column_names}  # an error if one of these two is missing
    zeros = pa.py_buffer(np.zeros(count + 1, dtype=np.int32))
    blank = pa.StringArray.from_buffers(count, zeros, pa.py_buffer(b""))
    nothing = pa.Array.from_buffers(pa.list_(pa.string()), count, [None, zeros], children=[pa.array([], pa.string())])
    columns = []
    for field in LABEL_SCHEMA:
        keep = field.name in present and (field.name not in FURTHER or _has_values(table[field.name]))
        empty = blank if field.type == pa.string() else nothing
        columns.append(table[field.name].cast(field.type) if keep else pa.chunked_array([empty]))
    return pa.table(columns, schema=LABEL_SCHEMA)


def _has_values(column: pa.ChunkedArray) -> bool:
    """Whether a column of strings or lists has a value that is missing or not empty."""
    lengths = pc.binary_length if column.type == pa.string() else pc.list_value_length
    return bool(column.null_count) or bool(pc.max(lengths(column)).as_py())


def _repeated(keys: pa.Array) -> str:
    counts = pc.value_counts(keys)
    return str(counts.field("values")[pc.index(pc.greater(counts.field("counts"), 1), True).as_py()].as_py())
