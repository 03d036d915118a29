"""JSON and TOML that is nested too deeply or has impossible numbers, in every file a command reads: one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command_line import mistake

HOSTILE = {
    "lists": "[" * 100_000,
    "objects": '{"a":' * 100_000,
    "900 levels": "[" * 900 + "]" * 900,
    "5,000 digits": "9" * 5000,
}


@pytest.fixture(params=HOSTILE)
def hostile(request: pytest.FixtureRequest) -> str:
    return HOSTILE[request.param]


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


class TestEveryFile:
    def test_documents(self, hostile: str, tmp_path: Path) -> None:
        first = '{"text": "a", "labels": ["b"]}\n'
        for field in ("id", "text", "labels"):
            path = written(tmp_path / "d.jsonl", f'{first}{{"text": "a", "labels": ["b"], "{field}": {hostile}}}\n')
            assert mistake("data", "describe", path).startswith(f"{path}:2: ")

    def test_recipes_and_settings(self, data: Path, hostile: str, tmp_path: Path) -> None:
        train = ("train", data / "train.jsonl", "--model", "one_vs_all", "--out", tmp_path / "m")
        for text in (f"[settings]\ntext.min_df = {hostile}", "[settings]\na" + ".a" * 100_000 + " = 1"):
            path = written(tmp_path / "r.toml", text)
            assert mistake(*train, "--config", path).startswith(f"{path}: invalid TOML (")
        assert mistake(*train, "--set", f"text.min_df={hostile}").startswith(("--set text.min_df=", "'min_df' of text"))
        tune = ("tune", "one_vs_all", data / "train.jsonl", "--out", tmp_path / "t", "--search")
        for values in (f"1..{hostile}", f"[1, {hostile}]"):
            assert "min_df" in mistake(*tune, f"text.min_df={values}")

    def test_predictions(self, data: Path, hostile: str, tmp_path: Path) -> None:
        for field in ("key", "score", "other"):
            line = f'{{"id": "0", "labels": [{{"key": "a", "score": 1, "{field}": {hostile}}}]}}\n'
            path = written(tmp_path / "p.jsonl", line)
            assert mistake("evaluate", "--predictions", path, data / "test.jsonl").startswith(f"{path}:1: ")
        path = written(tmp_path / "parts" / "_answers.json", hostile)
        assert mistake("evaluate", "--predictions", path.parent, data / "test.jsonl").startswith(f"{path}: damaged")

    def test_vocabularies(self, data: Path, hostile: str, tmp_path: Path) -> None:
        train = ("train", data / "train.jsonl", "--model", "popularity", "--out", tmp_path / "m", "--labels")
        path = written(tmp_path / "l.jsonl", f'{{"key": "a", "name": "A", "other": {hostile}}}\n')
        assert mistake(*train, path).startswith(f"{path}:1: ")
        path = written(tmp_path / "l.jsonld", f'{{"@graph": [{{"@id": "a", "b": {hostile}}}]}}')
        assert mistake(*train, path).startswith(f"{path}")

    def test_interrupted_work(self, data: Path, hostile: str, tmp_path: Path) -> None:
        path = written(tmp_path / "m.work" / "training.json", hostile)
        line = mistake("train", data / "train.jsonl", "--out", tmp_path / "m", "--resume")
        assert line == f"{path}: damaged. Start over with --force."
        path = written(tmp_path / "t" / "tuning.json", hostile)
        tune = ("tune", "one_vs_all", data / "train.jsonl", "--out", tmp_path / "t", "--resume")
        assert mistake(*tune) == f"{path}: damaged. Start over with --force."

    def test_logs_and_results(self, hostile: str, tmp_path: Path) -> None:
        path = written(tmp_path / "m.log.jsonl", f'{{"step": 1, "epoch": 1, "seconds": 1, "loss": {hostile}}}\n')
        assert mistake("plot", path, "--out", tmp_path / "a.svg").startswith(f"{path}:1: ")
        path = written(tmp_path / "r.jsonl", f'{{"record": "run", "format": {hostile}}}\n')
        assert mistake("report", path, "--out", tmp_path / "r.html").startswith(f"{path}:1: ")
        path = written(tmp_path / "b" / "bench.json", hostile)
        assert mistake("report", path.parent, "--out", tmp_path / "r.html").startswith(f"{path}: damaged")


def test_impossible_numbers(data: Path, tmp_path: Path) -> None:
    train = ("train", data / "train.jsonl", "--model", "one_vs_all", "--out", tmp_path / "m")
    for number, reason in (("1e999", "exceeds 64 bits"), (str(2**64), "must be"), ("1e308", "must be")):
        assert reason in mistake(*train, "--set", f"text.min_df={number}")
    for number in ("1e999", "NaN", "-Infinity"):
        path = written(tmp_path / "p.jsonl", f'{{"id": {number}, "labels": []}}\n')
        assert mistake("evaluate", "--predictions", path, data / "test.jsonl").startswith(f"{path}:1: ")
