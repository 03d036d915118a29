"""DXML: random search over settings, and changes to good settings, on the development set and one GPU.

    python benchmarks/dxml.py trials DATA/eurlex57k --out FILE [--seconds 300] [--workers 4] [--labels FILE]
    python benchmarks/dxml.py candidates DATA/eurlex57k --out FILE [--seconds 300] [--workers 4] [--labels FILE]
    python benchmarks/dxml.py best FILE [--most 10]

`trials` trains random settings on train.jsonl.xz and evaluates them on dev.jsonl.xz, with many ways to vote, in
parallel processes until the time is up; it writes a line of JSON for each. `candidates` does the same with the changes
below, first separately, then with combinations of those that helped. `best` shows the best of a file.

Label vectors that take long to compute can be placed in the data folder as KIND-WIDTH-GRAPH.npy, or as .npz with
integers proportional to them.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.core.runtime import Runtime
from xmtc.data import read
from xmtc.data.dataset import Dataset, align_labels
from xmtc.linear.neighbours import vote
from xmtc.metrics import ndcg, precision
from xmtc.models import dxml
from xmtc.models.dxml import Dxml
from xmtc.models.embedding_vote import ranked, vote_weights

COUNTS, SHARPNESSES, DIRECT = (10, 20, 50, 100), (5.0, 10.0, 20.0, 40.0), (0.3, 1.0, 3.0, 10.0)
BLENDED = 3
"""Number of best ways to vote that are blended with the labels' own scores."""
BASE = {
    "vectors.kind": "deepwalk",
    "vectors.graph.source": "documents",
    "vectors.width": 300,
    "encoder.hidden": 1024,
    "encoder.dropout": 0.6,
    "encoder.spread": 0.5,
    "head.temperature": 0.08,
    "head.decode": 0.1,
    "head.scale": 10.0,
    "training.batch_size": 256,
    "training.epochs": 10,
    "training.learning_rate": 0.002,
    "training.averaging": "all",
    "training.skipped_words": 0.3,
    "training.validation_size": 0,
    "neighbours": 20,
    "sharpness": 10.0,
}
SEED = "seed 1"
CHANGES: dict[str, dict[str, Any]] = {
    "base": {},
    "svd": {"vectors.kind": "svd"},
    "random": {"vectors.kind": "random"},
    "hierarchy": {"vectors.graph.source": "hierarchy"},
    "decode 0.3": {"head.decode": 0.3, "head.scale": 5.0},
    "decode 0.03": {"head.decode": 0.03},
    "decode 1": {"head.decode": 1.0, "head.scale": 5.0},
    "decode 0": {"head.decode": 0.0},
    "hidden 512": {"encoder.hidden": 512},
    "hidden 2048": {"encoder.hidden": 2048},
    "temperature 0.12": {"head.temperature": 0.12},
    "dropout 0.7": {"encoder.dropout": 0.7},
    "rate 0.001": {"training.learning_rate": 0.001},
    "longer": {"training.epochs": 16},
    "shorter": {"training.epochs": 8},
    "batch 128": {"training.batch_size": 128, "training.learning_rate": 0.001},
    "wider": {"vectors.width": 500},
    "linear": {"encoder.linear": True},
    "word pairs": {"text.word_ngrams": 2, "text.max_features": 300_000},
    "parts of words": {"text.char_ngrams": (3, 5), "text.max_features": 300_000},
    SEED: {},
}
MANY = 60_000
"""Number of documents from which fewer epochs are used."""
FEWER = {name: {"training.epochs": epochs} for name, epochs in {"base": 8, "longer": 12, "shorter": 6}.items()}
ORDERS = {  # those that compute new label vectors come first, so that these are computed in parallel
    False: "base, svd, hierarchy, random, decode 0.3, decode 1, hidden 2048, dropout 0.7, temperature 0.12, "
    "rate 0.001, decode 0.03, longer, hidden 512, wider, seed 1, batch 128, linear, decode 0, word pairs",
    True: "base, decode 0.3, decode 0.03, random, hidden 512, rate 0.001, linear, decode 1, temperature 0.12, "
    "dropout 0.7, longer, hidden 2048, word pairs, seed 1, parts of words, batch 128",
}
WORTH = 0.1
"""Minimum increase in nDCG@5 for a change to be combined with others."""


