"""The record of a preset: models planned and tried, their scores over time, and the final model; stored as JSON."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NoReturn, TypeVar, get_type_hints

from xmtc.core.errors import DataError, shown
from xmtc.core.files import write_json
from xmtc.core.parsing import parse_json

COMPLETE, STOPPED, FAILED, SKIPPED = STATES = ("complete", "stopped", "failed", "skipped")
"""States of a model, in the order in which models without a score are listed."""
_REMEDY = "Copy the file again, or train again."
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class PlannedModel:
    """A model that the preset considered before training."""

    name: str
    model: str
    """Registered name of the model."""
    settings: dict[str, Any]
    """Settings that differ from the defaults."""
    reason: str
    """Why the model is tried."""
    seconds: float | None
    """Estimated training time."""
    megabytes: float | None
    """Estimated memory in MiB."""
    included: bool
    note: str = ""
    """Why the model is left out."""


@dataclass(frozen=True)
class TriedModel:
    """A model that was tried, or the final model."""

    name: str
    model: str
    """Registered name of the model."""
    settings: dict[str, Any]
    """Settings that differ from the defaults."""
    state: str
    """One of `STATES`."""
    score: float | None
    """Metric of the leaderboard on the validation documents, from 0 to 1; None or NaN if it was not measured."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Further metrics, from 0 to 1."""
    train_seconds: float | None = None
    predict_ms: float | None = None
    """Prediction time per document."""
    megabytes: float | None = None
    """Size on disk in MiB."""
    member: bool = False
    """Whether the final model includes it."""
    note: str = ""

    @property
    def ranked(self) -> bool:
        """Whether the model has a score to rank it by."""
        return self.state in (COMPLETE, STOPPED) and self.score is not None and math.isfinite(self.score)


@dataclass(frozen=True)
class Moment:
    """The best validation score at a time of the search."""

    seconds: float
    score: float
    name: str
    """The model that was finished at this time."""


