"""Results of a suite: one run (a "cell") per dataset, model and seed.

`xmtc bench` writes a folder run by run, so that an interrupted suite loses nothing:

    DIR/bench.json                                  the suite
    DIR/datasets/NAME.json                          statistics of a dataset, and the overlap of its models' predictions
    DIR/cells/DATASET/MODEL/SEED/cell.json          written last: a run with this file is complete
                                 predictions.parquet, valid.parquet (if there is a validation set), log.jsonl

`xmtc bench export` writes the JSON files and the logs of such a folder to one results file with one JSON object per
line. The "record" of a line is "suite" (the first line), "dataset" or "run": a cell.json with the lines of its training
log under "log". A report reads both folders and results files.
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
from xmtc.core.parsing import read_json

Kind = TypeVar("Kind")

FORMAT = 1
BENCH, CELL, PREDICTIONS, VALID, MODEL = "bench.json", "cell.json", "predictions.parquet", "valid.parquet", "model"
SUITE, DATASET, RUN = "suite", "dataset", "run"
"""Record types of a results file."""
OVERLAPS = (1, 2, 3, 4, 5)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def check_name(what: str, name: str) -> str:
    """Refuse a name that cannot be part of a folder name."""
    if not _NAME.fullmatch(name) or len(name) > 100:
        raise DataError(
            f"{what} '{shown(name)}': invalid name. Use at most 100 letters, digits, '-', '_', '+' and '.', "
            "starting with a letter or digit."
        )
    return name


@dataclass(frozen=True, order=True)
class CellName:
    """Identifies a run: dataset, model (its name in the suite) and seed."""

    dataset: str
    model: str
    seed: int

    def __str__(self) -> str:
        return f"{self.dataset}/{self.model}/{self.seed}"

    def within(self, folder: Path) -> Path:
        """The folder of the run within the output folder."""
        return folder / "cells" / self.dataset / self.model / str(self.seed)

    @classmethod
    def parsed(cls, words: str) -> CellName:
        """Parse DATASET/MODEL/SEED."""
        parts = words.split("/")
        if len(parts) != 3 or not all(parts) or not (parts[2].isdecimal() and len(parts[2]) <= 10):
            raise DataError(f"'{shown(words)}' is not a run. Write DATASET/MODEL/SEED, such as cooking/parabel/0.")
        return cls(parts[0], parts[1], int(parts[2]))


@dataclass(frozen=True)
class Cell:
    """One complete run. Metrics are fractions, as in `evaluate --json`."""

    name: CellName
    suite: str
    kind: str
    """Registered name of the model."""
    settings: dict[str, Any]
    """Resolved settings, nested."""
    made_of: dict[str, Any]
    """Inputs and settings that identify the run."""
    metrics: dict[str, float]
    documents: int
    """Number of test documents."""
    seconds: dict[str, float]
    """train, predict; for an ensemble, including its members."""
    memory: dict[str, int | None]
    """host and device: peak memory in bytes; None if unknown."""
    model_bytes: int | None
    """Size of the model folder, including members."""
    machine: dict[str, Any]
    finished: str
    """Time of completion, UTC."""
    command: str
    """Command that reproduces the run; DATA is the folder with the datasets, DIR any new folder."""
    groups: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tail: dict[str, dict[str, float]] = field(default_factory=dict)
    reliability: dict[str, Any] | None = None
    threshold: dict[str, Any] | None = None
    """The tuned rule, and under 'scores' the F1 of its label sets."""
    facts: dict[str, Any] = field(default_factory=dict)
    """Values determined during training."""
    files: dict[str, str] = field(default_factory=dict)
    """File → content hash of the other files in the folder."""
    resumed: bool = False
    """Whether training was interrupted and resumed, so that time and memory cover only the last part."""
    log: Path | list[dict[str, Any]] | None = None
    """Training log, if there is one: a file, or the lines from a results file."""

    def to_json(self) -> dict[str, Any]:
        """The contents of cell.json."""
        out = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in ("name", "log")}
        return {"format": FORMAT, "cell": str(self.name), **out}


@dataclass(frozen=True)
class DatasetRecord:
    """Description of a dataset of a suite."""

    name: str
    about: str = ""
    published_as: str = ""
    """Its name in the published results; '' if there are none."""
    files: dict[str, str] = field(default_factory=dict)
    """Role (train, valid, test, labels) → content hash of the file."""
    statistics: dict[str, Any] = field(default_factory=dict)
    """Description of the training set as in `data describe --json`, with the test set as 'other'."""
    noise: dict[str, Any] = field(default_factory=dict)
    """kind, rate and, under 'of', the original dataset; empty without label noise."""
    overlap: list[dict[str, Any]] = field(default_factory=list)
    """For each pair of models: {"models": [a, b], "shared": {"1": …, … "5": …}}, for their first seeds."""

    def to_json(self) -> dict[str, Any]:
        """The contents of datasets/NAME.json."""
        return {"format": FORMAT, **vars(self)}


@dataclass(frozen=True)
class Results:
    """The complete runs of a suite."""

    source: Path
    """The folder or file that the results were read from."""
    suite: str
    about: str
    study: dict[str, Any]
    """Kind and subject of the study; empty for a plain suite."""
    datasets: dict[str, DatasetRecord]
    cells: list[Cell]
    line_numbers: dict[CellName | str, int] | None = None
    """Line numbers of runs and datasets in a results file; None for a folder."""

    @property
    def name(self) -> str:
        """Name of the folder, or of the file without its extension."""
        place = self.source.resolve()
        return place.name if self.line_numbers is None else plain_name(place).removesuffix(".jsonl")

    @property
    def head_place(self) -> str:
        """Location of the suite's description, for messages."""
        return str(self.source / BENCH) if self.line_numbers is None else f"{self.source}:1"

    def place(self, of: CellName | str) -> str:
        """Location of a run, or of a dataset by name, for messages."""
        if self.line_numbers is not None:
            return f"{self.source}:{self.line_numbers.get(of, 1)}"
        return str(of.within(self.source) / CELL if isinstance(of, CellName) else _dataset_path(self.source, of))


