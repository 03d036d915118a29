"""Files that describe the project to others: workflows, templates, citation, changelog, and one version for all."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import xmtc

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]
KINDS = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"]


def parsed(path: Path) -> dict[str, Any]:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job["steps"]]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_targets_of_the_makefile(path: Path) -> None:
    workflow = parsed(path)
    assert set(workflow) >= {"name", True, "jobs", "permissions"}  # YAML reads the key 'on' as true
    targets = set(re.findall(r"^([\w-]+):(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE))
    called = {name for step in steps(workflow) for name in re.findall(r"\bmake ([a-z][\w-]*)", step.get("run", ""))}
    assert called
    assert called <= targets
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] > 0
        assert set([needs] if isinstance(needs := job.get("needs", []), str) else needs) <= set(workflow["jobs"])


def test_the_tests_run_on_every_system_and_version() -> None:
    job = parsed(ROOT / ".github" / "workflows" / "test.yml")["jobs"]["test"]
    assert any(step.get("run", "").startswith("make test ") for step in job["steps"])
    systems = " ".join(job["strategy"]["matrix"]["os"])
    assert re.findall(r"(ubuntu|macos|windows)\S*?(-arm)?(?: |$)", systems) == [
        ("ubuntu", ""),
        ("ubuntu", "-arm"),
        ("macos", ""),
        ("windows", ""),
    ]
    assert job["strategy"]["matrix"]["python"] == PYTHONS
    first, last = PYTHONS[0], PYTHONS[-1]
    assert PROJECT["requires-python"] == f">={first},<3.{int(last.partition('.')[2]) + 1}"


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_issue_forms(path: Path) -> None:
    form = parsed(path)
    assert all(form[key] for key in ("name", "description", "body"))
    fields = {field["id"]: field for field in form["body"]}
    assert len(fields) == len(form["body"])
    assert all(field["attributes"]["label"] for field in fields.values())
    if path.stem == "bug_report":
        assert "xmtc doctor" in fields["doctor"]["attributes"]["label"]
        assert fields["doctor"]["validations"]["required"] is True


def test_the_citation() -> None:
    citation = parsed(ROOT / "CITATION.cff")
    assert citation["cff-version"] == "1.2.0"
    assert all(citation[key] for key in ("message", "title", "authors"))
    assert citation["authors"] == PROJECT["authors"]
    assert citation["license"] == PROJECT["license"]
    assert str(citation["version"]) == xmtc.__version__


def test_the_changelog_is_in_keep_a_changelog_form() -> None:
    headings = re.findall(r"^## (.*)$", CHANGELOG, flags=re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    released = [re.fullmatch(r"\[(\d+\.\d+\.\d+)\] - (\d{4}-\d{2}-\d{2})", heading) for heading in headings[1:]]
    assert all(released), headings
    assert released[0]
    assert released[0][1] == xmtc.__version__
    dates = [found[2] for found in released if found]
    assert dates == sorted(dates, reverse=True)
    for section in re.split(r"^## .*$", CHANGELOG, flags=re.MULTILINE)[1:]:
        kinds = re.findall(r"^### (.*)$", section, flags=re.MULTILINE)
        assert kinds == [kind for kind in KINDS if kind in kinds]
        for entries in re.split(r"^### .*$", section, flags=re.MULTILINE)[1:]:
            assert entries.strip().startswith("- ")


def test_the_version_is_written_in_one_place() -> None:
    """Apart from the citation and the changelog, which other tests compare with it."""
    assert "version" in PROJECT["dynamic"]
    places = ["pyproject.toml", "Dockerfile", "Makefile", "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"]
    for path in [*(ROOT / name for name in places), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]:
        found = re.findall(rf"(?<![\d.]){re.escape(xmtc.__version__)}(?![\d.])", path.read_text(encoding="utf-8"))
        assert len(found) == (path == ROOT / "src" / "xmtc" / "__init__.py"), path
