"""Label vocabularies: names, alternatives and parents of labels, from JSONL, TSV, a plain list or SKOS."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from xmtc.dataset import LabelIndex
from xmtc.errors import DataError, shown
from xmtc.files import decode_line, has_surrogate, parse_lines, plain_name, read_blocks, replace_file

_EXAMPLE = '{"key": "…", "name": "…"}'


@dataclass(frozen=True)
class Vocabulary:
    """The labels that documents may hold, and what became of those that they may hold no longer."""

    index: LabelIndex
    """The labels in use, in file order."""
    plain: bool = False
    """A list of names without keys."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Key of a deprecated label → key of the label in use that stands for it now."""
    deprecated: frozenset[str] = frozenset()
    """Deprecated labels that nothing in use stands for."""


@dataclass
class _Columns:
    keys: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    alternatives: list[list[str]] = field(default_factory=list)
    parents: list[list[str]] = field(default_factory=list)
    descriptions: list[str] = field(default_factory=list)
    replacements: dict[str, list[str]] = field(default_factory=dict)
    """Deprecated labels and what is said to replace each."""
    first_line: dict[str, int] = field(default_factory=dict)

    def add(self, place: str, number: int, key: str, name: str, more: Mapping[str, Any]) -> None:
        if not key:
            raise DataError(f"{place}: a label without a key. Give each label one.")
        if key in self.first_line:
            raise DataError(
                f"{place}: label '{shown(key)}' was on line {self.first_line[key]} before. Keep one of them."
            )
        self.first_line[key] = number
        alternatives = _strings(more, ("alternatives", "alt"), place)
        parents = _strings(more, ("parents", "broader"), place)
        description = _string(more, "description", place)
        replacements = _replacements(more, place)
        if replacements or _truth(more, "deprecated", place):
            self.replacements[key] = replacements
            return
        self.keys.append(key)
        self.names.append(name or key)
        self.alternatives.append(alternatives)
        self.parents.append(parents)
        self.descriptions.append(description)

    def vocabulary(self, path: str | Path, plain: bool) -> Vocabulary:
        if not self.keys and self.replacements:
            raise DataError(f"{path}: all of its labels are deprecated. Add those in use.")
        if not self.keys:
            raise DataError(f"{path}: no labels in it. Write one a line.")
        index = LabelIndex.from_keys(self.keys, self.names, self.alternatives, self.parents, self.descriptions)
        replaced = _followed(self.replacements, set(self.keys))
        return Vocabulary(index, plain, replaced, frozenset(self.replacements.keys() - replaced.keys()))


def read_vocabulary(path: str | Path, numbered: bool = False, *, language: str | None = None) -> Vocabulary:
    """The labels of a vocabulary file.

    JSONL: {"id" or "key", "name", "alt" or "alternatives", "parents", "description", "deprecated", "replaced_by"}.
    TSV: key, name, description. With `numbered`, the lines of a plain list name the labels 0, 1, …; a name may then be
    empty or there twice.
    """
    names = _plain_lines(path) if numbered and not _is_jsonl(path) else None
    if names:
        shown_names = [name or str(number) for number, name in enumerate(names)]
        return Vocabulary(LabelIndex.numbered(len(names), shown_names), plain=True)
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
    return columns.vocabulary(path, plain)


def write_vocabulary(vocabulary: Vocabulary, path: str | Path) -> None:
    """Write a vocabulary as JSONL, or as TSV under a name that says so; `read_vocabulary` makes the same of it.

    TSV has three columns: what does not go into them is refused rather than lost.
    """
    lines = _tsv_lines(vocabulary, path) if plain_name(path).endswith(".tsv") else _jsonl_lines(vocabulary, path)
    with replace_file(path) as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())


def apply(keys: pa.Array, vocabulary: Vocabulary) -> pa.Array:
    """Label keys with those of replaced labels exchanged for what stands for them now."""
    if not vocabulary.replaced:
        return keys
    old = pa.array(vocabulary.replaced.keys(), keys.type)
    new = pa.array(vocabulary.replaced.values(), keys.type)
    return pc.coalesce(new.take(pc.index_in(keys, value_set=old)), keys)


