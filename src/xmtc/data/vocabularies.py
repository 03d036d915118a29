"""Label vocabularies: names, alternatives and parents of labels, from JSONL, TSV or a plain list."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xmtc.dataset import LabelIndex
from xmtc.errors import DataError, shown
from xmtc.files import decode_line, has_surrogate, parse_lines, plain_name, read_blocks

_EXAMPLE = '{"key": "…", "name": "…"}'


@dataclass
class _Columns:
    keys: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    alternatives: list[list[str]] = field(default_factory=list)
    parents: list[list[str]] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    first_line: dict[str, int] = field(default_factory=dict)

    def add(self, place: str, number: int, key: str, name: str, more: dict[str, Any]) -> None:
        if not key:
            raise DataError(f"{place}: a label without a key. Give each label one.")
        if key in self.first_line:
            raise DataError(
                f"{place}: label '{shown(key)}' was on line {self.first_line[key]} before. Keep one of them."
            )
        self.first_line[key] = number
        self.keys.append(key)
        self.names.append(name or key)
        self.alternatives.append(_strings(more, ("alternatives", "alt"), place))
        self.parents.append(_strings(more, ("parents", "broader"), place))
        self.descriptions.append(_string(more, "description", place))


def read_vocabulary(path: str | Path, numbered: bool = False) -> tuple[LabelIndex, bool]:
    """The labels of a vocabulary file, and whether it is a plain list.

    JSONL: {"id" or "key", "name", "alt" or "alternatives", "parents", "description"}. TSV: key, name, description.
    With `numbered`, the lines of a plain list name the labels 0, 1, …; a name may then be empty or there twice.
    """
    names = _plain_lines(path) if numbered and not _is_jsonl(path) else None
    if names:
        return LabelIndex.numbered(len(names), [name or str(number) for number, name in enumerate(names)]), True
    columns = _Columns()
    plain = True
    before = 0
    as_jsonl = _is_jsonl(path)
    for block in read_blocks(path):
        if as_jsonl:
            plain = False
            for number, row in parse_lines(block, path, before, _EXAMPLE):
                place = f"{path}:{number}"
                key = row.get("id") if row.get("key") is None else row["key"]
                if not isinstance(key, (str, int)) or isinstance(key, bool):
                    raise DataError(f'{place}: no "key" or "id". Give each label one.')
                columns.add(place, number, _whole(str(key), "key", place), _string(row, "name", place), row)
        else:
            plain &= _add_lines(columns, block, path, before)
        before += block.count(b"\n")
    if not columns.keys:
        raise DataError(f"{path}: no labels in it. Write one a line.")
    index = LabelIndex.from_keys(
        columns.keys, columns.names, columns.alternatives, columns.parents, columns.descriptions
    )
    return index, plain


def _add_lines(columns: _Columns, block: bytes, path: str | Path, before: int) -> bool:
    """Add the lines of a TSV or a plain list; tells whether no line had a tab."""
    plain = True
    for number, line in enumerate(block.split(b"\n"), start=before + 1):
        text = decode_line(line, path, number)
        if not text.strip():
            continue
        key, tab, rest = text.partition("\t")
        name, _, description = rest.partition("\t")
        plain &= not tab
        columns.add(f"{path}:{number}", number, key.strip(), name.strip(), {"description": description.strip()})
    return plain


def _plain_lines(path: str | Path) -> list[str] | None:
    """The lines of a plain list, or None where one has a tab."""
    names: list[str] = []
    for block in read_blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            names.append(decode_line(line, path, len(names) + 1).strip(" "))
            if "\t" in names[-1]:
                return None
    return names


def _is_jsonl(path: str | Path) -> bool:
    return plain_name(path).endswith((".jsonl", ".ndjson", ".json"))


def _string(row: dict[str, Any], name: str, place: str) -> str:
    value = row.get(name)
    if not isinstance(value, (str, type(None))):
        raise DataError(f"{place}: '{name}' must be a string. Got {shown(value)}.")
    return _whole(value or "", name, place)


def _strings(row: dict[str, Any], names: tuple[str, ...], place: str) -> list[str]:
    for name in names:
        if row.get(name) is not None:
            value = row[name]
            if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
                raise DataError(f"{place}: '{name}' must be a list of strings. Got {shown(value)}.")
            return [_whole(str(item), name, place) for item in value]
    return []


def _whole(text: str, name: str, place: str) -> str:
    if has_surrogate(text):
        raise DataError(f"{place}: '{name}' holds half of a surrogate pair. Write the whole character.")
    return text
