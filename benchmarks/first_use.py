"""Time the first use on a machine, small requests, and single calls, against another checkout.

    python benchmarks/first_use.py OTHER_CHECKOUT [--rounds 3] [--kernels]

Commands are whole processes: training on the demo corpus and predicting one text, each with empty caches and again with
what is cached by then. Both checkouts take turns, and the smallest elapsed and processor times are printed.
Calls are single rows of a planted feature matrix on one thread. `--kernels` lists the processor time to compile each
kernel that the commands need, each in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
TEXT = "How do I get red wine out of a carpet?"
CALLS = """
import json, time
import scipy.sparse as sp
import xmtc
X = sp.csr_array(sp.random(3000, 2000, density=0.02, random_state=1, format="csr", dtype="float32"))
Y = sp.csr_array((sp.random(3000, 300, density=0.01, random_state=2, format="csr") > 0).astype("float32"))
model = xmtc.Parabel(trees=1).fit(X, Y, runtime=xmtc.Runtime(threads=1))
rows = [X[[number]] for number in range(500)]
def microseconds(call):
    call(rows[0])
    best = 1e9
    for _ in range(7):
        started = time.process_time()
        for row in rows:
            call(row)
        best = min(best, (time.process_time() - started) / len(rows))
    return round(1e6 * best, 1)
calls = {"tag": model.tag, "predict": model.predict, "predict, names": lambda row: model.predict(row).names()}
print(json.dumps({name: microseconds(call) for name, call in calls.items()}))
"""
KERNEL = """
import json, os, sys, time
import numba
from xmtc.core.compile_ahead import listed
numba.njit(lambda value: value + 1)(1)
for entry in listed(sys.argv[1:]):
    sys.stdout.flush()
    child = os.fork()
    if not child:
        dispatcher = entry.dispatcher
        started = time.process_time()
        dispatcher.compile(entry.signature)
        print(f"{time.process_time() - started:6.2f} s  {entry.kernel}", flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def run(checkout: Path, place: Path, *command: str) -> tuple[float, float]:
    """Elapsed seconds and processor seconds of a Python process, with its caches in `place`."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "XMTC_CACHE": str(place / "cache"),
        "NUMBA_CACHE_DIR": str(place / "kernels"),
    }
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, *command], env=environment, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.perf_counter() - started, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def commands(checkout: Path, corpus: Path) -> dict[str, tuple[float, float]]:
    """Elapsed and processor seconds of the commands, from empty caches."""
    found = {}
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        model = str(Path(first) / "model")
        files = (str(corpus / "train.jsonl"), "--labels", str(corpus / "labels.jsonl"))
        train = ("-m", "xmtc", "train", *files, "--out", model, "--quiet")
        predict = ("-m", "xmtc", "predict", model, "--text", TEXT, "--quiet")
        found["first train"] = run(checkout, Path(first), *train)
        found["second train"] = run(checkout, Path(first), *train, "--force")
        found["first predict"] = run(checkout, Path(second), *predict)
        found["second predict"] = run(checkout, Path(second), *predict)
        for name, code in (("Python", "pass"), ("import numpy", "import numpy"), ("import numba", "import numba")):
            found[name] = run(checkout, Path(second), "-c", code)
        size = sum(path.stat().st_size for path in (Path(second) / "kernels").rglob("*.nbc"))
        print(f"{checkout.name}: {size / 1e6:.2f} MB of compiled kernels for predicting one text", file=sys.stderr)
    return found


def calls(checkout: Path, place: Path) -> dict[str, float]:
    """Microseconds of single calls."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(checkout / "src"),
        "NUMBA_CACHE_DIR": str(place / checkout.name),
    }
    done = subprocess.run([sys.executable, "-c", CALLS], env=environment, check=True, capture_output=True, text=True)
    times: dict[str, float] = json.loads(done.stdout)
    return times


def main() -> None:
    """Compare this checkout with another one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kernels", action="store_true")
    given = parser.parse_args()
    checkouts = {"before": given.other.resolve(), "now": HERE}
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place) / "demo"
        run(HERE, Path(place), "-m", "xmtc", "demo", "--out", str(corpus), "--quiet")
        best: dict[tuple[str, str], tuple[float, float]] = {}
        fastest: dict[tuple[str, str], float] = {}
        for _ in range(given.rounds):
            for which, checkout in checkouts.items():
                for name, times in commands(checkout, corpus).items():
                    known = best.get((name, which), times)
                    best[name, which] = min(known[0], times[0]), min(known[1], times[1])
                for name, time_of in calls(checkout, Path(place)).items():
                    fastest[name, which] = min(time_of, fastest.get((name, which), time_of))
    for name in dict.fromkeys(name for name, _ in best):
        row = "  ".join(
            f"{which} {best[name, which][0]:6.2f} s, {best[name, which][1]:6.2f} s CPU" for which in checkouts
        )
        print(f"{name:<16}{row}")
    for name in dict.fromkeys(name for name, _ in fastest):
        print(f"{name:<16}" + "  ".join(f"{which} {fastest[name, which]:6.1f} µs" for which in checkouts))
    if given.kernels:
        with tempfile.TemporaryDirectory() as place:
            environment = {**os.environ, "PYTHONPATH": str(HERE / "src"), "NUMBA_CACHE_DIR": place}
            subprocess.run([sys.executable, "-c", KERNEL, "train parabel", "tag parabel"], env=environment, check=True)


if __name__ == "__main__":
    main()
