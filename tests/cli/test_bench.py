"""`xmtc bench`: cells that are run once, that fail alone, that change, and that come from elsewhere."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_line import Done, call, mistake
from xmtc.core.files import locked
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.data.topk import TopK
from xmtc.experiments.records import cell_names, read_results

SUITE = """
about = "Small."

[datasets.small]
about = "Made up."
train = "small/train.jsonl"
test = "small/test.jsonl"
hold_out = 0.2

[datasets.broken]
train = "broken/train.jsonl"
test = "small/test.jsonl"

[datasets.elsewhere]
train = "elsewhere/train.jsonl"
test = "elsewhere/test.jsonl"
optional = true

[models.both]
model = "consensus"
members = ["popularity", "knn"]
datasets = ["small"]

[models.popularity]

[models.knn]
datasets = ["small"]
settings = { neighbours = 5, power = 1.0 }
calibrate = true
"""
CELLS = ["broken/popularity/0", "small/both/0", "small/knn/0", "small/popularity/0"]


@dataclass(frozen=True)
class Ran:
    """A suite, its data, its results, what was said, and what the cells were after each run."""

    suite: Path
    data: Path
    out: Path
    said: list[Done]
    cells: list[dict[str, bytes]]


def bench(ran: Ran, *more: object, out: Path | None = None, **how: Any) -> Done:
    return call("bench", ran.suite, "--data", ran.data, "--out", out or ran.out, "--threads", 1, *more, **how)


def refused(ran: Ran, *more: object, out: Path | None = None) -> str:
    return mistake("bench", ran.suite, "--data", ran.data, "--out", out or ran.out, *more)


def contents(out: Path) -> dict[str, bytes]:
    return {str(name): (name.within(out) / "cell.json").read_bytes() for name in cell_names(out)}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Three runs: one with a broken file, one after it was mended, and one more."""
    folder = tmp_path_factory.mktemp("bench")
    corpus = PlantedCorpus(documents=460, labels=25, words_per_document=25, seed=3)
    lines = []
    for batch in corpus.batches():
        for text, labels in zip(batch.texts, batch.labels, strict=True):  # without ids
            lines.append(json.dumps({"text": text, "labels": [corpus.label_name(label) for label in labels]}))
    for name, part in (("small/train", lines[:400]), ("small/test", lines[400:]), ("broken/train", [lines[0], "{"])):
        path = folder / "data" / f"{name}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(part) + "\n")
    (folder / "suite.toml").write_text(SUITE)
    ran = Ran(folder / "suite.toml", folder / "data", folder / "out", [], [])
    for _ in range(3):
        ran.said.append(bench(ran, ok=False))
        ran.cells.append(contents(ran.out))
        (ran.data / "broken" / "train.jsonl").write_text("\n".join(lines[:200]) + "\n")
    return ran


def test_a_cell_that_fails_does_not_stop_the_others(ran: Ran) -> None:
    first = ran.said[0]
    assert first.status == 2
    assert sorted(ran.cells[0]) == CELLS[1:]
    assert f"{ran.out}: 3 runs completed, 0 already complete, 1 failed" in first.out
    *told, last = first.err.splitlines()
    assert told[0] == f"skipped: elsewhere: no files in {ran.data}"
    broken = f"{ran.data / 'broken' / 'train.jsonl'}:2: invalid JSON"
    assert next(line for line in told if "failed" in line).startswith(f"broken/popularity/0: failed: {broken}")
    assert last.startswith(f"xmtc: broken/popularity/0: {broken}")
    assert last.endswith(" Fix the cause and repeat the command: complete runs are kept.")
    assert "Next:" not in first.out


def test_the_next_run_does_the_rest_and_the_one_after_nothing(ran: Ran) -> None:
    assert [done.status for done in ran.said] == [2, 0, 0]
    assert f"{ran.out}: 1 run completed, 3 already complete, 0 failed" in ran.said[1].out
    assert "[4/4] broken/popularity/0" in ran.said[1].err
    assert f"{ran.out}: 0 runs completed, 4 already complete, 0 failed" in ran.said[2].out
    assert f"Next: xmtc report {ran.out} --out report.html" in ran.said[2].err
    assert sorted(ran.cells[1]) == CELLS
    assert ran.cells[0].items() < ran.cells[1].items() == ran.cells[2].items()


