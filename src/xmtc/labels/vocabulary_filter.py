"""Select labels by what the vocabulary says about them: broader labels, scheme, collection, type and use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import DataError, nearest, shown
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import Hierarchy

Mask = NDArray[np.bool_]
FEW = 5
"""Maximum number of values listed in a message."""
FACETS = {"schemes": "scheme", "collections": "collection", "types": "type"}
"""Columns of the label index by which labels are selected, and the name of one value."""


@dataclass(frozen=True)
class VocabularyFilter:
    """A selection of labels. Several values of one field are alternatives; different fields must all match."""

    under: tuple[str, ...] = ()
    """Keys or names of labels: these and all labels below them."""
    schemes: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    used: bool | None = None
    """True for labels with training documents only, False for those without."""

    def __post_init__(self) -> None:
        for name in ("under", *FACETS):
            if isinstance(getattr(self, name), str):
                raise DataError(f"'{name}' must be a list of strings. Got a string; write ({getattr(self, name)!r},).")

    def __bool__(self) -> bool:
        return self != ALL_LABELS

    def mask(
        self,
        labels: LabelIndex,
        counts: NDArray[np.int64] | None = None,
        find: Callable[[str], int] | None = None,
    ) -> Mask:
        """(L,) mask of the selected labels; DataError if a value does not occur or no label is left.

        `counts` has the number of training documents of each label, which `used` needs. `find` returns the number of a
        label that is given by name, or raises DataError; the default is `labels.find`.
        """
        chosen = np.ones(len(labels), dtype=bool)
        if self.under:
            hierarchy = Hierarchy.of(labels)
            starts = [_number(labels, hierarchy, label, find or labels.find) for label in self.under]
            chosen &= hierarchy.under(starts)[: len(labels)]
        for column, noun in FACETS.items():
            values = getattr(self, column)
            if values:
                chosen &= _having(labels, column, noun, values)
        if self.used is not None:
            if counts is None:
                raise DataError("the model does not store its training label counts. Train it again to select by them.")
            chosen &= (counts > 0) == self.used
            if not self.used and (counts > 0).all():
                raise DataError(
                    f"all of the model's {len(labels):,} labels have training documents. Leave out this condition, or "
                    "train a model that uses label names with --labels VOCABULARY."
                )
        if not chosen.any():
            raise DataError(f"none of the model's {len(labels):,} labels matches {self}. Select fewer conditions.")
        return chosen

    def __str__(self) -> str:
        parts = [("under", self.under), *((noun, getattr(self, column)) for column, noun in FACETS.items())]
        said = [f"{noun} {' or '.join(repr(shown(value)) for value in values)}" for noun, values in parts if values]
        if self.used is not None:
            said.append(f"{'with' if self.used else 'without'} training documents")
        return ", ".join(said)


ALL_LABELS = VocabularyFilter()
"""No condition."""


def _number(labels: LabelIndex, hierarchy: Hierarchy, label: str, find: Callable[[str], int]) -> int:
    """The number of a label in the hierarchy, which may have been given by name; broader labels of others count."""
    label = label.encode("utf-8", "replace").decode()
    number = hierarchy.number(label)
    if number >= 0:
        return number
    try:
        return find(label)
    except DataError:
        if labels.ancestors is None:
            raise
        names = [name.casefold() for name in labels.ancestors.names]
        if label.casefold() not in names:
            raise
        return len(labels) + names.index(label.casefold())


def _having(labels: LabelIndex, column: str, noun: str, values: Sequence[str]) -> Mask:
    """The labels that have one of these values; upper and lower case are not distinguished if a value is unknown."""
    lists = labels.table[column].combine_chunks()
    found, rows = pc.list_flatten(lists), np.asarray(pc.list_parent_indices(lists))
    known = [value for value in pc.unique(found).to_pylist() if value]
    if not known:
        raise DataError(f"no label of the model has a {noun}. Train with a vocabulary that gives it, or leave it out.")
    wanted: set[str] = set()
    for value in values:
        folded = value.casefold()
        matches = {value} & set(known) or {other for other in known if other.casefold() == folded}
        if not matches:
            more = ", …" if len(known) > FEW else ""
            listed = ", ".join(shown(each) for each in sorted(known)[:FEW])
            close = nearest(value, known) or f" Available: {listed}{more}."
            raise DataError(f"{noun} '{shown(value)}' does not occur among the model's labels.{close}")
        wanted |= matches
    mask = np.zeros(len(labels), dtype=bool)
    mask[rows[np.asarray(pc.is_in(found, value_set=pa.array(sorted(wanted), pa.string())), bool)]] = True
    return mask
