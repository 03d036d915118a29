"""`xmtc bench`: suites of data sets × models × seeds. Everything heavy is imported inside the command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xmtc.cli.common import echo, echo_error
from xmtc.cli.options import TrainingMachine, takes_request
from xmtc.core.errors import ConfigError, DataError, shown

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime
    from xmtc.experiments.bench import SuiteOutcome
    from xmtc.experiments.records import CellName
    from xmtc.experiments.suites import Suite

Data = Annotated[Path, typer.Option("--data", help="Folder that holds the data sets.", metavar="FOLDER")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Cells to run, such as 'cooking/parabel/*'; may be repeated.", metavar="PATTERN"),
]
Keep = Annotated[bool, typer.Option("--keep-models", help="Keep the trained models too.")]


class CellFailed(DataError):
    """The others went on."""


CHILD = (sys.executable, "-P", "-m", "xmtc.cli.run_worker")  # files of the folder we are in are no modules


@takes_request
def bench(
    machine: TrainingMachine,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE | import FROM… | export DIR",
            help="A TOML file or a shipped suite; or results to import or export.",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Folder for the results.", metavar="DIR")] = None,
    data: Data = Path("data"),
    only: Only = None,
    listed: Annotated[bool, typer.Option("--list", help="Show the cells and run nothing.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Run cells anew whose settings or data changed.")] = False,
    keep_models: Keep = False,
) -> None:
    """Run a suite of data sets × models × seeds, one by one.

    Complete cells are never run again: the same command goes on after an interruption. Without a suite, those that come
    with the package are listed. `xmtc bench import FROM… --out DIR` takes cells over that were run elsewhere.
    `xmtc bench export DIR --out FILE.jsonl` writes results to one file, which report and import read.
    """
    from xmtc.experiments.suites import read_suite

    if not words:
        _list_suites()
        return
    copying = words[0] in ("import", "export")
    if not copying and len(words) > 1:
        raise ConfigError(f"one suite at a time. Got '{shown(words[1])}' too.")
    if listed and not copying:
        _list_cells(words[0], out, only or [])
        return
    if out is None:
        raise ConfigError("bench needs a folder for the results. Add --out DIR.")
    if copying:
        if only or listed or keep_models:
            raise ConfigError(f"{words[0]} takes all cells of a folder, without models. Leave out the other options.")
        _import(words[1:], out, force) if words[0] == "import" else _export(words[1:], out)
        return
    suite = read_suite(words[0])
    command = shlex.join(["xmtc", "bench", words[0], "--data", "DATA"])
    run_suite(suite, out, data, command, only or [], machine.runtime(), force=force, keep_models=keep_models)
    echo(f"Next: {shlex.join(['xmtc', 'report', str(out), '--out', 'report.html'])}")


def run_suite(
    suite: Suite,
    out: Path,
    data: Path,
    command: str,
    only: list[str],
    runtime: Runtime,
    *,
    force: bool,
    keep_models: bool,
) -> None:
    """Run the cells that are not complete, show the outcome, and fail if a cell did."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.experiments.bench import open_bench, run_bench
    from xmtc.experiments.suites import chosen

    selected = chosen(suite.cells(), only)
    opened = open_bench(suite, out, data, command, selected)
    cells = [cell for cell in selected if cell in set(opened.cells)]
    if not cells:
        for line in opened.left_out:
            echo_error(f"left out: {line}")
        raise DataError(f"{suite.name}: no cell can be run here. The lines above say why.")
    try:
        outcome = run_bench(
            opened,
            cells,
            CHILD,
            runtime=runtime,
            force=force,
            keep_models=keep_models,
            progress=terminal_progress(),
            echo=echo_error,
        )
    except KeyboardInterrupt:
        echo_error(
            "xmtc: interrupted. Finished cells, and finished parts of the last one, stay: go on with the same command."
        )
        raise typer.Exit(130) from None
    _show_outcome(out, cells, outcome)


def _show_outcome(out: Path, cells: list[CellName], outcome: SuiteOutcome) -> None:
    echo(_scores(out, [cell for cell in cells if cell not in outcome.failed]))
    echo(
        f"\n{out}: {len(outcome.done)} cell{'' if len(outcome.done) == 1 else 's'} run, "
        f"{len(outcome.there)} there already, {len(outcome.failed)} failed"
    )
    if outcome.failed:
        cell, why = next(iter(outcome.failed.items()))
        raise CellFailed(f"{cell}: {why} Mend it and run the same command again: complete cells are kept.")


def _scores(out: Path, cells: list[CellName]) -> str:
    from xmtc.cli.show import table
    from xmtc.experiments.records import read_cell

    rows = []
    for name in cells:
        cell = read_cell(out, name)
        values = [f"{100 * cell.metrics[key]:.2f}" for key in ("P@1", "P@3", "P@5", "nDCG@5")]
        rows.append([str(name), *values, f"{cell.seconds['train']:.1f}", f"{cell.seconds['predict']:.2f}"])
    return table(["cell", "P@1", "P@3", "P@5", "nDCG@5", "train s", "predict s"], rows, right=range(1, 7))


def _list_suites() -> None:
    from xmtc.cli.show import table
    from xmtc.experiments.suites import read_suite, shipped

    rows = []
    for name in shipped():
        suite = read_suite(name)
        rows.append([name, str(len(suite.cells())), suite.about])
    echo(table(["suite", "cells", "what it is"], rows, right=(1,)))
    echo("\nRun one with: xmtc bench NAME --data FOLDER --out DIR; see its cells with: xmtc bench NAME --list")


def _list_cells(name: str, out: Path | None, only: list[str]) -> None:
    """What would be run, and what is complete."""
    from xmtc.experiments.records import cell_names
    from xmtc.experiments.suites import chosen, read_suite

    suite = read_suite(name)
    complete = set() if out is None else set(cell_names(out))
    for cell in chosen(suite.cells(), only):
        echo(f"{'complete' if cell in complete else 'to run  '}  {cell}")


def _import(sources: list[str], out: Path, force: bool) -> None:
    from xmtc.experiments.import_runs import import_cells

    if not sources:
        raise ConfigError("import needs the folder of a run elsewhere. Write: xmtc bench import FROM --out DIR")
    for source in sources:
        copied, there = import_cells(Path(source), out, force=force)
        echo(f"{source}: {len(copied)} cell{'' if len(copied) == 1 else 's'} taken over, {len(there)} there already")


def _export(folders: list[str], out: Path) -> None:
    from xmtc.cli.common import check_writable
    from xmtc.experiments.import_runs import export_results

    if len(folders) != 1:
        raise ConfigError("export needs one folder of results. Write: xmtc bench export DIR --out FILE.jsonl")
    check_writable(out)
    count = len(export_results(Path(folders[0]), out).cells)
    echo(f"{out}: {count} cell{'' if count == 1 else 's'}")
