"""Planning the training of a label tree: memory of each part, placement of each level's rows, and estimated time.

The plan is made before the tree is built or any network is trained, so that configurations that cannot fit fail early.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from xmtc.core.errors import ConfigError
from xmtc.nn.heads.label_attention import flops, held_bytes
from xmtc.nn.prediction import DOCUMENTS, TOKENS
from xmtc.nn.training.objectives import slots_for

COPIES = 7
"""Copies of a trainable weight: itself, its gradient, two moments, an average, the best, and a spare."""
WORKING = 10
"""Copies of the rows that a step works on: rows, gradient, moments, backups for capture, and low-precision ones."""
SPARE = 0.9
"""Fraction of the free memory to use."""
SHARES = {"cpu": 0.8, "cuda": 0.3}
"""Speed of a training step relative to plain matrix products."""
TRAFFIC = {"cpu": 1e10, "cuda": 2e12}
"""Memory bandwidth of passes over tables, in bytes per second."""
LAUNCH = {"cpu": 0.0, "cuda": 3.4e-5}
"""Seconds per word of a batch, forward and backward through an LSTM, regardless of the number of documents."""
PASSES, ROW_PASSES = 6, 30
"""Passes of a step over the word table, for clipping and averaging, and over the rows that it works on."""

TABLE = "the table of rows"
REMEDIES = {
    "words": "Lower text.max_words",
    "rows": "Raise head.tree.cluster_size or head.tree.height, so that the first level has fewer nodes",
    "rows in use": "Lower training.batch_size or head.tree.beam_width",
    "candidates": "Lower head.tree.beam_width",
    "texts": "Lower text.max_tokens",
    "prediction": "Lower head.tree.beam_width, text.max_tokens or encoder.units",
    TABLE: "Set head.tree.rows=bfloat16, or lower encoder.units",
}


class Sizes(NamedTuple):
    """Input of a plan."""

    documents: int
    tokens: int
    labels: int
    """Total number of labels over all documents."""
    words: int
    word_width: int
    trained_words: bool
    width: int
    """Width of the encoder's states."""
    hidden: tuple[int, ...]
    batch: int
    """Documents per step in this process."""
    processes: int
    """Number of parallel processes, each with the rows of all."""
    length: int
    """Words of the longest text."""
    kept: int
    """Bytes per number in the table of rows."""
    averaged: bool
    compute: int
    """Bytes per number in matrix products."""
    chunk: int
    """Memory budget for a chunk of nodes, in bytes."""


@dataclass(frozen=True)
class LevelPlan:
    """Memory of one level's training by part, of its table of rows and of the best rows, in bytes, and time."""

    nodes: int
    parts: dict[str, int]
    table: int
    best: int
    seconds: float
    on_host: bool = False

    @property
    def device(self) -> int:
        """Bytes on the device."""
        return sum(self.parts.values()) + (0 if self.on_host else self.table)

    @property
    def host(self) -> int:
        """Bytes in host memory, if that is separate from the device."""
        return self.best + (self.table if self.on_host else 0)


