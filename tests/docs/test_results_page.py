"""docs/results.md says what the results under benchmarks/results say."""

from __future__ import annotations

import re
from pathlib import Path

from xmtc.experiments.records import read_results
from xmtc.experiments.report import collected
from xmtc.experiments.report_markdown import markdown
from xmtc.experiments.suites import read_suite, shipped

ROOT = Path(__file__).parents[2]
FOLDERS = sorted((ROOT / "benchmarks" / "results").iterdir())


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == markdown(collected(FOLDERS)), "run: make report"


def test_results_are_of_the_shipped_suites() -> None:
    """Whole ones: what a suite says today is what its results were measured with."""
    runs = {folder.name: read_results(folder) for folder in FOLDERS}
    assert {"quick", "classic", "eurlex57k", "tibkat-gnd"} <= set(runs)
    for name in set(runs) & set(shipped()):
        wanted = {str(cell) for cell in read_suite(name).cells()}
        assert {str(cell.name) for cell in runs[name].cells} == wanted


def test_results_hold_no_paths_of_a_machine() -> None:
    for path in (ROOT / "benchmarks" / "results").rglob("*.json*"):
        assert not re.search(r"(^|[\s\"'=:(])/[a-z]", path.read_text(encoding="utf-8")), path
