"""The README holds: its commands run, its code runs, its tables are complete and its links lead somewhere."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from xmtc import recipes
from xmtc.cli.main import app
from xmtc.models.registry import MODELS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced blocks of one language, in order."""
    return re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)


def first_cells(title: str) -> list[str]:
    """What stands in back quotes at the start of each row of the table under this header cell."""
    _, found, rest = README.partition(f"| {title} |")
    assert found, f"README.md has no table that starts with '{title}'"
    rows = rest.split("\n\n")[0].splitlines()[2:]
    return [row.split("`")[1] for row in rows]


def plan() -> list[str]:
    """The lines of the printed plan, but for how long each takes."""
    [block] = re.findall(r"^(plan for cpu.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    return [line.rpartition(", ")[0] for line in block.splitlines()]


def run(command: list[str], place: Path) -> subprocess.CompletedProcess[str]:
    scripts = str(Path(sys.executable).parent)
    environment = {**os.environ, "PATH": os.pathsep.join([scripts, os.environ["PATH"]]), "XMTC_CACHE": "off"}
    return subprocess.run(command, cwd=place, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.long
def test_every_command_runs(tmp_path: Path) -> None:
    (tmp_path / "suite.toml").write_text(blocks("toml")[0], encoding="utf-8")
    commands = [line for block in blocks("sh") for line in block.splitlines() if line and not line.startswith("#")]
    assert len(commands) >= 10
    for command in commands:
        done = run(["bash", "-euo", "pipefail", "-c", command], tmp_path)
        assert done.returncode == 0, f"{command}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        if "head.tree" in command and "plan for cpu" in done.stderr:
            for line in plan():
                assert line in done.stderr
    assert (tmp_path / "scores.json").is_file()
    assert (tmp_path / "answers.jsonl").read_text().count("\n") == 1000


def test_the_code_prints_label_names(tmp_path: Path) -> None:
    codes = blocks("python")
    assert codes
    for code in codes:
        done = run([sys.executable, "-c", code], tmp_path)
        assert done.returncode == 0, done.stderr
        for name in ("cheese", "cast-iron"):
            assert name in done.stdout


def test_every_command_is_in_the_table() -> None:
    registered = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert {cell.split()[1] for cell in first_cells("command")} == registered


def test_every_model_is_in_the_table() -> None:
    rows = [row for part in README.split("| model |")[1:] for row in part.split("\n\n")[0].splitlines()[2:]]
    assert sorted(row.split("`")[1] for row in rows) == sorted(MODELS)


def test_named_recipes_are_shipped() -> None:
    named = re.findall(r"`([a-z0-9-]+/[a-z_]+)`", README)
    assert "amazon-3m/attention_xml" in named
    assert set(named) <= set(recipes.shipped())


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#\s]+)", README))))
def test_links_lead_to_files(link: str) -> None:
    if "://" in link:
        pytest.skip("not in the repository")
    assert (ROOT / link).exists(), f"README.md links to {link}, which is not there"
