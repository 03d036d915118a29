"""docs/results.md says what the results under benchmarks/results say."""

from __future__ import annotations

import re
from pathlib import Path

from xmtc.experiments.records import read_results
from xmtc.experiments.report import collected
from xmtc.experiments.report_markdown import markdown
from xmtc.experiments.suites import read_suite, shipped

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "benchmarks" / "results").iterdir(), key=lambda path: path.stem)


def test_page_is_up_to_date() -> None:
    written = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    assert written == markdown(collected(FILES)), "run: make report"


def test_results_are_of_the_shipped_suites() -> None:
    """Whole ones: what a suite says today is what its results were measured with."""
    runs = {file.stem: read_results(file) for file in FILES}
    assert {"quick", "classic", "eurlex57k", "tibkat-gnd"} <= set(runs)
    for name in set(runs) & set(shipped()):
        wanted = {str(cell) for cell in read_suite(name).cells()}
        assert {str(cell.name) for cell in runs[name].cells} == wanted


def test_results_hold_no_paths_of_a_machine() -> None:
    for path in FILES:
        assert not re.search(r"(^|[\s\"'=:(])/[a-z]", path.read_text(encoding="utf-8")), path
