"""LabelIndex: the labels of a data set or a model by number, with key, name, alternatives and parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

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
"""Labels whose strings are looked up one by one."""


class LabelIndex:
    """The labels of a model, numbered: key, display name, alternatives, parents and description of each.

    Backed by an Arrow table, so that a million labels load by mapping a file.
    """

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
        """Labels from plain lists; a label without a name is shown by its key."""
        key = string_array(keys)
        if len(key) != len(pc.unique(key)):
            raise DataError(f"label '{shown(_repeated(key))}' is there twice. Keep one of them.")
        return cls(_label_table(key, names, alternatives, parents, descriptions))

    @classmethod
    def numbered(cls, count: int, names: Sequence[str] | None = None) -> LabelIndex:
        """Labels whose keys are '0', '1', …: the columns of a matrix."""
        return cls(_label_table(pa.array(np.arange(count)).cast(pa.string()), names))

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LabelIndex) and bool(self.table.equals(other.table))

    __hash__ = None  # type: ignore[assignment]

    @property
    def keys(self) -> list[str]:
        return list(self.table["key"].to_pylist())

    @property
    def names(self) -> list[str]:
        return list(self.table["name"].to_pylist())

    def name(self, label: int) -> str:
        return str(self.table["name"][label].as_py())

    def key(self, label: int) -> str:
        return str(self.table["key"][label].as_py())

    def strings(self, column: str, labels: ArrayLike) -> list[str]:
        """One column ('key', 'name', 'description') of the labels with these numbers."""
        numbers = np.asarray(labels, dtype=np.int64)
        if len(numbers) <= FEW:  # taking from a column costs as much as looking so many up
            values = self.table[column]
            return [values[number].as_py() for number in numbers.tolist()]
        return list(self.table[column].take(pa.array(numbers)).to_pylist())

    def ids(self, keys: Sequence[str] | pa.Array) -> NDArray[np.int64]:
        """The number of each key, −1 where it is unknown."""
        wanted = keys if isinstance(keys, pa.Array) else string_array(keys)
        if not len(wanted):
            return np.empty(0, dtype=np.int64)
        found = pc.index_in(wanted, value_set=self.table["key"].combine_chunks())
        return np.asarray(pc.fill_null(found, -1), dtype=np.int64)

    def find(self, label: str) -> int:
        """The number of the label that a person means: by key, name or alternative, case ignored last."""
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
        """These labels, and after them those of another that are not among them, by key."""
        others = np.flatnonzero(self.ids(other.table["key"].combine_chunks()) < 0)
        return self if not len(others) else LabelIndex(pa.concat_tables([self.table, other.take(others).table]))

    def take(self, labels: ArrayLike) -> LabelIndex:
        """The labels with these numbers, renumbered in this order."""
        return LabelIndex(self.table.take(pa.array(np.asarray(labels, dtype=np.int64))))


def string_array(values: Sequence[str]) -> pa.Array:
    """Labels as an Arrow array; what is not text, or not whole characters, is named."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        bad = next(value for value in values if has_surrogate(value))
        raise DataError(f"label '{shown(bad)}' holds half of a surrogate pair. Write the whole character.") from None
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
            raise DataError(f"{len(key):,} labels and {len(column):,} of their '{name}'. Give one each.")
    return pa.table(columns, schema=LABEL_SCHEMA)


def _repeated(keys: pa.Array) -> str:
    counts = pc.value_counts(keys)
    return str(counts.field("values")[pc.index(pc.greater(counts.field("counts"), 1), True).as_py()].as_py())
