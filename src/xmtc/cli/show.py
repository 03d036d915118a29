"""Plain-text views: tables, rankings and explanations that read well in a terminal and in a log."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from xmtc.core.errors import shown
from xmtc.core.explanation import (
    AspectEvidence,
    Explanation,
    GroupEvidence,
    MemberEvidence,
    NeighbourEvidence,
    PathStep,
    TokenEvidence,
)

if TYPE_CHECKING:
    from xmtc.workflows.calibrate import Decisions
    from xmtc.workflows.evaluation import FrequencyGroup, Interval, Reliability, Thresholds
    from xmtc.workflows.predict import TopK


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[int] = (), width: int | None = None
) -> str:
    """Columns two blanks apart, those numbered in `right` flush right; the last is folded to keep within `width`."""
    lines = [list(header), *(list(row) for row in rows)]
    if width is not None:
        before = sum(max(len(line[column]) for line in lines) + 2 for column in range(len(header) - 1))
        lines = [folded for line in lines for folded in _folded(line, max(width - before, 30))]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]

    def placed(cell: str, column: int) -> str:
        return cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])

    shown = ["  ".join(placed(cell, column) for column, cell in enumerate(line)).rstrip() for line in lines]
    return "\n".join([shown[0], "-" * max(len(line) for line in shown), *shown[1:]])


def _folded(line: list[str], room: int) -> list[list[str]]:
    """One row, or several when its last cell needs more than `room`."""
    first, *more = textwrap.wrap(line[-1], room) or [""]
    return [[*line[:-1], first], *([*[""] * (len(line) - 1), part] for part in more)]


def metrics_table(
    named: Mapping[str, Mapping[str, float]], intervals: Mapping[str, Mapping[str, Interval]] | None = None
) -> str:
    """Metrics in percent, one column a model; rows of one metric for k = 1, 3, 5. Intervals follow their value."""
    kinds = list(dict.fromkeys(name.partition("@")[0] for metrics in named.values() for name in metrics))
    cuts = list(dict.fromkeys(name.partition("@")[2] for metrics in named.values() for name in metrics))

    def cell(model: str, name: str) -> str:
        if name not in named[model]:
            return "–"
        found = (intervals or {}).get(model, {}).get(name)
        return f"{100 * named[model][name]:.2f}{_span(found) if found else ''}"

    rows = [[f"{kind}@{cut}", *(cell(model, f"{kind}@{cut}") for model in named)] for kind in kinds for cut in cuts]
    return table(["%", *named], rows, right=() if any((intervals or {}).values()) else range(1, len(named) + 1))


def _span(interval: Interval) -> str:
    return f"  [{100 * interval.low:.2f}, {100 * interval.high:.2f}]"


def groups_table(groups: Mapping[str, Sequence[FrequencyGroup]]) -> str:
    """Labels by frequency, head first, with AUC and AUPR in percent under each treatment of ties."""
    first = next(iter(groups.values()))
    names = ["head", "middle", "tail"] if len(first) == 3 else [str(number + 1) for number in range(len(first))]
    rows = []
    for at, (name, group) in enumerate(zip(names, first, strict=True)):
        values = [_percent(value) for found in groups.values() for value in (found[at].auc, found[at].aupr)]
        rows.append([name, f"≥ {group.least:,}", f"{group.labels:,}", *values])
    header = ["labels", "documents", "count", *(f"{what} {ties}" for ties in groups for what in ("AUC", "AUPR"))]
    return table(header, rows, right=range(1, len(header)))


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.2f}"


def tail_table(tail: Mapping[str, Mapping[str, float]]) -> str:
    """P@k of rare labels in percent, with both denominators."""
    cuts = list(next(iter(tail.values())))
    rows = [[f"Σ {name}(documents, k)", *(f"{100 * values[cut]:.2f}" for cut in cuts)] for name, values in tail.items()]
    return table(["rarest labels, over", *cuts], rows, right=range(1, len(cuts) + 1))


def reliability_words(found: Reliability) -> str:
    """How far scores are from probabilities."""
    bins = f"{len(found.bins)} bin{'' if len(found.bins) == 1 else 's'} of equal mass"
    return f"expected calibration error of the first {found.k} labels: {found.error:.4f} ({bins})"


def reliability_table(found: Reliability) -> str:
    """Mean score and share of hits of each bin, lowest scores first."""
    rows = [
        [
            f"{each.lowest:.4f} to {each.highest:.4f}",
            f"{each.confidence:.4f}",
            f"{each.accuracy:.4f}",
            f"{each.count:,}",
        ]
        for each in found.bins
    ]
    return table(["scores", "mean score", "share of hits", "pairs"], rows, right=(1, 2, 3))


SET_MEASURES = {
    "micro": "micro-F1",
    "macro": "macro-F1",
    "document": "document-F1",
    "precision": "precision",
    "recall": "recall",
}


def _rule(rule: Thresholds) -> str:
    """Which labels a tuned rule returns."""
    if rule.kind == "document":
        return "the best set of each document"
    best = f"best for {SET_MEASURES[rule.measure]}"
    if rule.by_label is None:
        return f"global {rule.value:.4f}, {best}"
    own = int((rule.by_label != rule.by_label.dtype.type(rule.value)).sum())
    others = f", {rule.value:.4f} for the others" if own < len(rule.by_label) else ""
    return f"its own for {own:,} of {len(rule.by_label):,} labels{others}, {best}"


def sets_line(threshold: Thresholds | float, scores: Mapping[str, float]) -> str:
    """Measures of sets of labels, in percent."""
    where = f"threshold {threshold:g}" if isinstance(threshold, float) else f"tuned threshold ({_rule(threshold)})"
    measures = [f"{name} {100 * scores[key]:.2f}" for key, name in SET_MEASURES.items()]
    return f"at the {where}: {', '.join(measures)}, {scores['labels']:.2f} labels a document"


def sets_table(named: Mapping[str, Mapping[str, float]]) -> str:
    """Measures of sets of labels in percent, and how large sets are, one column a model."""
    rows = [[name, *(f"{100 * scores[key]:.2f}" for scores in named.values())] for key, name in SET_MEASURES.items()]
    rows.append(["labels a document", *(f"{scores['labels']:.2f}" for scores in named.values())])
    return table(["at the tuned threshold, %", *named], rows, right=range(1, len(named) + 1))


def calibration_table(found: Decisions) -> str:
    """What was measured on the documents that a calibration comes from."""
    before, after = (f"{found.facts[name]:.4f}" if name in found.facts else "–" for name in ("ECE@5 before", "ECE@5"))
    changed = after if found.calibration is None else f"{before} before, {after} after"
    rows = [[f"expected calibration error of the first {min(5, found.depth)} labels", changed]]
    if found.thresholds is not None:
        rows.append(["threshold", _rule(found.thresholds)])
        rows += [[f"{name}, %", f"{100 * found.facts['F1'][key]:.2f}"] for key, name in SET_MEASURES.items()]
        rows.append(["labels a document", f"{found.facts['F1']['labels']:.2f}"])
    method = "scores as they are" if found.calibration is None else f"{found.calibration.method} calibration"
    return table([f"on {found.facts['documents']:,} documents", method], rows)


def overlap_table(tops: Mapping[str, TopK], cuts: Sequence[int] = (1, 3, 5)) -> str:
    """How many of their best k labels each two models share, in percent."""
    from xmtc.workflows.compare import overlap

    pairs = list(combinations(tops, 2))
    rows = [[f"{a} – {b}", *(f"{100 * overlap(tops[a], tops[b], k):.2f}" for k in cuts)] for a, b in pairs]
    return table(["shared labels, %", *(f"top {k}" for k in cuts)], rows, right=range(1, len(cuts) + 1))


def difference_table(named: Mapping[str, Mapping[str, Interval]], first: str) -> str:
    """How far models are from the first, in percentage points; a star where the interval leaves out 0."""

    def cell(interval: Interval) -> str:
        return f"{100 * interval.value:+.2f}{_span(interval)}{' *' if interval.low > 0 or interval.high < 0 else ''}"

    measures = list(next(iter(named.values())))
    rows = [[measure, *(cell(found[measure]) for found in named.values())] for measure in measures]
    return table([f"against {first}", *named], rows)


def ranking(answer: TopK, texts: Sequence[str] | None = None, truth: Sequence[Collection[str]] | None = None) -> str:
    """Each document's labels, one a line, with scores; with `truth`, the names that are right are marked."""
    blocks = []
    for number, pairs in enumerate(answer.pairs()):
        title = shown(answer.ids[number], 200) if texts is None else shortened(texts[number], 90)
        right = () if truth is None else truth[number]
        lines = [
            f"  {score:8.4f}  {shown(shortened(name, 90), 90)}{'  *' if name in right else ''}" for name, score in pairs
        ]
        lines = lines or ["  (no label)"]
        blocks.append("\n".join([title, *lines]))
    return "\n".join(blocks)


