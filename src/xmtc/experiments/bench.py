"""Run a suite: skip complete runs, resume unfinished ones and refuse runs whose inputs have changed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from xmtc.core.errors import ConfigError, DataError, MissingExtraError, shown
from xmtc.core.files import check_output_folder, locked, make_folder, write_json
from xmtc.core.parsing import read_json
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.description import describe
from xmtc.data.topk import TopK
from xmtc.experiments import records
from xmtc.experiments.records import BENCH, CELL, OVERLAPS, PREDICTIONS, CellName, DatasetRecord
from xmtc.experiments.runs import RunJob, clear, drop_model, run_fingerprint, with_current_names
from xmtc.experiments.suite_data import SuiteData, find
from xmtc.experiments.suites import Suite
from xmtc.metrics import overlap
from xmtc.models.registry import model_class

BEGUN = "begun.json"
"""Inputs and settings of an unfinished run."""
OWN = (BENCH, "datasets", "cells", "made", "figure.svg", "table.md")


@dataclass(frozen=True)
class Bench:
    """A suite with its data, and the folder of its runs."""

    suite: Suite
    out: Path
    data: Path
    command: str
    """The command line without the output folder."""
    data_sets: dict[str, SuiteData]
    """The datasets that were found."""
    cells: list[CellName]
    """Runs that are possible on this machine."""
    left_out: list[str]
    """Reasons why the other runs are not possible."""


@dataclass
class SuiteOutcome:
    """Outcome of the requested runs."""

    done: list[CellName] = field(default_factory=list)
    there: list[CellName] = field(default_factory=list)
    """Runs that were complete before."""
    failed: dict[CellName, str] = field(default_factory=dict)
    """Failed runs with their error messages."""


def check_out(out: Path) -> None:
    """Refuse an output folder with files that are not results."""
    begun = (out / BENCH).is_file()
    check_output_folder(out, lambda path: begun or path.name in OWN)


def open_bench(suite: Suite, out: Path, data: Path, command: str, selected: Sequence[CellName] | None = None) -> Bench:
    """Find the data of a suite, or of the selected runs, and determine which runs are possible on this machine."""
    check_out(out)
    used = {cell.dataset for cell in (suite.cells() if selected is None else selected)}
    left_out, data_sets, absent = [], {}, set()
    for name, spec in suite.datasets.items():
        found = find(name, spec, data, out / "made") if name in used else None
        if found is not None:
            data_sets[name] = found
        elif name in used:
            left_out.append(f"{name}: no files in {data}")
            absent.add(name)
    missing: dict[str, str] = {}
    for name, entry in suite.models.items():
        try:
            model_class(entry.spec.model)
        except MissingExtraError as error:
            missing[name] = str(error)
    for name, entry in suite.models.items():
        lacking = [each for each in entry.spec.members if each in missing]
        if lacking:
            missing[name] = f"member {lacking[0]} is skipped"
    left_out += [f"{name}: {why}" for name, why in missing.items()]
    cells = [cell for cell in suite.cells() if cell.dataset not in absent and cell.model not in missing]
    return Bench(suite, out, data, command, data_sets, cells, left_out)


def run_bench(
    bench: Bench,
    cells: Sequence[CellName],
    command: Sequence[str],
    *,
    runtime: Runtime,
    force: bool = False,
    keep_models: bool = False,
    progress: Progress = silent,
    echo: Callable[[str], None] = lambda _: None,
) -> SuiteOutcome:
    """Run all incomplete runs, each in its own process, which `command` starts.

    A failed run is reported and the others continue. If settings or data of a complete run have changed, the call is
    refused before anything runs, or with `force` the run is repeated. An unfinished run with changed inputs restarts.
    """
    make_folder(bench.out)
    with locked(bench.out, "another process is running in this folder. Wait for it, or choose another folder."):
        wanted = {cell: _wanted(bench, cell) for cell in cells}
        stale = {cell: why for cell, made in wanted.items() if (why := _changed(bench.out, cell, made, force))}
        lost = {cell: why for cell, why in stale.items() if (cell.within(bench.out) / CELL).is_file()}
        if lost and not force:
            cell, why = next(iter(lost.items()))
            more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
            raise DataError(
                f"{cell.within(bench.out)}: was run with different {why}{more}. "
                "Run it again with --force, or choose another folder."
            )
        records.write_bench(bench.out, bench.suite.name, bench.suite.about, _joined_study(bench))
        for line in bench.left_out:
            echo(f"skipped: {line}")
        for name, suite_data in bench.data_sets.items():
            if suite_data.hashes["train"] == suite_data.hashes["test"]:
                echo(f"note: {name}: training and test set are identical, so results are not on unseen data")
        outcome = SuiteOutcome()
        complete = set(records.cell_names(bench.out)) - set(stale)
        outcome.there = [cell for cell in cells if cell in complete]
        for number, cell in enumerate(cells, 1):
            if cell in complete:
                continue
            echo(f"[{number}/{len(cells)}] {cell}")
            lacking = _unmet_need(bench, cell, {*complete, *outcome.done})
            if lacking:
                outcome.failed[cell] = lacking
            else:
                if cell in stale:
                    clear(cell.within(bench.out))
                job = RunJob(
                    *(bench.suite, cell, bench.data.resolve(), bench.out.resolve()),
                    *(replace(runtime, seed=cell.seed), bench.command, force),
                )
                _run_one(job, wanted[cell], command, outcome)
            if cell in outcome.failed:
                echo(f"{cell}: failed: {outcome.failed[cell]}")
        describe_datasets(bench, progress)
        if not keep_models:
            _drop_models(bench)
    return outcome


def _joined_study(bench: Bench) -> dict[str, Any]:
    """The study of a suite, merged with earlier results of the same study in the folder."""
    study = dict(bench.suite.study)
    if not (bench.out / BENCH).is_file():
        return study
    before = records.read_results(bench.out)
    same = all(before.study.get(key) == study.get(key) for key in ("kind", "model"))
    if before.suite != bench.suite.name or not same:
        of = f" of {before.study['model']}" if "model" in before.study else ""
        raise DataError(f"{bench.out}: contains results of '{shown(before.suite + of)}'. Choose another folder.")
    for key in ("kinds", "datasets", "models"):
        if key in study:
            study[key] = list(dict.fromkeys([*before.study.get(key, []), *study[key]]))
    return study


def _wanted(bench: Bench, cell: CellName) -> dict[str, Any]:
    """The requested inputs and settings of a run."""
    try:
        return run_fingerprint(bench.suite, cell, bench.data_sets[cell.dataset])
    except ConfigError as error:
        raise ConfigError(f"model '{cell.model}' of suite '{bench.suite.name}', on {cell.dataset}: {error}") from None


def _changed(out: Path, cell: CellName, made: dict[str, Any], force: bool = False) -> str:
    """The first input or setting in which an existing run differs from the requested one; '' if it is the same or new.

    A damaged run is an error, unless `force` allows to repeat it.
    """
    folder = cell.within(out)
    before: Any = None
    if (folder / CELL).is_file():
        try:
            before = records.read_cell(out, cell).made_of
        except DataError:
            if not force:
                raise
    elif (folder / BEGUN).is_file():
        with suppress(ValueError):
            before = read_json(folder / BEGUN, any_number=True)
    elif not folder.is_dir():
        return ""
    if not isinstance(before, dict):
        return "content"
    before = with_current_names(before)
    now = json.loads(json.dumps(made))
    key = next((key for key in {**now, **before} if now.get(key) != before.get(key)), "")
    return "calibration" if key == "calibrated" else key


def _unmet_need(bench: Bench, cell: CellName, complete: Collection[CellName]) -> str:
    """Why the members of an ensemble run are not usable; '' if they are."""
    for member in bench.suite.members(cell):
        if member not in complete:
            return f"needs {member}, which is incomplete or failed. Run it too."
        if why := _changed(bench.out, member, _wanted(bench, member)):
            return f"needs {member}, which was run with different {why}. Run it again too, with --force."
    return ""


def _run_one(job: RunJob, made: dict[str, Any], command: Sequence[str], outcome: SuiteOutcome) -> None:
    cell, folder = job.cell, job.folder
    make_folder(folder)
    write_json(folder / BEGUN, made)
    status, answer = _child(command, json.dumps(job.to_json()))
    try:
        reply = json.loads(answer)
    except ValueError:
        reply = {"error": _ended(status)}
    if "error" in reply:
        outcome.failed[cell] = reply["error"]
        if not any(folder.rglob("*.safetensors")):
            clear(folder)
    else:
        outcome.done.append(cell)
        (folder / BEGUN).unlink(missing_ok=True)


def _child(command: Sequence[str], words: str) -> tuple[int, str]:
    """Start a process, send it one line, and wait for its exit status and output.

    Its standard input stays open as long as this process lives.
    """
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8", env=_environment()
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            try:
                child.stdin.write(words + "\n")
                child.stdin.flush()
            except BrokenPipeError:
                pass  # its exit status is more informative
            answer = child.stdout.read()
            return child.wait(), answer
        except KeyboardInterrupt:
            _stop(child)
            raise


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONUNBUFFERED": "1"}


def _stop(child: subprocess.Popen[str]) -> None:
    """Interrupt the process, so that it can finish its current step; kill it after a timeout."""
    if child.poll() is None:
        with suppress(ValueError):  # on Windows, Ctrl+C has already reached the process
            child.send_signal(signal.SIGINT)
    try:
        child.wait(timeout=30)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()


def _ended(status: int) -> str:
    if status < 0:
        name = (
            signal.Signals(-status).name if -status in {each.value for each in signal.Signals} else f"signal {-status}"
        )
        memory = " It may have run out of memory." if name == "SIGKILL" else ""
        return f"the process was killed by {name}.{memory}"
    return f"the process exited with status {status}. See its output above."


def describe_datasets(bench: Bench, progress: Progress) -> None:
    """Record the statistics of each dataset and the overlap of its models' predictions."""
    for name, suite_data in bench.data_sets.items():
        cells = [cell for cell in records.cell_names(bench.out) if cell.dataset == name]
        if not cells:
            continue
        known = records.read_dataset(bench.out, name)
        if known is None or known.files != suite_data.hashes or not known.statistics:
            known = _described(suite_data, progress)
        records.write_dataset(
            bench.out, replace(known, about=suite_data.spec.about, overlap=overlaps(bench.out, cells))
        )


