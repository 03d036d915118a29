"""Nearest label names among a million: milliseconds per text, recall, memory and the time to build the index.

usage: python benchmarks/name_search.py [--names 1000000] [--width 384] [--texts 1000] [--threads 2]
                                        [--probes 16 32 64 128] [--vectors FILE.npz]
FILE.npz contains `names` (N, d), `owners` (N,), the label of each name, and `queries` (n, d), float32 of unit length.
Without it, names are synthetic: each is near one of 10,000 themes, which are means of one to four of 3,000 random
topics, with noise (--noise) in 80 directions; two names belong to each label.

Recall is the share of the nearest 10 and 50 labels of an exact search in single precision that the index finds. The
first search compiles and is not timed. Because other programs may use the machine, CPU time is reported too: divided by
--threads, it estimates the time on an idle machine.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

from xmtc.nn.neighbours.code_index import CodeIndex, concatenated

TOPICS, THEMES, PLANES = 3000, 10_000, 80
STEP = 1 << 16
PLACES = 10, 50


class Planted:
    """Synthetic names, made a part at a time."""

    def __init__(self, width: int, noise: float) -> None:
        random = np.random.default_rng(0)
        planes = min(PLANES, width)
        self.spread = np.linspace(1.0, 0.2, planes)[:, None] * random.standard_normal((planes, width))
        topics = unit(random.standard_normal((TOPICS, planes)) @ self.spread)
        drawn = random.choice(TOPICS, size=(THEMES, 4), p=falling(TOPICS))
        held = np.arange(4) <= random.integers(0, 4, size=THEMES)[:, None]
        self.themes, self.noise = unit(np.einsum("nt,ntd->nd", held, topics[drawn])), noise

    def draw(self, count: int, seed: int) -> Any:
        """(count, d) unit vectors."""
        random = np.random.default_rng(seed)
        about = random.choice(THEMES, size=count, p=falling(THEMES))
        noise = unit(random.standard_normal((count, len(self.spread))).astype(np.float32) @ self.spread)
        return unit(self.themes[about] + self.noise * noise)

    def parts(self, count: int) -> Iterator[Any]:
        """All names, STEP at a time."""
        for low in range(0, count, STEP):
            yield self.draw(min(STEP, count - low), low + 1)


def unit(vectors: Any) -> Any:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def falling(count: int) -> Any:
    """Probabilities that fall like those of labels."""
    shares = 1.0 / np.arange(10, count + 10)
    return shares / shares.sum()


def exact(parts: Iterator[Any], owners: Any, queries: Any, labels: int) -> Any:
    """(n, 50) labels of the nearest names, all of which are compared; names of a label are consecutive."""
    best = np.full((len(queries), 2 * PLACES[-1]), -np.inf, dtype=np.float32)
    held = np.zeros(best.shape, dtype=np.int64)
    low = 0
    for part in parts:
        products = np.concatenate([best, queries @ part.T], axis=1)
        names = np.concatenate([held, np.broadcast_to(np.arange(low, low + len(part)), (len(queries), len(part)))], 1)
        chosen = np.argpartition(-products, best.shape[1], axis=1)[:, : best.shape[1]]
        best, held = np.take_along_axis(products, chosen, 1), np.take_along_axis(names, chosen, 1)
        low += len(part)
    order = np.take_along_axis(owners[held], np.argsort(-best, axis=1, kind="stable"), 1)
    return np.array([list(dict.fromkeys(row))[: PLACES[-1]] for row in order.tolist()])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", type=int, default=1_000_000)
    parser.add_argument("--width", type=int, default=384)
    parser.add_argument("--texts", type=int, default=1000)
    parser.add_argument("--noise", type=float, default=0.5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--probes", type=int, nargs="+", default=[16, 32, 64, 128])
    parser.add_argument("--vectors")
    given = parser.parse_args()
    if given.vectors:
        held = np.load(given.vectors)
        names, owners, queries = held["names"], held["owners"].astype(np.int32), held["queries"]
        order = np.argsort(owners, kind="stable")
        names, owners = names[order], owners[order]

        def parts() -> Iterator[Any]:
            return (names[low : low + STEP] for low in range(0, len(names), STEP))
    else:
        planted = Planted(given.width, given.noise)
        owners, queries = (np.arange(given.names) // 2).astype(np.int32), planted.draw(given.texts, 0)

        def parts() -> Iterator[Any]:
            return planted.parts(given.names)

    count, labels = len(owners), int(owners.max()) + 1
    before, cpu = time.perf_counter(), time.process_time()
    rows = concatenated(parts(), count, queries.shape[1])
    print(f"{count:,} names of {labels:,} labels, {queries.shape[1]} numbers each; load {os.getloadavg()[0]:.1f}")
    print(f"rounding: {time.perf_counter() - before:.0f} s, {time.process_time() - cpu:.0f} CPU s")
    before, cpu = time.perf_counter(), time.process_time()
    index = CodeIndex.build(rows, owners, labels, few=0, threads=given.threads)
    clusters = len(index.centres.codes)
    print(f"index: {time.perf_counter() - before:.0f} s, {time.process_time() - cpu:.0f} CPU s, {clusters:,} clusters")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"index: {index.nbytes / 1e9:.2f} GB; peak memory so far {peak:.1f} GB", flush=True)
    wanted = exact(parts(), owners, queries, labels)
    index.nearest(queries[:9, None], PLACES[-1])
    for index.probes in [*given.probes, clusters]:
        before, cpu = time.perf_counter(), time.process_time()
        found, _ = index.nearest(queries[:, None], PLACES[-1])
        wall, used = (1000 * (now - then) / len(queries) for now, then in _both(before, cpu))
        recall = [
            np.mean([len(set(a[:k]) & set(b[:k])) / k for a, b in zip(found, wanted, strict=True)]) for k in PLACES
        ]
        figures = f"{wall:.2f} ms a text, {used:.2f} ms CPU; recall@10 {recall[0]:.3f}, recall@50 {recall[1]:.3f}"
        print(f"{index.probes} probes: {figures}", flush=True)


def _both(wall: float, cpu: float) -> list[tuple[float, float]]:
    return [(time.perf_counter(), wall), (time.process_time(), cpu)]


if __name__ == "__main__":
    main()