def test_what_a_cell_keeps(ran: Ran) -> None:
    cells = {str(cell.name): cell for cell in read_results(ran.out).cells}
    knn = cells["small/knn/0"]
    assert (knn.kind, knn.suite, knn.documents) == ("knn", "suite", 60)
    assert knn.settings["neighbours"] == 5
    assert knn.settings["text"]["min_df"] >= 1, "resolved"
    assert knn.made_of["seed"] == 0
    assert set(knn.made_of["data"]["files"]) == {"train", "test"}
    assert knn.seconds["train"] > 0
    assert knn.memory["host"] is not None
    assert knn.memory["host"] > 10**7
    assert knn.model_bytes is not None
    assert knn.model_bytes > 1000
    assert knn.threshold is not None, "calibrated"
    assert cells["small/popularity/0"].threshold is None
    assert knn.command == f"xmtc bench {ran.suite} --data DATA --out DIR --only small/knn/0"
    assert cells["small/both/0"].settings["members"] == ["small/popularity/0", "small/knn/0"]
    assert set(cells["small/both/0"].made_of["members"]) == {"small/popularity/0", "small/knn/0"}
    for cell in cells.values():
        kept = {path.name for path in cell.name.within(ran.out).iterdir()}
        assert kept == {"cell.json", *cell.files}, "models are not kept"
    record = read_results(ran.out).datasets["small"]
    assert (record.about, record.statistics["documents"]) == ("Made up.", 320)
    assert len(record.overlap) == 3


def test_measures_are_those_of_the_predictions(ran: Ran) -> None:
    truth = [set(json.loads(line)["labels"]) for line in (ran.data / "small" / "test.jsonl").open()]
    for cell in read_results(ran.out).cells:
        top = TopK.read(cell.name.within(ran.out) / "predictions.parquet").names()
        hits = [names[0] in labels for names, labels in zip(top, truth, strict=True)]
        assert cell.metrics["P@1"] == pytest.approx(sum(hits) / 60)
    valid = TopK.read(ran.out / "cells/small/knn/0/valid.parquet")
    assert len(valid) == 80
    assert len(set(valid.ids)) == 80


def test_the_same_seed_gives_the_same_bits(ran: Ran, tmp_path: Path) -> None:
    bench(ran, "--only", "small/knn", "--keep-models", out=tmp_path / "again")
    old, new = (json.loads(contents(out)["small/knn/0"]) for out in (ran.out, tmp_path / "again"))
    for name in ("metrics", "made_of", "files", "groups", "tail", "reliability", "threshold", "settings"):
        assert old[name] == new[name], name
    assert call("predict", tmp_path / "again/cells/small/knn/0/model", "--text", "x").out, "it was kept"


def test_what_changed_is_refused_and_run_anew_alone(ran: Ran, tmp_path: Path) -> None:
    before = contents(ran.out)
    suite = tmp_path / "suite.toml"
    suite.write_text(SUITE.replace("neighbours = 5", "neighbours = 6"))
    changed = Ran(suite, ran.data, ran.out, [], [])
    words = "was run with different settings (and 1 more). Run it again with --force, or choose another folder."
    assert refused(changed) == f"{ran.out / 'cells/small/knn/0'}: {words}"
    suite.write_text(SUITE.replace("calibrate = true", ""))
    said = refused(changed, "--only", "*/knn")
    assert said.startswith(f"{ran.out / 'cells/small/knn/0'}: was run with different calibration. Run it again")
    assert contents(ran.out) == before
    path = ran.data / "broken" / "train.jsonl"
    path.write_text("".join(path.open().readlines()[:150]))
    assert "cells/broken/popularity/0: was run with different data. Run it again with --force" in refused(ran)
    done = bench(ran, "--force")
    assert f"{ran.out}: 1 run completed, 3 already complete, 0 failed" in done.out
    after = contents(ran.out)
    assert {name for name in before if before[name] != after[name]} == {"broken/popularity/0"}


