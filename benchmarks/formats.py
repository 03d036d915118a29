"""Every format: megabytes per second for reading and writing, and whether a round trip preserves all documents.

    python benchmarks/formats.py ../shared/data/tibkat-gnd/train.jsonl.xz ../shared/data/eurlex57k/train.jsonl.xz

Rates refer to the size of text and labels as plain JSONL, regardless of the format; the best of three runs.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from xmtc.core.errors import DataError
from xmtc.core.runtime import Runtime
from xmtc.data import read, write
from xmtc.data.dataset import Dataset
from xmtc.data.formats import FORMATS
from xmtc.data.label_index import LabelIndex
from xmtc.text.features import DocumentFeatures
from xmtc.text.tfidf import TextSettings

Result = TypeVar("Result")


def timed(work: Callable[[], Result], runs: int) -> tuple[float, Result]:
    best = np.inf
    for _ in range(runs):
        started = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - started)
    return best, result


def python_reader(path: Path) -> int:
    """A plain Python script for comparison: json.loads per line, keep text, labels and id."""
    texts, labels, ids = [], [], []
    with path.open("rb") as stream:
        for line in stream:
            row = json.loads(line)
            texts.append(row["text"])
            labels.append(row["labels"])
            ids.append(row["id"])
    return len(texts)


def same(one: Dataset, other: Dataset, ids: bool, ordered: bool) -> bool:
    """Whether all documents, labels and, where the format keeps them, ids are equal."""
    assert one.labels is not None
    assert other.labels is not None
    assert one.label_index is not None
    assert other.label_index is not None
    rows = np.arange(len(one))
    if not ordered:  # a folder has no order: go by id
        place = {name: row for row, name in enumerate(other.document_ids())}
        rows = np.array([place[name] for name in one.document_ids()])
        other = other.take(rows)
    numbers = one.label_index.ids(other.label_index.keys)
    if (numbers[np.unique(other.labels.indices)] < 0).any():
        return False
    moved = other.labels.copy()
    moved.indices = numbers[moved.indices].astype(moved.indices.dtype)
    moved = moved[:, : one.labels.shape[1]] if moved.shape[1] >= one.labels.shape[1] else moved
    moved.sort_indices()
    equal = np.array_equal(moved.indptr, one.labels.indptr) and np.array_equal(moved.indices, one.labels.indices)
    if one.has_text:
        equal &= one.text().combine_chunks().equals(other.text().combine_chunks())
    else:
        a, b = one.features, other.features
        assert a is not None
        assert b is not None
        equal &= a.shape == b.shape
        equal &= all(np.array_equal(x, y) for x, y in ((a.indptr, b.indptr), (a.indices, b.indices), (a.data, b.data)))
    return bool(equal and (not ids or one.document_ids() == other.document_ids()))


def featured(dataset: Dataset) -> Dataset:
    """The same documents as tf-idf features, labels by number: what feature formats can hold."""
    _, rows = DocumentFeatures.fit(dataset, TextSettings(), Runtime(threads=2))
    assert dataset.labels is not None
    return Dataset(features=rows, labels=dataset.labels, label_index=LabelIndex.numbered(dataset.labels.shape[1]))


def measure(source: Path, folder: Path, runs: int) -> None:
    dataset = read(source)
    plain = folder / "plain.jsonl"
    write(dataset, plain)
    size = plain.stat().st_size / 1e6
    script, _ = timed(lambda: python_reader(plain), runs)
    print(
        f"\n{source}: {len(dataset):,} documents, {size:.0f} MB as JSONL; json.loads a line: {size / script:.0f} MB/s"
    )
    print(f"{'format':<14}{'write MB/s':>12}{'read MB/s':>12}{'MB':>8}  unchanged")
    features: Dataset | None = None
    for _, form in FORMATS.loadable():
        if form.write is None:
            continue
        if form.holds == "features" and features is None:
            features = featured(dataset)
        given = dataset if form.holds == "text" else features
        assert given is not None
        place = folder / form.name / form.part_name.format("train")
        place.parent.mkdir()

        def written(given: Dataset = given, place: Path = place, name: str = form.name) -> None:
            shutil.rmtree(place, ignore_errors=True)
            write(given, place, file_format=name)

        folders = form.name == "annif-folder"
        try:
            out, _ = timed(written, 1)
        except DataError as error:
            print(f"{form.name:<14}  refused: {str(error).partition(': ')[2]}")
            continue
        back, found = timed(lambda place=place: read(place), 1 if form.holds == "features" or folders else runs)
        whole = sum(path.stat().st_size for path in place.parent.rglob("*") if path.is_file()) / 1e6
        equal = same(given, found, form.ids, ordered=not folders)
        print(f"{form.name:<14}{size / out:>12.0f}{size / back:>12.0f}{whole:>8.0f}  {'yes' if equal else 'NO'}")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("files", nargs="+", type=Path)
    arguments.add_argument("--runs", type=int, default=3)
    given = arguments.parse_args()
    for source in given.files:
        with tempfile.TemporaryDirectory() as folder:
            measure(source, Path(folder), given.runs)


if __name__ == "__main__":
    main()
