"""Label vectors: DeepWalk on the label graph, or singular vectors of the label matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.config import Settings
from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Csr
from xmtc.data.label_index import LabelIndex
from xmtc.labels.graph import Graph, GraphSettings, as_sets, build_graph, walks
from xmtc.labels.layout import unit_rows
from xmtc.text.word2vec import Corpus, CorpusVectorSettings, train_on_parts

ROWS = 1 << 16
"""Rows of a tall matrix to multiply at a time."""

SPARE, PASSES = 20, 12
"""Oversampling, and number of multiplications by YᵀY, of the randomised singular value decomposition."""

NEGLIGIBLE, ROUNDING = 1e-5, 1e-7
"""Singular values below these fractions of the largest count as zero: for directions, and for orthonormalisation."""

Vectors: TypeAlias = NDArray[np.float32]


@dataclass(frozen=True)
class LabelVectorSettings(Settings):
    """Label vectors used as targets."""

    of: ClassVar[str] = "vectors"

    kind: Literal["deepwalk", "svd", "random"] = "deepwalk"
    """Source of the vectors: random walks on the label graph, singular vectors of the label matrix, or random."""
    width: int = 100
    """Dimension of the vectors."""
    window: int = 5
    """Maximum context size on either side in a walk; the size is drawn from 1 to this for each label."""
    negative: int = 5
    """Number of negative samples per label of a walk."""
    epochs: int = 1
    """Passes over the walks."""
    learning_rate: float = 0.025
    """Initial learning rate of DeepWalk; it decreases linearly to zero."""
    whiten: bool = True
    """Centre and whiten the DeepWalk vectors, which otherwise have a common dominant direction."""
    unit: bool = True
    """Normalise vectors to unit length; the paper uses unit=false and whiten=false."""
    names: float = 0.0
    """Weight of the mean word vector of a label's names, added to its vector; used alone if it has no documents."""
    graph: GraphSettings = field(default_factory=GraphSettings)
    """Label graph for deepwalk."""

    def check(self) -> None:
        for name in ("width", "window", "negative", "epochs"):
            self.require_range(name, 1)
        self.require_range("learning_rate", 0, open_low=True)
        self.require_range("names", 0)


def label_vectors(
    labels: Csr,
    index: LabelIndex,
    settings: LabelVectorSettings,
    *,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
) -> tuple[Vectors, dict[str, str]]:
    """Compute vectors (L, width) of the labels of documents (n, L); return them with facts for the training report.

    Labels that are isolated in the graph or have no documents get random vectors of the same length as the others.
    The result depends on the seed but not on the number of threads.
    """
    labels = as_sets(labels)
    known: NDArray[np.int64] = np.empty(0, dtype=np.int64)
    found: Vectors = np.empty((0, settings.width), dtype=np.float32)
    facts: dict[str, str] = {}
    if settings.kind == "deepwalk":
        graph = build_graph(labels, index, settings.graph, threads=threads)
        known = graph.connected()
        facts["label graph"] = f"{graph}, {graph.labels - len(known):,} isolated labels"
        found = deepwalk(graph, settings, seed=seed, threads=threads, progress=progress)[known]
        found = whitened(found) if settings.whiten else found
    elif settings.kind == "svd":
        known = np.flatnonzero(np.bincount(labels.indices, minlength=labels.shape[1]))
        facts["label vectors"] = f"singular vectors, {labels.shape[1] - len(known):,} labels without documents"
        found = singular_vectors(labels, settings.width, seed=seed)[known]
    return _completed(found, known, int(labels.shape[1]), settings.unit, seed), facts


def deepwalk(
    graph: Graph, settings: LabelVectorSettings, *, seed: int = 0, threads: int = 1, progress: Progress = silent
) -> Vectors:
    """Train skip-gram vectors (L, width) on random walks, generated on the fly: once to count, then for each epoch."""
    frequencies = np.zeros(graph.labels + 1, dtype=np.int64)
    steps = settings.graph.walks * len(graph.connected())
    with progress.task("walking the label graph", steps) as task:
        for part in walks(graph, settings.graph, seed=seed, threads=threads):
            frequencies += np.bincount(part.ravel() + 1, minlength=len(frequencies))  # gaps are −1
            task.advance(len(part))
    skipgram = CorpusVectorSettings(
        kind="skipgram",
        width=settings.width,
        window=settings.window,
        negative=settings.negative,
        epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        subsample=0.0,
    )
    return train_on_parts(
        _sentences(graph, settings.graph, seed, threads),
        int(frequencies.sum()),
        frequencies[1:],
        skipgram,
        shared_negatives=True,
        seed=seed,
        title="training label vectors",
        progress=progress,
    )


def _sentences(graph: Graph, settings: GraphSettings, seed: int, threads: int) -> Callable[[], Iterator[Corpus]]:
    """Return the walks as a corpus for skip-gram."""

    def parts() -> Iterator[Corpus]:
        for part in walks(graph, settings, seed=seed, threads=threads):
            yield np.arange(len(part) + 1, dtype=np.int64) * part.shape[1], part.ravel()

    return parts


