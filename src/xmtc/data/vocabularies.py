"""Label vocabularies: names, hierarchy and notes of labels, from JSONL, TSV, CSV, a plain list or SKOS."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import DataError, shown
from xmtc.core.files import decode_line, first_bytes, has_surrogate, parse_lines, plain_name, read_blocks, replace_file
from xmtc.data.dataset import Dataset, label_matrix, not_accepted
from xmtc.data.label_index import FURTHER, LabelIndex
from xmtc.data.tables import table_cells

_FURTHER = {
    "related": ("related",),
    "notes": ("notes", "note"),
    "schemes": ("schemes", "scheme"),
    "collections": ("collections",),
    "types": ("types",),
    "status": ("status",),
}
"""Column of `LabelIndex` → names of its JSONL field, each a list of strings or one string; `status` is one string."""
_FURTHER_FIELDS = frozenset(name for names in _FURTHER.values() for name in names)
_EXAMPLE = '{"key": "…", "name": "…"}'
_JSONL = re.compile(rb'(\xef\xbb\xbf)?\s*\{\s*"')
_SKOS_STARTS = {
    "rdf/xml": re.compile(rb"(\xef\xbb\xbf)?\s*<(\?xml\s|!DOCTYPE\s|rdf:RDF[\s>])"),
    "turtle": re.compile(
        rb"(\xef\xbb\xbf)?(\s|#[^\n]*\n)*(@(prefix|base)\s|(?i:prefix)\s+[^\s:<]*:\s*<|(?i:base)\s+<)"
    ),
}
_SKOS_ENDINGS = {
    ".ttl": "turtle",
    ".nt": "n-triples",
    ".rdf": "rdf/xml",
    ".xml": "rdf/xml",
    ".jsonld": "json-ld",
    ".skos": "turtle",
}


@dataclass(frozen=True)
class LabelVocabulary:
    """The labels of a vocabulary, and the replacements of deprecated labels."""

    index: LabelIndex
    """The labels in use, in file order."""
    plain: bool = False
    """Whether the file is a list of names without keys."""
    replaced: Mapping[str, str] = field(default_factory=dict)
    """Key of a deprecated label → key of the label in use that replaces it."""
    deprecated: frozenset[str] = frozenset()
    """Keys of deprecated labels without a replacement in use."""


@dataclass
class _Columns:
    keys: list[str] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    alternatives: list[list[str]] = field(default_factory=list)
    parents: list[list[str]] = field(default_factory=list)
    narrower: dict[str, list[str]] = field(default_factory=dict)
    """Label → its narrower labels, for labels that name them."""
    descriptions: list[str] = field(default_factory=list)
    further: dict[str, dict[int, list[str]]] = field(default_factory=lambda: {name: {} for name in FURTHER})
    """Column → number of the label → values, for labels that have any."""
    replacements: dict[str, list[str]] = field(default_factory=dict)
    """Deprecated label → its replacements."""
    first_line: dict[str, int] = field(default_factory=dict)

    def add(self, place: str, number: int, key: str, name: str, more: Mapping[str, Any]) -> None:
        if not key:
            raise DataError(f"{place}: a label has no key. Give each label a key.")
        if key in self.first_line:
            raise DataError(
                f"{place}: label '{shown(key)}' is already on line {self.first_line[key]}. Remove one of them."
            )
        self.first_line[key] = number
        alternatives = _strings(more, ("alternatives", "alt"), place)
        parents = _strings(more, ("parents", "broader"), place)
        narrower = _strings(more, ("narrower",), place)
        description = _string(more, "description", place)
        further = {} if _FURTHER_FIELDS.isdisjoint(more) else _further(more, place)
        replacements = _string_or_list(more, ("replaced_by",), place)
        if replacements or _truth(more, "deprecated", place):
            self.replacements[key] = replacements
            return
        for column, values in further.items():
            self.further[column][len(self.keys)] = values
        self.keys.append(key)
        self.names.append(name or key)
        self.alternatives.append(alternatives)
        self.parents.append(parents)
        if narrower:
            self.narrower[key] = narrower
        self.descriptions.append(description)

    def vocabulary(self, path: str | Path, plain: bool) -> LabelVocabulary:
        if not self.keys and self.replacements:
            raise DataError(f"{path}: all labels are deprecated. Add one that is not.")
        if not self.keys:
            raise DataError(f"{path}: contains no labels. Write one per line.")
        self._invert_narrower()
        count = range(len(self.keys))
        further: dict[str, Any] = {
            name: [values.get(label, []) for label in count] for name, values in self.further.items() if values
        }
        if "status" in further:
            further["status"] = ["".join(values) for values in further["status"]]
        index = LabelIndex.from_keys(
            self.keys, self.names, self.alternatives, self.parents, self.descriptions, **further
        )
        replaced = _followed(self.replacements, set(self.keys))
        return LabelVocabulary(index, plain, replaced, frozenset(self.replacements.keys() - replaced.keys()))

    def _invert_narrower(self) -> None:
        """Add each label to the parents of its narrower labels."""
        if not self.narrower:
            return
        parents = dict(zip(self.keys, self.parents, strict=True))
        for key, narrower in self.narrower.items():
            for other in narrower:
                if other != key and other in parents and key not in parents[other]:
                    parents[other].append(key)


def read_vocabulary(path: str | Path, numbered: bool = False, *, language: str | None = None) -> LabelVocabulary:
    """Read a vocabulary file; its format is detected from its ending and content.

    JSONL: {"id" or "key", "name", "alt" or "alternatives", "parents" or "broader", "narrower", "description",
    "related", "notes", "schemes", "collections", "types", "status", "deprecated", "replaced_by"}. TSV: key, name,
    description. SKOS has names in several languages; `language` selects one. With `numbered`, the lines of a plain list
    are the names of the labels 0, 1, …; names may then be empty or repeated.
    """
    start = first_bytes(path)
    syntax = _skos_syntax(path, start)
    if syntax:
        return _read_skos(path, syntax, language)
    if plain_name(path).endswith(".csv"):
        return _read_csv(path, language)
    if language is not None:
        raise DataError(f"{path}: has one name per label and no languages to choose from. Leave out --language.")
    if _is_jsonl(path, start):
        return _read_jsonl(path)
    names = _plain_lines(path) if numbered else None
    if names:
        shown_names = [name or str(number) for number, name in enumerate(names)]
        return LabelVocabulary(LabelIndex.numbered(len(names), shown_names), plain=True)
    return _read_lines(path)


def write_vocabulary(vocabulary: LabelVocabulary, path: str | Path) -> None:
    """Write a vocabulary as JSONL, or as TSV if the name ends in .tsv; `read_vocabulary` restores it.

    TSV has three columns; data that does not fit is an error.
    """
    name = plain_name(path)
    if name.endswith(tuple(_SKOS_ENDINGS)):
        raise DataError(f"{path}: writing SKOS is not supported. Choose a file name that ends in .jsonl.")
    if name.endswith(".csv"):
        raise DataError(f"{path}: writing CSV is not supported. Choose a file name that ends in .jsonl or .tsv.")
    if not len(vocabulary.index):
        raise DataError(f"{path}: the vocabulary has no labels to write. Add at least one.")
    with replace_file(path) as stream:
        for line in _tsv_lines(vocabulary, path) if name.endswith(".tsv") else _jsonl_lines(vocabulary, path):
            stream.write(f"{line}\n".encode())


def apply(keys: pa.Array, vocabulary: LabelVocabulary) -> pa.Array:
    """Replace the keys of deprecated labels by those of their replacements."""
    if not vocabulary.replaced:
        return keys
    old = pa.array(vocabulary.replaced.keys(), keys.type)
    new = pa.array(vocabulary.replaced.values(), keys.type)
    return pc.coalesce(new.take(pc.index_in(keys, value_set=old)), keys)


def as_vocabulary(vocabulary: LabelIndex | LabelVocabulary | str | Path) -> LabelVocabulary:
    """Read a vocabulary if it is given as a path."""
    if isinstance(vocabulary, (str, Path)):
        return read_vocabulary(vocabulary)
    if isinstance(vocabulary, LabelIndex):
        return LabelVocabulary(vocabulary)
    if not isinstance(vocabulary, LabelVocabulary):
        got = type(vocabulary).__name__
        raise DataError(f"'vocabulary' must be a LabelIndex, a LabelVocabulary or the path of a file. Got a {got}.")
    return vocabulary


def with_vocabulary(dataset: Dataset, vocabulary: LabelIndex | LabelVocabulary | str | Path) -> Dataset:
    """Return documents with the labels of a whole vocabulary, by key; a label that is not in it is an error."""
    name = Path(vocabulary).name if isinstance(vocabulary, (str, Path)) else "the vocabulary"
    found = as_vocabulary(vocabulary)
    used = dataset.used_labels()
    assert used.labels is not None
    assert used.label_index is not None
    keys = used.label_index.table["key"].combine_chunks()
    numbers = found.index.ids(apply(keys, found))
    if (numbers < 0).any():
        unknown = keys[int(np.argmax(numbers < 0))].as_py()
        raise DataError(f"label '{shown(unknown)}' is not in {name}. Add it, or remove it from the documents.")
    return replace(_renumbered(used, numbers, found.index), whole_vocabulary=True)


def with_replacements(dataset: Dataset, vocabulary: LabelVocabulary) -> Dataset:
    """Return documents in which deprecated labels are replaced as the vocabulary says; all others are kept."""
    if dataset.label_index is None:
        return dataset
    keys = dataset.label_index.table["key"].combine_chunks()
    current = apply(keys, vocabulary)
    is_kept = np.asarray(pc.equal(keys, current), dtype=bool)
    if is_kept.all():
        return dataset
    replacements = np.unique(vocabulary.index.ids(current)[~is_kept])
    index = dataset.label_index.take(np.flatnonzero(is_kept)).joined(vocabulary.index.take(replacements))
    return _renumbered(dataset, index.ids(current), index)


def _renumbered(dataset: Dataset, numbers: NDArray[np.int64], index: LabelIndex) -> Dataset:
    """Return documents with the labels of another index; `numbers` has the new number of each old label.

    Two old labels may have one number; if one is accepted and the other is rejected, it counts as accepted.
    """
    labels, rejected = (
        None if m is None else label_matrix(m.indptr, numbers[m.indices], len(index))
        for m in (dataset.labels, dataset.rejected)
    )
    if labels is not None and rejected is not None:
        rejected = not_accepted(rejected, labels)
    return replace(dataset, labels=labels, rejected=rejected, label_index=index)


def _read_skos(path: str | Path, syntax: str, language: str | None) -> LabelVocabulary:
    from xmtc.data.skos import skos_labels

    columns, place = _Columns(), str(path)
    for row in skos_labels(path, syntax, language):
        columns.add(place, 0, _whole(row["key"], "key", place), _string(row, "name", place), row)
    return columns.vocabulary(path, plain=False)


def _read_jsonl(path: str | Path) -> LabelVocabulary:
    columns = _Columns()
    before = 0
    for block in read_blocks(path):
        for number, row in parse_lines(block, path, before, _EXAMPLE):
            place = f"{path}:{number}"
            if isinstance(row.get("labels"), list) and row.keys().isdisjoint(("name", "title")):
                raise DataError(f"{place}: is a document with labels, not a label. Pass a vocabulary: {_EXAMPLE}.")
            key = next((row[part] for part in ("key", "id", "uid", "uri") if row.get(part) is not None), None)
            if not isinstance(key, (str, int)) or isinstance(key, bool):
                raise DataError(f'{place}: no "key" or "id". Give each label a key.')
            name = _string(row, "name", place) or _string(row, "title", place)
            more = row if "description" in row or "content" not in row else {**row, "description": row["content"]}
            columns.add(place, number, _whole(str(key), "key", place), name, more)
        before += block.count(b"\n")
    return columns.vocabulary(path, plain=False)


def _read_csv(path: str | Path, language: str | None) -> LabelVocabulary:
    """Read a table with a header: uri or key, and name, or label_en, label_de, … as in Annif."""
    cells = table_cells(path, quoted=True)
    number, header = next(cells, (1, []))
    if isinstance(header, DataError):
        raise header
    names = [name.strip() for name in header]
    key = next((names.index(part) for part in ("uri", "key", "id") if part in names), None)
    by_language = {name.removeprefix("label_"): at for at, name in enumerate(names) if name.startswith("label_")}
    called = by_language.get(language or "en", next(iter(by_language.values()), None))
    if language is not None and language not in by_language:
        raise DataError(f"{path}: no column label_{shown(language)}. Found: {shown(', '.join(names))}.")
    if not by_language:
        called = next((names.index(part) for part in ("name", "label") if part in names), None)
    if key is None or called is None:
        found = shown(", ".join(names))
        raise DataError(f"{path}:{number}: columns uri (or key) and label_en (or name) are required. Found: {found}.")
    columns = _Columns()
    for number, row in cells:
        if isinstance(row, DataError):
            raise row
        if len(row) != len(names):
            raise DataError(f"{path}:{number}: {len(row)} cells, but {len(names)} in the header. Correct the line.")
        columns.add(f"{path}:{number}", number, row[key].strip(), row[called].strip(), {})
    return columns.vocabulary(path, plain=False)


def _read_lines(path: str | Path) -> LabelVocabulary:
    """Read a TSV, or a plain list if no line has a tab."""
    columns = _Columns()
    plain = True
    before = 0
    for block in read_blocks(path):
        for number, line in enumerate(block.split(b"\n"), start=before + 1):
            text = decode_line(line, path, number)
            if not text.strip():
                continue
            key, tab, rest = text.partition("\t")
            name, _, description = rest.partition("\t")
            if number == 1 and _is_header(text):
                continue
            plain &= not tab
            key = key.strip()
            if tab and key.startswith("<") and key.endswith(">"):  # as Annif writes them
                key = key[1:-1]
            columns.add(f"{path}:{number}", number, key, name.strip(), {"description": description.strip()})
        before += block.count(b"\n")
    return columns.vocabulary(path, plain)


def _is_header(line: str) -> bool:
    """Whether the first line of a TSV has names of columns in place of a label."""
    cells = [cell.strip().casefold() for cell in line.split("\t")]
    return len(cells) > 1 and cells[0] in ("key", "uri", "id") and cells[1] in ("name", "label")


def _jsonl_lines(vocabulary: LabelVocabulary, path: str | Path) -> Iterator[str]:
    for row in _rows(vocabulary, path):
        yield json.dumps({name: value for name, value in row.items() if value}, ensure_ascii=False)


def _tsv_lines(vocabulary: LabelVocabulary, path: str | Path) -> Iterator[str]:
    for number, row in enumerate(_rows(vocabulary, path)):
        for name in ("alternatives", "parents", "deprecated", *FURTHER):
            if row.get(name):
                raise DataError(f"{path}: TSV has no column for '{name}' of '{shown(row['key'])}'. Write JSONL.")
        cells = [row["key"], row["name"], *filter(None, [row["description"]])]
        if row["key"].startswith("<") and row["key"].endswith(">"):
            raise DataError(f"{path}: TSV cannot store the angle brackets of '{shown(row['key'])}'. Write JSONL.")
        for cell in cells:
            if cell != cell.strip() or cell.startswith("\ufeff") or any(sign in cell for sign in "\t\r\n"):
                raise DataError(
                    f"{path}: TSV cannot store the tab, line break or outer spaces of '{shown(cell)}'. Write JSONL."
                )
        line = "\t".join(cells)
        if number == 0 and _is_header(line):
            raise DataError(f"{path}: '{shown(line)}' would be read as a header. Write JSONL.")
        yield line


def _rows(vocabulary: LabelVocabulary, path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield all labels as JSONL records, labels in use first."""
    for batch in vocabulary.index.table.to_batches(max_chunksize=4096):
        yield from _with_keys(batch.to_pylist(), path)
    old = [{"key": key, "deprecated": True, "replaced_by": new} for key, new in vocabulary.replaced.items()]
    yield from _with_keys([*old, *({"key": key, "deprecated": True} for key in sorted(vocabulary.deprecated))], path)


