"""`xmtc update`: new documents and labels from files, at once or not at all, and what `xmtc models DIR` tells of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import call, mistake
from xmtc import load
from xmtc.artifact.store import read_manifest, verify_folder
from xmtc.artifact.workspace import Workspace

WORDS = "zorbex quillam vantorp"


@pytest.fixture(scope="module")
def files(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """new.jsonl, whose even documents have a new label, and small models to be copied."""
    folder = tmp_path_factory.mktemp("update")
    rows = [json.loads(line) for line in (data / "test.jsonl").read_text().splitlines()]
    for row in rows[::2]:
        row["text"] += f" {WORDS} {WORDS}"
        row["labels"].append("fresh")
    (folder / "new.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[:60]))
    (folder / "more.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[60:]))
    wrong = [{**row, "labels": ["fresh"]} for row in rows]
    (folder / "wrong.jsonl").write_text("".join(json.dumps(row) + "\n" for row in wrong))
    for name, more in (("knn", []), ("parabel", ["trees=2", "leaf_size=8", "fan_out=4", "keep_replay=100"])):
        settings = [part for setting in more for part in ("--set", setting)]
        call("train", data / "train.jsonl", "--model", name, "--out", folder / name, *settings)
    return folder


@pytest.fixture(params=["knn", "parabel"])
def model(request: pytest.FixtureRequest, files: Path, tmp_path: Path) -> Path:
    """A model of one's own."""
    return Path(shutil.copytree(files / request.param, tmp_path / "m"))


@pytest.fixture
def knn(files: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(files / "knn", tmp_path / "k"))


@pytest.fixture
def parabel(files: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(files / "parabel", tmp_path / "p"))


