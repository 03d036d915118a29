"""The text that `xmtc data describe` and `xmtc data head` print."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from xmtc.cli.output import output_width
from xmtc.cli.show import shortened
from xmtc.cli.text_table import table
from xmtc.core.errors import shown
from xmtc.views.bins import Bins, doubling_bins, even_bins, format_mean
from xmtc.workflows.describe import SHARES, Dataset, Description, Distribution, Repeats

BLOCKS = "▁▂▃▄▅▆▇█"
MOST_BLOCKS = 16
_NAMED = {0.0: "min", 0.5: "median", 1.0: "max"}
KINDS = (
    *("labels per document", "documents per label"),
    *("words per text", "characters per text", "features per document"),
)


def description_text(name: str, description: Description, other_name: str | None = None) -> str:
    """The statistics of one or two files as tables, and the overlap of two files."""
    files = {_file(name): description}
    if description.other is not None:
        second = _file(other_name or "second file")
        files[second if second not in files else f"{second} (2)"] = description.other
    parts = [_facts(files), _distributions(files)]
    if description.other is not None:
        parts.append(_shared(description, description.other, *files))
    return "\n\n".join(parts)


def _file(name: str) -> str:
    """The end of a path, which is its most specific part."""
    return shown(name if len(name) <= 32 else "…" + name[-31:])


def _of(count: int, total: int) -> str:
    """A count, and in percent of a total."""
    return f"{count:,} ({_percent(count / total)})" if count and total else f"{count:,}"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 or not share else "< 0.1 %"


def _repeated(found: Repeats, things: str) -> str:
    return f"{found.further:,} (of {found.distinct:,} {things})" if found.further else "0"


def _facts(files: dict[str, Description]) -> str:
    """One column per file; '–' for lines that do not apply."""
    columns = [_blocks(each) for each in files.values()]
    rows = []
    for blocks in zip(*columns, strict=True):
        titles = dict.fromkeys(title for block in blocks for title in block)
        rows += [[title, *(block.get(title, "–") for block in blocks)] for title in titles]
    return table(["", *files], rows, right=range(1, len(files) + 1))


def _blocks(found: Description) -> list[dict[str, str]]:
    """Lines on documents, labels and features."""
    documents = {"documents": f"{found.documents:,}"}
    labels, features = {}, {}
    if found.labels is not None:
        documents["  without labels"] = _of(found.labels.documents_without, found.documents)
        labels["labels in use"] = f"{found.labels.occurring:,}"
        labels["  with one document"] = _of(found.labels.seen_once, found.labels.occurring)
        labels["(document, label) pairs"] = f"{found.labels.pairs:,}"
        for percent, share in found.labels.head_shares.items():
            labels[f"  of the top {percent} % of labels"] = _percent(share)
        if found.labels.columns > found.labels.occurring:
            labels["labels without documents"] = f"{found.labels.columns - found.labels.occurring:,}"
    if found.text is not None:
        documents["  without words"] = _of(found.text.empty, found.documents)
    if found.features is not None:
        documents["  without features"] = _of(found.features.empty, found.documents)
        features = {"features": f"{found.features.width:,}", "  in use": f"{found.features.used:,}"}
    things = "texts" if found.text is not None else "rows"
    documents["  duplicates"] = _repeated(found.repeated_documents, things)
    if found.repeated_ids is not None:
        documents["  with a duplicate id"] = _repeated(found.repeated_ids, "ids")
    return [documents, labels, features]


def _distributions(files: dict[str, Description]) -> str:
    """Two tables: means and quantiles, and histograms, which would be too wide together."""
    many = len(files) > 1
    figures = {name: _counted(each) for name, each in files.items()}
    rows, drawn = [], []
    for kind in KINDS:
        found = {name: each[kind] for name, each in figures.items() if kind in each}
        doubling = kind == "documents per label"
        bins = doubling_bins(list(found.values())) if doubling else even_bins(list(found.values()), MOST_BLOCKS)
        for number, (name, each) in enumerate(found.items()):
            quantiles = [f"{each.quantile(share):,}" for share in SHARES]
            title = [kind if not number else "", *([name] if many else [])]
            rows.append([*title, format_mean(each.mean), *quantiles])
            drawn.append([*title, text_histogram(each, bins, doubling)])
    first = ["", *(["file"] if many else [])]
    header = [*first, "mean", *(_NAMED.get(share, f"{100 * share:g} %") for share in SHARES)]
    numbers = table(header, rows, right=range(len(first), len(header)))
    return numbers + "\n\n" + table([*first, "histogram"], drawn)


def _counted(found: Description) -> dict[str, Distribution]:
    counted: dict[str, Distribution] = {}
    if found.labels is not None:
        counted |= {"labels per document": found.labels.per_document, "documents per label": found.labels.per_label}
    if found.text is not None:
        counted |= {"words per text": found.text.words, "characters per text": found.text.characters}
    if found.features is not None:
        counted["features per document"] = found.features.per_document
    return counted


def text_histogram(distribution: Distribution, bins: Bins, logarithmic: bool = False) -> str:
    """One block per bin, as high as its count or the logarithm of it, between the ends of the axis."""
    counts = bins.count(distribution).tolist()
    heights = [math.log2(count + 1) if logarithmic else count for count in counts]
    top = max(heights) or 1
    blocks = "".join(BLOCKS[math.ceil(height / top * len(BLOCKS)) - 1] if height else " " for height in heights)
    end = f"≥{bins.edges[-2]:,}" if bins.open_end else f"{bins.edges[-1] - 1:,}"
    return f"{bins.edges[0]} {blocks} {end}{' (log)' if logarithmic else ''}"


def _shared(first: Description, second: Description, first_name: str, second_name: str) -> str:
    """The overlap of the second file with the first."""
    overlap = first.overlap
    assert overlap is not None
    rows: list[Sequence[str]] = []
    if overlap.documents is not None:
        rows.append([f"documents also in {first_name}", _of(overlap.documents, second.documents)])
    if overlap.ids is not None:
        rows.append([f"document ids also in {first_name}", _of(overlap.ids, second.documents)])
    if overlap.unseen_labels is not None and overlap.unseen_pairs is not None and second.labels is not None:
        rows.append([f"labels not in {first_name}", _of(overlap.unseen_labels, second.labels.occurring)])
        rows.append(["(document, label) pairs with these labels", _of(overlap.unseen_pairs, second.labels.pairs)])
    return table([f"of {second_name}", ""], rows, right=[1]) if rows else ""


def head_text(dataset: Dataset, count: int) -> str:
    """The first documents: id, start of the text or first features, and label names."""
    some = dataset.slice(0, count)
    texts = some.text().to_pylist() if some.has_text else None
    blocks = []
    for row, document in enumerate(some.document_ids()):
        lines = [shown(document)]
        if texts is not None:
            lines.append(f"  {_start(texts[row], output_width() - 2) or '(no text)'}")
        elif some.features is not None:
            features = some.features[[row]]
            pairs = zip(features.indices[:8].tolist(), features.data[:8].tolist(), strict=True)
            pairs_text = " ".join(f"{feature}:{value:.4g}" for feature, value in pairs)
            lines.append(f"  {features.nnz:,} features: {pairs_text}{' …' if features.nnz > 8 else ''}")
        if some.labels is not None and some.label_index is not None:
            names = some.label_index.strings("name", some.labels[[row]].indices)
            lines.append(f"  labels: {_start(', '.join(names), output_width() - 10) or '(none)'}")
        blocks.append("\n".join(lines))
    more = len(dataset) - len(some)
    return "\n".join([*blocks, *([f"… and {more:,} more"] if more > 0 else [])])


def head_rows(dataset: Dataset, count: int) -> list[dict[str, Any]]:
    """The first documents for JSON: id, text or features, and labels."""
    some = dataset.slice(0, count)
    texts = some.text().to_pylist() if some.has_text else None
    rows = []
    for at, document in enumerate(some.document_ids()):
        row: dict[str, Any] = {"id": document}
        if texts is not None:
            row["text"] = texts[at]
        elif some.features is not None:
            features = some.features[[at]]
            row["features"] = dict(zip(features.indices.tolist(), features.data.tolist(), strict=True))
        if some.labels is not None and some.label_index is not None:
            numbers = some.labels[[at]].indices
            keys, names = (some.label_index.strings(what, numbers) for what in ("key", "name"))
            row["labels"] = [{"key": key, "name": name} for key, name in zip(keys, names, strict=True)]
        rows.append(row)
    return rows


def _start(text: str, width: int) -> str:
    """The start of a text on one line, without control characters."""
    return shown(shortened(text, width), width)
