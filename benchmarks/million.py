"""A million labels: fast generation of synthetic corpora of any size, and the CPU costs of a model on them.

    PYTHONPATH=src python benchmarks/million.py prepare --labels 1000000 [--documents 1000000]
    PYTHONPATH=src python benchmarks/million.py train --labels 10000 100000 1000000

A document has three labels and about 33 words, and a corpus as many documents as labels, 100,000 at least. Frequencies
follow Zipf's law with an exponent of 0.3, with which the rarest label still has two documents on average: of all
generated labels, one in eleven never occurs.

The words of a label are as rare as the label, so all words are kept. The label tree is built from words that labels
share: a fifth as many features as labels, the most frequent ones without those that occur everywhere (idf = "plain"),
and of these the eight strongest per label. With all features, or 64 per label, the rarest words and the function words
hide what labels share, and the labels of a document are in different branches from the top. `prepare` does this;
`train` leaves the tree to the model, which uses the 200,000 most frequent words that occur in at least two texts, and
only sets the eight. With 100,000 labels, a document then has labels under 2.19 of the 256 topmost nodes instead of
2.06.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.artifact.workspace import LOG, Workspace
from xmtc.core.config import parse_assignments
from xmtc.core.errors import ConfigError
from xmtc.core.progress import Task, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.planted_corpus import BLOCK, PlantedCorpus
from xmtc.labels.features import positive_features
from xmtc.labels.tree import LabelTree, shallow_tree
from xmtc.metrics import precision
from xmtc.models.attention_xml import AttentionXml
from xmtc.nn.device import chosen_device
from xmtc.nn.members import MemberRun
from xmtc.nn.training.process_group import Group
from xmtc.nn.trees.member import label_tree
from xmtc.text.features import DocumentFeatures
from xmtc.text.sequences import SequenceSettings, WordSequences
from xmtc.text.tfidf import TextSettings

LEAST_DOCUMENTS = 100_000
PART = 16 * BLOCK
"""Documents that one process generates at a time."""

WORDS = SequenceSettings(max_words=10_000_000)
FEATURES_PER_LABEL = 0.2
KEEP = 8
LEAF_SIZE, FAN_OUT, HEIGHT = 8, 8, 3

TRAINING: dict[str, Any] = {
    "vectors": "random",
    "corpus.width": 64,
    "text.max_words": 10_000_000,
    "text.max_tokens": 64,
    "encoder.units": 256,
    "encoder.dropout": 0.2,
    "head.tree.height": HEIGHT,
    "head.tree.arity": FAN_OUT,
    "head.tree.cluster_size": LEAF_SIZE,
    "head.tree.beam_width": 40,
    "head.tree.label_features": KEEP,
    "training.epochs": 3,
    "training.batch_size": 512,
    "training.learning_rate": 0.005,
    "training.lengths": 4,
    "training.average_window": 0.25,
}

Result = TypeVar("Result")


# ---- the corpus


def planted(
    labels: int,
    documents: int | None = None,
    *,
    valid: int = 2_000,
    test: int = 10_000,
    labels_per_document: float = 3.0,
    words_per_document: int = 30,
    zipf: float = 0.3,
    noise: float = 0.05,
    seed: int = 0,
    processes: int | None = None,
) -> tuple[Dataset, Dataset, Dataset]:
    """Training, validation and test documents of one corpus under one numbering of exactly `labels` labels.

    All of them occur in training: a few more are planted, and of those that occur the surplus is taken off the
    documents, like labels that only validation or test documents hold. The few documents without a label left are left
    out. `processes` (None: one a core) does not change the result.
    """
    documents = max(labels, LEAST_DOCUMENTS) if documents is None else documents
    corpus = PlantedCorpus(
        documents=documents + valid + test,
        labels=labels_to_plant(labels, documents * labels_per_document, zipf),
        labels_per_document=labels_per_document,
        words_per_document=words_per_document,
        zipf=zipf,
        noise=noise,
        seed=seed,
    )
    edges = [0, documents, documents + valid, documents + valid + test]
    bounds = [range(*edge) for edge in itertools.pairwise(edges)]
    pieces = [range(at, min(at + PART, bound.stop)) for bound in bounds for at in range(bound.start, bound.stop, PART)]
    made = list(_made(corpus, pieces, Runtime().threads if processes is None else processes))
    groups = [[part for part, piece in zip(made, pieces, strict=True) if piece.start in bound] for bound in bounds]
    in_training = np.bincount(np.concatenate([part.labels for part in groups[0]]), minlength=corpus.labels)
    kept = np.flatnonzero(in_training)[:labels]
    if len(kept) < labels:
        raise ConfigError(f"{len(kept):,} labels occur in {documents:,} documents, not {labels:,}. Raise 'documents'.")
    numbers = np.full(corpus.labels, -1, dtype=np.int32)
    numbers[kept] = np.arange(labels)
    index = LabelIndex.numbered(labels, pa.array(corpus.label_names(), pa.string()).take(pa.array(kept)))
    train, validation, testing = (_dataset(group, numbers, index) for group in groups)
    return train, validation, testing


def labels_to_plant(wanted: int, pairs: float, zipf: float) -> int:
    """How many labels to plant for `wanted` of them to occur among so many (document, label) pairs, and a few more."""

    def missing(count: int) -> float:
        ranks, power = np.arange(1, count + 2, dtype=np.float64), 1 - zipf
        shares = (
            np.diff(ranks**power) / ((count + 1) ** power - 1) if power else np.diff(np.log(ranks)) / np.log(count + 1)
        )
        return float(np.exp(-pairs * shares).sum())

    low, high = wanted, 2 * wanted
    while low < high:
        middle = (low + high) // 2
        absent = missing(middle)
        enough = middle - absent >= 1.001 * wanted + 5 * absent**0.5
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


class _Part(NamedTuple):
    """Documents that follow each other."""

    texts: pa.Array
    counts: NDArray[np.int64]  # (n,) labels of each
    labels: NDArray[np.int32]  # (sum of counts,)


def _made(corpus: PlantedCorpus, bounds: list[range], processes: int) -> Iterator[_Part]:
    if min(processes, len(bounds)) < 2:
        yield from map(partial(_make, corpus), bounds)
        return
    fresh = multiprocessing.get_context("spawn")  # a fork would copy the locks of other threads
    with ProcessPoolExecutor(min(processes, len(bounds)), mp_context=fresh) as pool:
        yield from pool.map(partial(_make, corpus), bounds)


def _make(corpus: PlantedCorpus, documents: range) -> _Part:
    texts: list[str] = []
    labels: list[list[int]] = []
    for batch in corpus.batches(BLOCK, documents.start, documents.stop):
        texts += batch.texts
        labels += batch.labels
    counts = np.fromiter(map(len, labels), dtype=np.int64, count=len(labels))
    flat = np.fromiter((label for row in labels for label in row), dtype=np.int32, count=int(counts.sum()))
    return _Part(pa.array(texts, pa.string()), counts, flat)


def _dataset(parts: list[_Part], numbers: NDArray[np.int32], index: LabelIndex) -> Dataset:
    counts, columns, texts = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int32)], []
    for part in parts:
        renumbered = numbers[part.labels]
        rows = np.repeat(np.arange(len(part.counts)), part.counts)[renumbered >= 0]
        left = np.bincount(rows, minlength=len(part.counts))
        counts.append(left[left > 0])
        columns.append(renumbered[renumbered >= 0])  # ascending within a row, as before
        texts.append(part.texts.filter(pa.array(left > 0)))
    indptr = np.concatenate([[0], np.cumsum(np.concatenate(counts))]).astype(np.int32)
    ones = np.ones(int(indptr[-1]), dtype=np.float32)
    matrix = sp.csr_array((ones, np.concatenate(columns), indptr), shape=(len(indptr) - 1, len(index)))
    return Dataset(fields={"text": pa.chunked_array(texts, pa.string())}, labels=matrix, label_index=index)


# ---- what preparation costs


class Stages:
    """Seconds by the clock and on the cores, and memory, of one stage after the other; other processes do not count."""

    def __init__(self) -> None:
        self.seconds = 0.0
        print(f"{'stage':<28}{'seconds':>9}{'on cores':>10}{'peak GiB':>10}  result", flush=True)

    def run(self, name: str, call: Callable[[], Result], told: Callable[[Result], str]) -> Result:
        forget_peak()
        started, worked = time.perf_counter(), time.process_time()
        result = call()
        seconds, worked = time.perf_counter() - started, time.process_time() - worked
        self.seconds += seconds
        print(f"{name:<28}{seconds:>9.1f}{worked:>10.1f}{peak():>10.2f}  {told(result)}", flush=True)
        return result


def forget_peak() -> None:
    """Start anew with the most memory held so far, where the system lets us."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak() -> float:
    """GiB that this process held at most since then."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def tree_features(labels: int) -> TextSettings:
    """What the label tree is grown from; see above."""
    return TextSettings(idf="plain", max_features=max(round(FEATURES_PER_LABEL * labels), 1_000))


def prepare(labels: int, documents: int | None, keep: int, threads: int) -> None:
    """Texts, word numbers, tf-idf rows, label features and the label tree, each timed.

    A cache keeps the tokens, so that texts are split for the word numbers and not for tf-idf again.
    """
    with tempfile.TemporaryDirectory() as cache:
        _prepare(labels, documents, keep, Runtime(threads=threads, cache=Path(cache)))


def _prepare(labels: int, documents: int | None, keep: int, runtime: Runtime) -> None:
    threads, stages = runtime.threads, Stages()
    stages.run("compiling", lambda: compiled(keep, runtime), lambda _: "kernels, on a small corpus")
    train, _, test = stages.run(
        "texts and labels",
        lambda: planted(labels, documents, processes=threads),
        lambda made: f"{made[0]}, {per_label(made[0])}",
    )
    words = stages.run(
        "word numbers",
        lambda: WordSequences.fit(train, WORDS, runtime)[0],
        lambda made: f"{made.size:,} numbers",
    )
    rows = stages.run(
        "tf-idf",
        lambda: DocumentFeatures.fit(train, tree_features(labels), runtime)[1],
        lambda made: f"{made.shape[1]:,} features, {made.nnz / made.shape[0]:.1f} a document",
    )
    features = stages.run(
        f"label features, keep {keep}",
        lambda: positive_features(rows, train.labels, keep=keep, threads=threads),
        lambda made: f"{made.nnz / made.shape[0]:.1f} a label, {int((np.diff(made.indptr) == 0).sum()):,} without any",
    )
    tree = stages.run("label tree", lambda: grown(features, threads), lambda made: f"{made.depth} levels")
    print(f"{'together':<28}{stages.seconds:>9.1f}  on {threads} threads", flush=True)
    for level in range(1, tree.depth):
        found = tree.node_labels(train.labels, level).nnz / len(train)
        print(f"level {level}: {tree.nodes(level):,} nodes, of which a document has {found:.2f}", flush=True)
    for least in (1, 2, 3):
        print(f"words in {least} or more texts: {findable(words, least, test)}", flush=True)


def compiled(keep: int, runtime: Runtime) -> None:
    train, _, _ = planted(500, 5_000, valid=100, test=100, processes=1)
    WordSequences.fit(train, WORDS, runtime)
    rows = DocumentFeatures.fit(train, tree_features(500), runtime)[1]
    grown(positive_features(rows, train.labels, keep=keep, threads=runtime.threads), runtime.threads)


def grown(features: Csr, threads: int) -> LabelTree:
    return shallow_tree(features, leaf_size=LEAF_SIZE, fan_out=FAN_OUT, height=HEIGHT, threads=threads)


def findable(words: WordSequences, least: int, test: Dataset) -> str:
    """How many labels have words of their own that are known, and of how many labels of test documents that holds.

    The three words of a label come together, so the place at the end of its name speaks for all.
    """
    assert test.labels is not None
    assert test.label_index is not None
    names = test.label_index.table["name"].combine_chunks()
    places = pc.ascii_lower(pc.list_element(pc.split_pattern(names, " of "), 1))
    known = words.vocabulary.terms.filter(pa.array(words.vocabulary.frequencies >= least))
    found = np.asarray(pc.is_in(places, value_set=known))
    in_test = found[test.labels.indices]
    return f"{len(known):,}; {100 * found.mean():.1f} % of labels, {100 * in_test.mean():.1f} % of those in test"


def per_label(dataset: Dataset) -> str:
    assert dataset.labels is not None
    counts = np.bincount(dataset.labels.indices, minlength=int(dataset.labels.shape[1]))
    few = ", ".join(f"{100 * (counts <= most).mean():.0f} % ≤ {most}" for most in (1, 2, 4))
    return f"{counts.mean():.1f} documents a label (median {np.median(counts):.0f}, {few})"


# ---- training and prediction


class Told:
    """What a training says, line by line."""

    @contextmanager
    def task(self, title: str, total: int | None = None) -> Iterator[Task]:
        with silent.task(title, total) as task:
            yield task

    def say(self, line: str) -> None:
        print(f"  {line}", flush=True)


def train(labels: int, documents: int | None, settings: dict[str, Any], after: Path | None, cache: Path) -> None:
    """All levels of one tree, timed, then answers for the test documents.

    Texts, tokens and the tree are made first; with `after`, training waits until that file is there.
    """
    import torch

    learnt, valid, test = planted(labels, documents)
    workspace = Workspace(Path(tempfile.mkdtemp(dir=cache)))
    runtime = Runtime(cache=cache)
    model = AttentionXml(**{**TRAINING, **settings})
    model._reader, _ = WordSequences.fit(learnt, model.config.text, runtime)
    group = Group(runtime, chosen_device(runtime))
    label_tree(model._spec(runtime), learnt, MemberRun(0, runtime, group, silent, workspace))
    while after is not None and not after.exists():
        time.sleep(0.2)
    on_cuda = torch.cuda.is_available()
    if on_cuda:
        torch.cuda.reset_peak_memory_stats()
    forget_peak()
    started = time.perf_counter()
    model.fit(learnt, valid=valid, runtime=runtime, workspace=workspace, progress=Told())
    seconds = time.perf_counter() - started
    memory = torch.cuda.max_memory_reserved() / 2**30 if on_cuda else 0.0
    print(f"{labels:,} labels: fit {seconds:.1f} s, GPU {memory:.1f} GiB, host {peak():.1f} GiB", flush=True)
    lines = [json.loads(line) for line in (workspace.folder / LOG).read_text().splitlines()]
    for level in range(len(model._members[0].levels)):
        own = [line for line in lines if line["level"] == level]
        speed, scores = own[-1]["documents_per_second"], " ".join(f"{100 * line['score']:.2f}" for line in own)
        nodes = model._members[0].levels.levels[level].nodes
        print(f"  level {level + 1}, {nodes:,} nodes: {speed:,.0f} docs/s, nDCG@5 {scores}", flush=True)
    answers(model, test)
    workspace.remove()


def answers(model: Any, test: Dataset) -> None:
    """Accuracy, and the time of a second pass over the documents and of single ones, from word numbers on."""
    batch = model._documents(test)
    found, _ = model._best_labels(batch, 5, None)
    started = time.perf_counter()
    model._best_labels(batch, 5, None)
    each = (time.perf_counter() - started) / len(test)
    single = [model._documents(test.slice(row, 1)) for row in range(20)]
    model._best_labels(single[0], 5, None)
    started = time.perf_counter()
    for one in single:
        model._best_labels(one, 5, None)
    alone = (time.perf_counter() - started) / len(single)
    scores = "/".join(f"{100 * precision(found, test.labels, k):.2f}" for k in (1, 3, 5))
    print(f"  test P@1/3/5 {scores}; {1e6 * each:.0f} µs a document in batches ({1 / each:,.0f} docs/s), ", end="")
    print(f"{1e3 * alone:.1f} ms alone", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    preparing = commands.add_parser("prepare", help="Time what a model does on the CPU before it trains.")
    preparing.add_argument("--labels", type=int, default=100_000)
    preparing.add_argument("--documents", type=int, help="Training documents; as many as labels, 100,000 at least.")
    preparing.add_argument("--keep", type=int, default=KEEP, help="Features that a label is clustered by.")
    preparing.add_argument("--threads", type=int, default=Runtime().threads)
    training = commands.add_parser("train", help="Train a tree of each size, and predict.")
    training.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    training.add_argument("--documents", type=int, help="Training documents; as many as labels, 100,000 at least.")
    training.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    training.add_argument("--after", type=Path, help="Prepare, then wait for this file before training.")
    training.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    if given.command == "prepare":
        prepare(given.labels, given.documents, given.keep, given.threads)
    else:
        for labels in given.labels:
            train(labels, given.documents, parse_assignments(given.settings), given.after, given.cache)


if __name__ == "__main__":
    main()