def test_nothing_is_made_of_what_changed(ran: Ran, tmp_path: Path) -> None:
    """Neither of members that are not there, nor of those that were run with other settings."""
    suite, before = tmp_path / "suite.toml", contents(ran.out)
    suite.write_text(SUITE.replace("neighbours = 5", "neighbours = 6"))
    changed = Ran(suite, ran.data, ran.out, [], [])
    done = bench(changed, "--only", "small/both", "--force", ok=False)
    assert done.status == 2
    assert "small/both/0: needs small/knn/0, which was run with different settings. Run it again" in done.err
    assert contents(ran.out) == before
    done = bench(ran, "--only", "small/both", out=tmp_path / "new", ok=False)
    assert done.status == 2
    assert "small/both/0: needs small/popularity/0, which is incomplete or failed. Run it too." in done.err


def test_damaged_records(ran: Ran, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shutil.copytree(ran.out, out)
    path = out / "cells/broken/popularity/0/cell.json"
    path.write_text("{")
    assert refused(ran, out=out) == f"{path}: damaged. Copy or run it again."
    (path.with_name("begun.json")).write_text("[")
    path.unlink()
    assert "1 run completed, 3 already complete" in bench(ran, out=out).out  # what was only begun is no loss
    (out / "bench.json").unlink()
    path.write_text("{")
    assert "1 run completed, 3 already complete" in bench(ran, "--force", out=out).out


def test_a_model_of_which_nothing_is_known_is_not_taken(ran: Ran, tmp_path: Path) -> None:
    """Whoever removes a damaged cell.json leaves the model, which may be one with other settings."""
    out, suite = tmp_path / "out", tmp_path / "suite.toml"
    bench(ran, "--only", "small/knn", "--keep-models", out=out)
    before = read_results(out).cells[0].metrics
    (out / "cells/small/knn/0/cell.json").unlink()
    suite.write_text(SUITE.replace("neighbours = 5", "neighbours = 1"))
    bench(Ran(suite, ran.data, out, [], []), "--only", "small/knn", out=out)
    (cell,) = read_results(out).cells
    assert cell.settings["neighbours"] == 1
    assert cell.metrics != before


def test_a_consensus_does_not_depend_on_models_being_at_hand(ran: Ran, tmp_path: Path) -> None:
    """Made anew where the models of its members are gone, it says the same, counts of labels included."""
    out = tmp_path / "out"
    shutil.copytree(ran.out, out)
    shutil.rmtree(out / "cells/small/both")
    bench(ran, out=out)
    metrics = {str(cell.name): cell.metrics for cell in read_results(out).cells}
    assert metrics == {str(cell.name): cell.metrics for cell in read_results(ran.out).cells}
    assert "PSP@5" in metrics["small/both/0"]
    facts = {str(cell.name): cell.facts for cell in read_results(out).cells}["small/both/0"]
    assert facts
    assert not any("/" in fact for fact in facts), "no places of this machine"


def test_one_folder_holds_one_suite(ran: Ran, tmp_path: Path) -> None:
    other = tmp_path / "other.toml"
    other.write_text(SUITE)
    line = refused(Ran(other, ran.data, ran.out, [], []))
    assert line == f"{ran.out}: contains results of 'suite'. Choose another folder."


# ---- from elsewhere


def test_cells_from_elsewhere(ran: Ran, tmp_path: Path) -> None:
    here = tmp_path / "here"
    assert call("bench", "import", ran.out, "--out", here).out == f"{ran.out}: 4 runs imported, 0 already present\n"
    assert contents(here) == contents(ran.out)
    assert call("bench", "import", ran.out, "--out", here).out == f"{ran.out}: 0 runs imported, 4 already present\n"
    assert read_results(here).datasets == read_results(ran.out).datasets

    # What the consensus is made of are files now, in which each label has another number than in the other file.
    shutil.rmtree(here / "cells/small/both")
    done = bench(ran, out=here)
    assert f"{here}: 1 run completed, 3 already complete, 0 failed" in done.out
    scores = {str(cell.name): cell.metrics["P@1"] for cell in read_results(here).cells}
    assert scores["small/both/0"] >= scores["small/knn/0"] - 0.05 > scores["small/popularity/0"] + 0.2
    assert scores["small/knn/0"] > 0.5


def test_a_results_file_says_what_the_folder_says(ran: Ran, tmp_path: Path) -> None:
    file, back = tmp_path / "suite.jsonl", tmp_path / "back"
    assert call("bench", "export", ran.out, "--out", file).out == f"{file}: 4 runs\n"
    records = [json.loads(line)["record"] for line in file.read_text().splitlines()]
    assert records == ["suite", "dataset", "dataset", "run", "run", "run", "run"]
    folder, exported = read_results(ran.out), read_results(file)
    assert (exported.suite, exported.study, exported.datasets) == (folder.suite, folder.study, folder.datasets)
    assert [cell.to_json() for cell in exported.cells] == [cell.to_json() for cell in folder.cells]
    for number, source in enumerate((ran.out, file)):
        call("report", source, "--out", tmp_path / f"{number}.html")
    assert (tmp_path / "0.html").read_bytes() == (tmp_path / "1.html").read_bytes()
    assert (tmp_path / "0.md").read_bytes() == (tmp_path / "1.md").read_bytes()

    assert call("bench", "import", file, "--out", back).out == f"{file}: 4 runs imported, 0 already present\n"
    assert call("bench", "import", file, "--out", back).out == f"{file}: 0 runs imported, 4 already present\n"
    written = [
        {str(path.relative_to(out)): path.read_bytes() for path in out.rglob("*.json*") if "made" not in path.parts}
        for out in (back, ran.out)
    ]
    assert written[0] == written[1], "all but the predictions"
    assert not any(back.rglob("*.parquet"))


def test_exports_that_are_refused(ran: Ran, tmp_path: Path) -> None:
    file = tmp_path / "suite.jsonl"
    assert mistake("bench", "export", "--out", file).startswith(
        "bench export requires one folder of results. Write: xmtc bench"
    )
    assert "--list and --keep-models cannot be used with bench export" in mistake(
        "bench", "export", ran.out, "--out", file, "--list"
    )
    assert mistake("bench", "export", tmp_path, "--out", file).startswith(f"{tmp_path / 'bench.json'}: cannot be read")
    line = mistake("bench", "export", ran.out, "--out", tmp_path / "suite.json")
    assert line == f"{tmp_path / 'suite.json'}: results files must be JSON Lines. Use the extension .jsonl."
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        (lambda lines: lines[:1] + lines[2:] + ["{"], 7, "invalid JSON"),
        (lambda lines: lines[1:], 1, "format not supported by this version of xmtc. Export the results again."),
        (
            lambda lines: [lines[0], lines[0]],
            2,
            "format not supported by this version of xmtc. Export the results again.",
        ),
        (lambda lines: [*lines, lines[-1]], 8, "'small/popularity/0' is a duplicate. Export the results again."),
        (
            lambda lines: [*lines[:-1], lines[-1].replace('"metrics"', '"measures"')],
            7,
            "damaged, 'measures' is missing or unknown",
        ),
        (lambda lines: [*lines[:-1], lines[-1].replace('"memory": {', '"memory": {"x": [], ')], 7, "damaged, 'memory'"),
    ],
)
def test_damaged_results_files(ran: Ran, tmp_path: Path, change: Any, line: int, words: str) -> None:
    file = tmp_path / "suite.jsonl"
    call("bench", "export", ran.out, "--out", file)
    file.write_text("".join(f"{each}\n" for each in change(file.read_text().splitlines())))
    assert mistake("report", file, "--out", tmp_path / "page.html").startswith(f"{file}:{line}: {words}")


