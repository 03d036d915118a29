"""The Dockerfile passes its linter, and the page on serving says what the command does."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from xmtc.cli.serve import serve
from xmtc.workflows.serve import ServeRequest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_dockerfile_passes_its_linter() -> None:
    linter = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
    if linter is None:
        pytest.skip("hadolint is not installed")
    done = subprocess.run([linter, str(ROOT / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_container_does_not_run_as_root() -> None:
    users = re.findall(r"^USER (\S+)$", DOCKERFILE, flags=re.MULTILINE)
    assert users == ["10001"]
    assert DOCKERFILE.index("USER 10001") < DOCKERFILE.index("ENTRYPOINT")


def test_what_the_container_copies_is_there() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, flags=re.MULTILINE):
        for name in line.split():
            assert (ROOT / name).exists()
            assert f"!{name}" in ignored


def test_the_page_names_options_that_exist_and_their_defaults() -> None:
    options = {"--" + name.replace("_", "-") for name in inspect.signature(serve).parameters}
    named = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert named <= options
    limits = ServeRequest(folders=())
    rows = dict(re.findall(r"^\| `(--[a-z-]+)` \| ([\d,]+)", PAGE, flags=re.MULTILINE))
    assert {option: int(value.replace(",", "")) for option, value in rows.items()} == {
        "--max-body": limits.max_body,
        "--max-texts": limits.max_texts,
        "--max-characters": limits.max_characters,
        "--max-k": limits.max_k,
        "--max-connections": limits.max_connections,
        "--max-daily-feedback": limits.max_daily_feedback,
        "--max-daily-feedback-size": limits.max_daily_feedback_size,
        "--max-feedback": limits.max_feedback,
        "--queue": limits.queue,
        "--timeout": limits.timeout,
    }
    defaults = {name: given.default for name, given in inspect.signature(serve).parameters.items()}
    assert (defaults["max_body"], defaults["max_texts"], defaults["max_characters"]) == (32, 1_000, 1_000_000)
    assert (defaults["max_k"], defaults["queue"], defaults["timeout"]) == (1_000, 10_000, 30.0)
