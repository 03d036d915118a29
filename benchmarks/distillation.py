"""Distillation: `parabel` trained on the annotators' labels, on a teacher's targets, and with unlabelled documents.

    python benchmarks/distillation.py --data ../shared/data --sets bibtex cooking delicious

DATA/SET has train and test files. The teacher combines several models with learnt weights; its answers for training
documents are out of fold, and its weights are learnt on the other half of the documents. With `--labelled 0.5`, only
this share of the training documents keeps its labels; the teacher answers the others, too. Prints a Markdown table of
nDCG@5 on the test set. '±' is the standard error of the difference from the plain student over test documents.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import xmtc
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset, align_labels
from xmtc.data.reading import read
from xmtc.data.records import ReadOptions
from xmtc.data.topk import TopK
from xmtc.decisions import combining
from xmtc.decisions.calibration import Calibration
from xmtc.decisions.decision_rules import calibration_of
from xmtc.decisions.thresholds import hits_among
from xmtc.presets.distillation import distil

FOLDS = 3
DEPTH = 20
"""Labels of each member for each document."""
GAINS = 1 / np.log2(np.arange(2, 7))


def load(folder: Path) -> tuple[Dataset, Dataset]:
    """Read the training and test documents."""
    train_file, test_file = (next(iter(sorted(folder.glob(f"{part}.*")))) for part in ("train", "test"))
    train = xmtc.read(train_file)
    if train.features is None:
        return train, xmtc.read(test_file)
    return train, read(test_file, replace(ReadOptions(), feature_count=int(train.features.shape[1])))


def renumbered(answer: TopK, like: Dataset) -> combining.Answer:
    """Answers with the label numbers of a data set."""
    assert like.label_index is not None
    numbers = like.label_index.ids(answer.index.table["key"].combine_chunks())
    labels = np.where(answer.labels >= 0, numbers[answer.labels], -1)
    padding = max(0, DEPTH - labels.shape[1])
    wide = np.pad(labels, ((0, 0), (0, padding)), constant_values=-1)
    return wide, np.pad(answer.scores, ((0, 0), (0, padding)), constant_values=-np.inf)


class Weights(NamedTuple):
    """The teacher: calibrations of its members and learnt weights."""

    calibrations: list[Calibration]
    learnt: combining.Learnt
    counts: NDArray[np.int64]

    @classmethod
    def of(cls, answers: list[combining.Answer], truth: Csr) -> Weights:
        calibrations = [calibration_of("isotonic", *answer, truth) for answer in answers]
        given = [(labels, found.apply(scores)) for (labels, scores), found in zip(answers, calibrations, strict=True)]
        counts = np.bincount(truth.indices, minlength=truth.shape[1])
        union = combining.union([(labels[:, :10], scores[:, :10]) for labels, scores in given])
        rows = combining.design_matrix(combining.gather(given, union), np.log1p(counts[union]))
        return cls(calibrations, combining.learn(rows, hits_among(union, truth)[union >= 0]), counts)

    def answer(self, answers: list[combining.Answer]) -> combining.Answer:
        given = [(labels, cal.apply(scores)) for (labels, scores), cal in zip(answers, self.calibrations, strict=True)]
        union = combining.union(given)
        chances = self.learnt(combining.gather(given, union), np.log1p(self.counts[union]))
        order = np.argsort(np.where(union >= 0, -chances, np.inf), axis=1, kind="stable")[:, : 2 * DEPTH]
        return np.take_along_axis(union, order, axis=1), np.take_along_axis(chances, order, axis=1).astype(np.float32)


def of_rows(answers: list[combining.Answer], rows: NDArray[np.int64]) -> list[combining.Answer]:
    return [(labels[rows], scores[rows]) for labels, scores in answers]


def teach(train: Dataset, others: list[Dataset], members: list[str], runtime: Runtime) -> list[combining.Answer]:
    """The teacher's answers for its training documents, out of fold, and for other documents."""
    assert train.labels is not None
    fold = np.random.default_rng(3).permutation(len(train)) % FOLDS
    within: list[combining.Answer] = []
    elsewhere: list[list[combining.Answer]] = [[] for _ in others]
    for name in members:
        labels, scores = np.full((len(train), DEPTH), -1), np.full((len(train), DEPTH), -np.inf, dtype=np.float32)
        for number in range(FOLDS):
            rest, rows = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
            model = xmtc.create(name).fit(train.take(rest), runtime=runtime)
            labels[rows], scores[rows] = renumbered(model.predict(train.take(rows), k=DEPTH), train)
        within.append((labels, scores))
        model = xmtc.create(name).fit(train, runtime=runtime)
        for place, documents in enumerate(others):
            started = time.perf_counter()
            elsewhere[place].append(renumbered(model.predict(documents, k=DEPTH), train))
            SECONDS[place] = SECONDS.get(place, 0.0) + time.perf_counter() - started
    half = np.random.default_rng(4).permutation(len(train)) % 2
    rows = [np.flatnonzero(half == side) for side in (0, 1)]
    parts = [
        Weights.of(of_rows(within, rows[1 - side]), train.labels[rows[1 - side]]).answer(of_rows(within, rows[side]))
        for side in (0, 1)
    ]
    width = max(part[0].shape[1] for part in parts)
    labels, chances = np.full((len(train), width), -1), np.zeros((len(train), width), dtype=np.float32)
    for side, (found, given) in zip(rows, parts, strict=True):
        labels[side, : found.shape[1]], chances[side, : found.shape[1]] = found, given
    final = Weights.of(within, train.labels)
    return [(labels, chances), *(final.answer(answers) for answers in elsewhere)]


