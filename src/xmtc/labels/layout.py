"""Labels by their vectors: which are close to which, where they stand on a plane, and what regions the plane has.

The plane is found as UMAP finds it: near labels pull each other, random others push each other away. It starts from
the two leading principal directions and draws from one sequence of random numbers on one thread, so that a seed
decides where everything stands.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.core import selection
from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.core.progress import Progress, silent
from xmtc.core.selection import insert

Vectors = NDArray[np.float32]
Numbers = NDArray[np.int64]

NEIGHBOURS = 15
"""Near labels that pull each label."""
PUSHES = 5
"""Random labels that push an end of an edge away each time the edge pulls."""
EPOCHS = (500, 200)
"""Rounds over the edges, for few labels and for many."""
MANY = 10_000
"""From how many labels on fewer rounds do."""
STRENGTH = 8.0
"""How much stronger pushes are than in UMAP: with many labels the map has room, and twice as many stay neighbours."""
FARTHEST_STEP = 4.0
"""No push or pull moves a label farther at once."""
START = 10.0
"""How far from the middle the first places reach."""
JITTER = 0.01
"""Labels with the same vector start this far apart."""
PRODUCTS = 1 << 24
"""Similarities that one thread holds at a time."""
REGION_PASSES = 50
"""Most rounds of k-means; regions hardly move after a few."""


def unit_rows(vectors: NDArray[Any]) -> Vectors:
    """Rows of length one; a row of zeros stays one."""
    rows = np.asarray(vectors, dtype=np.float32)
    rows = rows / np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0), np.finfo(np.float32).tiny)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.ascontiguousarray(rows / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def close_to(vectors: NDArray[Any], label: int, k: int) -> tuple[Numbers, Vectors]:
    """The k labels most similar to one, most similar first, and the cosines; equals are ordered by number."""
    rows = unit_rows(vectors)
    cosines = rows @ rows[label]
    cosines[label] = -np.inf
    best = np.argsort(-cosines, kind="stable")[: max(min(k, len(rows) - 1), 0)]
    return best, cosines[best]


def nearest(vectors: NDArray[Any], k: int, *, threads: int = 1, progress: Progress = silent) -> tuple[Numbers, Vectors]:
    """(L, k) labels most similar to each, most similar first, and the cosines, found by comparing all with all.

    Where there are fewer than k others, as many columns as there are.
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


@kernel(outputs=("found", "cosines"), uses=(selection,))
def _best_others(products: Any, first: int, found: Any, cosines: Any) -> None:
    """The best of each row but itself, `first` being the number of the first row; of equals those that come first."""
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
    """(L, 2) places on a plane on which labels with similar vectors stand together.

    Labels whose vector is zero say nothing about where they belong: they stand on a circle around the others. `near`
    is what `nearest` found, where somebody has it already.
    """
    rows = unit_rows(vectors)
    has_vector: NDArray[np.bool_] = np.asarray(rows.any(axis=1))
    found, cosines = near or nearest(rows, NEIGHBOURS, threads=threads, progress=progress)
    heads, tails, weights = _edges(found, cosines, has_vector)
    compact = np.cumsum(has_vector) - 1  # numbers among the labels that have a vector
    places = np.zeros((len(rows), 2), dtype=np.float32)
    moved = _first_places(rows[has_vector], seed)
    _move(moved, compact[heads], compact[tails], weights, seed, progress)
    places[has_vector] = moved
    return _around(places, has_vector)


def _first_places(rows: Vectors, seed: int) -> Vectors:
    """Rows along their two leading principal directions, whose largest entry is positive, and a little beside."""
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
    """Each pair of which one is near to the other, once: its two labels, and how often it pulls, from 0 to 1.

    A label's nearest pulls always, others less the farther they are against the mean; a pair that is near both ways
    pulls as either of the two would. Only labels with a vector pull and are pulled.
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
    """All pulls and pushes, in steps that grow shorter to the end."""
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
    """The next number of splitmix64."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    z = state[0]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@inlined
def _push(places: Any, one: int, other: Any, rate: float, strength: float, most: float) -> None:
    """Move one label away from another, the more the nearer they are."""
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
    """Each edge, as often as its weight says, pulls its ends together; random labels push each end away.

    The forces are the slopes of UMAP's cross-entropy where 1 / (1 + d²) is the chance that labels at distance d are
    near.
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
    """Places about their middle, with the labels that have no place evenly on a circle around them."""
    if has_vector.any():
        inner = places[has_vector]
        places = places - (inner.min(axis=0) + inner.max(axis=0)) / 2
    radius = 1.05 * max(float(np.hypot(*places[has_vector].T).max(initial=0)), 1.0)
    apart = int(np.count_nonzero(~has_vector))
    angles = 2 * np.pi * np.arange(apart) / max(apart, 1)
    places[~has_vector] = radius * np.column_stack([np.cos(angles), np.sin(angles)])
    return places


def regions(places: NDArray[Any], count: int, *, seed: int = 0) -> Numbers:
    """(L,) which of at most `count` regions of the plane each label is in: k-means, regions ordered by size."""
    from scipy.cluster.vq import kmeans2  # takes 0.6 s to import

    points = np.asarray(places, dtype=np.float64)
    if not len(points):
        return np.zeros(0, dtype=np.int64)
    centres = _spread(points, count, seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a region that runs empty keeps its centre
        _, nearest_centre = kmeans2(points, centres, iter=REGION_PASSES, minit="matrix")
    sizes = np.bincount(nearest_centre, minlength=len(centres))
    rank: Numbers = np.empty(len(centres), dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(centres))
    return rank[np.asarray(nearest_centre, dtype=np.int64)]


def _distances(points: NDArray[np.float64], centres: NDArray[np.float64]) -> NDArray[np.float64]:
    """(L, count) squared distances."""
    return np.asarray(((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2))


def _spread(points: NDArray[np.float64], count: int, seed: int) -> NDArray[np.float64]:
    """Up to `count` points to start from, each drawn with the square of its distance from those before (k-means++)."""
    draw = np.random.default_rng(seed)
    chosen = points[:1]
    while len(chosen) < min(count, len(points)):
        far = _distances(points, chosen).min(axis=1)
        if not far.sum() > 0:  # the rest stand where a centre is
            break
        chosen = np.vstack([chosen, points[draw.choice(len(points), p=far / far.sum())]])
    return chosen.copy()
