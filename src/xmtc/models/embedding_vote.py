"""Votes of the nearest embedded training documents, blended with the labels' own scores."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.store import State
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr
from xmtc.linear.neighbours import vote
from xmtc.linear.top_scores import best_of_rows, look_up_rows, only_allowed
from xmtc.metrics import ndcg
from xmtc.models.base import Labels, Mask, Scores
from xmtc.models.neighbour_vote import Ballots, Voters
from xmtc.nn.neighbours.direct_scores import DirectScores, vote_weights
from xmtc.nn.neighbours.embedded_documents import EMBEDDINGS, EmbeddedDocuments, SearchSettings

Array = NDArray[np.float32]


@dataclass(frozen=True)
class EmbeddingVote:
    """Training documents that vote, where they are embedded, how many vote, and how fast a vote falls with distance."""

    voters: Voters
    embedded: EmbeddedDocuments
    neighbours: int
    sharpness: float

    def nearest(self, queries: Array) -> tuple[NDArray[np.int32], Array, Array]:
        """(n, m) the nearest documents, nearest first, their cosines and the weights of their votes."""
        found, cosines = self.embedded.nearest(queries, self.neighbours)
        return found, cosines, vote_weights(cosines, self.sharpness)

    def ballots(self, queries: Array, labels: int) -> Ballots:
        found, _, weights = self.nearest(queries)
        return self.voters.ballots(found, weights, labels)

    def best(self, queries: Array, direct: DirectScores, k: int, allowed: Mask | None) -> tuple[Labels, Scores]:
        """(n, k) labels and scores, best first."""
        return ranked(self.ballots(queries, direct.labels), queries, direct, k, allowed)

    def scores(self, queries: Array, direct: DirectScores, candidates: Labels) -> Scores:
        """(n, c) scores of given labels."""
        votes = look_up_rows(*self.ballots(queries, direct.labels), candidates)
        return direct.blended_candidates(votes, queries, candidates) if direct.weight else votes

    def state(self) -> State:
        state = self.voters.state()
        state.arrays.update(self.embedded.arrays())
        state.values.update(neighbours=self.neighbours, sharpness=self.sharpness)
        return state

    @classmethod
    def from_state(cls, state: State, width: int, search: SearchSettings, runtime: Runtime) -> EmbeddingVote:
        """What `state` gave; embeddings have to be `width` wide."""
        voters, shape = Voters.from_state(state), state.arrays[EMBEDDINGS].shape
        if shape != (len(voters), width):
            raise ValueError(f"embeddings of {' × '.join(map(str, shape))} and not {len(voters)} × {width}")
        neighbours = int(state.values["neighbours"])
        if neighbours < 1:
            raise ValueError(f"{neighbours} neighbours")
        embedded = EmbeddedDocuments.from_arrays(state.arrays, search, runtime)
        return cls(voters, embedded, neighbours, float(state.values["sharpness"]))


def ranked(
    ballots: Ballots, queries: Array, direct: DirectScores, k: int, allowed: Mask | None = None
) -> tuple[Labels, Scores]:
    """(n, k) labels and scores, best first: the vote, or that and the labels' own scores."""
    ballots = ballots if allowed is None else only_allowed(*ballots, allowed)
    if direct.weight:
        ballots = direct.blended(ballots, direct.own(ballots, queries, k, allowed))
    return best_of_rows(*ballots, k)


def vote_quality(
    nearest: tuple[NDArray[np.int32], Array],
    labels: Csr,
    queries: Array,
    truth: Csr,
    direct: DirectScores,
    counts: Sequence[int],
    sharpnesses: Sequence[float],
) -> dict[tuple[int, float], float]:
    """nDCG@5 for every number of neighbours and sharpness; `nearest` are those of the queries, with these `labels`."""
    found, cosines = nearest
    indptr, held = labels.indptr.astype(np.int64), labels.indices.astype(np.int32)
    places = min(5, truth.shape[1])

    def ballots(count: int, sharpness: float) -> Ballots:
        weights = vote_weights(cosines[:, :count], sharpness)
        return vote(np.ascontiguousarray(found[:, :count]), weights, indptr, held, direct.labels)

    own = direct.own(ballots(max(counts), 0.0), queries, places) if direct.weight else None
    scores = {}
    for pair in itertools.product(counts, sharpnesses):
        cast = ballots(*pair)
        best, _ = best_of_rows(*(cast if own is None else direct.blended(cast, own)), places)
        scores[pair] = ndcg(best, truth, 5)
    return scores