def drawn(random: np.random.Generator, steps: tuple[int, ...]) -> dict[str, Any]:
    """Draw random settings."""

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
        "training.batch_size": int(one(128, 256, 512)),
        "training.epochs": epochs,
        "training.learning_rate": float(np.exp(random.uniform(np.log(4e-4), np.log(8e-3)))),
        "training.averaging": "all",
        "training.average_from": round(0.85 * epochs, 2),
        "training.skipped_words": one(0.1, 0.2, 0.3, 0.4),
        "training.validation_size": 0,
        "neighbours": 20,
        "sharpness": 10.0,
    }


def remembered(folders: list[Path]) -> None:
    """Cache label vectors, so that they are computed once for all settings that share them; files are used too."""
    make = dxml.label_vectors

    def made(labels: Any, index: Any, settings: Any, **how: Any) -> Any:
        name = f"{settings.kind}-{settings.width}-{settings.graph.source}.npy"
        for folder in folders:
            if (folder / name).exists():
                return np.load(folder / name).astype(np.float32), {"label vectors": name}
            if (folder / name).with_suffix(".npz").exists():
                with np.load((folder / name).with_suffix(".npz")) as file:
                    rough = file["vectors"].astype(np.float32)
                return rough / np.linalg.norm(rough, axis=1, keepdims=True), {"label vectors": name}
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
    found, cosines = model._vote.embedded.nearest(queries, max(COUNTS))
    voters = model.set_params(direct=0.0)._vote.voters
    labels, scores = len(model.labels), {}

    def ballots(count: int, sharpness: float) -> Any:
        weights = vote_weights(cosines[:, :count], sharpness)
        return vote(np.ascontiguousarray(found[:, :count]), weights, voters.indptr, voters.labels, labels)

    for count in COUNTS:
        for sharpness in (0.0, *SHARPNESSES):
            best, _ = ranked(ballots(count, sharpness), queries, model._direct, 5)
            scores[f"{count} {sharpness:g} 0"] = measured(best, truth)
    top = sorted(scores, key=lambda name: -scores[name][3])[:BLENDED]
    for name in top:
        count, sharpness, _ = name.split()
        cast = ballots(int(count), float(sharpness))
        for direct in DIRECT:
            model.set_params(direct=direct)
            best, _ = ranked(cast, queries, model._direct, 5)
            scores[f"{count} {sharpness} {direct:g}"] = measured(best, truth)
        model.set_params(direct=0.0)
    return scores


class Bench:
    """The documents of a folder and the settings tried on them, with one line of a file each."""

    def __init__(self, folder: Path, out: Path, labels: Path | None, most: int) -> None:
        named: dict[str, Any] = {} if labels is None else {"vocabulary": labels}
        self.train = read(folder / "train.jsonl.xz", **named)
        self.dev = read(folder / "dev.jsonl.xz", **named, **({"unknown_labels": "drop"} if named else {}))
        self.dev = self.dev.slice(0, min(most, len(self.dev)))
        self.out, self.own = out, out.parent / folder.name
        self.own.mkdir(parents=True, exist_ok=True)
        self.many, self.hierarchy = len(self.train) > MANY, labels is not None
        remembered([folder, self.own])

    def claim(self, name: str) -> bool:
        """Whether no other worker has claimed this."""
        try:
            (self.own / f"{name}.claim").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()] if self.out.exists() else []

    def tried(self, name: Any, settings: dict[str, Any], seed: int = 0, **more: Any) -> None:
        """Train, evaluate all ways to vote, and write a line; failures are reported and skipped."""
        started = time.time()
        try:
            runtime = Runtime(threads=3, seed=seed, cache=self.out.parent / "cache")
            model = Dxml(**settings).fit(self.train, runtime=runtime)
            fitted = time.time()
            scores = votes(model, self.dev)
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
            return
        best = max(scores, key=lambda way: scores[way][3])
        plain = max((way for way in scores if way.endswith(" 0")), key=lambda way: scores[way][3])
        line = {"number": name, "settings": settings, "fit": round(fitted - started, 1), "facts": model.facts}
        line |= {"best": [best, scores[best]], "vote": [plain, scores[plain]], "scores": scores, **more}
        with self.out.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(name, line["fit"], best, scores[best], "vote", plain, scores[plain], flush=True)


