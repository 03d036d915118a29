"""`xmtc tune`: the settings that suit a corpus best. Everything heavy is imported inside the command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xmtc.cli.common import Device, Precision, Threads, check_choice, make_runtime, say, tell
from xmtc.cli.reader_options import Labels, Language, NotInLabels, reads_documents
from xmtc.core.errors import ConfigError

if TYPE_CHECKING:
    from xmtc.experiments.tuning import TuningOutcome


@reads_documents
def tune(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which model.")],
    train_file: Annotated[Path, typer.Argument(metavar="TRAIN", help="Documents with labels, in any known format.")],
    options: Any,
    out: Annotated[Path, typer.Option(help="Folder for trials, recipe and model.", metavar="DIR")],
    valid: Annotated[
        Path | None, typer.Option(help="Documents to measure on (default: a tenth of TRAIN).", metavar="FILE")
    ] = None,
    trials: Annotated[int, typer.Option(help="Settings to try, at most.", metavar="N")] = 30,
    minutes: Annotated[
        float | None, typer.Option(help="Begin no trial after this time (default: no limit).", metavar="M")
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option("--set", help="One setting that all trials have; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    search: Annotated[
        list[str] | None,
        typer.Option(help="Search only this; KEY=LOW..HIGH or KEY=[a, b] say what to try.", metavar="KEY"),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option("--config", help="Settings to start from, a TOML recipe.", metavar="RECIPE")
    ] = None,
    measure: Annotated[str, typer.Option(help="What the best is the best at.", metavar="NAME")] = "nDCG@5",
    seed: Annotated[int, typer.Option(help="Seed of all randomness.", metavar="N")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace an earlier search.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with an unfinished search.")] = False,
    refit: Annotated[bool, typer.Option("--refit/--no-refit", help="Train on all of TRAIN with the best.")] = True,
    labels: Labels = None,
    language: Language = None,
    unknown_labels: NotInLabels = "refuse",
    threads: Threads = None,
    device: Device = "auto",
    precision: Precision = "auto",
) -> None:
    """Search for the best settings, then train with them.

    Ranges are those that `xmtc models NAME` shows. The first trial is the defaults, so the best is never worse than
    they are on the documents it is measured on.
    """
    from xmtc import workflows
    from xmtc.cli.progress import terminal_progress
    from xmtc.core import config
    from xmtc.experiments import tuning
    from xmtc.experiments.search_space import decide
    from xmtc.experiments.trials import check_installed

    check_installed()
    check_choice("--unknown-labels", unknown_labels, ("refuse", "drop"))
    if language is not None and labels is None:
        raise ConfigError("--language chooses among the names in --labels FILE. Name that file too.")
    decided = decide(
        name,
        recipe=recipe,
        settings=config.parse_assignments(assignments or []),
        search=search or [],
        measure=measure,
        trials=trials,
        minutes=minutes,
    )
    progress = terminal_progress()

    def documents() -> tuple[Any, Any]:
        files = [train_file] if valid is None else [train_file, valid]
        how = {"vocabulary": labels, "language": language, "unknown_labels": unknown_labels}
        found = workflows.read_labelled(files, options, progress=progress, **how)
        return found[0], found[1] if len(found) > 1 else None

    try:
        outcome = tuning.tune(
            decided,
            out,
            documents,
            runtime=make_runtime(threads, seed, device=device, precision=precision),
            progress=progress,
            resume=resume,
            force=force,
            refit=refit,
        )
    except KeyboardInterrupt:
        if not (out / tuning.TUNING).exists():  # nothing was begun
            raise
        kept = tuning.finished(out)
        parts = f"{kept} finished {'trial is' if kept == 1 else 'trials are'} in {out}"
        tell(f"xmtc: interrupted. {parts}: go on with the same command and --resume.")
        raise typer.Exit(130) from None
    _show(outcome, "defaults" if recipe is None else "recipe")


def _show(outcome: TuningOutcome, start: str) -> None:
    from xmtc.cli.show import table
    from xmtc.experiments import tuning
    from xmtc.experiments.trials import COMPLETE, FAILED, PRUNED

    out, first, best = outcome.folder, outcome.trials[0], outcome.best
    rows = [[name, tuning.plain(first.settings[name]), tuning.plain(best.settings[name])] for name in first.settings]
    scores = [f"{100 * trial.score:.2f}" for trial in (first, best) if trial.score is not None]
    where = "split off TRAIN" if outcome.split_off else "of --valid"
    say(table(["", start, "best"], [*rows, [f"{outcome.search.measure}, %", *scores]]))
    others = {state: outcome.count(state) for state in (COMPLETE, PRUNED, FAILED)}
    counts = ", ".join(f"{count} {state}" for state, count in others.items() if count)
    ended = "; there was nothing else to try" if outcome.exhausted else ""
    say(f"\nbest: trial {best.number} of {len(outcome.trials)} ({counts}){ended}")
    say(f"measured on {outcome.measured:,} documents {where}")
    say(f"written: {out / tuning.RECIPE}, {out / tuning.TABLE}, {out / tuning.PICTURE}")
    if outcome.model is None:
        say(f"train with it: xmtc train TRAIN --config {out / tuning.RECIPE} --out DIR")
        return
    say(f"saved {outcome.model.name} in {out / tuning.MODEL}, trained on all {outcome.model.training['documents']:,}")
    tell(f"settings were chosen on such documents: xmtc evaluate {out / tuning.MODEL} TEST says how it does on others")
