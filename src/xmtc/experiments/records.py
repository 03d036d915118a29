"""Results of a suite: a cell for each model on each data set with each seed.

`xmtc bench` writes a folder, file by file, so that an interrupted suite loses nothing:

    DIR/bench.json                                  the suite
    DIR/datasets/NAME.json                          what a data set is, and how much its models have in common
    DIR/cells/DATASET/MODEL/SEED/cell.json          written last: a cell with it is complete
                                 predictions.parquet, valid.parquet (where there are validation documents), log.jsonl

`xmtc bench export` writes the JSON files and the logs of such a folder to one results file, a JSON object a line. The
"record" of a line is "suite" (the first line), "dataset" or "run": a cell.json with the lines of its training log under
"log". A report reads folders and results files alike.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeVar, cast

from xmtc.artifact.workspace import LOG
from xmtc.core.errors import DataError, shown
from xmtc.core.files import make_folder, parse_lines, plain_name, read_blocks, replace_file, write_json

Kind = TypeVar("Kind")

FORMAT = 1
BENCH, CELL, PREDICTIONS, VALID, MODEL = "bench.json", "cell.json", "predictions.parquet", "valid.parquet", "model"
SUITE, DATASET, RUN = "suite", "dataset", "run"
"""What the lines of a results file are."""
OVERLAPS = (1, 2, 3, 4, 5)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def check_name(what: str, name: str) -> str:
    """A name that can be a folder's, and a part of a cell's."""
    if not _NAME.fullmatch(name) or len(name) > 100:
        raise DataError(f"{what} '{shown(name)}': names are letters, digits, '-', '_', '+' and '.'. Choose another.")
    return name


@dataclass(frozen=True, order=True)
class CellName:
    """Which model, as the suite calls it, on which data set, with which seed."""

    dataset: str
    model: str
    seed: int

    def __str__(self) -> str:
        return f"{self.dataset}/{self.model}/{self.seed}"

    def within(self, folder: Path) -> Path:
        """The cell's folder in that of its run."""
        return folder / "cells" / self.dataset / self.model / str(self.seed)

    @classmethod
    def parsed(cls, words: str) -> CellName:
        parts = words.split("/")
        if len(parts) != 3 or not all(parts) or not (parts[2].isdecimal() and len(parts[2]) <= 10):
            raise DataError(f"'{shown(words)}' names no cell. Write DATASET/MODEL/SEED, such as cooking/parabel/0.")
        return cls(parts[0], parts[1], int(parts[2]))


@dataclass(frozen=True)
class Cell:
    """One complete run. Measures are fractions, as `evaluate --json` has them."""

    name: CellName
    suite: str
    kind: str
    """Of the model, as the registry calls it."""
    settings: dict[str, Any]
    """Resolved, nested."""
    made_of: dict[str, Any]
    """What has to be equal for this to be the same cell."""
    metrics: dict[str, float]
    documents: int
    """Of the test."""
    seconds: dict[str, float]
    """train, predict; of what is made of other cells, theirs as well."""
    memory: dict[str, int | None]
    """host and device: the most bytes that were in use; None where that is not known."""
    model_bytes: int | None
    """Of the model folder, and of those of its members."""
    machine: dict[str, Any]
    finished: str
    """When, in UTC."""
    command: str
    """What reproduces it; DATA stands for the folder of the data sets, DIR for any new folder."""
    groups: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tail: dict[str, dict[str, float]] = field(default_factory=dict)
    reliability: dict[str, Any] | None = None
    threshold: dict[str, Any] | None = None
    """The tuned rule, and under 'scores' the F1 of its sets."""
    facts: dict[str, Any] = field(default_factory=dict)
    """What training found out by itself."""
    files: dict[str, str] = field(default_factory=dict)
    """File → hash of its content, of those that lie beside it."""
    resumed: bool = False
    """Whether training was interrupted and went on, so that its time and memory are those of its last part."""
    log: Path | list[dict[str, Any]] | None = None
    """Of the training, where it kept one: a file of a folder, or the lines that a results file holds."""

    def to_json(self) -> dict[str, Any]:
        out = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("name", "log")}
        return {"format": FORMAT, "cell": str(self.name), **out}


