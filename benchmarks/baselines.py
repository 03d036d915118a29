"""The models of the package on real datasets: accuracy, training time, prediction time.

usage: python benchmarks/baselines.py DATA [DATASET…] [--models a,b]
DATA contains folders such as cooking/ with train and test files. Test labels that do not occur in training are dropped,
as in the peers. Default settings, seed 0.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from xmtc.core.runtime import Runtime
from xmtc.data.reading import read
from xmtc.models.registry import MODELS, model_class
from xmtc.workflows.evaluate import evaluate_model

SHOWN = ("P@1", "P@3", "P@5", "nDCG@5", "PSP@1", "PSP@3", "PSP@5")


def found(folder: Path, stem: str) -> Path:
    return next(folder.glob(f"{stem}.*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("datasets", nargs="*", default=["cooking", "bibtex", "delicious", "eurlex57k", "tibkat-gnd"])
    parser.add_argument("--models", default=",".join(MODELS))
    given = parser.parse_args()
    print("| data set | model | train s | predict s | P@1/3/5 | nDCG@5 | PSP@1/3/5 |\n|---|---|---|---|---|---|---|")
    for name in given.datasets:
        train, test = (read(found(given.data / name, stem)) for stem in ("train", "test"))
        for model_name in given.models.split(","):
            started = time.perf_counter()
            model = model_class(model_name)().fit(train, runtime=Runtime())
            seconds = time.perf_counter() - started
            result = evaluate_model(model, test, unknown_labels="drop")
            percent = [f"{100 * result.metrics[metric]:.2f}" for metric in SHOWN]
            row = [name, model_name, f"{seconds:.1f}", f"{result.seconds:.2f}"]
            row += ["/".join(percent[:3]), percent[3], "/".join(percent[4:])]
            print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
