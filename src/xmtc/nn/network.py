"""A network: embedded words, an encoder and a head, with one step of learning and two ways of answering."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from xmtc.nn.encoders import Encoder
from xmtc.nn.heads import Head, gradient_of
from xmtc.text.sequences import PADDING


class Network(nn.Module):
    """Word table → encoder → head. Parameters are kept in float32; `compute` is the type of the arithmetic."""

    def __init__(
        self, table: Tensor, encoder: Encoder, head: Head, *, trained_words: bool, compute: torch.dtype
    ) -> None:
        super().__init__()
        self.table = nn.Parameter(table, requires_grad=trained_words)  # (V, e)
        self.encoder = encoder
        self.head = head
        self.trained_words = trained_words
        self.compute = compute

    def encode(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """States or vectors of documents, and where their real words are; tokens (B, T)."""
        with torch.no_grad():
            words = self._embedded(tokens)
            mask = tokens != PADDING
            return self.encoder(words, mask), mask

    def learn(self, tokens: Tensor, taught: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        """Mean loss of a batch; gradients are added to every parameter's `.grad`.

        `taught` takes what was encoded and its mask to the loss and its gradient in what was encoded.
        """
        mask = tokens != PADDING
        with torch.no_grad():
            words = self._embedded(tokens)
        words.requires_grad_(self.trained_words)
        with torch.enable_grad():
            encoded = self.encoder(words, mask)
        loss, d_encoded = taught(encoded.detach(), mask)
        parameters = list(self.encoder.parameters())
        wanted = [*parameters, words] if self.trained_words else parameters
        gradients = torch.autograd.grad(encoded, wanted, d_encoded)
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=False):
                gradient_of(parameter).add_(gradient)
            if self.trained_words:
                flat = gradients[-1].to(self.table.dtype).reshape(-1, self.table.shape[1])
                gradient_of(self.table).index_add_(0, tokens.t().reshape(-1), flat)
                gradient_of(self.table)[PADDING] = 0.0
        return loss

    def _embedded(self, tokens: Tensor) -> Tensor:
        return nn.functional.embedding(tokens.t(), self.table).to(self.compute)  # (T, B, e)
