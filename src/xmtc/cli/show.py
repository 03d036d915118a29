"""Plain-text views of results: metrics, rankings and explanations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from xmtc.cli.output import output_width
from xmtc.cli.text_table import paragraph, table, wrap
from xmtc.core.errors import shown
from xmtc.core.explanation import (
    AspectEvidence,
    Explanation,
    FeatureEvidence,
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


def metrics_table(
    named: Mapping[str, Mapping[str, float]], intervals: Mapping[str, Mapping[str, Interval]] | None = None
) -> str:
    """Metrics in percent, one column per model; confidence intervals follow their value."""
    kinds = list(dict.fromkeys(name.partition("@")[0] for metrics in named.values() for name in metrics))
    cuts = list(dict.fromkeys(name.partition("@")[2] for metrics in named.values() for name in metrics))

    def cell(model: str, name: str) -> str:
        if name not in named[model]:
            return "–"
        spans = {key: _span(found) for key, found in (intervals or {}).get(model, {}).items()}
        room = max(map(len, spans.values()), default=0)  # values without an interval stay aligned
        return f"{100 * named[model][name]:.2f}{spans.get(name, '').ljust(room)}"

    rows = [[f"{kind}@{cut}", *(cell(model, f"{kind}@{cut}") for model in named)] for kind in kinds for cut in cuts]
    return table(["%", *named], rows, right=range(1, len(named) + 1))


def _span(interval: Interval) -> str:
    return f"  [{100 * interval.low:.2f}, {100 * interval.high:.2f}]"


def groups_table(groups: Mapping[str, Sequence[FrequencyGroup]]) -> str:
    """AUC and AUPR in percent by label frequency, most frequent first, for each treatment of ties."""
    first = next(iter(groups.values()))
    names = ["head", "middle", "tail"] if len(first) == 3 else [str(number + 1) for number in range(len(first))]
    rows = []
    for at, (name, group) in enumerate(zip(names, first, strict=True)):
        values = [_percent(value) for found in groups.values() for value in (found[at].auc, found[at].aupr)]
        rows.append([name, f"≥ {group.least:,}", f"{group.labels:,}", *values])
    header = ["labels", "test documents", "count", *(f"{what} {ties}" for ties in groups for what in ("AUC", "AUPR"))]
    return table(header, rows, right=range(1, len(header)))


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{100 * value:.2f}"


def tail_table(tail: Mapping[str, Mapping[str, float]]) -> str:
    """P@k of the rarest labels in percent, with both denominators."""
    cuts = list(next(iter(tail.values())))
    rows = [[f"Σ {name}(documents, k)", *(f"{100 * values[cut]:.2f}" for cut in cuts)] for name, values in tail.items()]
    return table(["rarest labels, % of", *cuts], rows, right=range(1, len(cuts) + 1))


def reliability_words(found: Reliability) -> str:
    """The expected calibration error in words."""
    bins = f"{len(found.bins)} equal-sized bin{'' if len(found.bins) == 1 else 's'}"
    return f"expected calibration error of the top {found.k} labels: {found.error:.4f} ({bins})"


def reliability_table(found: Reliability) -> str:
    """Mean score and observed precision of each bin, lowest scores first."""
    rows = [
        [
            f"{each.lowest:.4f} to {each.highest:.4f}",
            f"{each.confidence:.4f}",
            f"{each.accuracy:.4f}",
            f"{each.count:,}",
        ]
        for each in found.bins
    ]
    return table(["scores", "mean score", "observed precision", "pairs"], rows, right=(1, 2, 3))


SET_METRICS = {
    "micro": "micro-F1",
    "macro": "macro-F1",
    "document": "document-F1",
    "precision": "precision",
    "recall": "recall",
}


def _rule(rule: Thresholds) -> str:
    """A tuned threshold in words."""
    if rule.kind == "document":
        return "best label set of each document"
    best = f"optimised for {SET_METRICS[rule.measure]}"
    if rule.by_label is None:
        return f"global {rule.value:.4f}, {best}"
    own = int((rule.by_label != rule.by_label.dtype.type(rule.value)).sum())
    others = f", {rule.value:.4f} for the others" if own < len(rule.by_label) else ""
    return f"one per label for {own:,} of {len(rule.by_label):,} labels{others}, {best}"


def sets_line(threshold: Thresholds | float, scores: Mapping[str, float]) -> str:
    """Metrics of label sets, in percent."""
    where = f"threshold {threshold:g}" if isinstance(threshold, float) else f"tuned threshold ({_rule(threshold)})"
    metrics = [f"{name} {100 * scores[key]:.2f}" for key, name in SET_METRICS.items()]
    return paragraph(f"{where}, %: {', '.join(metrics)}, {scores['labels']:.2f} labels per document")


def sets_table(named: Mapping[str, Mapping[str, float]]) -> str:
    """Metrics of label sets in percent, and their mean size, one column per model."""
    rows = [[name, *(f"{100 * scores[key]:.2f}" for scores in named.values())] for key, name in SET_METRICS.items()]
    rows.append(["labels per document", *(f"{scores['labels']:.2f}" for scores in named.values())])
    return table(["tuned threshold, %", *named], rows, right=range(1, len(named) + 1))


def calibration_table(found: Decisions) -> str:
    """The metrics of a calibration on the validation set."""
    before, after = (f"{found.facts[name]:.4f}" if name in found.facts else "–" for name in ("ECE@5 before", "ECE@5"))
    changed = after if found.calibration is None else f"{before} before, {after} after"
    rows = [[f"expected calibration error, top {min(5, found.depth)}", changed]]
    if found.thresholds is not None:
        rows.append(["threshold", _rule(found.thresholds)])
        rows += [[f"{name}, %", f"{100 * found.facts['F1'][key]:.2f}"] for key, name in SET_METRICS.items()]
        rows.append(["labels per document", f"{found.facts['F1']['labels']:.2f}"])
    method = "no calibration" if found.calibration is None else f"{found.calibration.method} calibration"
    return table([f"on {found.facts['documents']:,} documents", method], rows)


def overlap_table(tops: Mapping[str, TopK], cuts: Sequence[int] = (1, 3, 5)) -> str:
    """Overlap of the top k labels of each pair of models, in percent."""
    from xmtc.workflows.compare import overlap

    pairs = list(combinations(tops, 2))
    rows = [[f"{a} – {b}", *(f"{100 * overlap(tops[a], tops[b], k):.2f}" for k in cuts)] for a, b in pairs]
    return table(["shared labels, %", *(f"top {k}" for k in cuts)], rows, right=range(1, len(cuts) + 1))


def difference_table(named: Mapping[str, Mapping[str, Interval]], first: str) -> str:
    """Differences from the first model in percentage points; * marks intervals that exclude 0."""

    def cell(interval: Interval) -> str:
        return f"{100 * interval.value:+.2f}{_span(interval)}{' *' if interval.low > 0 or interval.high < 0 else '  '}"

    metrics = list(next(iter(named.values())))
    rows = [[metric, *(cell(found[metric]) for found in named.values())] for metric in metrics]
    return table([f"difference from {first}", *named], rows, right=range(1, len(named) + 1))


def ranking(answer: TopK, texts: Sequence[str] | None = None, truth: Sequence[Collection[str]] | None = None) -> str:
    """The labels of each document with scores, one per line; * marks the labels in `truth`."""
    blocks, room = [], output_width()
    for number, pairs in enumerate(answer.pairs()):
        title = shown(answer.ids[number], 200) if texts is None else shortened(texts[number], room)
        right = () if truth is None else truth[number]
        lines = []
        for name, score in pairs:
            first, *more = wrap(shown(name, 200) + ("  *" if name in right else ""), room - 12)
            lines += [f"  {score:8.4f}  {first}", *(" " * 12 + part for part in more)]
        lines = lines or ["  (no label)"]
        blocks.append("\n".join([title, *lines]))
    return "\n".join(blocks)


def shortened(text: str, width: int) -> str:
    """The start of a text, on one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1].rstrip() + "…"


