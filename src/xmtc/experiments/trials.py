"""Trials of a hyperparameter search: storage, proposals for the next trial, and pruning.

The state of a search consists of its trials: the next one depends only on them, the seed and the trial's number. A
killed search therefore resumes as if it had never stopped.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.artifact.workspace import Workspace
from xmtc.core.config import Choices, Range
from xmtc.core.errors import DataError, missing_extra
from xmtc.core.files import parse_lines, replace_file, writing
from xmtc.views.theme import check_matplotlib

COMPLETE, PRUNED, FAILED = "complete", "pruned", "failed"
STARTERS = 10
"""Random trials before the sampler uses their results."""
JUDGES = 4
"""Minimum number of complete trials for pruning."""
PATIENCE = 2
"""Number of initial validations of each network that are never pruned."""
DRAWS = 50
"""Maximum number of draws until settings are new; after that, (nearly) all have been tried."""
_EXAMPLE = '{"number": 0, "state": "complete", "settings": {"cost": 1.0}, "score": 0.5, "seconds": 1.0}'

Space = Mapping[str, Range | Choices]


@dataclass(frozen=True)
class Look:
    """A validation score during training: the `place`-th of a tree level, or of the only network."""

    level: int
    place: int
    score: float


@dataclass(frozen=True)
class Trial:
    """One line of trials.jsonl."""

    number: int
    state: str
    """complete, pruned or failed."""
    settings: dict[str, Any]
    """The searched settings by dotted name."""
    score: float | None
    """Score on the validation set; None unless complete."""
    seconds: float
    looks: list[Look] = field(default_factory=list)
    error: str = ""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Trial:
        """Read a trial from a JSON object; raises TypeError or KeyError if it is invalid."""
        trial = cls(**{**values, "looks": [Look(**each) for each in values["looks"]]})
        valid = isinstance(trial.number, int) and isinstance(trial.settings, dict)
        if not valid or (trial.state == COMPLETE) is not isinstance(trial.score, float):
            raise TypeError
        return trial


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The complete trial with the highest score, the earliest of ties."""
    complete = [trial for trial in trials if trial.score is not None]
    return max(complete, key=lambda trial: trial.score or 0.0, default=None)


# ---- the file


def add_trial(path: Path, trial: Trial) -> None:
    """Append a trial; it is on disk when this returns."""
    with writing(path), path.open("ab") as stream:
        stream.write((json.dumps(asdict(trial), ensure_ascii=False) + "\n").encode())
        stream.flush()
        os.fsync(stream.fileno())


def read_trials(path: Path) -> list[Trial]:
    """All finished trials. An incomplete last line, left by a killed process, is removed from the file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    trials: list[Trial] = []
    for line, values in parse_lines(complete, path, 0, _EXAMPLE):
        try:
            trials.append(Trial.from_json(values))
        except (TypeError, KeyError):
            raise DataError(f"{path}:{line}: not a valid trial. Start over with --force.") from None
        if trials[-1].number != len(trials) - 1:
            raise DataError(f"{path}:{line}: expected trial {len(trials) - 1}. Start over with --force.")
    if len(complete) < len(content):
        with replace_file(path) as stream:
            stream.write(complete)
    return trials


# ---- the next trial


def check_installed() -> None:
    """Raise if Optuna or matplotlib is missing; call this before any file is read."""
    if importlib.util.find_spec("optuna") is None:
        raise missing_extra("tune requires Optuna", "tune")
    check_matplotlib()


def proposed(space: Space, trials: Sequence[Trial], seed: int) -> dict[str, Any] | None:
    """Settings of the next trial; None if all have been tried."""
    tried = {_written(trial.settings) for trial in trials}
    for draw in range(DRAWS):
        settings = _drawn(space, trials, [seed, len(trials), draw])
        if _written(settings) not in tried:
            return settings
    return None


def _written(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _drawn(space: Space, trials: Sequence[Trial], seed: Sequence[int]) -> dict[str, Any]:
    """Settings proposed by Optuna's TPE sampler; its only state is these trials."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
        sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=STARTERS, multivariate=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = {name: _distribution(each) for name, each in space.items()}
        study.add_trials([_optuna_trial(trial, space, distributions) for trial in trials])
        drawn = study.ask(distributions).params
    return {name: _plain(drawn[name], space[name]) for name in space}


def _distribution(space: Range | Choices) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if isinstance(space, Choices):
        return CategoricalDistribution([json.dumps(value) for value in space.values])
    if isinstance(space.low, int) and isinstance(space.high, int):
        return IntDistribution(space.low, space.high, log=space.log)
    return FloatDistribution(space.low, space.high, log=space.log)


def _plain(value: Any, space: Range | Choices) -> Any:
    """A value as it is tried and stored, rounded to four significant digits."""
    if isinstance(space, Choices):
        return json.loads(value)
    return min(max(float(f"{value:.4g}"), space.low), space.high) if isinstance(value, float) else value


def _optuna_trial(trial: Trial, space: Space, distributions: Mapping[str, Any]) -> Any:
    """Convert a trial for Optuna; values outside the search space, such as a start value 'auto', are left out."""
    from optuna.trial import TrialState, create_trial

    states = {COMPLETE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED, FAILED: TrialState.FAIL}
    known = {
        name: json.dumps(value) if isinstance(space[name], Choices) else value
        for name, value in trial.settings.items()
        if _holds(space[name], value)
    }
    return create_trial(
        state=states[trial.state],
        value=trial.score,
        params=known,
        distributions={name: distributions[name] for name in known},
        intermediate_values={place: look.score for place, look in enumerate(trial.looks)},
    )


def _holds(space: Range | Choices, value: Any) -> bool:
    if isinstance(space, Choices):
        return json.dumps(value) in [json.dumps(each) for each in space.values]
    return value in space


# ---- pruning


class Hopeless(Exception):
    """Raised during training to prune a trial."""


class Watched(Workspace):
    """A workspace in memory that prunes a training run with scores below those of complete trials."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__()
        self.looks: list[Look] = []
        self._judges = [trial.looks for trial in trials if trial.state == COMPLETE and trial.looks]

    def log(self, line: Mapping[str, Any]) -> None:
        """Record a validation score; of several networks, which differ only in their seed, only the first counts."""
        if line.get("score") is None or line.get("member", 0) != 0:
            return
        level = int(line.get("level") or 0)
        place = sum(look.level == level for look in self.looks)
        self.looks.append(Look(level, place, float(line["score"])))
        if self._is_hopeless(level, place):
            raise Hopeless

    def _is_hopeless(self, level: int, place: int) -> bool:
        """Median pruning: whether the best score so far is below the median of the complete trials at this point."""
        reached = [_reached(looks, level, place) for looks in self._judges]
        others = [score for score in reached if score is not None]
        own = _reached(self.looks, level, place)
        if place < PATIENCE or len(others) < JUDGES or own is None:
            return False
        return own < statistics.median(others)


def _reached(looks: Sequence[Look], level: int, place: int) -> float | None:
    """The best score of a level up to this validation, or of all if the run ended earlier."""
    return max((look.score for look in looks if look.level == level and look.place <= place), default=None)
