"""Annif's MLLM (lexical matching with learning) on the splits of this project, scored with its metrics.

usage: python benchmarks/mllm.py --annif PYTHON --out FOLDER [--data ../shared/data] [--sets tibkat-gnd eurlex57k]
           [--train 2000 10000] [--test 3000] [--other NAME=SET=FILE …] [--reuse-models] [--only-score]

PYTHON is the interpreter of an environment of its own with Annif (`pip install annif`). NLTK_DATA must name a folder
with tokenizers/punkt_tab, which Annif otherwise downloads; the package llama-index-core carries it
(`pip download --no-deps llama-index-core`, folder _static/nltk_cache of the wheel).

For each data set, FOLDER/SET has afterwards:
    vocabulary.ttl        the complete vocabulary as SKOS: preferred and alternative names, broader and narrower labels
    train-N.jsonl         N random training documents (seed 0), in Annif's format; 0 stands for all
    test.jsonl            random test documents (seed 0; --test 0: all), in Annif's format
    documents.jsonl       the same test documents as in the data set: for xmtc predict and xmtc evaluate
    ids.txt               their ids
    mllm-N/               Annif's vocabulary and model
    mllm-N.jsonl          predictions, up to 50 per document: for xmtc evaluate --predictions
    mllm-N.candidates.jsonl  number of candidates and the true labels among them, per document
    mllm-N.json           times and memory, as measured

Training and prediction run in a process of their own and on one thread, except "two processes": 960 documents with a
process on each of two cores. Times are of the wall clock, and in brackets of the processor, which other programs on the
machine disturb less. Settings are Annif's defaults; the analyser is Snowball in the language of the vocabulary. The
text keeps its line break after the title.

All labels of the test documents count, also those that do not occur in training. F1@5 is the mean over documents,
nDCG and R as in `xmtc evaluate`. "unseen" is the recall of labels without a training document in the complete
training set, among all labels, over all their occurrences. "candidates R" is the recall of the candidates, which no
scorer can exceed; in brackets, of unseen labels. "missed" is the fraction of true labels, over all occurrences, that
are not candidates. MLLM drops candidates with score 0. Labels with equal scores stay in the order of the vocabulary,
as in Annif's answers; Annif's own metrics (`own` in mllm-N.json) break ties in another way and differ by a few tenths
of a point. --other scores predictions of another program on the same documents; predictions for further documents are
ignored.
"""

from __future__ import annotations

import argparse
import gzip
import json
import lzma
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import scipy.sparse as sp

from xmtc import metrics, read
from xmtc.data.predictions import read_predictions

BASE = "http://label.example/"
DEPTH = 50


@dataclass(frozen=True)
class Source:
    """Vocabulary file, language and analyser of a data set."""

    vocabulary: str
    language: str
    analyser: str


SOURCES = {
    "tibkat-gnd": Source("labels.tsv.gz", "de", "snowball(german)"),
    "eurlex57k": Source("labels.jsonl.gz", "en", "snowball(english)"),
}


# ---- conversion


def uri(key: str) -> str:
    return BASE + quote(key, safe="")


def literal(text: str, language: str) -> str:
    return f"{json.dumps(text, ensure_ascii=False)}@{language}"  # JSON's escapes are Turtle's


def vocabulary(path: Path) -> Iterator[tuple[str, str, list[str], list[str]]]:
    """Key, name, alternative names and parents of each label."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            if ".tsv" in path.suffixes:
                key, name = line.rstrip("\n").split("\t")
                yield key, name, [], []
            else:
                label = json.loads(line)
                yield label["id"], label["name"], label["alt"], label["parents"]


def write_vocabulary(labels: Iterable[tuple[str, str, list[str], list[str]]], language: str, target: Path) -> None:
    """Write SKOS in Turtle. Annif reads broader and narrower separately, so both directions are written."""
    with open(target, "w", encoding="utf-8") as out:
        print("@prefix skos: <http://www.w3.org/2004/02/skos/core#> .", file=out)
        for key, name, alternatives, parents in labels:
            print(f"<{uri(key)}> a skos:Concept ; skos:prefLabel {literal(name, language)} .", file=out)
            for other in alternatives:
                print(f"<{uri(key)}> skos:altLabel {literal(other, language)} .", file=out)
            for parent in parents:
                print(f"<{uri(key)}> skos:broader <{uri(parent)}> .", file=out)
                print(f"<{uri(parent)}> skos:narrower <{uri(key)}> .", file=out)


def documents(path: Path) -> list[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def write_corpus(chosen: Iterable[dict[str, Any]], target: Path) -> None:
    with open(target, "w", encoding="utf-8") as out:
        for document in chosen:
            subjects = [{"uri": uri(key)} for key in document["labels"]]
            line = {"document_id": document["id"], "text": document["text"], "subjects": subjects}
            print(json.dumps(line, ensure_ascii=False), file=out)


def sampled(given: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first `count` documents of a random order (seed 0), in the order of the file; all for 0."""
    order = np.random.default_rng(0).permutation(len(given))
    return [given[place] for place in sorted(order[: count or len(given)])]