NOTHING = "nothing in this text is evidence for or against it"
NO_MATCH = "no word of this text matches a name of the label"
CONSTANTS = {
    "tokens": "intercept, independent of the text",
    "neighbours": "score of the label itself, besides the vote",
}


HEADINGS: dict[type, str] = {AspectEvidence: "aspects of the text", GroupEvidence: "related labels"}
"""Headings for the kinds of evidence that occur together in one explanation."""


def explanation(found: Explanation, most: int = 10) -> str:
    """An explanation as text; the layout depends on the kind of evidence."""
    lines = [f"{shortened(found.label, output_width() - 17)}   score {found.score:.4f}"]
    if len(found.path) > 1:
        lines.append("  path to the label in the tree with the highest score:")
        lines += [line for step in found.path for line in _evidence(step)]
        lines.append("  words for the label itself:")
    if not found.evidence:
        lines.append(f"  {NO_MATCH if found.features else NOTHING}")
    if found.shares and found.evidence:
        lines.append("  attention weights:")
    if found.constant:
        lines.append(f"  {found.constant:+8.4f}  ({CONSTANTS.get(found.kind, CONSTANTS['tokens'])})")
    if found.text_vector:
        lines.append(f"  {found.text_vector:+8.4f}  (vector of the whole text)")
    headed: set[type] = set()
    for item in found.evidence[:most]:
        if type(item) in HEADINGS and type(item) not in headed:
            lines.append(f"  {HEADINGS[type(item)]} and their contributions to the score before the sigmoid:")
            headed.add(type(item))
        lines += _evidence(item)
    more = len(found.evidence) - most
    if more > 0:
        lines.append(f"  … and {more} more")
    if found.features:
        lines.append("  features of the match (the same score before the sigmoid):")
        lines += _feature_lines(found.features)
    return "\n".join(lines)


