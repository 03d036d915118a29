"""The service does what its OpenAPI document says: schemathesis makes requests from it, right ones and wrong ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.service import Service, serving, train_model

pytestmark = pytest.mark.long
pytest.importorskip("uvicorn", reason="runs the service")
pytest.importorskip("schemathesis", reason="makes requests from the schema")

CASES = 1_000
REFUSED = """
[checks.negative_data_rejection]
expected-statuses = [400, 404, 405, 408, 413, 415, 422, 429]
"""
"""Left to itself it takes 413 for an acceptance."""
EXAMPLES = 200
"""Of each operation; those without parameters need few."""
LEFT_OUT = "positive_data_acceptance"
"""The document cannot say which labels a model has, and a request with others is refused: see the second test."""


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("schema") / "planted"
    train_model(folder)
    with serving(folder, "--max-characters", 1_000, "--max-texts", 10) as started:  # what is too much is made faster
        yield started


def run(place: Path, *arguments: object) -> Any:
    """The report of a run that found nothing."""
    report = place / "report.json"
    (place / "schemathesis.toml").write_text(REFUSED)
    command = [sys.executable, "-m", "schemathesis.cli", "run", *map(str, arguments), "--checks", "all"]
    more = ["--phases", "examples,coverage,fuzzing", "--seed", "7", "--workers", "2", "--request-timeout", "30"]
    kept = ["--report", "json", "--report-json-path", str(report)]
    ended = subprocess.run(
        [*command, *more, *kept], capture_output=True, text=True, timeout=200, cwd=place, check=False
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-2000:]
    return json.loads(report.read_text())


def test_nothing_is_found_in_a_thousand_requests(service: Service, tmp_path: Path) -> None:
    found = run(tmp_path, f"{service.url}/openapi.json", "--max-examples", EXAMPLES, "--exclude-checks", LEFT_OUT)
    assert found["operations"]["tested"] == found["operations"]["total"] >= 8
    assert found["test_cases"]["generated"] >= CASES
    assert found["test_cases"]["errored"] == 0


def test_what_is_right_is_accepted(service: Service, tmp_path: Path) -> None:
    """With labels that the model has, and without what contradicts itself, no request is refused that should not be."""
    document = service.ask("GET", "/openapi.json").json()
    keys = [label["key"] for label in service.ask("GET", "/v1/labels?limit=50").json()["labels"]]
    assert len(keys) == 50
    for path in ("predict", "explain", "feedback"):
        content = document["paths"][f"/v1/{path}"]["post"]["requestBody"]["content"]["application/json"]
        content.pop("example")
        fields = content["schema"]["properties"]
        fields["model"] = {"enum": [None, "planted"]}
        known = {"type": "array", "items": {"enum": keys}}
        fields |= {
            "predict": {
                "allow": {**known, "minItems": 1},
                "deny": {"const": []},
                "threshold": {"type": "null"},
                "under": {"enum": [None, []]},
                **{name: {"type": "null"} for name in ("scheme", "collection", "type", "only_unused")},
                "hierarchy": {"enum": [None, "keep"]},
            },
            "explain": {"label": {"enum": keys}},
            "feedback": {"accepted": {**known, "minItems": 1}, "rejected": {"const": []}, "withdraw": {"const": False}},
        }[path]
        if path == "feedback":
            content["schema"]["required"].append("accepted")
    search = document["paths"]["/v1/labels"]["get"]["parameters"]
    next(parameter for parameter in search if parameter["name"] == "model")["schema"] = {"enum": ["planted"]}
    (tmp_path / "document.json").write_text(json.dumps(document))
    found = run(tmp_path, tmp_path / "document.json", "--url", service.url, "--max-examples", 60, "--mode", "positive")
    assert found["test_cases"]["generated"] >= 300
