"""Label vocabularies: names, alternatives and parents of labels, from JSONL, TSV or a plain list."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xmtc.data.jsonl import parse_lines
from xmtc.dataset import LabelIndex
from xmtc.errors import DataError
from xmtc.files import plain_name, read_blocks


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
            raise DataError(f"{place}: label '{key}' was on line {self.first_line[key]} before. Keep one of them.")
        self.first_line[key] = number
        self.keys.append(key)
        self.names.append(name or key)
        self.alternatives.append(_strings(more, ("alternatives", "alt"), place))
        self.parents.append(_strings(more, ("parents", "broader"), place))
        self.descriptions.append(str(more.get("description") or ""))


def read_vocabulary(path: str | Path) -> tuple[LabelIndex, bool]:
    """The labels of a vocabulary file, and whether it is a plain list, whose lines also number the labels from 0.

    JSONL: {"id" or "key", "name", "alt" or "alternatives", "parents", "description"}. TSV: key, name, description.
    """
    columns = _Columns()
    plain = True
    before = 0
    as_jsonl = plain_name(path).endswith((".jsonl", ".ndjson", ".json"))
    for block in read_blocks(path):
        if as_jsonl:
            plain = False
            for number, row in parse_lines(block, path, before):
                key = row.get("key", row.get("id"))
                if not isinstance(key, (str, int)) or isinstance(key, bool):
                    raise DataError(f'{path}:{number}: no "key" or "id". Each label needs one.')
                columns.add(f"{path}:{number}", number, str(key), str(row.get("name") or ""), row)
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
    if before == 0:
        block = block.removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(block.split(b"\n"), start=before + 1):
        try:
            text = line.decode("utf-8").rstrip("\r")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{path}:{number}: not UTF-8 (byte {line[error.start]:#04x}). Convert the file to UTF-8."
            ) from None
        if not text.strip():
            continue
        key, tab, rest = text.partition("\t")
        name, _, description = rest.partition("\t")
        plain &= not tab
        columns.add(f"{path}:{number}", number, key.strip(), name.strip(), {"description": description.strip()})
    return plain


def _strings(row: dict[str, Any], names: tuple[str, ...], place: str) -> list[str]:
    for name in names:
        if row.get(name) is not None:
            value = row[name]
            if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
                raise DataError(f"{place}: '{name}' must be a list of strings.")
            return [str(item) for item in value]
    return []
