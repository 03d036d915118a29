"""Votes of the nearest embedded training documents, blended with direct label scores."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr
from xmtc.linear.neighbours import partial_vote, vote
from xmtc.linear.top_scores import best_of_rows, look_up_rows, only_allowed
from xmtc.metrics import ndcg
from xmtc.models.base import Labels, Mask, Scores
from xmtc.models.neighbour_vote import Ballots, PartialVoters, Voters
from xmtc.nn.device import chunk_memory
from xmtc.nn.heads.label_targets import TargetHead
from xmtc.nn.neighbours.embedded_documents import EmbeddedDocuments, SearchSettings
from xmtc.nn.network import Network
from xmtc.nn.prediction import sortable

Array = NDArray[np.float32]
Neighbours = tuple[NDArray[np.int32], Array]
"""(n, m) documents, −1 as padding, and their cosines, nearest first."""


class DirectScores(NamedTuple):
    """Direct label scores, averaged over all networks; `weight` is relative to votes of weight 1."""

    networks: Sequence[Network]
    labels: int
    weight: float

    def nearness(self, queries: Array) -> Iterator[tuple[slice, Tensor]]:
        """Yield slices of documents with the scores (b, L) of all labels; queries (n, d) are embeddings."""
        device, count = self.networks[0].table.device, len(self.networks)
        step = max(1, chunk_memory(device) // (16 * self.labels))
        for low in range(0, len(queries), step):
            rows = slice(low, min(low + step, len(queries)))
            embedded = torch.from_numpy(queries[rows]).to(device) * count**0.5
            total = embedded.new_zeros(len(embedded), self.labels)
            for network, own in zip(self.networks, embedded.chunk(count, dim=1), strict=True):
                assert isinstance(network.head, TargetHead)
                total += network.head.nearness(own)
            yield rows, total / count

    def blended_candidates(self, votes: Array, queries: Array, candidates: NDArray[np.int64]) -> Array:
        """(n, c) votes for given labels, blended with their direct scores."""
        own = np.zeros(candidates.shape, dtype=np.float32)
        for rows, nearness in self.nearness(queries):
            numbers = torch.from_numpy(np.maximum(candidates[rows], 0)).to(nearness.device)
            own[rows] = nearness.gather(1, numbers).cpu().numpy()
        blended: Array = (self.weight * own + votes) / np.float32(1.0 + self.weight)
        return blended

    def own(self, votes: Ballots, queries: Array, k: int, allowed: NDArray[np.bool_] | None = None) -> Ballots:
        """Direct scores of labels with votes and of the k best; no other can be among the k best of the blend."""
        indptr, voted, _ = votes
        keys, scores = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.float32)]
        for rows, nearness in self.nearness(queries):
            if allowed is not None:
                nearness.masked_fill_(torch.from_numpy(~allowed).to(nearness.device), -torch.inf)
            numbers = torch.arange(self.labels, device=nearness.device).expand(nearness.shape)
            best = sortable(nearness, numbers).topk(min(k, self.labels), dim=1).indices.cpu().numpy()
            starts = np.arange(len(nearness)) * self.labels
            held = voted[indptr[rows.start] : indptr[rows.stop]]
            of = np.repeat(starts, np.diff(indptr[rows.start : rows.stop + 1]))
            places = np.unique(np.concatenate([of + held, (starts[:, None] + best).ravel()]))
            own = nearness.flatten()[torch.from_numpy(places).to(nearness.device)].cpu().numpy()
            own[np.isnan(own)] = 0.0  # weights of a damaged model may overflow
            keys.append((places + rows.start * self.labels)[own >= 0])
            scores.append(own[own >= 0])
        found = np.concatenate(keys)
        ends = np.searchsorted(found, np.arange(len(queries) + 1) * self.labels)
        return ends, (found % self.labels).astype(np.int32), np.concatenate(scores)

    def blended(self, votes: Ballots, own: Ballots) -> Ballots:
        """Blend votes and direct scores; `own` has all labels of `votes` and more."""
        weight = np.float32(self.weight)
        scores = own[2] * weight
        scores[np.searchsorted(_keys(own, self.labels), _keys(votes, self.labels))] += votes[2]
        return own[0], own[1], scores / (1 + weight)


def vote_weights(cosines: Array, sharpness: float) -> Array:
    """(n, m) weights of neighbours, nearest first; the nearest has weight 1."""
    weights: Array = np.exp(np.float32(sharpness) * (cosines - cosines[:, :1]))
    return weights


def _keys(rows: Ballots, count: int) -> NDArray[np.int64]:
    """One number per entry of CSR rows, ascending by row and label."""
    return np.repeat(np.arange(len(rows[0]) - 1) * count, np.diff(rows[0])) + rows[1]


@dataclass(frozen=True)
class EmbeddingVote:
    """The voting documents, their embeddings, the number of neighbours, and how fast votes fall with distance."""

    voters: Voters
    embedded: EmbeddedDocuments
    neighbours: int
    sharpness: float

    def nearest(self, queries: Array) -> tuple[NDArray[np.int32], Array, Array]:
        """(n, m) nearest documents, nearest first, their cosines and the weights of their votes.

        With documents that have unknown labels, (n, 2m): these are added to the nearest complete ones.
        """
        partial, count = self.voters.partial, min(self.neighbours, len(self.embedded))
        if partial is None:
            found, cosines = self.embedded.nearest(queries, count)
        else:  # complete ones are searched separately, so that they vote as without the others
            complete = self.embedded.nearest(queries, count, ~partial.flags)
            found, cosines = joined_neighbours(complete, self.embedded.nearest(queries, count, partial.flags), count)
        return found, cosines, vote_weights(cosines, self.sharpness)

    def ballots(self, queries: Array, labels: int) -> Ballots:
        """CSR rows of label votes."""
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
        """The state to save."""
        state = self.voters.state()
        state.arrays.update(self.embedded.arrays())
        state.values.update(neighbours=self.neighbours, sharpness=self.sharpness)
        return state

    @classmethod
    def from_state(
        cls, state: SavedState, labels: int, width: int, search: SearchSettings, runtime: Runtime
    ) -> EmbeddingVote:
        """Restore the vote of a model with this number of labels and embeddings of this width."""
        voters = Voters.from_state(state, labels)
        embedded = EmbeddedDocuments.from_state(state, (len(voters), width), search, runtime)
        return cls(voters, embedded, state.value("neighbours", int, 1), state.value("sharpness", float))


def ranked(
    ballots: Ballots, queries: Array, direct: DirectScores, k: int, allowed: Mask | None = None
) -> tuple[Labels, Scores]:
    """(n, k) labels and scores, best first: votes, blended with direct scores if these have a weight."""
    ballots = ballots if allowed is None else only_allowed(*ballots, allowed)
    if direct.weight:
        ballots = direct.blended(ballots, direct.own(ballots, queries, k, allowed))
    return best_of_rows(*ballots, k)


def joined_neighbours(complete: Neighbours, partial: Neighbours, count: int) -> Neighbours:
    """(n, 2m) the first m complete documents, and partial ones at least as near as the last of these, nearest first."""
    (found, cosines), (others, theirs) = ((part[0][:, :count], part[1][:, :count]) for part in (complete, partial))
    near = (others >= 0) & ((found[:, -1:] < 0) | (theirs >= cosines[:, -1:]))
    both = np.concatenate([found, np.where(near, others, np.int32(-1))], axis=1)
    values = np.where(both >= 0, np.concatenate([cosines, theirs], axis=1), np.float32(-2.0))
    order = np.argsort(-values, axis=1, kind="stable")
    both, values = np.take_along_axis(both, order, axis=1), np.take_along_axis(values, order, axis=1)
    return both, np.where(both >= 0, values, np.float32(0.0))


def vote_quality(
    nearest: Neighbours,
    labels: Csr,
    queries: Array,
    truth: Csr,
    direct: DirectScores,
    counts: Sequence[int],
    sharpnesses: Sequence[float],
    others: tuple[Neighbours, PartialVoters] | None = None,
) -> dict[tuple[int, float], float]:
    """nDCG@5 for every number of neighbours and sharpness; `nearest` has the neighbours, `labels` their labels.

    `others` has the neighbours with unknown labels, which `nearest` lacks then.
    """
    indptr, held = labels.indptr.astype(np.int64), labels.indices.astype(np.int32)
    places = min(5, truth.shape[1])

    def ballots(count: int, sharpness: float) -> Ballots:
        if others is not None:
            found, cosines = joined_neighbours(nearest, others[0], count)
            weights = vote_weights(cosines, sharpness)
            return partial_vote(np.ascontiguousarray(found), weights, indptr, held, *others[1], direct.labels)
        weights = vote_weights(nearest[1][:, :count], sharpness)
        return vote(np.ascontiguousarray(nearest[0][:, :count]), weights, indptr, held, direct.labels)

    own = direct.own(ballots(max(counts), 0.0), queries, places) if direct.weight else None
    scores = {}
    for pair in itertools.product(counts, sharpnesses):
        cast = ballots(*pair)
        best, _ = best_of_rows(*(cast if own is None else direct.blended(cast, own)), places)
        scores[pair] = ndcg(best, truth, 5)
    return scores
