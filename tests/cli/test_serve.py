"""`xmtc serve`: what it refuses to begin with; and measures that are kept for it."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from unittest import mock

import pytest

from tests.support.command_line import call, mistake
from xmtc.models.popularity import Popularity
from xmtc.workflows.serve import API_KEY_VARIABLE


@pytest.fixture
def model(tmp_path: Path) -> Path:
    Popularity().fit(["x", "y"], [["a", "b"], ["a"]]).save(tmp_path / "m")
    return tmp_path / "m"


def test_folders_that_hold_no_model(model: Path, tmp_path: Path) -> None:
    assert mistake("serve") == "Missing argument 'DIR…'. See: xmtc serve --help"
    assert "no such folder" in mistake("serve", tmp_path / "none")
    assert "not a model folder" in mistake("serve", model, tmp_path)
    assert "two models are named 'm'" in mistake("serve", model, tmp_path / "." / "m")


def test_addresses_that_cannot_be_had(model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = mistake("serve", model, "--port", port)
    assert words.startswith(f"port {port} on 127.0.0.1 is already in use")
    assert words.endswith("Choose another with --port, or 0 for any free port.")
    assert mistake("serve", model, "--port", 70000) == "--port must be from 0 to 65535. Got 70000."


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("--workers", "0", "--workers must be an integer ≥ 1. Got 0."),
        ("--max-texts", "0", "--max-texts must be an integer ≥ 1. Got 0."),
        ("--timeout", "0", "--timeout must be a number of seconds > 0. Got 0."),
        ("--window", "-1", "--window must be at least 0 and less than 1,000 ms. Got -1."),
        ("--threads", "0", "'threads' must be an integer ≥ 1. Got 0."),
        ("--device", "tpu", "'device' must be 'auto', 'cpu', 'cuda' or 'cuda:N'. Got 'tpu'."),
        ("--feedback", "nowhere/at/all", "nowhere/at/all: no such folder. Create it first."),
    ],
)
def test_settings_that_make_no_sense(model: Path, option: str, value: str, words: str) -> None:
    assert mistake("serve", model, option, value) == words


def test_keys_that_are_none(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "key"
    assert "cannot read the API key (No such file or directory)" in mistake("serve", model, "--api-key-file", place)
    for content, words in (
        ("", "contains no API key"),
        ("short", "at least 8"),
        ("with a space in it", "at least 8"),
    ):
        place.write_text(content)
        assert words in mistake("serve", model, "--api-key-file", place)
    monkeypatch.setenv(API_KEY_VARIABLE, "short")
    assert mistake("serve", model).startswith(f"{API_KEY_VARIABLE}: an API key must have at least 8 ASCII characters")


def test_without_its_extra_it_says_how_to_get_it(model: Path) -> None:
    with mock.patch.dict(sys.modules, {"fastapi": None}):
        words = mistake("serve", model)
    assert words == 'serve needs FastAPI. Install it with: pip install "xmtc[server]"'


def test_measures_are_kept_beside_the_model_and_shown(model: Path, tmp_path: Path) -> None:
    test = tmp_path / "test.jsonl"
    test.write_text(json.dumps({"text": "x", "labels": ["a"]}))
    assert "measured" not in call("models", model).out
    done = call("evaluate", model, test, "--keep")
    place = tmp_path / "m.metrics.json"
    assert f"metrics saved to {place}" in done.err
    kept = json.loads(place.read_text())
    assert kept["metrics"]["P@1"] == 1.0
    assert kept["measured"]["documents"] == 1
    assert "P@1 100.00, P@5 20.00, nDCG@5 100.00 on test.jsonl" in call("models", model).out
    Popularity().fit(["x", "y"], [["b"], ["b"]]).save(model, overwrite=True)
    assert "measured" not in call("models", model).out
    answers = tmp_path / "answers.jsonl"
    call("predict", model, test, "--output", answers)
    words = mistake("evaluate", "--predictions", answers, test, "--keep")
    assert words == "--save-metrics requires a model. Leave out --save-metrics or --predictions."