def content(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def beside(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.parent.iterdir() if path.name.startswith(f"{folder.name}."))


def first(folder: Path, text: str) -> str:
    return str(call("predict", folder, "--text", text, "-k", "1").lines()[0]["labels"][0]["key"])


def history(folder: Path) -> list[dict[str, Any]]:
    return list(read_manifest(folder)["history"])


class TestInPlace:
    def test_new_labels(self, model: Path, files: Path) -> None:
        before = load(model).training["documents"]
        done = call("update", model, files / "new.jsonl")
        seen = ", 100 earlier documents replayed" if load(model).name == "parabel" else ""
        assert done.out.startswith(f"saved {load(model).name} in {model}: 60 new documents, 1 new label{seen}, ")
        assert done.err == (
            "the update was not checked: pass --valid FILE, or at least 500 new documents (a tenth is held out)\n"
        )
        assert verify_folder(model)
        assert beside(model) == []
        assert first(model, f"{WORDS} {WORDS}") == "fresh"
        assert load(model).training["documents"] == before + 60
        call("update", model, files / "more.jsonl")
        assert [entry["documents"] for entry in history(model)] == [60, 40]
        assert [entry["labels added"] for entry in history(model)] == [1, 0]
        assert len(list(model.iterdir())) == 1 + len(read_manifest(model)["files"])  # nothing of before is left

    def test_same_seed_same_model(self, parabel: Path, files: Path, tmp_path: Path) -> None:
        shutil.copytree(parabel, tmp_path / "other")
        call("update", parabel, files / "new.jsonl", "--threads", "1")
        call("update", tmp_path / "other", files / "new.jsonl", "--threads", "2")
        assert read_manifest(parabel)["files"] == read_manifest(tmp_path / "other")["files"]

    def test_retire_and_merge(self, model: Path, files: Path, tmp_path: Path) -> None:
        keys = load(model).labels.keys
        (tmp_path / "retire.txt").write_text(f"{keys[0]}\n{keys[1]}\n")
        (tmp_path / "merge.tsv").write_text(f"{keys[2]}\t{keys[3]}\n\n{keys[4]}\tnobody knew\r\n")
        done = call(
            "update", model, files / "new.jsonl", "--retire", tmp_path / "retire.txt", "--merge", tmp_path / "merge.tsv"
        )
        assert "1 new label, 2 labels removed, 2 labels merged" in done.out
        assert load(model).labels.keys == [keys[3], "nobody knew", *keys[5:], "fresh"]
        (tmp_path / "one.txt").write_text(f"{keys[7]}\n")
        alone = call("update", model, "--retire", tmp_path / "one.txt")
        assert f"saved {load(model).name} in {model}: 0 new documents, 1 label removed" in alone.out
        assert keys[7] not in load(model).labels.keys
        (tmp_path / "one.tsv").write_text(f"{keys[8]}\t{keys[9]}\n")
        call("update", model, "--merge", tmp_path / "one.tsv")
        assert keys[8] not in load(model).labels.keys
        assert [entry["labels retired"] for entry in history(model)] == [2, 1, 0]
        assert history(model)[2]["merged"] == {keys[8]: keys[9]}


class TestElsewhere:
    def test_out(self, parabel: Path, files: Path, tmp_path: Path) -> None:
        before, out = content(parabel), tmp_path / "folder" / "new"
        done = call("update", parabel, files / "new.jsonl", "--out", out)
        assert f" in {out}: 60 new documents" in done.out
        assert content(parabel) == before
        assert beside(parabel) == beside(out) == []
        assert first(out, f"{WORDS} {WORDS}") == "fresh"
        said = mistake("update", parabel, files / "new.jsonl", "--out", out)
        assert said == f"{out}: already contains a model. Choose another folder, or replace it with --force."
        call("update", parabel, files / "more.jsonl", "--out", out, "--force")
        assert [entry["documents"] for entry in history(out)] == [40]
        call("update", parabel, files / "new.jsonl", "--out", parabel)  # which is in its place
        assert [entry["documents"] for entry in history(parabel)] == [60]

    def test_bad_places(self, knn: Path, files: Path, tmp_path: Path) -> None:
        before = content(knn)
        (tmp_path / "file").write_text("a")
        (tmp_path / "full").mkdir()
        (tmp_path / "full" / "notes.txt").write_text("a")
        for place, what in (
            ("file", "is a file. Pass a folder"),
            ("full", "contains other files ('notes.txt'). Choose a new"),
        ):
            said = mistake("update", knn, files / "new.jsonl", "--out", tmp_path / place, "--force")
            assert said.startswith(f"{tmp_path / place}: {what}")
            assert beside(tmp_path / place) == []
        assert content(knn) == before


class TestJudged:
    def test_by_valid(self, parabel: Path, files: Path, data: Path) -> None:
        before = content(parabel)
        said = mistake("update", parabel, files / "wrong.jsonl", "--valid", data / "test.jsonl", "--margin", "0.5")
        assert said.startswith("the update would lower nDCG@5 from ")
        assert said.endswith(
            " on 100 documents, by more than the margin of 0.5. Check the new documents, or use --force."
        )
        assert content(parabel) == before
        assert beside(parabel) == []
        done = call("update", parabel, files / "wrong.jsonl", "--valid", data / "test.jsonl", "--margin", "100")
        assert "nDCG@5 " in done.out
        assert done.err == ""
        assert history(parabel)[0]["nDCG@5 after"] < history(parabel)[0]["nDCG@5 before"] - 0.005
        assert not history(parabel)[0]["forced"]

    def test_forced(self, knn: Path, files: Path, data: Path) -> None:
        call("update", knn, files / "wrong.jsonl", "--valid", data / "test.jsonl", "--margin", "0", "--force")
        entry = history(knn)[0]
        assert (entry["forced"], entry["judged by"], entry["held out"]) == (True, 100, False)
        shown = call("models", knn).out
        assert " forced" in shown
        assert "100 given" in shown

    def test_by_some_of_the_new_documents(self, knn: Path, data: Path) -> None:
        done = call("update", knn, data / "train.jsonl", "--replay", data / "test.jsonl")
        assert "540 new documents, 100 earlier documents replayed, nDCG@5 " in done.out
        entry = history(knn)[0]
        assert (entry["judged by"], entry["held out"], entry["replayed"]) == (60, True, 100)


def test_mistakes(knn: Path, files: Path, data: Path, tmp_path: Path) -> None:
    """One line each; the model is as it was and nothing lies beside it."""
    before, keys = content(knn), load(knn).labels.keys
    written = {
        "broken.jsonl": '{"text": "a", "labels": ["b"]}\n{"text": \n',
        "unlabelled.jsonl": '{"text": "a", "labels": []}\n',
        "without.jsonl": '{"text": "a"}\n',
        "empty.jsonl": "",
        "strange.txt": "no such label\n",
        "nothing.txt": "\n",
        "one.tsv": "only one\n",
        "three.tsv": f"{keys[0]}\t{keys[1]}\t{keys[2]}\n",
        "unknown.tsv": f"{keys[0]}\t{keys[1]}\nno such\t{keys[1]}\n",
        "two.tsv": f"{keys[0]}\t{keys[1]}\n{keys[0]}\t{keys[2]}\n",
        "circle.tsv": f"{keys[0]}\t{keys[1]}\n{keys[1]}\t{keys[0]}\n",
        "nothing.tsv": "\n\n",
        "key.txt": f"{keys[0]}\n",
        "key.tsv": f"{keys[0]}\t{keys[1]}\n",
        "all.txt": "".join(f"{key}\n" for key in keys),
    }
    for name, text in written.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "latin.tsv").write_bytes(b"caf\xe9\tb\n")
    new = files / "new.jsonl"
    cases: list[tuple[list[object], str]] = [
        ([], "nothing to update. Pass a file of new documents, --retire FILE, --merge FILE or --labels FILE."),
        ([tmp_path / "none.jsonl"], "none.jsonl: no such file"),
        ([tmp_path / "broken.jsonl"], "broken.jsonl:2: "),
        ([tmp_path / "unlabelled.jsonl"], "unlabelled.jsonl: no document has a label. Check the label field."),
        ([tmp_path / "without.jsonl"], "without.jsonl:1: no 'labels'."),
        ([tmp_path / "empty.jsonl"], "empty.jsonl: "),
        ([data / "train.txt"], "this model was trained on text. Got features for the update."),
        ([new, "--valid", tmp_path / "none.jsonl"], "none.jsonl: no such file"),
        ([new, "--replay", tmp_path / "unlabelled.jsonl"], "unlabelled.jsonl: no document has a label."),
        ([new, "--retire", tmp_path / "strange.txt"], "no such label"),
        ([new, "--retire", tmp_path / "nothing.txt"], "nothing.txt: "),
        (["--retire", tmp_path / "all.txt"], "the update would remove all labels. Keep at least one."),
        ([new, "--merge", tmp_path / "one.tsv"], "one.tsv:1: expected two labels separated by a tab."),
        ([new, "--merge", tmp_path / "three.tsv"], "three.tsv:1: expected two labels separated by a tab."),
        ([new, "--merge", tmp_path / "unknown.tsv"], "unknown.tsv:2: the model has no label 'no such'."),
        ([new, "--merge", tmp_path / "two.tsv"], f"two.tsv:2: label '{keys[0]}' is merged into two labels."),
        ([new, "--merge", tmp_path / "circle.tsv"], "is merged into itself."),
        ([new, "--merge", tmp_path / "nothing.tsv"], "nothing.tsv: contains no labels."),
        ([new, "--merge", tmp_path / "latin.tsv"], "latin.tsv:1: "),
        ([new, "--merge", tmp_path / "none.tsv"], "none.tsv: "),
        (
            [new, "--retire", tmp_path / "key.txt", "--merge", tmp_path / "key.tsv"],
            f"label '{keys[0]}' cannot be both retired and merged. Choose one.",
        ),
        ([new, "--margin", "-1"], "--margin must be a number ≥ 0. Got -1."),
        ([new, "--margin", "nan"], "--margin must be a number ≥ 0. Got nan."),
        ([new, "--language", "en"], "--language can only be used with --labels FILE."),
    ]
    for more, said in cases:
        assert said in mistake("update", knn, *more)
        assert content(knn) == before, said
        assert beside(knn) == [], said


