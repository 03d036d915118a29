"""`xmtc update`: a model learns from new documents and new labels. Everything heavy is imported inside the command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from xmtc.cli.common import Device, ModelFolder, Precision, Threads, check_choice, make_runtime, say, tell
from xmtc.cli.reader_options import Labels, Language, NotInLabels, reads_documents
from xmtc.core.errors import ConfigError


@reads_documents
def update(
    folder: ModelFolder,
    options: Any,
    new: Annotated[
        Path | None, typer.Argument(metavar="NEW", help="New documents with labels, in any known format.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Put the updated model here (default: in its place).", metavar="DIR2")
    ] = None,
    valid: Annotated[
        Path | None, typer.Option(help="Documents to judge the update by (default: some of NEW).", metavar="FILE")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(help="Documents learnt before, to see again (default: those the model keeps).", metavar="FILE"),
    ] = None,
    retire: Annotated[Path | None, typer.Option(help="Labels that go.", metavar="FILE")] = None,
    merge: Annotated[
        Path | None, typer.Option(help="Labels that become another: old key, a tab, new key.", metavar="FILE")
    ] = None,
    margin: Annotated[
        float, typer.Option(help="Refuse an update that lowers nDCG@5 by more points than this.", metavar="POINTS")
    ] = 2.0,
    force: Annotated[
        bool, typer.Option("--force", help="Keep an update that is worse; replace a model in --out.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", metavar="N")] = 0,
    labels: Labels = None,
    language: Language = None,
    unknown_labels: NotInLabels = "refuse",
    threads: Threads = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Teach a model new documents and new labels.

    The model is replaced at once or not at all. An update that was interrupted goes on when it is started again.
    """
    from xmtc.artifact.workspace import Workspace
    from xmtc.cli.history import update_line
    from xmtc.cli.progress import terminal_progress
    from xmtc.workflows import update

    check_choice("--unknown-labels", unknown_labels, ("refuse", "drop"))
    if not margin >= 0:
        raise ConfigError(f"--margin must be a number ≥ 0. Got {margin:g}.")
    if language is not None and labels is None:
        raise ConfigError("--language chooses among the names in --labels FILE. Name that file too.")
    try:
        updated = update.update(
            folder,
            update.UpdateFiles(new, valid, replay, retire, merge),
            out=out,
            options=options,
            vocabulary=labels,
            language=language,
            unknown_labels=unknown_labels,
            margin=margin / 100,
            force=force,
            runtime=make_runtime(threads, seed, device=device, precision=precision),
            progress=terminal_progress(),
        )
    except KeyboardInterrupt:
        work = Workspace.beside(out or folder, ".update")
        tell(f"xmtc: interrupted. {folder} is as it was; finished parts are in {work}: go on with the same command.")
        raise typer.Exit(130) from None
    entry = updated.history[-1]
    say(f"saved {updated.name} in {out or folder}: {update_line(entry)}, {entry['seconds']:.1f} s")
    if entry["nDCG@5 after"] is None:
        tell(
            "nothing tells whether it is better: give --valid FILE, or 500 new documents, of which a tenth is held out"
        )
    if updated.decisions.made:
        tell(f"what scores mean was found before the update: xmtc calibrate {out or folder} VALID finds it anew")
