"""A model, a format and metrics of another package, installed by pip and used from the command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.contributing import LINES, write_package

pytestmark = pytest.mark.long
SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has put the package of CONTRIBUTING.md, and one whose parts are broken."""
    folder = tmp_path_factory.mktemp("plugins")
    package = write_package(folder / "source")
    project = (package / "pyproject.toml").read_text()
    for line, more in (
        ('"xmtc_examples.rocchio:Rocchio"\n', 'broken = "xmtc_examples.nothing:X"\n'),
        ('"xmtc_examples.hit_rate:HIT_RATE"\n', 'plain = "xmtc_examples.plain:count"\n'),
        ('"xmtc_examples.hit_rate:HIT_RATE"\n', 'fails = "xmtc_examples.plain:fails"\n'),
        ('"xmtc_examples.hit_rate:HIT_RATE"\n', '"P@k" = "xmtc_examples.plain:count"\n'),
    ):
        project = project.replace(line, line + more)
    (package / "pyproject.toml").write_text(project)
    (package / "xmtc_examples" / "plain.py").write_text(
        "def count(predicted, truth, k): return k / 10\ndef fails(predicted, truth, k): raise KeyError('x')\n"
    )
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*command, "--target", str(folder / "site"), str(package)], check=True, capture_output=True)
    return folder / "site"


def xmtc(site: Path, folder: Path, *arguments: str, status: int = 0) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(SOURCE)])}
    command = [sys.executable, "-m", "xmtc.cli.main", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_from_the_command_line(site: Path, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(LINES) + "\n")
    (tmp_path / "new.txt").write_text("pepper\nsteel\n")
    listed = json.loads(xmtc(site, tmp_path, "models", "--json").stdout)
    described = {row["name"]: row["description"] for row in listed}
    assert "[xmtc-examples]" in described["rocchio"]
    assert "cannot be used" in described["broken"]
    xmtc(site, tmp_path, "train", "train.txt", "--model", "rocchio", "--out", "model", "--set", "text.min_df=1")
    answers = xmtc(site, tmp_path, "predict", "model", "new.txt", "--format", "text", "-k", "1").stdout.splitlines()
    assert [json.loads(line)["labels"][0]["key"] for line in answers] == ["spice", "metal"]
    done = xmtc(site, tmp_path, "evaluate", "model", "train.txt", "--json", "metrics.json", "--bootstrap", "20")
    found = json.loads((tmp_path / "metrics.json").read_text())
    assert "hit@1" in done.stdout
    assert (found["hit@1"], found["P@1"], found["plain@3"]) == (1.0, 1.0, 0.3)
    assert found["intervals"]["hit@1"] == [1.0, 1.0]
    assert "the metric 'P@k' of the package xmtc-examples is ignored" in done.stderr
    assert "the metric 'fails' of the package xmtc-examples failed and is omitted (KeyError: 'x')" in done.stderr
    assert all(line.startswith("xmtc: ") for line in done.stderr.splitlines() if "package" in line)
    xmtc(site, tmp_path, "data", "convert", "train.txt", "train.jsonl")
    xmtc(site, tmp_path, "data", "convert", "train.jsonl", "again.hashtags")
    assert (tmp_path / "again.hashtags").read_text() == (tmp_path / "train.txt").read_text()


def test_refusals(site: Path, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(LINES) + "\n")
    done = xmtc(site, tmp_path, "train", "train.txt", "--model", "broken", "--out", "m", status=2)
    assert "the model 'broken' of the package xmtc-examples cannot be used (ModuleNotFoundError" in done.stderr
    xmtc(site, tmp_path, "train", "train.txt", "--model", "rocchio", "--out", "m", "--set", "text.min_df=1")
    gone = xmtc(tmp_path / "nowhere", tmp_path, "predict", "m", "train.txt", "--format", "text", status=2)
    assert "no model 'rocchio'" in gone.stderr
