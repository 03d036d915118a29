"""Hyperparameter search for a model on a corpus, and training with the best settings.

DIR/tuning.json      definition and data of the search, which must be the same to resume it
DIR/trials.jsonl     one line per finished trial
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
from xmtc.core.parsing import read_json
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
"""Fraction, minimum and maximum of the documents to hold out if no validation set is given; at most a third of all."""


@dataclass(frozen=True)
class TuningOutcome:
    """The result of a search."""

    folder: Path
    search: Search
    trials: list[Trial]
    best: Trial
    measured: int
    """Number of validation documents."""
    split_off: bool
    """Whether they were held out from the training documents."""
    exhausted: bool
    """Whether all settings have been tried."""
    model: Model | None = None

    def count(self, state: str) -> int:
        """Number of trials with this state."""
        return sum(trial.state == state for trial in self.trials)


def tune_files(request: TuneRequest, *, runtime: Runtime | None = None, progress: Progress = silent) -> TuningOutcome:
    """Search for the best settings on files of documents, then train a model with them."""
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
    """Search, write the results, and train with the best settings on all training documents.

    `documents` returns the training and the validation set; without the latter, some training documents are held out.
    """
    check_installed()
    runtime, out = runtime or Runtime(), Path(out)
    if runtime.world_size > 1:
        raise ConfigError("a search runs in a single process. Run it without torchrun.")
    with _claimed(out, resume=resume, force=force):
        train, valid = documents()
        search = search if train.has_text else search.without_text()
        learnt, measured = _parts(train, runtime.seed) if valid is None else (train, valid)
        _begin(out, _fingerprint(search, train, valid, runtime), resume)
        bench = _Bench(search, learnt, measured, valid, runtime)
        trials, exhausted = _searched(bench, out, progress)
        best = best_of(trials)
        assert best is not None  # the first trial is complete, or an error was raised
        outcome = TuningOutcome(out, search, trials, best, len(measured), valid is None, exhausted)
        _write(outcome)
        if not refit:
            return outcome
        model = _refit(search.settings(best.settings), search.model, out / MODEL, (train, valid), runtime, progress)
        return TuningOutcome(**{**vars(outcome), "model": model})


# ---- the folder


@contextmanager
def _claimed(out: Path, *, resume: bool, force: bool) -> Iterator[None]:
    """Lock the folder for this search; an empty folder is removed after an error."""
    begun = (out / TUNING).is_file()
    if resume and not begun:
        raise DataError(f"{out}: no search to resume. Leave out --resume.")
    if begun and not (resume or force):
        raise DataError(f"{out}: already contains a search. Continue with --resume, or start over with --force.")
    check_output_folder(out, lambda path: begun)
    make_folder(out)
    try:
        with locked(out, "another process is tuning in this folder. Wait for it, or choose another folder."):
            yield
    except XmtcError:
        if not any(out.iterdir()):
            out.rmdir()
        raise


def _fingerprint(search: Search, train: Dataset, valid: Dataset | None, runtime: Runtime) -> dict[str, Any]:
    """Inputs and settings that must be equal to resume a search."""
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
            before = dict(read_json(out / TUNING, any_number=True))
        except (ValueError, TypeError):
            raise DataError(f"{out / TUNING}: damaged. Start over with --force.") from None
        for name, value in fingerprint.items():
            if before.get(name) != value:
                raise ConfigError(
                    f"{out}: was started with different {name}. "
                    "Pass the same files and settings, or start over with --force."
                )
        return
    _remove_search(out)
    write_json(out / TUNING, fingerprint)


def _remove_search(out: Path) -> None:
    """Delete all files of an earlier search."""
    for name in (TUNING, TRIALS, RECIPE, TABLE, PICTURE):
        (out / name).unlink(missing_ok=True)
    log_beside(out / MODEL).unlink(missing_ok=True)
    for folder in (out / MODEL, Workspace.beside(out / MODEL)):
        shutil.rmtree(folder, ignore_errors=True)


# ---- the search


@dataclass(frozen=True)
class _Bench:
    """Data and settings shared by all trials."""

    search: Search
    learnt: Dataset
    measured: Dataset
    given: Dataset | None
    """Validation set for early stopping, as in ordinary training; None if documents were held out for scoring."""
    runtime: Runtime

    def attempt(self, number: int, settings: dict[str, Any], before: Sequence[Trial], progress: Progress) -> Trial:
        """Run one trial. The first one is the baseline and must not fail."""
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
            raise ConfigError(
                f"{self.search.measure} cannot be computed for {model.name}. Choose another metric with --metric."
            )
        return float(found[self.search.measure])


def _parts(train: Dataset, seed: int) -> tuple[Dataset, Dataset]:
    """Split into training and held-out documents."""
    size = min(max(round(SHARE * len(train)), LEAST), MOST, len(train) // 3)
    try:
        rows = split(train, size / len(train), seed=seed)
    except XmtcError:
        raise DataError(
            f"{len(train):,} documents are too few to hold out a validation set. Add documents, or pass --valid FILE."
        ) from None
    return train.take(rows["train"]), train.take(rows["test"])


def _searched(bench: _Bench, out: Path, progress: Progress) -> tuple[list[Trial], bool]:
    """All trials, including those of an earlier run, and whether all settings have been tried."""
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
            except XmtcError:  # the baseline failed
                _remove_search(out)
                raise
            add_trial(path, trial)
            trials.append(trial)
            task.advance()
            progress.say(trial_line(trial, trials))
    return trials, False


def finished(out: Path) -> int:
    """Number of finished trials of an interrupted search."""
    return len(read_trials(out / TRIALS))


def trial_line(trial: Trial, trials: Sequence[Trial]) -> str:
    """Describe a trial in one line."""
    end = trial.state if trial.score is None else f"{100 * trial.score:.2f}"
    note = ", starting point" if trial.number == 0 else ", best so far" if best_of(trials) is trial else ""
    return f"trial {trial.number}: {end}{note}  ({written(trial.settings)}; {trial.seconds:.1f} s)"


def written(settings: Mapping[str, Any]) -> str:
    """Settings as text: cost=1.0, trees=3."""
    return ", ".join(f"{name}={plain(value)}" for name, value in settings.items())


def plain(value: Any) -> str:
    """A setting value as text; strings without quotes."""
    return value if isinstance(value, str) else json.dumps(value)


class _Within:
    """Progress of one trial, shown as a note next to the progress bar of the search."""

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


# ---- output files


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
    plot = trial_plot(marks, f"Trials of {outcome.search.model}", measure).svg()
    for name, content in ((RECIPE, recipe(outcome)), (TABLE, table(trials, measure)), (PICTURE, plot)):
        with replace_file(out / name) as stream:
            stream.write(content.encode())


def recipe(outcome: TuningOutcome) -> str:
    """A recipe with all settings that differ from the defaults."""
    search, best, first = outcome.search, outcome.best, outcome.trials[0]
    reached = [f"{100 * trial.score:.2f}" for trial in (best, first) if trial.score is not None]
    where = "held-out documents" if outcome.split_off else "validation documents"
    about = (
        f"Best of {len(outcome.trials)} trials over {', '.join(search.space)}: {search.measure} {reached[0]} on "
        f"{outcome.measured:,} {where} (starting point: {reached[1]})."
    )
    settings = search.settings(best.settings)
    default = config.flat(config.to_mapping(type(settings)()))
    found = config.flat(config.to_mapping(settings)).items()
    lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in found if value != default[name]]
    head = [f"about = {json.dumps(about, ensure_ascii=False)}", f'model = "{search.model}"', "", "[settings]"]
    return "\n".join([*head, *lines, ""])


def table(trials: Sequence[Trial], measure: str) -> str:
    """Tab-separated table with one trial per line."""
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
    """Train the model with the best settings on all documents; reuse an existing model or resume an unfinished one."""
    wanted = config.to_mapping(settings)
    work = Workspace.beside(out)
    if not work.exists() and store.is_model(out) and store.read_manifest(out)["settings"] == wanted:
        return Model.load(out, runtime)
    resumes = _begun_with(work) == wanted
    decided = plan_training(out, name=name, settings=wanted, resume=resumes, force=not resumes)
    return train_on(decided, lambda: documents, runtime=runtime, progress=progress)


def _begun_with(work: Path) -> Any:
    """The settings of an unfinished training run; None if there is none."""
    try:
        return read_json(work / "training.json", any_number=True).get("settings")
    except (OSError, ValueError, AttributeError):
        return None
