"""The names of all labels, indexed by their words and by their character n-grams."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.data.label_index import LabelIndex
from xmtc.lexical.keys import KeyTable
from xmtc.lexical.texts import Words, analyse

PREFERRED, ALTERNATIVE, UNQUALIFIED = 0, 1, 2
"""Kinds of names: UNQUALIFIED is added for a name without its qualifier in brackets, such as Mercury (planet)."""
KINDS = 4
"""Number of kinds."""
MOST_WORDS = 16
"""Words of a name that count; further ones are ignored."""
_QUALIFIER = re.compile(r"(?<!\s)\s*[(<\[][^()<>\[\]]*[)>\]]")


class NameTable(NamedTuple):
    """Names with their words; each name belongs to one label."""

    owners: NDArray[np.int32]  # (S,) label of each name, ascending
    first: NDArray[np.int64]  # (L + 1,) where the names of each label start, the preferred one first
    kinds: NDArray[np.int8]  # (S,)
    ambiguity: NDArray[np.int32]  # (S,) labels that have a name with the same stems
    indptr: NDArray[np.int64]  # (S + 1,) where the words of names start
    forms: NDArray[np.int32]  # number of the folded form of each word
    stems: NDArray[np.int32]  # number of its stem
    form_table: KeyTable
    stem_table: KeyTable
    anchor_indptr: NDArray[np.int64]  # (stems + 1,)
    anchored: NDArray[np.int32]  # names by their rarest stem
    partners: NDArray[np.int32]  # the second rarest stem of each of these, −1 if it has one word


class GramIndex(NamedTuple):
    """Character n-grams of names, in both directions."""

    table: KeyTable
    idf: NDArray[np.float32]  # (G,) inverse frequency among names
    indptr: NDArray[np.int64]  # (S + 1,)
    grams: NDArray[np.int32]  # distinct n-grams of each name
    scales: NDArray[np.float32]  # (S,) 1 / length of the vector of each name
    posting_indptr: NDArray[np.int64]  # (G + 1,)
    postings: NDArray[np.int32]  # names with each n-gram


def index_names(labels: LabelIndex, language: str | None) -> tuple[NameTable, GramIndex]:
    """Index the preferred and alternative names of all labels."""
    names, owners, kinds = _all_names(labels)
    texts = analyse(pa.array(names, pa.string()), language)
    return _table(texts.indptr, texts.tokens, texts.words, owners, kinds)


def _all_names(labels: LabelIndex) -> tuple[list[str], NDArray[np.int32], NDArray[np.int8]]:
    """List all names by label."""
    alternatives = labels.table["alternatives"].combine_chunks()
    offsets = np.asarray(alternatives.offsets)
    flat = alternatives.values.to_pylist()
    names: list[str] = []
    owners: list[int] = []
    kinds: list[int] = []
    for label, name in enumerate(labels.names):
        for form, kind in _forms([name, *flat[offsets[label] : offsets[label + 1]]]):
            names.append(form)
            owners.append(label)
            kinds.append(kind)
    return names, np.array(owners, dtype=np.int32), np.array(kinds, dtype=np.int8)


def names_of(labels: LabelIndex, label: int) -> list[str]:
    """The names of one label, in the order of the index."""
    alternatives = labels.table["alternatives"][label].as_py()
    return [form for form, _ in _forms([labels.name(label), *alternatives])]


def _forms(names: Sequence[str]) -> Iterator[tuple[str, int]]:
    """Yield the names of a label with their kinds, the preferred one first; one with a qualifier also without it.

    Underscores stand for spaces, as in keys such as food_safety.
    """
    for place, each in enumerate(names):
        kind = ALTERNATIVE if place else PREFERRED
        yield each.replace("_", " "), kind
        bare = _QUALIFIER.sub("", each).strip() if each[-1:] in ")>]" else each
        if bare and bare != each:
            yield bare.replace("_", " "), kind + UNQUALIFIED


def _table(
    indptr: NDArray[np.int64],
    tokens: NDArray[np.int32],
    words: Words,
    owners: NDArray[np.int32],
    kinds: NDArray[np.int8],
) -> tuple[NameTable, GramIndex]:
    counts = np.minimum(np.diff(indptr), MOST_WORDS)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    tokens = tokens[np.repeat(indptr[:-1], counts) + np.arange(starts[-1]) - np.repeat(starts[:-1], counts)]
    form_table, stem_table = KeyTable.of(words.forms), KeyTable.of(words.stems)
    forms, stems = form_table.numbers(words.forms)[tokens], stem_table.numbers(words.stems)[tokens]
    names = np.repeat(np.arange(len(owners)), counts)
    frequency = np.bincount(stems, minlength=len(stem_table))
    order = np.lexsort((np.arange(len(stems)), frequency[stems], names))
    filled = np.flatnonzero(counts)
    anchor_indptr, anchored = _inverted(stems[order[starts[filled]]], filled, len(stem_table))
    second = order[starts[anchored] + (counts[anchored] > 1)]
    first = np.append(np.flatnonzero(np.diff(owners, prepend=-1)), len(owners)).astype(np.int64)
    table = NameTable(
        owners,
        first,
        kinds,
        _ambiguity(names, stems, owners),
        starts,
        forms,
        stems,
        form_table,
        stem_table,
        anchor_indptr,
        anchored,
        np.where(counts[anchored] > 1, stems[second], -1).astype(np.int32),
    )
    return table, _gram_index(tokens, starts, words)


def _inverted(
    keys: NDArray[np.int32], values: NDArray[np.int64], width: int
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return the values of each key (CSR)."""
    order = np.argsort(keys, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(keys, minlength=width))]).astype(np.int64)
    return indptr, values[order].astype(np.int32)


def _ambiguity(names: NDArray[np.int64], stems: NDArray[np.int32], owners: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return how many labels have a name with the same stems in any order."""
    generator = np.random.default_rng(0)
    codes = generator.integers(0, 1 << 62, size=int(stems.max(initial=-1)) + 1, dtype=np.int64)
    sums = np.zeros(len(owners), dtype=np.int64)
    np.add.at(sums, names, codes[stems])
    _, same = np.unique(sums, return_inverse=True)
    pairs = np.unique(np.stack([same, owners.astype(np.int64)]), axis=1)
    found: NDArray[np.int32] = np.bincount(pairs[0], minlength=1)[same].astype(np.int32)
    return found


def _gram_index(tokens: NDArray[np.int32], starts: NDArray[np.int64], words: Words) -> GramIndex:
    table = KeyTable.of(words.grams)
    numbers = table.numbers(words.grams)
    of_words = sp.csr_array(
        (np.ones(len(numbers), dtype=np.int32), numbers, words.gram_indptr), shape=(len(words.forms), len(table))
    )
    of_names = sp.csr_array(
        (np.ones(len(tokens), dtype=np.int32), tokens, starts), shape=(len(starts) - 1, len(words.forms))
    )
    held = sp.csr_array(of_names @ of_words)
    held.sort_indices()
    back = sp.csr_array(held.T)
    idf = (1.0 + np.log(max(len(starts) - 1, 1) / np.maximum(np.diff(back.indptr), 1))).astype(np.float32)
    squares = np.concatenate([[0.0], np.cumsum(idf[held.indices].astype(np.float64) ** 2)])[held.indptr]
    return GramIndex(
        table,
        idf,
        held.indptr.astype(np.int64),
        held.indices.astype(np.int32),
        (1.0 / np.sqrt(np.maximum(np.diff(squares), 1e-12))).astype(np.float32),
        back.indptr.astype(np.int64),
        back.indices.astype(np.int32),
    )
