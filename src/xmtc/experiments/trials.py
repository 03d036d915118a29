"""Trials of a search over settings: what is kept of each, what is tried next, and when one is not worth finishing.

A search is its trials: what comes next follows from them, the seed and the trial's number alone. One that was killed
goes on as if it had never stopped.
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
"""Trials at random before a search begins to learn from them."""
JUDGES = 4
"""Complete trials that it takes to call another one hopeless."""
PATIENCE = 2
"""Looks of each network that nobody is judged by."""
DRAWS = 50
"""Times that settings are drawn until they are new; after that, all have been tried, or nearly."""
_EXAMPLE = '{"number": 0, "state": "complete", "settings": {"cost": 1.0}, "score": 0.5, "seconds": 1.0}'

Space = Mapping[str, Range | Choices]


@dataclass(frozen=True)
class Look:
    """A model's own score during its training, the `place`-th of a level of a tree or of the one network."""

    level: int
    place: int
    score: float


@dataclass(frozen=True)
class Trial:
    """One line of trials.jsonl."""

    number: int
    state: str
    """complete, pruned (it was hopeless, and ended) or failed."""
    settings: dict[str, Any]
    """Of those that are searched, by dotted name."""
    score: float | None
    """On the validation documents; None unless complete."""
    seconds: float
    looks: list[Look] = field(default_factory=list)
    error: str = ""

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Trial:
        trial = cls(**{**values, "looks": [Look(**each) for each in values["looks"]]})
        whole = isinstance(trial.number, int) and isinstance(trial.settings, dict)
        if not whole or (trial.state == COMPLETE) is not isinstance(trial.score, float):
            raise TypeError
        return trial


def best_of(trials: Sequence[Trial]) -> Trial | None:
    """The complete trial of the highest score, the earlier of two."""
    complete = [trial for trial in trials if trial.score is not None]
    return max(complete, key=lambda trial: trial.score or 0.0, default=None)


# ---- the file


def add_trial(path: Path, trial: Trial) -> None:
    """A line that is on the disk when this returns."""
    with writing(path), path.open("ab") as stream:
        stream.write((json.dumps(asdict(trial), ensure_ascii=False) + "\n").encode())
        stream.flush()
        os.fsync(stream.fileno())


def read_trials(path: Path) -> list[Trial]:
    """All trials that ended. A last line that was torn when the process was killed is taken out of the file."""
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    trials: list[Trial] = []
    for line, values in parse_lines(whole, path, 0, _EXAMPLE):
        try:
            trials.append(Trial.from_json(values))
        except (TypeError, KeyError):
            raise DataError(f"{path}:{line}: is no trial. Start over with --force.") from None
        if trials[-1].number != len(trials) - 1:
            raise DataError(f"{path}:{line}: is not trial {len(trials) - 1}. Start over with --force.")
    if len(whole) < len(content):
        with replace_file(path) as stream:
            stream.write(whole)
    return trials


# ---- what is tried next


def check_installed() -> None:
    """Refuse before anything is read, not after."""
    if importlib.util.find_spec("optuna") is None:
        raise missing_extra("tune needs Optuna", "tune")
    check_matplotlib()


def proposed(space: Space, trials: Sequence[Trial], seed: int) -> dict[str, Any] | None:
    """Settings to try after these trials; None when none is left that was not tried."""
    tried = {_written(trial.settings) for trial in trials}
    for draw in range(DRAWS):
        settings = _drawn(space, trials, [seed, len(trials), draw])
        if _written(settings) not in tried:
            return settings
    return None


def _written(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


def _drawn(space: Space, trials: Sequence[Trial], seed: Sequence[int]) -> dict[str, Any]:
    """Settings as Optuna's estimator of good and bad regions would have them; it has no memory but these trials."""
    import optuna

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        number = int(np.random.SeedSequence(list(seed)).generate_state(1)[0])
        sampler = optuna.samplers.TPESampler(seed=number, n_startup_trials=STARTERS, multivariate=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        distributions = {name: _distribution(each) for name, each in space.items()}
        study.add_trials([_as_optuna_has_it(trial, space, distributions) for trial in trials])
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
    """A value as it is tried and written down; four digits say enough of a number."""
    if isinstance(space, Choices):
        return json.loads(value)
    return min(max(float(f"{value:.4g}"), space.low), space.high) if isinstance(value, float) else value


def _as_optuna_has_it(trial: Trial, space: Space, distributions: Mapping[str, Any]) -> Any:
    """A start value that a search would not try, such as 'auto', tells it nothing and is left out."""
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


# ---- when a trial is not worth finishing


class Hopeless(Exception):
    """Raised within a training to end it."""


class Watched(Workspace):
    """A workspace in memory that looks on: it ends a training that falls behind those that were finished."""

    def __init__(self, trials: Sequence[Trial]) -> None:
        super().__init__()
        self.looks: list[Look] = []
        self._judges = [trial.looks for trial in trials if trial.state == COMPLETE and trial.looks]

    def log(self, line: Mapping[str, Any]) -> None:
        """Only the first of several networks is judged: the others differ by their seed alone."""
        if line.get("score") is None or line.get("member", 0) != 0:
            return
        level = int(line.get("level") or 0)
        place = sum(look.level == level for look in self.looks)
        self.looks.append(Look(level, place, float(line["score"])))
        if self._is_hopeless(level, place):
            raise Hopeless

    def _is_hopeless(self, level: int, place: int) -> bool:
        """Whether its best so far is below what half of the others had reached by then, on the same level."""
        reached = [_reached(looks, level, place) for looks in self._judges]
        others = [score for score in reached if score is not None]
        own = _reached(self.looks, level, place)
        if place < PATIENCE or len(others) < JUDGES or own is None:
            return False
        return own < statistics.median(others)


def _reached(looks: Sequence[Look], level: int, place: int) -> float | None:
    """The best score of a level up to this look; of a training that ended before, the best it had."""
    return max((look.score for look in looks if look.level == level and look.place <= place), default=None)