def write_cell(folder: Path, cell: Cell) -> None:
    """Write cell.json, which completes the run."""
    write_json(cell.name.within(folder) / CELL, cell.to_json())


def write_dataset(folder: Path, record: DatasetRecord) -> None:
    """Write datasets/NAME.json."""
    make_folder(folder / "datasets")
    write_json(_dataset_path(folder, record.name), record.to_json())


def _dataset_path(folder: Path, name: str) -> Path:
    return folder / "datasets" / f"{name}.json"


def write_bench(folder: Path, suite: str, about: str, study: Mapping[str, Any]) -> None:
    """Write bench.json."""
    write_json(folder / BENCH, _head(suite, about, study))


def _head(suite: str, about: str, study: Mapping[str, Any]) -> dict[str, Any]:
    return {"format": FORMAT, "suite": suite, "about": about, "study": dict(study)}


def read_results(source: Path) -> Results:
    """Read all complete runs of a folder or a results file, sorted by name."""
    return _read_results_file(source) if source.is_file() else _read_folder(source)


def _read_folder(folder: Path) -> Results:
    head = _read(folder / BENCH, "Pass the output folder of xmtc bench.")
    datasets = {}
    for path in sorted((folder / "datasets").glob("*.json")):
        record = _made(DatasetRecord, _read(path), path)
        if record.name != path.stem:
            raise DataError(f"{path}: belongs to another data set. Copy or run it again.")
        datasets[record.name] = record
    cells = [read_cell(folder, name) for name in cell_names(folder)]
    return Results(folder, *_checked_head(head, folder / BENCH), datasets, cells)


def _checked_head(head: Mapping[str, Any], place: Path | str) -> tuple[str, str, dict[str, Any]]:
    study = head.get("study", {})
    if not isinstance(study, dict):
        raise DataError(f"{place}: damaged. Copy or run it again.")
    return str(head.get("suite")), str(head.get("about", "")), study


def write_results_file(results: Results, path: Path) -> None:
    """Write the results, without predictions and models, to one file."""
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
    """The lines of a training log without an incomplete last line."""
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
                raise DataError(f"{place}: format not supported by this version of xmtc. Export the results again.")
            name: CellName | str
            if kind == SUITE:
                head = _checked_head(values, place)
                continue
            if kind == DATASET:
                record = _made(DatasetRecord, {**values, "name": str(values.get("name"))}, place)
                name, datasets[record.name] = record.name, record
            else:
                name = CellName.parsed(str(values.pop("cell", None)))
                cells[name] = _made(Cell, {"log": None, **values, "name": name}, place)
            if name in numbers:
                raise DataError(f"{place}: '{shown(str(name))}' is a duplicate. Export the results again.")
            numbers[name] = number
        before += block.count(b"\n")
    if head is None:
        raise DataError(f"{path}: is empty. Pass a file written by xmtc bench export.")
    return Results(path, *head, datasets, [cells[name] for name in sorted(cells)], numbers)


def cell_names(folder: Path) -> list[CellName]:
    """Names of the complete runs in a folder."""
    paths = (folder / "cells").glob(f"*/*/*/{CELL}")
    return sorted(CellName.parsed("/".join(path.parts[-4:-1])) for path in paths if path.parts[-2].isdecimal())


def read_cell(folder: Path, name: CellName) -> Cell:
    """Read a complete run."""
    path = name.within(folder) / CELL
    values = _read(path)
    if values.pop("cell", None) != str(name):
        raise DataError(f"{path}: belongs to another run. Run it again, or copy the complete folder.")
    log = path.with_name(LOG)
    return _made(Cell, {**values, "name": name, "log": log if log.is_file() else None}, path)


def read_dataset(folder: Path, name: str) -> DatasetRecord | None:
    """Read the description of a dataset; None if there is none."""
    path = _dataset_path(folder, name)
    return _made(DatasetRecord, _read(path), path) if path.is_file() else None


def _read(path: Path, remedy: str = "Copy or run it again.") -> dict[str, Any]:
    try:
        values = read_json(path, any_number=True)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}). {remedy}") from None
    except ValueError:
        raise DataError(f"{path}: damaged. {remedy}") from None
    if not isinstance(values, dict) or values.pop("format", None) != FORMAT:
        raise DataError(f"{path}: format not supported by this version of xmtc. {remedy}")
    return values


def _made(kind: type[Kind], values: Mapping[str, Any], place: Path | str) -> Kind:
    try:
        return kind(**values)
    except TypeError:
        missing = sorted({each.name for each in fields(cast(Any, kind))} ^ set(values))
        raise DataError(f"{place}: damaged, '{missing[0]}' is missing or unknown. Copy or run it again.") from None
