"""Nearest neighbours among dense vectors: seconds, queries per second, recall and memory, compared with a lower bound.

usage: python benchmarks/nearest.py [--vectors FILE.npz] [--count 50] [--threads 2] [--probes 32 44 64] [--only exact]
FILE.npz contains `vectors` (N, d) and `queries` (n, d), float32 of unit length. Without it, synthetic vectors of the
size of TIBKAT-GND are used, 26,168 queries and 90,452 rows of 300 numbers: each is near one of 10,000 themes, which are
means of one to four of 3,000 random topics, with noise (--noise) in --planes directions. With a noise of 0.5, the
recall of FAISS is about the same as on network embeddings of TIBKAT-GND. Vectors without such structure would be its
worst case and are unlike documents.

The lower bound is 2·n·N·d operations at the speed of a large matrix product, measured before and after. Each search
runs in its own process. The first run builds the index and may compile, the second does not. Because other programs may
use the machine, its load before the run is reported, and the CPU seconds of the second run; divided by --threads, they
estimate the time on an idle machine.
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
from typing import Any

import numpy as np

TOPICS, THEMES, PLANES = 3000, 10_000, 80
RECALL_AT = 20


def planted(rows: int, width: int, noise: float, planes: int, seed: int = 0) -> Any:
    """Unit vectors about means of a few topics, as those of documents lie about the means of their labels' vectors."""
    random = np.random.default_rng(seed)
    spread = np.linspace(1.0, 0.2, min(planes, width))[:, None] * random.standard_normal((min(planes, width), width))
    topics = unit(random.standard_normal((TOPICS, len(spread))) @ spread)
    drawn = random.choice(TOPICS, size=(THEMES, 4), p=falling(TOPICS))
    held = np.arange(4) <= random.integers(0, 4, size=THEMES)[:, None]
    themes = unit(np.einsum("nt,ntd->nd", held, topics[drawn]))
    about = random.choice(THEMES, size=rows, p=falling(THEMES))
    return unit(themes[about] + noise * unit(random.standard_normal((rows, len(spread))) @ spread))


def unit(vectors: Any) -> Any:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def falling(count: int) -> Any:
    """Shares that fall as those of labels do."""
    shares = 1.0 / np.arange(10, count + 10)
    return shares / shares.sum()


# ---- one search, in a process of its own


def speed(width: int, seconds: float = 2.0) -> float:
    """Operations a second of a large matrix product."""
    import torch

    one, other, out = torch.randn(4096, width), torch.randn(4096, width), torch.empty(4096, 4096)
    started, runs = time.perf_counter(), 0
    while time.perf_counter() - started < seconds:
        torch.mm(one, other.T, out=out)
        runs += 1
    return runs * 2 * out.numel() * width / (time.perf_counter() - started)


def searched(given: argparse.Namespace) -> dict[str, Any]:
    import torch

    from xmtc.nn.neighbours.vector_index import VectorIndex

    torch.set_num_threads(given.threads)
    with np.load(given.vectors) as arrays:
        vectors, queries = (np.ascontiguousarray(arrays[name], dtype=np.float32) for name in ("vectors", "queries"))
    load, before = os.getloadavg()[0], speed(vectors.shape[1])
    probes = given.probes[0] if given.only == "faiss" else 1
    index = VectorIndex(vectors, threads=given.threads, search=given.only, probes=probes)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds, busy = [], 0.0
    for _ in range(2):
        started, busy = time.perf_counter(), time.process_time()
        found, _ = index.nearest(queries, given.count)
        seconds.append(time.perf_counter() - started)
        busy = time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    np.save(given.found, found)
    rate = (before + speed(vectors.shape[1])) / 2
    return {
        "seconds": seconds,
        "busy": busy,
        "queries": len(queries),
        "rate": rate,
        "floor": 2 * len(queries) * vectors.shape[0] * vectors.shape[1] / rate,
        "peak": peak * 1024,
        "more": (peak - held) * 1024,
        "load": load,
    }


# ---- all of them


def child(given: argparse.Namespace, search: str, vectors: str, found: str, probes: int = 1) -> dict[str, Any]:
    command = [sys.executable, __file__, "--child", "--only", search, "--vectors", vectors, "--found", found]
    command += ["--count", str(given.count), "--threads", str(given.threads), "--probes", str(probes)]
    return dict(json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout))


def recall(found: Any, exact: Any) -> float:
    """The share of the nearest that were found, where each row is found once at most."""
    count = min(RECALL_AT, exact.shape[1])
    hits = (found[:, :count, None] == exact[:, None, :count]) & (exact[:, None, :count] >= 0)
    return float(hits.sum() / max((exact[:, :count] >= 0).sum(), 1))


def told(name: str, at: dict[str, Any], share: float) -> str:
    first, second = at["seconds"]
    return (
        f"| {name} | {first:.1f} | {second:.1f} | {at['busy']:.1f} | {at['queries'] / second:,.0f} | {share:.4f} "
        f"| {at['floor']:.1f} | {at['rate'] / 1e9:.0f} | {at['peak'] / 2**30:.2f} | {at['more'] / 2**30:.2f} "
        f"| {at['load']:.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectors", help="FILE.npz with 'vectors' and 'queries'; planted ones without it")
    parser.add_argument("--rows", type=int, default=90_452)
    parser.add_argument("--queries", type=int, default=26_168)
    parser.add_argument("--width", type=int, default=300)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--planes", type=int, default=PLANES)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--probes", type=int, nargs="+", default=[32, 44, 64])
    parser.add_argument("--only", choices=["exact", "faiss"])
    parser.add_argument("--found", help=argparse.SUPPRESS)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(searched(given)))
        return
    with tempfile.TemporaryDirectory() as folder:
        vectors = given.vectors
        if vectors is None:
            vectors = str(Path(folder) / "planted.npz")
            both = planted(given.rows + given.queries, given.width, given.noise, given.planes)
            np.savez(vectors, vectors=both[: given.rows], queries=both[given.rows :])
        print(
            f"| search, {given.count} of each | first s | second s | processor s | queries/s | recall@{RECALL_AT} "
            "| floor s | GFLOP/s | peak GiB | of it search | load before |"
        )
        print(f"|{'---|' * 11}")
        places = {name: str(Path(folder) / f"{name}.npy") for name in ("exact", "faiss")}
        at = child(given, "exact", vectors, places["exact"])
        print(told("exact", at, 1.0), flush=True)
        for probes in given.probes if given.only != "exact" else []:
            at = child(given, "faiss", vectors, places["faiss"], probes)
            share = recall(np.load(places["faiss"]), np.load(places["exact"]))
            print(told(f"FAISS, {probes} probes", at, share), flush=True)


if __name__ == "__main__":
    main()
