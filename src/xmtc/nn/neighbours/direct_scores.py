"""Labels' own scores, by their nearness to a document, and their blend with the votes of neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.nn.device import chunk_memory
from xmtc.nn.heads.label_targets import TargetHead
from xmtc.nn.network import Network
from xmtc.nn.prediction import sortable

Array = NDArray[np.float32]
LabelScores = tuple[NDArray[np.int64], NDArray[np.int32], Array]  # CSR: labels of each document and their scores


class DirectScores(NamedTuple):
    """Scores of labels by themselves, in the mean of all networks, which have this weight beside votes of weight 1."""

    networks: Sequence[Network]
    labels: int
    weight: float

    def nearness(self, queries: Array) -> Iterator[tuple[slice, Tensor]]:
        """Some documents at a time, and (b, L) the scores of all labels; queries (n, d) are embeddings."""
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
        """(n, c) votes for given labels, blended with their own scores."""
        own = np.zeros(candidates.shape, dtype=np.float32)
        for rows, nearness in self.nearness(queries):
            numbers = torch.from_numpy(np.maximum(candidates[rows], 0)).to(nearness.device)
            own[rows] = nearness.gather(1, numbers).cpu().numpy()
        blended: Array = (self.weight * own + votes) / np.float32(1.0 + self.weight)
        return blended

    def own(self, votes: LabelScores, queries: Array, k: int, allowed: NDArray[np.bool_] | None = None) -> LabelScores:
        """Own scores of labels voted for and of the k best; no other can be among the best k of the blend."""
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
            keys.append((places + rows.start * self.labels)[own >= 0])
            scores.append(own[own >= 0])
        found = np.concatenate(keys)
        ends = np.searchsorted(found, np.arange(len(queries) + 1) * self.labels)
        return ends, (found % self.labels).astype(np.int32), np.concatenate(scores)

    def blended(self, votes: LabelScores, own: LabelScores) -> LabelScores:
        """Votes and own scores together, for the labels of the latter, which are all of the former's and more."""
        weight = np.float32(self.weight)
        scores = own[2] * weight
        scores[np.searchsorted(_keys(own, self.labels), _keys(votes, self.labels))] += votes[2]
        return own[0], own[1], scores / (1 + weight)


def vote_weights(cosines: Array, sharpness: float) -> Array:
    """(n, m) weights of neighbours, nearest first; the nearest weighs 1."""
    weights: Array = np.exp(np.float32(sharpness) * (cosines - cosines[:, :1]))
    return weights


def _keys(rows: LabelScores, count: int) -> NDArray[np.int64]:
    """One number for each entry of CSR rows, ascending as rows and labels do."""
    return np.repeat(np.arange(len(rows[0]) - 1) * count, np.diff(rows[0])) + rows[1]
