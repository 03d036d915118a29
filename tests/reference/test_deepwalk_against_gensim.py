"""The skip-gram over walks against gensim's, on the same walks and with the same settings."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.communities import agreement, communities
from xmtc.data.label_index import LabelIndex
from xmtc.labels.graph import GraphSettings, build_graph, walks
from xmtc.labels.label_vectors import LabelVectorSettings, deepwalk

word2vec = pytest.importorskip("gensim.models.word2vec", reason="needs gensim")


def of_gensim(found: NDArray[np.int32], count: int, settings: LabelVectorSettings) -> NDArray[np.float32]:
    model = word2vec.Word2Vec(
        [list(map(str, walk)) for walk in found.tolist()],
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
        batch_words=400,  # its rate falls once for each of these
    )
    return np.stack([model.wv[str(label)] for label in range(count)])


@pytest.mark.parametrize(("own", "rounds", "least"), [(0.7, 10, 0.95), (0.5, 30, 0.95)])
def test_communities(own: float, rounds: int, least: float) -> None:
    """Both find them, where documents leave no doubt and, from more walks, where every other label is from anywhere."""
    settings = LabelVectorSettings(width=24, graph=GraphSettings(walks=rounds))
    labels = communities(own=own)
    graph = build_graph(labels, LabelIndex.numbered(200), settings.graph)
    found = np.concatenate(list(walks(graph, settings.graph)))
    ours, theirs = agreement(deepwalk(graph, settings)), agreement(of_gensim(found, 200, settings))
    assert ours >= least
    assert ours >= theirs - 0.02