def prepare(source: Path, name: str, folder: Path, sizes: list[int], tests: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    setting = SOURCES[name]
    write_vocabulary(vocabulary(source / setting.vocabulary), setting.language, folder / "vocabulary.ttl")
    lines = ["[mllm]", "name=MLLM", f"language={setting.language}", "backend=mllm", f"analyzer={setting.analyser}"]
    (folder / "projects.cfg").write_text("\n".join([*lines, "vocab=labels", "limit=100", ""]), encoding="utf-8")
    training = documents(source / "train.jsonl.xz")
    for size in sizes:
        write_corpus(sampled(training, size), folder / f"train-{size}.jsonl")
    seen = sorted({key for document in training for key in document["labels"]})
    (folder / "trained_labels.txt").write_text("".join(f"{key}\n" for key in seen), encoding="utf-8")
    chosen = sampled(documents(source / "test.jsonl.xz"), tests)
    write_corpus(chosen, folder / "test.jsonl")
    (folder / "ids.txt").write_text("".join(f"{document['id']}\n" for document in chosen), encoding="utf-8")
    with open(folder / "documents.jsonl", "w", encoding="utf-8") as out:
        for document in chosen:
            print(json.dumps(document, ensure_ascii=False), file=out)


# ---- Annif


def answered(*command: Any) -> dict[str, Any]:
    """What a process says in its last line, as JSON."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def run_annif(python: str, folder: Path, size: int, reuse: bool) -> None:
    peer, model = Path(__file__).with_name("mllm_peer.py"), folder / f"mllm-{size}"
    target, costs = model.with_suffix(".jsonl"), model.with_suffix(".json")
    if reuse:
        trained = json.loads(costs.read_text(encoding="utf-8"))["train"]
    else:
        trained = answered(python, peer, "train", model, folder / f"train-{size}.jsonl")
        print(f"{folder.name}: {json.dumps(trained)}", file=sys.stderr, flush=True)
    predicted = answered(python, peer, "predict", model, folder / "test.jsonl", "--limit", DEPTH, "--target", target)
    print(f"{folder.name}: {json.dumps(predicted)}", file=sys.stderr, flush=True)
    costs.write_text(json.dumps({"train": trained, "predict": predicted}), encoding="utf-8")


# ---- scores


def compare(folder: Path, path: Path) -> tuple[Any, Any, Any]:
    """Predicted labels (n, k) and true labels of the chosen documents as numbers of one index, and which are unseen."""
    test = read(folder / "documents.jsonl")
    top = read_predictions(path, most=DEPTH).top
    rows = {name: row for row, name in enumerate(top.ids)}
    chosen = top.labels[[rows[name] for name in test.document_ids()]]
    keys = list(test.label_index.keys)
    known = {key: number for number, key in enumerate(keys)}
    numbers = np.array([known.setdefault(key, len(known)) for key in top.index.keys] + [-1])  # a pad picks the last
    truth = sp.csr_array(test.labels, copy=True)
    truth.resize((len(test), len(known)))
    trained = set((folder / "trained_labels.txt").read_text(encoding="utf-8").split("\n"))
    return numbers[chosen], truth, np.array([key not in trained for key in known])


def scores(folder: Path, path: Path) -> dict[str, float]:
    predicted, truth, unseen = compare(folder, path)
    coordinates = truth.tocoo()
    rare = unseen[coordinates.col]
    rows, columns = coordinates.row[rare], coordinates.col[rare]
    found = {f"unseen@{k}": float((predicted[rows, :k] == columns[:, None]).any(axis=1).mean()) for k in (10, DEPTH)}
    return {
        "F1@5": metrics.document_f1(predicted, truth, 5),
        "P@1": metrics.precision(predicted, truth, 1),
        "nDCG@5": metrics.ndcg(predicted, truth, 5),
        "nDCG@10": metrics.ndcg(predicted, truth, 10),
        "R@10": metrics.recall(predicted, truth, 10),
        f"R@{DEPTH}": metrics.recall(predicted, truth, DEPTH),
        **found,
        "documents": truth.shape[0],
        "unseen": len(rows),
    }


def bounds(folder: Path, path: Path) -> dict[str, float]:
    """Recall of the candidates: mean over documents, of all occurrences, and of unseen labels; their number."""
    trained = set((folder / "trained_labels.txt").read_text(encoding="utf-8").split("\n"))
    counts: Counter[str] = Counter()
    recalls: list[float] = []
    with open(folder / "documents.jsonl", encoding="utf-8") as given, open(path, encoding="utf-8") as found:
        for document, line in zip(given, map(json.loads, found), strict=True):
            wanted = set(json.loads(document)["labels"])
            recalls.append(len(line["true"]) / max(len(wanted), 1))
            counts["true"] += len(wanted)
            counts["rare"] += len(wanted - trained)
            counts["found"] += len(line["true"])
            counts["found_rare"] += len(set(line["true"]) - trained)
            counts["candidates"] += line["candidates"]
    return {
        "documents": float(np.mean(recalls)),
        "occurrences": counts["found"] / counts["true"],
        "unseen": counts["found_rare"] / max(counts["rare"], 1),
        "candidates": counts["candidates"] / len(recalls),
    }


HEAD = ("data set", "model", "documents", "F1@5", "P@1", "nDCG@5", "nDCG@10", "R@10", f"R@{DEPTH}")
UNSEEN = ("unseen labels", "unseen R@10", f"unseen R@{DEPTH}")
COST = (
    "candidates R",
    "missed",
    "candidates",
    "train s",
    "one thread ms",
    "two processes ms",
    "train MB",
    "predict MB",
)


def row(folder: Path, model: str, path: Path) -> str:
    seen = scores(folder, path)
    cells = [folder.name, model, f"{seen['documents']:,}"]
    cells += [f"{100 * seen[name]:.2f}" for name in HEAD[3:]]
    cells += [f"{seen['unseen']:,}", *(f"{100 * seen[f'unseen@{k}']:.2f}" for k in (10, DEPTH))]
    cost = path.with_suffix(".json")
    if cost.exists():
        measured = json.loads(cost.read_text(encoding="utf-8"))
        bound = bounds(folder, path.with_suffix(".candidates.jsonl"))
        training, one = measured["train"]["train_s"], measured["predict"]["one_thread_ms"]
        cells += [f"{100 * bound['documents']:.2f} ({100 * bound['unseen']:.2f})"]
        cells += [f"{100 - 100 * bound['occurrences']:.2f}", f"{bound['candidates']:.1f}"]
        times = [f"{training['wall']:.0f} ({training['processor']:.0f})"]
        cells += [*times, f"{one['wall']:.1f} ({one['processor']:.1f})"]
        cells += [f"{measured['predict']['two_processes_ms']:.1f}", f"{measured['train']['train_mb']:.0f}"]
        cells += [f"{measured['predict']['predict_mb']:.0f}"]
    else:
        cells += ["–"] * len(COST)
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--annif", help="interpreter of the environment with Annif")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--train", nargs="+", type=int, default=[2000, 10000], help="training documents; 0: all")
    parser.add_argument("--test", type=int, default=3000, help="test documents; 0: all")
    parser.add_argument("--other", nargs="+", default=[], metavar="NAME=SET=FILE", help="further predictions to score")
    parser.add_argument("--reuse-models", action="store_true", help="predict with the models that are in --out")
    parser.add_argument("--only-score", action="store_true", help="score the predictions that are in --out")
    chosen = parser.parse_args()
    if not chosen.only_score and chosen.annif is None:
        parser.error("--annif PYTHON is required, or --only-score.")
    lines = [f"| {' | '.join(HEAD + UNSEEN + COST)} |", "|" + "---|" * len(HEAD + UNSEEN + COST)]
    for name in chosen.sets:
        folder = chosen.out / name
        if not chosen.only_score:
            prepare(chosen.data / name, name, folder, chosen.train, chosen.test)
        for size in chosen.train:
            if not chosen.only_score:
                run_annif(chosen.annif, folder, size, chosen.reuse_models)
            model = f"MLLM, {size:,} documents" if size else "MLLM, all documents"
            lines.append(row(folder, model, folder / f"mllm-{size}.jsonl"))
        for model, data_set, path in (other.split("=", 2) for other in chosen.other):
            if data_set == name:
                lines.append(row(folder, model, Path(path)))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
