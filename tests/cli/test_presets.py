"""`xmtc train` with a preset: what it prints, what it leaves, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_line import call, mistake
from xmtc import load
from xmtc.artifact.store import read_manifest


@pytest.fixture(scope="module")
def good(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """A model of the preset good, and what the command printed."""
    out = tmp_path_factory.mktemp("good") / "model"
    arguments = ("--preset", "good", "--minutes", "0.5", "--valid", data / "test.txt")
    done = call("train", data / "train.txt", "--out", out, *arguments)
    return out, done.out, done.err


def test_it_prints_plan_and_leaderboard(good: tuple[Path, str, str]) -> None:
    _, printed, noted = good
    assert "preset good: 600 documents, 40 labels" in noted
    assert "100 documents given for validation" in noted
    assert "estimated" in noted
    assert "* member of the final model" in printed
    assert "saved " in printed


def test_it_leaves_the_model_its_record_and_a_page(good: tuple[Path, str, str]) -> None:
    out = good[0]
    names = sorted(path.name for path in out.parent.iterdir())
    assert names == ["model", "model.leaderboard.html", "model.leaderboard.json"]
    board = json.loads((out.parent / "model.leaderboard.json").read_text())
    assert board["preset"] == "good"
    assert load(out).training["preset"]["metric"] == "nDCG@5"


def test_models_shows_what_was_tried(good: tuple[Path, str, str]) -> None:
    shown = call("models", good[0]).out
    assert "Chosen by the preset good by nDCG@5" in " ".join(shown.split())
    assert "knn" in shown


def test_a_text_model_is_served_by_the_other_commands(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "m"
    call("train", data / "train.jsonl", "--out", out, "--preset", "good", "--minutes", "0.4")
    assert "nDCG@5" in call("evaluate", out, data / "test.jsonl").out
    text = json.loads((data / "test.jsonl").read_text().splitlines()[0])["text"]
    best = call("predict", out, "--text", text, "-k", "1").out
    label = load(out).predict([text], 1).names()[0][0]
    assert label in best
    assert call("explain", out, "--text", text, "--label", label).out


def test_fast_is_the_default(data: Path, tmp_path: Path) -> None:
    done = call("train", data / "train.jsonl", "--out", tmp_path / "m")
    assert "(preset fast; choose another with --model NAME, or try --preset good)" in done.err
    manifest = read_manifest(tmp_path / "m")
    assert manifest["training"]["preset"]["name"] == "fast"
    assert "Chosen by the preset fast" in call("models", tmp_path / "m").out


REFUSED = {
    "--preset chooses the model and its settings. Leave out --model, or --preset.": (
        "--preset",
        "good",
        "--model",
        "knn",
    ),
    "--preset chooses the model and its settings. Leave out --set, or --preset.": ("--preset", "fast", "--set", "a=1"),
    "--minutes can only be used with --preset good or best. Add one of them.": ("--minutes", "3"),
    "--minutes must be a finite number > 0. Got 0.": ("--preset", "best", "--minutes", "0"),
    "--unlabelled can only be used with --distil.": ("--preset", "good", "--unlabelled", "x.jsonl"),
    "--distil must be one of bonsai, one_vs_all, parabel. Got 'knn'.": ("--preset", "good", "--distil", "knn"),
    "--encoder can only be used with --preset best. Add it, or leave out --encoder.": (
        "--preset",
        "good",
        "--encoder",
        "minilm",
    ),
    "minilm: no config.json. Pass the folder of a pretrained encoder.": ("--preset", "best", "--encoder", "minilm"),
    "--metric must be one of": ("--preset", "good", "--metric", "F2"),
    "--max-ms and --max-mb limit combined models. Leave them out, or --distil.": (
        "--preset",
        "good",
        "--max-mb",
        "5",
        "--distil",
        "parabel",
    ),
    "missing.txt: no such file. Check the path.": (
        "--preset",
        "good",
        "--distil",
        "parabel",
        "--unlabelled",
        "missing.txt",
    ),
}


@pytest.mark.parametrize(("message", "arguments"), REFUSED.items())
def test_refused(data: Path, tmp_path: Path, message: str, arguments: tuple[str, ...]) -> None:
    assert message in mistake("train", data / "train.jsonl", "--out", tmp_path / "m", *arguments)
    assert list(tmp_path.iterdir()) == []


def test_validation_documents_exclude_a_split(data: Path, tmp_path: Path) -> None:
    arguments = ("--preset", "good", "--valid", data / "test.jsonl", "--split-by", "year")
    message = mistake("train", data / "train.jsonl", "--out", tmp_path / "m", *arguments)
    assert "--split-by holds out training documents and cannot be used with --valid." in message


@pytest.mark.parametrize("name", ["plain.txt", "texts.jsonl"])
def test_texts_without_labels_are_learnt_from(data: Path, tmp_path: Path, name: str) -> None:
    texts = [json.loads(line)["text"] for line in (data / "test.jsonl").read_text().splitlines()]
    lines = texts if name == "plain.txt" else [json.dumps({"text": text}) for text in texts]
    (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    arguments = ("--preset", "good", "--minutes", "0.2", "--distil", "parabel", "--unlabelled", tmp_path / name)
    call("train", data / "train.jsonl", "--out", tmp_path / "m", *arguments)
    assert load(tmp_path / "m").name == "parabel"


def test_a_field_that_splits_nothing_is_refused_before_training(data: Path, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    (tmp_path / "one.jsonl").write_text(
        "".join(json.dumps({**line, "clinic": "the only one"}) + "\n" for line in lines)
    )
    arguments = ("--out", tmp_path / "m", "--preset", "good", "--minutes", "0.2", "--split-by")
    for field in ("clinic", "clinic:time"):
        assert "clinic" in mistake("train", tmp_path / "one.jsonl", *arguments, field)
        assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]


def test_the_latest_documents_are_held_out(data: Path, tmp_path: Path) -> None:
    dated = tmp_path / "dated.jsonl"
    lines = [json.loads(line) for line in (data / "train.jsonl").read_text().splitlines()]
    dated.write_text("".join(json.dumps({**line, "year": 2000 + row % 20}) + "\n" for row, line in enumerate(lines)))
    arguments = ("--preset", "good", "--minutes", "0.3", "--split-by", "year")
    done = call("train", dated, "--out", tmp_path / "m", *arguments)
    assert "by 'year', from 20" in " ".join(done.err.split())
    assert "the latest" in done.err
