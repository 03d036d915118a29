"""A saved state as a model reads it: every array, value and table is requested with its schema and checked.

Arrays reach compiled kernels, which do not check indices. So there is no access without a schema: data type, shape and
range of an array, type and range of a value, column types of a table. An array that the model does not request is an
error.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from xmtc.artifact.dependencies import Link
from xmtc.artifact.store import State
from xmtc.core.errors import ModelFormatError, shown

BLOCK = 1 << 17
"""Elements checked at a time: small enough to stay in the cache between two passes."""

Kind = TypeVar("Kind", bool, int, float, str, dict[str, Any], list[Any])


class SavedState:
    """Checked access to the state of a model folder. Raises `ModelFormatError` for anything that does not fit."""

    def __init__(self, state: State, prefix: str = "", requested: set[str] | None = None) -> None:
        self._state, self._prefix = state, prefix
        self._requested: set[str] = set() if requested is None else requested

    def part(self, prefix: str) -> SavedState:
        """The arrays whose names start with a prefix, such as 'forest.', under the rest of their names."""
        return SavedState(self._state, self._prefix + prefix, self._requested)

    def nested(self, values: Mapping[str, Any], prefix: str, tables: str) -> SavedState:
        """The state of a model inside another model: its values, and the prefixes of its arrays and tables."""
        inner = State(
            dict(values),
            self._state.arrays,
            {name.removeprefix(tables): t for name, t in self._state.tables.items() if name.startswith(tables)},
        )
        return SavedState(inner, self._prefix + prefix, self._requested)

    @property
    def links(self) -> dict[str, Link]:
        """Other models and files that the model depends on."""
        return self._state.links

    def has(self, name: str) -> bool:
        """Whether there is an array of this name."""
        return self._prefix + name in self._state.arrays

    def has_table(self, name: str) -> bool:
        """Whether there is a table of this name."""
        return name in self._state.tables

    def has_value(self, name: str) -> bool:
        """Whether there is a value of this name."""
        return name in self._state.values

    def names(self) -> list[str]:
        """Names of the arrays."""
        return [name.removeprefix(self._prefix) for name in self._state.arrays if name.startswith(self._prefix)]

    def array(
        self,
        name: str,
        dtype: DTypeLike | tuple[DTypeLike, ...],
        shape: Sequence[int | None],
        *,
        low: float | None = None,
        high: float | None = None,
        infinite: bool = False,
    ) -> NDArray[Any]:
        """Return an array of one of the data types and of this shape; a length of None is arbitrary.

        All elements must be in low ≤ x < high, if given. Floating-point numbers must be finite unless `infinite` is
        true; NaN is never accepted.
        """
        array = self._find(name)
        kinds = [np.dtype(kind) for kind in (dtype if isinstance(dtype, tuple) else (dtype,))]
        if array.dtype not in kinds:
            raise self._error(name, f"is of type {array.dtype}, expected {' or '.join(map(str, kinds))}")
        fits = len(shape) == array.ndim and all(
            wanted is None or wanted == held for wanted, held in zip(shape, array.shape, strict=True)
        )
        if not fits:
            wanted = " × ".join("any" if length is None else f"{length:,}" for length in shape)
            found = " × ".join(f"{length:,}" for length in array.shape)
            raise self._error(name, f"has shape {found}, expected {wanted}")
        if array.dtype.kind == "f" and not _is_number(array, infinite):
            raise self._error(name, "contains NaN" if infinite else "contains NaN or infinity")
        if array.size and (low is not None or high is not None):
            least, most = _range(array)
            if (low is not None and least < low) or (high is not None and most >= high):
                wanted = f"{'' if low is None else f'≥ {low:,}'}{'' if None in (low, high) else ' and '}"
                wanted += "" if high is None else f"< {high:,}"
                raise self._error(name, f"contains numbers from {least:,} to {most:,}, expected {wanted}")
        return array

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return all arrays, which must be finite floating-point numbers; the network checks their shapes.

        NumPy has no bfloat16, so its bits are stored as uint16.
        """
        found = {}
        for name in self.names():
            found[name] = self.array(name, (np.float32, np.uint16), [None] * self._find(name).ndim)
            if found[name].dtype == np.uint16 and not is_finite_half(found[name], 0x7F80):
                raise self._error(name, "contains NaN or infinity")
        return found

    def offsets(self, name: str, count: int | None, end: int) -> NDArray[np.int64]:
        """Return count + 1 ascending positions (int64), from 0 to `end`: where the rows of a CSR matrix start."""
        array = self.array(name, np.int64, (None if count is None else count + 1,))
        check_offsets(array, end, self._prefix + name)
        return cast("NDArray[np.int64]", array)

    def value(self, name: str, kind: type[Kind], low: float | None = None, high: float | None = None) -> Kind:
        """Return a value of this type, low ≤ value < high if given. An integer is accepted as a float."""
        if name not in self._state.values:
            raise ModelFormatError(f"value '{shown(name)}' is missing. Copy or train the model again.")
        value = self._state.values[name]
        if kind is float and type(value) is int:
            value = float(value)
        if type(value) is not kind:
            raise self._bad_value(name, value, kind.__name__)
        beyond = isinstance(value, (int, float)) and not (
            math.isfinite(value) and (low is None or value >= low) and (high is None or value < high)
        )
        if beyond:
            wanted = [*([] if low is None else [f"≥ {low:,}"]), *([] if high is None else [f"< {high:,}"])]
            raise self._bad_value(name, value, " and ".join(wanted) or "a finite number")
        return value

    def table(self, name: str, columns: Mapping[str, pa.DataType], rows: int | None = None) -> pa.Table:
        """Return a table with these columns and no missing values, and with this number of rows if given."""
        if name not in self._state.tables:
            raise ModelFormatError(f"table '{shown(name)}' is missing. Copy or train the model again.")
        return check_table(self._state.tables[name], name, columns, rows)

    def finish(self) -> None:
        """Raise `ModelFormatError` if there is an array that was not requested."""
        unknown = next((name for name in self._state.arrays if name not in self._requested), None)
        if unknown is not None:
            raise ModelFormatError(f"array '{shown(unknown)}' is not part of this model. Copy or train it again.")

    def _find(self, name: str) -> NDArray[Any]:
        whole = self._prefix + name
        self._requested.add(whole)
        if whole not in self._state.arrays:
            raise ModelFormatError(f"array '{shown(whole)}' is missing. Copy or train the model again.")
        return self._state.arrays[whole]

    def _error(self, name: str, what: str) -> ModelFormatError:
        return ModelFormatError(f"array '{shown(self._prefix + name)}' {what}. Copy or train the model again.")

    def _bad_value(self, name: str, value: Any, wanted: str) -> ModelFormatError:
        found = shown(repr(value)[:60])
        return ModelFormatError(f"value '{name}' is {found}, expected {wanted}. Copy or train the model again.")


