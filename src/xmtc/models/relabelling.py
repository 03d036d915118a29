"""Labels before and after an update: some stay, some go, some become one, and new ones join."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.core.errors import DataError, shown
from xmtc.data.dataset import Csr, Dataset, label_matrix
from xmtc.data.label_index import LabelIndex

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Relabelling:
    """The labels of a model before and after an update: those that stay come first, in their order, then new ones."""

    index: LabelIndex
    """The labels afterwards."""
    numbers: Labels
    """(L before,) the label that each has become, −1 where it is retired; several may have become one."""
    kept: Labels
    """(m,) the labels before that are labels 0 … m − 1 now."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """What labels that became another are called now, by key."""

    @property
    def added(self) -> int:
        """New labels, the last ones."""
        return len(self.index) - len(self.kept)

    @property
    def changes(self) -> bool:
        """Whether a label of before has gone or become another."""
        return len(self.kept) < len(self.numbers)

    def columns(self, labels: Csr) -> Csr:
        """(n, L) a 0/1 matrix of the labels before under the numbers of now."""
        return label_matrix(labels.indptr, self.numbers[labels.indices], len(self.index))

    def taken_over(self, documents: Dataset) -> Dataset:
        """Documents whose labels, known by key, have the numbers of now; labels that nobody knows are left out."""
        assert documents.labels is not None
        assert documents.label_index is not None
        keys = [self.keys.get(key, key) for key in documents.label_index.keys]
        numbers = self.index.ids(keys)[documents.labels.indices]
        labels = label_matrix(documents.labels.indptr, numbers, len(self.index))
        return replace(documents, labels=labels, label_index=self.index)


def relabelled(
    before: LabelIndex, new: LabelIndex, retired: Iterable[str], merged: Mapping[str, str], known: Mapping[str, str]
) -> Relabelling:
    """The labels after an update, by keys: those of `new` join, `retired` ones go, `merged` ones become another.

    `known` is what labels became in earlier updates. A label that several become and that nobody knows is the first
    of them under a new key.
    """
    gone = list(dict.fromkeys(retired))
    targets = _ends(merged)
    _check_known(before, gone, "retired")
    _check_known(before, list(targets), "merged")
    for key in gone:
        if key in targets or key in targets.values():
            raise DataError(f"label '{shown(key)}' is to be retired and merged. Do one of them.")
    stays = np.ones(len(before), dtype=bool)
    stays[before.ids(gone)] = False
    renamed: dict[str, str] = {}  # old key → a key that nobody knows yet
    for key, target in targets.items():
        if before.ids([target])[0] < 0 and target not in renamed.values():
            renamed[key] = target
        else:
            stays[before.ids([key])] = False
    kept = np.flatnonzero(stays)
    keys = {**_still_known(known, targets, before, new), **targets}
    index = _named(before.take(kept), renamed, new)
    passed = {*gone, *keys}
    joined = index.joined(new.take([number for number, key in enumerate(new.keys) if key not in passed]))
    if not len(joined):
        raise DataError("no label would be left. Keep one of them.")
    numbers = np.full(len(before), -1, dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    numbers[before.ids(list(targets))] = joined.ids(list(targets.values()))
    return Relabelling(joined, numbers, kept, keys)


def became(merged: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """What labels became at last in updates that followed one another."""
    found: dict[str, str] = {}
    for one in merged:
        targets = _ends(one)
        found = {key: targets.get(target, target) for key, target in found.items()} | targets
    return found


def _still_known(
    known: Mapping[str, str], targets: Mapping[str, str], before: LabelIndex, new: LabelIndex
) -> dict[str, str]:
    """What labels of earlier updates count as now; one that is a label again, or whose successor went, is none."""
    ends = {key: targets.get(target, target) for key, target in known.items()}
    claimed = set(targets.values())
    is_label = before.ids(list(ends)) >= 0
    is_there = (before.ids(list(ends.values())) >= 0) | (new.ids(list(ends.values())) >= 0)
    return {
        key: target
        for (key, target), again, there in zip(ends.items(), is_label.tolist(), is_there.tolist(), strict=True)
        if not again and key not in claimed and (there or target in claimed)
    }


def _check_known(index: LabelIndex, keys: Sequence[str], what: str) -> None:
    unknown = np.flatnonzero(index.ids(keys) < 0)
    if len(unknown):
        raise DataError(
            f"label '{shown(keys[int(unknown[0])])}' is to be {what} and is not among the model's {len(index):,} "
            "labels. Take it out, or check its key."
        )


def _ends(merged: Mapping[str, str]) -> dict[str, str]:
    """Each label and what it becomes at last; a circle is refused."""
    return {key: _end(target, merged, key) for key, target in merged.items()}


def _end(target: str, merged: Mapping[str, str], first: str) -> str:
    seen = {first}
    while target in merged:
        if target in seen:
            raise DataError(f"label '{shown(target)}' is to be merged with itself. Take one of the lines out.")
        seen.add(target)
        target = merged[target]
    return target


def _named(kept: LabelIndex, renamed: Mapping[str, str], new: LabelIndex) -> LabelIndex:
    """Labels that stay, under new keys and with the names that the new documents' labels bring."""
    keys = [renamed.get(key, key) for key in kept.keys]
    table = kept.table.set_column(0, "key", pa.array(keys, pa.string()))
    if renamed:
        names = [key if old in renamed else name for old, key, name in zip(kept.keys, keys, kept.names, strict=True)]
        table = table.set_column(1, "name", pa.array(names, pa.string()))
    places = new.ids(keys)
    has_name = [number >= 0 and new.name(number) != new.key(number) for number in places.tolist()]
    if not any(has_name):
        return LabelIndex(table)
    both = pa.concat_tables([table, new.table])
    rows = np.where(has_name, len(keys) + places, np.arange(len(keys)))
    return LabelIndex(both.take(pa.array(rows)))