@dataclass(frozen=True)
class DatasetRecord:
    """What is known of a data set of a run."""

    name: str
    about: str = ""
    published_as: str = ""
    """Its name among the published figures; '' where there are none."""
    files: dict[str, str] = field(default_factory=dict)
    """Use (train, valid, test, labels) → hash of the file's content."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """A description, as `data describe --json` has it, of train with test as 'other'."""
    noise: dict[str, Any] = field(default_factory=dict)
    """kind, rate and, under 'of', the data set that it was made from; empty for one that was not made noisy."""
    overlap: list[dict[str, Any]] = field(default_factory=list)
    """For each two models: {"models": [a, b], "shared": {"1": …, … "5": …}}, of their first seeds."""

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **vars(self)}


@dataclass(frozen=True)
class Results:
    """The results of a suite, as far as it is complete."""

    source: Path
    """The folder or the file that they were read from."""
    suite: str
    about: str
    study: dict[str, Any]
    """Which study the suite is, and of what; empty for a plain suite."""
    datasets: dict[str, DatasetRecord]
    cells: list[Cell]
    line_numbers: dict[CellName | str, int] | None = None
    """Of cells and, by their names, data sets in a results file; None for a folder."""

    @property
    def name(self) -> str:
        """Of the folder, or of the file without its suffix."""
        place = self.source.resolve()
        return place.name if self.line_numbers is None else plain_name(place).removesuffix(".jsonl")

    @property
    def head_place(self) -> str:
        """Where the suite is described."""
        return str(self.source / BENCH) if self.line_numbers is None else f"{self.source}:1"

    def place(self, of: CellName | str) -> str:
        """Where a cell, or a data set by its name, is written."""
        if self.line_numbers is not None:
            return f"{self.source}:{self.line_numbers.get(of, 1)}"
        return str(of.within(self.source) / CELL if isinstance(of, CellName) else _dataset_path(self.source, of))


def write_cell(folder: Path, cell: Cell) -> None:
    """The last file of a cell; with it, the cell is complete."""
    write_json(cell.name.within(folder) / CELL, cell.to_json())


def write_dataset(folder: Path, record: DatasetRecord) -> None:
    make_folder(folder / "datasets")
    write_json(_dataset_path(folder, record.name), record.to_json())


def _dataset_path(folder: Path, name: str) -> Path:
    return folder / "datasets" / f"{name}.json"


def write_bench(folder: Path, suite: str, about: str, study: Mapping[str, Any]) -> None:
    write_json(folder / BENCH, _head(suite, about, study))


def _head(suite: str, about: str, study: Mapping[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, "suite": suite, "about": about, "study": dict(study)}


def read_results(source: Path) -> Results:
    """All complete cells of a folder or of a results file, in the order of their names."""
    return _read_results_file(source) if source.is_file() else _read_folder(source)


def _read_folder(folder: Path) -> Results:
    head = _read(folder / BENCH, "Name the --out folder of xmtc bench.")
    datasets = {}
    for path in sorted((folder / "datasets").glob("*.json")):
        record = _made(DatasetRecord, _read(path), path)
        if record.name != path.stem:
            raise DataError(f"{path}: is of another data set. Copy or run it again.")
        datasets[record.name] = record
    cells = [read_cell(folder, name) for name in cell_names(folder)]
    return Results(folder, *_checked_head(head, folder / BENCH), datasets, cells)


def _checked_head(head: Mapping[str, Any], place: Path | str) -> tuple[str, str, dict[str, Any]]:
    study = head.get("study", {})
    if not isinstance(study, dict):
        raise DataError(f"{place}: damaged. Copy or run it again.")
    return str(head.get("suite")), str(head.get("about", "")), study


def write_results_file(results: Results, path: Path) -> None:
    """The results as one file: all but predictions and models."""
    head = _head(results.suite, results.about, results.study)
    lines = [{"record": SUITE, **head}]
    lines += [{"record": DATASET, **record.to_json()} for _, record in sorted(results.datasets.items())]
    for cell in sorted(results.cells, key=lambda each: each.name):
        log = {} if cell.log is None else {"log": log_lines(cell.log)}
        lines.append({"record": RUN, **cell.to_json(), **log})
    with replace_file(path) as stream:
        for line in lines:
            stream.write((json.dumps(line, ensure_ascii=False) + "\n").encode())


def log_lines(log: Path | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines of a training log; a last one without an end is left out."""
    if isinstance(log, list):
        return log
    content = log.read_bytes()
    return [line for _, line in parse_lines(content[: content.rfind(b"\n") + 1], log, 0, '{"step": 100}')]