def check_offsets(array: NDArray[np.int64], end: int, name: str) -> None:
    """Raise `ModelFormatError` unless the positions ascend from 0 to `end`."""
    fits = len(array) > 0 and array[0] == 0 and array[-1] == end
    if not fits or not all((block[1:] >= block[:-1]).all() for block in _blocks(array, overlap=1)):
        raise ModelFormatError(
            f"array '{shown(name)}' does not ascend from 0 to {end:,}. Copy or train the model again."
        )


def check_table(table: pa.Table, name: str, columns: Mapping[str, pa.DataType], rows: int | None = None) -> pa.Table:
    """Return the table; raise `ModelFormatError` unless it has these columns, without missing values."""
    for column, kind in columns.items():
        if column not in table.column_names:
            raise ModelFormatError(f"table '{name}' has no column '{column}'. Copy or train the model again.")
        held = table[column]
        if held.type != kind or held.null_count:
            what = f"is of type {held.type}, expected {kind}" if held.type != kind else "has missing values"
            raise ModelFormatError(f"column '{column}' of table '{name}' {what}. Copy or train the model again.")
    if rows is not None and table.num_rows != rows:
        raise ModelFormatError(
            f"table '{name}' has {table.num_rows:,} rows, expected {rows:,}. Copy or train the model again."
        )
    return table


def _blocks(array: NDArray[Any], overlap: int = 0) -> Iterable[NDArray[Any]]:
    """Consecutive pieces of a contiguous array; each repeats the last `overlap` elements of the one before."""
    flat = array.reshape(-1)
    for start in range(0, max(len(flat) - overlap, 0), BLOCK):
        yield flat[start : start + BLOCK + overlap]


def _range(array: NDArray[Any]) -> tuple[float, float]:
    """Smallest and largest element."""
    pairs = [(block.min(), block.max()) for block in _blocks(array)]
    return min(low for low, _ in pairs).item(), max(high for _, high in pairs).item()


def _is_number(array: NDArray[Any], infinite: bool) -> bool:
    """Whether no element is NaN or, unless `infinite`, infinite. Both propagate to a minimum and a maximum."""
    for block in _blocks(array):
        least, most = block.min(), block.max()
        if np.isnan(least) or (not infinite and not (np.isfinite(least) and np.isfinite(most))):
            return False
    return True


def is_finite_half(bits: NDArray[np.uint16], exponent: int) -> bool:
    """Whether no 16-bit float, given by its bits, is NaN or infinite: its exponent (a mask) has a zero."""
    mask = np.uint16(exponent)
    return all(int((block & mask).max()) < exponent for block in _blocks(bits))
