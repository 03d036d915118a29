"""Annif's MLLM backend on converted files, for `mllm.py`: train, or predict. Prints one JSON line.

It runs in a separate environment with Annif, but without xmtc. NLTK_DATA must name a folder with tokenizers/punkt_tab.
"""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
from annif.corpus.document import DocumentFileJSONL, DocumentList
from annif.eval import EvaluationBatch
from annif.registry import AnnifRegistry
from annif.vocab import VocabFileSKOS

PROJECT, BATCH, WARM, PARALLEL = "mllm", 32, 64, 960
"""Name of the project, documents per call, to warm up, and for two processes."""


class Clock:
    """Seconds since the start: of the wall clock, and of the processor in this process."""

    def __init__(self) -> None:
        self.wall, self.processor = time.perf_counter(), time.process_time()

    def read(self) -> dict[str, float]:
        return {"wall": time.perf_counter() - self.wall, "processor": time.process_time() - self.processor}


def opened(folder: Path) -> Any:
    """The project whose data are in a folder; projects.cfg and vocabulary.ttl are in the folder above."""
    return AnnifRegistry(str(folder.parent / "projects.cfg"), str(folder), init_projects=False).get_project(PROJECT)


def corpus(project: Any, path: Path) -> DocumentFileJSONL:
    return DocumentFileJSONL(str(path), project.subjects, project.vocab_lang)


def peak_megabytes() -> float:
    """The largest resident memory so far; unlike `ru_maxrss`, without that of the process that started this one."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


def train(folder: Path, documents: Path) -> dict[str, Any]:
    """Load the vocabulary, train on one thread, save. The trees are drawn from seed 0."""
    project = opened(folder)
    clock = Clock()
    project.vocab.load_vocabulary(VocabFileSKOS(str(folder.parent / "vocabulary.ttl")), force=True)
    loading = clock.read()
    given = DocumentList(list(corpus(project, documents).documents))
    np.random.seed(0)
    clock = Clock()
    project.train(given, jobs=1)
    training = clock.read()
    size = sum(path.stat().st_size for path in Path(project.datadir).glob("mllm-model*")) / 1e6
    return {
        "documents": len(given._documents),
        "vocabulary_s": loading,
        "train_s": training,
        "train_mb": peak_megabytes(),
        "size_mb": size,
        "versions": {name: version(name) for name in ("annif", "scikit-learn", "nltk", "numpy")},
    }


def batches(documents: list[Any]) -> Iterator[list[Any]]:
    remaining = iter(documents)
    while batch := list(islice(remaining, BATCH)):
        yield batch


def recorded(backend: Any) -> list[list[int]]:
    """Collects the candidates of every document that the backend processes from now on."""
    seen: list[list[int]] = []
    generate: Callable[[str], list[Any]] = backend._generate_candidates

    def generate_and_record(text: str) -> list[Any]:
        candidates = generate(text)
        seen.append([candidate.subject_id for candidate in candidates])
        return candidates

    backend._generate_candidates = generate_and_record
    return seen


SHARED: dict[str, Any] = {}


def suggest_count(batch: list[Any]) -> int:
    return int(SHARED["project"].suggest(batch, SHARED["settings"]).array.nnz)


def two_processes_ms(project: Any, documents: list[Any], settings: dict[str, Any]) -> float:
    """Milliseconds per document with a process on each of two cores, without the time to start them."""
    SHARED.update(project=project, settings=settings)
    parts = list(batches(documents[:PARALLEL]))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        pool.map(suggest_count, parts[:2], chunksize=1)
        started = time.perf_counter()
        pool.map(suggest_count, parts, chunksize=1)
        return 1000 * (time.perf_counter() - started) / len(documents[:PARALLEL])


def ranking(row: Any, keys: list[str]) -> list[dict[str, Any]]:
    order = np.lexsort((row.indices, -row.data))
    return [{"key": keys[row.indices[place]], "score": round(float(row.data[place]), 6)} for place in order]


def predict(folder: Path, documents: Path, limit: int, target: Path) -> dict[str, Any]:
    """Predict on one thread; the rankings and the true labels among the candidates go to two files."""
    project = opened(folder)
    clock = Clock()
    project.initialize()
    project.backend.initialize()
    loading = clock.read()
    given = list(corpus(project, documents).documents)
    settings = {PROJECT: {"limit": limit}}
    project.suggest(given[:WARM], settings)
    parallel_ms = two_processes_ms(project, given, settings)
    candidates = recorded(project.backend)
    clock = Clock()
    answers = [project.suggest(batch, settings) for batch in batches(given)]
    predicting = clock.read()
    judge = EvaluationBatch(project.subjects)
    keys = [unquote(subject.uri.rpartition("/")[2]) for subject in project.subjects]
    found = target.with_suffix(".candidates.jsonl")
    with open(target, "w", encoding="utf-8") as rankings, open(found, "w", encoding="utf-8") as bounds:
        for number, (batch, answer) in enumerate(zip(batches(given), answers, strict=True)):
            judge.evaluate_many(answer, [document.subject_set for document in batch])
            for row, document in enumerate(batch):
                offered = set(candidates[number * BATCH + row])
                hits = [keys[subject] for subject in document.subject_set if subject in offered]
                line = {"id": document.document_id, "labels": ranking(answer.array[[row]], keys)}
                print(json.dumps(line, ensure_ascii=False), file=rankings)
                bound = {"id": document.document_id, "candidates": len(offered), "true": hits}
                print(json.dumps(bound, ensure_ascii=False), file=bounds)
    return {
        "documents": len(given),
        "load_s": loading,
        "one_thread_ms": {name: 1000 * seconds / len(given) for name, seconds in predicting.items()},
        "two_processes_ms": parallel_ms,
        "predict_mb": peak_megabytes(),
        "own": judge.results(metrics=["F1@5", "NDCG@10"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("action", choices=("train", "predict"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("documents", type=Path)
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--target", type=Path)
    chosen = parser.parse_args()
    logging.getLogger("annif").setLevel(logging.WARNING)
    if chosen.action == "train":
        print(json.dumps(train(chosen.folder, chosen.documents)))
    elif chosen.target is None:
        sys.exit("predict needs --target FILE.")
    else:
        print(json.dumps(predict(chosen.folder, chosen.documents, chosen.limit, chosen.target)))


if __name__ == "__main__":
    main()