@dataclass(frozen=True)
class Leaderboard:
    """What a preset planned, tried and chose."""

    preset: str
    metric: str
    minutes: float | None
    """Time limit."""
    documents: int
    labels: int
    validation: str
    """How the models were validated, in one sentence."""
    plan: tuple[PlannedModel, ...] = ()
    entries: tuple[TriedModel, ...] = ()
    curve: tuple[Moment, ...] = ()
    final: TriedModel | None = None
    seconds: float = 0.0
    seed: int = 0
    limits: dict[str, float | None] = field(default_factory=dict)
    """Limits on the final model: `max_ms` per document and `max_mb` on disk."""
    complete: bool = False
    """Whether the search has ended."""

    def ranking(self) -> list[TriedModel]:
        """The models tried, best score first; of equal scores the faster one; those without a score at the end."""
        return sorted(self.entries, key=_rank)

    def members(self) -> list[TriedModel]:
        """The members of the final model, best first."""
        return [entry for entry in self.ranking() if entry.member]

    def best_member(self) -> TriedModel | None:
        """The member with the best score; None if no member has a score."""
        return next((entry for entry in self.members() if entry.ranked), None)

    def to_json(self) -> dict[str, Any]:
        """A mapping that JSON can represent; NaN and infinite numbers become null."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain

    @classmethod
    def from_json(cls, value: Any, place: str | Path = "leaderboard") -> Leaderboard:
        """Check and convert what `to_json` returned; `place` names it in error messages."""
        try:
            return _read_part(cls, value, "the leaderboard")
        except ValueError as error:
            raise DataError(f"{place}: damaged. {str(error)[0].upper()}{str(error)[1:]}. {_REMEDY}") from None

    def save(self, path: str | Path) -> None:
        """Write the leaderboard to a JSON file atomically."""
        write_json(Path(path), self.to_json())

    @classmethod
    def load(cls, path: str | Path) -> Leaderboard:
        """Read a file that `save` wrote."""
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError:
            raise DataError(f"{path}: no such file. Check the path.") from None
        except OSError as error:
            reason = error.strerror or shown(str(error))
            raise DataError(f"{path}: cannot be read ({reason}). Check the path and its permissions.") from None
        try:
            value = parse_json(content)
        except ValueError as error:  # not JSON, or not UTF-8
            reason = shown(str(error), 120).rstrip(".")
            raise DataError(f"{path}: damaged. It is not valid JSON ({reason}). {_REMEDY}") from None
        return cls.from_json(value, path)


def _rank(entry: TriedModel) -> tuple[float, float, int]:
    slow = math.inf if entry.predict_ms is None or math.isnan(entry.predict_ms) else entry.predict_ms
    if entry.ranked:
        assert entry.score is not None
        return -entry.score, slow, 0
    return math.inf, 0.0, STATES.index(entry.state) if entry.state in STATES else len(STATES)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, str | int):
        return value
    return _plain(value.tolist()) if hasattr(value, "tolist") else str(value)  # NumPy numbers; paths


# ---- reading: a `ValueError` says what is wrong


def _fail(where: str, wanted: str, value: Any) -> NoReturn:
    raise ValueError(f"{where} must be {wanted}, not {shown(value)}")


def _text(value: Any, where: str) -> str:
    return value if isinstance(value, str) else _fail(where, "a text", value)


def _flag(value: Any, where: str) -> bool:
    return value if isinstance(value, bool) else _fail(where, "true or false", value)


def _count(value: Any, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    _fail(where, "an integer ≥ 0", value)


def _number(value: Any, where: str) -> float:
    """A score: null stands for NaN."""
    if value is None:
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    _fail(where, "a number or null", value)


def _cost(value: Any, where: str) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(value)
    _fail(where, "a number ≥ 0", value)


def _mapping(value: Any, where: str) -> dict[str, Any]:
    return value if isinstance(value, dict) else _fail(where, "an object", value)


def _values(read: Callable[[Any, str], Any]) -> Callable[[Any, str], dict[str, Any]]:
    return lambda value, where: {
        name: read(item, f"'{shown(name)}' of {where}") for name, item in _mapping(value, where).items()
    }


def _optional(read: Callable[[Any, str], Any]) -> Callable[[Any, str], Any]:
    return lambda value, where: None if value is None else read(value, where)


def _several(kind: type[Any], noun: str) -> Callable[[Any, str], tuple[Any, ...]]:
    def read(value: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list):
            _fail(where, "a list", value)
        return tuple(_read_part(kind, item, f"{noun} {number}") for number, item in enumerate(value, start=1))

    return read


_READERS: dict[Any, Callable[[Any, str], Any]] = {
    str: _text,
    bool: _flag,
    int: _count,
    float: _cost,
    float | None: _optional(_cost),
    dict[str, Any]: _mapping,
    dict[str, float]: _values(_number),
    dict[str, float | None]: _values(_optional(_cost)),
    tuple[PlannedModel, ...]: _several(PlannedModel, "planned model"),
    tuple[TriedModel, ...]: _several(TriedModel, "model"),
    tuple[Moment, ...]: _several(Moment, "moment"),
    TriedModel | None: _optional(lambda value, where: _read_part(TriedModel, value, "the final model")),
}
"""Type of a field → the function that checks its value."""


def _read_part(kind: type[_Part], value: Any, where: str) -> _Part:
    """Create a dataclass from a mapping with exactly its fields."""
    given = _mapping(value, where)
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    if unknown := [name for name in given if name not in names]:
        raise ValueError(f"'{shown(unknown[0])}' of {where} is unknown")
    if missing := [name for name in names if name not in given]:
        raise ValueError(f"'{missing[0]}' of {where} is missing")
    hints = get_type_hints(kind)
    found = {}
    for name in names:
        place = f"'{name}' of {where}"
        if name == "state" and given[name] not in STATES:
            _fail(place, " or ".join(STATES), given[name])
        read = _SCORES.get((kind, name)) or _READERS[hints[name]]
        found[name] = read(given[name], place)
    return kind(**found)


_SCORES: dict[tuple[Any, str], Callable[[Any, str], Any]] = {
    (TriedModel, "score"): _optional(_number),
    (Moment, "score"): _number,
}
"""Fields that may be negative, unlike costs."""
