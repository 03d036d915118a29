"""`xmtc tune`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from xmtc.cli.common import echo, echo_error
from xmtc.cli.options import SeededMachine, takes_request
from xmtc.experiments.requests import TuneRequest

if TYPE_CHECKING:
    from xmtc.experiments.tuning import TuningOutcome


@takes_request
def tune(
    request: TuneRequest,
    machine: SeededMachine,
) -> None:
    """Search for the best settings, then train with them.

    Ranges are those that `xmtc models NAME` shows. The first trial is the defaults, so the best is never worse than
    they are on the documents it is measured on.
    """
    from xmtc.cli.progress import terminal_progress
    from xmtc.experiments import tuning

    try:
        outcome = tuning.tune_files(request, runtime=machine.runtime(), progress=terminal_progress())
    except KeyboardInterrupt:
        if not (request.out / tuning.TUNING).exists():  # nothing was begun
            raise
        count = tuning.finished(request.out)
        parts = f"{count} finished {'trial is' if count == 1 else 'trials are'} in {request.out}"
        echo_error(f"xmtc: interrupted. {parts}: go on with the same command and --resume.")
        raise typer.Exit(130) from None
    _show(outcome, "defaults" if request.recipe is None else "recipe")


def _show(outcome: TuningOutcome, start: str) -> None:
    from xmtc.cli.show import table
    from xmtc.experiments import tuning
    from xmtc.experiments.trials import COMPLETE, FAILED, PRUNED

    out, first, best = outcome.folder, outcome.trials[0], outcome.best
    rows = [[name, tuning.plain(first.settings[name]), tuning.plain(best.settings[name])] for name in first.settings]
    scores = [f"{100 * trial.score:.2f}" for trial in (first, best) if trial.score is not None]
    where = "split off TRAIN" if outcome.split_off else "of --valid"
    echo(table(["", start, "best"], [*rows, [f"{outcome.search.measure}, %", *scores]]))
    others = {state: outcome.count(state) for state in (COMPLETE, PRUNED, FAILED)}
    counts = ", ".join(f"{count} {state}" for state, count in others.items() if count)
    ended = "; there was nothing else to try" if outcome.exhausted else ""
    echo(f"\nbest: trial {best.number} of {len(outcome.trials)} ({counts}){ended}")
    echo(f"measured on {outcome.measured:,} documents {where}")
    echo(f"written: {out / tuning.RECIPE}, {out / tuning.TABLE}, {out / tuning.PICTURE}")
    if outcome.model is None:
        echo(f"train with it: xmtc train TRAIN --config {out / tuning.RECIPE} --out DIR")
        return
    echo(f"saved {outcome.model.name} in {out / tuning.MODEL}, trained on all {outcome.model.training['documents']:,}")
    echo_error(
        f"settings were chosen on such documents: xmtc evaluate {out / tuning.MODEL} TEST says how it does on others"
    )
