"""`xmtc models` and `xmtc verify`: registered models, and saved ones with their training and updates."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from xmtc.cli.common import ModelFolder, check_writable, counted
from xmtc.cli.completion import completer
from xmtc.cli.options import takes_request
from xmtc.cli.output import JsonOutput, echo, snake_keys
from xmtc.core.errors import shown


@takes_request
def models(
    output: JsonOutput,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|DIR",
            help="Model to describe, by name or folder (default: list all models).",
            autocompletion=completer("models"),
        ),
    ] = None,
) -> None:
    """List all models, or describe one by name or folder."""
    from xmtc.cli.text_table import paragraph, table
    from xmtc.workflows.models import describe_folder, describe_model, describe_models, is_model_name

    check_writable(output.path)
    if name is None:
        rows = describe_models()
        echo(table(["model", "capabilities", "description"], rows))
        echo("\nSettings of a model: xmtc models NAME")
        output.write([{"name": row[0], "capabilities": _listed(row[1]), "description": row[2]} for row in rows])
        return
    if not is_model_name(name) and Path(name).is_dir():
        found = describe_folder(name)
        echo(model_folder(found))
        output.write({**found, "history": [snake_keys(entry) for entry in found["history"]]})
        return
    model = describe_model(name)
    echo(paragraph(f"{name}: {model.description}"))
    echo(f"capabilities: {', '.join(model.capabilities)}\n")
    output.write(
        {
            "name": name,
            "description": model.description,
            "capabilities": model.capabilities,
            "settings": [
                {
                    "name": row.name,
                    "default": row.default,
                    "type": row.kind,
                    "description": row.sentence,
                    "tuned_over": None if row.space is None else str(row.space),
                }
                for row in model.settings
            ],
        }
    )
    if not model.settings:
        echo("The model has no settings.")
        return
    table_rows = []
    for row in model.settings:
        kind = row.kind if row.space is None else f"{row.kind}; tuned over {row.space}"
        sentence = " ".join(row.sentence.split())
        table_rows.append((row.name, json.dumps(row.default, ensure_ascii=False), f"{sentence} [{kind}]"))
    echo(table(["setting", "default", "description [type]"], table_rows))
    echo(f"\nChange a setting: xmtc train TRAIN --model {name} --out DIR --set {table_rows[0][0]}=VALUE")


def _listed(capabilities: str) -> list[str]:
    return [] if capabilities == "–" else capabilities.split(", ")


@takes_request
def verify(folder: ModelFolder, output: JsonOutput) -> None:
    """Check all files of a model folder against their hashes."""
    from xmtc.workflows import models as workflow

    check_writable(output.path)
    files = workflow.verify(folder)
    for name, size in files:
        echo(f"ok  {size:>14,}  {name}")
    echo(f"{folder}: valid; all files match their hashes")
    output.write({"folder": folder, "valid": True, "files": [{"name": name, "bytes": size} for name, size in files]})


def update_line(entry: Mapping[str, Any]) -> str:
    """The counts and scores of an update in one line."""
    counts = [
        ("new document", "", entry["documents"]),
        ("new label", "", entry["labels added"]),
        ("label", " removed", entry["labels retired"]),
        ("label", " merged", len(entry["merged"])),
        ("label", " updated", entry.get("labels updated", 0)),
        ("label", " of the vocabulary left out", entry.get("labels left out", 0)),
        ("earlier document", " replayed", entry["replayed"]),
    ]
    parts = [counted(count, noun) + what for noun, what, count in counts if count or noun == "new document"]
    if entry["nDCG@5 after"] is not None:
        parts.append(f"nDCG@5 {_score(entry['nDCG@5 before'])} → {_score(entry['nDCG@5 after'])}")
    return ", ".join(parts)


def _score(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def model_folder(found: Mapping[str, Any]) -> str:
    """A saved model: training, settings that are not the defaults, and updates."""
    from xmtc.cli.text_table import table

    training = found["training"]
    facts = [
        ("model", found["model"]),
        ("labels", f"{found['labels']:,}"),
        *_label_facts(found),
        ("documents", f"{training.get('documents', 0):,}" + (", including updates" if found["history"] else "")),
        ("trained on", str(training.get("input", "–"))),
        ("training time", f"{training.get('seconds', 0.0):.1f} s, seed {training.get('seed', 0)}"),
        ("size", f"{found['bytes'] / 2**20:,.1f} MiB"),
        *((f"{name} (automatic)", shown(value)) for name, value in training.get("found", {}).items()),
    ]
    if (metrics := found["metrics"]) is not None:
        values = ", ".join(f"{name} {_score(metrics[name])}" for name in ("P@1", "P@5", "nDCG@5") if name in metrics)
        facts.append(("metrics, %", f"{values} on {metrics['measured'].get('file')}"))
    lines = [table(["", found["folder"]], facts)]
    if (preset := training.get("preset")) is not None:
        lines.append(_preset(preset))
    settings = [(name, json.dumps(value, ensure_ascii=False)) for name, value in found["settings"].items()]
    if settings:
        lines.append(table(["setting", "value, if not the default"], settings))
    else:
        lines.append("All settings have their defaults.")
    if found["trainable"]:
        lines.append(f"Default settings: xmtc models {found['model']}")
    if found["history"]:
        lines += [_history(found["history"]), "before, after: nDCG@5 in percent. Times are UTC."]
    elif found["trainable"]:
        folder = shlex.quote(str(found["folder"]))
        lines.append(f"No updates. To add documents or labels: xmtc update {folder} NEW")
    return "\n\n".join(lines)


def _preset(preset: Mapping[str, Any]) -> str:
    """What a preset has chosen and why."""
    from xmtc.cli.text_table import paragraph, table

    if preset["name"] == "fast":
        return paragraph(" ".join([f"Chosen by the preset fast: {preset['model']}.", *preset["reasons"]]))
    intro = f"Chosen by the preset {preset['name']} by {preset['metric']}, percent, on {preset['validation']}."
    rows = [
        (each["name"], each["model"], _score(each["score"]), "yes" if each["member"] else each["note"], each["reason"])
        for each in preset["models"]
    ]
    return f"{paragraph(intro)}\n\n{table(['tried', 'model', 'score', 'member', 'why'], rows, right=(2,))}"


def _label_facts(found: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Lines on names and hierarchy of the labels, and on labels without training documents."""
    facts, vocabulary = found["label_facts"], found["training"].get("vocabulary")
    lines = [
        ("  without training documents", facts.get("without_documents")),
        ("  with alternative names", facts.get("with_alternatives")),
        ("  with broader labels", facts.get("with_broader")),
        ("  with related labels", facts.get("with_related")),
        ("  with notes", facts.get("with_notes")),
    ]
    shown_lines = [(name, f"{count:,}") for name, count in lines if count]
    if vocabulary is not None and vocabulary["labels"] > found["labels"]:
        left_out = f"{vocabulary['labels']:,}, {vocabulary['without_documents']:,} without training documents"
        shown_lines.append(("labels of the vocabulary", left_out))
    return shown_lines


def _history(entries: list[dict[str, Any]]) -> str:
    """A table of updates."""
    from xmtc.cli.text_table import table

    header = ["updated", "documents", "new labels", "removed", "merged"]
    header += ["vocabulary"] if (has_vocabulary := any("vocabulary" in entry for entry in entries)) else []
    header += ["replayed", "before", "after"]
    rows = []
    for entry in entries:
        checked = entry["judged by"]
        source = "–" if not checked else f"{checked:,} {'held out' if entry['held out'] else 'given'}"
        counts = (
            entry["documents"],
            entry["labels added"],
            entry["labels retired"],
            len(entry["merged"]),
            *([entry.get("vocabulary", 0)] if has_vocabulary else []),
            entry["replayed"],
        )
        scores = _score(entry["nDCG@5 before"]), _score(entry["nDCG@5 after"]) + (" forced" if entry["forced"] else "")
        date = str(entry["date"])[:16].replace("T", " ")
        rows.append([date, *(f"{count:,}" for count in counts), *scores, source, f"{entry['seconds']:.1f}"])
    right = (*range(len(header) - 1), len(header) + 1)  # dates are not wrapped
    return table([*header, "validation", "s"], rows, right=right)