def _with_keys(rows: list[dict[str, Any]], path: str | Path) -> list[dict[str, Any]]:
    for row in rows:
        if not row["key"]:
            raise DataError(f"{path}: a label has no key. Give each label a key.")
        _whole(row["key"] + row.get("replaced_by", ""), "key", str(path))
    return rows


def _followed(replacements: Mapping[str, Sequence[str]], in_use: Collection[str]) -> dict[str, str]:
    """Follow chains of replacements: deprecated label → first label in use, for those that reach one."""
    found: dict[str, str] = {}
    dead: set[str] = set()
    for start in replacements:
        if start in found or start in dead:
            continue
        path = [(start, iter(replacements[start]))]  # explicit stack: a chain may exceed Python's recursion limit
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
            dead |= seen  # no visited label leads to a label in use
        else:
            found.update((key, answer) for key, _ in path)
    return found


def _plain_lines(path: str | Path) -> list[str] | None:
    """Read the lines of a plain list; None if a line has a tab."""
    names: list[str] = []
    for block in read_blocks(path):
        for line in block.removesuffix(b"\n").split(b"\n"):
            names.append(decode_line(line, path, len(names) + 1).strip(" "))
            if "\t" in names[-1]:
                return None
    return names


def _is_jsonl(path: str | Path, start: bytes) -> bool:
    name = plain_name(path)
    return name.endswith((".jsonl", ".ndjson", ".json")) or (not name.endswith(".tsv") and bool(_JSONL.match(start)))


