"""Word vectors trained on the training texts: word2vec with negative sampling.

CBOW predicts a word from the mean of the words around it, skip-gram from each of them. A single thread processes the
documents in order with its own random numbers, so results do not depend on the number of threads. A word costs one
pass over `negative` + 1 rows, in skip-gram one pass per context word.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from xmtc.core.config import Settings
from xmtc.core.jit import inlined, kernel
from xmtc.core.progress import Progress, silent

CHUNK_TOKENS = 1 << 18
"""Tokens between two progress updates; the vectors do not depend on it."""


@dataclass(frozen=True)
class CorpusVectorSettings(Settings):
    """Training of word vectors on the training texts."""

    of: ClassVar[str] = "corpus"

    kind: Literal["cbow", "skipgram"] = "cbow"
    """Predict a word from the mean of its context ('cbow', fast) or from each context word ('skipgram')."""
    width: int = 100
    """Dimension of the vectors."""
    window: int = 5
    """Maximum context size on either side; the size is drawn from 1 to this for each word."""
    negative: int = 5
    """Number of negative samples per word."""
    epochs: int = 5
    """Passes over the texts."""
    learning_rate: float = 0.05
    """Initial learning rate; it decreases linearly to zero."""
    subsample: float = 1e-4
    """Words with a higher relative frequency than this are skipped at random, frequent ones more often; 0 keeps all."""

    def check(self) -> None:
        for name in ("width", "window", "negative", "epochs"):
            self.require_range(name, 1)
        self.require_range("learning_rate", 0, open_low=True)
        self.require_range("subsample", 0)


Corpus: TypeAlias = tuple[NDArray[np.int64], NDArray[np.int32]]
"""(n + 1,) document starts, and the words in order; negative numbers are unknown words, which are skipped."""


def train_vectors(
    indptr: NDArray[np.int64],  # (n + 1,) where documents start in ids
    ids: NDArray[np.int32],  # (total,) words in order; negative numbers are unknown words, which are skipped
    frequencies: NDArray[np.int64],  # (V,) how often each word occurs
    settings: CorpusVectorSettings,
    seed: int = 0,
    progress: Progress = silent,
) -> NDArray[np.float32]:
    """Train word vectors (V, width). A word that does not occur keeps its small random initial vector."""
    total = int(indptr[-1] - indptr[0])
    return train_on_parts(lambda: [(indptr, ids)], total, frequencies, settings, seed=seed, progress=progress)


def train_on_parts(
    parts: Callable[[], Iterable[Corpus]],  # the parts of the corpus, called once per epoch
    total: int,  # tokens in all parts
    frequencies: NDArray[np.int64],  # (V,) how often each word occurs
    settings: CorpusVectorSettings,
    *,
    shared_negatives: bool = False,
    seed: int = 0,
    title: str = "training word vectors",
    progress: Progress = silent,
) -> NDArray[np.float32]:
    """Train word vectors like `train_vectors` on a corpus that need not fit in memory.

    With `shared_negatives`, all context words of a word share the same negative samples. The vectors in use then fit
    in the CPU cache, which makes skip-gram several times faster.
    """
    inputs = initial_vectors(len(frequencies), settings.width, seed)
    outputs = np.zeros_like(inputs)
    state = np.array([scrambled(seed)], dtype=np.uint64)
    keep, noise = keep_thresholds(frequencies, settings.subsample), noise_table(frequencies)
    done = 0
    with progress.task(title, settings.epochs * total) as task:
        for indptr, ids in itertools.chain.from_iterable(parts() for _ in range(settings.epochs)):
            if len(ids) and int(ids.max()) >= len(frequencies):
                raise ValueError(f"word {ids.max()} has no frequency. Got frequencies of {len(frequencies)} words.")
            longest = int(np.diff(indptr).max()) if len(indptr) > 1 else 0
            words, places = np.empty(longest, dtype=np.int32), np.empty(longest, dtype=np.int64)
            for first, last in _chunks(indptr):
                learn(
                    indptr[first : last + 1],
                    ids,
                    keep,
                    noise,
                    settings.kind == "skipgram",
                    shared_negatives,
                    settings.window,
                    settings.negative,
                    settings.learning_rate,
                    done - int(indptr[0]),
                    settings.epochs * total,
                    inputs,
                    outputs,
                    state,
                    words,
                    places,
                )
                task.advance(int(indptr[last] - indptr[first]))
            done += int(indptr[-1] - indptr[0])
    return inputs


def initial_vectors(count: int, width: int, seed: int) -> NDArray[np.float32]:
    """Draw initial vectors (count, width) uniformly from ±½ / width."""
    drawn = np.random.default_rng(seed & (1 << 64) - 1).random((count, width), dtype=np.float32)
    return (drawn - np.float32(0.5)) / np.float32(width)


def scrambled(seed: int) -> int:
    """Return 64 random bits, not all zero, by splitmix64."""
    mask = (1 << 64) - 1
    state = (seed + 0x9E3779B97F4A7C15) & mask
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & mask
    return (state ^ (state >> 31)) or 1


def keep_thresholds(frequencies: NDArray[np.int64], subsample: float) -> NDArray[np.uint64]:
    """Return thresholds (V,) for 32 random bits: keep a word of frequency f with probability √(t / f) + t / f."""
    shares = np.maximum(frequencies, 1) / max(int(frequencies.sum()), 1)
    ratios = subsample / shares if subsample > 0 else np.ones_like(shares)
    return np.asarray(np.minimum(np.sqrt(ratios) + ratios, 1.0) * 2.0**32).astype(np.uint64)


def noise_table(frequencies: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return an alias table (V, 2) for sampling words in proportion to frequency^¾.

    Slot i yields word i for 32 random bits below the first number, otherwise the word given by the second number.
    """
    weights = frequencies.astype(np.float64) ** 0.75
    if not weights.sum() > 0:
        weights = np.ones(len(frequencies))
    return _alias(weights * (len(weights) / max(weights.sum(), 1e-300)))


