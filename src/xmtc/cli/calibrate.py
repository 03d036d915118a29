"""`xmtc calibrate`: what a model's scores mean. Everything heavy is imported inside the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from xmtc.cli.common import Device, ModelFolder, Threads, check_choice, check_writable, make_runtime, say, tell
from xmtc.cli.reader_options import Labels, NotInLabels, reads_documents
from xmtc.core.errors import ConfigError

if TYPE_CHECKING:
    from xmtc.decisions.decision_rules import Decisions
    from xmtc.decisions.thresholds import Measure


@reads_documents
def calibrate(
    folder: ModelFolder,
    options: Any,
    valid: Annotated[
        Path | None,
        typer.Argument(metavar="VALID", help="Documents with labels that the model was not trained on."),
    ] = None,
    method: Annotated[
        str, typer.Option(help="How scores become probabilities.", metavar="isotonic|platt|none")
    ] = "isotonic",
    threshold: Annotated[
        str,
        typer.Option(
            metavar="global|document|label|none",
            help="Sets of labels: one threshold for all, the best set of each document, or one for each label.",
        ),
    ] = "global",
    measure: Annotated[
        str | None,
        typer.Option(
            "--f1",
            metavar="micro|macro|document",
            help="The F1 that the threshold is the best for (default: micro; document for --threshold document).",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", help="Labels of each document to look at.", metavar="N")] = 50,
    json_file: Annotated[
        Path | None, typer.Option("--json", help="Write what was found here too (fractions).", metavar="FILE")
    ] = None,
    labels: Labels = None,
    unknown_labels: NotInLabels = "refuse",
    threads: Threads = None,
    device: Device = "auto",
) -> None:
    """Make scores probabilities, and tune a threshold for sets.

    What is found is kept with the model; nothing else of it changes. With --method none and --threshold none it is
    taken away again.
    """
    from xmtc import workflows
    from xmtc.cli import show
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.files import write_json

    check_choice("--method", method, ("isotonic", "platt", "none"))
    check_choice("--threshold", threshold, ("global", "document", "label", "none"))
    if measure is not None:
        check_choice("--f1", measure, ("micro", "macro", "document"))
    check_choice("--unknown-labels", unknown_labels, ("refuse", "drop"))
    _check_together(valid, method, threshold, measure, k, json_file)
    check_writable(json_file, valid, labels)
    chosen: dict[str, Any] = {"method": method, "threshold": threshold}
    model = workflows.calibrate(
        folder,
        valid,
        **{name: None if word == "none" else word for name, word in chosen.items()},
        measure=cast("Measure | None", measure),
        k=k,
        options=options,
        vocabulary=labels,
        unknown_labels=unknown_labels,
        runtime=make_runtime(threads, device=device),
        progress=terminal_progress(),
    )
    found = model.decisions
    if json_file is not None:
        write_json(json_file, _told(found))
    if valid is not None:
        say(show.calibration_table(found) + "\n")
    if not found.made:
        say(f"{folder}: gives its scores as they are, and has no threshold")
        return
    probabilities = "predict gives scores as they are" if found.calibration is None else "predict gives probabilities"
    sets = "" if found.thresholds is None else ", predict --threshold auto sets of labels"
    say(f"saved in {folder}: {probabilities}{sets}")
    tell(f"these documents were fitted to: xmtc evaluate {folder} TEST says how it holds on others")


def _check_together(
    valid: Path | None, method: str, threshold: str, measure: str | None, k: int, json_file: Path | None
) -> None:
    if k < 1:
        raise ConfigError(f"'k' must be an integer ≥ 1. Got {k}.")
    if measure is not None and threshold == "none":
        raise ConfigError("--f1 says what the threshold is the best for, and there is none. Leave out one of them.")
    if threshold == "document" and measure not in (None, "document"):
        raise ConfigError(f"--threshold document gives the best document-F1, not {measure}-F1. Leave out --f1.")
    taken_away = method == "none" and threshold == "none"
    if valid is None and not taken_away:
        raise ConfigError("VALID is missing. Name documents with labels that the model was not trained on.")
    if valid is None and json_file is not None:
        raise ConfigError("--json tells what was measured, which takes documents. Leave it out, or name VALID.")


def _told(found: Decisions) -> dict[str, Any]:
    """What was found, ready for JSON."""
    parts = {"calibration": found.calibration, "threshold": found.thresholds}
    return {
        **{name: None if part is None else part.values() for name, part in parts.items()},
        "k": found.depth,
        **found.facts,
    }
