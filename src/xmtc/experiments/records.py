"""What a run of a suite leaves behind: a folder of cells, each one model on one data set with one seed.

    DIR/bench.json                                  the suite
    DIR/datasets/NAME.json                          what a data set is, and how much its models have in common
    DIR/cells/DATASET/MODEL/SEED/cell.json          written last: a cell with it is complete
                                 predictions.parquet, valid.parquet (where there are validation documents), log.jsonl

A report needs the JSON files and the logs alone.
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
from xmtc.core.files import make_folder, write_json

Kind = TypeVar("Kind")

FORMAT = 1
BENCH, CELL, PREDICTIONS, VALID, MODEL = "bench.json", "cell.json", "predictions.parquet", "valid.parquet", "model"
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
    log: Path | None = None
    """Of the training, where it kept one."""

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
    """One run of a suite, as far as it is complete."""

    folder: Path
    suite: str
    about: str
    study: dict[str, Any]
    """Which study the suite is, and of what; empty for a plain suite."""
    datasets: dict[str, DatasetRecord]
    cells: list[Cell]


def write_cell(folder: Path, cell: Cell) -> None:
    """The last file of a cell; with it, the cell is complete."""
    write_json(cell.name.within(folder) / CELL, cell.to_json())


def write_dataset(folder: Path, record: DatasetRecord) -> None:
    make_folder(folder / "datasets")
    write_json(folder / "datasets" / f"{record.name}.json", record.to_json())


def write_bench(folder: Path, suite: str, about: str, study: Mapping[str, Any]) -> None:
    write_json(folder / BENCH, {"format": FORMAT, "suite": suite, "about": about, "study": dict(study)})


def read_results(folder: Path) -> Results:
    """All complete cells of a run, in the order of their names."""
    head = _read(folder / BENCH, "Name the --out folder of xmtc bench.")
    datasets = {}
    for path in sorted((folder / "datasets").glob("*.json")):
        record = _made(DatasetRecord, _read(path), path)
        if record.name != path.stem:
            raise DataError(f"{path}: is of another data set. Copy or run it again.")
        datasets[record.name] = record
    cells = [read_cell(folder, name) for name in cell_names(folder)]
    study = head.get("study", {})
    if not isinstance(study, dict):
        raise DataError(f"{folder / BENCH}: damaged. Copy or run it again.")
    return Results(folder, str(head.get("suite")), str(head.get("about", "")), study, datasets, cells)


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
    path = folder / "datasets" / f"{name}.json"
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


def _made(kind: type[Kind], values: Mapping[str, Any], path: Path) -> Kind:
    try:
        return kind(**values)
    except TypeError:
        missing = sorted({each.name for each in fields(cast(Any, kind))} ^ set(values))
        raise DataError(f"{path}: damaged, '{missing[0]}' is amiss. Copy or run it again.") from None
