"""`xmtc bench`: suites of data sets × models × seeds. Heavy imports are inside the command."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.common import check_writable, counted
from xmtc.cli.completion import completer
from xmtc.cli.options import TrainingMachine, takes_request
from xmtc.cli.output import JsonOutput, echo, echo_error, is_quiet, note
from xmtc.core.errors import ConfigError, DataError, shown

if TYPE_CHECKING:
    from xmtc.core.runtime import Runtime
    from xmtc.experiments.bench import SuiteOutcome
    from xmtc.experiments.records import Cell, CellName
    from xmtc.experiments.suites import Suite

Data = Annotated[Path, typer.Option("--data", help="Folder with the data sets.", metavar="FOLDER")]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", help="Runs to include, such as 'cooking/parabel/*'; can be repeated.", metavar="PATTERN"),
]
Keep = Annotated[bool, typer.Option("--keep-models", help="Keep the trained models.")]


class CellFailed(DataError):
    """A run of a suite failed; the other runs are complete."""

    def __init__(self, message: str, result: dict[str, Any]) -> None:
        super().__init__(message)
        self.result = result
        """The outcome of the suite, for --json."""


CHILD = (sys.executable, "-P", "-m", "xmtc.cli.run_worker")  # -P: do not import modules from the current folder


@takes_request
def bench(
    machine: TrainingMachine,
    output: JsonOutput,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SUITE | import FROM… | export DIR",
            help="Suite to run: a TOML file or the name of a built-in suite; or results to import or export.",
            autocompletion=completer("suites"),
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for the results.", metavar="DIR")] = None,
    data: Data = Path("data"),
    only: Only = None,
    listed: Annotated[bool, typer.Option("--list", help="List the runs of the suite without running them.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Repeat runs whose settings or data have changed.")] = False,
    keep_models: Keep = False,
) -> None:
    """Run a benchmark suite: data sets × models × seeds.

    Complete runs are not repeated; to resume after an interruption, repeat the command. Without arguments, lists the
    built-in suites. `xmtc bench import FROM… --out DIR` imports runs from other machines. `xmtc bench export DIR --out
    FILE.jsonl` writes results to one file for `xmtc report` and `xmtc bench import`.
    """
    from xmtc.experiments.suites import read_suite

    check_writable(output.path)
    if not words:
        _list_suites(output)
        return
    copying = words[0] in ("import", "export")
    if not copying and len(words) > 1:
        raise ConfigError(f"bench runs one suite at a time. Leave out '{shown(words[1])}'.")
    if listed and not copying:
        _list_runs(words[0], out, only or [], output)
        return
    if out is None:
        raise ConfigError("bench requires a folder for the results. Add --out DIR.")
    if copying:
        if only or listed or keep_models:
            raise ConfigError(f"--only, --list and --keep-models cannot be used with bench {words[0]}. Leave them out.")
        _import(words[1:], out, force, output) if words[0] == "import" else _export(words[1:], out, output)
        return
    suite = read_suite(words[0])
    command = shlex.join(["xmtc", "bench", words[0], "--data", "DATA"])
    try:
        runs = run_suite(suite, out, data, command, only or [], machine.runtime(), force=force, keep_models=keep_models)
    except CellFailed as failed:
        output.write(failed.result)
        raise
    output.write(runs)
    note(f"Next: {shlex.join(['xmtc', 'report', str(out), '--out', 'report.html'])}")


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
) -> dict[str, Any]:
    """Run what is not complete, show the outcome and return it; raise an error if a run failed."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.experiments.bench import open_bench, run_bench
    from xmtc.experiments.suites import chosen

    selected = chosen(suite.cells(), only)
    opened = open_bench(suite, out, data, command, selected)
    cells = [cell for cell in selected if cell in set(opened.cells)]
    if not cells:
        for line in opened.left_out:
            echo_error(f"skipped: {line}")
        raise DataError(f"{suite.name}: no run of the suite can start. See the reasons above.")
    try:
        outcome = run_bench(
            opened,
            cells,
            (*CHILD, "--quiet") if is_quiet() else CHILD,
            runtime=runtime,
            force=force,
            keep_models=keep_models,
            progress=terminal_progress(),
            echo=note,
        )
    except KeyboardInterrupt:
        echo_error(
            "xmtc: interrupted. Finished runs, and finished parts of the last one, are saved. "
            "To resume, repeat the command."
        )
        raise typer.Exit(130) from None
    return _show_outcome(out, cells, outcome)