def level_plan(
    sizes: Sizes, nodes: int, parents: int, most: int, followed: int, epochs: int, rate: float, kind: str
) -> LevelPlan:
    """Plan one level: `nodes` below `parents` with up to `most` children; each document has `followed` of the parents.

    `rate` is the speed of plain matrix products, in operations per second, on a device of this `kind`; the top level
    has one parent.
    """
    scored = nodes if parents == 1 else followed * most
    units = sizes.width // 2
    lstm_weights = 2 * 4 * units * (sizes.word_width + units)
    layers = (sizes.width, *sizes.hidden, 1)
    perceptron = sum(before * after for before, after in itertools.pairwise(layers))
    copies = COPIES if sizes.trained_words else 1
    words = 4 * sizes.words * sizes.word_width
    held = held_bytes(sizes.length, layers[1:], sizes.compute, 0 if parents == 1 else sizes.width)
    twice = 1 if kind == "cpu" else 2  # before capture, and in graphs
    step = sizes.batch * sizes.length * (2 * sizes.word_width + 12 * sizes.width) * sizes.compute
    at_once = min(DOCUMENTS[kind], max(1, TOKENS[kind] // sizes.length), sizes.documents)
    read = min(TOKENS[kind], sizes.tokens) * (sizes.word_width + 10 * sizes.width) * sizes.compute
    parts = {
        "texts": 4 * sizes.tokens + 24 * sizes.documents + 8 * sizes.labels,
        "words": copies * words,
        "encoder": 4 * COPIES * (lstm_weights + perceptron),
        "steps": twice * (step + min(sizes.chunk, sizes.batch * scored * held)),
        "prediction": read + at_once * scored * 25 + min(sizes.chunk, at_once * scored * held),
    }
    slots = table = best = 0
    if parents == 1:
        parts["rows"] = 4 * COPIES * nodes * sizes.width
    else:
        slots = slots_for(sizes.processes * sizes.batch, followed, parents, most)
        parts["candidates"] = 4 * sizes.documents * followed
        parts["rows in use"] = 4 * WORKING * slots * sizes.width
        table = (3 + sizes.averaged) * sizes.kept * nodes * sizes.width
        best = sizes.kept * nodes * sizes.width
    mean = sizes.tokens / max(1, sizes.documents)
    head = flops(1, mean, scored, sizes.width, sizes.hidden[0]) / (SHARES[kind] * rate)
    lstm = max(6 * mean * lstm_weights / (SHARES[kind] * rate), LAUNCH[kind] * mean / sizes.batch)
    passed = (PASSES * words if sizes.trained_words else 0) + ROW_PASSES * 4 * slots * sizes.width
    seconds = epochs * sizes.documents * (head + lstm + passed / TRAFFIC[kind] / sizes.batch)
    return LevelPlan(nodes, parts, table, best, seconds)


def member_size(sizes: Sizes, levels: Sequence[int]) -> int:
    """Bytes of a trained tree: the word table of each level and the rows of its nodes."""
    return sum(4 * sizes.words * sizes.word_width + sizes.kept * nodes * sizes.width for nodes in levels)


def placed(plans: Sequence[LevelPlan], free: int, host: int | None) -> list[LevelPlan]:
    """Place the rows of each level on the device if they fit, else in host memory; ConfigError if neither is possible.

    `free` is the free memory on the device and `host` that of the host, in bytes; None if the device is the host.
    """
    out = []
    for number, plan in enumerate(plans, start=1):
        if plan.device > SPARE * free and host is not None and plan.table:
            plan = replace(plan, on_host=True)
        wanted = plan.device if host is not None else plan.device + plan.best
        if wanted > SPARE * free:
            parts = plan.parts if plan.on_host or not plan.table else {**plan.parts, TABLE: plan.table}
            largest = max(parts, key=lambda name: parts[name])
            raise ConfigError(
                f"tree level {number} of {len(plans)} ({plan.nodes:,} nodes) needs {written_size(wanted)}"
                f"{' on the device' if host is not None else ''}, {written_size(parts[largest])} of it for {largest}; "
                f"{written_size(free)} is free. {REMEDIES.get(largest, 'Lower training.batch_size or encoder.units')}."
            )
        if host is not None and plan.host > SPARE * host:
            raise ConfigError(
                f"tree level {number} of {len(plans)} ({plan.nodes:,} nodes) needs {written_size(plan.host)} host "
                f"memory for its rows; {written_size(host)} is free. "
                "Set head.tree.rows=bfloat16, or lower encoder.units."
            )
        out.append(plan)
    return out


def place_of(size: int, device: torch.device) -> torch.device:
    """Where trained rows of this many bytes are stored: on the device, or in host memory if they do not fit."""
    return device if size <= SPARE * free_memory(device)[0] else torch.device("cpu")


def described(plans: Sequence[LevelPlan], device: torch.device) -> list[str]:
    """The plan as lines of text."""
    total_time = _time(sum(plan.seconds for plan in plans))
    lines = [f"plan for {device}: {_count(len(plans), 'level')}, {total_time} for each tree"]
    for number, plan in enumerate(plans, start=1):
        parts = dict(plan.parts)
        if plan.table:
            parts["rows (in host memory)" if plan.on_host else "rows"] = plan.table
        listed = ", ".join(f"{name} {written_size(size)}" for name, size in parts.items() if size >= 1 << 20)
        total = written_size(plan.device) + (f" and {written_size(plan.host)} of host memory" if plan.on_host else "")
        lines.append(f"  level {number}, {_count(plan.nodes, 'node')}: {total} ({listed}), {_time(plan.seconds)}")
    return lines


def free_memory(device: torch.device) -> tuple[int, int | None]:
    """Bytes free on the device, and in host memory if that is separate."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0]), _host_memory()
    return _host_memory(), None


def product_rate(device: torch.device, compute: torch.dtype) -> float:
    """Speed of matrix products in operations per second, measured by a short trial."""
    size = 4096 if device.type == "cuda" else 512
    left = torch.ones(size, size, dtype=compute, device=device)
    best = math.inf
    for _ in range(4):
        started = time.perf_counter()
        (left @ left)[0, 0].item()
        best = min(best, time.perf_counter() - started)
    return 2.0 * size**3 / best


def _host_memory() -> int:
    """Available host memory in bytes, within the limit of a container."""
    available = _number_in("/proc/meminfo", "MemAvailable:") * 1024 or _physical_memory()
    limit, used = _number_in("/sys/fs/cgroup/memory.max"), _number_in("/sys/fs/cgroup/memory.current")
    return min(available, max(0, limit - used)) if limit else available


def _physical_memory() -> int:
    """Bytes of memory that a machine without /proc has (macOS), or has available (Windows)."""
    if sys.platform == "win32":
        status = (ctypes.c_uint64 * 8)(64)  # MEMORYSTATUSEX: its size and the load, then total and available bytes
        ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
        return int(status[2])
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _number_in(path: str, field: str = "") -> int:
    """The number after a field in a file; 0 if there is none."""
    try:
        words = Path(path).read_text(encoding="ascii").split()
        return int(words[words.index(field) + 1 if field else 0])
    except (OSError, ValueError, IndexError):
        return 0


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def written_size(count: int) -> str:
    """A number of bytes with its unit."""
    for unit, bytes_each in (("GB", 1e9), ("MB", 1e6)):
        if count >= bytes_each:
            return f"{count / bytes_each:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def _time(seconds: float) -> str:
    minutes = seconds / 60
    if minutes < 1:
        return "less than a minute"
    return f"about {minutes:.0f} min" if minutes < 120 else f"about {minutes / 60:.1f} h"
