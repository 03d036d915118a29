"""A search for the settings of a model that suit a corpus best, and the model that is trained with them.

DIR/tuning.json      what is searched on what, which has to be the same where a search goes on
DIR/trials.jsonl     a line for each trial that ended
DIR/recipe.toml      the best settings; DIR/trials.tsv and DIR/trials.svg show all trials
DIR/model            trained with the best settings on all documents
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xmtc import __version__
from xmtc.artifact import store
from xmtc.artifact.workspace import Workspace, log_beside
from xmtc.core import config
from xmtc.core.errors import ConfigError, DataError, XmtcError
from xmtc.core.files import check_output_folder, locked, make_folder, replace_file, write_json
from xmtc.core.progress import Progress, Task, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.data.splitting import split
from xmtc.experiments.requests import TuneRequest
from xmtc.experiments.search_space import Search, decide
from xmtc.experiments.trials import (
    COMPLETE,
    FAILED,
    PRUNED,
    Hopeless,
    Trial,
    Watched,
    add_trial,
    best_of,
    check_installed,
    proposed,
    read_trials,
)
from xmtc.models.base import Model
from xmtc.workflows.evaluate import evaluate_model
from xmtc.workflows.train import Documents, data_digest, document_reader, plan_training, train_on

TUNING, TRIALS, RECIPE, TABLE, PICTURE, MODEL = (
    *("tuning.json", "trials.jsonl", "recipe.toml"),
    *("trials.tsv", "trials.svg", "model"),
)
SHARE, LEAST, MOST = 0.1, 200, 10_000
"""Of the documents that are split off to measure on where none are given; at most a third of all."""


@dataclass(frozen=True)
class TuningOutcome:
    """What a search found, and where it is written."""

    folder: Path
    search: Search
    trials: list[Trial]
    best: Trial
    measured: int
    """Validation documents."""
    split_off: bool
    """Whether they were taken from the training documents."""
    exhausted: bool
    """Whether there was nothing left to try."""
    model: Model | None = None

    def count(self, state: str) -> int:
        return sum(trial.state == state for trial in self.trials)


def tune_files(request: TuneRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> TuningOutcome:
    """Search for the best settings on files of documents, then train with them."""
    check_installed()
    search = decide(
        request.model,
        recipe=request.recipe,
        settings=config.parse_assignments(request.assignments),
        search=request.search,
        measure=request.measure,
        trials=request.trials,
        minutes=request.minutes,
    )

    documents = document_reader(request.train_file, request.valid, request.reading, request.vocabulary, progress)
    return tune(
        search,
        request.out,
        documents,
        runtime=runtime,
        progress=progress,
        resume=request.resume,
        force=request.force,
        refit=request.refit,
    )


def tune(
    search: Search,
    out: str | Path,
    documents: Documents,
    *,
    runtime: Runtime | None = None,
    progress: Progress = silent,
    resume: bool = False,
    force: bool = False,
    refit: bool = True,
) -> TuningOutcome:
    """Search, write what was found, and train with the best settings on all training documents.

    `documents` gives those to learn from and those to measure on, if there are any; otherwise some are split off.
    """
    check_installed()
    runtime, out = runtime or Runtime(), Path(out)
    if runtime.world_size > 1:
        raise ConfigError("a search runs in one process. Start it without torchrun.")
    with _claimed(out, resume=resume, force=force):
        train, valid = documents()
        search = search if train.has_text else search.without_text()
        learnt, measured = _parts(train, runtime.seed) if valid is None else (train, valid)
        _begin(out, _fingerprint(search, train, valid, runtime), resume)
        bench = _Bench(search, learnt, measured, valid, runtime)
        trials, exhausted = _searched(bench, out, progress)
        best = best_of(trials)
        assert best is not None  # the first trial is complete, or nothing is
        outcome = TuningOutcome(out, search, trials, best, len(measured), valid is None, exhausted)
        _write(outcome)
        if not refit:
            return outcome
        model = _refit(search.settings(best.settings), search.model, out / MODEL, (train, valid), runtime, progress)
        return TuningOutcome(**{**vars(outcome), "model": model})


# ---- the folder


@contextmanager
def _claimed(out: Path, *, resume: bool, force: bool) -> Iterator[None]:
    """A folder that is this search's alone; it is gone again if there is nothing in it after a mistake."""
    begun = (out / TUNING).is_file()
    if resume and not begun:
        raise DataError(f"{out}: there is no search to go on with. Leave out --resume.")
    if begun and not (resume or force):
        raise DataError(f"{out}: holds a search already. Go on with --resume, or start over with --force.")
    check_output_folder(out, lambda path: begun)
    make_folder(out)
    try:
        with locked(out, "another process is tuning there. Wait for it, or choose another folder."):
            yield
    except XmtcError:
        if not any(out.iterdir()):
            out.rmdir()
        raise


