"""A network of word table, encoder and head: one training step and two ways of scoring labels."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from xmtc.nn.encoders.base import Encoder
from xmtc.nn.heads.base import Head, gradient_of
from xmtc.nn.training.scatter_add import add_to_rows
from xmtc.text.sequences import FIRST_WORD, PADDING

TABLE = "table"
"""Name of the word table among a network's parameters."""


class Network(nn.Module):
    """Word table → encoder → head. Parameters are float32; `compute` is the type used for arithmetic.

    With `bag_to_head`, the head also receives the weights of a bag's words, next to the encoder's output.
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
        self.head_only = False
        """Whether only the head is trained: documents are encoded as in prediction, without dropout."""

    def train(self, mode: bool = True) -> Network:
        """Switch to training, or to evaluation, as always if only the head is trained."""
        super().train(mode and not self.head_only)
        return self

    def encode(self, tokens: Tensor, weights: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Encode documents as states or vectors, with the mask of real words; tokens and weights (B, T)."""
        with torch.no_grad():
            words = self.embedded(tokens, weights)
            mask = tokens != PADDING
            return self._head_input(self.encoder(words, mask), tokens, weights), mask

    def learn(
        self,
        tokens: Tensor,
        score: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]],
        weights: Tensor | None = None,
    ) -> Tensor:
        """Mean loss of a batch; gradients are added to every parameter's `.grad`.

        `score` maps the encoded documents and their mask to the loss and its gradient with respect to the encoding.
        """
        if self.head_only:
            return score(*self.encode(tokens, weights))[0]
        mask = tokens != PADDING
        with torch.no_grad():
            words = self.embedded(tokens, weights)
        words.requires_grad_(self.trained_words)
        with torch.enable_grad():
            encoded = self.encoder(words, mask)
        loss, d_encoded = score(self._head_input(encoded.detach(), tokens, weights), mask)
        parameters = [part for part in self.encoder.parameters() if part.requires_grad]
        wanted = [*parameters, words] if self.trained_words else parameters
        gradients = torch.autograd.grad(encoded, wanted, d_encoded[..., : encoded.shape[-1]])
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=False):
                gradient_of(parameter).add_(gradient)
            if self.trained_words:
                self._add_word_gradient(tokens, weights, gradients[-1].to(self.table.dtype))
        return loss

    def _add_word_gradient(self, tokens: Tensor, weights: Tensor | None, gradient: Tensor) -> None:
        """Add the gradient of the words (T, B, e), or of their sums (B, e), to the rows of the word table."""
        table = gradient_of(self.table)
        if self.encoder.sums:
            add_to_rows(table, tokens, weights, gradient)
        else:
            if weights is not None:
                gradient = gradient * weights.t()[..., None]
            table.index_add_(0, tokens.t().reshape(-1), gradient.reshape(-1, table.shape[1]))
        table[PADDING] = 0.0

    def _head_input(self, encoded: Tensor, tokens: Tensor, weights: Tensor | None) -> Tensor:
        """The input of the head: with `bag_to_head`, (B, width + V) the encoded document and its bag."""
        if not self.bag_to_head or weights is None:
            return encoded
        bag = weights.new_zeros(len(tokens), len(self.table)).scatter_add_(1, tokens.long(), weights)
        return torch.cat([encoded, bag[:, FIRST_WORD:].to(encoded.dtype)], dim=1)

    def embedded(self, tokens: Tensor, weights: Tensor | None = None) -> Tensor:
        """(T, B, e) word vectors times their weights, or (B, e) their sum if the encoder takes sums."""
        if self.encoder.sums:
            return nn.functional.embedding_bag(tokens, self.table, mode="sum", per_sample_weights=weights)
        words = nn.functional.embedding(tokens.t(), self.table)
        if weights is not None:
            words *= weights.t()[..., None]
        return words.to(self.compute)
