"""Updates compared with training from scratch: accuracy, time, and accuracy on new labels.

    python benchmarks/updates.py DATA/tibkat-gnd --recipe tibkat-gnd/parabel [--set KEY=VALUE] [--parts 5]
                                 [--test dev.jsonl.xz] [--device cuda] [--out FILE]

Trains on the first 80 % of train.jsonl.xz, updates that model with the rest at once and in equal parts one after the
other, and trains on all of it. Each model is evaluated on the test file: on all documents, and on those with a label
that occurs only in the last 20 %, for all labels and for such labels only. Seconds are those of `fit` and `update`
without reading and saving, each after a small training run and update as a warm-up; `--repeat` takes the minimum of
several.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core import config
from xmtc.core.runtime import Runtime, available_threads
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.reading import read
from xmtc.metrics import ndcg, precision
from xmtc.models import update
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.recipes import find_recipe

SHARE = 0.8


def main() -> None:
    given = arguments()
    runtime = Runtime(device=given.device, threads=given.threads or available_threads(), seed=given.seed)
    train, test = read(given.data / "train.jsonl.xz"), read(given.data / given.test)
    if given.documents:
        train = train.slice(0, given.documents)
    update.HELD_OUT, update.LEAST_JUDGED = 0, 10**9  # all new documents are learnt from
    cut = int(SHARE * len(train))
    new = fresh_labels(train, cut)
    name, recipe = config.read_recipe(find_recipe(given.recipe))
    assert name is not None
    settings = config.merge(recipe, config.parse_assignments(given.set))
    warm_up(name, settings, train, runtime)
    lines = []

    def tell(what: str, model: Model, seconds: float) -> None:
        lines.append({"what": what, "seconds": round(seconds, 2), **measured(model, test, train, new)})
        print(json.dumps(lines[-1]), flush=True)

    first, seconds = trained(name, settings, part(train, 0, cut), runtime, 1)
    tell("80 %", first, seconds)
    folder = given.work / f"{name}-first"
    first.save(folder, overwrite=True)
    ends = np.linspace(cut, len(train), given.parts + 1).astype(int).tolist()
    for what, bounds in (("update", [cut, len(train)]), (f"{given.parts} updates", ends)):
        model, seconds = updated(folder, train, bounds, runtime, given.repeat)
        tell(what, model, seconds)
    whole, refit = trained(name, settings, train, runtime, given.repeat)
    tell("refit", whole, refit)
    for line in lines:
        line["share of refit's time"] = round(line["seconds"] / refit, 3)
    print(table(lines))
    if given.out is not None:
        about = {"recipe": given.recipe, "set": given.set, "test": given.test, "new labels": int(new.sum())}
        given.out.write_text(json.dumps({**about, "threads": runtime.threads, "lines": lines}, indent=1) + "\n")


def trained(
    name: str, settings: dict[str, Any], documents: Dataset, runtime: Runtime, repeat: int
) -> tuple[Model, float]:
    times = []
    for _ in range(repeat):
        started = time.perf_counter()
        model = model_class(name)(**settings).fit(documents, runtime=runtime)
        times.append(time.perf_counter() - started)
    return model, min(times)


def updated(folder: Path, train: Dataset, bounds: list[int], runtime: Runtime, repeat: int) -> tuple[Model, float]:
    """The model after one update for each part, and what they took together."""
    times = []
    for _ in range(repeat):
        model = Model.load(folder, runtime)
        total = 0.0
        for low, high in itertools.pairwise(bounds):
            documents = part(train, low, high)
            started = time.perf_counter()
            model.update(documents, runtime=runtime)
            total += time.perf_counter() - started
        times.append(total)
    return model, min(times)


def warm_up(name: str, settings: dict[str, Any], train: Dataset, runtime: Runtime) -> None:
    model = model_class(name)(**settings).fit(part(train, 0, 2000), runtime=runtime)
    model.update(part(train, 2000, 2400), runtime=runtime)


def part(train: Dataset, low: int, high: int) -> Dataset:
    """Neighbouring documents, with the labels that occur there."""
    rows = train.slice(low, high)
    assert rows.labels is not None
    assert rows.label_index is not None
    occurring = np.unique(rows.labels.indices)
    return replace(rows, labels=sp.csr_array(rows.labels[:, occurring]), label_index=rows.label_index.take(occurring))


def fresh_labels(train: Dataset, cut: int) -> NDArray[np.bool_]:
    """(L,) labels that no document before the cut holds."""
    assert train.labels is not None
    count = train.labels.shape[1]
    before, after = (
        np.bincount(rows.indices, minlength=count) > 0 for rows in (train.labels[:cut], train.labels[cut:])
    )
    return after & ~before


def measured(model: Model, test: Dataset, train: Dataset, new: NDArray[np.bool_]) -> dict[str, float]:
    found = model.predict(test, 5).labels
    truth, _ = align_labels(test, model.labels)
    assert train.label_index is not None
    index = model.labels.ids(train.label_index.strings("key", np.flatnonzero(new)))
    by_train, _ = align_labels(test, train.label_index)
    rows = np.flatnonzero(by_train[:, : len(new)] @ new.astype(np.float32))
    alone = sp.csr_array(truth[rows])
    is_new = np.zeros(truth.shape[1], dtype=bool)
    is_new[index[index >= 0]] = True
    alone.data = alone.data * is_new[alone.indices]
    alone.eliminate_zeros()
    scores = {f"P@{k}": precision(found, truth, k) for k in (1, 3, 5)}
    scores["nDCG@5"] = ndcg(found, truth, 5)
    scores["P@5 where new"] = precision(found[rows], truth[rows], 5)
    scores["P@5 of new"] = precision(found[rows], alone, 5)
    return {name: round(100 * score, 2) for name, score in scores.items()} | {"documents where new": len(rows)}


def table(lines: list[dict[str, Any]]) -> str:
    names = [name for name in lines[0] if name != "documents where new"]
    rows = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return "\n".join([*rows, *("| " + " | ".join(str(line[name]) for name in names) + " |" for line in lines)])


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", required=True)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--parts", type=int, default=5)
    parser.add_argument("--test", default="test.jsonl.xz")
    parser.add_argument("--documents", type=int, default=0, help="of the training file, for a rehearsal")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--work", type=Path, default=Path("build/updates"))
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


if __name__ == "__main__":
    main()