def test_imports_that_are_refused(ran: Ran, tmp_path: Path) -> None:
    theirs, here = tmp_path / "theirs", tmp_path / "here"
    shutil.copytree(ran.out, theirs)
    call("bench", "import", theirs, "--out", here)
    before = contents(here)

    path = theirs / "cells/small/knn/0/predictions.parquet"
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    said = mistake("bench", "import", theirs, "--out", tmp_path / "new")
    assert said == f"{path}: does not match the hash recorded in the run. Copy it again."
    assert not contents(tmp_path / "new")
    path.write_bytes(whole)

    cell = theirs / "cells/small/popularity/0/cell.json"
    values = json.loads(cell.read_text())
    cell.write_text(json.dumps(values | {"metrics": {**values["metrics"], "P@1": 0.99}}))
    (theirs / "cells/broken/popularity/0").rename(theirs / "cells/broken/popularity/5")
    renamed = theirs / "cells/broken/popularity/5/cell.json"
    renamed.write_text(renamed.read_text().replace("broken/popularity/0", "broken/popularity/5"))
    said = mistake("bench", "import", theirs, "--out", here)
    place = here / "cells/small/popularity/0"
    assert said == f"{place}: already exists with other results. Replace it with --force."
    assert contents(here) == before, "all or nothing"
    assert "2 runs imported, 2 already present" in call("bench", "import", theirs, "--out", here, "--force").out
    assert json.loads(contents(here)["small/popularity/0"])["metrics"]["P@1"] == 0.99

    record = theirs / "datasets/small.json"
    values = json.loads(record.read_text())
    record.write_text(json.dumps(values | {"files": values["files"] | {"test": "0" * 64}}))
    said = mistake("bench", "import", theirs, "--out", here)
    reason = "data set 'small' has different files from the one to import"
    assert said == f"{here}: {reason}. Import into a new folder."

    said = mistake("bench", "import", here, "--out", here)
    assert said == f"{here}: is both source and target of the import. Choose another folder."
    assert "Write: xmtc bench import FROM --out DIR" in mistake("bench", "import", "--out", here)
    assert "bench.json: cannot be read" in mistake("bench", "import", tmp_path / "no", "--out", here)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    said = mistake("bench", "import", here, "--out", tmp_path / "mine")
    assert said == f"{tmp_path / 'mine'}: contains other files ('letter.txt'). Choose a new or empty folder."
    shutil.rmtree(theirs / "cells")
    said = mistake("bench", "import", theirs, "--out", here)
    assert said == f"{theirs}: contains no complete run. Run the suite first."


