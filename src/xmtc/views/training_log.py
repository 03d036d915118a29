"""Read training logs: loss and validation score of one or several runs.

A log contains one JSON object per line: `step`, `epoch` and `seconds`, all counted from the start of training, and any
of `loss`, `score` (nDCG@5 on the validation set, 0 to 1), `best` (whether that score is the best so far), `member`
(number of the ensemble member) and `level` (of a label tree; levels are trained separately), both from 0. A log can be
read while it is being written: an incomplete last line is ignored. If an interrupted run resumed from an earlier step,
the steps logged before the interruption are replaced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from xmtc.artifact.store import is_model
from xmtc.artifact.workspace import LOG, LOG_SUFFIX, WORK_SUFFIX, Workspace, log_beside
from xmtc.core.durations import duration
from xmtc.core.errors import DataError, shown
from xmtc.core.files import parse_lines

AGAINST = ("epoch", "seconds", "step")
_MOST = 2**53  # largest integer that a float represents exactly
_EXAMPLE = '{"step": 100, "epoch": 0.5, "seconds": 12.3, "loss": 0.04}'


class Point(NamedTuple):
    """A point of a curve: x position and value."""

    at: float
    value: float


@dataclass(frozen=True)
class Curve:
    """Losses, validation scores and best score of one run."""

    run: str
    """Name of the model and, for an ensemble, the member."""
    level: int | None
    """Level of a label tree, from 0."""
    losses: list[Point]
    scores: list[Point]
    best: Point | None
    epochs: float
    seconds: float

    @property
    def name(self) -> str:
        """Name of the curve: the run and, for a label tree, the level."""
        return self.run if self.level is None else f"{self.run}, level {self.level + 1}"


# ---- reading


def log_of(path: Path) -> Path:
    """Resolve a path to a log: the file itself, or the log of a model folder, trained or still in training."""
    if path.exists() and not path.is_dir():
        return path
    if path.name.endswith(WORK_SUFFIX) and (path / LOG).exists():
        return path / LOG
    logs = [log_beside(path), Workspace.beside(path) / LOG]
    for log in logs if is_model(path) else reversed(logs):
        if log.exists():
            return log
    if path.is_dir():
        raise DataError(f"{path}: no training log for this folder ({logs[0]} does not exist). Pass a training log.")
    return path


def read_curves(paths: Sequence[Path], against: str = "epoch") -> list[Curve]:
    """Read one curve per log, or per member and tree level in it, with unique names."""
    logs = list(dict.fromkeys(log_of(path) for path in paths))
    short = [_short_name(log) for log in logs]
    names = short if len(set(short)) == len(logs) else [str(log) for log in logs]
    return [
        curve for name, log in zip(names, logs, strict=True) for curve in curves_of(name, _lines(log), log, against)
    ]


def _short_name(log: Path) -> str:
    """The name of the model of a log, derived from the path of the log."""
    if log.name == LOG and log.parent.name.endswith(WORK_SUFFIX):
        return log.parent.name.removesuffix(WORK_SUFFIX)
    return log.name.removesuffix(LOG_SUFFIX).removesuffix(".jsonl")


def curves_of(
    name: str, lines: Iterable[tuple[int, dict[str, Any]]], log: Path | str, against: str = "epoch"
) -> list[Curve]:
    """The curves of one log, given its numbered lines; `log` names it in error messages."""
    runs: dict[tuple[int, int | None], dict[int, dict[str, Any]]] = {}  # (member, level) → step → logged values
    for number, line in lines:
        place = f"{log}:{number}"
        step = _whole(line, "step", place)
        if step is None:
            raise DataError(f"{place}: 'step' is missing. Write one object per line: {_EXAMPLE}.")
        if line.get(against) is None:
            raise DataError(f"{place}: '{against}' is missing. Choose another axis with --against {_others(against)}.")
        noted: dict[str, Any] = {key: _number(line, key, place) for key in ("epoch", "seconds", "loss", "score")}
        noted.update(step=step, best=line.get("best") is True or None)
        run = runs.setdefault((_whole(line, "member", place) or 0, _whole(line, "level", place)), {})
        for later in [other for other in run if other > step]:  # resumed from this step
            del run[later]
        run[step] = {**run.get(step, {}), **{key: value for key, value in noted.items() if value is not None}}
    if not runs:
        raise DataError(f"{log}: the log is empty. Wait until training has written its first line.")
    several = len({member for member, _ in runs}) > 1
    found = [
        _curve(f"{name}, member {member + 1}" if several else name, level, run, against)
        for (member, level), run in runs.items()
    ]
    if not any(curve.losses or curve.scores for curve in found):
        raise DataError(f"{log}: no line has a 'loss' or a 'score'. Check that this is a training log.")
    return found


def _lines(log: Path) -> Iterable[tuple[int, dict[str, Any]]]:
    if not log.exists():
        raise DataError(f"{log}: no such file. Check the path.")
    try:
        content = log.read_bytes()
    except OSError as error:
        raise DataError(f"{log}: cannot be read ({error.strerror}). Check the path and its permissions.") from None
    whole = content[: content.rfind(b"\n") + 1]
    yield from parse_lines(whole, log, 0, _EXAMPLE)
    yield from parse_lines(content[len(whole) :], log, whole.count(b"\n"), _EXAMPLE, lambda _: None)


def _number(line: dict[str, Any], key: str, place: str) -> float | None:
    """A number; None if it is missing or an infinite or NaN loss, which cannot be drawn."""
    value = line.get(key)
    if value is None:
        return None
    low, high, wanted = {"score": (0, 1, " from 0 to 1"), "loss": (-_MOST, _MOST, "")}.get(key, (0, _MOST, " ≥ 0"))
    if isinstance(value, int | float) and not isinstance(value, bool):
        if low <= value <= high:
            return float(value)
        if key == "loss" and isinstance(value, float):
            return None
    raise DataError(f"{place}: '{key}' must be a number{wanted}. Got {shown(value)}.")


def _whole(line: dict[str, Any], key: str, place: str) -> int | None:
    value = line.get(key)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST):
        raise DataError(f"{place}: '{key}' must be an integer ≥ 0. Got {shown(value)}.")
    return value


def _others(against: str) -> str:
    return " or ".join(other for other in AGAINST if other != against)


def _curve(name: str, level: int | None, run: dict[int, dict[str, Any]], against: str) -> Curve:
    noted = list(run.values())
    scored = [line for line in noted if "score" in line]
    flagged = [line for line in scored if "best" in line]
    # The score that training flagged as best; otherwise the highest, the earlier one of ties.
    best = flagged[-1] if flagged else max(scored, key=lambda line: float(line["score"]), default=None)
    return Curve(
        name,
        level,
        [Point(float(line[against]), line["loss"]) for line in noted if "loss" in line],
        [Point(float(line[against]), line["score"]) for line in scored],
        None if best is None else Point(float(best[against]), best["score"]),
        max((line["epoch"] for line in noted if "epoch" in line), default=0.0),
        max((line["seconds"] for line in noted if "seconds" in line), default=0.0),
    )


def summary(curve: Curve, against: str) -> str:
    """Length of a run and its best score."""
    went = [f"{float(f'{curve.epochs:.4g}'):,g} epoch{'' if curve.epochs == 1 else 's'}"] if curve.epochs else []
    went += [duration(curve.seconds)] if curve.seconds else []
    if curve.best is not None:
        at = f"after {duration(curve.best.at)}" if against == "seconds" else f"at {against} {curve.best.at:,.6g}"
        went.append(f"best nDCG@5 {100 * curve.best.value:.2f} {at}")
    return ", ".join(went)
