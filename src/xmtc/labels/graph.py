"""The label graph, and random walks on it.

Labels are joined where they occur together in documents, or where one is the parent of the other. Edges are counted
label by label, so that memory is the edges themselves and two numbers a label for each thread. Where they would be too
many, none is held: a walk goes from a label to one of its documents and from there to another of its labels, and memory
is that of the labels of the documents. Drawing a document in proportion to its other labels, such a walk takes each
step as often as one along weighted edges does. Every walk has random numbers of its own: nothing depends on the number
of threads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.config import Settings
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.jit import inlined, kernel
from xmtc.core.parallel import run_parallel
from xmtc.data.dataset import Csr
from xmtc.data.label_index import LabelIndex
from xmtc.labels.clustering import node_seeds
from xmtc.labels.features import even_ranges

EXACT_PAIRS = 1 << 27
"""Pairs of labels in all documents, which edges cannot outnumber, up to which edges are held unasked: a gigabyte."""

MOST_PAIRS = 1 << 31
"""Pairs of labels beyond which edges are refused even to those who ask for them."""

COUNTED = 1 << 22
"""Pairs of labels that a thread counts at a time."""

WALKED = 1 << 21
"""Steps that a thread walks at a time, whose walks are held together."""


@dataclass(frozen=True)
class GraphSettings(Settings):
    """Which labels are joined, and how walks go among them."""

    of: ClassVar[str] = "graph"

    source: Literal["auto", "documents", "hierarchy"] = "auto"
    """What joins two labels: documents that hold both, or one being the parent of the other; auto: the hierarchy where
    at least half of the labels have a parent, else the documents."""
    edges: Literal["auto", "exact", "implicit"] = "auto"
    """Whether edges made by documents are held, or walks go through the documents; auto: held where not too many."""
    weighted: bool = True
    """Whether a walk follows an edge as often as its labels occur together; false: edges, or documents, all alike."""
    walks: int = 10
    """Walks that start from each label."""
    length: int = 40
    """Labels in a walk."""

    def check(self) -> None:
        self.require_range("walks", 1)
        self.require_range("length", 2)


class LabelGraph(NamedTuple):
    """Who is joined to whom, both ways and nobody to itself."""

    indptr: NDArray[np.int64]  # (nodes + 1,)
    neighbours: NDArray[np.int32]  # ascending for each node
    weights: NDArray[np.int32] | None  # how often both occur together; None: all edges alike
    labels: int  # nodes that are labels; those after them are walked through and left out
    hierarchy: bool = False

    def connected(self) -> NDArray[np.int64]:
        """Labels with an edge."""
        return np.flatnonzero(np.diff(self.indptr[: self.labels + 1]))

    def __str__(self) -> str:
        kind = "between parents and children" if self.hierarchy else "between labels of a document"
        return f"{len(self.neighbours) // 2:,} edges {kind}"


class DocumentGraph(NamedTuple):
    """Labels joined through the documents that hold them, none of which holds fewer than two; no edge is held."""

    indptr: NDArray[np.int64]  # (n + 1,)
    members: NDArray[np.int32]  # the labels of each document
    label_indptr: NDArray[np.int64]  # (L + 1,)
    documents: NDArray[np.int32]  # those of each label
    others: NDArray[np.int64] | None  # how many labels stand beside a label in its documents so far; None: all alike
    labels: int

    def connected(self) -> NDArray[np.int64]:
        """Labels that stand beside another."""
        return np.flatnonzero(np.diff(self.label_indptr))

    def pairs(self) -> NDArray[np.int64]:
        """(L,) how many labels stand beside each in its documents, one as often as it does."""
        assert self.others is not None
        ends = np.concatenate([[0], self.others])[self.label_indptr[1:]]
        return np.where(np.diff(self.label_indptr) > 0, ends, 0)

    def __str__(self) -> str:
        return f"walks through {len(self.indptr) - 1:,} documents, no edges held"


Graph: TypeAlias = LabelGraph | DocumentGraph


def build_graph(labels: Csr, index: LabelIndex, settings: GraphSettings, *, threads: int = 1) -> Graph:
    """The graph that the settings ask for, over the L labels of documents (n, L) and their parents."""
    with_parents = int(pc.sum(pc.greater(pc.list_value_length(index.table["parents"]), 0)).as_py() or 0)
    if settings.source == "hierarchy" and not with_parents:
        raise DataError(
            f"none of {len(index):,} labels has a parent. Give label names with parents (--labels FILE), or use "
            "vectors.graph.source=auto."
        )
    if settings.source == "hierarchy" or (settings.source == "auto" and 0 < len(index) <= 2 * with_parents):
        return hierarchy_graph(index)
    labels = _together(labels)
    counts = np.diff(labels.indptr).astype(np.int64)
    pairs = int((counts * (counts - 1)).sum())
    if settings.edges == "implicit" or (settings.edges == "auto" and pairs > EXACT_PAIRS):
        return document_graph(labels, weighted=settings.weighted)
    if pairs > MOST_PAIRS:
        raise ConfigError(
            f"the documents hold {pairs:,} pairs of labels, too many to hold as edges. Use vectors.graph.edges=auto."
        )
    return occurrence_graph(labels, weighted=settings.weighted, threads=threads)


def hierarchy_graph(index: LabelIndex) -> LabelGraph:
    """Labels joined to their parents, all edges alike.

    A vocabulary cut to the labels that documents hold has lost some parents: of EURLEX57K's 4,108 training labels 442
    name only such. Two or more labels of a lost parent stay as near as they were, since it is a node that walks pass
    through and leave out; ignoring it would leave 407 labels without an edge where 131 really have no relative.
    """
    lists = index.table["parents"].combine_chunks()
    children = np.repeat(np.arange(len(index)), np.asarray(pc.fill_null(pc.list_value_length(lists), 0)))
    keys = lists.flatten()
    parents = index.ids(keys)
    lost = np.flatnonzero(parents < 0)
    named = pc.dictionary_encode(keys.take(pa.array(lost)))
    parents[lost] = len(index) + np.asarray(named.indices, dtype=np.int64)
    nodes = len(index) + len(named.dictionary)
    links = np.unique(np.stack([children, parents], axis=1)[children != parents], axis=0)
    alone = np.bincount(links[:, 1], minlength=nodes) < 2
    alone[: len(index)] = False
    ends = links[~alone[links[:, 1]]]
    both = np.concatenate([ends, ends[:, ::-1]])
    joined = sp.csr_array((np.ones(len(both), dtype=np.int8), (both[:, 0], both[:, 1])), shape=(nodes, nodes))
    joined.sum_duplicates()
    indptr, neighbours = joined.indptr.astype(np.int64), joined.indices.astype(np.int32)
    return LabelGraph(indptr, neighbours, None, len(index), hierarchy=True)


def occurrence_graph(labels: Csr, *, weighted: bool = True, threads: int = 1) -> LabelGraph:
    """Labels (n, L) joined where a document holds both; weights are the numbers of such documents."""
    rows = document_graph(labels)
    indptr, members, label_indptr, documents = rows.indptr, rows.members, rows.label_indptr, rows.documents
    parts = list(even_ranges(rows.pairs(), COUNTED))
    degrees = np.zeros(rows.labels, dtype=np.int64)

    def count(part: range) -> None:
        seen = np.full(rows.labels, -1, dtype=np.int32)
        _count_neighbours(indptr, members, label_indptr, documents, part.start, part.stop, seen, degrees)

    def fill(part: range) -> None:
        times = np.zeros(rows.labels, dtype=np.int32)
        given = (indptr, members, label_indptr, documents, starts, part.start, part.stop, weighted)
        _fill_neighbours(*given, times, neighbours, weights)

    for _ in run_parallel(count, parts, threads, ahead=8):
        pass
    starts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(degrees)])
    neighbours = np.empty(int(starts[-1]), dtype=np.int32)
    weights = np.empty(int(starts[-1]) if weighted else 0, dtype=np.int32)
    for _ in run_parallel(fill, parts, threads, ahead=8):
        pass
    return LabelGraph(starts, neighbours, weights if weighted else None, rows.labels)


def document_graph(labels: Csr, *, weighted: bool = True) -> DocumentGraph:
    """Labels (n, L) joined through documents; weighted, a document is drawn in proportion to the labels it leads to."""
    labels = _together(labels)
    columns = sp.csc_array(labels)
    indptr = labels.indptr.astype(np.int64, copy=False)
    starts, documents = columns.indptr.astype(np.int64, copy=False), columns.indices.astype(np.int32, copy=False)
    others = _running_sums((np.diff(indptr) - 1)[documents], starts) if weighted else None
    members = labels.indices.astype(np.int32, copy=False)
    return DocumentGraph(indptr, members, starts, documents, others, int(labels.shape[1]))


def walks(graph: Graph, settings: GraphSettings, *, seed: int = 0, threads: int = 1) -> Iterator[NDArray[np.int32]]:
    """Walks (w, length), some at a time: rounds of one from each label that is joined to another, in random order.

    −1 stands for a parent that is not a label; there is no other gap. The walks are the same on any number of threads.
    """
    connected = graph.connected()
    step = max(WALKED // settings.length, 1)
    walk = _stepper(graph)

    def parts() -> Iterator[tuple[NDArray[np.int64], NDArray[np.uint64]]]:
        for number in range(settings.walks):
            starts = np.random.default_rng([seed & (1 << 64) - 1, number]).permutation(connected)
            seeds = node_seeds(seed, number, len(connected))
            for at in range(0, len(connected), step):
                yield starts[at : at + step], seeds[at : at + step]

    def walked(part: tuple[NDArray[np.int64], NDArray[np.uint64]]) -> NDArray[np.int32]:
        found = np.empty((len(part[0]), settings.length), dtype=np.int32)
        walk(*part, found)
        return found

    yield from run_parallel(walked, parts(), threads)


def _stepper(graph: Graph) -> Any:
    """What fills walks from given labels with given seeds."""
    if isinstance(graph, DocumentGraph):
        others = np.empty(0, dtype=np.int64) if graph.others is None else graph.others
        rows = (graph.indptr, graph.members, graph.label_indptr, graph.documents)
        return lambda starts, seeds, found: _walk_documents(*rows, others, starts, seeds, found)
    sums = np.empty(0, dtype=np.uint32)
    if graph.weights is not None:
        sums = _running_sums(graph.weights, graph.indptr).astype(np.uint32)
    return lambda starts, seeds, found: _walk_edges(
        graph.indptr, graph.neighbours, sums, graph.labels, starts, seeds, found
    )


def as_sets(labels: Csr) -> Csr:
    """Each label of a document once, and none that is stored as zero; what is given stays as it is."""
    if labels.has_canonical_format and labels.data.all():
        return labels
    labels = labels.copy()
    labels.sum_duplicates()
    labels.eliminate_zeros()
    return labels


def _together(labels: Csr) -> Csr:
    """The documents that hold two labels or more."""
    labels = as_sets(labels)
    several = np.diff(labels.indptr) > 1
    return labels if several.all() else labels[np.flatnonzero(several)]


@kernel()
def _running_sums(counts: NDArray[Any], indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Within each row the sum of its counts up to each."""
    sums = np.empty(len(counts), np.int64)
    for row in range(len(indptr) - 1):
        total = 0
        for i in range(indptr[row], indptr[row + 1]):
            total += counts[i]
            sums[i] = total
    return sums