# ---- what is asked for


def test_lists(ran: Ran) -> None:
    listed = call("bench").out
    assert all(name in listed for name in ("quick", "classic", "eurlex57k", "papers", "tibkat-gnd"))
    done = call("bench", ran.suite, "--list", "--out", ran.out)
    assert done.out.splitlines() == [
        "complete  small/popularity/0",
        "complete  small/knn/0",
        "complete  small/both/0",
        "complete  broken/popularity/0",
        "to run    elsewhere/popularity/0",
    ]
    assert call("bench", ran.suite, "--list", "--only", "small/knn").out == "to run    small/knn/0\n"


def test_json(ran: Ran, tmp_path: Path) -> None:
    done = bench(ran, "--json", "--quiet")
    assert done.err == ""
    found = json.loads(done.out)
    assert (found["completed"], found["failed"]) == ([], {})
    assert sorted(found["already_complete"]) == sorted(run["run"] for run in found["runs"]) == CELLS
    assert all(0 <= run["P@1"] <= 1 for run in found["runs"])
    copied = json.loads(call("bench", "import", ran.out, "--out", tmp_path / "copy", "--json").out)
    assert len(copied["sources"][0]["imported"]) == 4
    written = json.loads(call("bench", "export", ran.out, "--out", tmp_path / "x.jsonl", "--json").out)
    assert written == {"file": str(tmp_path / "x.jsonl"), "runs": 4}


