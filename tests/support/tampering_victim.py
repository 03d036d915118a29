"""A process that loads and uses damaged model folders in forked children, and reports what happened.

It reads one JSON line per case and answers with one. The process stays single-threaded, so that it can fork; kernels
and libraries are loaded before the first case (`warm`), so that a case costs milliseconds.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import importlib
import json
import os
import pickle
import resource
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CPU_SECONDS, WALL_SECONDS = 10, 40
"""Limits of a case. Processor time is what a hang takes; the wall clock is for a case that waits for nothing."""
MEMORY = 3 << 30
"""Address space that a case may take, in bytes, beyond that of the process."""
CASES = 50
"""Cases that a child handles: forking costs more than most of them."""
LONGEST = 2000
"""Characters of an error message."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    kind: str
    """'answers', 'error' (one line), 'traceback', 'signal', 'timeout' or 'message' (an error that is not one line)."""
    detail: str
    answers: str = ""
    """Hash of all answers."""
    seconds: float = 0.0

    @property
    def is_clean(self) -> bool:
        """Whether a user would see answers or one line."""
        return self.kind in ("answers", "error")


class Victim:
    """The process, as seen by a test."""

    def __init__(self, *plugins: str) -> None:
        self._cache = tempfile.mkdtemp(prefix="xmtc-tampering-")
        quiet = {
            **{f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA")},
            "TOKENIZERS_PARALLELISM": "false",
            "XMTC_CACHE": self._cache,
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2] / "src"), str(Path(__file__).parents[2])]),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.tampering_victim", *plugins],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **quiet},
            cwd=Path(__file__).parents[2],
            text=True,
        )

    def warm(self, folder: Path, documents: Path) -> Outcome:
        """Use an undamaged folder in the process itself; its answers are those to expect."""
        return self._ask(folder, documents, True, True)

    def run(self, folder: Path, documents: Path, update: bool, seconds: int = CPU_SECONDS) -> Outcome:
        """Use a damaged folder, within this processor time."""
        return self._ask(folder, documents, update, False, seconds)

    def _ask(self, folder: Path, documents: Path, update: bool, warm: bool, seconds: int = CPU_SECONDS) -> Outcome:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        request: dict[str, Any] = {"folder": str(folder), "documents": str(documents), "update": update, "warm": warm}
        request["seconds"] = seconds
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process itself ended with {folder}")
        return Outcome(**json.loads(line))

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)
        shutil.rmtree(self._cache, ignore_errors=True)


# ---- inside the process


def use(folder: Path, documents: Any, update: bool) -> tuple[str, str, str]:
    """Do everything with a model; return the kind of outcome, its detail and the hash of the answers.

    Documents are (several to predict, some with labels to learn from). All operations run, whatever becomes of others.
    """
    import numpy as np

    from xmtc.artifact.store import verify_folder
    from xmtc.core.errors import XmtcError
    from xmtc.core.runtime import Runtime
    from xmtc.models.base import Model

    queries, new = documents
    hashed = hashlib.blake2b(digest_size=16)
    errors: list[str] = []
    faults: list[tuple[str, str]] = []
    model: Any = None

    def attempt(what: str, action: Any) -> Any:
        try:
            return action()
        except XmtcError as error:
            line = str(error)
            errors.append(f"{what}: {line}")
            if "\n" in line or not line or len(line) > LONGEST:
                faults.append(("message", f"{what}: {line[:LONGEST]!r}"))
        except BaseException:
            faults.append(("traceback", f"{what}: {traceback.format_exc()}"))
        return None

    def answered(top: Any) -> None:
        hashed.update(np.ascontiguousarray(top.labels).data)
        hashed.update(np.ascontiguousarray(top.scores, dtype=np.float32).data)
        hashed.update(repr([model.labels.key(label) for label in np.unique(top.labels[top.labels >= 0])]).encode())

    def explained() -> None:
        if "explain" in model.capabilities and isinstance(queries, list):
            for text in queries[:2]:
                hashed.update(json.dumps(model.explain(text, 0).to_json(), sort_keys=True).encode())

    def updated() -> None:
        if "update" not in model.capabilities:
            return
        model.update(*new, force=True)
        answered(model.predict(queries, 5))
        with tempfile.TemporaryDirectory() as target:
            model.save(Path(target) / "saved")
            answered(Model.load(Path(target) / "saved", Runtime(threads=1)).predict(queries, 5))

    attempt("verify", lambda: verify_folder(folder))
    model = attempt("load", lambda: Model.load(folder, Runtime(threads=1)))
    if model is not None:
        attempt("predict", lambda: answered(model.predict(queries, 5)))
        attempt("filter", lambda: answered(model.predict(queries, 3, deny=[model.labels.key(0)])))
        if model.decisions.thresholds is not None:
            attempt("sets", lambda: answered(model.predict(queries, threshold="auto")))
        is_text = isinstance(queries, list)
        attempt("tag", lambda: hashed.update(repr(model.tag(queries[0] if is_text else queries[:1], 3)).encode()))
        count = len(queries) if is_text else queries.shape[0]
        candidates = np.tile(np.arange(min(4, len(model.labels))), (count, 1))
        attempt("score_labels", lambda: hashed.update(model.score_labels(queries, candidates).tobytes()))
        attempt("explain", explained)
        attempt("replay", lambda: hashed.update(repr(model.replay and len(model.replay)).encode()))
        if update:
            attempt("update", updated)
    if faults:
        return faults[0][0], faults[0][1], ""
    return ("error", errors[0], "") if errors else ("answers", "", hashed.hexdigest())


