"""Read predictions written by xmtc, PECOS, fastText or other programs as a TopK."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from xmtc.core.errors import DataError, nearest, shown
from xmtc.core.files import decode_line, first_bytes, plain_name
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.lines import numbered_lines
from xmtc.data.matrices import read_matrix
from xmtc.data.rows import ID_FIELDS, KEY_PARTS, LABEL_FIELDS, NAME_PARTS, first_of
from xmtc.data.sparse import MOST_LABELS
from xmtc.data.tables import labels_in_cell, table_cells
from xmtc.data.topk import TopK, read_rows

FORMATS = ("jsonl", "parquet", "tsv", "csv", "fasttext", "npz", "xc")
KEY_FIELDS = ("key", "uri", "label_key", "subject", "label")
LIST_FIELDS = ("predictions", "labels", *LABEL_FIELDS)
"""Fields with a document's predicted labels, by precedence; a file may also contain the true labels."""
SCORE_FIELDS = ("score", "probability", "confidence", "suggestion_score")
_EXAMPLE = '{"id": "…", "labels": ["…"]}'
_XC_HEADER = re.compile(rb"\s*\d+\s+\d+\s*")
_PREFIX = "__label__"
_FASTTEXT_BLANKS = re.compile(r"[ \t\v\f\0]+")

Ranking = tuple[str | None, list[tuple[str, str, float]]]
"""A document's id, if the file has ids, and (key, name, score) of its labels, best first."""


@dataclass(frozen=True)
class PredictionFile:
    """Predictions read from a file."""

    top: TopK
    has_ids: bool
    """Whether the file has document ids; otherwise lines are matched by order."""
    numbered: bool = False
    """Whether labels are given by number only."""
    line_a_label: bool = False
    """Whether the file is a table with one line per label, in which documents without labels do not occur."""


def read_predictions(path: str | Path, file_format: str | None = None, most: int | None = None) -> PredictionFile:
    """Read predictions from a file or a folder of parts; labels are numbered by first occurrence.

    Labels are ordered by score, or as in the file if it has no scores. Only the first `most` labels of each document
    are kept.
    """
    if file_format is not None and file_format not in FORMATS:
        near = nearest(file_format, FORMATS)
        raise DataError(f"{path}: no prediction format '{shown(file_format)}'.{near} Available: {', '.join(FORMATS)}.")
    kind = file_format or _detected(path)
    if kind == "npz":
        return _matrix(path, most)
    line_a_label = False
    rankings: Iterable[Ranking]
    if kind in ("csv", "tsv"):
        line_a_label, rankings = _table(path, kind)
    else:
        readers = {"fasttext": _fasttext, "xc": _xc}
        rankings = readers[kind](path) if kind in readers else _records(path, kind)
    ids: list[str] = []
    without_id = 0

    def labels_only() -> Iterator[list[tuple[str, str, float]]]:
        nonlocal without_id
        for document, labels in rankings:
            without_id += document is None
            ids.append(str(len(ids)) if document is None else document)
            yield labels[:most]

    top = TopK.from_rankings(ids, labels_only())
    if not ids:
        raise DataError(f"{path}: contains no predictions. Write one object per line: {_EXAMPLE}.")
    return PredictionFile(top, not without_id, numbered=kind == "xc", line_a_label=line_a_label)


def match_to(predictions: PredictionFile, test: Dataset, path: str | Path) -> TopK:
    """Align predictions with the test documents: by id if the file has ids, otherwise line by line.

    A missing document is an error, except in a table with one line per label, where it has no labels.
    """
    top, wanted = predictions.top, test.document_ids()
    if predictions.has_ids and top.ids != wanted:
        place = {name: row for row, name in enumerate(top.ids)}
        if len(place) < len(top):
            twice = next(name for row, name in enumerate(top.ids) if place[name] != row)
            raise DataError(f"{path}: document '{shown(twice)}' occurs twice. Remove the duplicate.")
        if len(set(wanted)) < len(wanted):
            raise DataError(
                f"{path}: two test documents have the same id, so predictions cannot be matched. Use unique ids."
            )
        if not any(name in place for name in wanted):
            raise DataError(
                f"{path}: no id matches a test document: '{shown(top.ids[0])}' in the predictions, "
                f"'{shown(wanted[0])}' in the test set. Use the same ids, or none to match line by line."
            )
        rows = np.array([place.get(name, -1) for name in wanted], dtype=np.int64)
        foreign = len(place) > int((rows >= 0).sum())
        if (rows < 0).any() and (foreign or not predictions.line_a_label):
            missing = wanted[int(np.argmax(rows < 0))]
            raise DataError(
                f"{path}: no prediction for {int((rows < 0).sum()):,} of {len(wanted):,} test documents, such as "
                f"'{shown(missing)}'. Add them; the list of labels may be empty."
            )
        labels, scores = np.where(rows[:, None] < 0, -1, top.labels[rows]), top.scores[rows]
        return TopK(labels, np.where(labels < 0, -np.inf, scores), top.index, wanted)
    if len(top) != len(test):
        raise DataError(
            f"{path}: {len(top):,} predictions for {len(test):,} test documents, and no ids to match them. "
            "Write one line per document, in the same order."
        )
    return TopK(top.labels, top.scores, top.index, wanted)


