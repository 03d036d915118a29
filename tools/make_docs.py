"""Write docs/models.md from the registry and the settings: .venv/bin/python tools/make_docs.py"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from xmtc.core.config import table
from xmtc.models.registry import MODELS, available, model_class

TARGET = Path(__file__).parent.parent / "docs" / "models.md"


def page() -> str:
    """Every model with its abilities and settings."""
    lines = ["# Models", "", "Made by `tools/make_docs.py` from the settings themselves.", ""]
    for name in MODELS:
        if not available(name):
            raise SystemExit(f"{name} needs an extra that is not installed")
        kind = model_class(name)
        lines += [f"## {name}", "", " ".join((kind.__doc__ or "").split()), ""]
        lines += [f"Capabilities: {', '.join(sorted(kind.capabilities))}.", ""]
        rows = table(kind.Config())
        if rows:
            lines += ["| setting | default | kind | `xmtc tune` tries | meaning |", "|---|---|---|---|---|"]
            for r in rows:
                tried = "" if r.space is None else r.space
                lines.append(f"| `{r.name}` | `{json.dumps(r.default)}` | {r.kind} | {tried} | {r.sentence} |")
            lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    TARGET.write_text(page(), encoding="utf-8")
