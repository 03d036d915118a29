"""Kernels compiled ahead by other processes, and the list of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from xmtc.core import compile_ahead
from xmtc.core.compile_ahead import decode_type, encode_type, listed, purposes

FIT = """
import json, sys
import xmtc
from xmtc.core.compile_ahead import encode_type
from xmtc.core.kernel_cache import uses
texts, labels = ["red wine", "red carpet", "white wine", "blue carpet"], [["a"], ["b"], ["a"], ["b"]]
model = xmtc.Parabel().fit(texts * 3, labels * 3)
model.save(sys.argv[1])
print(json.dumps([[use.kernel, [encode_type(kind) for kind in use.types]] for use in uses()]))
"""


def test_every_type_of_the_list_is_decoded() -> None:
    entries = listed(purposes())
    assert len(entries) > 20
    for entry in entries:
        assert [encode_type(kind) for kind in entry.signature] == entry.types


def test_training_uses_no_kernel_that_the_list_lacks(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FIT, str(tmp_path / "model")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    known = [[entry.kernel, entry.types] for entry in listed(["train parabel"])]
    used = json.loads(done.stdout)
    assert len(used) > 5
    assert [use for use in used if use not in known] == []


def test_another_process_compiles_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the other process leaves in the cache is what this purpose needs."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    process = compile_ahead.start_process(["train popularity", "tag knn"])
    assert process.wait(timeout=120) == 0
    found = {path.name.split("-")[0] for path in tmp_path.glob("*.nbc")}
    names = [entry.kernel.removeprefix("xmtc.").replace(":", ".") for entry in listed(["train popularity", "tag knn"])]
    assert found == set(names)
    assert not list(tmp_path.glob("*.lock"))


def test_everything_is_compiled_in_advance(tmp_path: Path) -> None:
    script = """
from xmtc.core import compile_ahead
compile_ahead.purposes = lambda: ["tag knn"]
counts = []
print(compile_ahead.compile_all(2, counts.append), sum(counts), len(compile_ahead.listed(["tag knn"])))
"""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=120
    )
    compiled, reported, known = map(int, done.stdout.split())
    assert compiled == reported == known > 0


def test_the_other_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys; from xmtc.core.compile_ahead import start_process; print(start_process(['train lexical']).pid)"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    number = int(done.stdout)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            os.kill(number, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    pytest.fail("the process is still there")


def test_kernels_that_the_list_has_wrong_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = [
        {"kernel": "xmtc.text.no_such_module:kernel", "types": ["int64"], "for": ["train knn"]},
        {"kernel": "xmtc.text.token_kernels:no_such_kernel", "types": ["int64"], "for": ["train knn"]},
        {"kernel": "xmtc.text.token_kernels:expand", "types": ["no_such_type"], "for": ["train knn"]},
    ]
    (tmp_path / "kernels.json").write_text(json.dumps(wrong))
    monkeypatch.setattr(compile_ahead, "LIST", tmp_path / "kernels.json")
    assert compile_ahead.missing(["train knn"]) == []


def test_arrays_that_are_written_are_other_types_than_those_that_are_read() -> None:
    assert decode_type("float32[2]") != decode_type("float32[2]!")
    assert decode_type(["int64", "float32[1]"]).types[1] == decode_type("float32[1]")


def test_a_kernel_has_the_same_name_in_every_process() -> None:
    """Options that are sets have another order in each process."""
    script = """
from xmtc.core.kernel_cache import code_key
from xmtc.linear import solver
compiled = solver._squared_hinge.compiled
print(code_key(compiled._function, compiled._options))
"""
    keys = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(keys) == 1
