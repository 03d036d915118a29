"""A fresh clone: `make demo` sets everything up and shows a model that beats the baseline."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]


def test_make_demo(tmp_path: Path) -> None:
    clone = tmp_path / "xmtc"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    outside = {name: value for name, value in os.environ.items() if name not in ("VIRTUAL_ENV", "PYTHONPATH")}
    done = subprocess.run(
        ["make", "demo"], cwd=clone, env=outside, capture_output=True, text=True, timeout=1200, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    ours, baseline = next(line.split()[1:] for line in done.stdout.splitlines() if line.startswith("P@1 "))
    assert float(ours) > float(baseline) + 30
    next_steps = [line.strip() for line in done.stdout.splitlines() if line.startswith("  xmtc ")]
    assert len(next_steps) == 6

    python = clone / ".venv" / "bin" / "python"
    absent = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is not None)"
    assert subprocess.run([python, "-c", absent], cwd=tmp_path, check=False).returncode == 0, "torch was installed"
    where = "import xmtc; print(xmtc.__file__)"
    found = subprocess.run([python, "-c", where], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(clone)

    status = subprocess.run(["git", "status", "--porcelain"], cwd=clone, capture_output=True, text=True, check=True)
    assert status.stdout == ""
