"""Memory that the training of a label tree on one encoder needs, computed before the tree is built.

The memory of the encoder is measured on one and two texts. A step has four phases, of which the largest counts:
the end of the forward pass with the scores of the labels, the end of the backward pass, the update of the weights, and
validation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from xmtc.core.errors import ConfigError
from xmtc.nn.device import chunk_memory
from xmtc.nn.heads.base import gradient_of
from xmtc.nn.members import MemberRun, TrainingData
from xmtc.nn.network import Network
from xmtc.nn.prediction import DOCUMENTS, TOKENS
from xmtc.nn.tensor_memory import TensorMemory
from xmtc.nn.training.loop import batch_size
from xmtc.nn.trees.cascade import CascadeHead, CascadeSpec
from xmtc.nn.trees.cascade_objective import SLICE, shortlist_sizes
from xmtc.nn.trees.memory_plan import SPARE, written_size
from xmtc.nn.trees.training import KINDS

TABLE = "the table of rows"
SCORED = 40
"""Bytes for each document and slot while a level is trained or scored: logits, errors, masks and keys for sorting."""
REMEDIES = {
    "texts": "Lower text.max_tokens",
    "the subword embeddings": "Use an encoder with fewer subwords",
    "the weights": "Use a smaller encoder, or freeze layers with encoder.freeze",
    "rows in use": "Lower training.batch_size or head.tree.beam_width",
    "the encoder's states": "Lower training.batch_size or text.max_tokens, or set encoder.checkpointing = true",
    "the scores of a step": "Lower training.batch_size or head.tree.beam_width",
    "the update of the weights": "Use a smaller encoder, or freeze layers with encoder.freeze",
    "copies for the capture": "Use a smaller encoder, or freeze layers with encoder.freeze",
    "validation": "Lower head.tree.beam_width or text.max_tokens",
    TABLE: "Set head.tree.rows=bfloat16 or head.tree.optimiser=sgd, or lower head.hidden",
}


@dataclass(frozen=True)
class CascadePlan:
    """Memory of a training in bytes: parts that stay, phases of a step, the table of rows, and the best rows so far."""

    parts: dict[str, int]
    phases: dict[str, dict[str, int]]
    table: int
    best: int
    device: torch.device
    on_host: bool = False

    @property
    def place(self) -> torch.device:
        """The device of the table of rows."""
        return torch.device("cpu") if self.on_host else self.device

    @property
    def phase(self) -> dict[str, int]:
        """The parts of the phase that needs most memory."""
        return max(self.phases.values(), key=lambda parts: sum(parts.values()))

    @property
    def total(self) -> int:
        """Bytes on the device at the peak; the best rows are in host memory."""
        own = 0 if self.on_host else self.table + (self.best if self.device.type == "cpu" else 0)
        return sum(self.parts.values()) + sum(self.phase.values()) + own

    @property
    def host(self) -> int:
        """Bytes in host memory, if that is separate from the device."""
        return self.best + (self.table if self.on_host else 0)


def planned(spec: CascadeSpec, data: TrainingData, sizes: list[tuple[int, int, int]], run: MemberRun) -> CascadePlan:
    """Plan the training of levels with these `sizes`: nodes, parents, and the most children of a parent."""
    settings, documents, tree = spec.training, data.documents, spec.tree
    device, averaged = documents.device, settings.averaging != "none"
    network = spec.network(data.table, sizes[0][0])
    head, compute = network.head, network.compute.itemsize
    assert isinstance(head, CascadeHead)
    batch = batch_size(settings, len(documents), run.group)
    kept = KINDS[tree.rows].itemsize
    own, width = batch // run.group.size, head.deep.shape[1]
    counts = np.diff(data.labels.indptr).astype(np.int64)
    beams, deep = tree.beams(len(sizes)), sizes[1:]
    followed = shortlist_sizes([counts] * len(deep), [parents for _, parents, _ in deep], beams, batch)
    slots = [parents * most for parents, (_, _, most) in zip(followed, deep, strict=True)]
    nodes = sum(count for count, _, _ in deep)

    trained = _bytes(part for part in network.parameters() if part.requires_grad and part is not head.deep)
    table_words = _bytes([network.table])
    copies = 4 + averaged + (data.validation is not None)  # with the gradient and two moments
    weights = copies * trained + _bytes(p for p in network.parameters() if not p.requires_grad) - table_words
    if spec.trained_words:
        weights -= table_words * (copies - 1)
    parts = {
        "texts": 4 * int(documents.lengths.sum())
        + 16 * len(documents)
        + (8 * data.labels.nnz + 8 * len(documents)) * len(sizes),
        "the subword embeddings": table_words * (copies if spec.trained_words else 1),
        "the weights": weights,
        "rows in use": sum(slots) * (width * compute + 8 + own * compute) + 3 * 4 * width * min(SLICE, sum(slots)),
    }
    longest = int(documents.lengths.max())
    encoding = Encoding.measured(network, longest)
    states = _of(encoding.kept, own)
    scored = max([sizes[0][0], *slots]) * own * SCORED
    sliced = 8 * 4 * width * min(SLICE, max(slots, default=0))  # temporary results of Adam, and of rounding
    phases = {
        "forward": {"the encoder's states": states, "the scores of a step": scored},
        "backward": {"the encoder's states": _of(encoding.learnt, own)},
        "update": {"the update of the weights": max(2 * trained, sliced)},
    }
    if data.validation is not None:
        at_once = min(DOCUMENTS[device.type], max(1, TOKENS[device.type] // longest), len(data.validation[0]))
        labels, leaves, _ = sizes[-1]
        least = -(-min(5, labels) // (labels // leaves))  # leaves that have five labels together
        found = [min(max(beam, least), parents) * most for beam, (_, parents, most) in zip(beams, deep, strict=True)]
        copied = compute + (kept if kept != compute else 0)
        gathered = min(chunk_memory(device), at_once * max(found, default=0) * width * copied)
        scores = at_once * max([sizes[0][0], *found]) * SCORED + gathered
        phases["validation"] = {"validation": max(_of(encoding.read, at_once), scores)}
    if device.type == "cuda" and network.encoder.captures and run.group.size == 1:
        phases = _captured(phases, trained)
    tables = 1 + 2 * (tree.optimiser == "adam") + averaged
    table, best = tables * kept * nodes * width, kept * nodes * width * (data.validation is not None)
    return CascadePlan(parts, phases, table, best, device)


def _captured(phases: dict[str, dict[str, int]], trained: int) -> dict[str, dict[str, int]]:
    """The phases of a step that is captured: its memory stays allocated, and weights are copied before the capture."""
    steps = [parts for name, parts in phases.items() if name != "validation"]
    step = max(steps, key=lambda parts: sum(parts.values()))
    return {
        "capture": {**step, "copies for the capture": 3 * trained},
        "validation": {**step, **phases.get("validation", {})},
    }


def placed(plan: CascadePlan, free: int, host: int | None) -> CascadePlan:
    """Place the table on the device if it fits, else in host memory; ConfigError if neither is possible.

    `free` is the free memory on the device and `host` that of the host, in bytes; None if the device is the host.
    """
    if plan.total > SPARE * free and host is not None and plan.table:
        plan = replace(plan, on_host=True)
    if plan.total > SPARE * free:
        parts = {**plan.parts, **plan.phase} | ({} if plan.on_host else {TABLE: plan.table})
        largest = max(parts, key=lambda name: parts[name])
        raise ConfigError(
            f"the label tree and its encoder need {written_size(plan.total)}, {written_size(parts[largest])} of it for "
            f"{largest}; {written_size(free)} is free. {REMEDIES[largest]}."
        )
    if host is not None and plan.host > SPARE * host:
        raise ConfigError(
            f"the label tree needs {written_size(plan.host)} of host memory for its rows; {written_size(host)} is "
            f"free. {REMEDIES[TABLE]}."
        )
    return plan


def described(plan: CascadePlan, device: torch.device) -> list[str]:
    """The plan as lines of text."""
    parts = {**plan.parts, **plan.phase}
    parts["rows (in host memory)" if plan.on_host else "rows"] = plan.table
    listed = ", ".join(f"{name} {written_size(size)}" for name, size in parts.items() if size >= 1 << 20)
    host = f" and {written_size(plan.host)} of host memory" if plan.on_host else ""
    return [
        f"plan for {device}: {written_size(plan.total)}{host} ({listed})"
        if listed
        else f"plan for {device}: {written_size(plan.total)}{host}"
    ]


def _of(memory: tuple[float, float], texts: int) -> int:
    return int(memory[0] + texts * memory[1])


def _bytes(parts: Iterable[Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in parts)


class Encoding(NamedTuple):
    """Memory of the encoder in bytes: for a batch of any size, and for each of the longest texts."""

    kept: tuple[float, float]
    """At the end of the forward pass."""
    learnt: tuple[float, float]
    """At most, forward and backward."""
    read: tuple[float, float]
    """At most, in prediction."""

    @classmethod
    def measured(cls, network: Network, length: int) -> Encoding:
        """Measured on one and on two texts of this length."""
        for part in network.parameters():
            if part.requires_grad:
                gradient_of(part)
        found = []
        for count in (1, 2):
            tokens = torch.full((count, length), len(network.table) - 1, device=network.table.device)
            learning, reading = TensorMemory(tokens.device), TensorMemory(tokens.device)
            kept: list[int] = []

            def score(encoded: Tensor, mask: Tensor, kept: list[int] = kept, memory: TensorMemory = learning) -> Any:
                kept.append(memory.now)
                return encoded.new_zeros(()), torch.zeros_like(encoded)

            with learning:
                network.train().learn(tokens, score)
            with reading:
                network.eval().encode(tokens)
            found.append((kept[0], learning.peak, reading.peak))
        first, second = found
        kept_, learnt, read = ((max(0, 2 * one - two), two - one) for one, two in zip(first, second, strict=True))
        return cls(kept_, learnt, read)
