"""Synthetic texts whose labels can be read off the text: the right answer is known before any model runs.

Every label has three words that no other label uses, every cluster of labels shares a few more, and the rest is
English function words and filler. A model that cannot predict these labels is broken.

No table grows with the number of labels: a word is spelled from its number, a label's rank is computed from its id,
and documents are generated in blocks, each from its own random stream. A corpus of a million labels starts as fast as
one of two hundred, and any part of it can be generated alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, TextIO, TypeVar

import numpy as np
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError
from xmtc.data.planted_words import (
    BOTH_CASES,
    COMMON,
    CONTENT,
    CONTENTS,
    ENGLISH,
    FUNCTION,
    LENGTHS,
    NOUNS,
    PREPOSITIONS,
    SENTENCES,
    SIZES,
    SLOTS,
    Integers,
    Strings,
    spell,
)

Value = TypeVar("Value")

BLOCK = 1024  # documents per random stream; changing it changes every text
OWN_WORDS = 3  # words of one label: its place and two more
CLUSTER_WORDS = 8  # words of one cluster: its noun and seven invented ones
TOGETHER = 0.8  # chance that a further label of a document comes from the cluster of its first
CLUSTER_SHARE = 0.5  # part of the filler that hints at the cluster; the other part hints at nothing
MOST_LABELS = 10_000_000  # even with as many clusters, their words fit in what `spell` has to give away


def _zipf_ranks(uniform: NDArray[np.float64], count: int, exponent: float) -> Integers:
    """Ranks 0 … count-1 with frequencies of about (rank + 1)^-exponent.

    The inverse of the continuous law is a closed form: no table of `count` cumulated frequencies.
    """
    power = 1.0 - exponent
    if abs(power) < 1e-6:
        position = np.exp(uniform * math.log(count + 1))
    else:
        position = (1.0 + uniform * ((count + 1) ** power - 1.0)) ** (1.0 / power)
    return np.minimum(position.astype(np.int64) - 1, count - 1)


def _favour_first(random: np.random.Generator, sizes: Integers) -> Integers:
    """One index below each size, small ones more often: a short list's cheap likeness of word frequencies."""
    return (sizes * random.random(len(sizes)) ** 1.5).astype(np.int64)


def _starts(counts: Integers) -> Integers:
    """Where each group begins when groups of these sizes lie one after the other."""
    return np.cumsum(counts) - counts


def _turns(counts: Integers) -> Integers:
    """0, 1, … within each group."""
    return np.arange(counts.sum()) - np.repeat(_starts(counts), counts)


class PlantedBatch(NamedTuple):
    """Documents in columns; labels are ascending label ids."""

    ids: list[str]
    texts: list[str]
    labels: list[list[int]]


class _Slots(NamedTuple):
    """The word positions of a block, document after document, before content words are known."""

    words: Strings  # (slots,) function words; the content slots hold anything
    ends: Integers  # (sentences,) the last slot of each sentence
    documents: Integers  # (slots,) ascending
    content: Integers  # (content slots,) the slots for content words
    wants_place: NDArray[np.bool_]  # (content slots,) whether a preposition comes before


