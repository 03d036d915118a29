"""`xmtc tune`: a search from the command line, and what it says to mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.command_line import call, mistake
from xmtc.artifact.store import read_manifest
from xmtc.core.config import read_recipe
from xmtc.models.knn import Knn


@pytest.fixture(scope="module")
def done(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A search over knn, three trials."""
    out = tmp_path_factory.mktemp("tune") / "s"
    more = ("--trials", 3, "--search", "neighbours=1..40", "--json", out.with_name("result.json"))
    told = call("tune", "knn", data / "train.jsonl", "--out", out, *more)
    return out, told


def test_what_is_told_and_written(data: Path, done: Any) -> None:
    out, told = done
    assert {path.name for path in out.iterdir()} == {
        *("tuning.json", "trials.jsonl", "recipe.toml", "trials.tsv", "trials.svg", "model")
    }
    trials = [json.loads(line) for line in (out / "trials.jsonl").read_text().splitlines()]
    best = max(trials, key=lambda trial: trial["score"])
    assert trials[0]["settings"] == {"neighbours": "auto"}
    lines = told.out.splitlines()
    assert lines[0].split() == ["defaults", "best"]
    assert lines[2].split() == ["neighbours", "auto", str(best["settings"]["neighbours"])]
    assert lines[3].split() == ["nDCG@5,", "%", *(f"{100 * trial['score']:.2f}" for trial in (trials[0], best))]
    assert f"best: trial {best['number']} of 3 (3 complete)" in lines
    result = json.loads(out.with_name("result.json").read_text())
    assert (result["metric"], result["best"]["score"], len(result["trials"])) == ("nDCG@5", best["score"], 3)
    assert "validation set: 200 documents held out from TRAIN" in lines
    assert f"saved knn in {out / 'model'}, trained on all 600 documents" in lines
    assert told.err.splitlines()[-1].endswith(f"evaluate the model with: xmtc evaluate {out / 'model'} TEST")
    assert sum(line.startswith("trial ") for line in told.err.splitlines()) == 3
    assert read_manifest(out / "model")["settings"]["neighbours"] == best["settings"]["neighbours"]
    call("evaluate", out / "model", data / "test.jsonl")


def test_recipe_trains_the_same_model(data: Path, done: Any, tmp_path: Path) -> None:
    out, _ = done
    name, _ = read_recipe(out / "recipe.toml")
    assert name == "knn"
    call("train", data / "train.jsonl", "--config", out / "recipe.toml", "--out", tmp_path / "m")
    assert read_manifest(tmp_path / "m")["settings"] == read_manifest(out / "model")["settings"]


def test_interrupted_and_resumed(data: Path, tmp_path: Path) -> None:
    out = tmp_path / "s"
    command = ("tune", "knn", data / "train.jsonl", "--valid", data / "test.jsonl", "--trials", 3, "--out", out)
    original, seen = Knn._fit, iter(range(10))

    def interrupted(self: Knn, *given: Any) -> None:
        if next(seen) == 1:
            raise KeyboardInterrupt
        original(self, *given)

    with mock.patch.object(Knn, "_fit", interrupted):
        stopped = call(*command, "--no-refit", ok=False)
    assert stopped.status == 130
    assert stopped.err.splitlines()[-1] == (
        f"xmtc: interrupted. 1 finished trial is in {out}. To resume, repeat the command with --resume."
    )
    assert "already contains a search" in mistake(*command)
    resumed = call(*command, "--no-refit", "--resume")
    assert "validation set: 100 documents from --valid" in resumed.out
    assert f"train with the best settings: xmtc train TRAIN --config {out / 'recipe.toml'} --out DIR" in resumed.out
    assert len((out / "trials.jsonl").read_text().splitlines()) == 3
    assert not (out / "model").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["knnn", "train.jsonl"], "no model 'knnn'. Did you mean 'knn'?"),
        (["knn", "nowhere.jsonl"], "nowhere.jsonl: no such file."),
        (["popularity", "train.jsonl"], "popularity has no settings to search."),
        (["knn", "train.jsonl", "--search", "neigbours"], "knn has no setting 'neigbours'. Did you mean 'neighbours'?"),
        (["knn", "train.jsonl", "--search", "power=5..1"], "--search power=5..1: empty range."),
        (["knn", "train.jsonl", "--resume"], "no search to resume. Leave out --resume."),
        (["knn", "train.jsonl", "--measure", "accuracy"], "unknown metric 'accuracy'."),
        (["knn", "train.jsonl", "--language", "de"], "--language can only be used with --labels FILE."),
        (
            ["knn", "train.txt"],
            "all searched settings of knn concern text, but the documents are precomputed features.",
        ),
        (["knn", "empty.jsonl"], "empty.jsonl: no document has a label. Check the label field."),
    ],
)
def test_mistakes(data: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "empty.jsonl").write_text('{"text": "a", "labels": []}\n' * 5)
    name, file, *rest = arguments
    place = tmp_path / file if file == "empty.jsonl" else data / file
    assert message in mistake("tune", name, place, *rest, "--out", tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_models_shows_what_is_tried() -> None:
    told = " ".join(call("models", "parabel").out.split())
    assert "; tuned over 0.05 to 10, log scale]" in told
    assert "tuned over" not in call("models", "popularity").out
