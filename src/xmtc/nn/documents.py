"""Documents as tensors: the reader protocol, documents on the device, and random batches of similar length."""

from __future__ import annotations

import copy
from typing import NamedTuple, Protocol, Self

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from xmtc.artifact.store import State
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Csr, Dataset
from xmtc.labels.tree import LabelTree
from xmtc.nn.training.losses import PartialBatch
from xmtc.text.batches import Batch
from xmtc.text.sequences import PADDING
from xmtc.text.weighted_bags import Bags, Numbered, taken


class DocumentReader(Protocol):
    """Encodes documents: word sequences (`WordSequences`), weighted bags (`BagReader`) or subwords (`PieceReader`).

    Readers are created by the class method `fit`, which also returns the encoded training documents, or by
    `from_state`.
    """

    @property
    def size(self) -> int:
        """Rows of the word table: the words plus the reserved numbers below FIRST_WORD."""

    @property
    def words(self) -> list[str]:
        """Words in the order of their numbers; an empty string if an entry has no name."""

    def encode(self, dataset: Dataset, runtime: Runtime) -> Numbered:
        """Encode documents as word numbers."""

    def known_words(self, dataset: Dataset, runtime: Runtime) -> NDArray[np.bool_]:
        """Which documents have a word that the reader knows (n,)."""

    def grown(self, dataset: Dataset, documents: int, runtime: Runtime) -> Self:
        """This reader extended by the words of more documents, numbered last; `documents` is the total number seen."""

    def state(self) -> State:
        """The state to save in the model folder."""


class UnknownLabels(NamedTuple):
    """Which documents have unknown labels, and which labels of these are known to be wrong."""

    partial: NDArray[np.bool_]  # (n,)
    rejected: Csr  # (n, L), empty rows for complete documents

    @classmethod
    def of(cls, dataset: Dataset) -> UnknownLabels | None:
        """The unknown labels of a data set; None if it has none."""
        if dataset.partial is None or not dataset.partial.any():
            return None
        assert dataset.labels is not None
        rejected = sp.csr_array(dataset.labels.shape, dtype=np.float32)
        if dataset.rejected is not None:
            rejected = dataset.rejected.copy()
            rejected.data = np.repeat(dataset.partial, np.diff(rejected.indptr)).astype(np.float32)
            rejected.eliminate_zeros()
        return cls(dataset.partial, rejected)

    def take(self, rows: NDArray[np.int64]) -> UnknownLabels | None:
        """Those of some documents; None if all of them are complete."""
        return UnknownLabels(self.partial[rows], self.rejected[rows]) if self.partial[rows].any() else None

    def of_nodes(self, tree: LabelTree, level: int) -> UnknownLabels:
        """The same for the nodes of a level: a node is rejected if all labels below it are."""
        node_of = tree.node_of(level)
        sizes = np.bincount(node_of, minlength=tree.nodes(level))
        columns, shape = node_of[self.rejected.indices], (len(self.partial), len(sizes))
        ones = np.ones(len(columns), dtype=np.float32)
        counts = sp.csr_array((ones, columns, self.rejected.indptr.copy()), shape=shape)
        counts.sum_duplicates()
        counts.data = (counts.data == sizes[counts.indices]).astype(np.float32)
        counts.eliminate_zeros()
        return UnknownLabels(self.partial, counts)


class Labelled(NamedTuple):
    """Encoded documents and their labels."""

    numbered: Numbered
    labels: Csr
    unknown: UnknownLabels | None = None

    def take(self, rows: NDArray[np.int64]) -> Labelled:
        """Some of the documents."""
        unknown = None if self.unknown is None else self.unknown.take(rows)
        return Labelled(taken(self.numbered, rows), self.labels[rows], unknown)

    def documents(self, device: torch.device) -> Documents:
        """These documents on a device."""
        return Documents(self.numbered, self.labels, device, self.unknown)


