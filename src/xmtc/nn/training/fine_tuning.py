"""Fine-tuning of a trained network in an update: new words, changed labels, and a short training run.

Documents with unknown labels train nothing but the rows of the labels that they decide on: all other labels keep their
scores on every document.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
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
"""Maximum number of times that a replayed document occurs per epoch."""


ANCHORS = 64
"""Minimum number of complete documents, if there are any, on which decided labels should keep their scores."""
DECISION_BATCH, DECISION_STEPS = 128, 32
"""Maximum number of documents per step in training on decisions, and minimum number of steps with anchors."""


@dataclass(frozen=True)
class UpdateSettings(Settings):
    """Training of a network on new documents in an update."""

    epochs: int = 8
    """Number of epochs over the new documents."""
    learning_rate: float = 2.0
    """Initial learning rate relative to `training.learning_rate`; it decays linearly to zero."""
    retention: Annotated[float, Alias("kept")] = 0.5
    """Weight of the old parameters in a blend with the updated ones; new labels and words are not blended."""
    replay_ratio: Annotated[float, Alias("replayed")] = 1.0
    """Replayed documents per new document; if there are too few, they repeat up to four times per epoch."""

    of = "update"
    searched = False

    def check(self) -> None:
        self.require_range("epochs", 1)
        self.require_range("learning_rate", 0, open_low=True)
        self.require("retention", 0 <= self.retention < 1, "a number ≥ 0 and < 1")
        self.require_range("replay_ratio", 0)

    def training(self, settings: TrainingSettings) -> TrainingSettings:
        """Settings of a short training: averaging starts at the same fraction of it, and the learning rate decays."""
        return dataclasses.replace(
            settings,
            epochs=self.epochs,
            learning_rate=self.learning_rate * settings.learning_rate,
            decay_from=0.0,
            average_from=settings.average_from * self.epochs / settings.epochs,
        )

    def decision_training(self, settings: TrainingSettings, documents: int, anchored: bool) -> TrainingSettings:
        """Settings of a short training on decisions; with others that keep their scores, it has at least some steps."""
        size = min(DECISION_BATCH, documents)
        epochs = max(self.epochs, -(-DECISION_STEPS * size // documents)) if anchored else self.epochs
        short = dataclasses.replace(self, epochs=epochs).training(settings)
        return dataclasses.replace(short, batch_size=size, skipped_words=0.0)

    def anchors(self, decisions: int, has_decided: NDArray[np.bool_], seed: int) -> NDArray[np.int64]:
        """Rows of complete documents that accompany decisions: up to half of them with labels that are decided on."""
        wanted = max(ANCHORS, round(self.replay_ratio * decisions)) if self.replay_ratio else 0
        order = np.random.default_rng([seed, 15]).permutation(len(has_decided))
        first = order[has_decided[order]][: wanted // 2]
        rest = order[~has_decided[order]][: wanted - len(first)]
        return np.sort(np.concatenate([first, rest]))

    def mixture(self, new: int, replayed: int, seed: int) -> NDArray[np.int64]:
        """Rows of the documents of an epoch, ascending: all new ones, which come first, and replayed ones."""
        wanted = min(round(self.replay_ratio * new), MOST_REPEATS * replayed)
        whole, rest = divmod(wanted, replayed) if replayed else (0, 0)
        drawn = np.random.default_rng([seed, 14]).permutation(replayed)[:rest]
        again = np.concatenate([np.tile(np.arange(replayed), whole), drawn])
        return np.concatenate([np.arange(new), new + np.sort(again)]).astype(np.int64)


@torch.no_grad()
def carry_weights(network: Network, before: Network, carried: Csr, fresh: int, shares: NDArray[np.float64]) -> None:
    """Copy weights to a network with other labels, whose rows are mixtures of the old ones by `carried` (L, L before).

    The word table is not touched. The last `fresh` labels are new; their biases start from their frequencies `shares`
    (L,).
    """
    weights, of_labels = dict(before.named_parameters()), network.head.of_labels
    for name, part in network.named_parameters():
        if name == TABLE:
            continue
        if name.removeprefix("head.") not in of_labels:
            part.copy_(weights[name])
            continue
        part.copy_(carried_rows(weights[name], carried))
    if fresh:
        network.head.start_new_labels(torch.from_numpy(shares[-fresh:]))


@torch.no_grad()
def settle(
    network: Network,
    start: Mapping[str, Tensor],
    kept: float,
    new_words: int,
    fresh: NDArray[np.int64],
    absent: NDArray[np.int64],
) -> None:
    """Blend the trained weights with those before training, which keep the fraction `kept`.

    New words and `fresh` labels keep nothing; `absent` labels, which no document has, keep everything: training would
    only teach that they are rare.
    """
    for name, part in network.named_parameters():
        share = part.new_full(part.shape[:1], kept)
        if name == TABLE:
            share[len(part) - new_words :] = 0.0
        elif name.removeprefix("head.") in network.head.of_labels:
            share[torch.from_numpy(fresh).to(share.device)] = 0.0
            share[torch.from_numpy(absent).to(share.device)] = 1.0
        part.data.lerp_(start[name].to(part), share.view(-1, *[1] * (part.ndim - 1)) if part.ndim else share)


@contextmanager
def only_label_rows(network: Network) -> Iterator[None]:
    """Train nothing but the rows of the labels, temporarily: the encoder and the shared parts of the head are fixed.

    So are biases, which would change the score of a label for all documents alike.
    """
    trained = {name: part.requires_grad for name, part in network.named_parameters()}
    for name, part in network.named_parameters():
        part.requires_grad_(trained[name] and part.ndim > 1 and name.removeprefix("head.") in network.head.of_labels)
    network.head_only = True
    try:
        yield
    finally:
        network.head_only = False
        for name, part in network.named_parameters():
            part.requires_grad_(trained[name])
            part.grad = None


def absent_from(labels: Csr) -> NDArray[np.int64]:
    """Labels, or nodes, that no document has."""
    return np.flatnonzero(np.bincount(labels.indices, minlength=labels.shape[1]) == 0)


def carried_rows(rows: Tensor, carried: Csr) -> Tensor:
    """(L, …) rows of the new labels, combined from the rows before the update."""
    return torch.from_numpy(np.asarray(carried @ rows.detach().float().cpu().numpy()))
