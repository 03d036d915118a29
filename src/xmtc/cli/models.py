"""`xmtc models` and `xmtc verify`: registered models, and saved ones with what they have learnt since training."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from xmtc.cli.common import ModelFolder, echo, terminal_width
from xmtc.core.errors import shown


def models(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME|DIR", help="Show its settings, or what a model folder holds.")
    ] = None,
) -> None:
    """List the models, or show one: its settings, or its folder."""
    from xmtc.cli.show import table
    from xmtc.workflows.models import describe_folder, describe_model, describe_models, is_model_name

    width = terminal_width()
    if name is None:
        echo(table(["model", "can", "what it is"], describe_models(), width=width))
        echo("\nSettings of one of them: xmtc models NAME")
        return
    if not is_model_name(name) and Path(name).is_dir():
        echo(model_folder(describe_folder(name), width))
        return
    model = describe_model(name)
    echo(f"{name}: {model.description}\ncan: {', '.join(model.capabilities)}\n")
    rows = []
    for row in model.settings:
        tried = "" if row.space is None else f" [tune tries {row.space}]"
        rows.append((row.name, json.dumps(row.default), row.kind, row.sentence + tried))
    if not rows:
        echo("It has no settings.")
        return
    echo(table(["setting", "default", "kind", "meaning"], rows, width=width))
    echo(f"\nSet one with: xmtc train TRAIN --model {name} --out DIR --set {rows[0][0]}=VALUE")


def verify(folder: ModelFolder) -> None:
    """Check a model folder, every byte of it, against its hashes."""
    from xmtc.workflows import models as workflow

    for name, size in workflow.verify(folder):
        echo(f"ok  {size:>14,}  {name}")
    echo(f"{folder}: whole, every file matches its hash")


def update_line(entry: Mapping[str, Any]) -> str:
    """What an update brought."""
    counts = {
        "new document": entry["documents"],
        "new label": entry["labels added"],
        "label retired": entry["labels retired"],
        "label merged": len(entry["merged"]),
        "document seen again": entry["replayed"],
    }
    parts = [_counted(count, what) for what, count in counts.items() if count or what == "new document"]
    if entry["nDCG@5 after"] is not None:
        parts.append(f"nDCG@5 {_score(entry['nDCG@5 before'])} → {_score(entry['nDCG@5 after'])}")
    return ", ".join(parts)


def _counted(count: int, what: str) -> str:
    noun, _, rest = what.partition(" ")
    if noun == "new":
        return f"{count:,} {what}{'' if count == 1 else 's'}"
    return f"{count:,} {noun}{'' if count == 1 else 's'} {rest}"


def _score(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.2f}"


def model_folder(found: Mapping[str, Any], width: int | None = None) -> str:
    """A saved model: what it is, how it was trained, and each update since."""
    from xmtc.cli.show import table

    training = found["training"]
    facts = [
        ("model", found["model"]),
        ("labels", f"{found['labels']:,}"),
        ("documents", f"{training.get('documents', 0):,}" + (", updates included" if found["history"] else "")),
        ("trained on", str(training.get("input", "–"))),
        ("trained in", f"{training.get('seconds', 0.0):.1f} s, seed {training.get('seed', 0)}"),
        ("size", f"{found['bytes'] / 2**20:,.1f} MiB"),
        *((f"found: {name}", shown(value)) for name, value in training.get("found", {}).items()),
    ]
    if (metrics := found["metrics"]) is not None:
        measured = ", ".join(f"{name} {_score(metrics[name])}" for name in ("P@1", "P@5", "nDCG@5") if name in metrics)
        facts.append(("measured", f"{measured} on {metrics['measured'].get('file')}"))
    lines = [table(["", found["folder"]], facts, width=width)]
    settings = [(name, json.dumps(value, ensure_ascii=False)) for name, value in found["settings"].items()]
    if settings:
        lines.append(table(["setting", "value, where it is not the default"], settings, width=width))
    if not found["history"]:
        lines.append("Never updated. New documents and labels: xmtc update DIR NEW")
        return "\n\n".join(lines)
    header = [
        "updated",
        "documents",
        "new labels",
        "retired",
        "merged",
        "seen again",
        "before",
        "after",
        "judged by",
        "s",
    ]
    rows = []
    for entry in found["history"]:
        judged = entry["judged by"]
        source = "–" if not judged else f"{judged:,} {'held out' if entry['held out'] else 'given'}"
        counts = (
            entry["documents"],
            entry["labels added"],
            entry["labels retired"],
            len(entry["merged"]),
            entry["replayed"],
        )
        scores = _score(entry["nDCG@5 before"]), _score(entry["nDCG@5 after"]) + (" forced" if entry["forced"] else "")
        date = str(entry["date"])[:16].replace("T", " ")
        rows.append([date, *(f"{count:,}" for count in counts), *scores, source, f"{entry['seconds']:.1f}"])
    lines.append(table(header, rows, right=(1, 2, 3, 4, 5, 6, 7, 9)))
    lines.append("Before and after: nDCG@5. Times are UTC.")
    return "\n\n".join(lines)