def shortened(text: str, width: int) -> str:
    """The start of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


NOTHING = "nothing in this text speaks for or against it"
CONSTANTS = {"tokens": "before any word is read", "neighbours": "by the label's own score, beside the vote"}


HEADINGS: dict[type, str] = {AspectEvidence: "aspects of the text", GroupEvidence: "related labels"}
"""Of the kinds of evidence that come together in one explanation."""


def explanation(found: Explanation, most: int = 10) -> str:
    """An explanation in words; the view follows the kind of evidence."""
    lines = [f"{shortened(found.label, 90)}   score {found.score:.4f}"]
    if len(found.path) > 1:
        lines.append("  on the way down the tree that finds it most likely:")
        lines += [line for step in found.path for line in _evidence(step)]
        lines.append("  words of its own:")
    if not found.evidence:
        lines.append(f"  {NOTHING}")
    if found.shares and found.evidence:
        lines.append("  shares of attention, which tell where the model looks:")
    if found.constant:
        lines.append(f"  {found.constant:+8.4f}  ({CONSTANTS.get(found.kind, CONSTANTS['tokens'])})")
    headed: set[type] = set()
    for item in found.evidence[:most]:
        if type(item) in HEADINGS and type(item) not in headed:
            lines.append(f"  {HEADINGS[type(item)]}, with what each adds to the score before the sigmoid:")
            headed.add(type(item))
        lines += _evidence(item)
    more = len(found.evidence) - most
    if more > 0:
        lines.append(f"  … and {more} more")
    return "\n".join(lines)


def _evidence(item: object) -> list[str]:
    if isinstance(item, TokenEvidence):
        return [f"  {item.weight:+8.4f}  {item.text}  ({item.start}–{item.end})"]
    if isinstance(item, NeighbourEvidence):
        mark = f"yes, {100 * item.share:.1f} % of the vote" if item.holds else "no"
        lines = [f"  {item.similarity:8.4f}  has it: {mark}  {item.id}  {shortened(item.snippet, 70)}"]
        return [*lines, f"            labels: {shortened(', '.join(item.labels), 90)}"]
    if isinstance(item, PathStep):
        return [f"  {item.probability:8.4f}  level {item.depth}: {shortened(', '.join(item.labels), 80)}"]
    if isinstance(item, AspectEvidence | GroupEvidence):
        name = f"aspect {item.aspect}" if isinstance(item, AspectEvidence) else item.label
        return [f"  {item.weight:+8.4f}  {name}  ({100 * item.attention:.1f} % of the attention)"]
    if isinstance(item, MemberEvidence):
        return [f"  {item.score:8.4f}  {item.model}  ({100 * item.share:.0f} % of the answer)"]
    raise TypeError(f"no view for {type(item).__name__}")
