"""`xmtc predict --parts`: a folder of whole Parquet parts that the same run goes on with, and no other."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.support.command_line import call, mistake
from xmtc import Model
from xmtc.artifact.dependencies import content_of
from xmtc.core.errors import DataError
from xmtc.core.files import content_hash, locked
from xmtc.data.topk import ANSWERS, TopK, part_name
from xmtc.workflows import batch_predict


class Stop(Exception):
    """The end of a process, as far as a test in the same process can have it."""


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "answers"


@pytest.fixture
def source(data: Path, tmp_path: Path) -> Path:
    """The 100 documents of the test file under a name that a test may write to."""
    return Path(shutil.copy(data / "test.jsonl", tmp_path / "in.jsonl"))


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def manifest(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / ANSWERS).read_text()))


def unfinished(monkeypatch: pytest.MonkeyPatch, parts: int, *command: object) -> None:
    """Run a command that dies while it writes the part after so many."""
    written, real = 0, batch_predict.write_parquet

    def dying(answers: Iterator[TopK], stream: Any) -> int:
        nonlocal written
        if written == parts:
            next(iter(answers))
            raise Stop
        written += 1
        return real(answers, stream)

    with monkeypatch.context() as patched:
        patched.setattr(batch_predict, "write_parquet", dying)
        with pytest.raises(Stop):
            call(*command)


def same(left: TopK, right: TopK) -> bool:
    return left.ids == right.ids and left.keys() == right.keys() and bool((left.scores == right.scores).all())


class TestWhole:
    @pytest.mark.parametrize(("size", "parts"), [(1, 100), (30, 4), (50, 2), (100, 1), (5000, 1)])
    def test_parts_say_what_one_file_says(self, ova: Path, source: Path, out: Path, size: int, parts: int) -> None:
        done = call("predict", ova, source, "-k", 4, "--output", out, "--parts", size)
        assert (done.out, done.err) == ("", f"{out}: 100 documents in {parts} part{'' if parts == 1 else 's'}\n")
        assert names(out) == [ANSWERS, *(part_name(number) for number in range(parts))]
        counts = [pq.read_metadata(out / part_name(number)).num_rows for number in range(parts)]
        assert counts == [min(size, 100 - number * size) for number in range(parts)]
        call("predict", ova, source, "-k", 4, "--output", out.with_suffix(".jsonl"))
        assert same(TopK.read(out), TopK.read(out.with_suffix(".jsonl")))
        assert {name: manifest(out)[name] for name in ("format", "complete", "documents", "parts")} == {
            "format": 1,
            "complete": True,
            "documents": 100,
            "parts": parts,
        }

    def test_parts_end_within_batches(self, ova: Path, source: Path, out: Path) -> None:
        """More documents than are read at once, and parts that do not divide them."""
        source.write_bytes(source.read_bytes() * 25)
        call("predict", ova, source, "-k", 2, "--output", out, "--parts", 777)
        call("predict", ova, source, "-k", 2, "--output", out.with_suffix(".parquet"))
        assert same(TopK.read(out), TopK.read(out.with_suffix(".parquet")))

    def test_others_read_it_as_one_table(self, ova: Path, source: Path, out: Path) -> None:
        call("predict", ova, source, "--output", out, "--parts", 30)
        assert ds.dataset(out, format="parquet").count_rows() == 100
        assert pq.read_table(out)["id"].to_pylist() == TopK.read(out).ids

    def test_what_it_is_made_of(self, ova: Path, source: Path, out: Path) -> None:
        call("predict", ova, source, "-k", 3, "--output", out, "--parts", 60)
        made_of = manifest(out)["made_of"]
        assert made_of["model"] == content_of(ova)
        assert made_of["input"] == content_hash(source)
        assert (made_of["k"], made_of["part size"], made_of["allow"]) == (3, 60, None)

    def test_standard_input(self, ova: Path, source: Path, out: Path) -> None:
        call("predict", ova, "-", "--output", out, "--parts", 40, stdin=source.read_bytes())
        assert len(TopK.read(out)) == 100
        assert manifest(out)["made_of"]["input"] is None

    def test_features(self, models: Path, data: Path, out: Path) -> None:
        call("predict", models / "features", data / "test.txt", "--output", out, "--parts", 33)
        assert TopK.read(out).ids == [str(number) for number in range(100)]

    def test_restricted(self, ova: Path, source: Path, out: Path, tmp_path: Path) -> None:
        keys = [label["key"] for label in call("predict", ova, "--text", "years", "-k", 40).lines()[0]["labels"]]
        (tmp_path / "allow.txt").write_text("\n".join(keys[:10]))
        call("predict", ova, source, "--output", out, "--parts", 30, "--allow", tmp_path / "allow.txt")
        returned = TopK.read(out).keys()
        assert {key for row in returned for key in row} <= set(keys[:10])
        assert manifest(out)["made_of"]["allow"] == content_hash(tmp_path / "allow.txt")


class TestResume:
    @pytest.mark.parametrize("done", [0, 1, 3])
    def test_goes_on_after_the_last_whole_part(
        self, ova: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch, done: int
    ) -> None:
        command = ("predict", ova, source, "-k", 3, "--output", out, "--parts", 30)
        unfinished(monkeypatch, done, *command)
        assert names(out) == [ANSWERS, *(part_name(number) for number in range(done))]
        assert not manifest(out)["complete"]
        before = {number: (out / part_name(number)).stat().st_mtime_ns for number in range(done)}
        predicted = 0
        real = Model.predict

        def counting(self: Any, documents: Any, *rest: Any, **more: Any) -> TopK:
            nonlocal predicted
            predicted += len(documents)
            return real(self, documents, *rest, **more)

        with monkeypatch.context() as patched:
            patched.setattr(Model, "predict", counting)
            said = call(*command, "--resume").err
        assert said == f"{out}: 100 documents in 4 parts\n"
        assert predicted == 100 - 30 * done
        assert {number: (out / part_name(number)).stat().st_mtime_ns for number in range(done)} == before
        call("predict", ova, source, "-k", 3, "--output", out.with_suffix(".jsonl"))
        assert same(TopK.read(out), TopK.read(out.with_suffix(".jsonl")))

    def test_all_parts_there_but_not_said_to_be_complete(self, ova: Path, source: Path, out: Path) -> None:
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        call(*command)
        said = manifest(out)
        (out / ANSWERS).write_text(json.dumps({"format": 1, "complete": False, "made_of": said["made_of"]}))
        before = [(out / part_name(number)).stat().st_mtime_ns for number in range(4)]
        call(*command, "--resume")
        assert manifest(out) == said
        assert [(out / part_name(number)).stat().st_mtime_ns for number in range(4)] == before

    def test_leftovers_of_a_kill_are_swept_up(
        self, ova: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        unfinished(monkeypatch, 2, *command)
        (out / ".part-00002.parquet.0123abcd.part").write_bytes(b"half")
        (out / "._answers.json.0123abcd.part").write_bytes(b"{")
        call(*command, "--resume")
        assert names(out) == [ANSWERS, *(part_name(number) for number in range(4))]

    def test_a_missing_part_is_made_again_and_a_damaged_one_named(
        self, ova: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        unfinished(monkeypatch, 3, *command)
        part = out / part_name(1)
        whole = part.read_bytes()
        part.write_bytes(whole[:-5])
        said = mistake(*command, "--resume")
        assert said == f"{part}: not a readable Parquet file. Delete it and use --resume."
        TopK.read(out / part_name(2)).write(part)
        pq.write_table(pq.read_table(part).slice(0, 7), part)
        said = mistake(*command, "--resume")
        assert said == f"{part}: contains 7 documents, expected 30. Delete it and use --resume."
        part.unlink()
        call(*command, "--resume")
        assert part.read_bytes() == whole
        assert len(TopK.read(out)) == 100

    def test_parts_beyond_the_end(self, ova: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        unfinished(monkeypatch, 1, *command)
        shutil.copy(out / part_name(0), out / part_name(4))
        said = mistake(*command, "--resume")
        assert said == f"{out}: contains parts beyond the last document. Start over with --force."

    def test_anything_else_is_refused_by_name(
        self, models: Path, ova: Path, source: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        keys = [label["key"] for label in call("predict", ova, "--text", "years", "-k", 40).lines()[0]["labels"]]
        allow, deny, candidates = (tmp_path / name for name in ("allow.txt", "deny.txt", "c.jsonl"))
        allow.write_text("\n".join(keys[:30]))
        deny.write_text(keys[0])
        candidates.write_text(json.dumps({"id": "x", "labels": keys[:3]}))
        command: list[object] = ["--allow", allow, "--output", out, "--resume"]
        unfinished(monkeypatch, 2, "predict", ova, source, "--allow", allow, "--output", out, "--parts", 30)
        before = {path.name: path.read_bytes() for path in out.iterdir()}
        for what, given in {
            "model": ("predict", models / "knn", source, "--parts", 30, *command),
            "k": ("predict", ova, source, "-k", 4, "--parts", 30, *command),
            "part size": ("predict", ova, source, "--parts", 31, *command),
            "deny": ("predict", ova, source, "--parts", 30, "--deny", deny, *command),
            "candidates": ("predict", ova, source, "--parts", 30, "--candidates", candidates, *command),
            "allow": ("predict", ova, source, "--parts", 30, "--output", out, "--resume"),
            "k, part size": ("predict", ova, source, "-k", 4, "--parts", 3, *command),
            "threshold": ("predict", ova, source, "-k", 5, "--threshold", 0.3, "--parts", 30, *command),
            "k, threshold": ("predict", ova, source, "--threshold", 0.3, "--parts", 30, *command),
        }.items():
            said = mistake(*given)
            remedy = "Pass the same files and settings, or start over with --force."
            assert said == f"{out}: cannot be resumed; changed since the run started: {what}. {remedy}"
        original = source.read_bytes()
        source.write_bytes(original.replace(b"the", b"teh", 1))
        assert "changed since the run started: input." in mistake("predict", ova, source, "--parts", 30, *command)
        source.write_bytes(original)
        allow.write_text("\n".join(keys[:29]))
        assert "changed since the run started: allow." in mistake("predict", ova, source, "--parts", 30, *command)
        assert {path.name: path.read_bytes() for path in out.iterdir()} == before

    def test_sets_go_on_at_the_same_threshold_only(
        self, ova: Path, source: Path, out: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = shutil.copytree(ova, tmp_path / "m")
        call("calibrate", folder, source)
        whole = ("predict", folder, source, "--output", out, "--parts", 30)
        unfinished(monkeypatch, 2, *whole, "--threshold", "auto")
        assert manifest(out)["made_of"]["threshold"] == "auto"
        for other, what in (((), "k, threshold"), (("--threshold", 0.5), "threshold"), (("-k", 5), "k, threshold")):
            assert f"changed since the run started: {what}." in mistake(*whole, *other, "--resume")
        call(*whole, "--threshold", "auto", "--resume")
        call("predict", folder, source, "--threshold", "auto", "--output", tmp_path / "p.jsonl")
        assert TopK.read(out).keys() == TopK.read(tmp_path / "p.jsonl").keys()
        unfinished(monkeypatch, 2, *whole, "--threshold", "auto", "--force")
        call("calibrate", folder, source, "--threshold", "label")
        assert "changed since the run started: model." in mistake(*whole, "--threshold", "auto", "--resume")

    def test_nothing_to_resume(self, ova: Path, source: Path, out: Path) -> None:
        command = ("predict", ova, source, "--output", out, "--parts", 30, "--resume")
        said = mistake(*command)
        assert said == f"{out}: no unfinished predictions to resume. Leave out --resume."
        assert not out.exists()

    def test_standard_input_is_not_resumed(
        self, ova: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        unfinished(monkeypatch, 1, "predict", ova, source, "--output", out, "--parts", 30)
        said = mistake("predict", ova, "-", "--output", out, "--parts", 30, "--resume", stdin=source.read_bytes())
        assert said == "--resume cannot be used with standard input. Pass a file, or start over with --force."


class TestRefused:
    def test_a_folder_that_holds_answers(
        self, ova: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        unfinished(monkeypatch, 2, *command)
        said = mistake(*command)
        assert said == f"{out}: contains unfinished predictions. Continue with --resume, or start over with --force."
        with pytest.raises(DataError, match=r"the predictions are incomplete. Run the same command again"):
            TopK.read(out)
        call(*command, "--resume")
        for more in ([], ["--resume"]):
            said = mistake(*command, *more)
            remedy = "Choose another folder, or start over with --force."
            assert said == f"{out}: already complete (100 documents). {remedy}"
        call("predict", ova, source, "--output", out, "--parts", 50, "--force")
        assert names(out) == [ANSWERS, part_name(0), part_name(1)]
        assert len(TopK.read(out)) == 100

    @pytest.mark.parametrize("force", [[], ["--force"]])
    def test_other_files_are_left_alone(self, ova: Path, source: Path, out: Path, force: list[str]) -> None:
        out.mkdir()
        for name in ("notes.txt", "part-0.parquet", part_name(0)):  # parts without the word about them are not ours
            (out / name).write_bytes(b"precious")
            said = mistake("predict", ova, source, "--output", out, "--parts", 30, *force)
            assert said == f"{out}: contains other files ('{name}'). Choose a new or empty folder."
            assert (out / name).read_bytes() == b"precious"
            (out / name).unlink()
        call("predict", ova, source, "--output", out, "--parts", 30, *force)
        (out / "notes.txt").write_bytes(b"precious")
        said = mistake("predict", ova, source, "--output", out, "--parts", 30, "--force")
        assert "contains other files ('notes.txt')" in said
        assert len(TopK.read(out)) == 100

    def test_killed_while_starting_over(
        self, ova: Path, source: Path, out: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Old parts are never taken for parts of the new run."""
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        call(*command)

        def dying(*_: object) -> None:
            raise Stop

        with monkeypatch.context() as patched:
            patched.setattr(batch_predict, "_remove", dying)
            with pytest.raises(Stop):
                call(*command, "--force")
        said = mistake(*command, "--resume")
        assert said == f"{out}: interrupted while old parts were being deleted. Start over with --force."
        assert "contains unfinished predictions" in mistake(*command)
        call(*command, "--force")
        assert len(TopK.read(out)) == 100

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 1, "complete": true}'])
    def test_damaged_word_about_the_parts(self, ova: Path, source: Path, out: Path, content: bytes) -> None:
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        call(*command)
        (out / ANSWERS).write_bytes(content)
        for more in ([], ["--resume"]):
            assert mistake(*command, *more).startswith(f"{out / ANSWERS}: damaged.")
        call(*command, "--force")
        assert len(TopK.read(out)) == 100

    def test_a_mistake_in_the_input(self, ova: Path, source: Path, out: Path) -> None:
        """Parts before the bad line stay; where there is none, nothing is left in the way."""
        command = ("predict", ova, source, "--output", out, "--parts", 30)
        lines = source.read_text().splitlines()
        source.write_text("\n".join([*lines[:10], "{", *lines[10:]]))
        assert ":11: invalid JSON" in mistake(*command)
        assert not out.exists()
        source.write_text("\n".join([*lines, "{"]))
        out.mkdir()
        assert ":101: invalid JSON" in mistake("predict", ova, source, "--output", out, "--parts", 3000)
        assert names(out) == []

    def test_two_at_once(self, ova: Path, source: Path, out: Path) -> None:
        out.mkdir()
        with locked(out):
            said = mistake("predict", ova, source, "--output", out, "--parts", 30)
        assert said == f"{out}: another process is writing there. Wait for it, or choose another folder."

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--parts", "10"], "--parts requires an output folder. Add --out FOLDER."),
            (["--output", "OUT", "--parts", "0"], "--parts must be an integer ≥ 1. Got 0."),
            (["--output", "OUT", "--parts", "-3"], "--parts must be an integer ≥ 1. Got -3."),
            (["--output", "OUT", "--parts", "x"], "Invalid value for '--parts'"),
            (["--output", "OUT", "--parts", "9", "--output-format", "tsv"], "--parts writes Parquet, not tsv."),
            (
                ["--output", "OUT", "--parts", "9", "--resume", "--force"],
                "--resume and --force cannot be used together.",
            ),
            (
                ["--output", "OUT.jsonl", "--resume"],
                "--resume can only be used with --parts. Add --parts N, or leave out --resume.",
            ),
            (
                ["--output", "OUT.jsonl", "--force"],
                "--force can only be used with --parts. Add --parts N, or leave out --force.",
            ),
            (["--output", "INPUT", "--parts", "9"], "INPUT: is a file. Pass a folder for the parts."),
            (["--output", "INPUT/a", "--parts", "9"], "INPUT/a: cannot be created (Not a directory)."),
            (["--output", "MODEL", "--parts", "9", "--force"], "MODEL: contains other files ("),
        ],
    )
    def test_arguments(self, ova: Path, source: Path, out: Path, arguments: list[str], message: str) -> None:
        def placed(words: str) -> str:
            return words.replace("OUT", str(out)).replace("INPUT", str(source)).replace("MODEL", str(ova))

        assert placed(message) in mistake("predict", ova, source, *map(placed, arguments))
        assert not out.exists()

    def test_text(self, ova: Path, out: Path) -> None:
        said = mistake("predict", ova, "--text", "x", "--output", out, "--parts", 3)
        assert said == "--parts cannot be used with --text. Pass an INPUT file."

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_place_without_permission(self, ova: Path, source: Path, tmp_path: Path) -> None:
        (tmp_path / "closed").mkdir(mode=0o500)
        assert "cannot be created" in mistake(
            "predict", ova, source, "--output", tmp_path / "closed" / "a", "--parts", 9
        )


