"""Saved arrays, values and tables are returned only if they fit the schema."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from xmtc.artifact import saved_state
from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.errors import ModelFormatError


def one(array: Any) -> SavedState:
    return SavedState(State(arrays={"a": np.asarray(array)}))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_state, "BLOCK", 4)


class TestArrays:
    def test_type_and_shape(self) -> None:
        state = one(np.zeros((3, 4), np.float32))
        for shape in ((3, 4), (None, 4), (3, None), (None, None)):
            assert state.array("a", np.float32, shape).shape == (3, 4)
        assert state.array("a", (np.float64, np.float32), (3, 4)).dtype == np.float32
        for shape in ((4, 3), (3,), (3, 4, 1), (None, 5)):
            with pytest.raises(ModelFormatError, match="'a' has shape 3 × 4, expected"):
                state.array("a", np.float32, shape)
        for kind in (np.float64, np.int32, np.uint32):
            with pytest.raises(ModelFormatError, match="'a' is of type float32, expected"):
                state.array("a", kind, (3, 4))
        with pytest.raises(ModelFormatError, match="array 'b' is missing"):
            state.array("b", np.float32, (3, 4))

    @pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint16])
    @pytest.mark.parametrize("place", range(11))
    def test_every_element_is_within_range(self, kind: type, place: int) -> None:
        array = np.full(11, 5, dtype=kind)
        assert one(array).array("a", kind, (11,), low=5, high=6) is not None
        for value in (4, 6, np.iinfo(kind).max, np.iinfo(kind).min):
            array[place] = value
            with pytest.raises(ModelFormatError, match=r"contains numbers from .* to .*, expected ≥ 5 and < 6"):
                one(array).array("a", kind, (11,), low=5, high=6)

    def test_an_empty_array_fits_any_range(self) -> None:
        assert one(np.empty(0, np.int32)).array("a", np.int32, (None,), low=7, high=3).size == 0

    @pytest.mark.parametrize("kind", [np.float32, np.float64])
    @pytest.mark.parametrize("place", range(6))
    def test_numbers_are_finite(self, kind: type, place: int) -> None:
        array = np.linspace(-1, 1, 6).astype(kind).reshape(2, 3)
        one(array).array("a", kind, (2, 3))
        for value in (np.nan, np.inf, -np.inf):
            array.flat[place] = value
            with pytest.raises(ModelFormatError, match="contains NaN or infinity"):
                one(array).array("a", kind, (2, 3))
            if np.isnan(value):
                with pytest.raises(ModelFormatError, match="contains NaN"):
                    one(array).array("a", kind, (2, 3), infinite=True)
            else:
                one(array).array("a", kind, (2, 3), infinite=True)

    @pytest.mark.parametrize("place", range(6))
    def test_weights_of_networks(self, place: int) -> None:
        """bfloat16 is stored as uint16: 1.0 is 0x3F80, infinity 0x7F80, NaN anything above."""
        array = np.full(6, 0x3F80, np.uint16)
        assert list(one(array).weights()) == ["a"]
        for value in (0x7F80, 0xFF80, 0x7FC0):
            array[place] = value
            with pytest.raises(ModelFormatError, match="NaN or infinity"):
                one(array).weights()
        with pytest.raises(ModelFormatError, match="is of type int64"):
            one(np.zeros(3, np.int64)).weights()


class TestOffsets:
    def test_ascending(self) -> None:
        assert one([0, 2, 2, 7]).offsets("a", 3, 7).tolist() == [0, 2, 2, 7]
        assert one([0]).offsets("a", 0, 0).tolist() == [0]

    @pytest.mark.parametrize(
        "wrong",
        [
            [0, 2, 2, 6],
            [1, 2, 2, 7],
            [0, 3, 2, 7],
            [0, 8, 8, 7],
            [0, -1, 2, 7],
            [0, 2**63 - 1, -2, 7],  # the differences overflow to positive numbers
            [0, 2, 7],
            [0, 2, 2, 7, 7],
            [],
        ],
    )
    def test_others_are_refused(self, wrong: list[int]) -> None:
        with pytest.raises(ModelFormatError, match=r"does not ascend from 0 to 7|has shape"):
            one(np.array(wrong, np.int64)).offsets("a", 3, 7)

    @pytest.mark.parametrize("place", range(1, 12))
    def test_every_pair_is_compared(self, place: int) -> None:
        """Also those at the edges of blocks."""
        array = np.arange(13)
        array[place] = array[place - 1] - 1 if place > 1 else 13
        with pytest.raises(ModelFormatError, match="does not ascend"):
            one(array).offsets("a", None, 12)


class TestValues:
    @pytest.mark.parametrize(
        ("kind", "good", "wrong"),
        [
            (int, [0, 9], [10, -1, 2**70, 1.0, True, "1", None, [1]]),
            (float, [0.0, 9.5, 3], [10.0, -0.1, float("nan"), float("inf"), "1", True]),
            (str, ["", "x"], [1, None]),
            (dict, [{}], [[], None]),
            (list, [[]], [{}, ()]),
        ],
    )
    def test_type_and_range(self, kind: Any, good: list[Any], wrong: list[Any]) -> None:
        for value in good:
            assert SavedState(State({"v": value})).value("v", kind, 0, 10) == value
        for value in wrong:
            with pytest.raises(ModelFormatError, match=r"value 'v' is .*, expected"):
                SavedState(State({"v": value})).value("v", kind, 0, 10)
        with pytest.raises(ModelFormatError, match="value 'w' is missing"):
            SavedState(State({"v": 1})).value("w", kind)


class TestTables:
    def test_columns_and_rows(self) -> None:
        state = SavedState(State(tables={"t": pa.table({"id": ["a", "b"], "n": [1, 2]})}))
        assert state.table("t", {"id": pa.string(), "n": pa.int64()}, 2).num_rows == 2
        with pytest.raises(ModelFormatError, match="has 2 rows, expected 3"):
            state.table("t", {"id": pa.string()}, 3)
        with pytest.raises(ModelFormatError, match="'n' of table 't' is of type int64, expected string"):
            state.table("t", {"n": pa.string()})
        with pytest.raises(ModelFormatError, match="has no column 'm'"):
            state.table("t", {"m": pa.string()})
        with pytest.raises(ModelFormatError, match="table 'u' is missing"):
            state.table("u", {})

    def test_missing_values(self) -> None:
        state = SavedState(State(tables={"t": pa.table({"id": ["a", None]})}))
        with pytest.raises(ModelFormatError, match="has missing values"):
            state.table("t", {"id": pa.string()})


def test_parts_share_what_was_requested() -> None:
    """An array that no code asks for is an error, wherever it is."""
    state = SavedState(State(arrays={"x": np.zeros(1), "p.y": np.zeros(1), "p.q.z": np.zeros(1)}))
    state.array("x", np.float64, (1,))
    inner = state.part("p.")
    assert sorted(inner.names()) == ["q.z", "y"]
    inner.array("y", np.float64, (1,))
    with pytest.raises(ModelFormatError, match=r"array 'p\.q\.z' is not part of this model"):
        state.finish()
    inner.part("q.").array("z", np.float64, (1,))
    state.finish()
