"""The commands of README.md and of the pages in docs/ run in order, and print what the pages quote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tools.refresh_readme import Done, Shell, blocks, quoted_output, run_page, shell, shortened

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
RUN = [path for path in PAGES if any(block.language == "sh" for block in blocks(path.read_text(encoding="utf-8")))]
TIME = re.compile(r"\b\d+(\.\d+)? (ms|s|min|MB|GB)\b")
NUMBER = re.compile(r"\d+\.\d+")


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Done]:
    """The folder that `xmtc demo` fills, and what it printed: all pages share it."""
    folder = tmp_path_factory.mktemp("demo")
    with shell(folder) as here:
        done = here.run("xmtc demo")
    assert done.status == 0, done.err
    return folder, done


@pytest.fixture
def here(demo: tuple[Path, Done], tmp_path: Path) -> Iterator[Shell]:
    """A shell in a folder with the files of the demo."""
    folder, done = demo
    shutil.copytree(folder, tmp_path / "page")
    with shell(tmp_path / "page", {"xmtc demo": done}) as opened:
        yield opened


def assert_same(printed: str, quoted: str) -> None:
    """The same words and labels; times may differ, scores by 0.02 and percentages by one point."""
    for ours, theirs in zip(printed.splitlines(), quoted.splitlines(), strict=True):
        ours, theirs = (TIME.sub(r"… \2", line) for line in (ours, theirs))
        assert NUMBER.sub("#", ours).split() == NUMBER.sub("#", theirs).split()
        for first, second in zip(NUMBER.findall(ours), NUMBER.findall(theirs), strict=True):
            allowed = 0.02 if len(first.partition(".")[2]) > 2 else 1.0
            assert float(first) == pytest.approx(float(second), abs=allowed), (ours, theirs)


@pytest.mark.long
@pytest.mark.parametrize("path", RUN, ids=name)
def test_commands_run_and_print_what_is_quoted(path: Path, here: Shell) -> None:
    pytest.importorskip("pty", reason="runs commands on a pseudo-terminal")
    page = path.read_text(encoding="utf-8")
    printed = {}
    for done in run_page(page, here):
        assert done.status == 0, f"{done.command}\n{done.err}"
        assert "Traceback" not in done.err
        assert " is now " not in done.err, f"{done.command} uses a former name: {done.err}"
        printed[done.command] = done.out
    for command, block in quoted_output(page):
        assert_same(shortened(printed[command], block.text), block.text)


@pytest.mark.long
@pytest.mark.parametrize("page", ["README.md", "docs/python.md", "docs/formats.md"])
def test_python_runs(page: str, here: Shell) -> None:
    codes = [block.text for block in blocks((ROOT / page).read_text(encoding="utf-8")) if block.language == "python"]
    assert codes
    for code in codes:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=here.folder,
            env=here.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


def test_all_python_is_run() -> None:
    pages = {
        name(path)
        for path in PAGES
        if any(block.language == "python" for block in blocks(path.read_text(encoding="utf-8")))
    }
    assert pages == {"README.md", "docs/python.md", "docs/formats.md", "docs/datasets.md"}


def test_python_of_the_data_sets_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first example splits a file; the second downloads, so that only its calls are checked."""
    splits, downloads = [
        block.text
        for block in blocks((ROOT / "docs" / "datasets.md").read_text(encoding="utf-8"))
        if block.language == "python"
    ]
    monkeypatch.chdir(tmp_path)
    rows = [{"text": f"note {row}", "labels": ["x"], "patient": row % 10} for row in range(50)]
    Path("notes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(compile(splits, "datasets.md", "exec"), names)
    assert (len(names["train"]), len(names["held_out"])) == (40, 10)
    with mock.patch("xmtc.data.downloads.fetch", autospec=True) as fetch:
        exec(compile(downloads, "datasets.md", "exec"), {})
    fetch.assert_called_once_with("cooking", "data")


def test_quoted_output_is_found() -> None:
    """README quotes the demo and a prediction."""
    quoted = quoted_output((ROOT / "README.md").read_text(encoding="utf-8"))
    assert [command.split()[1] for command, _ in quoted] == ["demo", "predict"]


def test_shortened_output_keeps_first_and_last_lines() -> None:
    output = "".join(f"line {number}\n" for number in range(9))
    assert shortened(output, "a\nb\n…\nc\n") == "line 0\nline 1\n…\nline 8\n"
    assert shortened(output, "a\n…\n") == "line 0\n…\n"
    assert shortened(output, "…\nc\n") == "…\nline 8\n"
    assert shortened("one\ntwo\n", "a\nb\n") == "one\ntwo\n"


def test_comparison_allows_for_times_and_rounding_alone() -> None:
    quoted = "Trained in 11 s.\n  0.9301  stain removal\n  P@1  97.10"
    assert_same("Trained in 2.0 s.\n  0.9201  stain removal\n  P@1  96.50", quoted)
    for other in (quoted.replace("stain", "stains"), quoted.replace("0.93", "0.90"), quoted.replace("97.1", "98.2")):
        with pytest.raises(AssertionError):
            assert_same(other, quoted)
