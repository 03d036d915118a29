"""Explanations by attention: the words that a network attends to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from xmtc.core.explanation import Explanation, TokenEvidence
from xmtc.models.neural import NeuralModel
from xmtc.text.sequences import PADDING
from xmtc.text.tokens import Span


class AttendingModel(NeuralModel):
    """The encoder has `attention(words (T, B, e), mask (B, T)) → (B, T)`: the words' shares of it, 1 in all."""

    def _explain(self, text: str, label: int, score: float) -> Explanation:
        """Where the network looks, which is the same whatever the label, in the mean of all members."""
        _, tokens, _ = self._document(text)
        shares = torch.stack([word_shares(member.network, tokens) for member in self._members]).mean(0)
        evidence = self._attended(text, shares[0].tolist())
        return Explanation("tokens", text, self.labels.name(label), score, evidence, shares=True)

    def _attended(self, text: str, shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
        """Words with what those that are read have of the attention, the largest first."""
        return attended(self._reader.spans(text), shares)


@torch.no_grad()
def word_shares(network: Any, tokens: Tensor) -> Tensor:
    """(B, T) what each word of documents (B, T) has of a network's attention."""
    shares: Tensor = network.encoder.attention(network.embedded(tokens, None), tokens != PADDING)
    return shares


def attended(words: Sequence[Span], shares: Sequence[float]) -> tuple[TokenEvidence, ...]:
    """Words with their shares, the largest first."""
    evidence = [
        TokenEvidence(word.token, word.start, word.end, share) for word, share in zip(words, shares, strict=False)
    ]
    return tuple(sorted(evidence, key=lambda item: (-item.weight, item.start)))
