"""Going on with a trained network: more words, other labels, and a short training on new and replayed documents."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.core.config import Alias, Settings
from xmtc.data.dataset import Csr
from xmtc.nn.network import TABLE, Network
from xmtc.nn.training.loop import TrainingSettings

MOST_REPEATS = 4
"""Times that a replayed document is seen where a new one is seen once, at most."""


@dataclass(frozen=True)
class UpdateSettings(Settings):
    """How a network learns from new documents."""

    epochs: int = 8
    """Times that every new document is seen."""
    learning_rate: float = 2.0
    """The rate to begin with, as a share of `training.learning_rate`; it falls, linearly, to nothing."""
    retention: Annotated[float, Alias("kept")] = 0.5
    """Share that weights keep of what they were before, against forgetting; new labels and words keep nothing."""
    replay_ratio: Annotated[float, Alias("replayed")] = 1.0
    """Documents seen again for each new one: of more some are drawn, and fewer come up to four times an epoch."""

    of = "update"
    searched = False

    def check(self) -> None:
        self.require_range("epochs", 1)
        self.require_range("learning_rate", 0, open_low=True)
        self.require("retention", 0 <= self.retention < 1, "a number from 0 to below 1")
        self.require_range("replay_ratio", 0)

    def training(self, settings: TrainingSettings) -> TrainingSettings:
        """A short training: weights are averaged over the same share of it, and every document is learnt from."""
        return dataclasses.replace(
            settings,
            epochs=self.epochs,
            learning_rate=self.learning_rate * settings.learning_rate,
            decay_from=0.0,
            average_from=settings.average_from * self.epochs / settings.epochs,
        )

    def mixture(self, new: int, replayed: int, seed: int) -> NDArray[np.int64]:
        """Rows of documents that an epoch is made of, ascending: all new ones, which come first, and some others."""
        wanted = min(round(self.replay_ratio * new), MOST_REPEATS * replayed)
        whole, rest = divmod(wanted, replayed) if replayed else (0, 0)
        drawn = np.random.default_rng([seed, 14]).permutation(replayed)[:rest]
        again = np.concatenate([np.tile(np.arange(replayed), whole), drawn])
        return np.concatenate([np.arange(new), new + np.sort(again)]).astype(np.int64)


@torch.no_grad()
def carry_weights(network: Network, before: Network, carried: Csr, fresh: int, shares: NDArray[np.float64]) -> None:
    """The weights of a network of before in one for other labels, made of those of before by `carried` (L, L before).

    The word table stays as it is. The last `fresh` labels are new, and begin at their `shares` (L,) of the documents.
    """
    weights, of_labels = dict(before.named_parameters()), network.head.of_labels
    for name, part in network.named_parameters():
        if name == TABLE:
            continue
        if name.removeprefix("head.") not in of_labels:
            part.copy_(weights[name])
            continue
        part.copy_(carried_rows(weights[name], carried))
        if part.ndim == 1 and fresh:  # a bias
            part[-fresh:] = torch.logit(torch.from_numpy(shares[-fresh:]), eps=1e-6).to(part)


@torch.no_grad()
def settle(
    network: Network,
    start: Mapping[str, Tensor],
    kept: float,
    new_words: int,
    fresh: NDArray[np.int64],
    absent: NDArray[np.int64],
) -> None:
    """Weights between those that training found and those that it started from, of which they keep this share.

    New words and `fresh` labels had nothing worth keeping; `absent` labels, which no document had, stay as they were:
    all that is learnt of them is that they are rare.
    """
    for name, part in network.named_parameters():
        share = part.new_full(part.shape[:1], kept)
        if name == TABLE:
            share[len(part) - new_words :] = 0.0
        elif name.removeprefix("head.") in network.head.of_labels:
            share[torch.from_numpy(fresh).to(share.device)] = 0.0
            share[torch.from_numpy(absent).to(share.device)] = 1.0
        part.data.lerp_(start[name].to(part), share.view(-1, *[1] * (part.ndim - 1)) if part.ndim else share)


def absent_from(labels: Csr) -> NDArray[np.int64]:
    """Labels, or nodes, that no document has."""
    return np.flatnonzero(np.bincount(labels.indices, minlength=labels.shape[1]) == 0)


def carried_rows(rows: Tensor, carried: Csr) -> Tensor:
    """(L, …) rows of the labels of now, combined from the rows before the update."""
    return torch.from_numpy(np.asarray(carried @ rows.detach().float().cpu().numpy()))