class TestRead:
    def test_a_part_missing_or_too_short(self, ova: Path, source: Path, out: Path) -> None:
        call("predict", ova, source, "--output", out, "--parts", 30)
        part = out / part_name(2)
        pq.write_table(pq.read_table(part).slice(0, 29), part)
        with pytest.raises(DataError, match=r"99 documents, expected 100. Copy the folder or predict again."):
            TopK.read(out)
        part.unlink()
        with pytest.raises(DataError, match=r"part-00002.parquet: missing, so the folder is damaged"):
            TopK.read(out)

    def test_under_the_numbers_of_a_model(self, ova: Path, source: Path, out: Path) -> None:
        call("predict", ova, source, "--output", out, "--parts", 30)
        model = Model.load(ova)
        answers = TopK.read(out, model.labels)
        texts = [json.loads(line)["text"] for line in source.read_text().splitlines()]
        np.testing.assert_array_equal(answers.labels, model.predict(texts).labels)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_stopped_and_resumed(ova: Path, source: Path, out: Path, how: signal.Signals) -> None:
    """Whole parts only, whatever ends the process; Ctrl-C is told how to go on."""
    source.write_bytes(source.read_bytes() * 300)
    command = [sys.executable, "-m", "xmtc", "predict", str(ova), str(source), "--output", str(out)]
    command += ["--parts", "100"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        until = time.monotonic() + 60
        while batch_predict.finished_parts(out) < 3 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        process.send_signal(how)
        _, said = process.communicate(timeout=60)
    done = batch_predict.finished_parts(out)
    assert 3 <= done < 300
    if how == signal.SIGINT:
        assert process.returncode == 130
        assert said == (
            f"xmtc: interrupted. Complete parts in {out}: {done}. To resume, repeat the command with --resume.\n"
        )
        assert names(out) == [ANSWERS, *(part_name(number) for number in range(done))]
    assert all(pq.read_metadata(out / part_name(number)).num_rows == 100 for number in range(done))
    assert not manifest(out)["complete"]
    call(*command[3:], "--resume")
    assert len(TopK.read(out)) == 30_000
