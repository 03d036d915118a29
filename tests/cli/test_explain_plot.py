"""The shaded text of `explain` in a terminal and as a page, and the curves of `plot`."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import call, mistake
from xmtc.views.training_curves import training_plot
from xmtc.views.training_log import read_curves

pty = pytest.importorskip("pty", reason="needs a terminal of its own")
SVG = "{http://www.w3.org/2000/svg}"


class TestExplain:
    def in_terminal(self, *arguments: object, **environment: str) -> str:
        """What `xmtc …` says when its standard output is a terminal."""
        ours, theirs = pty.openpty()
        clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
        with subprocess.Popen(
            [sys.executable, "-m", "xmtc", *map(str, arguments)],
            stdout=theirs,
            stderr=subprocess.PIPE,
            env={**clean, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
        ) as process:
            os.close(theirs)
            said = b""
            while True:
                try:
                    block = os.read(ours, 1 << 16)
                except OSError:  # the other end is closed
                    break
                if not block:
                    break
                said += block
        os.close(ours)
        assert process.returncode == 0
        return said.decode().replace("\r\n", "\n")

    def test_a_terminal_gets_shades_and_a_pipe_or_no_color_the_plain_list(
        self, ova: Path, label_text: tuple[str, str], corpus: Any
    ) -> None:
        name, text = label_text
        asked = ("explain", ova, "--text", text, "--label", name)
        plain = call(*asked).out
        assert "\x1b" not in plain
        shown = self.in_terminal(*asked)
        shaded = re.findall(r"\x1b\[38;5;16;48;5;\d+m(.*?)\x1b\[0m", shown)
        assert set(corpus.label_words(1)) <= set(shaded)
        assert text in re.sub(r"\x1b\[[0-9;]*m", "", shown)
        assert self.in_terminal(*asked, NO_COLOR="1") == plain
        assert self.in_terminal(*asked, TERM="dumb") == plain

    def test_html_comes_beside_what_is_said(self, ova: Path, label_text: tuple[str, str], tmp_path: Path) -> None:
        name, text = label_text
        asked = ("explain", ova, "--text", f"{text} <b>&", "--label", name)
        file = tmp_path / "why.html"
        file.write_text("an older page")
        done = call(*asked, "--html", file)
        assert done.out == call(*asked).out
        assert done.err == f"{file}: explanation\n"
        written = file.read_text(encoding="utf-8")
        assert f"<title>{name}: why this label</title>" in written
        assert "&lt;b&gt;&amp;" in written
        assert "an older page" not in written
        assert json.loads(call(*asked, "--json", "--html", file).out)["label"] == name
        assert [path.name for path in tmp_path.iterdir()] == ["why.html"]

    def test_html_of_neighbours(self, models: Path, label_text: tuple[str, str], tmp_path: Path) -> None:
        name, text = label_text
        call("explain", models / "knn", "--text", text, "--label", name, "--html", tmp_path / "why.htm")
        assert "Nearest training documents" in (tmp_path / "why.htm").read_text(encoding="utf-8")

    def test_html_mistakes(self, ova: Path, label_text: tuple[str, str], tmp_path: Path) -> None:
        name, text = label_text
        asked = ("explain", ova, "--text", text, "--label", name, "--html")
        missing = tmp_path / "nowhere" / "why.html"
        assert mistake(*asked, missing) == f"{missing}: the folder {missing.parent} does not exist. Create it first."
        assert mistake(*asked, tmp_path) == f"{tmp_path}: is a folder. Choose a file name."
        precious = tmp_path / "train.jsonl"
        precious.write_text("precious")
        assert (
            mistake(*asked, precious)
            == f"{precious}: the explanation is an HTML page. Use a file name that ends in .html."
        )
        assert precious.read_text() == "precious"


def row(step: int, **more: Any) -> dict[str, Any]:
    return {"step": step, "epoch": step / 100, "seconds": step * 2.5, **more}


def write_log(path: Path, rows: list[dict[str, Any]], end: str = "") -> Path:
    path.write_text("".join(json.dumps(each) + "\n" for each in rows) + end, encoding="utf-8")
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten losses, five validations, the third of them the best."""
    scores = {20: 0.25, 40: 0.5, 60: 0.625, 80: 0.6, 100: 0.575}
    rows = [row(step, loss=1 / step) for step in range(10, 101, 10)]
    for each in rows:
        if each["step"] in scores:
            each.update(score=scores[each["step"]], best=each["step"] <= 60)
    return write_log(tmp_path / "my-model.log.jsonl", rows)


