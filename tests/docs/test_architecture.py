"""ARCHITECTURE.md and the pages in docs/ name files and settings that exist, and leave out no module that they list."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "xmtc"
PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PAGES = sorted([ROOT / "CONTRIBUTING.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md")])


def test_named_modules_exist() -> None:
    named = set(re.findall(r"\b\w+(?:/\w+)+\.(?:py|toml)\b", PAGE))
    assert len(named) > 50
    assert {name for name in named if not (SOURCE / name).exists() and not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("package", ["experiments", "nn", "server"])
def test_every_module_of_a_listed_package_is_named(package: str) -> None:
    listed = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", PAGE, flags=re.MULTILINE | re.DOTALL))
    modules = {path.name for path in (SOURCE / package).rglob("*.py")} - {"__init__.py"}
    assert {name for name in modules if not re.search(rf"\b{re.escape(name)}", listed)} == set()


def test_every_package_has_its_line() -> None:
    tree = PAGE[PAGE.index("src/xmtc/\n") :].partition("\n```")[0]
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert set(re.findall(r"^  (\w+)/ ", tree, flags=re.MULTILINE)) == packages


def test_tiers_are_those_of_the_import_test() -> None:
    written = re.findall(r"^`core` ← .*?$(?:\n`.*$)?", PAGE, flags=re.MULTILINE)[0]
    stated = [set(tier.split()) for tier in re.findall(r"`([\w ]+)`", written)]
    tested = (ROOT / "tests" / "test_imports.py").read_text().partition("TIERS = [")[2].partition("\n]")[0]
    assert stated == [set(re.findall(r"\w+", line)) for line in tested.strip().splitlines()]


def test_renamed_settings_are_listed() -> None:
    renamed = set()
    for path in SOURCE.rglob("*.py"):
        renamed |= set(re.findall(r'^    (\w+): Annotated\[.*Alias\("(\w+)"\)', path.read_text(), flags=re.MULTILINE))
    assert renamed
    for name, former in renamed:
        assert f"`{name}`" in PAGE
        assert re.search(rf"`(?:[\w.]+\.)?{former}`", PAGE)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files(page: Path) -> None:
    for link in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert "://" in link or (page.parent / link).exists(), f"{page.name} links to {link}, which is not there"
