"""`xmtc experiment`: studies of made-up documents, each with its figure and the table behind it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.support.command_line import Done, call, mistake
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.experiments.records import Cell, read_results


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Documents to learn from and to measure on, with fields of their own, so that they have to be named."""
    folder = tmp_path_factory.mktemp("news")
    corpus = PlantedCorpus(documents=460, labels=25, words_per_document=25, seed=3)
    lines = []
    for batch in corpus.batches():
        for text, labels in zip(batch.texts, batch.labels, strict=True):
            lines.append(json.dumps({"words": text, "labels": [corpus.label_name(label) for label in labels]}) + "\n")
    train, test = folder / "train.jsonl", folder / "test.jsonl"
    train.write_text("".join(lines[:400]))
    test.write_text("".join(lines[400:]))
    return train, test


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def experiment(kind: str, files: tuple[Path, Path], out: Path, *more: object) -> Done:
    return call("experiment", kind, *files, "--text-field", "words", "--out", out, "--threads", 1, *more)


def cells(out: Path) -> dict[str, Cell]:
    return {str(cell.name): cell for cell in read_results(out).cells}


def table(out: Path) -> dict[str, list[str]]:
    """Rows of table.md without marks of what is best."""
    lines = [line for line in (out / "table.md").read_text().splitlines() if line.startswith("|")]
    rows = [[each.strip().replace("**", "") for each in line.strip("|").split("|")] for line in lines]
    return {row[0]: row[1:] for row in (rows[0], *rows[2:])}


@pytest.mark.long
def test_noise(files: tuple[Path, Path], out: Path) -> None:
    more = ("--model", "knn", "--set", "neighbours=5", "--rates", "0,0.6")
    done = experiment("noise", files, out, *more)
    name = files[0].parent.name
    assert f"{out}: 3 runs completed, 0 already complete, 0 failed" in done.out
    found = cells(out)
    assert sorted(found) == sorted(f"{name}-{kind}/knn/0" for kind in ("clean", "missing-60", "flip-60"))
    scores = {kind: found[f"{name}-{kind}/knn/0"].metrics["P@1"] for kind in ("clean", "missing-60", "flip-60")}
    assert scores["clean"] > scores["flip-60"], "wrong labels do harm"
    rows = table(out)
    assert rows["model"] == ["0 %", "60 %"]
    assert rows["knn, missing"] == [f"{100 * scores['clean']:.2f}", f"{100 * scores['missing-60']:.2f}"]
    assert rows["knn, flip"] == [f"{100 * scores['clean']:.2f}", f"{100 * scores['flip-60']:.2f}"]
    assert (out / "table.md").read_text() in done.out
    ElementTree.fromstring((out / "figure.svg").read_text())
    assert f"{out / 'figure.svg'}: figure; {out / 'table.md'}: table" in done.err
    command = found[f"{name}-clean/knn/0"].command
    assert command.startswith(
        "xmtc experiment noise train.jsonl test.jsonl --model knn --set neighbours=5 --rates 0,0.6"
    )
    assert "--text-field words" in command

    # Choices are made on the same clean documents at every rate.
    seen = {len(each.made_of["data"]["files"]) for each in found.values()}
    assert seen == {2}
    assert {each.made_of["data"]["hold_out"] for each in found.values()} == {0.2}

    again = experiment("noise", files, out, *more)
    assert f"{out}: 0 runs completed, 3 already complete, 0 failed" in again.out
    assert "was run with different settings" in mistake(
        *("experiment", "noise", *files, "--text-field", "words", "--out", out, "--model", "knn", "--rates", "0")
    )

    # Another model joins; another study is refused.
    experiment("noise", files, out, "--model", "popularity", "--rates", "0,0.6")
    assert set(table(out)) == {"model", "knn, missing", "knn, flip", "popularity, missing", "popularity, flip"}
    assert "contains results of 'noise'. Choose another folder." in mistake(
        *("experiment", "tail", *files, "--text-field", "words", "--out", out, "--model", "popularity")
    )


@pytest.mark.long
def test_ablation(files: tuple[Path, Path], out: Path) -> None:
    done = experiment("ablation", files, out, "--model", "knn", "--set", "neighbours=5", "--set", "power=2.0")
    assert f"{out}: 3 runs completed, 0 already complete, 0 failed" in done.out
    rows = table(out)
    assert set(rows) == {"model", "full model", "one-neighbour", "equal-votes"}
    found, name = cells(out), files[0].parent.name
    assert rows["full model"][0] == f"{100 * found[f'{name}/knn/0'].metrics['P@1']:.2f}"
    assert rows["one-neighbour"][-1] == "neighbours=1"
    assert rows["equal-votes"][-1] == "power=0.0"
    ElementTree.fromstring((out / "figure.svg").read_text())


def test_tail(files: tuple[Path, Path], tmp_path: Path) -> None:
    """--only leaves the rest for later."""
    more = ("--model", "popularity", "--model", "knn", "--set", "neighbours=5")
    assert mistake("experiment", "tail", *files, "--text-field", "words", "--out", tmp_path / "x", *more).startswith(
        "model 'popularity' of suite 'tail', on "
    )
    out = tmp_path / "out"
    done = experiment("tail", files, out, *more[:-2], "--only", "*/knn")
    assert "1 run completed" in done.out
    result = json.loads(experiment("tail", files, out, *more[:-2], "--only", "*/knn", "--json").out)
    assert (len(result["runs"]), result["figure"]) == (1, str(out / "figure.svg"))
    (row,) = (value for key, value in table(out).items() if key == "knn")
    (cell,) = read_results(out).cells
    assert row[0] == f"{100 * cell.tail['min']['P@1']:.2f}"
    assert row[5] == f"{100 * cell.tail['max']['P@20']:.2f}"
    call("report", out, "--out", tmp_path / "report.html")


def test_mistakes(files: tuple[Path, Path], tmp_path: Path) -> None:
    def said(*words: object) -> str:
        return mistake("experiment", *words, "--out", tmp_path / "out")

    noise = ("noise", *files, "--model", "knn")
    assert said(*noise, "--rates", "0,x") == "--rates must be numbers, such as 0,0.2,0.4. Got 'x'."
    assert said(*noise, "--rates", "0,1") == "noise rates must be numbers ≥ 0 and < 1, such as 0,0.2,0.4."
    assert said(*noise, "--kinds", "flop") == "unknown kind of noise 'flop'. Available: missing, flip."
    for seeds in ("x", "-1", "²", "1,,2", "9" * 5000):
        assert said(*noise, "--seeds", seeds).startswith("--seeds must be integers ≥ 0, such as 0,1,2.")
    assert "'seeds' must be a list of distinct integers" in said(*noise, "--seeds", "1,1")
    assert said("noise", *files, "--model", "nkn").startswith("no ")
    assert (
        said("noise", files[0], tmp_path / "no", "--model", "knn")
        == f"{tmp_path / 'no'}: no such file. Check the path."
    )
    assert said(*noise, "--unknown-labels", "keep") == "--unknown-labels must be count or drop. Got 'keep'."
    assert said(*noise, "--on-bad-line", "skip").startswith("--on-bad-line skip cannot be used with studies.")
    assert said(*noise, "--model", "knn").startswith("model 'knn' is given twice.")
    assert said("ablation", *files, "--model", "popularity").startswith("popularity has no components to ablate.")
    assert "--set neighbours" in said(*noise, "--set", "neighbours")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter").touch()
    assert "contains other files" in mistake("experiment", *noise, "--out", tmp_path / "mine")
    assert not (tmp_path / "out").exists()
