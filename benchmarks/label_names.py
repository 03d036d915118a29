"""Label names: `parabel` without and with names, `lexical`, and their consensus on documents with label names.

    python benchmarks/label_names.py --data ../shared/data --sets tibkat-gnd eurlex57k --out /tmp/names

DATA/SET has train, dev and test.jsonl.xz, and labels.tsv.gz or labels.jsonl.gz. Members are trained on train, the
consensus on dev, and everything is evaluated on test with all labels counted. Prints one table per data set and writes
it to OUT/SET.md. 'unseen' is the recall of labels without training documents among all labels, averaged over the
documents that have one; 'literal' is the share of true labels whose name occurs in the text as a case-folded sequence
of words that are among the first ten. `--load` uses the models of an earlier run in OUT. `--encoder FOLDER` adds
`lexical` with a pretrained encoder, and its consensus with `parabel`; on a CUDA device if there is one.
"""

from __future__ import annotations

import argparse
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import xmtc
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.label_index import LabelIndex
from xmtc.decisions.thresholds import hits_among

GROUPS = ((1, 5), (6, 20), (21, 100), (101, 1 << 40))
"""Training documents of labels."""
GAINS = 1 / np.log2(np.arange(2, 12))
_WORDS = re.compile(r"\w+")


def literal_labels(test: Dataset, labels: LabelIndex, truth: Any) -> list[list[int]]:
    """Return the true labels of each document whose name occurs in its text."""

    def plain(text: str) -> str:
        return f" {' '.join(_WORDS.findall(text.casefold()))} "

    names = [plain(name) for name in labels.names]
    found = []
    for row, text in enumerate(test.text().to_pylist()):
        words = plain(text)
        own = truth.indices[truth.indptr[row] : truth.indptr[row + 1]]
        found.append([int(label) for label in own if names[label] in words])
    return found


def scores(
    found: NDArray[np.int64], truth: Any, counts: NDArray[np.int64], literal: list[list[int]]
) -> dict[str, float]:
    """Compute all metrics of rankings (n, 50)."""
    hits = hits_among(found[:, :10], truth).astype(np.float64)
    sizes = np.diff(truth.indptr)
    some = np.maximum(sizes, 1)
    rows = np.repeat(np.arange(len(sizes)), sizes)
    places = np.full(truth.nnz, 1 << 30)  # rank of each true label
    for at, (row, label) in enumerate(zip(rows, truth.indices, strict=True)):
        where = np.flatnonzero(found[row] == label)
        places[at] = where[0] if len(where) else 1 << 30

    def recall(chosen: NDArray[np.bool_], k: int) -> float:
        held = np.bincount(rows[chosen], minlength=len(sizes))
        right = np.bincount(rows[chosen & (places < k)], minlength=len(sizes))
        return float((right[held > 0] / held[held > 0]).mean()) if held.any() else float("nan")

    own = counts[truth.indices]
    result = {
        "P@1": hits[:, 0].mean(),
        "nDCG@5": ((hits[:, :5] @ GAINS[:5]) / np.cumsum(GAINS)[np.minimum(some, 5) - 1]).mean(),
        "nDCG@10": ((hits @ GAINS) / np.cumsum(GAINS)[np.minimum(some, 10) - 1]).mean(),
        "F1@5": (2 * hits[:, :5].sum(1) / (5 + some)).mean(),
        "R@10": recall(own >= 0, 10),
        "unseen R@10": recall(own == 0, 10),
        "unseen R@50": recall(own == 0, 50),
    }
    for low, high in GROUPS:
        name = f"R@10, {low}–{high}" if high < 1 << 40 else f"R@10, > {low - 1}"
        result[name] = recall((own >= low) & (own <= high), 10)
    often = counts > GROUPS[-1][0] - 1
    kept = np.where((found >= 0) & often[found], found, -1)
    kept = np.take_along_axis(kept, np.argsort(kept < 0, axis=1, kind="stable"), axis=1)  # the others left out
    frequent = truth[:, np.flatnonzero(often)]
    numbers = np.append(np.cumsum(often) - 1, -1)
    hits = hits_among(np.where(kept >= 0, numbers[kept], -1)[:, :5], frequent).astype(np.float64)
    held = np.diff(frequent.indptr)
    ideal = np.cumsum(GAINS)[np.minimum(np.maximum(held, 1), 5) - 1]
    quality = ((hits @ GAINS[:5]) / ideal)[held > 0]
    result[f"nDCG@5 among labels > {GROUPS[-1][0] - 1}"] = float(quality.mean()) if len(quality) else float("nan")
    top = [set(row) for row in found[:, :10].tolist()]
    pairs = [(label in top[row], counts[label] > 0) for row, labels in enumerate(literal) for label in labels]
    for name, trained in (("literal, trained", True), ("literal, untrained", False)):
        chosen = [hit for hit, kind in pairs if kind == trained]
        result[f"{name} ({len(chosen):,})"] = float(np.mean(chosen)) if chosen else float("nan")
    return result


