"""DXML: random settings on development documents, and several recipes and seeds on test documents, on one GPU.

    python benchmarks/dxml.py trials DATA/eurlex57k --out FILE [--seconds 300] [--workers 4] [--labels FILE]
    python benchmarks/dxml.py best FILE [--most 10]

`trials` trains random settings on train.jsonl.xz and measures them on dev.jsonl.xz, with many ways to vote, in
processes beside each other until the time is up; a line of JSON for each. `best` shows the best of them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.data import read
from xmtc.dataset import Dataset, align_labels
from xmtc.linear.neighbours import vote
from xmtc.metrics import ndcg, precision
from xmtc.models import dxml
from xmtc.models.dxml import Dxml, _weights
from xmtc.runtime import Runtime

COUNTS, SHARPNESSES, DIRECT = (10, 20, 50, 100), (5.0, 10.0, 20.0, 40.0), (0.3, 1.0, 3.0)


def drawn(random: np.random.Generator, steps: tuple[int, ...]) -> dict[str, Any]:
    """Settings at random."""

    def one(*values: Any) -> Any:
        return values[random.integers(len(values))]

    loss = one("contrast", "contrast", "robust")
    epochs = int(one(*steps))
    return {
        "vectors.kind": one("deepwalk", "deepwalk", "svd"),
        "vectors.width": int(one(100, 300, 300, 500)),
        "encoder.hidden": int(one(512, 1024, 1024, 2048)),
        "encoder.dropout": one(0.2, 0.4, 0.6, 0.7),
        "encoder.spread": one(0.15, 0.3, 0.5),
        "head.robust": float(loss == "robust"),
        "head.contrast": float(loss == "contrast"),
        "head.temperature": one(0.05, 0.08, 0.12, 0.18),
        "head.decode": one(0.0, 0.003, 0.01, 0.03, 0.1, 0.3),
        "head.scale": one(5.0, 10.0, 20.0),
        "training.batch": int(one(128, 256, 512)),
        "training.epochs": epochs,
        "training.learning_rate": float(np.exp(random.uniform(np.log(4e-4), np.log(8e-3)))),
        "training.averaging": "all",
        "training.average_from": round(0.85 * epochs, 2),
        "training.skipped_words": one(0.1, 0.2, 0.3, 0.4),
        "training.held_out": 0,
        "neighbours": 20,
        "sharpness": 10.0,
    }


def remembered(folders: list[Path]) -> None:
    """Let label vectors be made once for all settings that have the same; those in files count as made."""
    make = dxml.label_vectors

    def made(labels: Any, index: Any, settings: Any, **how: Any) -> Any:
        name = f"{settings.kind}-{settings.width}-{settings.graph.source}.npy"
        for folder in folders:
            if (folder / name).exists():
                return np.load(folder / name).astype(np.float32), {"label vectors": name}
        vectors, facts = make(labels, index, settings, **how)
        if settings.kind != "random":
            np.save(folders[-1] / f"new-{os.getpid()}.npy", vectors)
            (folders[-1] / f"new-{os.getpid()}.npy").rename(folders[-1] / name)
        return vectors, facts

    dxml.label_vectors = made


def measured(ranked: Any, truth: Any) -> list[float]:
    """P@1, 3, 5 and nDCG@5 in percent."""
    return [round(100 * precision(ranked, truth, k), 2) for k in (1, 3, 5)] + [round(100 * ndcg(ranked, truth, 5), 2)]


def votes(model: Dxml, documents: Dataset) -> dict[str, list[float]]:
    """Every way to vote, by its name: neighbours, sharpness and weight of the labels' own scores."""
    truth = align_labels(documents, model.labels)[0]
    queries = model._queries(documents)
    found, cosines = model._index.nearest(queries, max(COUNTS))
    voters, members = model._voters, model._members
    labels, scores = len(model.labels), {}

    def ballots(count: int, sharpness: float) -> Any:
        weights = _weights(cosines[:, :count], sharpness)
        return vote(np.ascontiguousarray(found[:, :count]), weights, voters.indptr, voters.labels, labels)

    for count in COUNTS:
        for sharpness in (0.0, *SHARPNESSES):
            ranked, _ = model._ranking(members, ballots(count, sharpness), queries, 5, None)
            scores[f"{count} {sharpness:g} 0"] = measured(ranked, truth)
    top = sorted(scores, key=lambda name: -scores[name][3])[:1]
    for name in top:
        count, sharpness, _ = name.split()
        cast = ballots(int(count), float(sharpness))
        for direct in DIRECT:
            model.set_params(direct=direct)
            scores[f"{count} {sharpness} {direct:g}"] = measured(
                model._ranking(members, cast, queries, 5, None)[0], truth
            )
        model.set_params(direct=0.0)
    return scores


