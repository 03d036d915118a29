"""Time of the ranking loss by number of labels, compared with cross-entropy and with all pairs.

usage: python benchmarks/ranking_loss.py [--labels 1000 … 1000000] [--threads 1 2] [--plot benchmarks/ranking_loss.svg]
Random logits of 32 documents, single precision; the loss and its gradient with respect to the logits are timed, with
all labels in one chunk. A document has 10 labels, or 2 % of all labels where stated. All pairs are formed and
differentiated by autograd, as long as they fit into --pairs numbers. Each number of threads runs in its own process;
the fastest of several runs counts. Exponents of time in labels are fitted from 100,000 labels on, where the constant
cost of a call, about a millisecond, is negligible; for all pairs over all sizes.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SIZES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
DOCUMENTS = 32
FEW, SHARE = 10, 50
LONG_ENOUGH = 1.0
"""Seconds of runs, of which the fastest counts; there are five at least."""
FITTED_FROM = 100_000
SERIES = {
    "logit": "ranking, logits",
    "sigmoid": "ranking, sigmoids",
    "many": "ranking, logits, L/50 positives",
    "entropy": "binary cross-entropy",
    "pairs": "all pairs, L/50 positives",
}


# ---- one number of threads, in a process of its own


def fastest(call: Callable[[], Any]) -> float:
    """Milliseconds."""
    call()
    seconds: list[float] = []
    while len(seconds) < 5 or sum(seconds) < LONG_ENOUGH:
        started = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - started)
    return 1000 * min(seconds)


def all_pairs(positives: Any, logits: Any, margin: float = 1.0) -> Any:
    """The gradient of the definition, over a tensor of documents × positives × labels."""
    import torch

    leaf = logits.detach().requires_grad_()
    pairs = (margin + leaf[:, None, :] - leaf.gather(1, positives)[:, :, None]).relu()
    own = torch.zeros_like(logits).scatter_(1, positives, 1.0).bool()
    pairs = pairs.masked_fill(own[:, None, :], 0.0)
    (pairs.max(1).values.sum() + pairs.max(2).values.sum()).backward()
    return leaf.grad


def ranked(loss: Any, positives: Any, logits: Any) -> Any:
    survey = loss.survey(positives, logits.gather(1, positives))
    survey.look(logits, 0)
    return survey.error(logits, 0)


def measured(labels: int, pairs: int) -> dict[str, float]:
    """Milliseconds of each way at one size."""
    import torch

    from xmtc.nn.training.losses import dense_error
    from xmtc.nn.training.ranking_loss import RankingLoss

    torch.manual_seed(labels)
    logits = torch.randn(DOCUMENTS, labels)
    few, many = (torch.rand(DOCUMENTS, labels).topk(count).indices for count in (FEW, labels // SHARE))
    of_logits, of_sigmoids, summed = RankingLoss(), RankingLoss(score="sigmoid"), RankingLoss(reduction="sum")
    calls: dict[str, Callable[[], Any]] = {
        "logit": lambda: ranked(of_logits, few, logits),
        "sigmoid": lambda: ranked(of_sigmoids, few, logits),
        "many": lambda: ranked(of_logits, many, logits),
        "entropy": lambda: dense_error(logits, few, 0),
    }
    if DOCUMENTS * labels * many.shape[1] <= pairs:
        calls["pairs"] = lambda: all_pairs(many, logits)
        _, gradient = ranked(summed, many, logits)
        assert torch.allclose(gradient, all_pairs(many, logits), atol=1e-3)
    return {name: fastest(call) for name, call in calls.items()}


# ---- all of them


def child(threads: int, given: argparse.Namespace) -> list[dict[str, float]]:
    command = [sys.executable, __file__, "--child", "--threads", str(threads), "--pairs", str(given.pairs)]
    done = subprocess.run(
        [*command, "--labels", *map(str, given.labels)], stdout=subprocess.PIPE, text=True, check=True
    )
    return list(json.loads(done.stdout))


def exponent(points: list[tuple[float, float]]) -> float:
    """Slope of the straight line through logarithms, by least squares."""
    across, up = ([math.log(number) for number in column] for column in zip(*points, strict=True))
    middle = sum(across) / len(across)
    spread = sum((x - middle) ** 2 for x in across)
    return sum((x - middle) * y for x, y in zip(across, up, strict=True)) / spread if spread else math.nan


def points_of(found: list[dict[str, float]], name: str) -> list[tuple[float, float]]:
    return [(each["labels"], each[name]) for each in found if name in each]


def table(found: list[dict[str, float]], threads: int) -> str:
    """Milliseconds a batch, and the exponents below."""
    lines = [f"| labels, {threads} thread{'s' if threads > 1 else ''} | {' | '.join(SERIES.values())} |"]
    lines.append(f"|{'---|' * (len(SERIES) + 1)}")
    for each in found:
        cells = [f"{each[name]:.3g}" if name in each else "" for name in SERIES]
        lines.append(f"| {each['labels']:,} | {' | '.join(cells)} |")
    cells = []
    for name in SERIES:
        points = points_of(found, name)
        fitted = points if name == "pairs" else [point for point in points if point[0] >= FITTED_FROM]
        cells.append(f"{exponent(fitted):.2f}" if len(fitted) > 1 else "")
    return "\n".join([*lines, f"| exponent | {' | '.join(cells)} |"])


def picture(found: list[dict[str, float]], threads: int) -> str:
    """Milliseconds a batch against labels, logarithmic both ways, as SVG."""
    from xmtc.views.charts import line_chart
    from xmtc.views.plot import short_number

    labels = [int(each["labels"]) for each in found]
    powers = range(math.floor(math.log10(min(labels))), math.ceil(math.log10(max(labels))) + 1)
    series = {told: [(math.log10(x), y) for x, y in points_of(found, name)] for name, told in SERIES.items()}
    return line_chart(
        f"Loss and gradient of {DOCUMENTS} documents, {threads} thread{'s' if threads > 1 else ''}",
        series,
        xlabel="labels",
        ylabel="milliseconds",
        marks=[(power, short_number(10**power)) for power in powers],
        points=False,
    ).svg()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--pairs", type=int, default=100_000_000, help="numbers that all pairs may be")
    parser.add_argument("--plot", type=Path, help="SVG file to draw, with as many panels as numbers of threads")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        import torch

        torch.set_num_threads(given.threads[0])
        print(json.dumps([{"labels": labels, **measured(labels, given.pairs)} for labels in sorted(given.labels)]))
        return
    found = {threads: child(threads, given) for threads in given.threads}
    print("\n\n".join(table(each, threads) for threads, each in found.items()))
    if given.plot:
        from xmtc.views.svg import stacked

        drawn = [picture(each, threads) for threads, each in found.items()]
        given.plot.write_text(stacked(drawn), encoding="utf-8")


if __name__ == "__main__":
    main()