@dataclass(frozen=True)
class PlantedCorpus:
    """A seeded corpus. Document i is the same for every `documents`: train on the first n, test on more."""

    documents: int = 2000
    """How many documents there are."""
    labels: int = 200
    """How many labels there are. Rare ones may have no document."""
    clusters: int | None = None
    """Groups of labels that occur together; None means the square root of `labels`."""
    labels_per_document: float = 2.5
    """Mean number of labels of a document, which has at least one. It comes out lower when few labels are
    within reach, because repeated draws are dropped."""
    words_per_document: int = 40
    """Mean number of words; a text is longer when the words of its labels need the room."""
    zipf: float = 0.8
    """The label of rank r has a frequency of about r^-zipf; 0 makes all alike."""
    noise: float = 0.05
    """Chance that a label of a document leaves none of its own words in the text."""
    seed: int = 0
    """Another seed gives other texts and deals the labels to other clusters; the words stay the same."""

    def __post_init__(self) -> None:
        self._check("documents", "an integer ≥ 1", int, 1)
        self._check("labels", f"an integer ≥ 2 and ≤ {MOST_LABELS}", int, 2, MOST_LABELS)
        if self.clusters is not None:
            self._check("clusters", "None or an integer ≥ 1 and ≤ labels", int, 1, self.labels)
        self._check("labels_per_document", "a number ≥ 1 and ≤ 1000", (int, float), 1, 1000)
        self._check("words_per_document", "an integer ≥ 1", int, 1)
        self._check("zipf", "a number ≥ 0 and ≤ 3", (int, float), 0, 3)
        self._check("noise", "a number ≥ 0 and ≤ 1", (int, float), 0, 1)
        self._check("seed", "an integer ≥ 0", int, 0)

    def _check(
        self, name: str, allowed: str, kind: type | tuple[type, ...], least: float, most: float = math.inf
    ) -> None:
        value: Any = getattr(self, name)
        is_kind = isinstance(value, kind) and not isinstance(value, bool)
        if not is_kind or not least <= value <= most:
            raise ConfigError(f"'{name}' of planted must be {allowed}. Got {value!r}.")

    # ---- labels and their words

    @cached_property
    def cluster_count(self) -> int:
        """Number of clusters of labels."""
        return self.clusters if self.clusters is not None else round(math.sqrt(self.labels))

    @cached_property
    def _deal(self) -> tuple[int, int]:
        """(step, shift) of label = (rank · step + shift) mod labels: an id must not give away the rank."""
        random = np.random.default_rng(self.seed)
        step = int(random.integers(1, self.labels))
        while math.gcd(step, self.labels) != 1:
            step = step % (self.labels - 1) + 1
        return step, int(random.integers(self.labels))

    def _clusters_of(self, labels: Integers) -> Integers:
        """Ranks are dealt to the clusters in turn: each gets frequent and rare labels."""
        step, shift = self._deal
        ranks = (labels - shift) * pow(step, -1, self.labels) % self.labels
        return ranks % self.cluster_count

    def _other_numbers(self, labels: Integers) -> Integers:
        """(labels, 2) numbers of a label's own words but the place, whose number is the label itself."""
        return self.labels + (OWN_WORDS - 1) * labels[:, None] + np.arange(OWN_WORDS - 1)

    def _cluster_numbers(self, clusters: Integers, turn: Integers | int) -> Integers:
        """Numbers of cluster words; the first, an English noun, is a negative number for `_spell`."""
        invented = OWN_WORDS * self.labels + (CLUSTER_WORDS - 1) * clusters + turn - 1
        return np.where(np.equal(turn, 0), -1 - clusters % len(NOUNS), invented)

    def _noise_numbers(self, ranks: Integers) -> Integers:
        """Numbers of words that hint at nothing: the common English ones, then a long invented tail."""
        invented = OWN_WORDS * self.labels + (CLUSTER_WORDS - 1) * self.cluster_count + ranks
        return np.where(ranks < len(COMMON), -1 - len(NOUNS) - ranks, invented)

    def _spell(self, numbers: Integers) -> Strings:
        """Words as texts have them: places get their capital, negative numbers are English."""
        words = spell(np.maximum(numbers, 0), capital=numbers < self.labels)
        is_english = numbers < 0
        words[is_english] = ENGLISH[-1 - numbers[is_english]]
        return words

    def _names(self, labels: Integers) -> list[str]:
        """'bridges of Tramvel', or 'dorvan bridges of Tramvel' once the nouns are used up."""
        clusters = self._clusters_of(labels)
        prefixes = spell(self._cluster_numbers(clusters, 1)) + " "
        prefixes[clusters < len(NOUNS)] = ""
        return list(prefixes + NOUNS[clusters % len(NOUNS)] + " of " + spell(labels, capital=True))

    def label_name(self, label: int) -> str:
        """The name of a label."""
        return self._names(np.array([label]))[0]

    def label_names(self) -> list[str]:
        """The names of all labels, by id."""
        return self._names(np.arange(self.labels))

    def label_words(self, label: int) -> list[str]:
        """The words planted for this label, in lower case; the first is the place in its name."""
        return list(spell(np.array([label, *self._other_numbers(np.array([label]))[0]])))

    def cluster_of(self, label: int) -> int:
        """The cluster that a label belongs to."""
        return int(self._clusters_of(np.array([label]))[0])

    def cluster_words(self, cluster: int) -> list[str]:
        """The words shared by the labels of this cluster; the first is the noun in their names."""
        return list(self._spell(self._cluster_numbers(np.array([cluster]), np.arange(CLUSTER_WORDS))))

    # ---- documents

    def batches(self, size: int = 4096, start: int = 0, stop: int | None = None) -> Iterator[PlantedBatch]:
        """Documents start … stop-1, `size` at a time; memory stays at one batch and one block."""
        stop = self.documents if stop is None else stop
        if size < 1:
            raise ConfigError(f"'size' of planted batches must be an integer ≥ 1. Got {size}.")
        if not 0 <= start <= stop <= self.documents:
            wanted = f"documents {start} to {stop}"
            raise ConfigError(f"{wanted} are out of range for planted, which has {self.documents}. Raise 'documents'.")
        return self._batches(size, start, stop)

    def _batches(self, size: int, start: int, stop: int) -> Iterator[PlantedBatch]:
        texts: list[str] = []
        labels: list[list[int]] = []
        first = start  # the document that texts[0] belongs to
        for block_start in range(start - start % BLOCK, stop, BLOCK):
            block_texts, block_labels = self._block(block_start // BLOCK)
            part = slice(max(start - block_start, 0), stop - block_start)
            texts += block_texts[part]
            labels += block_labels[part]
            while len(texts) >= size or (texts and block_start + BLOCK >= stop):
                ids = [f"d{number:07d}" for number in range(first, first + len(texts[:size]))]
                yield PlantedBatch(ids, texts[:size], labels[:size])
                texts, labels, first = texts[size:], labels[size:], first + size

    def write_jsonl(self, handle: TextIO, start: int = 0, stop: int | None = None) -> None:
        """One line {"id", "text", "labels": [names]} per document."""
        for batch in self.batches(BLOCK, start, stop):
            used = sorted({label for labels in batch.labels for label in labels})
            names = dict(zip(used, self._names(np.array(used)), strict=True))
            for identifier, text, labels in zip(*batch, strict=True):
                line = {"id": identifier, "text": text, "labels": [names[label] for label in labels]}
                handle.write(json.dumps(line) + "\n")

    def _block(self, block: int) -> tuple[list[str], list[list[int]]]:
        """All texts and labels of one block, whose random stream depends on the seed and the block alone."""
        random = np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.seed, spawn_key=(block,))))
        documents, labels = self._draw_labels(random)
        is_planted = random.random(len(labels)) >= self.noise
        planted_counts = np.bincount(documents[is_planted], minlength=BLOCK)
        slots = _draw_sentences(random, self.words_per_document, OWN_WORDS * planted_counts + 2)
        numbers = self._draw_filler(random, slots, documents, labels)
        self._plant(random, numbers, slots, labels[is_planted], planted_counts)
        slots.words[slots.content] = self._spell(numbers)
        slots.words[slots.ends] += "."
        texts = [" ".join(words) for words in _grouped(slots.words.tolist(), slots.documents)]
        return texts, _grouped(labels.tolist(), documents)

    def _draw_labels(self, random: np.random.Generator) -> tuple[Integers, Integers]:
        """(document, label) pairs in ascending order, without repetition, at least one per document."""
        wanted = 1 + random.poisson(self.labels_per_document - 1, BLOCK)
        width = 2 * int(wanted.max()) + 2  # spare draws, because repeated ones are dropped
        ranks = _zipf_ranks(random.random((BLOCK, width)), self.labels, self.zipf)
        # Cluster c has the ranks c, c + cluster_count, …: a neighbour is the member as far down its cluster
        # as a rank is down the whole list.
        clusters = ranks[:, :1] % self.cluster_count
        members = (self.labels - 1 - clusters) // self.cluster_count + 1
        neighbours = ranks * members // self.labels * self.cluster_count + clusters
        together = random.random((BLOCK, width)) < TOGETHER
        together[:, 0] = False
        ranks = np.where(together, neighbours, ranks)

        step, shift = self._deal
        keys = np.arange(BLOCK)[:, None] * self.labels + (ranks * step + shift) % self.labels
        distinct, first_draws = np.unique(keys, return_index=True)
        distinct = distinct[np.argsort(first_draws)]  # back in the order of drawing
        documents = distinct // self.labels
        turns = _turns(np.bincount(documents, minlength=BLOCK))
        kept = np.sort(distinct[turns < wanted[documents]])
        return kept // self.labels, kept % self.labels

    def _draw_filler(
        self, random: np.random.Generator, slots: _Slots, documents: Integers, labels: Integers
    ) -> Integers:
        """A number for each content slot: words of a cluster of its document, or of nothing in particular."""
        slot_documents = slots.documents[slots.content]
        count = len(slot_documents)
        label_counts = np.bincount(documents, minlength=BLOCK)
        turn = (random.random(count) * label_counts[slot_documents]).astype(np.int64)
        clusters = self._clusters_of(labels[_starts(label_counts)[slot_documents] + turn])
        hints = self._cluster_numbers(clusters, _favour_first(random, np.full(count, CLUSTER_WORDS)))
        noise = self._noise_numbers(_zipf_ranks(random.random(count), 4096 + self.labels, 1.0))
        return np.where(random.random(count) < CLUSTER_SHARE, hints, noise)

    def _plant(
        self,
        random: np.random.Generator,
        numbers: Integers,
        slots: _Slots,
        labels: Integers,
        counts: Integers,
    ) -> None:
        """Put the own words of `labels`, `counts` of them per document, in place of some of the filler.

        Places take slots after a preposition while there are any, the other words slots elsewhere.
        """
        slot_documents = slots.documents[slots.content]
        order = np.argsort(2 * slot_documents + ~slots.wants_place + random.random(len(numbers)))
        ends = np.cumsum(np.bincount(slot_documents, minlength=BLOCK))
        starts = np.concatenate([[0], ends[:-1]])
        others = (OWN_WORDS - 1) * counts
        numbers[order[np.repeat(starts, counts) + _turns(counts)]] = labels
        numbers[order[np.repeat(ends, others) - 1 - _turns(others)]] = self._other_numbers(labels).ravel()


