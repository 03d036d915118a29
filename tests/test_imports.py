"""Imports point one way: each room may use the rooms before it, never those after."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "xmtc"
TIERS = [
    {"errors"},
    {"files", "jit", "mapping", "parallel", "progress", "runtime", "config", "registry", "recipes", "explanation"},
    {"dataset"},
    {"topk", "arrays"},
    {"links"},
    {"store"},
    {"workspace"},
    {"data", "text", "labels", "metrics", "decisions"},
    {"linear", "nn", "evaluation", "conversion", "pictures"},
    {"models"},
    {"bulk", "feedback", "labelspace", "measures", "restrict"},
    {"workflows"},
    {"updating"},
    {"experiments"},
    {"server"},
    {"cli"},
]
RANK = {room: rank for rank, tier in enumerate(TIERS) for room in tier}
WITHOUT_TORCH = ("data", "labels", "metrics", "decisions")
SIDEWAYS = {("decisions", "metrics")}  # rooms of one tier that may use each other


def modules() -> list[Path]:
    return sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imported(path: Path) -> set[str]:
    """Dotted names that a module imports when it is loaded or when its functions run; types alone do not count."""
    names: set[str] = set()
    tree = ast.parse(path.read_text())
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if node.module == "xmtc" else {node.module}
    return names


BASES = (
    "xmtc.models.attending",
    "xmtc.models.base",
    "xmtc.models.candidates",
    "xmtc.models.linear_tree",
    "xmtc.models.members",
    "xmtc.models.neural",
    "xmtc.models.pretrained",
    "xmtc.models.relabelling",
    "xmtc.models.replay",
    "xmtc.models.updates",
    "xmtc.models.voting",
)
"""What models may share; they never import each other."""


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    here = room(path)
    assert here in RANK, f"{here} has no place in the house: give it one"
    for name in imported(path):
        if not name.startswith("xmtc.") or name in ("xmtc.__version__", "xmtc.load", "xmtc.read", "xmtc.write"):
            continue
        there = name.split(".")[1]
        allowed = there == here or RANK[there] < RANK[here] or (here, there) in SIDEWAYS
        if here == there == "models":
            allowed = name in ("xmtc.models", *BASES) or path.name == "base.py"
        if RANK[there] == RANK[here] == RANK["errors"] + 1:
            allowed = there in ("errors", "files", "config") or there == here
        assert allowed, f"{path.name} in {here} imports {name}"


@pytest.mark.parametrize("path", [p for p in modules() if room(p) in WITHOUT_TORCH], ids=lambda p: p.stem)
def test_data_labels_and_metrics_need_no_torch(path: Path) -> None:
    assert not any(name.split(".")[0] == "torch" for name in imported(path))


def test_import_is_light() -> None:
    """`import xmtc` loads neither NumPy nor Arrow nor numba: they come with the first name that needs them."""
    code = "import sys, xmtc; print([m for m in ('numpy', 'pyarrow', 'numba', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


WORK = """
import sys
from xmtc import load, read, workflows
workflows.train(workflows.plan("m", name="parabel"), "train.jsonl")
load("m").predict(["salt and pepper"])
workflows.evaluate(load("m"), read("train.jsonl"))
import xmtc.cli.main
print("torch" in sys.modules)
"""


def test_linear_models_and_the_command_line_need_no_torch(tmp_path: Path) -> None:
    """Loading it takes longer than they do."""
    lines = ['{"text": "salt and pepper", "labels": ["spice"]}', '{"text": "iron and steel", "labels": ["metal"]}']
    (tmp_path / "train.jsonl").write_text("\n".join(lines * 5) + "\n")
    done = subprocess.run([sys.executable, "-c", WORK], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    command = [sys.executable, "-X", "importtime", "-m", "xmtc.cli.main", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert re.search(r"\| +typer$", told, flags=re.MULTILINE)
    assert not re.search(r"\| +torch$", told, flags=re.MULTILINE)


def test_public_names_resolve() -> None:
    import xmtc

    for name in xmtc.__all__:
        assert getattr(xmtc, name) is not None
    with pytest.raises(AttributeError):
        _ = xmtc.no_such_name
