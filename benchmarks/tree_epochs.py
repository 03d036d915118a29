"""Number of epochs needed by the levels of a label tree, compared with a flat model, on a held-out part of a corpus.

python benchmarks/tree_epochs.py DATA/cooking/train.jsonl.xz
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import xmtc
from xmtc.core.config import merge, read_recipe
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import align_labels
from xmtc.metrics import precision
from xmtc.models.attention_xml import AttentionXml
from xmtc.recipes import find_recipe

RUNS: list[dict[str, Any]] = [
    *({"training.epochs": epochs} for epochs in (5, 10, 25)),
    *({"head.tree.height": 2, "head.tree.epochs": epochs} for epochs in (3, 5, 10)),
    *({"head.tree.height": 1, "head.tree.epochs": epochs} for epochs in (5, 10)),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("train", type=Path)
    parser.add_argument("--held-out", type=int, default=1500)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    documents = xmtc.read(given.train)
    order = np.random.default_rng(0).permutation(len(documents))
    held, learnt = (documents.take(np.sort(rows)) for rows in (order[: given.held_out], order[given.held_out :]))
    recipe = read_recipe(find_recipe("cooking/attention_xml"))[1]
    for settings in RUNS:
        started = time.perf_counter()
        model = AttentionXml(**merge(recipe, {"members": 1}, settings))
        model.fit(learnt, runtime=Runtime(device="cpu", threads=given.threads))
        truth, _ = align_labels(held, model.labels)
        found = model.predict(held, 5)
        scores = "/".join(f"{100 * precision(found, truth[:, : len(model.labels)], k):.2f}" for k in (1, 3, 5))
        told = " ".join(f"{name}={value}" for name, value in settings.items())
        print(f"{told}: {scores} in {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    main()
