"""Time to load a model folder of about 1 GiB: for the first time, again, and with `verify=True`.

The weights of a small linear model are repeated until the folder has the requested size, so every kind of array of a
label tree is there. Each load is a new process with the file in the page cache, as after a copy or a training.

    python benchmarks/load_time.py [--gib 1] [--rounds 5] [--folder DIR]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from xmtc.data.label_index import LabelIndex
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.labels.tree import LabelTree
from xmtc.linear.forest import Forest
from xmtc.linear.weight_chunks import Chunks
from xmtc.models.one_vs_all import OneVsAll

LOAD = """
import json, sys, time
from xmtc.models.base import Model
import xmtc.models.one_vs_all
start, used = time.perf_counter(), time.process_time()
model = Model.load(sys.argv[1], verify=sys.argv[2] == "verify")
print(json.dumps([time.perf_counter() - start, time.process_time() - used]))
"""


def write(folder: Path, size: int) -> int:
    """Write a folder of about this many bytes; return its number of labels."""
    (batch,) = PlantedCorpus(labels=512, documents=4000, seed=1).batches()
    model = OneVsAll(prune=0.0).fit(batch.texts, batch.labels)
    ((tree, chunks),) = model._forest._trees
    groups = len(tree.starts[1]) - 1
    labels = chunks.taken(range(1, groups + 1))
    repeats = max(1, size // sum(array.nbytes for array in labels))
    root = Chunks.certain(repeats * groups, half=labels.dense.dtype == np.uint16)
    sizes = np.tile(np.diff(tree.starts[1]), repeats)
    starts = np.concatenate([[0], np.cumsum(sizes)])
    count = int(starts[-1])
    wide = LabelTree(np.arange(count), (np.array([0, repeats * groups]), starts))
    joined = Chunks.joined([root, *[labels] * repeats])
    model._forest = Forest([(wide, joined)], model._forest._numbers, model._forest._how)
    model._labels, model.label_counts = LabelIndex.numbered(count), np.ones(count, dtype=np.int64)
    model.save(folder)
    return count


def seconds(folder: Path, how: str, cache: Path) -> tuple[float, float]:
    """Load the folder in a new process; return elapsed and processor seconds of the load alone."""
    environment = {**os.environ, "XMTC_CACHE": str(cache)}
    run = subprocess.run(
        [sys.executable, "-c", LOAD, str(folder), how], env=environment, capture_output=True, text=True, check=True
    )
    elapsed, used = json.loads(run.stdout)
    return float(elapsed), float(used)


def main() -> None:
    """Write the folder, load it in each way, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    place = options.folder or Path(tempfile.mkdtemp(prefix="xmtc-load-"))
    folder, cache = place / "model", place / "cache"
    labels = write(folder, int(options.gib * 2**30))
    held = sum(path.stat().st_size for path in folder.iterdir())
    print(f"{held / 2**30:.2f} GiB, {labels:,} labels", flush=True)
    time.sleep(3)  # files written just now get no stamp
    seconds(folder, "load", cache)  # compiles kernels, fills the page cache
    times: dict[str, list[tuple[float, float]]] = {"first load": [], "load again": [], "verify=True": []}
    for _ in range(options.rounds):
        shutil.rmtree(cache, ignore_errors=True)
        times["first load"].append(seconds(folder, "load", cache))
        times["load again"].append(seconds(folder, "load", cache))
        times["verify=True"].append(seconds(folder, "verify", cache))
    for name, values in times.items():
        elapsed, used = (statistics.median(part) for part in zip(*values, strict=True))
        print(f"{name:12} {elapsed:.2f} s elapsed, {used:.2f} s of processor time")
    if options.folder is None:
        shutil.rmtree(place)


if __name__ == "__main__":
    main()