def whitened(vectors: Vectors) -> Vectors:
    """Return the left singular vectors U of the centred vectors; directions beyond the rank are zero."""
    if not len(vectors):
        return vectors
    mean = vectors.mean(axis=0, dtype=np.float64)
    gram = np.zeros((vectors.shape[1], vectors.shape[1]))
    for at in range(0, len(vectors), ROWS):
        centred = vectors[at : at + ROWS] - mean
        gram += centred.T @ centred
    turn = _inverse_root(gram, NEGLIGIBLE)
    return np.concatenate(
        [((vectors[at : at + ROWS] - mean) @ turn).astype(np.float32) for at in range(0, len(vectors), ROWS)]
    )


def _inverse_root(gram: NDArray[np.float64], negligible: float) -> NDArray[np.float64]:
    """Return the matrix (w, w) that maps A, with AᵀA = gram, to its left singular vectors, largest value first."""
    squares, turn = np.linalg.eigh(gram)
    squares, turn = squares[::-1], turn[:, ::-1] * _signs(turn[:, ::-1])
    kept = squares > max(float(squares[0]), 0.0) * negligible**2
    scale = np.divide(1.0, np.sqrt(np.maximum(squares, 0.0)), out=np.zeros_like(squares), where=kept & (squares > 0))
    return np.asarray(turn * scale)


def _signs(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return signs (w,) that make the largest entry of each column positive, since singular vectors have no sign."""
    largest = np.abs(columns).argmax(axis=0)
    return np.where(columns[largest, np.arange(columns.shape[1])] < 0, -1.0, 1.0)


def singular_vectors(labels: Csr, width: int, *, seed: int = 0) -> Vectors:
    """Compute the right singular vectors (L, width) of the label matrix (n, L) with unit rows, largest value first.

    Subspace iteration from random directions: a tall matrix is multiplied by YᵀY repeatedly, some documents at a time,
    so that nothing larger than (L, width) is in memory. Directions beyond the rank are zero.
    """
    count = int(labels.shape[1])
    size = min(width + SPARE, count)
    rows = labels.astype(np.float64)
    rows.data = 1.0 / np.sqrt(np.repeat(np.maximum(np.diff(rows.indptr), 1), np.diff(rows.indptr)))
    found = np.zeros((count, width), dtype=np.float32)
    if not size or not rows.nnz:
        return found
    basis = np.random.default_rng(seed & (1 << 64) - 1).standard_normal((count, size))
    for _ in range(PASSES):
        basis = _orthonormal(_orthonormal(basis))  # twice, to remove rounding errors
        product = np.zeros_like(basis)
        for at in range(0, rows.shape[0], ROWS):
            part = rows[at : at + ROWS]
            product += part.T @ (part @ basis)
        basis, before = product, basis
    gram = before.T @ product
    squares, turn = np.linalg.eigh((gram + gram.T) / 2)
    best = (before @ turn[:, ::-1])[:, :width]
    kept = squares[::-1][:width] > squares[-1] * NEGLIGIBLE**2
    found[:, : best.shape[1]] = best * _signs(best) * kept
    return found


def _orthonormal(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormalise columns, zeros beyond the rank; ten times as fast as a QR decomposition."""
    return columns @ _inverse_root(columns.T @ columns, ROUNDING)


def with_name_vectors(vectors: Vectors, labels: Csr, rows: Csr, names: Csr, weight: float) -> Vectors:
    """Add `weight` times the mean word vector of a label's names to its vector (L, width); lengths stay the same.

    `labels` (n, L) are those of the documents; a label without documents gets the vector of its names alone. `rows`
    (n, D) and `names` (L, D) have the words of documents and names. The vector of a word is the mean over its
    documents of the mean label vector, minus that of all documents, so that words without a topic have short vectors.
    A label whose names have no known word keeps its vector.
    """
    targets = unit_rows(labels @ vectors)  # (n, width)
    targets -= targets.mean(axis=0)
    words = np.unique(names.indices[names.data != 0])
    held = sp.csc_array(rows)[:, words]
    held.data = (held.data != 0).astype(np.float32)
    counts = np.maximum(np.asarray(held.sum(axis=0)).ravel(), 1)
    of_words = np.asarray(held.T @ targets) / counts[:, None]  # (words, width)
    of_names = unit_rows(sp.csc_array(names)[:, words] @ of_words)
    lengths = np.linalg.norm(vectors, axis=1)
    is_bare = np.bincount(labels.indices, minlength=len(vectors)) == 0
    share = np.where(is_bare, 0.0, 1.0)[:, None]
    mixed = share * unit_rows(vectors) + np.where(is_bare, 1.0, weight)[:, None] * of_names
    has_name = of_names.any(axis=1)
    found = vectors.copy()
    found[has_name] = (unit_rows(mixed) * lengths[:, None])[has_name]
    return found


def _completed(found: Vectors, known: NDArray[np.int64], count: int, unit: bool, seed: int) -> Vectors:
    """Return vectors (L, width): those found for known labels, random ones of the same length for all others."""
    vectors = np.random.default_rng([seed & (1 << 64) - 1, 1]).standard_normal((count, found.shape[1]), np.float32)
    lengths = np.linalg.norm(found, axis=1)
    usual = float(np.sqrt((lengths.astype(np.float64) ** 2).mean())) if lengths.any() else 1.0
    filled = lengths > NEGLIGIBLE * usual
    vectors *= (1.0 if unit else usual) / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-30)
    vectors[known[filled]] = found[filled] / (lengths[filled, None] if unit else 1.0)
    return vectors
