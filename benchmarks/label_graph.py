"""Label graph, random walks and skip-gram: seconds of each, and gensim's skip-gram over the same walks.

    python benchmarks/label_graph.py --data DATA/tibkat-gnd/train.jsonl.xz [--width 100 300] [--threads 2] [--gensim]

The kernels are compiled before anything is timed. The skip-gram generates its walks on the fly: its seconds include
those of a second round of walking. gensim receives the walks as lists of strings, made before its clock starts, and
uses one worker, as its results otherwise differ from run to run. The similarity of two sets of vectors is the overlap
of the ten nearest neighbours, after whitening, of labels with at least twenty documents; a second seed gives the upper
bound to expect.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

import xmtc
from xmtc.data.label_index import LabelIndex
from xmtc.labels.graph import Graph, GraphSettings, build_graph, walks
from xmtc.labels.label_vectors import LabelVectorSettings, deepwalk, singular_vectors, whitened

NEAREST = 10
FREQUENT = 20


def timed(name: str, call: Callable[[], Any]) -> Any:
    started, busy = time.perf_counter(), time.process_time()
    found = call()
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{name:<44} {seconds:9.2f} s, {busy:9.2f} s of cores, peak {peak:.2f} GB", flush=True)
    return found


def of_gensim(sentences: list[list[str]], labels: int, settings: LabelVectorSettings) -> NDArray[np.float32]:
    from gensim.models import Word2Vec

    model = Word2Vec(
        sentences,
        sg=1,
        vector_size=settings.width,
        window=settings.window,
        negative=settings.negative,
        alpha=settings.learning_rate,
        epochs=settings.epochs,
        sample=0,
        min_count=0,
        workers=1,
        seed=0,
    )
    found = np.zeros((labels, settings.width), dtype=np.float32)
    found[[int(word) for word in model.wv.index_to_key]] = model.wv.vectors
    return found


def nearest(vectors: NDArray[np.float32], rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """(m, 10) nearest labels of these among them."""
    own = whitened(vectors[rows])
    own /= np.maximum(np.linalg.norm(own, axis=1, keepdims=True), 1e-30)
    parts = []
    for at in range(0, len(rows), 1024):
        products = own[at : at + 1024] @ own.T
        products[np.arange(len(products)), at + np.arange(len(products))] = -2.0
        parts.append(np.argpartition(-products, NEAREST, axis=1)[:, :NEAREST])
    return np.concatenate(parts)


def shared(one: NDArray[np.float32], other: NDArray[np.float32], rows: NDArray[np.int64]) -> float:
    pairs = zip(nearest(one, rows).tolist(), nearest(other, rows).tolist(), strict=True)
    return float(np.mean([len(set(a) & set(b)) for a, b in pairs])) / NEAREST


def compile_kernels() -> None:
    labels, index = sp.csr_array(np.ones((2, 3), dtype=np.float32)), LabelIndex.numbered(3)
    for settings in (GraphSettings(), GraphSettings(edges="implicit"), GraphSettings(weighted=False)):
        deepwalk(build_graph(labels, index, settings), LabelVectorSettings(width=4, graph=settings))


def measure(graph: Graph, width: int, given: Any, frequent: NDArray[np.int64]) -> None:
    settings = LabelVectorSettings(width=width, graph=GraphSettings(walks=given.walks, length=given.length))
    learnt = timed(f"walks and skip-gram, {width} wide", lambda: deepwalk(graph, settings, threads=given.threads))
    timed(f"whitening, {width} wide", lambda: whitened(learnt[graph.connected()]))
    if not given.gensim or find_spec("gensim") is None:
        return
    sentences = [list(map(str, walk)) for part in walks(graph, settings.graph) for walk in part.tolist()]
    theirs = timed(f"gensim's skip-gram, {width} wide", lambda: of_gensim(sentences, graph.labels, settings))
    again = deepwalk(graph, settings, seed=1, threads=given.threads)
    print(f"nearest labels shared with gensim {shared(learnt, theirs, frequent):.3f}", end=", ")
    print(f"with ours under another seed {shared(learnt, again, frequent):.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="documents with labels, any format that is read")
    parser.add_argument("--width", type=int, nargs="+", default=[100])
    parser.add_argument("--walks", type=int, default=10)
    parser.add_argument("--length", type=int, default=40)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gensim", action="store_true", help="compare with gensim, where it is installed")
    given = parser.parse_args()
    compile_kernels()
    documents = xmtc.read(given.data)
    labels = documents.labels
    assert labels is not None
    index = LabelIndex.numbered(int(labels.shape[1]))
    print(f"{labels.shape[0]:,} documents, {labels.shape[1]:,} labels, {given.threads} threads")
    shape = {"walks": given.walks, "length": given.length}
    graph = timed("graph", lambda: build_graph(labels, index, GraphSettings(), threads=given.threads))
    print(f"{graph}, {graph.labels - len(graph.connected()):,} isolated labels")
    for edges in ("exact", "implicit"):
        for weighted in (True, False):
            settings = GraphSettings(edges=edges, weighted=weighted, **shape)
            other = build_graph(labels, index, settings, threads=given.threads)

            def walk(graph: Graph = other, settings: GraphSettings = settings) -> int:
                return sum(part.size for part in walks(graph, settings, threads=given.threads))

            timed(f"walks, {edges} edges{', weighted' if weighted else ''}", walk)
    frequent = np.flatnonzero(np.bincount(labels.indices, minlength=labels.shape[1]) >= FREQUENT)
    frequent = np.intersect1d(frequent, graph.connected())
    for width in given.width:
        measure(graph, width, given, frequent)
        timed(f"singular vectors, {width} wide", lambda width=width: singular_vectors(labels, width))


if __name__ == "__main__":
    main()