def run(name: str, data: Path, out: Path, threads: int, load: bool, encoder: Path | None) -> None:
    """Train, evaluate and print one data set."""
    folder, runtime = data / name, Runtime(threads=threads)
    vocabulary = next(folder.glob("labels.*"))
    how = {"vocabulary": vocabulary, "unknown_labels": "drop"}
    train, dev, test = (xmtc.read(folder / f"{part}.jsonl.xz", **how) for part in ("train", "dev", "test"))
    labels = train.label_index
    assert train.labels is not None
    assert labels is not None
    counts = np.bincount(train.labels.indices, minlength=len(labels)).astype(np.int64)
    truth = align_labels(test, labels)[0][:, : len(labels)]
    literal = literal_labels(test, labels, truth)
    place = out / name
    members = {
        "parabel, without names": xmtc.Parabel(label_names=0),
        "parabel": xmtc.Parabel(),
        "lexical": xmtc.Lexical(),
    }
    ensembles = {
        "consensus, parabel without names + lexical": ("parabel, without names", "lexical"),
        "consensus, parabel + lexical": ("parabel", "lexical"),
    }
    if encoder is not None:
        members["lexical, encoder"] = xmtc.Lexical(encoder={"path": str(encoder)})
        ensembles["consensus, parabel + lexical with encoder"] = ("parabel", "lexical, encoder")
    rows: dict[str, dict[str, float]] = {}

    def measured(title: str, model: xmtc.Model, seconds: float) -> None:
        numbers = labels.ids(model.labels.table["key"].combine_chunks())
        model.predict(test.slice(0, 64), 50)
        started = time.perf_counter()
        answer = model.predict(test, 50)
        cost = (time.perf_counter() - started) / len(test) * 1000
        found = np.where(answer.labels >= 0, numbers[answer.labels], -1)
        rows[title] = scores(found, truth, counts, literal)
        rows[title] = {key: 100 * float(value) for key, value in rows[title].items()}
        rows[title].update({"train s": seconds, "ms/document": cost})
        print(title, {key: round(value, 2) for key, value in rows[title].items()}, flush=True)

    for title, model in members.items():
        started = time.perf_counter()
        if load:
            model = xmtc.load(place / title, runtime)
        else:
            model.fit(train, runtime=runtime)
            model.save(place / title, overwrite=True)
        measured(title, model, time.perf_counter() - started)
    for title, used in ensembles.items():
        started = time.perf_counter()
        model = xmtc.Consensus(members=[str(place / member) for member in used]).fit(dev, runtime=runtime)
        measured(title, model, time.perf_counter() - started)
    titles = list(rows)
    lines = [f"| {name}, test | " + " | ".join(titles) + " |", "|---|" + "---|" * len(titles)]
    lines += [
        f"| {key} | " + " | ".join(f"{rows[title][key]:.2f}" for title in titles) + " |" for key in rows[titles[0]]
    ]
    (out / f"{name}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines), flush=True)


def main() -> None:
    """Read the arguments and run all data sets."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["tibkat-gnd", "eurlex57k"])
    parser.add_argument("--threads", type=int, default=Runtime().threads)
    parser.add_argument("--load", action="store_true")
    parser.add_argument("--encoder", type=Path)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.sets:
        run(name, given.data, given.out, given.threads, given.load, given.encoder)


if __name__ == "__main__":
    main()