def _described(suite_data: SuiteData, progress: Progress) -> DatasetRecord:
    spec = suite_data.spec
    if spec.noise is not None:  # only the original dataset is described
        noise = {"kind": spec.noise.kind, "rate": spec.noise.rate, "of": spec.made_from}
        return DatasetRecord(suite_data.name, spec.about, "", suite_data.hashes, {}, noise)
    train, _ = suite_data.documents(progress)
    count = None if train.features is None else int(train.features.shape[1])
    found = describe(train, suite_data.test(count, progress), progress=progress)
    return DatasetRecord(
        suite_data.name, spec.about, spec.published or suite_data.name, suite_data.hashes, found.to_json()
    )


def overlaps(out: Path, cells: Sequence[CellName]) -> list[dict[str, Any]]:
    """Fraction of top-k labels shared by each pair of models, for the first seed of each."""
    first: dict[str, Path] = {}
    for cell in cells:
        path = cell.within(out) / PREDICTIONS
        if path.is_file():
            first.setdefault(cell.model, path)
    tops = {name: TopK.read(path).first(max(OVERLAPS)) for name, path in first.items()}
    return [
        {"models": [one, two], "shared": {str(k): overlap(tops[one], tops[two], k) for k in OVERLAPS}}
        for one, two in combinations(tops, 2)
    ]


def _drop_models(bench: Bench) -> None:
    """Delete the models, which are large; their predictions are kept."""
    for cell in records.cell_names(bench.out):
        drop_model(cell.within(bench.out))
        (cell.within(bench.out) / BEGUN).unlink(missing_ok=True)  # left by a process killed right after completion