def _detected(path: str | Path) -> str:
    if Path(path).is_dir():
        return "parquet"
    start, name = first_bytes(path), plain_name(path)
    if name.endswith(".npz"):
        return "npz"
    if start.startswith(b"PAR1") or name.endswith(".parquet"):
        return "parquet"
    line = start.removeprefix(b"\xef\xbb\xbf").lstrip().split(b"\n", 1)[0]
    if line.startswith(b"{") or name.endswith((".jsonl", ".ndjson")):
        return "jsonl"
    if name.endswith((".tsv", ".tab", ".csv")) and line:
        return "csv" if name.endswith(".csv") else "tsv"
    if b"__label__" in start:
        return "fasttext"
    if _XC_HEADER.fullmatch(line):
        return "xc"
    if not line:
        raise DataError(f"{path}: empty. Write one object per line: {_EXAMPLE}.")
    raise DataError(f"{path}:1: not a supported prediction format. Write one object per line: {_EXAMPLE}.")


def _records(path: str | Path, kind: str) -> Iterator[Ranking]:
    """Read JSON or Parquet records: labels as keys, as objects with key and score, or as keys and a 'scores' list."""
    if not Path(path).is_dir() and (kind == "parquet") != plain_name(path).endswith(".parquet"):
        problem = "is a Parquet file" if kind == "parquet" else f"the name ends in .parquet, but the format is {kind}"
        remedy = "Rename it to end in .parquet" if kind == "parquet" else "Rename it"
        raise DataError(f"{path}: {problem}. {remedy}.")
    for place, row in read_rows(path, _EXAMPLE):
        listed = first_of(row, LIST_FIELDS)
        if not isinstance(listed, list):
            raise DataError(f"{place}: no list of labels. Write {_EXAMPLE}.")
        scores = row.get("scores")
        if scores is not None and (not isinstance(scores, list) or len(scores) != len(listed)):
            raise DataError(f"{place}: 'scores' must be a list as long as the list of labels. Write one per label.")
        yield _identifier(row, place), _ordered([_label(item, place) for item in listed], scores, place)


def _identifier(row: dict[str, Any], place: str) -> str | None:
    value = first_of(row, ID_FIELDS)
    if value is not None and (not isinstance(value, (str, int)) or isinstance(value, bool)):
        raise DataError(f"{place}: 'id' must be a string or an integer. Got {shown(value)}.")
    return None if value is None else str(value).encode("utf-8", "replace").decode()


def _label(item: Any, place: str) -> tuple[str, str, Any]:
    """Return (key, name, score or None) of one label."""
    if isinstance(item, dict):
        key, name, score = (first_of(item, names) for names in ((*KEY_PARTS, *KEY_FIELDS), NAME_PARTS, SCORE_FIELDS))
    elif isinstance(item, (list, tuple)) and len(item) == 2:  # Parquet maps yield tuples
        key, name, score = item[0], None, item[1]
    else:
        key, name, score = item, None, None
    if not isinstance(key, (str, int)) or isinstance(key, bool) or key == "":
        raise DataError(f"{place}: a label has no key. Write {_EXAMPLE}, or objects with key and score.")
    text = str(key).encode("utf-8", "replace").decode()
    return text, name.encode("utf-8", "replace").decode() if isinstance(name, str) and name else text, score


def _ordered(
    labels: Sequence[tuple[str, str, Any]], scores: Sequence[Any] | None, place: str
) -> list[tuple[str, str, float]]:
    """Sort labels by score, best first. Without scores, keep their order and assign descending scores."""
    given = [label[2] for label in labels] if scores is None else list(scores)
    if len({key for key, _, _ in labels}) < len(labels):
        raise DataError(f"{place}: a label occurs twice. Remove the duplicate.")
    if all(score is None for score in given):
        given = [-rank for rank in range(1, len(labels) + 1)]  # negative, so not mistaken for probabilities
    numbers = [_number(score, place) for score in given]
    order = sorted(range(len(labels)), key=lambda at: -numbers[at])
    return [(labels[at][0], labels[at][1], numbers[at]) for at in order]


def _number(score: Any, place: str) -> float:
    try:
        value = math.nan if score is None or isinstance(score, bool) else float(score)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if math.isnan(value):
        raise DataError(f"{place}: a score is not a number. Give each label a score such as 0.5, or omit all scores.")
    return value


def _fasttext(path: str | Path) -> Iterator[Ranking]:
    """Read lines '__label__a 0.9 __label__b 0.2' as printed by `fasttext predict-prob`; `predict` omits the scores."""
    for block in numbered_lines(path):
        for number, line in block:
            place = f"{path}:{number}"
            labels: list[tuple[str, str, str | None]] = []
            for word in filter(None, _FASTTEXT_BLANKS.split(decode_line(line, path, number))):
                key = word.removeprefix(_PREFIX)
                if key != word and key:
                    labels.append((key, key, None))
                elif labels and labels[-1][2] is None and key == word:
                    labels[-1] = (*labels[-1][:2], word)
                else:
                    raise DataError(f"{place}: unexpected '{shown(word, 30)}'. Write __label__NAME SCORE.")
            yield None, _ordered(labels, None, place)


