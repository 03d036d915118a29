"""JSONL: one document a line, {"id": …, "text": …, "labels": […]}."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from xmtc.data.records import Records
from xmtc.errors import DataError, shown
from xmtc.files import has_surrogate, parse_lines, read_blocks

TEXT_FIELDS = ("title", "abstract", "body", "content", "description")
LABEL_FIELDS = ("labels", "tags")
_EXAMPLE = '{"text": "…", "labels": ["…"]}'


def read_jsonl(path: str | Path, text_fields: Sequence[str] | None = None, labelled: bool = True) -> Iterator[Records]:
    """Batches of documents. `labelled` asks for labels on every line; otherwise they are read where present."""
    number = 0
    if isinstance(text_fields, str):
        text_fields = (text_fields,)
    fields = tuple(text_fields) if text_fields else None
    label_field: str | None = None
    for block in read_blocks(path):
        parsed = list(parse_lines(block, path, number, _EXAMPLE))
        number += block.count(b"\n")
        if not parsed:
            continue
        if fields is None:
            fields = _text_fields(parsed[0][1], f"{path}:{parsed[0][0]}")
        if label_field is None:
            label_field = next((name for name in LABEL_FIELDS if name in parsed[0][1]), LABEL_FIELDS[0])
        yield _records(parsed, path, fields, label_field, labelled)


def _text_fields(first: dict[str, Any], place: str) -> tuple[str, ...]:
    """'text', or all that may stand in its place: what the first document lacks, a later one may have."""
    if "text" in first:
        return ("text",)
    if not any(isinstance(first.get(name), str) for name in TEXT_FIELDS):
        keys = ", ".join(shown(name) for name in list(first)[:8]) or "none"
        raise DataError(f'{place}: no text. Name the field "text" (found: {keys}).')
    return tuple(name for name in TEXT_FIELDS if isinstance(first.get(name), (str, type(None))))


def _records(
    parsed: list[tuple[int, dict[str, Any]]],
    path: str | Path,
    fields: tuple[str, ...],
    label_field: str,
    labelled: bool,
) -> Records:
    texts: dict[str, list[str]] = {name: [] for name in fields}
    ids: list[str] = []
    counts: list[int] = []
    keys: list[str] = []
    for number, row in parsed:
        for name in fields:
            text = row.get(name)
            if not isinstance(text, str):
                texts[name].append(_missing_text(row, name, fields, f"{path}:{number}"))
            else:
                texts[name].append(text)
        labels = _labels(row, label_field, f"{path}:{number}", labelled)
        keys += labels
        counts.append(len(labels))
        ids.append(_identifier(row.get("id"), number, f"{path}:{number}"))
    lines = [number for number, _ in parsed]
    columns = {name: _column(values, lines, path, name) for name, values in texts.items()}
    label_lines = [line for line, count in zip(lines, counts, strict=True) for _ in range(count)]
    _column(keys, label_lines, path, label_field)  # for its check
    return Records(ids=ids, lines=lines, fields=columns, label_counts=counts, label_keys=keys)


def _identifier(value: Any, number: int, place: str) -> str:
    if value is None:
        return str(number - 1)
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return str(value).encode("utf-8", "replace").decode()
    raise DataError(f"{place}: 'id' must be a string or an integer. Got {_json_kind(value)}.")


def _missing_text(row: dict[str, Any], name: str, fields: tuple[str, ...], place: str) -> str:
    value = row.get(name)
    if value is None and len(fields) > 1 and any(isinstance(row.get(other), str) for other in fields):
        return ""  # a document may lack a title or a body, not both
    if name not in row:
        wanted = f"'{shown(name)}'" if len(fields) == 1 else f"one of {', '.join(map(shown, fields))}"
        raise DataError(f"{place}: no text. Every line needs {wanted}.")
    raise DataError(f"{place}: '{shown(name)}' must be a string. Got {_json_kind(value)}.")


def _labels(row: dict[str, Any], name: str, place: str, labelled: bool) -> list[str]:
    labels = row.get(name)
    if name not in row:
        if labelled:
            raise DataError(f"{place}: no '{name}'. Add a list of labels; it may be empty: [].")
        return []
    if not isinstance(labels, list):
        if not labelled:
            return []  # nobody asked for them
        raise DataError(f'{place}: \'{name}\' must be a list such as ["a", "b"]. Got {_json_kind(labels)}.')
    out = []
    for label in labels:
        if isinstance(label, str):
            out.append(label)
        elif isinstance(label, int) and not isinstance(label, bool):
            out.append(str(label))
        else:
            raise DataError(f"{place}: a label must be a string or an integer. Got {_json_kind(label)}.")
    if "" in out:
        raise DataError(f"{place}: a label is empty. Take it out of the list.")
    return out


def _json_kind(value: Any) -> str:
    kinds = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), "a number")


def _column(values: list[str], lines: list[int], path: str | Path, name: str) -> pa.Array:
    """Strings as an Arrow array; half a surrogate pair, which JSON can write and UTF-8 cannot, is named."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        for line, value in zip(lines, values, strict=True):
            if has_surrogate(value):
                raise DataError(
                    f"{path}:{line}: '{shown(name)}' holds half of a surrogate pair. Write the whole character."
                ) from None
        raise
