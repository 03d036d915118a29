"""The index of label names in a model folder."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import ModelFormatError
from xmtc.lexical.keys import KeyTable
from xmtc.lexical.match_types import Neighbours, Rarity
from xmtc.lexical.matching import NameMatcher
from xmtc.lexical.names import KINDS, MOST_WORDS, GramIndex, NameTable

MOST_WEIGHT = 1e6
"""Bound of idf weights and scales in a model folder."""


def matcher_state(matcher: NameMatcher) -> dict[str, NDArray[Any]]:
    """The arrays to save."""
    parts: dict[str, Any] = {
        "names": matcher.names,
        "grams": matcher.grams,
        "rarity": matcher.rarity,
        "near": matcher.near,
    }
    return {
        f"{part}.{name}": array.keys if isinstance(array, KeyTable) else array
        for part, group in parts.items()
        for name, array in group._asdict().items()
    }


def restored_matcher(state: SavedState, labels: int, language: str | None, most: int) -> NameMatcher:
    """A matcher from checked arrays; kernels cannot leave the bounds of an array, whatever these contain."""
    names = _names(state.part("names."), labels)
    grams = _grams(state.part("grams."), len(names.owners))
    rarity, near = state.part("rarity."), state.part("near.")
    links: list[NDArray[Any]] = []
    for kind in ("broader", "narrower", "related"):
        others = near.array(kind, np.int32, (None,), low=0, high=labels)
        links += [near.offsets(f"{kind}_indptr", labels, len(others)), others]
    rare = Rarity(
        rarity.array("grams", np.float32, (len(grams.table),), low=0, high=MOST_WEIGHT),
        rarity.array("stems", np.float32, (len(names.stem_table),), low=0, high=MOST_WEIGHT),
    )
    return NameMatcher(names, grams, rare, Neighbours(*links), language, most)


def _names(state: SavedState, labels: int) -> NameTable:
    owners = state.array("owners", np.int32, (None,), low=0, high=labels)
    count = len(owners)
    first = state.offsets("first", labels, count)
    form_table, stem_table = _table(state, "form_table"), _table(state, "stem_table")
    forms = state.array("forms", np.int32, (None,), low=0, high=len(form_table))
    stems = state.array("stems", np.int32, (len(forms),), low=0, high=len(stem_table))
    indptr = state.offsets("indptr", count, len(forms))
    anchored = state.array("anchored", np.int32, (None,), low=0, high=count)
    anchors = state.offsets("anchor_indptr", len(stem_table), len(anchored))
    own = np.diff(first)
    is_listed = (own > 0).all() and np.array_equal(owners, np.repeat(np.arange(labels), own))
    if not is_listed or (np.diff(indptr) > MOST_WORDS).any():
        raise ModelFormatError("the index of label names is inconsistent. Copy or train the model again.")
    kinds = state.array("kinds", np.int8, (count,), low=0, high=KINDS)
    return NameTable(
        owners,
        first,
        kinds,
        state.array("ambiguity", np.int32, (count,), low=0),
        indptr,
        forms,
        stems,
        form_table,
        stem_table,
        anchors,
        anchored,
        state.array("partners", np.int32, (len(anchored),), low=-1, high=len(stem_table)),
    )


def _grams(state: SavedState, names: int) -> GramIndex:
    table = _table(state, "table")
    grams = state.array("grams", np.int32, (None,), low=0, high=len(table))
    postings = state.array("postings", np.int32, (None,), low=0, high=names)
    return GramIndex(
        table,
        state.array("idf", np.float32, (len(table),), low=0, high=MOST_WEIGHT),
        state.offsets("indptr", names, len(grams)),
        grams,
        state.array("scales", np.float32, (names,), low=0, high=1e9),
        state.offsets("posting_indptr", len(table), len(postings)),
        postings,
    )


def _table(state: SavedState, name: str) -> KeyTable:
    keys = state.array(name, np.uint64, (None,))
    if (keys[1:] <= keys[:-1]).any():
        raise ModelFormatError(f"the keys of '{name}' do not ascend. Copy or train the model again.")
    return KeyTable.sorted(keys)