class _Child:
    """A fork of this process that uses folders until one of them ends it, or until it has used enough."""

    def __init__(self) -> None:
        gc.freeze()  # a collection in the child would copy every page of the process
        (there, self._write), (self._read, back) = os.pipe(), os.pipe()
        self._left, self._is_over = CASES, False
        self._process = os.fork()
        if not self._process:
            try:
                os.close(self._write)
                os.close(self._read)
                _serve(there, back)
            finally:
                os._exit(1)
        os.close(there)
        os.close(back)

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """The outcome of a case; a child that it ends must not be used again."""
        self._left -= 1
        os.write(self._write, (json.dumps(request) + "\n").encode())
        end, content = time.monotonic() + WALL_SECONDS, b""
        while not content.endswith(b"\n") and time.monotonic() < end:
            if select.select([self._read], [], [], max(0.0, end - time.monotonic()))[0]:
                piece = os.read(self._read, 1 << 16)
                if not piece:
                    break
                content += piece
        if content.endswith(b"\n"):
            kind, detail, answers = json.loads(content)
            return {"kind": kind, "detail": detail, "answers": answers}
        if time.monotonic() >= end:
            os.kill(self._process, signal.SIGKILL)
        self._is_over = True
        return self.close()

    def renewed(self) -> _Child | None:
        """This child, or None if the next case needs another one."""
        if self._left and not self._is_over:
            return self
        if not self._is_over:
            self.close()
        return None

    def close(self) -> dict[str, Any]:
        """End the child; return how it ended."""
        os.close(self._write)
        os.close(self._read)
        _, status = os.waitpid(self._process, 0)
        if not os.WIFSIGNALED(status):
            return {"kind": "traceback", "detail": f"exit status {os.WEXITSTATUS(status)} without a result"}
        number = os.WTERMSIG(status)
        slow = number in (signal.SIGKILL, signal.SIGXCPU)
        return {"kind": "timeout" if slow else "signal", "detail": signal.Signals(number).name}


def _serve(there: int, back: int) -> None:
    """Use folders, in the child."""
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with os.fdopen(there) as requests:
        for line in requests:
            request = json.loads(line)
            used = int(sum(os.times()[:2])) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (used + request["seconds"], resource.RLIM_INFINITY))
            found = use(Path(request["folder"]), _documents(request["documents"]), request["update"])
            os.write(back, (json.dumps(found) + "\n").encode())


@functools.cache
def _documents(place: str) -> Any:
    return pickle.loads(Path(place).read_bytes())


def main() -> None:
    """Answer requests until the input ends."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    try:
        import torch
    except ImportError:
        pass
    else:
        torch.set_num_threads(1)
    from xmtc.core.registry import Entry
    from xmtc.models.registry import MODELS

    for plugin in sys.argv[1:]:  # module:class
        module, _, name = plugin.partition(":")
        MODELS.builtin[getattr(importlib.import_module(module), name).name] = Entry(plugin)
    child: _Child | None = None
    for line in sys.stdin:
        request = json.loads(line)
        documents = _documents(request["documents"])
        started = time.monotonic()
        if request["warm"]:
            kind, detail, answers = use(Path(request["folder"]), documents, request["update"])
            found: dict[str, Any] = {"kind": kind, "detail": detail, "answers": answers}
        else:
            child = child or _Child()
            found = child.run(request)
            child = child.renewed()
        print(json.dumps({**found, "seconds": round(time.monotonic() - started, 3)}), flush=True)
    if child is not None:
        child.close()


if __name__ == "__main__":
    main()