SECONDS: dict[int, float] = {}
"""Seconds in which the teacher's members answered each of the other sets of documents."""


def per_document(labels: NDArray[np.int64], truth: Csr) -> NDArray[np.float64]:
    """(n,) nDCG@5."""
    sizes = np.minimum(np.diff(truth.indptr), 5)
    ideal = np.concatenate([[1.0], np.cumsum(GAINS)])[sizes]
    values: NDArray[np.float64] = hits_among(labels[:, :5], truth).astype(np.float64) @ GAINS / ideal
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=["bibtex", "cooking", "delicious"])
    parser.add_argument("--members", nargs="+", default=["parabel", "one_vs_all", "knn", "leml"])
    parser.add_argument("--student", default="parabel")
    parser.add_argument("--char-ngrams", type=int, nargs=2, help="character n-grams of the student")
    parser.add_argument("--labelled", type=float, default=1.0)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    settings: dict[str, Any] = {"text": {"char_ngrams": tuple(given.char_ngrams)}} if given.char_ngrams else {}
    print("| set | student | nDCG@5 | difference | teacher / student time |\n|---|---|---|---|---|")
    for name in given.sets:
        measure(name, given, settings)


def measure(name: str, given: argparse.Namespace, settings: dict[str, Any]) -> None:
    whole, test = load(given.data / name)
    order = np.random.default_rng(5).permutation(len(whole))
    cut = round(given.labelled * len(whole))
    train, rest = whole.take(np.sort(order[:cut])), whole.take(np.sort(order[cut:]))
    assert train.label_index is not None
    truth, _ = align_labels(test, train.label_index)
    SECONDS.clear()
    runtime = Runtime(threads=given.threads)
    own, on_test, *on_rest = teach(train, [test, rest] if len(rest) else [test], given.members, runtime)
    index = train.label_index
    teacher = TopK(*own, index)
    base: NDArray[np.float64] | None = None

    def row(title: str, values: NDArray[np.float64], seconds: float = 0.0) -> None:
        difference = ""
        if base is not None:
            gap = values - base
            difference = f"{100 * gap.mean():+.2f} ± {100 * gap.std() / np.sqrt(len(gap)):.2f}"
        ratio = f"{SECONDS[0] / seconds:.0f}" if seconds else ""
        print(f"| {name} | {title} | {100 * values.mean():.2f} | {difference} | {ratio} |", flush=True)

    def average(trained: Any) -> tuple[NDArray[np.float64], float]:
        """Mean of the seeds: nDCG@5 of each document, and the seconds in which the student answers."""
        found, seconds = [], []
        for seed in range(given.seeds):
            model = trained(Runtime(threads=given.threads, seed=seed))
            model.predict(test, k=5)
            started = time.perf_counter()
            answer = model.predict(test, k=5)
            seconds.append(time.perf_counter() - started)
            found.append(per_document(renumbered(answer, train)[0], truth))
        return np.mean(found, axis=0), float(np.mean(seconds))

    def plain(documents: Dataset) -> Any:
        return average(lambda runtime: xmtc.create(given.student, **settings).fit(documents, runtime=runtime))

    values, seconds = plain(train)
    row("alone", values, seconds)
    base = values
    row("taught", *average(lambda runtime: distil(train, teacher, given.student, settings, runtime=runtime)))
    if on_rest:
        more = (rest, TopK(*on_rest[0], index))
        row(
            "taught, with unlabelled documents",
            *average(lambda runtime: distil(train, teacher, given.student, settings, unlabelled=more, runtime=runtime)),
        )
        row("alone, all documents labelled", *plain(whole))
    row("(teacher)", per_document(on_test[0], truth))


if __name__ == "__main__":
    main()
