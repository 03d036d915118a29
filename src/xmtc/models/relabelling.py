"""Labels before and after an update: kept, removed, merged and new ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import DataError, shown
from xmtc.data.dataset import Csr, Dataset, label_matrix, not_accepted
from xmtc.data.label_index import LabelIndex
from xmtc.labels.hierarchy import linked, relinked
from xmtc.labels.name_documents import name_texts

Labels = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Relabelling:
    """The labels of a model before and after an update: kept labels come first, in their order, then new ones."""

    before: LabelIndex
    """The labels before the update."""
    index: LabelIndex
    """The labels after the update."""
    numbers: Labels
    """(L before,) the new number of each old label, −1 if removed; merged labels share a number."""
    kept: Labels
    """(m,) the old labels that have the numbers 0 … m − 1 now."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Old key → new key of labels that were merged or renamed."""

    @property
    def added(self) -> int:
        """Number of new labels, which come last."""
        return len(self.index) - len(self.kept)

    @property
    def changes(self) -> bool:
        """Whether an old label was removed or merged."""
        return len(self.kept) < len(self.numbers)

    def is_unchanged(self) -> NDArray[np.bool_]:
        """(L,) which labels are exactly one old label: neither new nor merged from several."""
        return np.equal(np.bincount(self.numbers[self.numbers >= 0], minlength=len(self.index)), 1)

    def names_to_learn(self) -> tuple[pa.ChunkedArray, NDArray[np.bool_]]:
        """(L,) the names of each label as a text, and which of these texts have been learnt.

        If an old label has new names, its text consists of these alone, so that they do not rely on its other names.
        """
        texts, is_learnt = name_texts(self.index), self.is_unchanged()
        old = name_texts(self.before).take(pa.array(self.kept))
        is_same = np.asarray(pc.equal(texts.slice(0, len(old)), old), dtype=bool)
        rows = np.arange(len(texts))
        new: list[str] = []
        for label in np.flatnonzero(is_learnt[: len(old)] & ~is_same).tolist():
            learnt = {"", *old[label].as_py().split("\n")}
            names = [name for name in texts[label].as_py().split("\n") if name not in learnt]
            if names:
                rows[label], is_learnt[label] = len(texts) + len(new), False
                new.append("\n".join(names))
        both = pa.chunked_array([*texts.chunks, pa.array(new, pa.string())], pa.string())
        return both.take(pa.array(rows)), is_learnt

    def renewed(self, vocabulary: LabelIndex | None) -> Relabelling:
        """The same labels with the names and the hierarchy of a vocabulary, in which merged labels may be separate."""
        if vocabulary is None:
            return self
        current = relinked(vocabulary, self.keys)
        index = _with_merged_names(self.index.renewed(current), current.joined(self.before), self.keys)
        return replace(self, index=linked(index, current))

    def columns(self, labels: Csr) -> Csr:
        """(n, L) a 0/1 matrix of old labels in the new numbering."""
        return label_matrix(labels.indptr, self.numbers[labels.indices], len(self.index))

    def taken_over(self, documents: Dataset) -> Dataset:
        """Documents with their labels, matched by key, in the new numbering; unknown labels are dropped.

        A label that is both accepted and rejected after a merge counts as accepted.
        """
        assert documents.labels is not None
        assert documents.label_index is not None
        keys = [self.keys.get(key, key) for key in documents.label_index.keys]
        numbers = self.index.ids(keys)
        labels = label_matrix(documents.labels.indptr, numbers[documents.labels.indices], len(self.index))
        rejected = documents.rejected
        if rejected is not None:
            rejected = label_matrix(rejected.indptr, numbers[rejected.indices], len(self.index))
            rejected = not_accepted(rejected, labels)
        return replace(documents, labels=labels, label_index=self.index, rejected=rejected)


def relabelled(
    before: LabelIndex, new: LabelIndex, retired: Iterable[str], merged: Mapping[str, str], known: Mapping[str, str]
) -> Relabelling:
    """The labels after an update, by key: add those in `new`, remove `retired` ones, merge the keys of `merged`.

    `known` has the merges of earlier updates. If labels are merged into a key that does not exist yet, the first of
    them is renamed to that key. The names of merged labels become alternative names.
    """
    gone = list(dict.fromkeys(retired))
    targets = _ends(merged)
    _check_known(before, gone, "retired")
    _check_known(before, list(targets), "merged")
    for key in gone:
        if key in targets or key in targets.values():
            raise DataError(f"label '{shown(key)}' cannot be both retired and merged. Choose one.")
    stays = np.ones(len(before), dtype=bool)
    stays[before.ids(gone)] = False
    renamed: dict[str, str] = {}  # old key → new key
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
        raise DataError("the update would remove all labels. Keep at least one.")
    numbers = np.full(len(before), -1, dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    numbers[before.ids(list(targets))] = joined.ids(list(targets.values()))
    named = relinked(_with_merged_names(joined, before, targets), keys)
    return Relabelling(before, linked(named, relinked(before, keys)), numbers, kept, keys)


def _with_merged_names(index: LabelIndex, before: LabelIndex, targets: Mapping[str, str]) -> LabelIndex:
    """Labels with the names of those merged into them, except names that are just the key, as alternative names."""
    merged: dict[int, list[str]] = {}  # label → its alternative names
    labels, old = index.ids(list(targets.values())), before.ids(list(targets))
    labels, old = (numbers[(labels >= 0) & (old >= 0)] for numbers in (labels, old))
    for label, row in zip(labels.tolist(), before.table.take(pa.array(old)).to_pylist(), strict=True):
        names = merged.setdefault(label, index.table["alternatives"][label].as_py())
        given = [] if row["name"] == row["key"] else [row["name"]]
        for name in (*given, *row["alternatives"]):
            if name != index.name(label) and name not in names:
                names.append(name)
    return index.with_lists("alternatives", merged)


def became(merged: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """The final keys of merged labels after a sequence of updates."""
    found: dict[str, str] = {}
    for one in merged:
        targets = _ends(one)
        found = {key: targets.get(target, target) for key, target in found.items()} | targets
    return found


def _still_known(
    known: Mapping[str, str], targets: Mapping[str, str], before: LabelIndex, new: LabelIndex
) -> dict[str, str]:
    """The merges of earlier updates that still apply: not if the key is a label again, or its target was removed."""
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
            f"label '{shown(keys[int(unknown[0])])}' cannot be {what}: it is not among the model's {len(index):,} "
            "labels. Check its key, or leave it out."
        )


def _ends(merged: Mapping[str, str]) -> dict[str, str]:
    """Each label and its final target; DataError for cycles."""
    return {key: _end(target, merged, key) for key, target in merged.items()}


def _end(target: str, merged: Mapping[str, str], first: str) -> str:
    seen = {first}
    while target in merged:
        if target in seen:
            raise DataError(f"label '{shown(target)}' is merged into itself. Remove one of the merges.")
        seen.add(target)
        target = merged[target]
    return target


def _named(kept: LabelIndex, renamed: Mapping[str, str], new: LabelIndex) -> LabelIndex:
    """Kept labels with new keys, and with the names that the labels of the new documents have."""
    keys = [renamed.get(key, key) for key in kept.keys]
    table = kept.table.set_column(0, "key", pa.array(keys, pa.string()))
    if renamed:
        names = [key if old in renamed else name for old, key, name in zip(kept.keys, keys, kept.names, strict=True)]
        table = table.set_column(1, "name", pa.array(names, pa.string()))
    return LabelIndex(table, kept.ancestors).renewed(new)
