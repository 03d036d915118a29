"""Speed and memory of `lexical`: training and prediction on TIBKAT-GND, and prediction among a million names.

    python benchmarks/lexical_speed.py --data ../shared/data/tibkat-gnd

The million names are the real ones and random compounds, pairs and triples of their words, so that words and n-grams
are as frequent as in real vocabularies; texts are real test documents. Times are wall times of all threads together.
"""

from __future__ import annotations

import argparse
import resource
import time
from pathlib import Path

import numpy as np

import xmtc
from xmtc.core.runtime import Runtime
from xmtc.data.label_index import LabelIndex
from xmtc.lexical.persistence import matcher_state


def many_names(labels: LabelIndex, count: int, seed: int = 0) -> LabelIndex:
    """Make as many different names as wanted: the given ones, compounds of two of their words, pairs and triples.

    The share of names of one, two and three words is that of TIBKAT-GND: 74, 23 and 3 %.
    """
    generator = np.random.default_rng(seed)
    words = np.array([word for name in labels.names for word in name.split()])
    made = dict.fromkeys(labels.names)
    while len(made) < count:
        drawn = generator.choice(words, size=(100_000, 3))
        for row, kind in zip(drawn.tolist(), generator.random(len(drawn)), strict=True):
            made["".join(row[:2]) if kind < 0.74 else " ".join(row[: 2 if kind < 0.97 else 3])] = None
    new = list(made)[len(dict.fromkeys(labels.names)) :][: count - len(labels)]
    return LabelIndex.from_keys(
        [*labels.keys, *(f"made:{number}" for number in range(len(new)))], [*labels.names, *new]
    )


def timed(model: xmtc.Lexical, test: xmtc.Dataset, repeats: int = 1) -> str:
    """Return wall and processor milliseconds per document."""
    model.predict(test.slice(0, 256), 10)
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        model.predict(test, 10)
    wall, processor = time.perf_counter() - wall, time.process_time() - processor
    count = len(test) * repeats / 1000
    return f"{wall / count:.3f} ms a document, processor {processor / count:.3f} ms"


def main() -> None:
    """Run all measurements."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--names", type=int, default=1_000_000)
    given = parser.parse_args()
    runtime, vocabulary = Runtime(threads=given.threads), given.data / "labels.tsv.gz"
    train = xmtc.read(given.data / "train.jsonl.xz", vocabulary=vocabulary)
    test = xmtc.read(given.data / "test.jsonl.xz", vocabulary=vocabulary)
    xmtc.Lexical().fit(train.take(np.arange(600)), runtime=runtime)  # compiles the kernels
    started = time.perf_counter()
    model = xmtc.Lexical().fit(train, runtime=runtime)
    print(f"training, {len(train):,} documents: {time.perf_counter() - started:.1f} s", flush=True)
    print(f"{len(test):,} documents: {timed(model, test)}", flush=True)
    print(f"one document at a time: {timed(model, test.slice(0, 1), 100)}", flush=True)
    assert test.label_index is not None
    labels = many_names(test.label_index, given.names)
    started = time.perf_counter()
    model.update(vocabulary=labels, runtime=runtime)
    seconds = time.perf_counter() - started
    size = sum(array.nbytes for array in matcher_state(model._matcher).values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{len(labels):,} labels: index of {size / 1e9:.2f} GB, update {seconds:.0f} s, process {peak:.1f} GB")
    print(f"{len(labels):,} labels: {timed(model, test.slice(5000, 8000))}")


if __name__ == "__main__":
    main()
