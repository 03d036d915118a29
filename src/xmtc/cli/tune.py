"""`xmtc tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from xmtc.cli.common import check_writable, counted
from xmtc.cli.options import SeededMachine, takes_request
from xmtc.cli.output import JsonOutput, echo, echo_error, note
from xmtc.experiments.requests import TuneRequest

if TYPE_CHECKING:
    from xmtc.experiments.trials import Trial
    from xmtc.experiments.tuning import TuningOutcome


@takes_request
def tune(
    request: TuneRequest,
    machine: SeededMachine,
    output: JsonOutput,
) -> None:
    """Search for the best settings, then train with them.

    `xmtc models NAME` shows the ranges that are searched. The first trial uses the defaults, so the result is never
    worse than the defaults on the validation set.
    """
    from xmtc.cli.progress import terminal_progress
    from xmtc.experiments import tuning

    check_writable(output.path, request.train_file, request.valid)
    try:
        outcome = tuning.tune_files(request, runtime=machine.runtime(), progress=terminal_progress())
    except KeyboardInterrupt:
        if not (request.out / tuning.TUNING).exists():  # not started yet
            raise
        count = tuning.finished(request.out)
        parts = f"{count} finished {'trial is' if count == 1 else 'trials are'} in {request.out}"
        echo_error(f"xmtc: interrupted. {parts}. To resume, repeat the command with --resume.")
        raise typer.Exit(130) from None
    _show(outcome, "defaults" if request.recipe is None else "recipe")
    output.write(_result(outcome))
    if outcome.model is not None:
        model = outcome.folder / tuning.MODEL
        note(f"the settings were chosen on the validation set; evaluate the model with: xmtc evaluate {model} TEST")


def _show(outcome: TuningOutcome, start: str) -> None:
    from xmtc.cli.text_table import table
    from xmtc.experiments import tuning
    from xmtc.experiments.trials import COMPLETE, FAILED, PRUNED

    out, first, best = outcome.folder, outcome.trials[0], outcome.best
    rows = [[name, tuning.plain(first.settings[name]), tuning.plain(best.settings[name])] for name in first.settings]
    scores = [f"{100 * trial.score:.2f}" for trial in (first, best) if trial.score is not None]
    where = "held out from TRAIN" if outcome.split_off else "from --valid"
    echo(table(["", start, "best"], [*rows, [f"{outcome.search.measure}, %", *scores]]))
    others = {state: outcome.count(state) for state in (COMPLETE, PRUNED, FAILED)}
    counts = ", ".join(f"{count} {state}" for state, count in others.items() if count)
    ended = "; all settings were tried" if outcome.exhausted else ""
    echo(f"\nbest: trial {best.number} of {len(outcome.trials)} ({counts}){ended}")
    echo(f"validation set: {counted(outcome.measured, 'document')} {where}")
    echo(f"written: {out / tuning.RECIPE}, {out / tuning.TABLE}, {out / tuning.PICTURE}")
    if outcome.model is None:
        echo(f"train with the best settings: xmtc train TRAIN --config {out / tuning.RECIPE} --out DIR")
        return
    documents = counted(outcome.model.training["documents"], "document")
    echo(f"saved {outcome.model.name} in {out / tuning.MODEL}, trained on all {documents}")


def _result(outcome: TuningOutcome) -> dict[str, Any]:
    from xmtc.experiments import tuning

    def trial(each: Trial) -> dict[str, Any]:
        return {name: getattr(each, name) for name in ("number", "state", "settings", "score", "seconds")}

    return {
        "folder": outcome.folder,
        "metric": outcome.search.measure,
        "best": trial(outcome.best),
        "trials": [trial(each) for each in outcome.trials],
        "validation_documents": outcome.measured,
        "recipe": outcome.folder / tuning.RECIPE,
        "model": None if outcome.model is None else outcome.folder / tuning.MODEL,
    }
