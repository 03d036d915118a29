"""Import runs from another folder or a results file, and export a folder to a results file."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

from xmtc.artifact.workspace import LOG, WORK_SUFFIX
from xmtc.core.errors import DataError
from xmtc.core.files import content_hash, locked, make_folder, plain_name, write_json, writing
from xmtc.experiments import records
from xmtc.experiments.bench import BEGUN, check_out, overlaps
from xmtc.experiments.records import BENCH, CELL, MODEL, Cell, CellName, DatasetRecord, Results
from xmtc.experiments.runs import MEMBERS, USAGE, clear, with_current_names


def import_cells(source: Path, out: Path, *, force: bool = False) -> tuple[list[CellName], list[CellName]]:
    """Copy complete runs from a folder or a results file; returns the copied runs and those that existed before.

    An existing run with other settings, data or results raises DataError, or is replaced with `force`.
    """
    theirs = records.read_results(source)
    if not theirs.cells:
        raise DataError(f"{source}: contains no complete run. Run the suite first.")
    if source.resolve() == out.resolve():
        raise DataError(f"{source}: is both source and target of the import. Choose another folder.")
    check_out(out)
    make_folder(out)
    with locked(out, "another process is running in this folder. Wait for it, or choose another folder."):
        _check_same_data(theirs.datasets, out)
        for cell in theirs.cells:
            _check_files(source, cell)
        there = [cell.name for cell in theirs.cells if _is_there(cell, out, force)]
        copied = [cell for cell in theirs.cells if cell.name not in there]
        for cell in copied:
            _copy(source, cell, cell.name.within(out))
        if not (out / BENCH).is_file():
            records.write_bench(out, theirs.suite, theirs.about, theirs.study)
        for dataset, record in theirs.datasets.items():
            known = records.read_dataset(out, dataset) or record
            cells = [cell for cell in records.cell_names(out) if cell.dataset == dataset]
            records.write_dataset(out, replace(known, overlap=overlaps(out, cells) or record.overlap))
    return [cell.name for cell in copied], there


def export_results(folder: Path, path: Path) -> Results:
    """Write the complete runs of a folder to a results file."""
    if plain_name(path) == path.name.lower() and path.suffix.lower() != ".jsonl":
        raise DataError(f"{path}: results files must be JSON Lines. Use the extension .jsonl.")
    results = records.read_results(folder)
    if not results.cells:
        raise DataError(f"{folder}: contains no complete run. Run the suite first.")
    records.write_results_file(results, path)
    return results


def _check_same_data(theirs: dict[str, DatasetRecord], out: Path) -> None:
    for name, record in theirs.items():
        mine = records.read_dataset(out, name)
        if mine is not None and mine.files != record.files:
            raise DataError(
                f"{out}: data set '{name}' has different files from the one to import. Import into a new folder."
            )


def _is_there(cell: Cell, out: Path, force: bool) -> bool:
    """Whether the folder already contains the run; one with other results raises, or is to be replaced with `force`."""
    target = cell.name.within(out)
    if not (target / CELL).is_file():
        return False
    try:
        mine = records.read_cell(out, cell.name)
    except DataError:
        if force:
            return False
        raise
    same = with_current_names(mine.made_of) == with_current_names(cell.made_of) and mine.metrics == cell.metrics
    if not same and not force:
        raise DataError(f"{target}: already exists with other results. Replace it with --force.")
    return same


def _check_files(source: Path, cell: Cell) -> None:
    """Check the files of a run against their hashes; missing files are allowed."""
    for name, expected in cell.files.items():
        path = cell.name.within(source) / name
        if path.is_file() and content_hash(path) != expected:
            raise DataError(f"{path}: does not match the hash recorded in the run. Copy it again.")


def _copy(source: Path, cell: Cell, target: Path) -> None:
    """Copy a run atomically: under a temporary name first, then rename."""
    fresh = target.with_name(f".{target.name}.new.part")
    shutil.rmtree(fresh, ignore_errors=True)
    make_folder(target.parent)
    left = shutil.ignore_patterns(MODEL, MEMBERS, f"*{WORK_SUFFIX}", BEGUN, USAGE, ".*.part", ".*.lock")
    with writing(target):
        if source.is_dir():
            shutil.copytree(cell.name.within(source), fresh, ignore=left)
        else:
            make_folder(fresh)
            write_json(fresh / CELL, cell.to_json())
            if cell.log is not None:
                lines = "".join(f"{json.dumps(line)}\n" for line in records.log_lines(cell.log))
                (fresh / LOG).write_text(lines, encoding="utf-8")
        clear(target)
        os.replace(fresh, target)
