"""`xmtc report`: a page and a Markdown file, or one line on what is wrong with a folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.bench_folders import cell, put
from tests.support.command_line import call, mistake


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "bench", [cell("cooking/parabel/0"), cell("cooking/knn/0")])


def test_a_page_and_its_tables(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    done = call("report", folder, "--out", out)
    assert done.out.startswith(f"{out}: report on 2 runs, 0.")
    assert done.err == f"{tmp_path / 'report.md'}: its tables as Markdown\n"
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "### cooking" in (tmp_path / "report.md").read_text(encoding="utf-8")
    before = out.read_bytes()
    result = json.loads(call("report", folder, "--out", out, "--json").out)
    assert result == {"page": str(out), "markdown": str(tmp_path / "report.md"), "runs": 2, "bytes": len(before)}
    assert out.read_bytes() == before
    call("report", folder, folder, "--out", tmp_path / "other.htm", "--markdown", tmp_path / "results.md")
    assert (tmp_path / "other.htm").read_bytes() == before
    assert (tmp_path / "results.md").read_bytes() == (tmp_path / "report.md").read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "bench",
        "other.htm",
        "report.html",
        "report.md",
        "results.md",
    ]


def test_several_folders(folder: Path, tmp_path: Path) -> None:
    other = put(tmp_path / "more", [cell("wiki/parabel/0")], suite="large")
    call("report", folder, other, "--out", tmp_path / "r.html")
    text = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert (
        text.index("## Suite small") < text.index("### cooking") < text.index("## Suite large") < text.index("### wiki")
    )


def test_what_is_no_folder_of_a_suite(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "r.html"
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "nowhere"):
        said = mistake("report", folder, place, "--out", out)
        reason = "cannot be read (No such file or directory). Pass the output folder of xmtc bench."
        assert said == f"{place / 'bench.json'}: {reason}"
    put(tmp_path / "begun", [])
    said = mistake("report", tmp_path / "begun", "--out", out)
    assert said == f"{tmp_path / 'begun'}: contains no complete run. Run xmtc bench first, or leave it out."
    assert not out.exists()


@pytest.mark.parametrize("content", ['{"format": 1, "cell": "cook', "[]", '{"format": 1}', '{"format": 7}'])
def test_a_damaged_cell(folder: Path, tmp_path: Path, content: str) -> None:
    damaged = folder / "cells" / "cooking" / "knn" / "0" / "cell.json"
    damaged.write_text(content)
    assert mistake("report", folder, "--out", tmp_path / "r.html").startswith(f"{damaged}: ")
    assert not (tmp_path / "r.html").exists()


def test_places_that_cannot_be_written_to(folder: Path, tmp_path: Path) -> None:
    assert "is an HTML page" in mistake("report", folder, "--out", tmp_path / "r.pdf")
    assert "does not exist" in mistake("report", folder, "--out", tmp_path / "no" / "r.html")
    assert "does not exist" in mistake(
        "report", folder, "--out", tmp_path / "r.html", "--markdown", tmp_path / "no" / "r.md"
    )
    assert "is used for two outputs" in mistake(
        "report", folder, "--out", tmp_path / "r.html", "--markdown", tmp_path / "r.html"
    )
    assert "Missing option '--out'" in mistake("report", folder)