@kernel(outputs=("seen", "degrees"))
def _count_neighbours(
    indptr: NDArray[np.int64],  # (n + 1,)
    members: NDArray[np.int32],
    label_indptr: NDArray[np.int64],  # (L + 1,)
    documents: NDArray[np.int32],
    first: int,
    last: int,
    seen: NDArray[np.int32],  # (L,) −1
    degrees: NDArray[np.int64],  # out: of labels first … last − 1
) -> None:
    for label in range(first, last):
        seen[label] = label
        count = 0
        for i in range(label_indptr[label], label_indptr[label + 1]):
            for j in range(indptr[documents[i]], indptr[documents[i] + 1]):
                if seen[members[j]] != label:
                    seen[members[j]] = label
                    count += 1
        degrees[label] = count


@inlined
def count_beside(
    indptr: Any, members: Any, label_indptr: Any, documents: Any, label: Any, times: Any, neighbours: Any, start: Any
) -> Any:
    """Writes the labels beside one from `start` on, as they are met, and how often into `times`; where they end."""
    end = start
    for i in range(label_indptr[label], label_indptr[label + 1]):
        for j in range(indptr[documents[i]], indptr[documents[i] + 1]):
            other = members[j]
            if other != label:
                if times[other] == 0:
                    neighbours[end] = other
                    end += 1
                times[other] += 1
    return end


