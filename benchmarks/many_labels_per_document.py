"""Time of predicting thousands of labels per document, against another checkout.

usage: python benchmarks/many_labels_per_document.py [OTHER_SRC]

Label trees on a planted matrix with 20,000 labels, one thread; milliseconds per document for growing k, with one tree
and with two. Each document has k labels in its answer, so the floor is one comparison and one move of 12 bytes for each
of them, about 5 µs for 5,000. OTHER_SRC is the `src` folder of another checkout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent / "src"
DEPTHS = (5, 500, 1000, 2000, 5000)
SCRIPT = """
import json, sys, time
import numpy as np
import scipy.sparse as sp
import xmtc

chance = np.random.default_rng(0)
documents, words, labels = 20_000, 5_000, 20_000
own = sp.csr_array(sp.random(labels, words, density=0.002, random_state=1, format="csr", dtype=np.float32))
held = chance.integers(0, labels, (documents, 3))
truth = sp.csr_array(
    (np.ones(3 * documents, np.float32), held.ravel(), np.arange(0, 3 * documents + 1, 3)), (documents, labels)
)
truth.sum_duplicates()
rows = sp.csr_array(truth @ own)
for trees in (1, 2):
    model = xmtc.Parabel(trees=trees, leaf_size=256, beam_width=0).fit(rows, truth)
    model.runtime = xmtc.Runtime(threads=1)
    for k in map(int, sys.argv[1:]):
        model.predict(rows[:2], k=k)
        best = 1e9
        for _ in range(3):
            started = time.perf_counter()
            model.predict(rows[:40], k=k)
            best = min(best, time.perf_counter() - started)
        print(json.dumps([trees, k, 1000 * best / 40]), flush=True)
"""


def main() -> None:
    """Print a table row for each number of trees and labels."""
    folders = {"now": HERE} | ({"before": Path(sys.argv[1]).resolve()} if len(sys.argv) > 1 else {})
    for name, folder in folders.items():
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        command = [sys.executable, "-c", SCRIPT, *map(str, DEPTHS)]
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        for line in done.stdout.splitlines():
            trees, k, milliseconds = json.loads(line)
            print(f"{name}: {trees} tree(s), k = {k:,}: {milliseconds:.3f} ms per document", flush=True)


if __name__ == "__main__":
    main()
