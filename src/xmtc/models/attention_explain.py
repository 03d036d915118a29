"""Explanations by attention weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from xmtc.core.explanation import Explanation, TokenEvidence
from xmtc.models.neural import NeuralModel
from xmtc.text.sequences import PADDING
from xmtc.text.tokens import Span


class AttendingModel(NeuralModel):
    """The encoder has `attention(words (T, B, e), mask (B, T)) → (B, T)`, weights that sum to 1."""

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """Attention weights, averaged over the members; they are the same for all labels."""
        _, tokens, _ = self._document(text)
        shares = torch.stack([word_shares(member.network, tokens) for member in self._members]).mean(0)
        evidence = self._attended(text, shares[0].tolist())
        return Explanation("tokens", text, self.labels.name(label), score, evidence, shares=True)

    def _attended(self, text: str, shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
        """Words with their attention weights, largest first."""
        return attended(self._reader.spans(text), shares)


class LabelAttendingModel(NeuralModel):
    """The head has attention weights for each label."""

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """Attention weights of the label, averaged over the members, and the path in the most confident tree."""
        documents, tokens, _ = self._document(text)
        evidence = attended(self._reader.spans(text), label_shares(self._members, tokens, label))
        ways = [member.steps(documents, label) for member in self._members]
        likeliest = max(ways, key=lambda steps: math.prod(probability for probability, _ in steps))
        path = tuple(self._path_step(level, *step) for level, step in enumerate(likeliest, start=1))
        return Explanation("tokens", text, self.labels.name(label), score, evidence, path=path, shares=True)


def label_shares(members: Sequence[Any], tokens: Tensor, label: int) -> list[float]:
    """Attention weights of a label for the words of one document (1, T), averaged over the members."""
    shares = []
    for member in members:
        network, row = member.network_of(label)
        shares.append(network.head.weights(*network.encode(tokens), row))
    mean: list[float] = torch.stack(shares).mean(0)[0].tolist()
    return mean


@torch.no_grad()
def word_shares(network: Any, tokens: Tensor) -> Tensor:
    """(B, T) attention weights of the words of documents (B, T)."""
    shares: Tensor = network.encoder.attention(network.embedded(tokens, None), tokens != PADDING)
    return shares


def attended(words: Sequence[Span], shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
    """Words with their weights, largest first."""
    evidence = [
        TokenEvidence(word.token, word.start, word.end, share) for word, share in zip(words, shares, strict=False)
    ]
    return tuple(sorted(evidence, key=lambda item: (-item.weight, item.start)))