def test_mistakes(ran: Ran, tmp_path: Path) -> None:
    assert mistake("bench", ran.suite) == "bench requires a folder for the results. Add --out DIR."
    assert mistake("bench", ran.suite, "b", "--out", tmp_path / "x") == "bench runs one suite at a time. Leave out 'b'."
    assert mistake("bench", "quik", "--out", tmp_path / "x").startswith("no suite 'quik'. Did you mean 'quick'?")
    said = mistake("bench", ran.suite, "--data", tmp_path, "--out", tmp_path / "x")
    assert said.startswith(
        f"{tmp_path / 'small/train.jsonl'}: no such file (required by data set 'small' of the suite)"
    )
    assert refused(ran, "--only", "small/kn").startswith("--only small/kn: matches no run.")
    (tmp_path / "file").touch()
    assert refused(ran, out=tmp_path / "file") == f"{tmp_path / 'file'}: is a file. Pass a folder."
    assert refused(ran, out=tmp_path) == f"{tmp_path}: contains other files ('file'). Choose a new or empty folder."
    done = bench(ran, "--only", "elsewhere", out=tmp_path / "x", ok=False)
    assert done.err.splitlines()[-1] == "xmtc: suite: no run of the suite can start. See the reasons above."
    with locked(ran.out):
        said = refused(ran)
        assert said == f"{ran.out}: another process is running in this folder. Wait for it, or choose another folder."
        assert "another process is running in this folder" in refused(ran, "--only", "small/knn", "--force")


def test_settings_that_do_not_exist(ran: Ran, tmp_path: Path) -> None:
    suite = tmp_path / "typo.toml"
    suite.write_text(SUITE.replace("neighbours", "neighbors"))
    said = mistake("bench", suite, "--data", ran.data, "--out", tmp_path / "out")
    assert said.startswith("model 'knn' of suite 'typo', on small: knn has no setting 'neighbors'. Did you mean")
    suite.write_text(SUITE.replace("[models.popularity]", '[models.popularity]\nrecipe = "{dataset}/popularity"'))
    said = mistake("bench", suite, "--data", ran.data, "--out", tmp_path / "out")
    assert said.startswith("model 'popularity' of suite 'typo', on small: ")
    assert "small/popularity" in said


def test_only_the_data_that_is_asked_for_has_to_be_there(ran: Ran, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "small").mkdir(parents=True)
    for name in ("train", "test"):
        shutil.copy(ran.data / "small" / f"{name}.jsonl", data / "small")
    out = tmp_path / "out"
    shutil.copytree(ran.out, out)
    done = call("bench", ran.suite, "--data", data, "--out", out, "--only", "small")
    assert "0 runs completed, 3 already complete" in done.out
    assert "broken/train.jsonl: no such file" in mistake("bench", ran.suite, "--data", data, "--out", out)


# ---- interrupted


@pytest.mark.long
def test_an_interrupt_ends_both_processes_and_the_same_command_goes_on(tmp_path: Path) -> None:
    suite = tmp_path / "slow.toml"
    planted = "planted = { documents = 3000, test = 20, labels = 800 }"
    suite.write_text(f"[datasets.made]\n{planted}\n[models.popularity]\n[models.one_vs_all]\n")
    command = [sys.executable, "-m", "xmtc", "bench", str(suite), "--out", "out", "--threads", "1"]
    how: dict[str, Any] = {"cwd": tmp_path, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    work = tmp_path / "out/cells/made/one_vs_all/0/model.work"
    with subprocess.Popen(command, **how) as process:
        until = time.monotonic() + 60
        while not any(work.glob("*.safetensors")) and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        child = int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])
        process.send_signal(signal.SIGINT)  # to it alone
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert said.splitlines()[-1].startswith("xmtc: interrupted. Finished runs, and finished parts of the last one,")
    assert "Traceback" not in said
    with pytest.raises(ProcessLookupError):
        os.kill(child, 0)
    assert list(contents(tmp_path / "out")) == ["made/popularity/0"]
    before = {path.name for path in work.glob("*.safetensors")}
    assert before
    done = subprocess.run(command, check=True, timeout=120, **how)
    assert "out: 1 run completed, 1 already complete, 0 failed" in done.stdout
    cell = {str(each.name): each for each in read_results(tmp_path / "out").cells}["made/one_vs_all/0"]
    assert cell.resumed
