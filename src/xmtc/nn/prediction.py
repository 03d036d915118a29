"""Predictions of one or several networks, whose probabilities are averaged: the best labels, or given ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.nn.device import chunk_memory
from xmtc.nn.documents import Documents
from xmtc.nn.network import Network
from xmtc.text.batches import sorted_batches

TOKENS = {"cpu": 1 << 13, "cuda": 1 << 18}
DOCUMENTS = {"cpu": 64, "cuda": 1024}
"""Words, including padding, and documents that are encoded at once."""

Encoded = list[tuple[Tensor, Tensor]]


def best_labels(
    networks: Sequence[Network],
    documents: Documents,
    k: int,
    allowed: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """(n, k) labels and probabilities, best first; `allowed` (L,) masks the labels that may be returned."""
    found = np.full((len(documents), k), -1, dtype=np.int64)
    given = np.full((len(documents), k), -np.inf, dtype=np.float32)
    device = networks[0].table.device
    barred = None if allowed is None else torch.from_numpy(~allowed).to(device)
    for rows, encoded, chunk in _encoded(networks, documents):
        labels, scores = _best(networks, encoded, k, chunk, barred)
        width = labels.shape[1]  # k, or the number of labels if smaller
        found[rows, :width], given[rows, :width] = labels.cpu().numpy(), scores.cpu().numpy()
    found[np.isneginf(given)] = -1
    return found, given


def candidate_scores(
    networks: Sequence[Network], documents: Documents, candidates: NDArray[np.int64]
) -> NDArray[np.float32]:
    """(n, c) probabilities of given labels; negative candidates are ignored."""
    scores = np.empty(candidates.shape, dtype=np.float32)
    device = networks[0].table.device
    for rows, encoded, chunk in _encoded(networks, documents):
        numbers = torch.from_numpy(candidates[rows]).to(device)
        parts = [
            torch.sigmoid(network.head.candidate_logits(*part, numbers, chunk))
            for network, part in zip(networks, encoded, strict=True)
        ]
        scores[rows] = _mean(parts).cpu().numpy()
    return scores


def embeddings(networks: Sequence[Network], documents: Documents) -> NDArray[np.float32]:
    """(n, d) concatenated document vectors of all networks, scaled so that inner products are the networks' mean."""
    vectors = np.empty((len(documents), sum(network.encoder.width for network in networks)), dtype=np.float32)
    for rows, encoded, _ in _encoded(networks, documents):
        joined = torch.cat([part.float() for part, _ in encoded], dim=1) / len(networks) ** 0.5
        vectors[rows] = joined.cpu().numpy()
    return vectors


def _encoded(networks: Sequence[Network], documents: Documents) -> Iterator[tuple[NDArray[np.int64], Encoded, int]]:
    """Encode documents in batches, shortest first: yields rows, the encodings by all networks, and the chunk size."""
    device = networks[0].table.device
    free = chunk_memory(device)
    for network in networks:
        network.eval()
    for rows, length in sorted_batches(documents.lengths, TOKENS[device.type], DOCUMENTS[device.type]):
        numbers = torch.from_numpy(rows).to(device)
        tokens, weights = documents.tokens(numbers, length), documents.weights(numbers, length)
        chunk = networks[0].head.chunk(len(rows), length, networks[0].compute.itemsize, free)
        yield rows, [network.encode(tokens, weights) for network in networks], chunk


def _best(
    networks: Sequence[Network], encoded: Encoded, k: int, chunk: int, barred: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(B, k) labels and probabilities: the best of each chunk are merged with the best so far."""
    labels: Tensor | None = None
    scores: Tensor | None = None
    count = networks[0].head.labels
    for low in range(0, count, chunk):
        high = min(low + chunk, count)
        parts = [
            torch.sigmoid(network.head.logits(*part, low, high))
            for network, part in zip(networks, encoded, strict=True)
        ]
        part = _mean(parts)
        if barred is not None:
            part = part.masked_fill(barred[low:high], -torch.inf)
        numbers = torch.arange(low, high, device=part.device).expand(part.shape)
        if scores is not None and labels is not None:
            part, numbers = torch.cat([scores, part], dim=1), torch.cat([labels, numbers], dim=1)
        order = sortable(part, numbers).topk(min(k, part.shape[1]), dim=1).indices
        labels, scores = numbers.gather(1, order), part.gather(1, order)
    assert labels is not None
    assert scores is not None
    return labels, scores.float()


def sortable(scores: Tensor, labels: Tensor) -> Tensor:
    """One integer per score that sorts by score, ties by the smaller label number.

    The bits of non-negative floats, read as integers, sort like the floats; −∞ comes last.
    """
    bits = scores.float().clamp(min=-1.0).view(torch.int32).long()
    return (torch.where(scores < 0, -1, bits) << 32) - labels


def _mean(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.stack(parts).mean(0)
