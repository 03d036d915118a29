"""The layout of the package: which packages may import which, no cycles, one definition per class name."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "xmtc"
TESTS = Path(__file__).parent
TIERS = [
    {"core"},
    {"data", "recipes"},
    {"artifact", "metrics"},
    {"text", "decisions"},
    {"labels"},
    {"linear", "nn"},
    {"models"},
    {"workflows", "views"},
    {"experiments", "server"},
    {"cli"},
]
"""Each package may import those of earlier tiers, and its own modules."""
RANK = {package: rank for rank, tier in enumerate(TIERS) for package in tier}
WITHOUT_TORCH = set(RANK) - {"nn", "models", "cli"}  # `xmtc doctor` looks for it
TOP_LEVEL = {"__init__.py", "__main__.py", "py.typed"}
SHARED_BY_MODELS = {
    "attention_explain",
    "base",
    "candidate_tree",
    "context",
    "ensemble_members",
    "label_selection",
    "linear_tree",
    "neighbour_vote",
    "neural",
    "pretrained",
    "registry",
    "relabelling",
    "replay",
    "update",
}
"""Modules of `models` that systems build on. Systems never import each other."""


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        name = ".".join(("xmtc", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        found[name] = path
    return found


MODULES = modules()


@cache
def imported(module: str) -> frozenset[str]:
    """Dotted names that a module imports anywhere: at the top, inside functions, for type checkers alone."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in MODULES else node.module for name in inner}
    return frozenset(names)


def package(module: str) -> str:
    return module.split(".")[1]


def own(module: str) -> set[str]:
    """The modules of this project that a module imports; the public names of `xmtc` itself do not count."""
    return {name for name in imported(module) if name in MODULES and name not in ("xmtc", module)}


INSIDE = [name for name in MODULES if name not in ("xmtc", "xmtc.__main__")]


def test_only_packages_at_the_top() -> None:
    loose = {path.name for path in SOURCE.iterdir() if path.is_file()}
    assert loose <= TOP_LEVEL
    packages = {path.name for path in SOURCE.iterdir() if any(path.glob("*.py"))}
    assert packages == set(RANK)
    assert len(TIERS) <= 10


@pytest.mark.parametrize("module", INSIDE)
def test_imports_point_one_way(module: str) -> None:
    here = package(module)
    for name in own(module):
        there = package(name)
        assert there == here or RANK[there] < RANK[here], f"{module} imports {name}"
        if here == there == "models":
            assert name.rsplit(".", 1)[1] in SHARED_BY_MODELS, (
                f"{module} imports {name}: models never import each other"
            )


SERVER_IMPORTS = {"core", "workflows", "views", "server"}
"""Packages that the server may import: it enters through the workflows, and nothing below them."""


@pytest.mark.parametrize("module", [name for name in INSIDE if package(name) == "server"])
def test_the_server_calls_workflows_and_nothing_below(module: str) -> None:
    assert {package(name) for name in own(module)} <= SERVER_IMPORTS


def test_no_import_cycles() -> None:
    """Typing imports included."""
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " → ".join((*path[path.index(module) :], module))
        if module not in done:
            for name in sorted(own(module)):
                visit(name, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


def test_class_names_are_unique() -> None:
    places = defaultdict(list)
    for module, path in MODULES.items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(module)
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


@pytest.mark.parametrize("module", [name for name in INSIDE if package(name) in WITHOUT_TORCH])
def test_torch_is_for_networks_only(module: str) -> None:
    assert not any(name.split(".")[0] == "torch" for name in imported(module))


def test_tests_share_helpers_through_support_only() -> None:
    """No test module imports another."""
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests":
                assert str(node.module).startswith("tests.support"), f"{path} imports {node.module}"


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