def split_validation(
    train: Dataset, numbered: Numbered, valid: Dataset | None, reader: DocumentReader, most: int, runtime: Runtime
) -> tuple[Labelled, Labelled | None]:
    """Split off at most `most` validation documents: from `valid` if given, else a tenth of the training set.

    `numbered` has the encoded training documents. Documents with unknown labels are not used for validation, unless
    there are no others.
    """
    assert train.labels is not None
    whole = Labelled(numbered, train.labels, UnknownLabels.of(train))
    random = np.random.default_rng([runtime.seed, 2])
    if valid is not None and len(valid) and most:
        assert valid.labels is not None
        chosen = np.sort(random.permutation(len(valid))[:most])
        return whole, Labelled(reader.encode(valid.take(chosen), runtime), valid.labels[chosen])
    count = min(most, len(train) // 10)
    if not count:
        return whole, None
    order = random.permutation(len(train))
    if whole.unknown is not None and not whole.unknown.partial.all():
        order = order[np.argsort(whole.unknown.partial[order], kind="stable")]  # complete documents first
        count = min(count, int((~whole.unknown.partial).sum()))
    return whole.take(np.sort(order[count:])), whole.take(np.sort(order[:count]))


class Documents:
    """Concatenated word sequences or weighted bags, and the labels of each document."""

    def __init__(
        self,
        sequences: Numbered,
        labels: Csr | None,
        device: torch.device,
        unknown: UnknownLabels | None = None,
    ) -> None:
        self.lengths = np.diff(sequences.indptr)
        self._ids = torch.from_numpy(np.ascontiguousarray(sequences.ids, dtype=np.int32)).to(device)
        self._ends = torch.from_numpy(sequences.indptr[1:].astype(np.int64)).to(device)
        self._lengths = torch.from_numpy(self.lengths.astype(np.int64)).to(device)
        self._weights = torch.from_numpy(sequences.weights).to(device) if isinstance(sequences, Bags) else None
        self._labels: _LabelLists | None = None
        self._partial: tuple[Tensor, _LabelLists] | None = None
        if labels is not None:
            self._label(labels, unknown)

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def device(self) -> torch.device:
        """The device of the tensors."""
        return self._ids.device

    def labelled(self, labels: Csr, unknown: UnknownLabels | None = None) -> Documents:
        """The same documents with other labels."""
        other = copy.copy(self)
        other._label(labels, unknown)
        return other

    def _label(self, labels: Csr, unknown: UnknownLabels | None) -> None:
        self._labels = _LabelLists(labels, self.device)
        self._partial = None
        if unknown is not None:
            rows = torch.from_numpy(unknown.partial).to(self.device)
            self._partial = rows, _LabelLists(unknown.rejected, self.device)

    def tokens(self, rows: Tensor, length: int) -> Tensor:
        """(B, length) word numbers; padding comes first, so that all texts end at the same position."""
        places, inside = self._places(rows, length)
        return self._ids[places] * inside  # padding is 0

    def weights(self, rows: Tensor, length: int) -> Tensor | None:
        """(B, length) weights of these words, 0 at padding; None if documents have no weights."""
        if self._weights is None:
            return None
        places, inside = self._places(rows, length)
        return self._weights[places] * inside

    def _places(self, rows: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """(B, length) positions of the words of these documents, and which of the positions are real."""
        back = torch.arange(length, 0, -1, device=rows.device)  # distance to the end
        ends = self._ends.index_select(0, rows)[:, None]
        return (ends - back).clamp_(min=0), back <= self._lengths.index_select(0, rows)[:, None]

    def positives(self, rows: Tensor) -> Tensor:
        """(B, m) label numbers, −1 as padding; m is the same for every batch."""
        assert self._labels is not None
        return self._labels.take(rows)

    def partial(self, rows: Tensor) -> PartialBatch | None:
        """Which of these documents have unknown labels, and their rejected ones; None if all documents are complete."""
        if self._partial is None:
            return None
        partial, rejected = self._partial
        return PartialBatch(partial.index_select(0, rows), rejected.take(rows))


class _LabelLists:
    """The labels of each document on the device."""

    def __init__(self, labels: Csr, device: torch.device) -> None:
        self._starts = torch.from_numpy(labels.indptr.astype(np.int64)).to(device)
        held = np.append(labels.indices, -1).astype(np.int64)  # with a sentinel to look up for missing labels
        self._held = torch.from_numpy(held).to(device)
        self._most = max(1, int(np.diff(labels.indptr).max(initial=0)))

    def take(self, rows: Tensor) -> Tensor:
        """(B, m) label numbers of some documents, −1 as padding; m is the same for every batch."""
        starts, held = self._starts, self._held
        places = starts.index_select(0, rows)[:, None] + torch.arange(self._most, device=rows.device)
        beyond = places >= starts.index_select(0, rows + 1)[:, None]
        return held[places.masked_fill_(beyond, len(held) - 1)]


def thinned(tokens: Tensor, share: float) -> Tensor:
    """Drop a random fraction of the words of texts (B, T); the others move up, and padding stays on the left."""
    kept = ((torch.rand(tokens.shape, device=tokens.device) >= share) & (tokens != PADDING)).to(tokens.dtype)
    behind = kept.flip(1).cumsum(1).flip(1)  # remaining words from here to the end
    places = (tokens.shape[1] - behind).clamp_(max=tokens.shape[1] - 1)
    return torch.zeros_like(tokens).scatter_add_(1, places, tokens * kept)


def lightened(weights: Tensor, share: float) -> Tensor:
    """Drop a random fraction of the words of bags (B, T); the other weights are scaled up to compensate."""
    return weights * (torch.rand(weights.shape, device=weights.device) >= share) / (1.0 - share)


def length_steps(lengths: NDArray[np.int64], most: int) -> list[int]:
    """Up to `most` lengths to pad to, chosen for the least padding in total; the last is the maximum length."""
    grain = max(8, -(-int(lengths.max()) // 512) * 8)
    longest = int(lengths.max())
    edges = np.unique(np.append(np.arange(grain, longest, grain), longest))
    below = np.searchsorted(np.sort(lengths), edges, side="right")  # documents up to each length
    cost = edges.astype(np.float64) * below  # with one step: all padded to it
    choice = [np.full(len(edges), -1)]
    for _ in range(min(most, len(edges)) - 1):
        # the earlier steps end at edge j, and this one takes the documents between
        options = cost[None, :] + edges[:, None] * (below[:, None] - below[None, :])
        options[np.triu_indices(len(edges))] = np.inf
        options[0] = np.inf if len(edges) > 1 else options[0]
        before = np.argmin(options, axis=1)
        best = options[np.arange(len(edges)), before]
        choice.append(before)
        cost = best
    steps, at = [], len(edges) - 1
    for before in reversed(choice):
        steps.append(int(edges[at]))
        at = int(before[at])
    return sorted(set(steps))


def epoch_batches(lengths: NDArray[np.int64], steps: list[int], size: int, random: np.random.Generator) -> list[Batch]:
    """All documents once, in random batches of similar length and equal size.

    Documents that do not fill a batch move on to the next length; the last batch is filled up with repeated documents.
    """
    order = random.permutation(len(lengths))
    step_of = np.searchsorted(steps, lengths[order])
    waiting = np.empty(0, dtype=np.int64)
    batches = []
    for number, length in enumerate(steps):
        rows = np.concatenate([waiting, order[step_of == number]])
        rows = random.permutation(rows)
        full = len(rows) // size * size
        batches += [Batch(rows[at : at + size], length) for at in range(0, full, size)]
        waiting = rows[full:]
    if len(waiting):
        drawn = random.permutation(len(lengths))[: size - len(waiting)]
        batches.append(Batch(np.resize(np.concatenate([waiting, drawn]), size), steps[-1]))
    return [batches[place] for place in random.permutation(len(batches))]
