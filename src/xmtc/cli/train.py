"""`xmtc train`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import typer

from xmtc.cli.common import echo, echo_error
from xmtc.cli.options import SeededMachine, takes_request
from xmtc.workflows.requests import TrainRequest

if TYPE_CHECKING:
    from xmtc.workflows.models import Model


@takes_request
def train(
    request: TrainRequest,
    machine: SeededMachine,
) -> None:
    """Train a model on labelled texts and save it."""
    from xmtc.cli.progress import terminal_progress
    from xmtc.core import config
    from xmtc.core.progress import silent
    from xmtc.workflows import train as workflow

    runtime = machine.runtime()

    def show_settings(model: Model) -> None:
        if runtime.rank > 0:  # of several processes one speaks
            return
        hint = "" if request.model or request.recipe else "  (the best that runs here; --model to choose)"
        settings = {**config.to_mapping(model.config), "seed": machine.seed}
        lines = [f"  {name} = {json.dumps(value)}" for name, value in config.flat(settings).items()]
        echo_error("\n".join([f"model: {model.name}{hint}", *lines]))

    progress = terminal_progress() if runtime.rank == 0 else silent
    try:
        trained = workflow.train(request, runtime=runtime, progress=progress, started=show_settings)
    except KeyboardInterrupt:
        work, finished = workflow.unfinished_training(request.out)
        parts = f"Finished parts are in {work}" if finished else "Nothing was finished yet"
        echo_error(f"xmtc: interrupted. {parts}: go on with the same command and --resume.")
        raise typer.Exit(130) from None
    if runtime.rank > 0:
        return
    for name, value in trained.facts.items():
        echo_error(f"found: {name} = {value}")
    facts = trained.training
    echo(
        f"saved {trained.name} in {request.out}: {facts['documents']:,} documents, {len(trained.labels):,} labels, "
        f"trained in {facts['seconds']:.1f} s"
    )