def test_not_a_model(files: Path, tmp_path: Path) -> None:
    for name, what in (("nowhere", "no such folder"), ("empty", "not a model folder: model.json is missing")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        assert mistake("update", tmp_path / name, files / "new.jsonl").startswith(f"{tmp_path / name}: {what}")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty"]


def test_features(models: Path, data: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(models / "features", tmp_path / "m"))
    call("update", folder, data / "test.txt")
    assert load(folder).training["documents"] == 700
    (tmp_path / "wide.txt").write_text("1 61 40\n3 60:1\n")
    assert "60" in mistake("update", folder, tmp_path / "wide.txt")
    said = mistake("update", folder, data / "test.jsonl")
    assert said == "this model was trained on features. Got text for the update."


class TestInterrupted:
    def interrupt(self, folder: Path, new: Path, monkeypatch: pytest.MonkeyPatch, after: int) -> str:
        """Ctrl-C when so many parts are finished; what is said."""
        real, saved = Workspace.save, 0

        def save(self: Workspace, name: str, *more: Any) -> None:
            nonlocal saved
            if saved == after:
                raise KeyboardInterrupt
            saved += 1
            real(self, name, *more)

        with monkeypatch.context() as patch:
            patch.setattr(Workspace, "save", save)
            done = call("update", folder, new, ok=False)
        assert done.status == 130
        assert done.out == ""
        return done.err

    def test_the_same_command_goes_on(
        self, parabel: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shutil.copytree(parabel, tmp_path / "whole")
        call("update", tmp_path / "whole", files / "new.jsonl")
        before, work = content(parabel), Workspace.beside(parabel, ".update")
        for after, finished in ((2, 2), (0, 2), (1, 3)):
            said = self.interrupt(parabel, files / "new.jsonl", monkeypatch, after)
            assert said == (
                f"xmtc: interrupted. {parabel} is unchanged; "
                f"finished parts are in {work}. To resume, repeat the command.\n"
            )
            assert content(parabel) == before
            assert len(list(work.glob("*.safetensors"))) == finished
        call("update", parabel, files / "new.jsonl")
        assert read_manifest(parabel)["files"] == read_manifest(tmp_path / "whole")["files"]
        assert beside(parabel) == []

    def test_another_update_starts_over(
        self, parabel: Path, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Even where only the keys of the labels are others."""
        key = load(parabel).labels.keys[-1]
        (tmp_path / "known.jsonl").write_text((files / "wrong.jsonl").read_text().replace('"fresh"', f'"{key}"'))
        for number, other in enumerate((files / "more.jsonl", tmp_path / "known.jsonl")):
            place, whole = (Path(shutil.copytree(parabel, tmp_path / f"{name}{number}")) for name in ("p", "w"))
            self.interrupt(place, files / "wrong.jsonl", monkeypatch, 3)
            call("update", place, other)
            call("update", whole, other)
            assert read_manifest(place)["files"] == read_manifest(whole)["files"]

    def test_a_damaged_workspace_is_no_obstacle(
        self, parabel: Path, files: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.interrupt(parabel, files / "new.jsonl", monkeypatch, 2)
        (Workspace.beside(parabel, ".update") / "training.json").write_text("{")
        call("update", parabel, files / "new.jsonl")
        assert first(parabel, f"{WORDS} {WORDS}") == "fresh"
        assert beside(parabel) == []


def test_two_at_once(knn: Path, files: Path) -> None:
    before, work = content(knn), Workspace(Workspace.beside(knn, ".update"))
    with work.claimed():
        said = mistake("update", knn, files / "new.jsonl")
        assert said.startswith(f"{work.folder}: in use by another process. Wait")
        assert work.folder is not None
        assert work.folder.is_dir()  # it is the other's
    assert content(knn) == before
    call("update", knn, files / "new.jsonl")
    assert beside(knn) == []


@pytest.mark.parametrize("kind", ["global", "label"])
def test_calibrated_models_keep_thresholds(knn: Path, files: Path, data: Path, kind: str) -> None:
    call("calibrate", knn, data / "test.jsonl", "--threshold", kind)
    before = load(knn)
    done = call("update", knn, files / "new.jsonl")
    assert done.err.splitlines()[-1] == (
        f"the model was calibrated before the update; calibrate it again with: xmtc calibrate {knn} VALID"
    )
    after = load(knn)
    assert after.decisions.calibration is not None
    rules = before.decisions.thresholds, after.decisions.thresholds
    assert rules[0] is not None
    assert rules[1] is not None
    assert rules[0].value == rules[1].value
    if kind == "label":
        assert rules[0].by_label is not None
        assert rules[1].by_label is not None
        assert len(rules[1].by_label) == len(after.labels)
        assert rules[1].by_label[:-1].tolist() == rules[0].by_label.tolist()
        assert rules[1].by_label[-1] == rules[0].value
    assert call("predict", knn, files / "more.jsonl", "--threshold", "auto").lines()


class TestShown:
    def test_trained(self, model: Path) -> None:
        shown = call("models", model).out
        name = load(model).name
        assert ["model", name] in [line.split() for line in shown.splitlines()]
        assert ["documents", "600"] in [line.split() for line in shown.splitlines()]
        for fact in (str(model), "text", "No updates. To add documents or labels: xmtc update "):
            assert fact in shown
        assert ("keep_replay" in shown) == (name == "parabel")

    def test_updated(self, knn: Path, files: Path, data: Path) -> None:
        call("update", knn, files / "new.jsonl", "--valid", data / "test.jsonl")
        call("update", knn, files / "more.jsonl")
        shown = call("models", knn).out
        assert "700, including updates" in shown
        assert "No updates" not in shown
        lines = [line for line in shown.splitlines() if line.startswith(history(knn)[0]["date"][:10])]
        assert len(lines) == 4  # the table is continued below
        assert "100 given" in lines[2]
        assert lines[0].split()[2:4] == ["60", "1"]
        assert lines[1].split()[2:4] == ["40", "0"]
        assert "before, after: nDCG@5 in percent. Times are UTC." in shown

    def test_damaged(self, knn: Path, files: Path) -> None:
        call("update", knn, files / "new.jsonl")
        whole = read_manifest(knn)
        entry = whole["history"][0]
        for wrong in (
            {"history": 3},
            {"history": ["a"]},
            {"history": [{}]},
            {"history": [{"merged": []}]},
            {"history": [{**entry, "documents": None}]},
            {"history": [{name: value for name, value in entry.items() if name != "seconds"}]},
            {"history": [{**entry, "nDCG@5 after": "high"}]},
            {"labels": "many"},
            {"training": []},
        ):
            (knn / "model.json").write_text(json.dumps({**whole, **wrong}))
            said = mistake("models", knn)
            assert said.startswith(f"{knn / 'model.json'}: damaged"), (wrong, said)

    def test_no_model(self, tmp_path: Path) -> None:
        assert mistake("models", tmp_path).startswith(f"{tmp_path}: not a model folder: model.json is missing.")
        assert "nowhere" in mistake("models", "nowhere")
