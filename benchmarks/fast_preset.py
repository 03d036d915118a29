"""The preset `fast` against parabel with default settings: accuracy, and seconds of choice, training and prediction.

    PYTHONPATH=src python benchmarks/fast_preset.py --data ../shared/data --sets cooking,bibtex

A set is a folder with train.* and test.* files; NAME-titles uses only the first line of its texts. The two are trained
in turn, `--repeat` times, and the fewest seconds of each count. Processor seconds of all threads are less sensitive to
other programs on the machine than seconds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.reading import read
from xmtc.data.records import ReadOptions
from xmtc.metrics import ndcg, precision
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.presets.fast import choose_fast

SETS = "cooking,bibtex,delicious,eurlex57k,tibkat-gnd,tibkat-gnd-titles"
Result = TypeVar("Result")
Figures = dict[str, Any]


def loaded(folder: Path) -> tuple[Dataset, Dataset]:
    """The training and test documents of a set."""
    source = folder.with_name(folder.name.removesuffix("-titles"))
    train = read(next(source.glob("train.*")), ReadOptions())
    width = None if train.has_text or train.features is None else int(train.features.shape[1])
    test = read(next(source.glob("test.*")), ReadOptions() if width is None else ReadOptions(feature_count=width))
    if source != folder:
        train, test = (replace(part, fields={"text": titles(part)}) for part in (train, test))
    return train, test


def titles(documents: Dataset) -> pa.ChunkedArray:
    return pa.chunked_array([pc.list_element(pc.split_pattern(documents.text().combine_chunks(), "\n"), 0)])


def timed(work: Callable[[], Result]) -> tuple[Result, float, float]:
    """The result, seconds, and processor seconds of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = work()
    return found, time.perf_counter() - wall, time.process_time() - cpu


def measured(fit: Callable[[], Model], test: Dataset) -> Figures:
    model, seconds, cpu = timed(fit)
    answer, asked, asked_cpu = timed(lambda: model.predict(test, k=5))
    truth, _ = align_labels(test, model.labels)
    scores = {f"P@{k}": 100 * precision(answer.labels, truth, k) for k in (1, 3, 5)}
    times = {"train": seconds, "train cpu": cpu, "predict": asked, "predict cpu": asked_cpu}
    return {"nDCG@5": 100 * ndcg(answer.labels, truth, 5), **scores, **times}


def fewest(runs: list[Figures]) -> Figures:
    """Scores of the first run, and the fewest seconds of all."""
    return {name: min(run[name] for run in runs) if "@" not in name else runs[0][name] for name in runs[0]}


def compare(folder: Path, runtime: Runtime, repeat: int) -> Figures:
    train, test = loaded(folder)
    few = train.take(np.arange(min(2000, len(train))))
    model_class("parabel")().fit(few, runtime=runtime).predict(test.slice(0, 100))  # loads the kernels
    runs: dict[str, list[Figures]] = {"parabel": [], "fast": []}
    reasons: tuple[str, ...] = ()

    def chosen() -> Model:
        nonlocal reasons
        choice = choose_fast(train, runtime=runtime)
        reasons = (*choice.reasons, f"Choice: {choice.model} {json.dumps(choice.settings)}")
        fitted: Model = model_class(choice.model)(**choice.settings).fit(train, runtime=runtime)
        return fitted

    for _ in range(repeat):
        runs["parabel"].append(measured(lambda: model_class("parabel")().fit(train, runtime=runtime), test))
        runs["fast"].append(measured(chosen, test))
    plain, fast = fewest(runs["parabel"]), fewest(runs["fast"])
    print(f"\n{folder.name}: {len(train):,} documents", *reasons, sep="\n  ", flush=True)
    for name, figures in (("parabel", plain), ("fast", fast)):
        print(f"  {name:8s}", *(f"{key} {value:.2f}" for key, value in figures.items()), sep="  ", flush=True)
    times = ("train", "train cpu", "predict", "predict cpu")
    print("  ratios  ", *(f"{key} {fast[key] / max(plain[key], 1e-9):.2f}" for key in times), sep="  ")
    print(f"  gain      nDCG@5 {fast['nDCG@5'] - plain['nDCG@5']:+.2f}", flush=True)
    return {"set": folder.name, "parabel": plain, "fast": fast, "reasons": reasons}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", default=SETS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=1)
    given = parser.parse_args()
    runtime = Runtime(threads=given.threads)
    results = [compare(given.data / name, runtime, given.repeat) for name in given.sets.split(",")]
    gains = [one["fast"]["nDCG@5"] - one["parabel"]["nDCG@5"] for one in results if "-titles" not in one["set"]]
    if gains:
        print(f"\nMean gain of nDCG@5 over {len(gains)} sets: {np.mean(gains):+.2f}")


if __name__ == "__main__":
    main()
