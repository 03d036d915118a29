"""A network: embedded words, an encoder and a head, with one step of learning and two ways of answering."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from xmtc.nn.encoders.base import Encoder
from xmtc.nn.heads.base import Head, gradient_of
from xmtc.nn.training.scatter_add import add_to_rows
from xmtc.text.sequences import FIRST_WORD, PADDING

TABLE = "table"
"""The name of the word table among a network's parameters."""


class Network(nn.Module):
    """Word table → encoder → head. Parameters are kept in float32; `compute` is the type of the arithmetic.

    With `bag_to_head`, the weights of a bag's words go to the head as well, beside what the encoder makes of them.
    """

    def __init__(
        self,
        table: Tensor,
        encoder: Encoder,
        head: Head,
        *,
        trained_words: bool,
        compute: torch.dtype,
        bag_to_head: bool = False,
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(table, requires_grad=trained_words)  # (V, e)
        self.encoder = encoder
        self.head = head
        self.trained_words = trained_words
        self.compute = compute
        self.bag_to_head = bag_to_head

    def encode(self, tokens: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """States or vectors of documents, and where their real words are; tokens and weights (B, T)."""
        with torch.no_grad():
            words = self.embedded(tokens, weights)
            mask = tokens != PADDING
            return self._head_input(self.encoder(words, mask), tokens, weights), mask

    def learn(
        self, tokens: Tensor, taught: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]], weights: Tensor | None = None
    ) -> Tensor:
        """Mean loss of a batch; gradients are added to every parameter's `.grad`.

        `taught` takes what was encoded and its mask to the loss and its gradient in what was encoded.
        """
        mask = tokens != PADDING
        with torch.no_grad():
            words = self.embedded(tokens, weights)
        words.requires_grad_(self.trained_words)
        with torch.enable_grad():
            encoded = self.encoder(words, mask)
        loss, d_encoded = taught(self._head_input(encoded.detach(), tokens, weights), mask)
        parameters = [part for part in self.encoder.parameters() if part.requires_grad]
        wanted = [*parameters, words] if self.trained_words else parameters
        gradients = torch.autograd.grad(encoded, wanted, d_encoded[..., : encoded.shape[-1]])
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=False):
                gradient_of(parameter).add_(gradient)
            if self.trained_words:
                self._teach_words(tokens, weights, gradients[-1].to(self.table.dtype))
        return loss

    def _teach_words(self, tokens: Tensor, weights: Tensor | None, gradient: Tensor) -> None:
        """Add to the rows of words the gradient of the words (T, B, e), or of their sums (B, e)."""
        table = gradient_of(self.table)
        if self.encoder.sums:
            add_to_rows(table, tokens, weights, gradient)
        else:
            if weights is not None:
                gradient = gradient * weights.t()[..., None]
            table.index_add_(0, tokens.t().reshape(-1), gradient.reshape(-1, table.shape[1]))
        table[PADDING] = 0.0

    def _head_input(self, encoded: Tensor, tokens: Tensor, weights: Tensor | None) -> Tensor:
        """What the head gets: with `bag_to_head`, (B, width + V) the encoded document and its bag."""
        if not self.bag_to_head or weights is None:
            return encoded
        bag = weights.new_zeros(len(tokens), len(self.table)).scatter_add_(1, tokens.long(), weights)
        return torch.cat([encoded, bag[:, FIRST_WORD:].to(encoded.dtype)], dim=1)

    def embedded(self, tokens: Tensor, weights: Tensor | None = None) -> Tensor:
        """(T, B, e) words, times their weights; (B, e) their sum, where the encoder takes that."""
        if self.encoder.sums:
            return nn.functional.embedding_bag(tokens, self.table, mode="sum", per_sample_weights=weights)
        words = nn.functional.embedding(tokens.t(), self.table)
        if weights is not None:
            words *= weights.t()[..., None]
        return words.to(self.compute)