def trial(folder: Path, out: Path, labels: Path | None, number: int, workers: int, until: float, most: int) -> None:
    """One worker: every `workers`-th settings from its own number on."""
    named = {} if labels is None else {"vocabulary": labels}
    train, dev = (
        read(folder / "train.jsonl.xz", **named),
        read(folder / "dev.jsonl.xz", **named, unknown_labels="drop") if named else read(folder / "dev.jsonl.xz"),
    )
    dev = dev.slice(0, min(most, len(dev)))
    own = out.parent / folder.name
    own.mkdir(parents=True, exist_ok=True)
    remembered([folder, own])
    runtime = Runtime(threads=3, seed=0, cache=out.parent / "cache")
    steps = (8, 12, 16, 24) if len(train) < 60_000 else (6, 8, 12, 16)
    at, longest = number, 0.0
    while time.time() + longest < until:
        settings = drawn(np.random.default_rng([7, at]), steps)
        settings["vectors.graph.source"] = "hierarchy" if labels is not None and at % 3 == 0 else "documents"
        if len(train) > 60_000:  # of so many labels, vectors take minutes
            wide = at == number == 0 or (own / "deepwalk-300-documents.npy").exists()
            settings["vectors.kind"] = "deepwalk" if wide or at % 2 else "random"
            settings["vectors.width"] = 300 if wide or settings["vectors.kind"] == "random" else 100
        started = time.time()
        try:
            model = Dxml(**settings).fit(train, runtime=runtime)
            fitted = time.time()
            scores = votes(model, dev)
        except Exception as error:
            print(f"{at}: {type(error).__name__}: {error}", flush=True)
            at += workers
            continue
        best = max(scores, key=lambda name: scores[name][3])
        plain = max((name for name in scores if name.endswith(" 0")), key=lambda name: scores[name][3])
        line = {"number": at, "settings": settings, "fit": round(fitted - started, 1), "facts": model.facts}
        line |= {"best": [best, scores[best]], "vote": [plain, scores[plain]]}
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(at, line["fit"], best, scores[best], "vote", scores[plain], flush=True)
        longest = max(longest, time.time() - started)
        at += workers


def trials(arguments: argparse.Namespace) -> None:
    until = time.time() + arguments.seconds
    asked = [
        sys.executable,
        __file__,
        "trial",
        str(arguments.folder),
        "--out",
        str(arguments.out),
        "--until",
        str(until),
    ]
    asked += ["--workers", str(arguments.workers), "--documents", str(arguments.documents)]
    asked += [] if arguments.labels is None else ["--labels", str(arguments.labels)]
    running = [subprocess.Popen([*asked, "--number", str(number)]) for number in range(arguments.workers)]
    for process in running:
        process.wait()


def best(path: Path, most: int) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in sorted(lines, key=lambda line: -line["best"][1][3])[:most]:
        print(line["best"], "vote", line["vote"], f"fit {line['fit']} s", json.dumps(line["settings"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["trials", "trial", "best"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--until", type=float, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--most", type=int, default=10)
    given = parser.parse_args()
    if given.what == "best":
        best(given.folder, given.most)
    elif given.what == "trials":
        trials(given)
    else:
        trial(given.folder, given.out, given.labels, given.number, given.workers, given.until, given.documents)


if __name__ == "__main__":
    main()
