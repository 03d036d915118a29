"""Base classes of heads, which map encoded documents to logits and compute gradients; the linear head."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

from xmtc.nn.training.losses import (
    CrossEntropy,
    LabelLoss,
    PartialBatch,
    ScoredLabels,
    candidate_error,
    dense_error,
)

ErrorOf = Callable[[Tensor, int], Tensor]
"""Maps the logits (B, C) of the labels from a number on to their errors."""

ALIGNED = 16
"""Chunk sizes are multiples of this, for matrix units."""


class Head(nn.Module, ABC):
    """Maps encoded documents, states (B, T, d) or vectors (B, d), to label logits, and computes its own gradients."""

    labels: int
    takes_states: bool = False
    """Whether it reads the states of the words rather than a vector of the document."""

    @property
    @abstractmethod
    def of_labels(self) -> frozenset[str]:
        """Names of the parameters with a row, or a number, for each label."""

    @abstractmethod
    def start_from(self, shares: Tensor) -> None:
        """Initialise with the label frequencies (L,), as fractions of the documents."""

    @torch.no_grad()
    def start_new_labels(self, shares: Tensor) -> None:
        """Initialise what new labels, which come last, do not take over from others: their biases.

        `shares` (n,) are the frequencies of the n new labels, as fractions of the documents.
        """
        for name, part in self.named_parameters():
            if name in self.of_labels and part.ndim == 1:
                part[-len(shares) :] = torch.logit(shares, eps=1e-6).to(part)

    @abstractmethod
    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Number of labels to process at once within `free` bytes, in numbers of `size` bytes."""

    def candidate_chunk(self, batch: int, length: int, size: int, free: int, count: int) -> int:
        """Like `chunk`, for `count` candidates per document."""
        return count

    @abstractmethod
    def logits(self, encoded: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive labels."""

    @abstractmethod
    def candidate_logits(self, encoded: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of labels given for each document; negative candidates are ignored."""

    @abstractmethod
    def learn(
        self, encoded: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over documents and labels, and its gradient in `encoded`; parameter gradients are accumulated.

        Unknown labels of `partial` documents have no loss.
        """

    def propagate(self, encoded: Tensor, mask: Tensor, error: Tensor, chunk: int) -> Tensor:
        """Gradient in `encoded` of given errors (B, L) of the logits; parameter gradients are accumulated.

        Heads on top of this one require it (`CorrelationHead`).
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be trained on errors of its logits")

    def learn_candidates(
        self, encoded: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Like `learn`, for given labels: `candidates` (B, K), −1 as padding, and `targets` (B, K) from 0 to 1.

        Label trees require it, and updates with documents that have unknown labels.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be trained on given labels")

    def weights(self, states: Tensor, mask: Tensor, label: int) -> Tensor:
        """(B, T) attention weights of a label, which sum to 1."""
        raise NotImplementedError(f"{type(self).__name__} has no attention")

    def drop_training_parts(self) -> None:
        """Drop parameters that prediction does not need; saved networks do not have them."""
        return

    def is_training_only(self, name: str) -> bool:
        """Whether a parameter is not needed for prediction."""
        return False


class CandidateHead(Head):
    """A head with a row for each label that can score and train a few labels per document, as label trees need."""

    rows: nn.Parameter  # (L, d)
    takes_states = True

    @abstractmethod
    def hold(self, rows: Tensor) -> None:
        """Replace the rows (L, d), which may be on any device and of any type."""


def candidate_head(head: Head) -> CandidateHead:
    """The head as a CandidateHead."""
    assert isinstance(head, CandidateHead), f"{type(head).__name__} cannot be trained on candidates, as trees require"
    return head


class LinearHead(Head):
    """Logit j is w_j · v + b_j; labels are processed in chunks, as in label attention.

    Vectors may be shorter than the rows; the missing values count as zero.
    """

    def __init__(self, labels: int, width: int) -> None:
        super().__init__()
        self.labels = labels
        self.rows = nn.Parameter(torch.empty(labels, width))  # (L, d)
        nn.init.xavier_uniform_(self.rows)
        self.bias = nn.Parameter(torch.zeros(labels))

    @property
    def of_labels(self) -> frozenset[str]:
        return frozenset({"rows", "bias"})

    @torch.no_grad()
    def start_from(self, shares: Tensor) -> None:
        """Initialise the biases with the label frequencies (L,), as fractions of the documents."""
        self.bias.copy_(torch.logit(shares, eps=1e-6))

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Number of labels to process at once so that logits and errors fit into `free` bytes."""
        return even_chunk(self.labels, free // (batch * 4 * max(size, 4)))

    @torch.no_grad()
    def logits(self, vectors: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of consecutive labels; vectors (B, d)."""
        rows = self.rows[low:high, : vectors.shape[1]].to(vectors.dtype)
        return vectors.matmul(rows.t()).to(wide_type(vectors)) + self.bias[low:high]

    @torch.no_grad()
    def candidate_logits(self, vectors: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of labels given for each document; negative candidates are ignored."""
        parts = []
        for numbers in candidates.clamp(min=0).split(max(1, 4 * chunk // vectors.shape[1]), dim=1):  # rows are gathered
            rows = self.rows[:, : vectors.shape[1]][numbers].to(vectors.dtype)  # (B, C, d)
            parts.append(torch.bmm(rows, vectors[..., None])[..., 0].to(wide_type(vectors)) + self.bias[numbers])
        return torch.cat(parts, dim=1) if parts else vectors.new_empty(candidates.shape, dtype=torch.float32)

    @torch.no_grad()
    def learn(
        self, vectors: Tensor, mask: Tensor, positives: Tensor, chunk: int, partial: PartialBatch | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss over documents and labels, and its gradient in the vectors; parameter gradients are accumulated."""
        scale = 1.0 / (len(vectors) * self.labels)
        return self.learn_by(CrossEntropy(), vectors, positives, chunk, scale, vectors.shape[1], partial)

    @torch.no_grad()
    def learn_candidates(
        self, vectors: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """Like `learn`, for given labels: `candidates` (B, K), −1 as padding, and `targets` (B, K) from 0 to 1."""
        numbers, kind, width = candidates.clamp(min=0), wide_type(vectors), vectors.shape[1]
        rows = self.rows[:, :width][numbers].to(vectors.dtype)  # (B, K, d)
        logits = torch.bmm(rows, vectors[..., None])[..., 0].to(kind) + self.bias[numbers]
        loss, error = candidate_error(logits, targets.to(kind), (candidates >= 0).to(kind))
        scale = 1.0 / max(1, candidates.numel())
        error = error.mul_(scale)
        narrow = error.to(vectors.dtype)
        added = (narrow[..., None] * vectors[:, None]).view(-1, width).to(self.rows.dtype)
        gradient_of(self.rows)[:, :width].index_add_(0, numbers.reshape(-1), added)
        gradient_of(self.bias).index_add_(0, numbers.reshape(-1), error.view(-1).to(self.bias.dtype))
        return loss * scale, torch.bmm(narrow[:, None], rows)[:, 0]

    @torch.no_grad()
    def learn_by(
        self,
        objective: LabelLoss,
        vectors: Tensor,
        positives: Tensor,
        chunk: int,
        scale: float,
        wanted: int,
        partial: PartialBatch | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Loss times `scale`, and its gradient in the first `wanted` columns of the vectors.

        Parameter gradients are accumulated.
        """
        d_vectors = vectors.new_zeros(len(vectors), wanted)
        loss = vectors.new_zeros((), dtype=wide_type(vectors))
        mask = vectors.new_empty(0)  # vectors need no mask

        def logits(low: int, high: int) -> Tensor:
            return self.logits(vectors, mask, low, high)

        def given(labels: Tensor) -> Tensor:
            return self.candidate_logits(vectors, mask, labels, chunk)

        scored = ScoredLabels(self.labels, chunk, logits, given)
        known = () if partial is None else (partial,)  # losses of complete documents need no such argument
        for low, high, part, error in objective.errors(scored, positives, *known):
            loss += part
            self._propagate(vectors, error.mul_(scale), low, high, d_vectors)
        return loss * scale, d_vectors

    @torch.no_grad()
    def propagate(self, vectors: Tensor, mask: Tensor, error: Tensor, chunk: int) -> Tensor:
        """Gradient in the vectors of given errors (B, L) of the logits; parameter gradients are accumulated."""
        d_vectors = torch.zeros_like(vectors)
        for low in range(0, self.labels, chunk):
            high = min(low + chunk, self.labels)
            self._propagate(vectors, error[:, low:high], low, high, d_vectors)
        return d_vectors

    def _propagate(self, vectors: Tensor, error: Tensor, low: int, high: int, d_vectors: Tensor) -> None:
        """Accumulate gradients from the error (B, C) of a chunk's logits; `d_vectors` may have fewer columns."""
        narrow = error.to(vectors.dtype)
        gradient_of(self.rows)[low:high, : vectors.shape[1]] += narrow.t() @ vectors
        gradient_of(self.bias)[low:high] += error.sum(0)
        d_vectors.addmm_(narrow, self.rows[low:high, : d_vectors.shape[1]].to(vectors.dtype))


def learnt_in_chunks(
    propagate: Callable[[ErrorOf], Tensor],
    states: Tensor,
    positives: Tensor,
    scale: float,
    partial: PartialBatch | None,
) -> tuple[Tensor, Tensor]:
    """Cross-entropy times `scale`, and its gradient in the states, which `propagate` computes from errors of chunks."""
    loss = states.new_zeros((), dtype=wide_type(states))

    def error(logits: Tensor, low: int) -> Tensor:
        part, error = dense_error(logits, positives, low, partial)
        loss.add_(part)
        return error.mul_(scale)

    d_states = propagate(error)
    return loss * scale, d_states


def given_errors(error: Tensor) -> ErrorOf:
    """The errors (B, L) of all labels, a chunk at a time."""
    return lambda logits, low: error[:, low : low + logits.shape[1]]


def even_chunk(labels: int, most: int) -> int:
    """Chunk size of about `most` labels at most, such that all chunks are nearly equal and their rows aligned."""
    chunks = -(-labels // max(most, ALIGNED))
    return -(-labels // (chunks * ALIGNED)) * ALIGNED


def gradient_of(parameter: Tensor) -> Tensor:
    """A parameter's gradient, created on first use."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def wide_type(tensor: Tensor) -> torch.dtype:
    """The type of sums: float64 for float64 tensors, otherwise float32."""
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
