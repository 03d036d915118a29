"""The label graph, and random walks on it.

Labels are connected if they co-occur in documents, or if one is the parent of the other. Edges are counted label by
label, so memory is limited to the edges and two numbers per label and thread. If there are too many, edges stay
implicit: a walk goes from a label to one of its documents and on to another label of that document, and memory is
limited to the documents' labels. Since documents are drawn in proportion to the number of their other labels, the step
probabilities are the same as with weighted edges. Every walk has its own random numbers, so results do not depend on
the number of threads.
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
"""Label pairs in all documents, an upper bound of edges, up to which 'auto' uses explicit edges: one gigabyte."""

MOST_PAIRS = 1 << 31
"""Maximum number of label pairs for explicit edges."""

COUNTED = 1 << 22
"""Label pairs that a thread counts at a time."""

WALKED = 1 << 21
"""Steps that a thread walks at a time."""


@dataclass(frozen=True)
class GraphSettings(Settings):
    """The label graph and its random walks."""

    of: ClassVar[str] = "graph"

    source: Literal["auto", "documents", "hierarchy"] = "auto"
    """Edges of the graph: co-occurrence in documents, or parents and children; 'auto': hierarchy if at least half of
    the labels have a parent, otherwise documents."""
    edges: Literal["auto", "exact", "implicit"] = "auto"
    """Store co-occurrence edges ('exact'), or walk through documents ('implicit'); 'auto': exact unless there
    are too many."""
    weighted: bool = True
    """Follow edges in proportion to the number of co-occurrences; false: all edges (or documents) equally."""
    walks: int = 10
    """Number of walks that start from each label."""
    length: int = 40
    """Number of labels in a walk."""

    def check(self) -> None:
        self.require_range("walks", 1)
        self.require_range("length", 2)


class LabelGraph(NamedTuple):
    """Undirected graph with explicit edges and without loops."""

    indptr: NDArray[np.int64]  # (nodes + 1,)
    neighbours: NDArray[np.int32]  # ascending for each node
    weights: NDArray[np.int32] | None  # number of co-occurrences; None: unweighted
    labels: int  # number of nodes that are labels; walks pass through the nodes after them without recording them
    hierarchy: bool = False

    def connected(self) -> NDArray[np.int64]:
        """Return the labels with an edge."""
        return np.flatnonzero(np.diff(self.indptr[: self.labels + 1]))

    def __str__(self) -> str:
        kind = "between parents and children" if self.hierarchy else "between labels of the same document"
        return f"{len(self.neighbours) // 2:,} edges {kind}"


class DocumentGraph(NamedTuple):
    """Graph with implicit edges: labels connected through documents with at least two labels."""

    indptr: NDArray[np.int64]  # (n + 1,)
    members: NDArray[np.int32]  # the labels of each document
    label_indptr: NDArray[np.int64]  # (L + 1,)
    documents: NDArray[np.int32]  # the documents of each label
    others: NDArray[np.int64] | None  # running sum of other labels in a label's documents; None: unweighted
    labels: int

    def connected(self) -> NDArray[np.int64]:
        """Return the labels that co-occur with another."""
        return np.flatnonzero(np.diff(self.label_indptr))

    def pairs(self) -> NDArray[np.int64]:
        """Return the number (L,) of co-occurrences of each label."""
        assert self.others is not None
        ends = np.concatenate([[0], self.others])[self.label_indptr[1:]]
        return np.where(np.diff(self.label_indptr) > 0, ends, 0)

    def __str__(self) -> str:
        return f"implicit edges through {len(self.indptr) - 1:,} documents"


Graph: TypeAlias = LabelGraph | DocumentGraph


def build_graph(labels: Csr, index: LabelIndex, settings: GraphSettings, *, threads: int = 1) -> Graph:
    """Build the graph given by the settings over the labels of documents (n, L) and their parents."""
    with_parents = int(pc.sum(pc.greater(pc.list_value_length(index.table["parents"]), 0)).as_py() or 0)
    if settings.source == "hierarchy" and not with_parents:
        raise DataError(
            f"none of {len(index):,} labels has a parent. Pass a vocabulary with parents (--labels FILE), or use "
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
            f"the documents have {pairs:,} label pairs, too many for explicit edges. Use vectors.graph.edges=auto."
        )
    return occurrence_graph(labels, weighted=settings.weighted, threads=threads)


def hierarchy_graph(index: LabelIndex) -> LabelGraph:
    """Connect labels to their parents, unweighted.

    A vocabulary restricted to labels with documents lacks some parents: 442 of EURLEX57K's 4,108 training labels have
    only missing parents. A missing parent of two or more labels becomes a node that walks pass through without
    recording it. Ignoring such parents would isolate 407 labels instead of 131.
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
    """Connect labels (n, L) that co-occur in a document; weights are the numbers of such documents."""
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
    """Connect labels (n, L) through documents; if weighted, documents are drawn in proportion to their other labels."""
    labels = _together(labels)
    columns = sp.csc_array(labels)
    indptr = labels.indptr.astype(np.int64, copy=False)
    starts, documents = columns.indptr.astype(np.int64, copy=False), columns.indices.astype(np.int32, copy=False)
    others = _running_sums((np.diff(indptr) - 1)[documents], starts) if weighted else None
    members = labels.indices.astype(np.int32, copy=False)
    return DocumentGraph(indptr, members, starts, documents, others, int(labels.shape[1]))


def walks(graph: Graph, settings: GraphSettings, *, seed: int = 0, threads: int = 1) -> Iterator[NDArray[np.int32]]:
    """Yield random walks (w, length), some at a time: in each round one from each connected label, in random order.

    −1 marks a parent that is not a label. The walks do not depend on the number of threads.
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
    """Return a function that fills walks from given labels with given seeds."""
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
    """Remove repeated labels and explicit zeros; the given matrix is not modified."""
    if labels.has_canonical_format and labels.data.all():
        return labels
    labels = labels.copy()
    labels.sum_duplicates()
    labels.eliminate_zeros()
    return labels


def _together(labels: Csr) -> Csr:
    """Return the documents with at least two labels."""
    labels = as_sets(labels)
    several = np.diff(labels.indptr) > 1
    return labels if several.all() else labels[np.flatnonzero(several)]


@kernel()
def _running_sums(counts: NDArray[Any], indptr: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the running sums of counts within each row."""
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
    """Write the labels that co-occur with `label` to `neighbours` from `start`, counts to `times`; return the end."""
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
    times: NDArray[np.int32],  # (L,) zeros, reset to zeros at the end
    neighbours: NDArray[np.int32],  # out: of labels first … last − 1
    weights: NDArray[np.int32],  # out: the same if weighted
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
    """Return 64 random bits from a state that is incremented by a constant: splitmix64."""
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


@inlined
def _below(bits: Any, count: Any) -> Any:
    """Return a number from 0 to count − 1, for count below 2⁵³."""
    return np.int64(np.float64(bits >> np.uint64(11)) * (1.0 / 9007199254740992.0) * np.float64(count))


@inlined
def _drawn(bits: Any, sums: Any, first: Any, last: Any) -> Any:
    """Draw a position from first to last − 1 in proportion to the increments of `sums`; uniformly if it is empty."""
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
            if members[place] == label:  # replace the label itself by the last member
                place = last - 1
            label = np.int64(members[place])