def trial(bench: Bench, number: int, workers: int, until: float) -> None:
    """One worker: every `workers`-th settings, starting at its number."""
    steps = (6, 8, 12, 16) if bench.many else (8, 12, 16, 24)
    at, longest = number, 0.0
    while time.time() + longest < until:
        settings = drawn(np.random.default_rng([7, at]), steps)
        settings["vectors.graph.source"] = "hierarchy" if bench.hierarchy and at % 3 == 0 else "documents"
        if bench.many:  # of so many labels, vectors take minutes
            wide = at == number == 0 or (bench.own / "deepwalk-300-documents.npy").exists()
            settings["vectors.kind"] = "deepwalk" if wide or at % 2 else "random"
            settings["vectors.width"] = 300 if wide or settings["vectors.kind"] == "random" else 100
        started = time.time()
        bench.tried(at, settings)
        longest = max(longest, time.time() - started)
        at += workers


def together(lines: list[dict[str, Any]]) -> Iterator[list[str]]:
    """Changes to combine: all that helped, then the best two, three and so on."""
    found = {line["number"]: line["best"][1][3] for line in lines if len(line.get("changes", [])) == 1}
    if "base" not in found:
        return
    worth = sorted((name for name in found if found[name] > found["base"] + WORTH), key=lambda name: -found[name])
    kept: list[str] = []
    for name in worth:  # of two changes to one setting the better is kept
        if name != SEED and not any(CHANGES[name].keys() & CHANGES[other].keys() for other in kept):
            kept.append(name)
    for count in [len(kept), *range(2, len(kept))]:
        if count > 1:
            yield kept[:count]


def changed(names: list[str], many: bool) -> dict[str, Any]:
    settings = dict(BASE)
    for name in ["base", *names]:
        settings |= CHANGES[name] | (FEWER.get(name, {}) if many else {})
    settings["training.average_from"] = round(0.85 * settings["training.epochs"], 2)
    return settings


def candidate(bench: Bench, until: float, only: list[str]) -> None:
    """One worker: whatever is unclaimed, until nothing is left or the time is up."""
    listed = [[name] for name in ORDERS[bench.many].split(", ") if name != "hierarchy" or bench.hierarchy]
    if only:
        listed = [names.split(", ") for names in only]
    took: list[float] = []
    while time.time() + (max(took) if took else 0.0) < until:
        asked = next((names for names in listed if bench.claim(", ".join(names))), None)
        if asked is None:
            asked = next((names for names in together(bench.lines()) if bench.claim(", ".join(names))), None)
        if asked is None:
            return
        started = time.time()
        bench.tried(", ".join(asked), changed(asked, bench.many), seed=int(SEED in asked), changes=asked)
        took.append(time.time() - started)


def beside(arguments: argparse.Namespace, what: str) -> None:
    """Run workers in parallel processes."""
    asked = [sys.executable, __file__, what, str(arguments.folder), "--out", str(arguments.out)]
    asked += ["--until", str(time.time() + arguments.seconds), "--workers", str(arguments.workers)]
    asked += ["--documents", str(arguments.documents)]
    asked += [] if arguments.labels is None else ["--labels", str(arguments.labels)]
    asked += ["--only", *arguments.only] if arguments.only else []
    running = [subprocess.Popen([*asked, "--number", str(number)]) for number in range(arguments.workers)]
    for process in running:
        process.wait()


def best(path: Path, most: int) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in sorted(lines, key=lambda line: -line["best"][1][3])[:most]:
        told = json.dumps(line["settings"])
        print(line["number"], line["best"], "vote", line["vote"], f"fit {line['fit']} s", told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["trials", "trial", "candidates", "candidate", "best"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--until", type=float, default=0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--number", type=int, default=0)
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--most", type=int, default=10)
    parser.add_argument("--only", nargs="+", default=[], help="candidates; changes to be taken together: 'a, b'")
    given = parser.parse_args()
    if given.what == "best":
        best(given.folder, given.most)
    elif given.what.endswith("s"):
        beside(given, given.what.removesuffix("s"))
    else:
        bench = Bench(given.folder, given.out, given.labels, given.documents)
        if given.what == "trial":
            trial(bench, given.number, given.workers, given.until)
        else:
            candidate(bench, given.until, given.only)


if __name__ == "__main__":
    main()
