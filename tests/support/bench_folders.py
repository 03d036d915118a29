"""Made-up folders of `xmtc bench`: what a run leaves behind, without the run."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from xmtc.artifact.workspace import LOG
from xmtc.experiments.records import Cell, CellName, DatasetRecord, write_bench, write_cell, write_dataset

MODELS = {
    # kind, worth, seconds of training, milliseconds a document, MB of memory, on a device and of the model
    "attention_xml": ("attention_xml", 0.86, 5400.0, 4.1, 5200, 18300, 310.0),
    "bonsai": ("bonsai", 0.81, 95.0, 0.9, 2100, None, 88.0),
    "parabel": ("parabel", 0.805, 61.0, 0.6, 1900, None, 74.0),
    "one_vs_all": ("one_vs_all", 0.82, 240.0, 2.4, 1950, None, 160.0),
    "popularity": ("popularity", 0.22, 0.4, 0.02, 300, None, 0.4),
}


def measures(worth: float) -> dict[str, float]:
    """Measures that go together, of a model whose P@1 is `worth`."""
    found = {}
    for name, top in (("P", 1.0), ("nDCG", 0.98), ("PSP", 0.5), ("PSnDCG", 0.51), ("R", 0.3)):
        for k, fall in ((1, 1.0), (3, 0.86), (5, 0.72)):
            found[f"{name}@{k}"] = worth * top * (fall if name in ("P", "nDCG") else 2 - fall)
    return found


def cell(name: str, **changes: Any) -> Cell:
    """One complete run with next to nothing in it."""
    parsed = CellName.parsed(name)
    known: dict[str, Any] = {
        "suite": "small",
        "kind": parsed.model,
        "settings": {"trees": 1, "text": {"max_features": 1000}},
        "made_of": {},
        "metrics": measures(0.5),
        "documents": 100,
        "seconds": {"train": 2.0, "predict": 0.1},
        "memory": {"host": 10**8, "device": None},
        "model_bytes": 10**6,
        "machine": {"xmtc": "0.1", "python": "3.12.1", "processor": "x86_64", "threads": 2},
        "finished": "2026-01-02T03:04:05+00:00",
        "command": f"xmtc bench small --data DATA --out DIR --only {name}",
    }
    return Cell(parsed, **{**known, **changes})


def put(
    folder: Path,
    cells: Sequence[Cell],
    records: Sequence[DatasetRecord] = (),
    *,
    suite: str = "small",
    about: str = "",
    study: Mapping[str, Any] | None = None,
    logs: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
) -> Path:
    """A folder as `xmtc bench` leaves it; `logs` are lines for the log of a cell, by its name."""
    (folder / "datasets").mkdir(parents=True, exist_ok=True)
    write_bench(folder, suite, about, study or {})
    for record in records:
        write_dataset(folder, record)
    for each in cells:
        each.name.within(folder).mkdir(parents=True, exist_ok=True)
        write_cell(folder, each)
        if lines := (logs or {}).get(str(each.name)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (each.name.within(folder) / LOG).write_text(text, encoding="utf-8")
    return folder


def statistics(documents: int, labels: int, words: float) -> dict[str, Any]:
    """Train with test as 'other', as `data describe --json` tells it."""

    def spread(mean: float) -> dict[str, Any]:
        quantiles = {
            share: round(mean * times) for share, times in zip(SHARES, (0.1, 0.5, 0.9, 1.3, 2.6, 9), strict=True)
        }
        return {"mean": mean, "quantiles": quantiles}

    def one(documents: int) -> dict[str, Any]:
        return {
            "documents": documents,
            "labels": {
                "occurring": labels,
                "columns": labels,
                "pairs": 5 * documents,
                "labels_per_document": spread(5.0),
                "documents_without_labels": 0,
                "documents_per_label": spread(5 * documents / labels),
                "labels_seen_once": labels // 5,
                "share_seen_once": 0.2,
                "share_of_most_frequent_percent": {"1": 0.21, "10": 0.64},
            },
            "text": {"words_per_text": spread(words), "characters_per_text": spread(6 * words), "empty_texts": 0},
            "repeated_documents": {"distinct": 0, "further": 0},
        }

    overlap = {"documents": 3, "ids": None, "unseen_labels": labels // 50, "unseen_pairs": labels // 20}
    return {**one(documents), "other": one(documents // 4), "overlap": overlap}


SHARES = ("0", "25", "50", "75", "95", "100")


def groups(worth: float) -> dict[str, list[dict[str, Any]]]:
    sizes = ((120, 40), (31, 180), (5, 900))
    return {
        ties: [
            {
                "least": least,
                "labels": count,
                "occurrences": 9000,
                "auc": worth * up * (1 - at / 9),
                "aupr": worth * (0.8 - at / 5),
            }
            for at, (least, count) in enumerate(sizes)
        ]
        for ties, up in (("pessimistic", 0.9), ("standard", 1.0))
    }


def tail(worth: float) -> dict[str, dict[str, float]]:
    low = {"P@1": 0.4 * worth, "P@10": 0.6 * worth, "P@20": 0.7 * worth}
    return {"max": {name: value / 3 for name, value in low.items()}, "min": low}


def reliability(bend: float) -> dict[str, Any]:
    """Scores that are right score ** bend of the time."""
    bins = []
    for number in range(15):
        low, high = (number / 15) ** 2, ((number + 1) / 15) ** 2
        middle = (low + high) / 2
        bins.append({"count": 500, "confidence": middle, "accuracy": middle**bend, "lowest": low, "highest": high})
    error = sum(abs(each["confidence"] - each["accuracy"]) for each in bins) / len(bins)
    return {"ECE@5": error, "bins": bins}


def log(worth: float, chance: random.Random, levels: int = 1) -> list[dict[str, Any]]:
    """The log of a training, for each level of a label tree."""
    lines: list[dict[str, Any]] = []
    for level in range(levels):
        best = 0.0
        for step in range(1, 121):
            epoch = step / 12
            noted: dict[str, Any] = {"step": step, "epoch": epoch, "seconds": 40.0 * step}
            noted["loss"] = 0.02 + 0.6 * math.exp(-epoch) * (1 + 0.2 * chance.random())
            noted |= {"level": level} if levels > 1 else {}
            if step % 12 == 0:
                noted["score"] = worth * (1 - 0.5 * math.exp(-epoch / 2)) * (0.99 + 0.01 * chance.random())
                noted["best"] = noted["score"] > best
                best = max(best, noted["score"])
            lines.append(noted)
    return lines


def realistic(folder: Path, seeds: Sequence[int] = (0, 1, 2), suite: str = "main", models: int = len(MODELS)) -> Path:
    """Two data sets, several models and seeds, with all that a cell may have."""
    chance = random.Random(7)
    sets = {
        "eurlex-4k": ("eurlex-4k", 0.0, statistics(15511, 3956, 1225.0), 3809),
        "cooking": ("cooking", -0.14, statistics(9200, 312, 96.0), 2300),
    }
    names = [*MODELS, *(f"variant_{number:02d}" for number in range(models - len(MODELS)))][:models]
    cells, logs = [], {}
    for dataset, (_, lower, _, documents) in sets.items():
        for model in names:
            kind, worth, seconds, each, host, device, size = MODELS.get(
                model, ("parabel", 0.7 + 0.1 * chance.random(), *(10 * chance.random() for _ in "ab"), 1500, None, 50.0)
            )
            neural = kind == "attention_xml"
            for seed in seeds:
                value = worth + lower + 0.004 * chance.random()
                changes: dict[str, Any] = {
                    "suite": suite,
                    "kind": kind,
                    "metrics": measures(value),
                    "documents": documents,
                    "seconds": {"train": seconds * (1 + 0.1 * chance.random()), "predict": each * documents / 1000},
                    "memory": {"host": host * 10**6, "device": device and device * 10**6},
                    "model_bytes": int(size * 10**6),
                    "groups": groups(value),
                    "tail": tail(value),
                    "command": f"xmtc bench {suite} --data DATA --out DIR --only {dataset}/{model}/{seed}",
                    "facts": {"neighbours": 20} if kind == "knn" else {},
                    "settings": {
                        "epochs": 30,
                        "batch_size": 200,
                        "text": {"lower_case": True, "max_features": 500_000},
                        "encoder": {"kind": "bilstm", "width": 256, "layers": 1},
                        "head": {"kind": "attention", "tree": {"height": 2}},
                    },
                }
                if model != "popularity":
                    bend = {"attention_xml": 1.1, "one_vs_all": 2.2}.get(model, 0.6)
                    changes["reliability"] = reliability(bend + 0.02 * seed)
                    scores = {"micro": 0.7 * value, "macro": 0.4 * value, "document": 0.72 * value}
                    scores |= {"precision": 0.75 * value, "recall": 0.66 * value, "labels": 4.6}
                    changes["threshold"] = {"kind": "global", "value": 0.31, "scores": scores}
                if neural:
                    changes["machine"] = {
                        "xmtc": "0.1",
                        "python": "3.12.1",
                        "processor": "x86_64",
                        "threads": 16,
                        "torch": "2.11",
                        "gpu": "NVIDIA H200",
                    }
                    logs[f"{dataset}/{model}/{seed}"] = log(value * 0.9, chance, 2 if dataset == "eurlex-4k" else 1)
                cells.append(cell(f"{dataset}/{model}/{seed}", **changes))
    records = []
    for dataset, (published, _, described, _) in sets.items():
        pairs = [
            {"models": list(pair), "shared": {str(k): 0.75 - 0.04 * k + 0.1 * chance.random() for k in range(1, 6)}}
            for pair in combinations(names, 2)
        ]
        about = (
            "Legislation of the European Union with EuroVoc subjects."
            if dataset == "eurlex-4k"
            else "Questions on cooking."
        )
        records.append(DatasetRecord(dataset, about, published, {}, described, {}, pairs))
    return put(folder, cells, records, suite=suite, about="Every system on every data set.", logs=logs)