def _chunks(indptr: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return ranges of consecutive documents with about CHUNK_TOKENS tokens each."""
    marks = np.arange(int(indptr[0]), int(indptr[-1]) + CHUNK_TOKENS, CHUNK_TOKENS)
    bounds = np.unique(np.append(np.searchsorted(indptr[:-1], marks), [0, len(indptr) - 1])).tolist()
    return list(itertools.pairwise(bounds))


@kernel()
def _alias(shares: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Build an alias table: fill each slot below its share from one above its share."""
    count = len(shares)
    table = np.empty((count, 2), np.uint32)
    left = shares.copy()
    small, large = np.empty(count, np.int64), np.empty(count, np.int64)
    smaller = larger = 0
    for word in range(count):
        if left[word] < 1.0:
            small[smaller] = word
            smaller += 1
        else:
            large[larger] = word
            larger += 1
        table[word, 0] = np.uint32(0xFFFFFFFF)
        table[word, 1] = np.uint32(word)
    while smaller > 0 and larger > 0:
        smaller -= 1
        low, high = small[smaller], large[larger - 1]
        table[low, 0] = np.uint32(min(left[low] * 4294967296.0, 4294967295.0))
        table[low, 1] = np.uint32(high)
        left[high] -= 1.0 - left[low]
        if left[high] < 1.0:
            larger -= 1
            small[smaller] = high
            smaller += 1
    return table


@inlined
def _next(state: Any) -> Any:
    """Advance xorshift64; its bits are used after `_mixed`."""
    state ^= state << np.uint64(13)
    state ^= state >> np.uint64(7)
    state ^= state << np.uint64(17)
    return state


@inlined
def _mixed(state: Any) -> Any:
    return state * np.uint64(0x2545F4914F6CDD1D)


@inlined
def _draw(word: Any, noise: Any, targets: Any, state: Any) -> Any:
    """Fill `targets` with the word and negative samples, −1 for draws of the word itself; return the random state."""
    targets[0] = word
    for draw in range(1, len(targets)):
        state = _next(state)
        bits = _mixed(state)
        slot = np.int64(((bits >> np.uint64(32)) * np.uint64(len(noise))) >> np.uint64(32))
        coin = bits & np.uint64(0xFFFFFFFF)
        target = slot if coin < np.uint64(noise[slot, 0]) else np.int64(noise[slot, 1])
        targets[draw] = target if target != word else -1
    return state


@inlined
def _tell_apart(hidden: Any, targets: Any, rate: Any, outputs: Any, change: Any) -> None:
    """Move the output row of the first target towards `hidden` and those of the others away from it.

    `change` becomes the step of `hidden` itself: −rate times the gradient of −ln σ(h·o) − Σ ln σ(−h·o').
    """
    width = len(hidden)
    one = np.float32(1.0)
    for i in range(width):
        change[i] = np.float32(0.0)
    for draw in range(len(targets)):
        if targets[draw] < 0:
            continue
        label = one if draw == 0 else np.float32(0.0)
        row = outputs[targets[draw]]
        product = np.float32(0.0)
        for i in range(width):
            product += hidden[i] * row[i]
        step = (label - one / (one + np.exp(-product))) * rate
        for i in range(width):
            change[i] += step * row[i]
            row[i] += step * hidden[i]


@kernel(outputs=("inputs", "outputs", "state", "words", "places"), fastmath={"reassoc", "contract", "nsz"})
def learn(
    indptr: NDArray[np.int64],  # of the documents of this chunk
    ids: NDArray[np.int32],
    keep: NDArray[np.uint64],  # (V,) of keep_thresholds
    noise: NDArray[np.uint32],  # (V, 2) of noise_table
    skipgram: bool,
    shared: bool,  # whether all context words share the same negative samples
    window: int,
    negative: int,
    learning_rate: float,
    before: int,  # tokens of earlier epochs and parts, less where this part starts in ids
    total: int,  # tokens of all epochs
    inputs: NDArray[np.float32],  # out: (V, width) the vectors
    outputs: NDArray[np.float32],  # out: (V, width) output vectors
    state: NDArray[np.uint64],  # out: (1,) random state
    words: NDArray[np.int32],  # out: buffer for the longest document
    places: NDArray[np.int64],  # out: buffer for the longest document
) -> None:
    """Make one pass over documents; contexts end at document boundaries, and unknown words are skipped."""
    width = inputs.shape[1]
    hidden, change = np.empty(width, np.float32), np.empty(width, np.float32)
    targets = np.empty(negative + 1, np.int64)
    chance = state[0]
    for document in range(len(indptr) - 1):
        count = 0
        for place in range(indptr[document], indptr[document + 1]):
            word = ids[place]
            if word < 0:
                continue
            if keep[word] < np.uint64(0x100000000):
                chance = _next(chance)
                if (_mixed(chance) >> np.uint64(32)) >= keep[word]:
                    continue
            words[count], places[count] = word, place
            count += 1
        for centre in range(count):
            rate = np.float32(learning_rate * (1.0 - (before + places[centre]) / total))
            chance = _next(chance)
            reach: Any = 1 + np.int64((_mixed(chance) >> np.uint64(33)) % np.uint64(window))
            first, last = max(centre - reach, 0), min(centre + reach + 1, count)
            if last - first < 2:
                continue
            if shared or not skipgram:
                chance = _draw(words[centre], noise, targets, chance)
            if skipgram:
                for near in range(first, last):
                    if near == centre:
                        continue
                    if not shared:
                        chance = _draw(words[centre], noise, targets, chance)
                    row = inputs[words[near]]
                    for i in range(width):
                        hidden[i] = row[i]
                    _tell_apart(hidden, targets, rate, outputs, change)
                    for i in range(width):
                        row[i] += change[i]
                continue
            share = np.float32(1.0 / (last - first - 1))
            for i in range(width):
                hidden[i] = np.float32(0.0)
            for near in range(first, last):
                if near != centre:
                    row = inputs[words[near]]
                    for i in range(width):
                        hidden[i] += row[i]
            for i in range(width):
                hidden[i] *= share
            _tell_apart(hidden, targets, rate, outputs, change)
            for near in range(first, last):
                if near != centre:
                    row = inputs[words[near]]
                    for i in range(width):
                        row[i] += change[i]  # each word takes the full step of the mean, as in word2vec
    state[0] = chance