def _feature_lines(features: Sequence[FeatureEvidence]) -> list[str]:
    """Contribution, name and value of each feature, in columns."""
    room = max(len(item.feature) for item in features)
    values = [shown(item.shown_value(), 200) for item in features]
    width = max(map(len, values))
    return [
        f"  {item.weight:+8.4f}  {item.feature:<{room}}  {value:>{width}}"
        for item, value in zip(features, values, strict=True)
    ]


def _evidence(item: object) -> list[str]:
    room = output_width()
    if isinstance(item, TokenEvidence):
        return [f"  {item.weight:+8.4f}  {item.text}  ({item.start}–{item.end})"]
    if isinstance(item, NeighbourEvidence):
        mark = f"yes, {100 * item.share:.1f} % of the vote" if item.holds else "no"
        head = f"  {item.similarity:8.4f}  has the label: {mark}  {shown(item.id)}"
        fits = len(head) < room - 30
        snippet = shortened(item.snippet, room - len(head) - 2 if fits else room - 12)
        return [
            *([f"{head}  {snippet}"] if fits else [head, " " * 12 + snippet]),
            f"            labels: {shortened(', '.join(item.labels), room - 20)}",
        ]
    if isinstance(item, PathStep):
        return [f"  {item.probability:8.4f}  level {item.depth}: {shortened(', '.join(item.labels), room - 22)}"]
    if isinstance(item, AspectEvidence | GroupEvidence):
        name = f"aspect {item.aspect}" if isinstance(item, AspectEvidence) else item.label
        return [f"  {item.weight:+8.4f}  {name}  ({100 * item.attention:.1f} % of the attention)"]
    if isinstance(item, MemberEvidence):
        return [f"  {item.score:8.4f}  {item.model}  ({100 * item.share:.0f} % of the score)"]
    raise TypeError(f"no view for {type(item).__name__}")
