"""The shipped `quick` suite from end to end, on real questions too where they are at hand, and its report."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.support.command_line import call
from tests.support.models import SHARED, Xmtc
from xmtc.experiments.records import read_results
from xmtc.experiments.suites import read_suite
from xmtc.experiments.tables import mean_of, runs_of

pytestmark = pytest.mark.long

NEURAL = importlib.util.find_spec("torch") is not None


def test_quick(tmp_path: Path, xmtc: Xmtc) -> None:
    data = SHARED if (SHARED / "cooking").is_dir() else tmp_path / "nothing"
    done = xmtc("bench", "quick", "--data", data, "--out", "out", timeout=900)
    assert done.returncode == 0, done.stderr
    found = read_results(tmp_path / "out")
    there = {"planted", "cooking"} if data == SHARED else {"planted"}
    assert set(found.datasets) == there
    assert ("skipped: cooking" in done.stderr) == (data != SHARED)
    suite = read_suite("quick")
    expected = {cell for cell in suite.cells() if cell.dataset in there and (NEURAL or cell.model != "attention_xml")}
    assert {cell.name for cell in found.cells} == expected

    for dataset in there:
        runs = runs_of(cell for cell in found.cells if cell.name.dataset == dataset)
        worths = {each.model: mean_of([cell.metrics["nDCG@5"] for cell in each.cells]) for each in runs}
        least = worths.pop("popularity")
        assert min(worths.values()) > 1.5 * least, worths
        for each in runs:
            assert len(each.cells) == len(suite.models[each.model].spec.seeds or suite.seeds)
        assert worths["consensus"] > max(worths["parabel"], worths["knn"]), "together they know more"
    for cell in found.cells:
        assert cell.metrics["P@1"] > 0
        assert cell.memory["host"]
        assert cell.model_bytes
        if suite.models[cell.name.model].spec.calibrate:
            assert cell.threshold is not None

    again = xmtc("bench", "quick", "--data", data, "--out", "out")
    assert f"out: 0 runs completed, {len(expected)} already complete, 0 failed" in again.stdout

    call("report", tmp_path / "out", "--out", tmp_path / "report.html")
    page, tables = (tmp_path / "report.html").read_text(), (tmp_path / "report.md").read_text()
    for model in {cell.model for cell in expected}:
        assert f"| {model} |" in tables
        assert model in page
    for dataset in there:
        assert f"### {dataset}" in tables
