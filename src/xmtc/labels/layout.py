"""Similar labels by vector, their layout on a plane, and regions of the plane.

The layout is computed as in UMAP: near labels attract each other, random others repel each other. It starts from the
first two principal components and uses one sequence of random numbers on one thread, so the result depends only on the
seed.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.progress import Progress, silent
from xmtc.core.selection import insert

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]

NEIGHBOURS = 15
"""Number of nearest labels that attract each label."""
PUSHES = 5
"""Number of negative samples per end of an edge."""
EPOCHS = (500, 200)
"""Passes over the edges, for few labels and for many."""
MANY = 10_000
"""Number of labels from which the smaller number of passes is used."""
STRENGTH = 8.0
"""Strength of repulsion relative to UMAP; with many labels, twice as many neighbours are preserved."""
FARTHEST_STEP = 4.0
"""Maximum movement of a label per force."""
START = 10.0
"""Maximum coordinate of the initial layout."""
JITTER = 0.01
"""Standard deviation of the initial noise, which separates labels with the same vector."""
PRODUCTS = 1 << 24
"""Similarities in memory at a time, per thread."""
REGION_PASSES = 50
"""Maximum iterations of k-means; it converges after a few."""


def unit_rows(vectors: NDArray[Any]) -> Vectors:
    """Scale rows to unit length; zero rows stay zero."""
    rows = np.asarray(vectors, dtype=np.float32)
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0), np.finfo(np.float32).tiny)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.ascontiguousarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def close_to(vectors: NDArray[Any], label: int, k: int) -> tuple[Numbers, Vectors]:
    """Return the k labels most similar to one, most similar first, and their cosines; ties are ordered by number."""
    rows = unit_rows(vectors)
    cosines = rows @ rows[label]
    cosines[label] = -np.inf
    best = np.argsort(-cosines, kind="stable")[: max(min(k, len(rows) - 1), 0)]
    return best, cosines[best]


def nearest(vectors: NDArray[Any], k: int, *, threads: int = 1, progress: Progress = silent) -> tuple[Numbers, Vectors]:
    """Return the labels (L, k) most similar to each, most similar first, and their cosines, by exhaustive comparison.

    With fewer than k other labels, there are fewer columns.
    """
    rows = unit_rows(vectors)
    count = len(rows)
    shape = (count, max(min(k, count - 1), 0))
    found, cosines = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    step = max(PRODUCTS // max(count, 1), 1)

    def search(start: int) -> int:
        products = rows[start : start + step] @ rows.T  # (step, L)
        _best_others(products, start, found[start : start + step], cosines[start : start + step])
        return len(products)

    if shape[1]:
        with progress.task("comparing labels", total=count) as task:
            for done in run_parallel(search, range(0, count, step), threads):
                task.advance(done)
    return found, cosines


@kernel(outputs=("found", "cosines"))
def _best_others(products: Any, first: int, found: Any, cosines: Any) -> None:
    """Find the best labels of each row other than itself; `first` is the number of the first row."""
    for row in range(products.shape[0]):
        held = 0
        for label in range(products.shape[1]):
            if label != first + row:
                held = insert(found[row], cosines[row], held, label, products[row, label])


def layout(
    vectors: NDArray[Any],
    *,
    seed: int = 0,
    threads: int = 1,
    progress: Progress = silent,
    near: tuple[Numbers, Vectors] | None = None,
) -> Vectors:
    """Compute coordinates (L, 2) that place labels with similar vectors close to each other.

    Labels with a zero vector are placed on a circle around the others. `near` is the result of `nearest`, if already
    available.
    """
    rows = unit_rows(vectors)
    has_vector: NDArray[np.bool_] = np.asarray(rows.any(axis=1))
    found, cosines = near or nearest(rows, NEIGHBOURS, threads=threads, progress=progress)
    heads, tails, weights = _edges(found, cosines, has_vector)
    compact = np.cumsum(has_vector) - 1  # numbers among the labels with a vector
    places = np.zeros((len(rows), 2), dtype=np.float32)
    moved = _first_places(rows[has_vector], seed)
    _move(moved, compact[heads], compact[tails], weights, seed, progress)
    places[has_vector] = moved
    return _around(places, has_vector)


def _first_places(rows: Vectors, seed: int) -> Vectors:
    """Project rows to their first two principal components, with a positive largest loading, and add noise."""
    centred = rows - rows.mean(axis=0, dtype=np.float64) if len(rows) else rows
    _, directions = np.linalg.eigh(centred.T @ centred)  # (d, d), ascending
    leading = directions[:, ::-1][:, :2]
    signs = np.sign(np.take_along_axis(leading, np.abs(leading).argmax(axis=0)[None], axis=0))
    places = np.zeros((len(rows), 2))
    places[:, : leading.shape[1]] = centred @ (leading * signs)
    farthest = np.abs(places).max(initial=0)
    places *= START / farthest if farthest > 1e-6 else 0.0
    places += np.random.default_rng(seed).normal(0, JITTER, places.shape)
    return places.astype(np.float32)


def _edges(found: Numbers, cosines: Vectors, has_vector: NDArray[np.bool_]) -> tuple[Numbers, Numbers, Vectors]:
    """Return each pair of near labels once: its two labels, and its weight (sampling probability) from 0 to 1.

    The nearest label has weight 1; weights decrease with distance relative to the mean. Weights of mutual neighbours
    are combined by noisy-or. Only labels with a vector have edges.
    """
    count, k = found.shape
    farther = cosines[:, :1] - cosines  # (L, k), ascending from 0
    scale = farther.sum(axis=1, keepdims=True) / max(k, 1)
    weights = np.exp(-farther.astype(np.float64) / np.where(scale > 0, scale, 1)).ravel()
    heads, tails = np.repeat(np.arange(count), k), found.ravel()
    both = has_vector[heads] & has_vector[tails]
    pairs = (np.minimum(heads, tails) * count + np.maximum(heads, tails))[both]
    kept, member = np.unique(pairs, return_inverse=True)
    silence = np.bincount(member, weights=np.log1p(-np.minimum(weights[both], 1 - 1e-9)), minlength=len(kept))
    return kept // max(count, 1), kept % max(count, 1), (-np.expm1(silence)).astype(np.float32)


def _move(places: Vectors, heads: Numbers, tails: Numbers, weights: Vectors, seed: int, progress: Progress) -> None:
    """Optimise the layout with decreasing step size."""
    if not len(heads):
        return
    state = np.random.SeedSequence(seed).generate_state(1, np.uint64).astype(np.uint64)
    epochs = EPOCHS[len(places) >= MANY]
    with progress.task("placing labels", total=epochs) as task:
        for epoch in range(epochs):
            _epoch(heads, tails, weights, 1.0 - epoch / epochs, PUSHES, STRENGTH, FARTHEST_STEP, places, state)
            task.advance()


@inlined
def _random(state: Any) -> Any:
    """Return the next number of splitmix64."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def _push(places: Any, one: int, other: Any, rate: float, strength: float, most: float) -> None:
    """Move one label away from another, with a force that decreases with distance."""
    x, y = places[one, 0] - places[other, 0], places[one, 1] - places[other, 1]
    squared = x * x + y * y
    force = 2.0 * strength / ((0.001 + squared) * (1.0 + squared))
    places[one, 0] += rate * min(max(force * x, -most), most)
    places[one, 1] += rate * min(max(force * y, -most), most)


