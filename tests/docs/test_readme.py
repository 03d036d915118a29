"""README.md is short, its lists are complete, its figures are those that were measured, and all links lead to files."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from xmtc import recipes
from xmtc.models.registry import MODELS

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MEASURED = (ROOT / "benchmarks" / "RESULTS.md").read_text(encoding="utf-8")
SUITES = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
PUBLISHED = (ROOT / "src" / "xmtc" / "experiments" / "published.toml").read_text(encoding="utf-8")
MARKDOWN = sorted(
    path
    for folder in (ROOT, ROOT / "docs", ROOT / "benchmarks", ROOT / ".github")
    for path in folder.rglob("*.md")
    if folder != ROOT or path.parent == ROOT
)


def table(first: str) -> list[list[str]]:
    """The cells of the table whose header begins with this cell."""
    _, found, rest = README.partition(f"| {first} |")
    assert found, f"README.md has no table that starts with '{first}'"
    rows = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_it_is_short() -> None:
    assert len(README.splitlines()) <= 150
    assert max(map(len, README.splitlines())) <= 130


def test_the_picture_is_small() -> None:
    [picture] = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", README)
    assert (ROOT / picture).stat().st_size <= 200_000


def test_every_model_is_listed() -> None:
    assert sorted(row[0].strip("`") for row in table("model")) == sorted(MODELS)


FIGURES = table("data set")


def test_the_table_compares_with_other_systems() -> None:
    systems = " ".join(row[1] for row in FIGURES)
    assert all(name in systems for name in ("PECOS", "napkinXC", "AttentionXML", "DXML", "parabel", "attention_xml"))
    assert {row[7] for row in FIGURES} == {"a", "b", "c", "–"}


@pytest.mark.parametrize("row", FIGURES, ids=lambda row: f"{row[1]} {row[2]}")
def test_figures_are_those_measured_or_published(row: list[str]) -> None:
    """P@1, P@3, P@5 stand together in a line of the sources, and the seconds in that line or where times are listed."""
    _, system, *precisions, train, predict, _ = row
    model = re.sub(r"[*`]", "", system).split(",")[0]
    lines = [line for line in MEASURED.splitlines() if "/".join(precisions) in line]
    pattern = r" \| ".join(r"\**" + re.escape(figure) + r"\**( ± [\d.]+)?\**" for figure in precisions)
    lines += [line for line in SUITES.splitlines() if re.search(rf"^\| [^|]*{model[:4]}[^|]*\| {pattern} \|", line)]
    assert lines, f"{system}: {precisions} is in neither RESULTS.md nor results.md"
    measured = [line for line in lines if re.search(rf"\| {train}( s)? \|", line)]
    if train == "–":
        assert predict == "–"
    elif measured:
        assert any(f"| {predict} |" in line for line in measured) or f"| {predict} s |" in MEASURED
    elif model.startswith("napkin"):
        assert f"train = {train}, test = {predict} " in PUBLISHED
    else:  # a suite, which lists milliseconds per document
        documents = {"attention_xml": 6_000, "dxml": 3_185}[model]
        times = re.findall(rf"^\| {model} \| {train} \| ([\d.]+) \|", SUITES, flags=re.MULTILINE)
        assert [round(float(time) * documents / 1000, 2) for time in times] == [float(predict)]


def test_named_recipes_are_shipped() -> None:
    for path in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        named = re.findall(r"`([a-z0-9-]+/(?:" + "|".join(MODELS) + ")[a-z-]*)`", path.read_text(encoding="utf-8"))
        assert set(named) <= set(recipes.shipped()), path.name
        assert path.name != "neural-models.md" or "amazon-3m/attention_xml" in named


@cache
def anchors(path: Path) -> set[str]:
    """What links to the headings of a page end in, as GitHub makes it."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(path: Path) -> None:
    for link, anchor in re.findall(r"\]\(([^)#\s]*)#?([^)\s]*)\)", path.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        target = (path.parent / link).resolve() if link else path
        assert target.exists(), f"{path.name} links to {link}, which does not exist"
        assert not anchor or anchor in anchors(target), f"{path.name} links to {link}#{anchor}, not a heading there"


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert set(re.findall(r"\]\(([\w-]+\.md)\)", index)) == pages