def _skos_syntax(path: str | Path, start: bytes) -> str | None:
    """Return the syntax of a SKOS file, by content if unambiguous, else by name; None for other files."""
    name = plain_name(path)
    if name.endswith((".jsonl", ".ndjson", ".json", ".tsv")):
        return None
    by_ending = (syntax for ending, syntax in _SKOS_ENDINGS.items() if name.endswith(ending))
    return next((syntax for syntax, pattern in _SKOS_STARTS.items() if pattern.match(start)), next(by_ending, None))


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


def _further(row: Mapping[str, Any], place: str) -> dict[str, list[str]]:
    """Return the values of the further columns that are not empty."""
    found = {name: _string_or_list(row, names, place) for name, names in _FURTHER.items()}
    if len(found["status"]) > 1:
        raise DataError(f"{place}: 'status' must be a string. Got {shown(row['status'])}.")
    return {name: values for name, values in found.items() if values}


def _string_or_list(row: Mapping[str, Any], names: tuple[str, ...], place: str) -> list[str]:
    """Return the strings of the first field that is there: a list, or one string that is not empty."""
    for name in names:
        value = row.get(name)
        if value == "":
            return []
        if isinstance(value, (str, int)) and not isinstance(value, bool):
            return _strings({name: [value]}, (name,), place)
        if value is not None:
            return _strings(row, (name,), place)
    return []


def _whole(text: str, name: str, place: str) -> str:
    if has_surrogate(text):
        raise DataError(f"{place}: '{name}' contains an unpaired surrogate. Write the complete character.")
    return text