def _jsonl_lines(vocabulary: Vocabulary, path: str | Path) -> Iterator[str]:
    rows: list[dict[str, Any]] = vocabulary.index.table.to_pylist()
    rows += [{"key": old, "deprecated": True, "replaced_by": new} for old, new in vocabulary.replaced.items()]
    rows += [{"key": key, "deprecated": True} for key in sorted(vocabulary.deprecated)]
    for row in rows:
        for value in (row["key"], row.get("replaced_by", "")):
            _whole(value, "key", str(path))
        yield json.dumps({name: value for name, value in row.items() if value or name == "key"}, ensure_ascii=False)


def _tsv_lines(vocabulary: Vocabulary, path: str | Path) -> Iterator[str]:
    if vocabulary.replaced or vocabulary.deprecated:
        raise DataError(f"{path}: TSV has no column for deprecated labels. Write JSONL.")
    for row in vocabulary.index.table.to_pylist():
        for name in ("alternatives", "parents"):
            if row[name]:
                raise DataError(f"{path}: TSV has no column for {name}, as '{shown(row['key'])}' has. Write JSONL.")
        cells = [row["key"], row["name"], *([row["description"]] if row["description"] else [])]
        for cell in cells:
            if cell != cell.strip() or cell.startswith("\ufeff") or any(sign in cell for sign in "\t\r\n"):
                raise DataError(
                    f"{path}: '{shown(cell)}' holds a tab, a line end or outer blanks. Write JSONL: TSV cannot."
                )
        yield "\t".join(cells)


def _followed(replacements: Mapping[str, Sequence[str]], in_use: Collection[str]) -> dict[str, str]:
    """Deprecated label → the first label in use that its replacements lead to, for those that lead to one."""
    found: dict[str, str] = {}
    dead: set[str] = set()
    for start in replacements:
        if start in found or start in dead:
            continue
        path = [(start, iter(replacements[start]))]  # a stack of its own: a chain may be longer than Python's
        seen = {start}
        answer = None
        while path and answer is None:
            candidate = next(path[-1][1], None)
            if candidate is None:
                path.pop()
            elif candidate in in_use or candidate in found:
                answer = found.get(candidate, candidate)
            elif candidate in replacements and candidate not in seen and candidate not in dead:
                seen.add(candidate)
                path.append((candidate, iter(replacements[candidate])))
        if answer is None:
            dead |= seen  # nothing that was reached leads anywhere
        else:
            found.update((key, answer) for key, _ in path)
    return found


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


def _string(row: Mapping[str, Any], name: str, place: str) -> str:
    value = row.get(name)
    if not isinstance(value, (str, type(None))):
        raise DataError(f"{place}: '{name}' must be a string. Got {shown(value)}.")
    return _whole(value or "", name, place)


def _strings(row: Mapping[str, Any], names: tuple[str, ...], place: str) -> list[str]:
    for name in names:
        if row.get(name) is not None:
            value = row[name]
            if not isinstance(value, list) or not all(isinstance(item, (str, int)) for item in value):
                raise DataError(f"{place}: '{name}' must be a list of strings. Got {shown(value)}.")
            return [_whole(str(item), name, place) for item in value]
    return []


def _truth(row: Mapping[str, Any], name: str, place: str) -> bool:
    value = row.get(name)
    if not isinstance(value, (bool, type(None))):
        raise DataError(f"{place}: '{name}' must be true or false. Got {shown(value)}.")
    return bool(value)


def _replacements(row: Mapping[str, Any], place: str) -> list[str]:
    """One key, or a list of them in the order of preference."""
    value = row.get("replaced_by")
    if isinstance(value, (str, int)) and not isinstance(value, bool):
        return _strings({"replaced_by": [value]}, ("replaced_by",), place)
    return _strings(row, ("replaced_by",), place)


def _whole(text: str, name: str, place: str) -> str:
    if has_surrogate(text):
        raise DataError(f"{place}: '{name}' holds half of a surrogate pair. Write the whole character.")
    return text
