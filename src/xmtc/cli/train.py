"""`xmtc train`."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import typer

from xmtc.cli.common import check_writable, counted
from xmtc.cli.options import SeededMachine, takes_request
from xmtc.cli.output import JsonOutput, echo, echo_error, note, snake_keys
from xmtc.workflows.requests import TrainRequest

if TYPE_CHECKING:
    from xmtc.core.progress import Progress
    from xmtc.core.runtime import Runtime
    from xmtc.workflows.auto import FastChoice
    from xmtc.workflows.models import Model


@takes_request
def train(
    request: TrainRequest,
    machine: SeededMachine,
    output: JsonOutput,
) -> None:
    """Train a model on labelled texts and save it.

    Without --model, settings are chosen for the data; --preset good combines the best of several models.
    """
    from xmtc.cli.progress import terminal_progress
    from xmtc.core.progress import silent
    from xmtc.workflows import train as workflow

    check_writable(output.path, request.train_file, request.valid)
    runtime = machine.runtime()
    leads = runtime.rank == 0  # of several processes, one prints
    progress = terminal_progress() if leads else silent
    try:
        if request.uses_preset and runtime.world_size == 1:
            trained = _train_preset(request, runtime, progress)
        else:
            trained = workflow.train(
                request,
                runtime=runtime,
                progress=progress,
                started=lambda model: note(settings_text(model, request, machine.seed)) if leads else None,
            )
    except KeyboardInterrupt:
        work, finished = workflow.unfinished_training(request.out)
        parts = f"Finished parts are in {work}" if finished else "No part is finished yet"
        if finished and workflow.is_model(request.out) and request.auto.preset in ("good", "best"):
            parts = f"{request.out} has the best model so far"
        echo_error(f"xmtc: interrupted. {parts}. To resume, repeat the command with --resume.")
        raise typer.Exit(130) from None
    if not leads:
        return
    for name, value in () if request.auto.preset in ("good", "best") else trained.facts.items():
        note(f"chosen automatically: {name} = {value}")
    facts = trained.training
    echo(
        f"saved {trained.name} in {request.out}: {counted(facts['documents'], 'document')}, "
        f"{counted(len(trained.labels), 'label')}, trained in {facts['seconds']:.1f} s"
    )
    if (line := unused_labels_line(trained)) is not None:
        note(line)
    output.write(_result(trained, request, machine.seed))
    note(next_steps(trained, request))


def _train_preset(request: TrainRequest, runtime: Runtime, progress: Progress) -> Model:
    """Train with a preset; print its choice, or its plan and leaderboard."""
    from xmtc.cli.leaderboard_table import leaderboard_lines, plan_lines
    from xmtc.workflows import auto

    def show(event: auto.Event) -> None:
        if isinstance(event, auto.FastChoice):
            note(choice_text(event))
        elif event.complete:
            echo("\n".join(leaderboard_lines(event)))
            note(f"leaderboard: {auto.leaderboard_page_file(request.out)}, {auto.leaderboard_file(request.out)}")
        else:
            note("\n".join(plan_lines(event)))

    return auto.train_preset(request, runtime=runtime, progress=progress, listener=show)


def choice_text(choice: FastChoice) -> str:
    """The model that the preset `fast` has chosen, its settings and the reasons."""
    from xmtc.core.config import flat

    lines = [f"model: {choice.model} (preset fast; choose another with --model NAME, or try --preset good)"]
    lines += [f"  {name} = {json.dumps(value)}" for name, value in flat(choice.settings).items()]
    lines += [f"  {reason}" for reason in choice.reasons]
    return "\n".join(lines)


def _result(trained: Model, request: TrainRequest, seed: int) -> dict[str, Any]:
    from xmtc.core import config

    return {
        "model": trained.name,
        "folder": request.out,
        "documents": trained.training["documents"],
        "labels": len(trained.labels),
        "labels_without_documents": unused_labels(trained)[0],
        "seconds": trained.training["seconds"],
        "seed": seed,
        "settings": config.flat(config.to_mapping(trained.config)),
        "chosen_automatically": snake_keys(trained.facts),
    }


def unused_labels(trained: Model) -> tuple[int, int]:
    """The number of labels without training documents, and of all labels, of the vocabulary or else of the model."""
    if (found := trained.training.get("vocabulary")) is not None:
        return found["without_documents"], found["labels"]
    return _kept_without_documents(trained), len(trained.labels)


def _kept_without_documents(trained: Model) -> int:
    counted = trained.counted()
    return 0 if counted is None else int((counted[0] == 0).sum())


def unused_labels_line(trained: Model) -> str | None:
    """How many labels have no training documents, and whether the model can predict them."""
    count, total = unused_labels(trained)
    by_name = trained.uses_label_names and trained.feature_count is None and _kept_without_documents(trained) > 0
    if not count or not (by_name or "vocabulary" in trained.training):
        return None
    have, them = ("has", "it") if count == 1 else ("have", "them")
    start = f"{count:,} of {total:,} labels {have} no training documents; {trained.name}"
    if by_name:
        return f"{start} can predict {them} by name."
    if trained.feature_count is not None:
        return f"{start} cannot predict {them} from a feature matrix. Train on texts."
    if getattr(trained.config, "label_names", None) == 0:
        return f"{start} cannot predict {them} with label_names = 0. Leave out this setting."
    remedy = "Use lexical, a linear model with label_names such as parabel, or a consensus with one of them."
    return f"{start} cannot predict {them}. {remedy}"


def settings_text(model: Model, request: TrainRequest, seed: int) -> str:
    """The model, and the settings that differ from its defaults, with their source."""
    from xmtc.core import config

    default = config.flat(config.to_mapping(type(model).Config()))
    settings = config.flat(config.to_mapping(model.config))
    given = config.flat(config.nested(config.parse_assignments(request.assignments)))
    given_names = {name for name in settings if any(name == key or name.startswith(f"{key}.") for key in given)}
    chosen = "" if request.model or request.recipe else " (the default; choose another with --model NAME)"
    lines = [f"model: {model.name}{chosen}"]
    for name, value in settings.items():
        if value != default[name]:
            source = "--set" if name in given_names or request.recipe is None else f"recipe {request.recipe}"
            lines.append(f"  {name} = {json.dumps(value, ensure_ascii=False)}  ({source})")
    if seed:
        lines.append(f"  seed = {seed}  (--seed)")
    others = "all other settings have their defaults" if len(lines) > 1 else "all settings have their defaults"
    return "\n".join([*lines, f"{others}; list them with: xmtc models {model.name}"])


def next_steps(model: Model, request: TrainRequest) -> str:
    """Commands to run after training."""
    folder = shlex.quote(str(request.out))
    commands = [f"xmtc evaluate {folder} TEST"]
    if model.feature_count is None:
        commands.append(f'xmtc predict {folder} --text "Some text"')
        commands.append(f"xmtc serve {folder}")
    else:
        commands.append(f"xmtc predict {folder} INPUT")
    return "\n".join(["Next:", *(f"  {command}" for command in commands)])