def _fingerprint(search: Search, train: Dataset, valid: Dataset | None, runtime: Runtime) -> dict[str, Any]:
    """What must be equal for trials of an earlier run to be trials of this one."""
    return {
        "version of xmtc": __version__,
        **search.to_json(),
        "seed": runtime.seed,
        "precision": runtime.precision,
        "training data": data_digest(train),
        "validation data": None if valid is None else data_digest(valid),
    }


def _begin(out: Path, fingerprint: Mapping[str, Any], resume: bool) -> None:
    if resume:
        try:
            before = dict(json.loads((out / TUNING).read_text(encoding="utf-8")))
        except (ValueError, TypeError):
            raise DataError(f"{out / TUNING}: damaged. Start over with --force.") from None
        for name, value in fingerprint.items():
            if before.get(name) != value:
                raise ConfigError(
                    f"{out}: was started with different {name}. "
                    "Give the same files and settings, or start over with --force."
                )
        return
    _forget(out)
    write_json(out / TUNING, fingerprint)


def _forget(out: Path) -> None:
    """Leave nothing of an earlier search."""
    for name in (TUNING, TRIALS, RECIPE, TABLE, PICTURE):
        (out / name).unlink(missing_ok=True)
    log_beside(out / MODEL).unlink(missing_ok=True)
    for folder in (out / MODEL, Workspace.beside(out / MODEL)):
        shutil.rmtree(folder, ignore_errors=True)


# ---- the search


@dataclass(frozen=True)
class _Bench:
    """What every trial works with."""

    search: Search
    learnt: Dataset
    measured: Dataset
    given: Dataset | None
    """Validation documents that models may make choices on, as in any training; None where they were split off."""
    runtime: Runtime

    def attempt(self, number: int, settings: dict[str, Any], before: Sequence[Trial], progress: Progress) -> Trial:
        """One trial. The first, which is what everything is held against, must not fail."""
        watched, started = Watched(before), time.perf_counter()
        score, state, error = None, COMPLETE, ""
        try:
            model = self.search.new_model(settings)
            model.fit(self.learnt, valid=self.given, runtime=self.runtime, progress=progress, workspace=watched)
            score = self._measure(model)
        except Hopeless:
            state = PRUNED
        except (XmtcError, MemoryError) as failure:
            if number == 0:
                raise
            state, error = FAILED, str(failure) or "out of memory"
        return Trial(number, state, settings, score, round(time.perf_counter() - started, 3), watched.looks, error)

    def _measure(self, model: Model) -> float:
        found = evaluate_model(model, self.measured).metrics
        if self.search.measure not in found:
            raise ConfigError(f"{model.name} does not tell what {self.search.measure} needs. Choose another --measure.")
        return float(found[self.search.measure])


