"""Heads, which turn encoded documents into logits and learn from labels; the plain one is linear."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from xmtc.nn.training.losses import CrossEntropy, LabelLoss, ScoredLabels

ALIGNED = 16
"""Labels of a chunk are a multiple of this, which matrix units like."""


class Head(nn.Module, ABC):
    """What turns encoded documents, states (B, T, d) or vectors (B, d), into logits, and learns from the labels."""

    labels: int

    @property
    @abstractmethod
    def of_labels(self) -> frozenset[str]:
        """Names of the parameters that have a row, or a number, for each label."""

    @abstractmethod
    def start_from(self, shares: Tensor) -> None:
        """Begin at each label's share (L,) of the documents."""

    @abstractmethod
    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Labels to take at once so that what is held of them is `free` bytes, in numbers of `size` bytes."""

    @abstractmethod
    def logits(self, encoded: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of neighbouring labels."""

    @abstractmethod
    def candidate_logits(self, encoded: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of labels given for each document; those below 0 mean nothing."""

    @abstractmethod
    def learn(self, encoded: Tensor, mask: Tensor, positives: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """Mean loss over documents and labels, and its gradient in what was encoded; own gradients are added up."""

    def drop_training_parts(self) -> None:
        """Drop parameters that prediction does not need; a saved network is without them."""
        return

    def is_training_only(self, name: str) -> bool:
        """Whether prediction does not need the parameter of this name."""
        return False


class CandidateHead(Head):
    """A head with a row for each label that can score and learn a few labels of each document: label trees need it."""

    rows: nn.Parameter  # (L, d)

    @abstractmethod
    def hold(self, rows: Tensor) -> None:
        """Rows (L, d) in place of those that are there, wherever and in whatever type they are kept."""

    @abstractmethod
    def candidate_chunk(self, batch: int, length: int, size: int, free: int, count: int) -> int:
        """As `chunk`, of `count` candidates for each document."""

    @abstractmethod
    def learn_candidates(
        self, encoded: Tensor, mask: Tensor, candidates: Tensor, targets: Tensor, chunk: int
    ) -> tuple[Tensor, Tensor]:
        """As `learn`, from labels given for each document: `candidates` (B, K), −1 as pads, `targets` (B, K) 1 or 0."""


def candidate_head(head: Head) -> CandidateHead:
    """A head that is known to score candidates."""
    assert isinstance(head, CandidateHead), f"{type(head).__name__} cannot be trained on candidates, as trees need it"
    return head


class LinearHead(Head):
    """Logit j is w_j · v + b_j; labels are taken a chunk at a time, as in label attention.

    Vectors may be shorter than the rows, and are then taken to be zero from there on.
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
        """Begin at each label's share (L,) of the documents."""
        self.bias.copy_(torch.logit(shares, eps=1e-6))

    def chunk(self, batch: int, length: int, size: int, free: int) -> int:
        """Labels to take at once so that their logits and errors are `free` bytes."""
        return even_chunk(self.labels, free // (batch * 4 * max(size, 4)))

    @torch.no_grad()
    def logits(self, vectors: Tensor, mask: Tensor, low: int, high: int) -> Tensor:
        """(B, high − low) logits of neighbouring labels; vectors (B, d)."""
        rows = self.rows[low:high, : vectors.shape[1]].to(vectors.dtype)
        return vectors.matmul(rows.t()).to(wide_type(vectors)) + self.bias[low:high]

    @torch.no_grad()
    def candidate_logits(self, vectors: Tensor, mask: Tensor, candidates: Tensor, chunk: int) -> Tensor:
        """(B, K) logits of labels given for each document; those below 0 mean nothing."""
        parts = []
        for numbers in candidates.clamp(min=0).split(max(1, 4 * chunk // vectors.shape[1]), dim=1):  # rows are gathered
            rows = self.rows[:, : vectors.shape[1]][numbers].to(vectors.dtype)  # (B, C, d)
            parts.append(torch.bmm(rows, vectors[..., None])[..., 0].to(wide_type(vectors)) + self.bias[numbers])
        return torch.cat(parts, dim=1) if parts else vectors.new_empty(candidates.shape, dtype=torch.float32)

    @torch.no_grad()
    def learn(self, vectors: Tensor, mask: Tensor, positives: Tensor, chunk: int) -> tuple[Tensor, Tensor]:
        """Mean loss over documents and labels, and its gradient in the vectors; own gradients are added up."""
        scale = 1.0 / (len(vectors) * self.labels)
        return self.learn_by(CrossEntropy(), vectors, positives, chunk, scale, vectors.shape[1])

    @torch.no_grad()
    def learn_by(
        self, objective: LabelLoss, vectors: Tensor, positives: Tensor, chunk: int, scale: float, wanted: int
    ) -> tuple[Tensor, Tensor]:
        """Loss by an objective, times `scale`, and its gradient in the first `wanted` numbers of the vectors.

        Own gradients are added up.
        """
        d_vectors = vectors.new_zeros(len(vectors), wanted)
        loss = vectors.new_zeros((), dtype=wide_type(vectors))
        mask = vectors.new_empty(0)  # vectors have none

        def logits(low: int, high: int) -> Tensor:
            return self.logits(vectors, mask, low, high)

        def given(labels: Tensor) -> Tensor:
            return self.candidate_logits(vectors, mask, labels, chunk)

        for low, high, part, error in objective.errors(ScoredLabels(self.labels, chunk, logits, given), positives):
            loss += part
            narrow = error.mul_(scale).to(vectors.dtype)
            gradient_of(self.rows)[low:high, : vectors.shape[1]] += narrow.t() @ vectors
            gradient_of(self.bias)[low:high] += error.sum(0)
            d_vectors.addmm_(narrow, self.rows[low:high, :wanted].to(vectors.dtype))
        return loss * scale, d_vectors


def even_chunk(labels: int, most: int) -> int:
    """Labels of a chunk, about `most` at the most, so that all chunks are nearly equal and their rows aligned."""
    chunks = -(-labels // max(most, ALIGNED))
    return -(-labels // (chunks * ALIGNED)) * ALIGNED


def gradient_of(parameter: Tensor) -> Tensor:
    """A parameter's gradient, made when first asked for."""
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def wide_type(tensor: Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32