@kernel(outputs=("places", "state"))
def _epoch(
    heads: Any,
    tails: Any,
    weights: Any,
    rate: float,
    pushes: int,
    strength: float,
    most: float,
    places: Any,
    state: Any,
) -> None:
    """Attract the ends of each edge, sampled by weight, and repel each end from random labels.

    The forces are the gradients of UMAP's cross-entropy with the probability 1 / (1 + d²) of an edge at distance d.
    """
    labels = np.uint64(places.shape[0])
    for edge in range(len(heads)):
        if np.float32(_random(state) >> np.uint64(40)) * np.float32(2.0**-24) >= weights[edge]:
            continue
        head, tail = heads[edge], tails[edge]
        x, y = places[head, 0] - places[tail, 0], places[head, 1] - places[tail, 1]
        force = -2.0 / (1.0 + x * x + y * y)
        x, y = rate * min(max(force * x, -most), most), rate * min(max(force * y, -most), most)
        places[head, 0] += x
        places[head, 1] += y
        places[tail, 0] -= x
        places[tail, 1] -= y
        for _ in range(pushes):
            drawn = _random(state)
            _push(places, head, np.int64((drawn >> np.uint64(32)) % labels), rate, strength, most)
            _push(places, tail, np.int64((drawn & np.uint64(0xFFFFFFFF)) % labels), rate, strength, most)


def _around(places: Vectors, has_vector: NDArray[np.bool_]) -> Vectors:
    """Centre the layout, and place the labels without a vector evenly on a circle around it."""
    if has_vector.any():
        inner = places[has_vector]
        places = places - (inner.min(axis=0) + inner.max(axis=0)) / 2
    radius = 1.05 * max(float(np.hypot(*places[has_vector].T).max(initial=0)), 1.0)
    apart = int(np.count_nonzero(~has_vector))
    angles = 2 * np.pi * np.arange(apart) / max(apart, 1)
    places[~has_vector] = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    return places


def regions(places: NDArray[Any], count: int, *, seed: int = 0) -> Numbers:
    """Assign each label to one of at most `count` regions of the plane by k-means; regions are ordered by size."""
    from scipy.cluster.vq import kmeans2  # takes 0.6 s to import

    points = np.asarray(places, dtype=np.float64)
    if not len(points):
        return np.zeros(0, dtype=np.int64)
    centres = _spread(points, count, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an empty region keeps its centre
        _, nearest_centre = kmeans2(points, centres, iter=REGION_PASSES, minit="matrix")
    sizes = np.bincount(nearest_centre, minlength=len(centres))
    rank: Numbers = np.empty(len(centres), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(centres))
    return rank[np.asarray(nearest_centre, dtype=np.int64)]


def _distances(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return squared distances (L, count)."""
    return np.asarray(((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2))


def _spread(points: NDArray[np.float64], count: int, seed: int) -> NDArray[np.float64]:
    """Choose up to `count` initial centres by k-means++, in proportion to the squared distance from earlier ones."""
    draw = np.random.default_rng(seed)
    chosen = points[:1]
    while len(chosen) < min(count, len(points)):
        far = _distances(points, chosen).min(axis=1)
        if not far.sum() > 0:  # all other points coincide with a centre
            break
        chosen = np.vstack([chosen, points[draw.choice(len(points), p=far / far.sum())]])
    return chosen.copy()