def drawn(*arguments: object, out: Path) -> ElementTree.Element:
    call("plot", *arguments, "--out", out)
    return ElementTree.fromstring(out.read_text(encoding="utf-8"))


def circles(picture: ElementTree.Element, what: str) -> list[tuple[float, float]]:
    found = picture.iterfind(f".//{SVG}circle[@class='{what}']")
    return [(float(each.attrib["cx"]), float(each.attrib["cy"])) for each in found]


def panels(*logs: Path) -> list[Any]:
    """The axes of losses and of scores."""
    return list(training_plot(read_curves(logs)).figure.axes)


def lines(*logs: Path) -> list[Any]:
    """All lines that are drawn, those of losses first."""
    return [line for axes in panels(*logs) for line in axes.lines if len(line.get_xdata()) > 1]


def words(picture: ElementTree.Element) -> list[str]:
    return ["".join(each.itertext()) for each in picture.iter(f"{SVG}text")]


class TestPlot:
    def test_every_validation_is_a_point_and_the_best_is_marked(self, log: Path, tmp_path: Path) -> None:
        picture = drawn(log, out=tmp_path / "curves.svg")
        points = circles(picture, "score")
        assert len(points) == 5
        assert [x for x, _ in points] == sorted(x for x, _ in points)
        assert circles(picture, "best") == [points[2]]
        assert points[2][1] == min(y for _, y in points)
        assert "62.50" in words(picture)
        losses, _ = lines(log)
        assert len(losses.get_xdata()) == 10

    def test_a_training_that_goes_on_by_its_folder_or_its_workspace(self, log: Path, tmp_path: Path) -> None:
        work = tmp_path / "other.work"
        work.mkdir()
        log.rename(work / "log.jsonl")
        for path in (work, tmp_path / "other"):
            assert len(circles(drawn(path, out=tmp_path / "curves.svg"), "score")) == 5

    def test_heights_and_places_are_in_proportion(self, log: Path, tmp_path: Path) -> None:
        points = circles(drawn(log, out=tmp_path / "curves.svg"), "score")
        assert points[1][0] - points[0][0] == pytest.approx(points[2][0] - points[1][0], abs=0.2)
        rise, further = points[0][1] - points[1][1], points[1][1] - points[2][1]
        assert rise == pytest.approx(2 * further, abs=0.3)

    @pytest.mark.parametrize(
        ("against", "axis", "at"),
        [
            ("epoch", "epochs", "at epoch 0.6"),
            ("step", "steps", "at step 60"),
            ("seconds", "training time (seconds)", "2 min 30 s"),
        ],
    )
    def test_against(self, log: Path, tmp_path: Path, against: str, axis: str, at: str) -> None:
        file = tmp_path / "curves.svg"
        done = call("plot", log, "--against", against, "--out", file)
        assert re.search(rf"my-model .*best nDCG@5 62\.50 .*{at}", done.out)
        assert done.err == f"{file}: training curves\n"
        (curve,) = json.loads(call("plot", log, "--against", against, "--out", file, "--json").out)["curves"]
        assert (curve["name"], curve["best"][1]) == ("my-model", 0.625)
        assert sum(axis in said for said in words(ElementTree.fromstring(file.read_text("utf-8")))) == 2

    def test_long_trainings_are_told_in_minutes_and_hours(self, tmp_path: Path) -> None:
        for seconds, unit in ((299, "seconds"), (300, "minutes"), (7200, "hours")):
            write_log(log := tmp_path / "a.jsonl", [{"step": 1, "epoch": 1, "seconds": seconds, "loss": 1.0}])
            picture = drawn(log, "--against", "seconds", out=tmp_path / "a.svg")
            assert f"training time ({unit})" in words(picture)

    def test_a_model_folder_means_the_log_beside_it(self, log: Path, tmp_path: Path) -> None:
        for folder in (tmp_path / "my-model", f"{tmp_path / 'my-model'}/"):  # while it is trained, it is not there yet
            assert len(circles(drawn(folder, out=tmp_path / "curves.svg"), "score")) == 5
            (tmp_path / "my-model").mkdir(exist_ok=True)
        log.unlink()
        said = mistake("plot", tmp_path / "my-model", "--out", tmp_path / "new.svg")
        missing = f"no training log for this folder ({log} does not exist). Pass a training log."
        assert said == f"{tmp_path / 'my-model'}: {missing}"
        assert not (tmp_path / "new.svg").exists()

    def test_a_line_for_each_log_and_member(self, log: Path, tmp_path: Path) -> None:
        members = [row(step, member=member, loss=0.5, score=0.1 * member) for member in (0, 1, 2) for step in (1, 2)]
        other = write_log(tmp_path / "<other> & more.jsonl", members)
        picture = drawn(log, other, out=tmp_path / "curves.svg")
        named = [said for said in words(picture) if "epoch" in said and "best" in said]
        assert [said.partition(":  ")[0] for said in named[1:]] == [f"<other> & more, member {at}" for at in (1, 2, 3)]
        assert len(circles(picture, "score")) == 5 + 6
        assert len(circles(picture, "best")) == 4
        colours = [each.get_color() for each in lines(log, other)]
        assert colours[:4] == colours[4:]
        assert len(set(colours)) == 4

    def tree(self, members: int, levels: int) -> list[dict[str, Any]]:
        """The log of a label tree: each level starts again at the first step."""
        places = [(member, level, step) for member in range(members) for level in range(levels) for step in (1, 2, 3)]
        return [
            row(step, member=member, level=level, loss=0.5 / (step + level), score=0.1 * step + 0.01 * member)
            for member, level, step in places
        ]

    def test_a_line_for_each_level_of_a_tree(self, tmp_path: Path) -> None:
        log = write_log(tmp_path / "a.jsonl", self.tree(1, 3))
        curves = read_curves([log], "step")
        assert [curve.name for curve in curves] == ["a, level 1", "a, level 2", "a, level 3"]
        assert [curve.losses for curve in curves] == [
            [(step, 0.5 / (step + level)) for step in (1, 2, 3)] for level in range(3)
        ]
        picture = drawn(log, out=tmp_path / "a.svg")
        assert len(circles(picture, "best")) == 3
        assert len({line.get_color() for line in lines(log)}) == 3
        assert {line.get_linestyle() for line in lines(log)} == {"-"}
        [curve] = read_curves([write_log(log, self.tree(1, 1))])  # the first level is being trained
        assert curve.name == "a, level 1"

    def test_levels_differ_by_colour_and_members_by_dashes(self, tmp_path: Path) -> None:
        log = write_log(tmp_path / "a.jsonl", self.tree(3, 4))
        picture = drawn(log, out=tmp_path / "a.svg")
        named = [said for said in words(picture) if "best" in said]
        assert [said.partition(":  ")[0] for said in named] == [
            f"a, member {member}, level {level}" for member in (1, 2, 3) for level in (1, 2, 3, 4)
        ]
        drawn_lines = lines(log)[:12]
        colours = [line.get_color() for line in drawn_lines]
        dashes = [str(line._unscaled_dash_pattern) for line in drawn_lines]
        assert colours == 3 * colours[:4]
        assert len(set(colours)) == 4
        assert [dashes[:4], dashes[4:8], dashes[8:]] == [4 * [dashes[at]] for at in (0, 4, 8)]
        assert len(set(dashes)) == 3
        assert len(circles(picture, "best")) == 12
        assert "32.00" not in words(picture)  # so many values would lie over each other: the legend has them
        assert any("best nDCG@5 32.00" in said for said in named)

    def test_all_lines_differ_where_there_are_many(self, log: Path, tmp_path: Path) -> None:
        for members, levels in ((6, 4), (2, 9), (3, 8)):
            tree = write_log(tmp_path / "tree.jsonl", self.tree(members, levels))
            every = lines(tree, log)
            styles = {(line.get_color(), str(line._unscaled_dash_pattern)) for line in every}
            assert len(styles) == members * levels + 1 == len(every) / 2

    def test_a_level_that_went_back_leaves_the_others(self, tmp_path: Path) -> None:
        rows = [row(at, level=0, loss=1.0) for at in (1, 2, 3)]
        rows += [row(at, level=1, loss=loss) for at, loss in ((1, 0.9), (2, 0.8), (1, 0.7))]
        first, second = read_curves([write_log(tmp_path / "a.jsonl", rows)], "step")
        assert first.losses == [(1, 1.0), (2, 1.0), (3, 1.0)]
        assert second.losses == [(1, 0.7)]

    def test_logs_of_one_name_are_told_apart(self, log: Path, tmp_path: Path) -> None:
        (tmp_path / "b").mkdir()
        other = write_log(tmp_path / "b" / log.name, [row(1, loss=0.5)])
        assert [curve.name for curve in read_curves([log, other, log])] == [str(log), str(other)]

    def test_a_line_that_is_being_written_is_left_for_later(self, log: Path, tmp_path: Path) -> None:
        whole = log.read_text()
        for half in ('{"step": 110, "epo', '{"step": 110, "epoch": 1.1, "seconds": 275', '{"a": "\ud83c'):
            log.write_bytes(whole.encode() + half.encode("utf-8", "surrogatepass"))
            assert len(circles(drawn(log, out=tmp_path / "curves.svg"), "score")) == 5
        log.write_text(whole + json.dumps(row(110, score=0.3)))  # whole but for the end of the line
        assert len(circles(drawn(log, out=tmp_path / "curves.svg"), "score")) == 6

    def test_a_training_that_went_back_is_drawn_once(self, tmp_path: Path) -> None:
        first = [row(step, loss=1.0, score=0.9) for step in (10, 20, 30)]
        again = [row(20, loss=0.5), row(20, score=0.5), row(40, loss=0.4, score=0.6)]
        [curve] = read_curves([write_log(tmp_path / "a.jsonl", first + again)], "step")
        assert curve.losses == [(10, 1.0), (20, 0.5), (40, 0.4)]
        assert curve.scores == [(10, 0.9), (20, 0.5), (40, 0.6)]

    def test_the_best_is_what_the_training_says(self, tmp_path: Path) -> None:
        rows = [row(10, score=0.5, best=True), row(20, score=0.501, best=False), row(20, loss=0.1)]
        [curve] = read_curves([write_log(tmp_path / "a.jsonl", rows)], "step")
        assert curve.best == (10, 0.5)
        for each in rows:
            each.pop("best", None)
        [curve] = read_curves([write_log(tmp_path / "a.jsonl", rows)], "step")
        assert curve.best == (20, 0.501)

    def test_a_loss_that_runs_off_and_a_log_without_validations(self, tmp_path: Path) -> None:
        rows = [row(1, loss=0.5), row(2, loss=float("inf")), row(3, loss=float("nan")), row(4, loss=None)]
        picture = drawn(write_log(tmp_path / "a.jsonl", rows), out=tmp_path / "a.svg")
        assert len(circles(picture, "loss")) == 1
        assert "no data" in words(picture)
        assert "nan" not in (tmp_path / "a.svg").read_text()

    @pytest.mark.parametrize("losses", [[0.0, 0.0], [3.0, 3.0], [-1.0, -2.0], [1e-9, 2e-9], [1e-6, 1e3], [1e-30, 1e12]])
    @pytest.mark.parametrize("scores", [[0.0, 0.0], [1.0, 1.0], [0.61, 0.61001], [0.0, 1.0]])
    def test_extremes_stay_within_their_panel(self, tmp_path: Path, losses: list[float], scores: list[float]) -> None:
        pairs = enumerate(zip(losses, scores, strict=True))
        rows = [row(at, loss=loss, score=score) for at, (loss, score) in pairs]
        log = write_log(tmp_path / "a.jsonl", rows)
        drawn(log, out=tmp_path / "a.svg")
        for axes in panels(log):
            (line,) = [line for line in axes.lines if len(line.get_xdata()) > 1]
            low, high = axes.get_ylim()
            assert all(low <= height <= high for height in line.get_ydata())
            assert len([tick for tick in axes.get_yticks() if low <= tick <= high]) <= 20

    def test_a_long_log_makes_a_small_picture(self, tmp_path: Path) -> None:
        rows = [row(step, loss=2.0 if step % 2 else 1.0) for step in range(1, 20_001)]
        [line] = lines(write_log(tmp_path / "a.jsonl", rows))
        heights = line.get_ydata()
        assert len(heights) <= 400
        assert max(heights) - min(heights) < 0.001  # neighbours are averaged

    def test_other_formats_by_the_name(self, log: Path, tmp_path: Path) -> None:
        for name, start in (("a.png", b"\x89PNG"), ("a.PDF", b"%PDF")):
            call("plot", log, "--out", tmp_path / name)
            assert (tmp_path / name).read_bytes().startswith(start)

    def test_the_same_log_gives_the_same_file(self, log: Path, tmp_path: Path) -> None:
        for suffix in ("svg", "png", "pdf"):
            for name in ("a", "b"):
                training_plot(read_curves([log])).save(tmp_path / f"{name}.{suffix}")
            assert (tmp_path / f"a.{suffix}").read_bytes() == (tmp_path / f"b.{suffix}").read_bytes()

    @pytest.mark.parametrize(
        ("line", "said"),
        [
            ("{step: 1}", ":2: invalid JSON ("),
            ("[1, 2]", ":2: not a JSON object. Write one object per line: "),
            ('{"epoch": 1, "seconds": 1, "loss": 1}', ":2: 'step' is missing. Write one object per line: "),
            ('{"step": 1.5, "epoch": 1}', ":2: 'step' must be an integer ≥ 0. Got 1.5."),
            ('{"step": true, "epoch": 1}', ":2: 'step' must be an integer ≥ 0. Got True."),
            (f'{{"step": {10**400}, "epoch": 1}}', ":2: 'step' must be an integer ≥ 0. Got 1000"),
            ('{"step": 1, "loss": 1}', ":2: 'epoch' is missing. Choose another axis with --against seconds or step."),
            ('{"step": 1, "epoch": -1}', ":2: 'epoch' must be a number ≥ 0. Got -1."),
            ('{"step": 1, "epoch": NaN}', ":2: 'epoch' must be a number ≥ 0. Got nan."),
            ('{"step": 1, "epoch": 1, "loss": "low"}', ":2: 'loss' must be a number. Got low."),
            ('{"step": 1, "epoch": 1, "score": 61.2}', ":2: 'score' must be a number from 0 to 1. Got 61.2."),
            ('{"step": 1, "epoch": 1, "member": "a"}', ":2: 'member' must be an integer ≥ 0. Got a."),
            ('{"step": 1, "epoch": 1, "level": -1}', ":2: 'level' must be an integer ≥ 0. Got -1."),
            ("\udcff", ":2: not UTF-8 (byte 0xff at column 1)."),
        ],
    )
    def test_broken_lines_are_named(self, tmp_path: Path, line: str, said: str) -> None:
        log = tmp_path / "a.jsonl"
        log.write_bytes(f"{json.dumps(row(1, loss=1.0))}\n{line}\n".encode("utf-8", "surrogateescape"))
        assert mistake("plot", log, "--out", tmp_path / "a.svg").startswith(f"{log}{said}")
        assert not (tmp_path / "a.svg").exists()

    def test_mistakes(self, log: Path, tmp_path: Path) -> None:
        out = tmp_path / "a.svg"
        missing, empty = tmp_path / "missing.jsonl", tmp_path / "empty.jsonl"
        assert mistake("plot", missing, "--out", out) == f"{missing}: no such file. Check the path."
        for content in ("", "\n\n", '{"step": 1'):
            empty.write_text(content)
            assert mistake("plot", empty, "--out", out).startswith(f"{empty}: the log is empty. Wait until ")
        write_log(empty, [row(1, rate=0.1)])
        assert mistake("plot", empty, "--out", out).startswith(f"{empty}: no line has a 'loss' or a 'score'.")
        said = mistake("plot", log, "--against", "time", "--out", out)
        assert said == "--against must be epoch or seconds or step. Got 'time'."
        said = mistake("plot", log, "--out", tmp_path / "a.jpg")
        formats = "unsupported plot format. Use the extension .svg, .png or .pdf."
        assert said == f"{tmp_path / 'a.jpg'}: {formats}"
        assert "does not exist" in mistake("plot", log, "--out", tmp_path / "nowhere" / "a.svg")
        before = log.read_bytes()
        assert "is also an input file" in mistake("plot", log, "--out", log)
        assert log.read_bytes() == before
        assert mistake("plot", log).startswith("Missing option '--out' / '-o'.")
        assert not out.exists()
