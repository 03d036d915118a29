"""LabelIndex: the numbered labels of a data set or a model, with key, name, alternatives and parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TypeAlias

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
    ]
)

FEW = 20
"""Up to this many labels, strings are looked up one by one."""


class LabelIndex:
    """Numbered labels with key, display name, alternatives, parents and description.

    Backed by an Arrow table, so that a million labels can be memory-mapped.
    """

    columns: ClassVar = {"key": pa.string(), "name": pa.string(), "alternatives": pa.list_(pa.string())}
    """Columns of a saved table, without missing values."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table.select(LABEL_SCHEMA.names).cast(LABEL_SCHEMA)

    @classmethod
    def from_keys(
        cls,
        keys: Sequence[str],
        names: Sequence[str] | None = None,
        alternatives: Sequence[Sequence[str]] | None = None,
        parents: Sequence[Sequence[str]] | None = None,
        descriptions: Sequence[str] | None = None,
    ) -> LabelIndex:
        """Create labels from plain lists; names default to the keys."""
        key = string_array(keys)
        if len(key) != len(pc.unique(key)):
            raise DataError(f"label '{shown(_repeated(key))}' occurs twice. Remove the duplicate.")
        return cls(_label_table(key, names, alternatives, parents, descriptions))

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
        return self if not len(others) else LabelIndex(pa.concat_tables([self.table, other.take(others).table]))

    def take(self, labels: ArrayLike) -> LabelIndex:
        """Return the labels with these numbers, renumbered in this order."""
        return LabelIndex(self.table.take(pa.array(np.asarray(labels, dtype=np.int64))))


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


def _label_table(
    key: pa.Array,
    names: Sequence[str] | None = None,
    alternatives: Sequence[Sequence[str]] | None = None,
    parents: Sequence[Sequence[str]] | None = None,
    descriptions: Sequence[str] | None = None,
) -> pa.Table:
    none = pa.ListArray.from_arrays(np.zeros(len(key) + 1, dtype=np.int32), pa.array([], pa.string()))
    columns = {
        "key": key,
        "name": key if names is None else string_array(names),
        "alternatives": pa.array(alternatives, pa.list_(pa.string())) if alternatives else none,
        "parents": pa.array(parents, pa.list_(pa.string())) if parents else none,
        "description": pa.array(descriptions, pa.string()) if descriptions else pa.repeat("", len(key)),
    }
    for name, column in columns.items():
        if len(column) != len(key):
            raise DataError(f"{len(key):,} labels but {len(column):,} values for '{name}'. Pass one per label.")
    return pa.table(columns, schema=LABEL_SCHEMA)


def _repeated(keys: pa.Array) -> str:
    counts = pc.value_counts(keys)
    return str(counts.field("values")[pc.index(pc.greater(counts.field("counts"), 1), True).as_py()].as_py())
