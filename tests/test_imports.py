"""The layout of the package: which packages may import which, no cycles, one definition per class name."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from xmtc.models.registry import MODELS as MODEL_REGISTRY

SOURCE = Path(__file__).parents[1] / "src" / "xmtc"
TESTS = Path(__file__).parent
TIERS = [
    {"core"},
    {"data", "recipes"},
    {"artifact", "metrics"},
    {"text", "decisions"},
    {"labels", "onnx"},
    {"linear", "nn", "lexical"},
    {"models"},
    {"presets"},
    {"views"},
    {"workflows"},
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
    "dense_source",
    "embedding_vote",
    "ensemble_members",
    "label_selection",
    "linear_tree",
    "neighbour_vote",
    "neural",
    "persistence",
    "pretrained",
    "registry",
    "relabelling",
    "replay",
    "sklearn_api",
    "stacking",
    "update",
    "vocabulary",
}
"""Modules of `models` that systems build on. Systems never import each other."""
ENTRANCES = {
    "cli": {"cli", "core", "experiments", "recipes", "server", "views", "workflows"},
    "server": {"server", "core", "views", "workflows"},
}
"""Packages that a person or a program calls, and all that they may import: they enter through `workflows`."""


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
    assert len(TIERS) <= 12


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


@pytest.mark.parametrize("module", [name for name in INSIDE if package(name) in ENTRANCES])
def test_entrances_go_through_workflows(module: str) -> None:
    assert {package(name) for name in own(module)} <= ENTRANCES[package(module)]


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


@pytest.mark.parametrize("module", INSIDE)
def test_matplotlib_is_for_plots_only(module: str) -> None:
    """Where it is missing, one module says so; never pyplot, which keeps every figure and may open a window."""
    used = {name for name in imported(module) if name.split(".")[0] == "matplotlib"}
    assert not used or module == "xmtc.views.plot"
    assert "matplotlib.pyplot" not in used


def test_tests_share_helpers_through_support_only() -> None:
    """No test module imports another."""
    for path in TESTS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "tests":
                assert str(node.module).startswith("tests.support"), f"{path} imports {node.module}"


SCRIPTS = [path for folder in ("benchmarks", "tools") for path in sorted((TESTS.parent / folder).glob("*.py"))]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_import_what_exists(script: Path) -> None:
    """Benchmarks and tools are seldom run: what they import from the package, in functions too, is there."""
    for node in ast.walk(ast.parse(script.read_text())):
        if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "xmtc":
            continue
        if str(node.module).startswith(("xmtc.nn", "xmtc.models")):
            pytest.importorskip("torch")
        module = importlib.import_module(str(node.module))
        for alias in node.names:
            known = f"{node.module}.{alias.name}" in MODULES or hasattr(module, alias.name)
            assert known, f"{script.name}:{node.lineno} imports {alias.name} from {node.module}"


def test_import_is_light() -> None:
    """`import xmtc` loads neither NumPy nor Arrow nor numba: they come with the first name that needs them."""
    code = "import sys, xmtc; print([m for m in ('numpy', 'pyarrow', 'numba', 'scipy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


WORK = """
import sys
from xmtc import load, read
from xmtc.workflows.evaluate import evaluate_model
from xmtc.workflows.requests import TrainRequest
from xmtc.workflows.train import train
train(TrainRequest(train_file="train.jsonl", out="m", model="parabel"))
load("m").predict(["salt and pepper"])
evaluate_model(load("m"), read("train.jsonl"))
import xmtc.cli.main, xmtc.cli.data, xmtc.cli.describe, xmtc.cli.report, xmtc.cli.tune, xmtc.experiments.report
print([name for name in ("torch", "matplotlib") if name in sys.modules])
"""


@pytest.mark.long
def test_linear_models_and_the_command_line_need_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    """Loading them takes longer than the work."""
    lines = ['{"text": "salt and pepper", "labels": ["spice"]}', '{"text": "iron and steel", "labels": ["metal"]}']
    (tmp_path / "train.jsonl").write_text("\n".join(lines * 5) + "\n")
    done = subprocess.run([sys.executable, "-c", WORK], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    command = [sys.executable, "-X", "importtime", "-m", "xmtc", "--help"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert re.search(r"\| +typer$", told, flags=re.MULTILINE)
    assert not re.search(r"\| +(torch|matplotlib|jinja2)$", told, flags=re.MULTILINE)


def registered_classes() -> dict[str, str]:
    """Class name → module of every built-in model."""
    targets = [entry.target.split(":") for entry in MODEL_REGISTRY.builtin.values()]
    return {attribute: module for module, attribute in targets}


def test_public_names_resolve() -> None:
    """In an interpreter that has imported nothing else, each by itself."""
    import xmtc

    assert set(registered_classes()) <= set(dir(xmtc))
    assert set(xmtc.__all__) <= set(dir(xmtc))
    code = "import xmtc; print([name for name in dir(xmtc) if getattr(xmtc, name) is None], xmtc.metrics.ndcg.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[] ndcg"
    with pytest.raises(AttributeError):
        _ = xmtc.no_such_name
    with pytest.raises(AttributeError):
        _ = xmtc.NoSuchName


def test_type_checkers_see_the_registry() -> None:
    """What `xmtc/__init__.py` imports for type checkers is what the registry names, model by model."""
    imports: dict[str, str] = {}
    exported: set[str] = set()
    for node in ast.walk(ast.parse(MODULES["xmtc"].read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xmtc.models."):
            imports |= {alias.name: str(node.module) for alias in node.names}
            exported |= {alias.name for alias in node.names if alias.asname == alias.name}
    for name in ("Model", "MODELS", "model_class"):
        del imports[name]
    assert imports == registered_classes()
    import xmtc

    needs_extra = {entry.attribute for entry in MODEL_REGISTRY.builtin.values() if entry.extra}
    assert exported == needs_extra
    assert set(registered_classes()) - needs_extra <= set(xmtc.__all__)


@pytest.mark.long
def test_mypy_knows_the_models(tmp_path: Path) -> None:
    """A strict user of the package: the classes are classes, a wrong name is an error."""
    pytest.importorskip("mypy")
    lines = ["import xmtc", *(f"{name.lower()}: type[xmtc.Model] = xmtc.{name}" for name in registered_classes())]
    lines += ["from xmtc import Dxml, Leml, create, metrics", "made: xmtc.Model = create('dxml')", "reveal_type(Dxml)"]
    (tmp_path / "user.py").write_text("\n".join(lines) + "\n")
    command = [sys.executable, "-m", "mypy", str(tmp_path / "user.py")]  # with the project's settings and its cache
    done = subprocess.run(command, capture_output=True, text=True, cwd=SOURCE.parents[1])
    assert "dxml.Dxml" in done.stdout
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("name", ["Dxml", "TransformerModel"])
def test_models_whose_extra_is_missing(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """They are listed, and using one is a single line that says what to install."""
    import importlib.util

    import xmtc
    from xmtc.core.errors import MissingExtraError

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda each: None if each == "torch" else found(each))
    assert name in dir(xmtc)
    with pytest.raises(MissingExtraError, match=r"needs .*PyTorch. Install it with: pip install"):
        getattr(xmtc, name)
    with pytest.raises(MissingExtraError, match="Install it with"):
        xmtc.create("dxml")


def test_create_by_name() -> None:
    import xmtc
    from xmtc.core.errors import ConfigError

    model = xmtc.create("knn", neighbours=7)
    assert isinstance(model, xmtc.Knn)
    assert model.config.neighbours == 7
    with pytest.raises(ConfigError, match=r"no model 'knnn'. Did you mean 'knn'"):
        xmtc.create("knnn")
