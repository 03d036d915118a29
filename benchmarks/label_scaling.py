"""Growth of time and memory with the number of labels, on synthetic corpora of a thousand to a million labels.

usage: python benchmarks/label_scaling.py [--labels 1000 10000 100000 1000000] [--plot benchmarks/label_scaling.svg]
A corpus has as many documents as labels, at least 20,000, with about 28 words and 2.5 labels each. Frequencies follow
Zipf's law and most labels are rare, so more labels are generated than requested, such that the requested number occurs
in training. Every label has words of its own, which are as rare as the label: all words are kept (text.min_df=1, up to
10,000,000). One tree, otherwise default settings, seed 0.

Each size runs in its own process, which trains on text from a file, saves, loads the folder again and predicts 5,000
further documents; the kernels are compiled before. Generating the corpus is not timed.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SIZES = (1_000, 10_000, 100_000, 1_000_000)
LEAST_DOCUMENTS = 20_000
WORDS = 26
HELD_OUT = 5_000
SINGLE = 300
SETTINGS = {"trees": 1, "text.min_df": 1, "text.max_features": 10_000_000}

COLUMNS = {
    "labels": "{labels:,}",
    "documents": "{documents:,}",
    "features": "{features:,}",
    "read s": "{read:.1f}",
    "tf-idf s": "{tfidf:.1f}",
    "train s": "{train:.1f}",
    "of it clustering": "{clustering:.1f}",
    "peak GiB": "{peak:.2f}",
    "model MB": "{size:.0f}",
    "load + first text s": "{start:.1f}",
    "ms/doc, text": "{text_ms:.3f}",
    "ms/doc, features": "{batch_ms:.3f}",
    "one doc ms, predict": "{one_ms:.3f}",
    "one doc ms, tag": "{tag_ms:.3f}",
    "P@1": "{precision:.2f}",
}


class Stopwatch:
    """Progress that nobody sees, with the seconds of each task by title."""

    def __init__(self, tell: bool = False) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._tell = tell

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Stopwatch]:
        started = time.perf_counter()
        yield self
        self.seconds[title] += time.perf_counter() - started
        if self._tell:
            print(f"{self.seconds[title]:8.1f} s  {peak():6.2f} GiB  {title}", file=sys.stderr, flush=True)

    def advance(self, steps: int = 1) -> None:
        return

    def note(self, words: str) -> None:
        return

    def say(self, line: str) -> None:
        return


def peak() -> float:
    """GiB that this process held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    result = call()
    return time.perf_counter() - started, result


def fastest(call: Callable[[], Any], times: int = 3) -> tuple[float, Any]:
    runs = [timed(call) for _ in range(times)]
    return min(seconds for seconds, _ in runs), runs[0][1]


# ---- one size, in a process of its own


def planted_labels(wanted: int, pairs: float, zipf: float) -> int:
    """How many labels to plant for `wanted` of them to occur among so many (document, label) pairs, about."""
    import numpy as np

    def occurring(count: int) -> float:
        ranks, power = np.arange(1, count + 2, dtype=np.float64), 1 - zipf
        shares = np.diff(ranks**power) / ((count + 1) ** power - 1)
        return float((1 - np.exp(-pairs * shares)).sum())

    low, high = wanted, 8 * wanted
    while high - low > 1 + wanted // 1000:
        middle = (low + high) // 2
        low, high = (low, middle) if occurring(middle) >= wanted else (middle, high)
    return low if occurring(low) >= wanted else high


def write_corpus(labels: int, documents: int, folder: Path) -> None:
    """train.jsonl and test.jsonl."""
    from xmtc.data.planted_corpus import PlantedCorpus

    usual = PlantedCorpus()
    planted = planted_labels(labels, documents * usual.labels_per_document, usual.zipf)
    corpus = PlantedCorpus(documents=documents + HELD_OUT, labels=planted, words_per_document=WORDS)
    for name, start, stop in (("train", 0, documents), ("test", documents, documents + HELD_OUT)):
        with open(folder / f"{name}.jsonl", "w", encoding="utf-8") as handle:
            corpus.write_jsonl(handle, start, stop)


def of_features(model: Any) -> Any:
    """The same model for feature rows that are ready, where `model` takes text."""
    from xmtc.text.features import DocumentFeatures

    twin = copy.copy(model)
    twin._features = DocumentFeatures(None, model._features.width)
    twin.training = {**model.training, "features": model._features.width}
    return twin


