"""Accuracy and time of `parabel` with other settings than the defaults, on matrices with held-out documents.

usage: python benchmarks/tree_settings.py --matrices FOLDER --sets tibkat-gnd-dev eurlex57k-dev [--threads 2]

FOLDER has a folder per data set, as for linear.py; choose settings on development documents. Each row changes one
default; the last is the model before paths had a weight.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

import xmtc
from xmtc import metrics
from xmtc.labels.propensity import inverse_propensities

BEFORE = {"path_weight": 1.0, "negatives": 0, "cost": 1.0, "beam_width": 10, "weights": "float32", "leaf_size": 256}
VARIANTS: dict[str, dict[str, object]] = {
    "default": {},
    "path_weight = 1": {"path_weight": 1.0},
    "negatives = 0": {"negatives": 0},
    "negatives = 2": {"negatives": 2},
    "cost = 1": {"cost": 1.0},
    "cost = 0.5": {"cost": 0.5},
    "float32": {"weights": "float32"},
    "beam_width = 10": {"beam_width": 10},
    "trees = 1": {"trees": 1},
    "trees = 2": {"trees": 2},
    "trees = 3": {"trees": 3},
    "leaf_size = 256": {"leaf_size": 256},
    "leaf_size = 512": {"leaf_size": 512},
    "before, 1 tree": {**BEFORE, "trees": 1},
    "before, 3 trees": {**BEFORE, "trees": 3},
}


def main() -> None:
    """Print a row per data set and variant."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrices", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", required=True)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    runtime = xmtc.Runtime(threads=given.threads)
    for name in given.sets:
        folder = given.matrices / name
        rows, labels, test, truth = (
            sp.csr_array(sp.load_npz(folder / f"{part}.npz")) for part in ("X_train", "Y_train", "X_test", "Y_test")
        )
        inverse = inverse_propensities(
            np.bincount(labels.indices, minlength=labels.shape[1]), labels.shape[0], 0.55, 1.5
        )
        xmtc.Parabel(trees=2).fit(rows[:300], labels[:300], runtime=runtime).predict(test[:300])  # compiles the kernels
        for variant, settings in VARIANTS.items():
            started = time.perf_counter()
            model = xmtc.create("parabel", **settings).fit(rows, labels, runtime=runtime)
            trained = time.perf_counter()
            found = metrics.evaluate(model.predict(test, k=5), truth, (1, 3, 5), inverse)
            ended = time.perf_counter()
            places = "/".join(f"{100 * found[f'P@{k}']:.2f}" for k in (1, 3, 5))
            times = f"{trained - started:.1f} | {ended - trained:.2f}"
            print(f"| {name} | {variant} | {places} | {100 * found['nDCG@5']:.2f} | {times} |", flush=True)


if __name__ == "__main__":
    main()
