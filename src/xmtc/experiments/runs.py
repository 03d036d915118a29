"""One run of a suite: train, predict, evaluate, and record time and memory.

Each run has its own process, so that its peak memory can be measured and a crash affects nothing else. The process
reads a `RunJob` as JSON from standard input, replies with JSON on standard output, and exits when standard input is
closed, so that no process outlives its caller.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from xmtc import __version__, create
from xmtc.artifact import store
from xmtc.artifact.workspace import LOG, Workspace, log_beside
from xmtc.core import config
from xmtc.core.errors import XmtcError
from xmtc.core.files import content_hash, make_folder, replace_file, write_json, writing
from xmtc.core.parsing import read_json
from xmtc.core.progress import Progress
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import align_labels
from xmtc.data.topk import TopK, TrainedOn, write_parquet
from xmtc.experiments import suites
from xmtc.experiments.records import MODEL, PREDICTIONS, VALID, Cell, CellName, read_cell, write_cell
from xmtc.experiments.suite_data import SuiteData, find
from xmtc.experiments.suites import DATA, Suite
from xmtc.models.base import DECISIONS, Model
from xmtc.models.registry import model_class
from xmtc.workflows.evaluate import evaluate_model, training_of
from xmtc.workflows.evaluation import DEEP, LEAST, Evaluation
from xmtc.workflows.requests import EvaluationOptions
from xmtc.workflows.train import plan_training, train_on

USAGE = "usage.json"
"""Time and memory of training; written after the model."""
WARM = 256
"""Number of documents predicted as a warm-up before timing."""
MEMBERS = "members"
"""Folder with the predictions of ensemble members."""


@dataclass(frozen=True)
class RunJob:
    """Parameters of a run."""

    suite: Suite
    cell: CellName
    data: Path
    out: Path
    runtime: Runtime
    command: str
    """The command line without the output folder; the beginning of the command that reproduces the run."""
    force: bool = False
    """Whether an unfinished training run that cannot be resumed restarts."""

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.cell.within(self.out)

    def to_json(self) -> dict[str, Any]:
        """The job as a JSON object."""
        runtime = {**vars(self.runtime), "cache": None if self.runtime.cache is None else str(self.runtime.cache)}
        return {
            "suite": self.suite.name,
            "content": self.suite.content,
            "cell": str(self.cell),
            "data": str(self.data),
            "out": str(self.out),
            "runtime": runtime,
            "command": self.command,
            "force": self.force,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> RunJob:
        """Read a job from a JSON object."""
        runtime = values["runtime"]
        cache = None if runtime["cache"] is None else Path(runtime["cache"])
        return cls(
            suites.parsed(values["suite"], values["content"]),
            CellName.parsed(values["cell"]),
            Path(values["data"]),
            Path(values["out"]),
            Runtime(**{**runtime, "cache": cache}),
            values["command"],
            values["force"],
        )


def model_of(suite: Suite, cell: CellName) -> Model:
    """The model of a run with its resolved settings; paths are as in the suite, members are names of runs."""
    entry = suite.models[cell.model]
    settings = entry.resolved(cell.dataset)
    if entry.spec.members:
        settings = config.merge(settings, {"members": [str(member) for member in suite.members(cell)]})
    return create(entry.spec.model, **settings)


def run_fingerprint(suite: Suite, cell: CellName, suite_data: SuiteData) -> dict[str, Any]:
    """Inputs and settings that identify a run."""
    entry = suite.models[cell.model]
    members = {str(each): run_fingerprint(suite, each, suite_data) for each in suite.members(cell)}
    return {
        "model": entry.spec.model,
        "settings": config.to_mapping(model_of(suite, cell).config),
        "seed": cell.seed,
        "calibrated": entry.spec.calibrate,
        "data": suite_data.fingerprint(),
        **({"members": members} if members else {}),
    }


def with_current_names(made: dict[str, Any]) -> dict[str, Any]:
    """Inputs and settings of a run of an earlier version, with setting names updated to the current ones."""
    try:
        settings = config.current_names(model_class(made["model"]).Config, made["settings"])
        members = {name: with_current_names(each) for name, each in made.get("members", {}).items()}
    except (XmtcError, KeyError, TypeError, AttributeError):  # damaged or from another version: not the same run
        return made
    return {**made, "settings": settings, **({"members": members} if members else {})}


def run(job: RunJob, progress: Progress) -> Cell:
    """Train, predict and evaluate; parts finished by an earlier attempt are not repeated."""
    suite, cell, folder = job.suite, job.cell, job.folder
    spec = suite.datasets[cell.dataset]
    suite_data = find(cell.dataset, spec, job.data, job.out / "made")
    assert suite_data is not None, "the caller checks that the data exists"
    make_folder(folder)
    for left in folder.glob(".*.part"):  # left by an interrupted write
        clear(left) if left.is_dir() else left.unlink(missing_ok=True)
    model, usage = _trained(job, suite_data, progress)
    if suite.models[cell.model].spec.calibrate:
        _calibrate(model, _with_file_ids(job, suite_data.valid(model.feature_count, progress), VALID), folder, progress)
    test = suite_data.test(model.feature_count, progress)
    found, groups, deep = _measured(model, _with_file_ids(job, test, PREDICTIONS), spec, progress)
    deep.named(test.document_ids()).write(folder / PREDICTIONS)
    _predict_validation_set(job, model, suite_data, progress)
    files = [name for name in (PREDICTIONS, VALID) if (folder / name).is_file()]
    evaluated = found.to_json()
    below = _members_cost(job)
    seconds = {"train": usage["seconds"] + below.train, "predict": found.seconds + below.predict}
    done = Cell(
        name=cell,
        suite=suite.name,
        kind=model.name,
        settings=config.to_mapping(model_of(suite, cell).config),
        made_of=run_fingerprint(suite, cell, suite_data),
        metrics=found.metrics,
        documents=found.documents,
        seconds={what: round(value, 4) for what, value in seconds.items()},
        memory={"host": max(usage["host"] or 0, peak_memory() or 0) or None, "device": usage["device"]},
        model_bytes=_size(folder / MODEL) + below.size,
        machine=machine(job.runtime),
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        command=f"{job.command} --out DIR --only {cell}",
        groups=groups.to_json().get("groups", {}) if groups is not None else {},
        tail=evaluated.get("tail", {}),
        reliability=evaluated.get("reliability"),
        threshold=evaluated.get("threshold"),
        facts=model.facts,
        files={name: content_hash(folder / name) for name in files},
        resumed=usage["resumed"],
    )
    log = log_beside(folder / MODEL)
    if log.is_file():
        os.replace(log, folder / LOG)
    write_cell(job.out, done)
    return done


def _trained(job: RunJob, suite_data: SuiteData, progress: Progress) -> tuple[Model, dict[str, Any]]:
    """The trained model with its training time and memory."""
    try:
        return _load_or_train(job, suite_data, progress)
    except XmtcError:
        place = job.folder / MODEL
        if not job.force or not (store.is_model(place) or Workspace.beside(place).exists()):
            raise
        clear(place)
        clear(Workspace.beside(place))
        return _load_or_train(job, suite_data, progress)


def _load_or_train(job: RunJob, suite_data: SuiteData, progress: Progress) -> tuple[Model, dict[str, Any]]:
    """Load the model if an earlier attempt finished it; otherwise train it, resuming if possible."""
    place, usage = job.folder / MODEL, job.folder / USAGE
    if store.is_model(place) and not Workspace.beside(place).exists():
        model = Model.load(place, job.runtime)
        lost = {"seconds": model.training["seconds"], "host": None, "device": None, "resumed": True}
        return model, read_json(usage) if usage.is_file() else lost
    resumed = Workspace.beside(place).exists()
    model = model_of(job.suite, job.cell)
    decided = plan_training(
        place, name=model.name, settings=_placed(model, job, suite_data), resume=resumed, force=not resumed
    )

    def documents() -> Any:
        train, valid = suite_data.documents(progress)
        return (_with_file_ids(job, valid, VALID), None) if job.suite.members(job.cell) else (train, valid)

    trained = train_on(decided, documents, runtime=job.runtime, progress=progress)
    took = {
        "seconds": trained.training["seconds"],
        "host": peak_memory(),
        "device": peak_device_memory(),
        "resumed": resumed,
    }
    write_json(usage, took)
    return trained, took


def _placed(model: Model, job: RunJob, suite_data: SuiteData) -> dict[str, Any]:
    """Settings with paths resolved for this machine and member names replaced by files."""

    def place(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: place(inner) for key, inner in value.items()}
        if isinstance(value, str) and value.startswith(DATA):
            return str(job.data / value.removeprefix(DATA))
        return value

    settings: dict[str, Any] = place(config.to_mapping(model.config))
    members = job.suite.members(job.cell)
    if not members:
        return settings
    trained_on = _trained_on(suite_data)
    return config.merge(settings, {"members": [_member(job, each, trained_on) for each in members]})


def _member(job: RunJob, member: CellName, trained_on: TrainedOn) -> str:
    """Combine the validation and test predictions of another run into one file.

    Its model is never used, even if it exists: the result must not depend on where members ran.
    """
    folder = member.within(job.out)
    joined = job.folder / MEMBERS / f"{member.model}.parquet"
    make_folder(joined.parent)
    with replace_file(joined) as stream:  # each file has its own label numbering
        predictions = {name: TopK.read(folder / name) for name in read_cell(job.out, member).files}
        with_unique_ids = (top.named([f"{name} {each}" for each in top.ids]) for name, top in predictions.items())
        write_parquet(with_unique_ids, stream, trained_on)
    return str(joined)


def _with_file_ids(job: RunJob, documents: Any, name: str) -> Any:
    """Documents with the ids used in member files, which include the file name because ids may repeat across files."""
    if not job.suite.members(job.cell):
        return documents
    return replace(documents, ids=pa.chunked_array([[f"{name} {each}" for each in documents.document_ids()]]))


def _trained_on(suite_data: SuiteData) -> TrainedOn:
    train, _ = suite_data.documents()
    train = train.used_labels() if train.whole_vocabulary else train
    assert train.labels is not None
    assert train.label_index is not None
    counts = np.bincount(train.labels.indices, minlength=train.labels.shape[1]).tolist()
    numbers = np.arange(len(counts))
    keys, names = (train.label_index.strings(what, numbers) for what in ("key", "name"))
    return len(train), list(zip(keys, names, counts, strict=True))


class Cost(NamedTuple):
    """Costs of the members of an ensemble."""

    train: float = 0.0
    predict: float = 0.0
    size: int = 0


def _members_cost(job: RunJob) -> Cost:
    """Total costs of the members."""
    cells = [read_cell(job.out, each) for each in job.suite.members(job.cell)]
    return Cost(
        sum(cell.seconds["train"] for cell in cells),
        sum(cell.seconds["predict"] for cell in cells),
        sum(cell.model_bytes or 0 for cell in cells),
    )


def _measured(model: Model, test: Any, spec: Any, progress: Progress) -> tuple[Evaluation, Evaluation | None, TopK]:
    """All metrics as computed by `evaluate`, then frequency groups, which need deeper predictions.

    Labels to drop are those without training documents, even if the model can predict them by name: all models of a
    suite are evaluated with the same true labels.
    """
    a, b = spec.propensity
    options = EvaluationOptions(unknown_labels=spec.unknown_labels, propensity_a=a, propensity_b=b)
    training = training_of(model)
    kept = None if training is None else training.used_labels
    tail = "score_labels" in model.capabilities and _has_tail(model, test)
    model.predict(test.slice(0, WARM))  # warm-up: loading and compilation are not timed
    found = evaluate_model(model, test, replace(options, tail=tail), kept=kept, progress=progress)
    if np.bincount(found.truth.indices).max(initial=0) < LEAST:
        return found, None, model.predict(test, DEEP, progress=progress)
    groups = evaluate_model(model, test, replace(options, groups=True), kept=kept, progress=progress)
    return found, groups, groups.predictions


def _has_tail(model: Model, test: Any) -> bool:
    """Whether some label has both training and test documents."""
    counted = model.counted()
    if counted is None:
        return False
    truth, _ = align_labels(test, model.labels)
    known = truth.indices[truth.indices < len(model.labels)]
    return bool((counted[0][known] > 0).any())


def _calibrate(model: Model, valid: Any, folder: Path, progress: Progress) -> None:
    """Calibrate the model and save the calibration with it."""
    manifest = store.read_manifest(folder / MODEL)
    model.calibrate(valid, progress=progress)
    store.replace_part(folder / MODEL, DECISIONS, model.decisions.state(), before=manifest)


def _predict_validation_set(job: RunJob, model: Model, suite_data: SuiteData, progress: Progress) -> None:
    """Write predictions for the validation set, which an ensemble needs."""
    valid = suite_data.valid(model.feature_count, progress)
    if valid is not None:
        answer = model.predict(_with_file_ids(job, valid, VALID), DEEP, progress=progress)
        answer.named(valid.document_ids()).write(job.folder / VALID)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def peak_memory() -> int | None:
    """Peak memory of this process in bytes."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def peak_device_memory() -> int | None:
    """Peak GPU memory reserved by this process in bytes; None if it used no GPU."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return int(torch.cuda.max_memory_reserved()) or None


def machine(runtime: Runtime) -> dict[str, Any]:
    """Hardware and software that a run was measured on."""
    torch = sys.modules.get("torch")
    on_gpu = peak_device_memory() is not None
    return {
        "xmtc": __version__,
        "python": platform.python_version(),
        "processor": platform.machine(),
        "threads": runtime.threads,
        **({} if torch is None else {"torch": str(torch.__version__)}),
        **({"gpu": torch.cuda.get_device_name()} if torch is not None and on_gpu else {}),
    }


def clear(folder: Path) -> None:
    """Delete a folder atomically: rename it first, so that a partly deleted folder is never taken for a valid one."""
    going = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(going, ignore_errors=True)
    if folder.is_dir():
        with writing(folder):
            os.replace(folder, going)
        shutil.rmtree(going, ignore_errors=True)


def drop_model(folder: Path) -> None:
    """Delete the model of a complete run and keep its results."""
    clear(folder / MODEL)
    clear(folder / MEMBERS)
    (folder / USAGE).unlink(missing_ok=True)


def end_with_caller(stream: Any, end: Callable[[], Any] = lambda: os._exit(1)) -> None:
    """Exit this process as soon as the other end of the pipe is closed."""

    def watch() -> None:
        while stream.read(1):
            pass
        end()

    threading.Thread(target=watch, daemon=True).start()


def serve(progress: Progress) -> None:
    """Run the job given on standard input; the reply is one JSON object on standard output."""
    answer = os.dup(1)
    os.dup2(2, 1)  # redirect other output to standard error
    job = RunJob.from_json(json.loads(sys.stdin.readline()))
    end_with_caller(sys.stdin)
    try:
        run(job, progress)
        reply: dict[str, Any] = {"done": str(job.cell)}
    except XmtcError as error:
        reply = {"error": " ".join(str(error).split())}
    except MemoryError:
        reply = {"error": "out of memory. Use fewer features, or a larger machine."}
    except OSError as error:
        reply = {"error": f"{error.filename or 'files'}: {error.strerror or error}. Check permissions and free space."}
    with os.fdopen(answer, "w", encoding="utf-8") as stream:
        stream.write(json.dumps(reply) + "\n")
    sys.stderr.flush()
    os._exit(0)  # do not wait for threads