def _draw_sentences(random: np.random.Generator, words_per_document: int, room: Integers) -> _Slots:
    """Whole sentences for each document until it is long enough and has `room` content slots."""
    half = int(LENGTHS.mean()) // 2  # the last sentence runs over the wanted length by half of it on average
    wanted = np.maximum(words_per_document * random.uniform(0.75, 1.25, BLOCK) - half, 1)
    most = math.ceil(max(wanted.max() / LENGTHS.min(), room.max() / CONTENTS.min()))
    drawn = random.integers(len(SENTENCES), size=(BLOCK, most))
    words_before = np.cumsum(LENGTHS[drawn], axis=1) - LENGTHS[drawn]
    content_before = np.cumsum(CONTENTS[drawn], axis=1) - CONTENTS[drawn]
    used = (words_before < wanted[:, None]) | (content_before < room[:, None])

    lengths = LENGTHS[drawn[used]]
    kinds = SLOTS[drawn[used]]
    kinds = kinds[kinds >= 0]
    choice = _starts(SIZES)[kinds] + _favour_first(random, SIZES[kinds])
    choice[_starts(lengths)] += len(FUNCTION)  # a capital for the first word
    content = np.nonzero(kinds == CONTENT)[0]
    return _Slots(
        words=BOTH_CASES[choice],
        ends=np.cumsum(lengths) - 1,
        documents=np.repeat(np.nonzero(used)[0], lengths),
        content=content,
        wants_place=np.isin(kinds[content - 1], PREPOSITIONS),
    )


def _grouped(values: list[Value], documents: Integers) -> list[list[Value]]:
    """One list per document of a block, from values that lie document after document."""
    ends = np.cumsum(np.bincount(documents, minlength=BLOCK)).tolist()
    return [values[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