@kernel(outputs=("times", "neighbours", "weights"))
def _fill_neighbours(
    indptr: NDArray[np.int64],  # (n + 1,)
    members: NDArray[np.int32],
    label_indptr: NDArray[np.int64],  # (L + 1,)
    documents: NDArray[np.int32],
    starts: NDArray[np.int64],  # (L + 1,)
    first: int,
    last: int,
    weighted: bool,
    times: NDArray[np.int32],  # (L,) zeros, and zeros again afterwards
    neighbours: NDArray[np.int32],  # out: of labels first … last − 1
    weights: NDArray[np.int32],  # out: the same where weighted
) -> None:
    for label in range(first, last):
        end = count_beside(indptr, members, label_indptr, documents, label, times, neighbours, starts[label])
        neighbours[starts[label] : end].sort()
        for i in range(starts[label], end):
            if weighted:
                weights[i] = times[neighbours[i]]
            times[neighbours[i]] = 0


@inlined
def _random(state: Any) -> Any:
    """The next 64 random bits after a state that grows by a constant: splitmix64."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@inlined
def _below(bits: Any, count: Any) -> Any:
    """A number from 0 to count − 1, which is below 2⁵³."""
    return np.int64(np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0) * np.float64(count))


@inlined
def _drawn(bits: Any, sums: Any, first: Any, last: Any) -> Any:
    """A place from first to last − 1, in proportion to what its running sum adds; without sums all alike."""
    if len(sums) == 0:
        return first + _below(bits, last - first)
    wanted = _below(bits, sums[last - 1])
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if np.int64(sums[middle]) > wanted:
            high = middle
        else:
            low = middle + 1
    return low


@kernel(outputs=("found",))
def _walk_edges(
    indptr: NDArray[np.int64],
    neighbours: NDArray[np.int32],
    sums: NDArray[np.uint32],  # running sums of weights, or empty
    labels: int,
    starts: NDArray[np.int64],  # (w,) labels with neighbours
    seeds: NDArray[np.uint64],  # (w,)
    found: NDArray[np.int32],  # out: (w, length)
) -> None:
    for walk in range(len(starts)):
        node, state = starts[walk], seeds[walk]
        for step in range(found.shape[1]):
            found[walk, step] = node if node < labels else -1
            state += np.uint64(0x9E3779B97F4A7C15)
            node = np.int64(neighbours[_drawn(_random(state), sums, indptr[node], indptr[node + 1])])


@kernel(outputs=("found",))
def _walk_documents(
    indptr: NDArray[np.int64],
    members: NDArray[np.int32],
    label_indptr: NDArray[np.int64],
    documents: NDArray[np.int32],
    others: NDArray[np.int64],  # running sums of other labels, or empty
    starts: NDArray[np.int64],  # (w,) labels with documents
    seeds: NDArray[np.uint64],  # (w,)
    found: NDArray[np.int32],  # out: (w, length)
) -> None:
    for walk in range(len(starts)):
        label, state = starts[walk], seeds[walk]
        for step in range(found.shape[1]):
            found[walk, step] = label
            state += np.uint64(0x9E3779B97F4A7C15)
            document = documents[_drawn(_random(state), others, label_indptr[label], label_indptr[label + 1])]
            state += np.uint64(0x9E3779B97F4A7C15)
            first, last = indptr[document], indptr[document + 1]
            place = first + _below(_random(state), last - first - 1)
            if members[place] == label:  # the last member stands in for the label itself
                place = last - 1
            label = np.int64(members[place])
