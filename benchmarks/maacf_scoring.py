"""Exact MAACF+ scores of all labels: seconds after encoding, memory, and a comparison with pairwise scoring.

    PYTHONPATH=src python benchmarks/maacf_scoring.py [--sizes 1000x501000 6000x4108] [--hidden 256] [--pairs 65536]

Documents, labels, groups and weights are random. For each size (documents × labels) the best five labels are computed;
scores of random pairs are compared with a direct implementation of the network, timed on --pairs pairs.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from xmtc.nn.device import chunk_memory
from xmtc.nn.heads.collaborative import CollaborativeHead, CollaborativeSettings
from xmtc.nn.prediction import DOCUMENTS, _best

CHECKED = 256
"""Pairs whose scores are compared."""


def scoring(documents: int, labels: int, given: argparse.Namespace) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    groups = torch.randint(labels, (labels, given.group))
    settings = CollaborativeSettings(hidden=given.hidden)
    head = CollaborativeHead(labels, given.aspects, given.width, groups, settings).to(device).eval()
    encoded = torch.randn(documents, given.aspects * given.width, device=device)
    encoded = encoded.to(torch.bfloat16 if device.type == "cuda" else torch.float32)
    error, pair = against_pairs(head, encoded, given.pairs)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    seconds = timed(lambda: answers(head, encoded, 5), given.times)
    most = torch.cuda.max_memory_reserved() if device.type == "cuda" else 0
    count = documents * labels
    print(
        f"{documents:,} documents × {labels:,} labels on {device.type}: {seconds:.3f} s, "
        f"{1e3 * seconds / documents:.3f} ms a document, {count / seconds / 1e9:.3f} billion pairs a second, "
        f"{most / 2**30:.1f} GiB; pair by pair {pair * count:.1f} s by {given.pairs:,} pairs, "
        f"{pair * count / seconds:.0f} times as long; scores differ by {error:.1e} at most",
        flush=True,
    )


def answers(head: CollaborativeHead, encoded: Tensor, k: int) -> list[Tensor]:
    """The best labels of each batch of documents."""
    network: Any = SimpleNamespace(head=head)
    free, found = chunk_memory(encoded.device), []
    for batch in encoded.split(DOCUMENTS[encoded.device.type]):
        chunk = head.chunk(len(batch), 1, batch.element_size(), free)
        found.append(_best([network], [(batch, no_mask(batch))], k, chunk, None)[0])
    return found


def no_mask(batch: Tensor) -> Tensor:
    return batch.new_ones(len(batch), 1, dtype=torch.bool)


@torch.no_grad()
def against_pairs(head: CollaborativeHead, encoded: Tensor, count: int) -> tuple[float, float]:
    """The largest difference between scores of random pairs and those worked out pair by pair; the seconds that the
    latter take for one pair."""
    rows = torch.randint(len(encoded), (count,), device=encoded.device)
    labels = torch.randint(head.labels, (count,), device=encoded.device)
    aspects = encoded.float().unflatten(1, (head.aspects, head.width))
    slow = pairwise(head, aspects[rows[:CHECKED]], labels[:CHECKED])
    fast = [
        head.logits(encoded[row, None], no_mask(encoded[:1]), label, label + 1)[0, 0]
        for row, label in zip(rows[:CHECKED].tolist(), labels[:CHECKED].tolist(), strict=True)
    ]
    seconds = timed(lambda: pairwise(head, aspects[rows], labels), 3)
    return float((slow - torch.stack(fast)).abs().max()), seconds / count


def pairwise(head: CollaborativeHead, aspects: Tensor, labels: Tensor) -> Tensor:
    """(P,) logits of pairs, each worked out by itself; aspects (P, n, D)."""
    assert head.last is not None
    assert head.settings.attention == "cross"
    own, members = head.rows[labels], head.groups[labels]  # (P, D), (P, k)
    group = head.rows[members.clamp(min=0)]  # (P, k, D)
    asked = (aspects @ group.transpose(1, 2)).masked_fill((members < 0)[:, None], -torch.inf)  # (P, n, k)
    around = asked.softmax(-1) @ group  # (P, n, D)
    beta = ((around * head.aspect_rows).sum(-1) + head.aspect_bias).softmax(-1)
    label = head.fuse(torch.cat([own, (beta[..., None] * around).sum(1)], dim=1))
    gamma = (aspects @ own[..., None]).softmax(1)
    hidden = head.first(torch.cat([(gamma * aspects).sum(1), label], dim=1)).relu()
    product = ((gamma * aspects).sum(1) * own).sum(1) if head.settings.product else 0.0
    found: Tensor = head.last(hidden)[:, 0] + head.bias[labels] + product
    return found


def timed(step: Callable[[], Any], times: int) -> float:
    """The median of a few runs, after one that warms up."""

    def once() -> float:
        started = time.perf_counter()
        step()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - started

    once()
    return float(np.median([once() for _ in range(times)]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["1000x501000", "6000x4108"], help="DOCUMENTSxLABELS")
    for name, value in {"aspects": 3, "group": 2, "width": 256, "hidden": 256, "pairs": 65_536, "times": 5}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = parser.parse_args()
    for size in given.sizes:
        documents, labels = map(int, size.split("x"))
        scoring(documents, labels, given)


if __name__ == "__main__":
    main()