def _xc(path: str | Path) -> Iterator[Ranking]:
    """Read a header 'documents labels', then lines 'label:score label:score'."""
    documents = labels = 0
    seen = 0
    for block in numbered_lines(path):
        for number, line in block:
            place = f"{path}:{number}"
            text = decode_line(line, path, number)
            if number == 1:
                if not _XC_HEADER.fullmatch(line.removeprefix(b"\xef\xbb\xbf")):
                    raise DataError(f"{place}: not a header. Start with two integers: documents labels.")
                documents, labels = (int(_digits(part)) for part in text.split())
                continue
            pairs = []
            for key, colon, score in (part.partition(":") for part in text.split()):
                if not colon or not (key.isascii() and key.isdigit() and int(_digits(key)) < labels):
                    raise DataError(f"{place}: '{shown(key)}' is not a number below {labels:,}. Write label:score.")
                pairs.append((_digits(key), _digits(key), score))
            seen += 1
            yield None, _ordered(pairs, None, place)
    if seen != documents:
        raise DataError(f"{path}: {documents:,} documents in the header, but {seen:,} in the file. Correct the header.")


def _digits(number: str) -> str:
    """Return the first 12 significant digits, enough for range checks; Python rejects thousands of digits."""
    return number.lstrip("0")[:12] or "0"


def _table(path: str | Path, kind: str) -> tuple[bool, list[Ranking]]:
    """Read a table with one line per label (id, key, score) or per document (id, labels, scores).

    Return whether it has one line per label, and the rankings.
    """
    cells = table_cells(path, quoted=kind == "csv")
    number, header = next(cells, (1, []))
    if isinstance(header, DataError):
        raise header
    names = [name.strip().lower() for name in header]

    def column(wanted: Iterable[str]) -> int | None:
        return next((names.index(name) for name in wanted if name in names), None)

    document, key, score = column(ID_FIELDS), column(KEY_FIELDS), column(SCORE_FIELDS)
    listed = None if key is not None else column(LIST_FIELDS)
    scores, shown_name = column(("scores",)), column(NAME_PARTS)
    if document is None or (key is None and listed is None):
        found = ", ".join(map(shown, header[:8])) or "none"
        raise DataError(f"{path}:{number}: columns id and key (or labels) are required. Found: {found}. Rename them.")
    grouped: dict[str, list[tuple[str, str, Any]]] = {}
    places: dict[str, str] = {}
    for number, row in cells:
        place = f"{path}:{number}"
        if isinstance(row, DataError):
            raise row
        if len(row) != len(names):
            raise DataError(f"{place}: {len(row)} cells, but {len(names)} in the header. Correct the line.")
        if listed is not None and row[document] in grouped:
            raise DataError(f"{place}: document '{shown(row[document])}' occurs twice. Write one line per document.")
        labels = grouped.setdefault(row[document], [])
        places.setdefault(row[document], place)
        if listed is not None:
            labels += _listed(row[listed], None if scores is None else row[scores], place)
        elif key is not None and row[key]:
            name = row[shown_name] if shown_name is not None and row[shown_name] else row[key]
            labels.append((row[key], name, None if score is None or not row[score] else row[score]))
    return listed is None, [(name, _ordered(labels, None, places[name])) for name, labels in grouped.items()]


def _listed(cell: str, scores: str | None, place: str) -> list[tuple[str, str, Any]]:
    """Parse the labels of one cell with the scores of another."""
    labels = [_label(item, place) for item in labels_in_cell(cell, ";", place)]
    if scores is None:
        return labels
    given = labels_in_cell(scores, ";", place)
    if len(given) != len(labels):
        raise DataError(f"{place}: {len(labels)} labels but {len(given)} scores. Write one score per label.")
    return [(key, name, score) for (key, name, _), score in zip(labels, given, strict=True)]


def _matrix(path: str | Path, most: int | None) -> PredictionFile:
    """Read a sparse matrix of scores, documents × labels; only stored entries are predictions."""
    scores = read_matrix(path)
    if scores.shape[1] > MOST_LABELS:
        raise DataError(f"{path}: {scores.shape[1]:,} labels are too many (maximum {MOST_LABELS:,}).")
    counts = np.diff(scores.indptr)
    width = min(int(counts.max(initial=0)), scores.shape[1] if most is None else most)
    labels = np.full((scores.shape[0], width), -1, dtype=np.int64)
    given = np.full((scores.shape[0], width), -np.inf, dtype=np.float32)
    rows = np.repeat(np.arange(scores.shape[0]), counts)
    order = np.lexsort((scores.indices, -scores.data, rows))
    at = np.arange(len(rows)) - np.repeat(scores.indptr[:-1], counts)
    kept = at < width
    rows, at, order = rows[kept], at[kept], order[kept]
    labels[rows, at], given[rows, at] = scores.indices[order], scores.data[order]
    return PredictionFile(TopK(labels, given, LabelIndex.numbered(scores.shape[1])), has_ids=False, numbered=True)
