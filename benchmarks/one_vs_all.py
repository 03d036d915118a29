"""Compare one_vs_all of two checkouts of this project, in alternating runs: training time and accuracy.

usage: python benchmarks/one_vs_all.py OLD NEW --train FILE --test FILE [--recipe eurlex57k/one_vs_all] [--rounds 1]
       [--set text.word_ngrams=2 …]

OLD and NEW are checkouts. In each round, `xmtc train` and `xmtc evaluate --unknown-labels drop` of both checkouts run
in separate processes without the feature cache, in alternating order; a training on few documents compiles the kernels
first. Training time includes reading and features: seconds elapsed and CPU seconds of all threads, of which the
smallest of all rounds count. The floor is the time in which one thread adds up the weights of sixteen labels once for
every entry of the feature matrix, twice for each sixteen labels: every document is visited at least twice.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

METRICS = ("P@1", "P@3", "P@5", "nDCG@5")
FEW = 300


def run(checkout: Path, *command: object) -> tuple[float, float, str]:
    """Seconds elapsed, CPU seconds and output of a program with the sources of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout / "src"), "XMTC_CACHE": "off"}
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *map(str, command)], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    elapsed, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def training(given: argparse.Namespace, train: Path, folder: Path) -> list[object]:
    changes = [part for change in given.set for part in ("--set", change)]
    return ["-m", "xmtc", "train", train, "--config", given.recipe, *changes, "--out", folder, "--force", "--quiet"]


def first_lines(source: Path, target: Path) -> Path:
    opener: Any = lzma.open if source.suffix == ".xz" else open
    with opener(source, "rt", encoding="utf-8") as lines, open(target, "w", encoding="utf-8") as handle:
        handle.writelines(next(lines) for _ in range(FEW))
    return target


def floor(train: Path, changes: list[str]) -> None:
    """Print the size of the problem and the time of the sums that it needs at least."""
    import numba
    import numpy as np

    import xmtc
    from xmtc.core.progress import silent
    from xmtc.linear.node_training import numbers_by_frequency
    from xmtc.linear.simd import LANES, add_dot, aligned_zeros
    from xmtc.text.features import DocumentFeatures
    from xmtc.text.tfidf import TextSettings

    @numba.njit(error_model="numpy")
    def visit(indptr: Any, features: Any, values: Any, weights: Any, sums: Any) -> None:
        for row in range(len(indptr) - 1):
            sums[:] = 0.0
            add_dot(features, values, indptr[row], indptr[row + 1], weights, 0, len(sums), sums, 0)

    documents = xmtc.read(train)
    assert documents.labels is not None
    settings = TextSettings(**{key[5:]: json.loads(value) for key, value in (change.split("=") for change in changes)})
    rows = DocumentFeatures.fit(documents, settings, xmtc.Runtime(), silent)[1]
    weights, sums = aligned_zeros(rows.shape[1]), np.empty(LANES, np.float32)
    weights[:] = np.random.default_rng(0).normal(size=len(weights))
    matrix = rows.indptr.astype(np.int64), numbers_by_frequency(rows)[rows.indices], rows.data, weights, sums
    seconds = []
    for _ in range(4):  # the first one compiles
        started = time.thread_time()
        visit(*matrix)
        seconds.append(time.thread_time() - started)
    blocks = -(-documents.labels.shape[1] // LANES)
    print(
        f"{rows.shape[0]:,} documents, {rows.nnz:,} entries, {rows.shape[1]:,} features, "
        f"{blocks} times sixteen labels. "
        f"One visit of all documents for sixteen labels: {min(seconds[1:]):.3f} s. "
        f"Floor: {2 * blocks * min(seconds[1:]):.0f} CPU seconds."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkouts", type=Path, nargs=2, metavar="OLD NEW")
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument("--recipe", default="eurlex57k/one_vs_all")
    parser.add_argument("--set", nargs="*", default=[], help="settings of the text features, in both checkouts")
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    best: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        few = first_lines(given.train, Path(name) / "few.jsonl")
        for which in (0, 1):
            run(given.checkouts[which].resolve(), *training(given, few, folder))
        for turn in range(given.rounds):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                checkout = given.checkouts[which].resolve()
                elapsed, cpu, _ = run(checkout, *training(given, given.train, folder))
                command = ("-m", "xmtc", "evaluate", folder, given.test, "--unknown-labels", "drop", "--json")
                metrics = json.loads(run(checkout, *command)[2])
                seen = {"elapsed": elapsed, "cpu": cpu, **{metric: metrics[metric] for metric in METRICS}}
                print(f"round {turn + 1} {('old', 'new')[which]}: {json.dumps(seen)}", file=sys.stderr, flush=True)
                kept = best.setdefault(which, seen)
                kept.update({key: min(kept[key], seen[key]) for key in ("elapsed", "cpu")})
    print(f"| checkout | train s | CPU s | {' | '.join(METRICS)} |\n|{'---|' * (3 + len(METRICS))}")
    for which, seen in sorted(best.items()):
        cells = [("old", "new")[which], f"{seen['elapsed']:.1f}", f"{seen['cpu']:.1f}"]
        print(f"| {' | '.join([*cells, *(f'{100 * seen[metric]:.2f}' for metric in METRICS)])} |")
    floor(given.train, given.set)


if __name__ == "__main__":
    main()
