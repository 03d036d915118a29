"""What all plots share: the hint where matplotlib is missing, files that are small, alike and free of ids."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import mistake
from xmtc.core.errors import ConfigError
from xmtc.views import theme
from xmtc.views.charts import line_chart
from xmtc.views.plot import check_plot_file

SERIES = {"a $x$ <b>": [(0.0, 1.0), (1.0, 3.0)], "名前 🍳": [(0.0, 2.0), (1.0, 1.0)]}
HINT = 'plots require matplotlib. Install it with: pip install "xmtc[plots]"'


def test_an_svg_has_no_ids_references_or_styles_that_could_clash_in_a_page() -> None:
    svg = line_chart("T", SERIES, xlabel="x", ylabel="y", errors={"a $x$ <b>": [0.5, 0.5]}).svg()
    assert not re.search(r" id=|href|url\(|<style|<use|<defs|<metadata|clip-path", svg)
    assert "a $x$ &lt;b&gt;" in svg
    assert "名前 🍳" in svg
    assert len(svg) < 6000
    assert svg == line_chart("T", SERIES, xlabel="x", ylabel="y", errors={"a $x$ <b>": [0.5, 0.5]}).svg()


def test_the_users_own_style_is_left_alone() -> None:
    import matplotlib

    expected = line_chart("T", SERIES, xlabel="x", ylabel="y").svg()
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": False}):
        assert line_chart("T", SERIES, xlabel="x", ylabel="y").svg() == expected
        assert matplotlib.rcParams["font.size"] == 30


def test_other_file_names_are_refused() -> None:
    for name in ("a.svg", "a.PNG", "a.pdf"):
        check_plot_file(Path(name))
    with pytest.raises(ConfigError, match=r"a\.jpg: unsupported plot format"):
        check_plot_file(Path("a.jpg"))


def test_without_matplotlib_there_is_a_hint_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import importlib.util; importlib.util.find_spec = lambda name: None\n"
        "from xmtc.cli.main import main; main()"
    )
    for command in (
        ["plot", "missing.jsonl", "--out", "a.svg"],
        ["data", "describe", "missing.jsonl", "--picture", "a.svg"],
        ["evaluate", "model", "missing.jsonl", "--reliability", "a.svg"],
        ["report", "missing", "--out", "a.html"],
    ):
        done = subprocess.run([sys.executable, "-c", code, *command], cwd=tmp_path, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (2, f"xmtc: {HINT}\n")
    monkeypatch.setattr(theme, "find_spec", lambda name: None)
    assert mistake("report", tmp_path, "--out", tmp_path / "r.html") == HINT
    (tmp_path / "t.jsonl").write_text('{"text": "x", "labels": ["a"]}\n')
    study = (
        "experiment",
        "tail",
        tmp_path / "t.jsonl",
        tmp_path / "t.jsonl",
        "--model",
        "knn",
        "--out",
        tmp_path / "s",
    )
    assert mistake(*study) == HINT
    assert not (tmp_path / "s").exists()