def _parts(train: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """The training documents without some, and these."""
    size = min(max(round(SHARE * len(train)), LEAST), MOST, len(train) // 3)
    try:
        rows = split(train, size / len(train), seed=seed)
    except XmtcError:
        raise DataError(
            f"{len(train):,} documents: none can be split off to measure on. Give more, or name some with --valid FILE."
        ) from None
    return train.take(rows["train"]), train.take(rows["test"])


def _searched(bench: _Bench, out: Path, progress: Progress) -> tuple[list[Trial], bool]:
    """All trials, those of an earlier run first, and whether there is nothing left to try."""
    search, path = bench.search, out / TRIALS
    trials = read_trials(path)
    started = time.perf_counter() - sum(trial.seconds for trial in trials)
    with progress.task("trials", total=search.trials) as task:
        task.advance(min(len(trials), search.trials))
        while len(trials) < search.trials:
            over = search.minutes is not None and time.perf_counter() - started >= 60 * search.minutes
            if over and trials:
                break
            settings = proposed(search.space, trials, bench.runtime.seed) if trials else search.start_values()
            if settings is None:
                return trials, True
            try:
                trial = bench.attempt(len(trials), settings, trials, _Within(task, f"trial {len(trials)}"))
            except XmtcError:  # what everything would be held against
                _forget(out)
                raise
            add_trial(path, trial)
            trials.append(trial)
            task.advance()
            progress.say(trial_line(trial, trials))
    return trials, False


def finished(out: Path) -> int:
    """Trials of a search that was interrupted."""
    return len(read_trials(out / TRIALS))


def trial_line(trial: Trial, trials: Sequence[Trial]) -> str:
    """One trial in a line."""
    end = trial.state if trial.score is None else f"{100 * trial.score:.2f}"
    note = ", the start" if trial.number == 0 else ", the best so far" if best_of(trials) is trial else ""
    return f"trial {trial.number}: {end}{note}  ({written(trial.settings)}; {trial.seconds:.1f} s)"


def written(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items())


def plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


class _Within:
    """Progress of one trial, as words beside the bar of all of them."""

    def __init__(self, task: Task, name: str) -> None:
        self._task, self._name = task, name

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        yield _Step(self._task, f"{self._name}: {title}", total)

    def say(self, line: str) -> None:
        return


class _Step:
    def __init__(self, task: Task, title: str, total: int | None) -> None:
        self._task, self._title, self._total, self._done = task, title, total, 0
        task.note(title)

    def advance(self, steps: int = 1) -> None:
        self._done += steps
        if self._total:
            self._task.note(f"{self._title} {100 * self._done // self._total} %")

    def note(self, words: str) -> None:
        return


# ---- what is written


def _write(outcome: TuningOutcome) -> None:
    from xmtc.views.charts import TrialMark, trial_plot

    out, trials, best = outcome.folder, outcome.trials, outcome.best
    measure = outcome.search.measure
    marks = [
        TrialMark(
            each.score, each.state, best is each, f"{trial_line(each, ())} {each.error}".rstrip().replace("  ", " ")
        )
        for each in trials
    ]
    picture = trial_plot(marks, f"Trials of {outcome.search.model}", measure).svg()
    for name, content in ((RECIPE, recipe(outcome)), (TABLE, table(trials, measure)), (PICTURE, picture)):
        with replace_file(out / name) as stream:
            stream.write(content.encode())


def recipe(outcome: TuningOutcome) -> str:
    """A recipe of all settings that are not the defaults."""
    search, best, first = outcome.search, outcome.best, outcome.trials[0]
    reached = [f"{100 * trial.score:.2f}" for trial in (best, first) if trial.score is not None]
    where = "documents split off" if outcome.split_off else "validation documents"
    about = (
        f"Best of {len(outcome.trials)} trials over {', '.join(search.space)}: {search.measure} {reached[0]} on "
        f"{outcome.measured:,} {where}, where the settings it started from have {reached[1]}."
    )
    settings = search.settings(best.settings)
    default = config.flat(config.to_mapping(type(settings)()))
    found = config.flat(config.to_mapping(settings)).items()
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in found if value != default[name]]
    head = [f"about = {json.dumps(about, ensure_ascii=False)}", f'model = "{search.model}"', "", "[settings]"]
    return "\n".join([*head, *lines, ""])


def table(trials: Sequence[Trial], measure: str) -> str:
    """One trial a line, tabs between its cells."""
    names = list(trials[0].settings)
    lines = [["trial", "state", measure, "seconds", *names, "error"]]
    for trial in trials:
        score = "" if trial.score is None else f"{trial.score:.6f}"
        values = [plain(trial.settings[name]) for name in names]
        lines.append([str(trial.number), trial.state, score, f"{trial.seconds:.3f}", *values, trial.error])
    return "".join("\t".join(" ".join(cell.split()) for cell in line) + "\n" for line in lines)


# ---- the model


def _refit(
    settings: config.Settings,
    name: str,
    out: Path,
    documents: tuple[Dataset, Dataset | None],
    runtime: Runtime,
    progress: Progress,
) -> Model:
    """The model with the best settings, trained on all documents; one that is there already, or half, is taken up."""
    wanted = config.to_mapping(settings)
    work = Workspace.beside(out)
    if not work.exists() and store.is_model(out) and store.read_manifest(out)["settings"] == wanted:
        return Model.load(out, runtime)
    goes_on = _begun_with(work) == wanted
    decided = plan_training(out, name=name, settings=wanted, resume=goes_on, force=not goes_on)
    return train_on(decided, lambda: documents, runtime=runtime, progress=progress)


def _begun_with(work: Path) -> Any:
    """The settings of an unfinished training; None where there is none."""
    try:
        return json.loads((work / "training.json").read_text(encoding="utf-8")).get("settings")
    except (OSError, ValueError, AttributeError):
        return None