def trained(folder: Path, tell: bool) -> dict[str, Any]:
    """Train on what the folder holds, and save."""
    import xmtc

    watch = Stopwatch(tell)
    few = xmtc.read(folder / "test.jsonl").slice(0, 300)
    xmtc.Parabel(**SETTINGS).fit(few).predict(few)  # loads the kernels
    read_seconds, train = timed(lambda: xmtc.read(folder / "train.jsonl", progress=watch))
    seconds, model = timed(lambda: xmtc.Parabel(**SETTINGS).fit(train, progress=watch))
    saving, _ = timed(lambda: model.save(folder / "model", overwrite=True))
    tfidf = sum(watch.seconds[title] for title in ("splitting into words", "weighing words"))
    return {
        "labels": len(model.labels),
        "documents": len(train),
        "features": int(model._features.width),
        "read": read_seconds,
        "tfidf": tfidf,
        "train": seconds - tfidf,
        "clustering": watch.seconds["clustering labels"],
        "saving": saving,
        "peak": peak(),
        "size": sum(path.stat().st_size for path in (folder / "model").rglob("*") if path.is_file()) / 1e6,
    }


def predicted(folder: Path) -> dict[str, float]:
    import xmtc
    from xmtc import metrics
    from xmtc.data.dataset import align_labels

    test = xmtc.read(folder / "test.jsonl")
    loading, model = timed(lambda: xmtc.load(folder / "model"))
    first_seconds, _ = timed(lambda: model.predict(test.slice(0, 1), k=5))  # looks words up for the first time
    text_seconds, answer = fastest(lambda: model.predict(test, k=5))
    rows, ready = model._features.transform(test, model.runtime), of_features(model)
    batch_seconds, same = fastest(lambda: ready.predict(rows, k=5))
    assert (answer.labels == same.labels).all()
    return {
        "start": loading + first_seconds,
        "text_ms": 1000 * text_seconds / len(test),
        "batch_ms": 1000 * batch_seconds / len(test),
        **one_by_one(ready, rows),
        "precision": 100 * metrics.precision(answer, align_labels(test, model.labels)[0], 1),
    }


def one_by_one(model: Any, rows: Any) -> dict[str, float]:
    """Milliseconds from one feature row to label names on one thread, the median."""
    from xmtc.core.runtime import Runtime

    model.runtime = Runtime(threads=1)
    singles = [rows[[place]] for place in range(SINGLE)]
    calls = {"one_ms": lambda row: model.predict(row, k=5).names(), "tag_ms": lambda row: model.tag(row, k=5)}
    found = {}
    for name, call in calls.items():
        call(singles[0])
        found[name] = 1000 * statistics.median(timed(lambda row=row, call=call: call(row))[0] for row in singles)
    return found


# ---- all sizes


def child(action: str, folder: Path, labels: int, documents: int, tell: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--action", action, "--folder", str(folder), "--documents", str(documents)]
    command += ["--labels", str(labels), *(["--verbose"] if tell else [])]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout))


def size_measured(labels: int, documents: int, tell: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        seconds, _ = timed(lambda: child("write", folder, labels, documents, tell))
        print(f"{labels:,} labels: corpus made in {seconds:.0f} s", file=sys.stderr, flush=True)
        return child("measure", folder, labels, documents, tell)


def table(results: list[dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    lines += [f"| {' | '.join(form.format(**found) for form in COLUMNS.values())} |" for found in results]
    first, last = results[0], results[-1]
    told = {"text_ms": "text", "batch_ms": "features", "one_ms": "one document, predict", "tag_ms": "one document, tag"}
    ratios = [f"{name} {last[key] / first[key]:.2f}" for key, name in told.items()]
    lines += ["", f"t({last['labels']:,}) / t({first['labels']:,}): {', '.join(ratios)}"]
    return "\n".join(lines)


def plot(results: list[dict[str, Any]], path: Path) -> None:
    """Milliseconds a document against labels, logarithmic across, and upright too where the range is wide."""
    from xmtc.views.charts import line_chart
    from xmtc.views.plot import short_number

    names = {"tag_ms": "one document, one thread", "text_ms": "batch, from text", "batch_ms": "batch, from features"}
    series = {
        name: [(math.log10(found["labels"]), found[key]) for found in results if found[key] > 0]
        for key, name in names.items()
    }
    marks = [(math.log10(found["labels"]), short_number(found["labels"])) for found in results]
    title = "Milliseconds a document against labels"
    line_chart(title, series, xlabel="labels", ylabel="milliseconds per document", marks=marks, points=False).save(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--documents", type=int, help="documents of every size")
    parser.add_argument("--plot", type=Path, help="SVG file to draw")
    parser.add_argument("--verbose", action="store_true", help="tell the seconds and the memory of each step")
    parser.add_argument("--action", choices=["write", "measure"], help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.action == "write":
        write_corpus(given.labels[0], given.documents, given.folder)
        print("{}")
    elif given.action == "measure":
        print(json.dumps(trained(given.folder, given.verbose) | predicted(given.folder)))
    else:
        size_measured(500, 1000, False)  # compiles the kernels
        results = []
        for labels in sorted(given.labels):
            results.append(size_measured(labels, given.documents or max(labels, LEAST_DOCUMENTS), given.verbose))
            print(json.dumps(results[-1]), file=sys.stderr, flush=True)
        print(table(results))
        if given.plot:
            plot(results, given.plot)


if __name__ == "__main__":
    main()
