"""Consensus of a linear tree and AttentionXML: predictions of the neural member from a GPU, and an evaluation.

    PYTHONPATH=src python benchmarks/consensus.py answers --from carry --recipe eurlex57k/attention_xml --out FOLDER \
        [--set members=3]

`answers` trains on train.jsonl.xz of a folder written by `attention.py prepare` and writes the best labels of the
development and test documents to one answers.parquet: members of a consensus may run on other machines.

    python benchmarks/consensus.py measure --data DATA/eurlex57k --members TREE_FOLDER ANSWERS.parquet [MORE …]

`measure` fits the combination of the members on the development set, calibrates each member and each consensus on it,
and evaluates all of them on the test set; labels that do not occur in training are dropped.
"""

from __future__ import annotations

import argparse
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import xmtc
from xmtc.artifact import store
from xmtc.cli.progress import LogProgress
from xmtc.core.config import merge, parse_assignments, read_recipe
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import align_labels
from xmtc.data.topk import TopK
from xmtc.metrics import overlap, precision
from xmtc.models.registry import model_class
from xmtc.recipes import find_recipe
from xmtc.workflows.evaluate import evaluate_model


def answers(given: Any) -> None:
    folder, recipe, assignments, seed, out = given.source, given.recipe, given.assignments, given.seed, given.out
    train, dev, test = (xmtc.read(folder / f"{part}.jsonl.xz") for part in ("train", "dev", "test"))
    if given.limit:
        train, dev, test = (part.slice(0, given.limit) for part in (train, dev, test))
    name, settings = read_recipe(find_recipe(recipe))
    vectors = {"vectors": str(folder / "vectors.npy")}
    model: Any = model_class(name or "")(**merge(settings, vectors, parse_assignments(assignments)))
    started = time.perf_counter()
    model.fit(train, valid=dev, runtime=Runtime(seed=seed), progress=LogProgress())
    print(
        f"{recipe} {' '.join(assignments)}, seed {seed}: trained in {time.perf_counter() - started:.1f} s", flush=True
    )
    out.mkdir(parents=True, exist_ok=True)
    found = []
    for part, documents in (("dev", dev), ("test", test)):
        started = time.perf_counter()
        answer = model.predict(documents, given.k)
        seconds = time.perf_counter() - started
        found.append(answer)
        truth, _ = align_labels(documents, model.labels)
        truth = truth[:, : len(model.labels)]
        shown = "/".join(f"{100 * precision(answer, truth, at):.2f}" for at in (1, 3, 5))
        print(f"  {part}: {shown}, {seconds:.2f} s for {len(documents):,} documents", flush=True)
    TopK.concatenate(found).write(out / "answers.parquet")
    if given.save is not None:
        model.save(given.save, overwrite=True)


WAYS: dict[str, dict[str, Any]] = {
    "noisy-or, raw scores": {"combine": "noisy-or", "calibrate": "none"},
    "noisy-or": {"combine": "noisy-or"},
    "average": {"combine": "average"},
    "learnt": {"combine": "learnt"},
}


def measure(data: Path, members: list[str], ways: list[str]) -> None:
    dev, test = (xmtc.read(data / f"{part}.jsonl.xz") for part in ("dev", "test"))
    model = next(member for member in members if store.is_model(Path(member)))
    alone: dict[str, dict[str, Any]] = {}
    for member in members:  # a file does not say what its model was trained on: a model that does is beside it, unheard
        both = [member] if store.is_model(Path(member)) else [member, model]
        weights = [1.0, 0.0][: len(both)]
        alone[Path(member).name] = {"members": both, "combine": "average", "weights": weights, "calibrate": "none"}
    together = {name: {"members": members, **WAYS[name]} for name in ways} if len(members) > 1 else {}
    answers = {}
    for name, settings in {**alone, **together}.items():
        system = model_class("consensus")(**settings).fit(dev)
        plain = evaluate_model(system, test, unknown_labels="drop")
        answers[name] = plain.predictions
        ranks = "/".join(f"{100 * plain.metrics[f'P@{k}']:.2f}" for k in (1, 3, 5))
        shown = f"{name}: {ranks}, nDCG@5 {100 * plain.metrics['nDCG@5']:.2f}"
        shown += f"; ECE {plain.reliability.error:.4f}" if plain.reliability else "; ECE –"
        for threshold, measured in (("global", "micro"), ("label", "macro"), ("document", "document")):
            system.calibrate(dev, threshold=threshold, measure=measured)
            found = evaluate_model(system, test, unknown_labels="drop")
            shown += f" → {found.reliability.error:.4f}" if found.reliability and threshold == "global" else ""
            shown += f"; {measured}-F1 {100 * (found.sets or {})[measured]:.2f} by {threshold}"
            rule = system.decisions.thresholds
            shown += f" {rule.value:.4f}" if rule is not None and threshold == "global" else ""
        print(shown, flush=True)
    for first, second in combinations(alone, 2):
        shared = " ".join(f"{100 * overlap(answers[first], answers[second], k):.0f}" for k in range(1, 6))
        print(f"overlap of {first} and {second} at 1 to 5: {shared} %", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    answering = commands.add_parser("answers")
    answering.add_argument("--from", dest="source", type=Path, default=Path("carry"))
    answering.add_argument("--recipe", required=True)
    answering.add_argument("--set", dest="assignments", action="append", default=[])
    answering.add_argument("--seed", type=int, default=0)
    answering.add_argument("--out", type=Path, required=True)
    answering.add_argument("-k", type=int, default=50)
    answering.add_argument("--save", type=Path, help="Folder for the model itself.")
    answering.add_argument("--limit", type=int, help="Documents of each part, for a rehearsal.")
    measuring = commands.add_parser("measure")
    measuring.add_argument("--data", type=Path, required=True)
    measuring.add_argument("--members", nargs="+", required=True)
    measuring.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    given = parser.parse_args()
    if given.command == "measure":
        measure(given.data, given.members, given.ways)
        return
    answers(given)


if __name__ == "__main__":
    main()
