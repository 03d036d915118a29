"""The distribution: `make dist` builds and checks it, and the wheel works in a clean environment."""

from __future__ import annotations

import email
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import xmtc

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
OUTSIDE = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH", "PYTHON")}
SCRIPTS = "Scripts" if os.name == "nt" else "bin"


def run(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [str(part) for part in command],
        **{"env": OUTSIDE, **options},
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=900,
        check=False,
    )  # type: ignore[call-overload]
    assert done.returncode == 0, done.stdout + done.stderr
    return done  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """A folder that is removed at the end: an environment is large."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture(scope="module")
def built(place: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution that `make dist` builds from a copy of this repository."""
    copy = place / "source"
    unwanted = (".git", ".venv", "build", "dist", "xmtc-demo", "carry", "*.egg-info", "__pycache__", ".*_cache")
    shutil.copytree(ROOT, copy, symlinks=True, ignore=shutil.ignore_patterns(*unwanted))
    python = Path(sys.executable).as_posix()
    done = run("make", "dist", f"PYTHON={python}", cwd=copy)
    assert done.stdout.count("PASSED") == 2
    [wheel], [source] = (copy / "dist").glob("*.whl"), (copy / "dist").glob("*.tar.gz")
    assert (wheel.name, source.name) == (f"xmtc-{xmtc.__version__}-py3-none-any.whl", f"xmtc-{xmtc.__version__}.tar.gz")
    return wheel, source


def test_the_wheel_has_the_package_and_nothing_else(built: tuple[Path, Path]) -> None:
    assert built[0].stat().st_size <= 2_000_000
    package = ROOT / "src"
    expected = {path.relative_to(package).as_posix() for path in (package / "xmtc").rglob("*") if path.is_file()}
    information = f"xmtc-{xmtc.__version__}.dist-info/"
    with zipfile.ZipFile(built[0]) as archive:
        names = {name for name in archive.namelist() if not name.startswith(information)}
        metadata = email.message_from_bytes(archive.read(information + "METADATA"))
    assert names == {name for name in expected if "__pycache__" not in name}
    assert {Path(name).suffix for name in names} >= {".py", ".toml", ".html", ".js", ".css", ".typed"}
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["License-File"] == "LICENSE"
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_source_distribution_has_what_the_tests_need(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    top = ("pyproject.toml", "Makefile", "constraints.txt", "LICENSE", "README.md", "CITATION.cff", "Dockerfile")
    assert names >= set(top)
    for folder in ("src/xmtc", "tests", "docs", "tools", ".github"):
        expected = {path.relative_to(ROOT).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}
        assert {name for name in expected - names if "__pycache__" not in name and ".egg-info" not in name} == set()
    assert not [name for name in names if name.endswith((".pyc", ".nbi", ".nbc"))]


@pytest.fixture(scope="module")
def environment(built: tuple[Path, Path], place: Path) -> Path:
    """The programs of a new virtual environment with the wheel and its dependencies."""
    folder = place / "environment"
    run(sys.executable, "-m", "venv", folder)
    pip = (folder / SCRIPTS / "python", "-m", "pip", "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "-c", ROOT / "constraints.txt", built[0])
    return folder / SCRIPTS


def test_the_demo_runs_from_any_folder(environment: Path, place: Path) -> None:
    """Nothing can be written to the package, as if an administrator had installed it: kernels are cached elsewhere."""
    home = place / "home"
    home.mkdir()
    [package] = environment.parent.glob("**/site-packages/xmtc")
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir() and path.name != "__pycache__")]:
        shutil.rmtree(folder / "__pycache__", ignore_errors=True)
        (folder / "__pycache__").touch()  # a file instead of a folder, which stops the administrator, too
    variables = {name: value for name, value in OUTSIDE.items() if not name.startswith(("XDG_", "XMTC_", "NUMBA_"))}
    options = {"cwd": home, "env": {**variables, "HOME": str(home), "LOCALAPPDATA": str(home)}}
    done = run(environment / "xmtc", "demo", "--out", "first-model", **options)
    assert "Traceback" not in done.stderr
    assert (home / "first-model" / "model" / "model.json").is_file()
    ours, baseline = next(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("P@1 "))
    assert float(ours) > float(baseline) + 30
    assert list(home.rglob("*.nbi"))
    assert not list(package.rglob("*.nbi"))
    where = "import xmtc; print(xmtc.__file__)"
    found = run(environment / "python", "-c", where, **options).stdout
    assert Path(found.strip()).is_relative_to(environment.parent)
    version = run(environment / "xmtc", "--version", **options).stdout
    assert version.strip() == f"xmtc {xmtc.__version__}"


def test_all_extras_resolve_together(environment: Path, built: tuple[Path, Path]) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    [everything] = extras["all"]
    assert set(everything.removeprefix("xmtc[").removesuffix("]").split(",")) == set(extras) - {"all", "dev"}
    pip = (environment / "python", "-m", "pip", "--disable-pip-version-check", "install", "--dry-run")
    done = run(*pip, "-c", ROOT / "constraints.txt", f"{built[0]}[all]")
    assert "Would install" in done.stdout
    assert "does not provide the extra" not in done.stdout + done.stderr