def _show_outcome(out: Path, cells: list[CellName], outcome: SuiteOutcome) -> dict[str, Any]:
    from xmtc.experiments.records import read_cell

    runs = [read_cell(out, cell) for cell in cells if cell not in outcome.failed]
    echo(_scores(runs))
    echo(
        f"\n{out}: {counted(len(outcome.done), 'run')} completed, "
        f"{len(outcome.there)} already complete, {len(outcome.failed)} failed"
    )
    result = {
        "folder": out,
        "completed": [str(cell) for cell in outcome.done],
        "already_complete": [str(cell) for cell in outcome.there],
        "failed": {str(cell): reason for cell, reason in outcome.failed.items()},
        "runs": [
            {"run": str(run.name), **run.metrics, "seconds": run.seconds, "documents": run.documents} for run in runs
        ],
    }
    if outcome.failed:
        cell, why = next(iter(outcome.failed.items()))
        raise CellFailed(f"{cell}: {why} Fix the cause and repeat the command: complete runs are kept.", result)
    return result


def _scores(cells: list[Cell]) -> str:
    from xmtc.cli.text_table import table

    rows = []
    for cell in cells:
        values = [f"{100 * cell.metrics[key]:.2f}" for key in ("P@1", "P@3", "P@5", "nDCG@5")]
        rows.append([str(cell.name), *values, f"{cell.seconds['train']:.1f}", f"{cell.seconds['predict']:.2f}"])
    return table(["run", "P@1", "P@3", "P@5", "nDCG@5", "train s", "predict s"], rows, right=range(1, 7))


def _list_suites(output: JsonOutput) -> None:
    from xmtc.cli.text_table import table
    from xmtc.experiments.suites import read_suite, shipped

    suites = {name: read_suite(name) for name in shipped()}
    rows = [[name, str(len(suite.cells())), suite.about] for name, suite in suites.items()]
    echo(table(["suite", "runs", "description"], rows, right=(1,)))
    echo("\nRun a suite:    xmtc bench NAME --data FOLDER --out DIR\nList its runs:  xmtc bench NAME --list")
    output.write([{"name": row[0], "runs": int(row[1]), "description": row[2]} for row in rows])


def _list_runs(name: str, out: Path | None, only: list[str], output: JsonOutput) -> None:
    """List the runs of a suite, and which of them are complete."""
    from xmtc.experiments.records import cell_names
    from xmtc.experiments.suites import chosen, read_suite

    suite = read_suite(name)
    complete = set() if out is None else set(cell_names(out))
    cells = chosen(suite.cells(), only)
    for cell in cells:
        echo(f"{'complete' if cell in complete else 'to run  '}  {cell}")
    output.write([{"run": str(cell), "complete": cell in complete} for cell in cells])


def _import(sources: list[str], out: Path, force: bool, output: JsonOutput) -> None:
    from xmtc.experiments.import_runs import import_cells

    if not sources:
        raise ConfigError("bench import requires results to import. Write: xmtc bench import FROM --out DIR")
    results = []
    for source in sources:
        copied, there = import_cells(Path(source), out, force=force)
        echo(f"{source}: {counted(len(copied), 'run')} imported, {len(there)} already present")
        results.append(
            {"source": source, "imported": [str(each) for each in copied], "present": [str(each) for each in there]}
        )
    output.write({"folder": out, "sources": results})


def _export(folders: list[str], out: Path, output: JsonOutput) -> None:
    from xmtc.experiments.import_runs import export_results

    if len(folders) != 1:
        raise ConfigError("bench export requires one folder of results. Write: xmtc bench export DIR --out FILE.jsonl")
    check_writable(out)
    count = len(export_results(Path(folders[0]), out).cells)
    echo(f"{out}: {counted(count, 'run')}")
    output.write({"file": out, "runs": count})