def _read_results_file(path: Path) -> Results:
    head, before = None, 0
    datasets: dict[str, DatasetRecord] = {}
    cells: dict[CellName, Cell] = {}
    numbers: dict[CellName | str, int] = {}
    for block in read_blocks(path):
        for number, values in parse_lines(block, path, before, '{"record": "run", …}'):
            place = f"{path}:{number}"
            kind = values.pop("record", None)
            if kind not in ((DATASET, RUN) if head else (SUITE,)) or values.pop("format", None) != FORMAT:
                raise DataError(f"{place}: not of the form that this version of xmtc writes. Export it again.")
            name: CellName | str
            if kind == SUITE:
                head = _checked_head(values, place)
                continue
            if kind == DATASET:
                record = _made(DatasetRecord, values, place)
                name, datasets[record.name] = record.name, record
            else:
                name = CellName.parsed(str(values.pop("cell", None)))
                cells[name] = _made(Cell, {"log": None, **values, "name": name}, place)
            if name in numbers:
                raise DataError(f"{place}: '{shown(str(name))}' is there twice. Export it again.")
            numbers[name] = number
        before += block.count(b"\n")
    if head is None:
        raise DataError(f"{path}: is empty. Name a file of xmtc bench export.")
    return Results(path, *head, datasets, [cells[name] for name in sorted(cells)], numbers)


def cell_names(folder: Path) -> list[CellName]:
    """The complete cells of a run."""
    paths = (folder / "cells").glob(f"*/*/*/{CELL}")
    return sorted(CellName.parsed("/".join(path.parts[-4:-1])) for path in paths if path.parts[-2].isdecimal())


def read_cell(folder: Path, name: CellName) -> Cell:
    path = name.within(folder) / CELL
    values = _read(path)
    if values.pop("cell", None) != str(name):
        raise DataError(f"{path}: is of another cell. Run it again, or copy the whole folder.")
    log = path.with_name(LOG)
    return _made(Cell, {**values, "name": name, "log": log if log.is_file() else None}, path)


def read_dataset(folder: Path, name: str) -> DatasetRecord | None:
    path = _dataset_path(folder, name)
    return _made(DatasetRecord, _read(path), path) if path.is_file() else None


def _read(path: Path, remedy: str = "Copy or run it again.") -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). {remedy}") from None
    except ValueError:
        raise DataError(f"{path}: damaged. {remedy}") from None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError(f"{path}: not of the form that this version of xmtc writes. {remedy}")
    return values


def _made(kind: type[Kind], values: Mapping[str, Any], place: Path | str) -> Kind:
    try:
        return kind(**values)
    except TypeError:
        missing = sorted({each.name for each in fields(cast(Any, kind))} ^ set(values))
        raise DataError(f"{place}: damaged, '{missing[0]}' is amiss. Copy or run it again.") from None
