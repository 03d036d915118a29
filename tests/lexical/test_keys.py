"""Keys of words and n-grams: plain Python as the judge."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.name_matching import MASK, plain_grams, plain_key
from xmtc.lexical.keys import KeyTable, code_points, gram_keys, word_keys

WORDS = ["wind", "a", "", "ab", "abc", "straße", "日本", "dna検査の", "windkraftanlage", "𝒳y", "wind"]


def drawn_words(count: int) -> list[str]:
    """Distinct words of syllables with inflected forms, which differ in few letters."""
    random = np.random.default_rng(5)
    syllables = [a + b for a in "bcdfghklmnprstvwzß" for b in ("a", "e", "i", "o", "u", "ä", "er", "st")]
    found: dict[str, None] = {}
    while len(found) < count:
        stem = "".join(syllables[i] for i in random.integers(0, len(syllables), size=int(random.integers(1, 5))))
        found.update(dict.fromkeys(stem + ending for ending in ("", "s", "en", "er", "ung", "ing")))
    return list(found)[:count]


def test_keys_of_words() -> None:
    keys = word_keys(*code_points(WORDS))
    assert keys.dtype == np.uint64
    assert keys.tolist() == [plain_key(word, 7) for word in WORDS]
    assert len(word_keys(*code_points([]))) == 0


def test_a_lone_surrogate_is_one_character() -> None:
    codes, offsets = code_points(["a\ud800b", "c"])
    assert offsets.tolist() == [0, 3, 4]
    assert codes.tolist() == [ord(letter) for letter in "a?bc"]


@pytest.mark.parametrize("sizes", [(4, 5), (3, 3), (2, 6)])
def test_grams_are_those_of_the_padded_word(sizes: tuple[int, int]) -> None:
    indptr, keys = gram_keys(*code_points(WORDS), *sizes)
    grams = [plain_grams(word, *sizes) for word in WORDS]
    assert np.diff(indptr).tolist() == [len(own) for own in grams]
    assert keys.tolist() == [plain_key(gram, 11) for own in grams for gram in own]


def test_no_two_words_collide() -> None:
    words = drawn_words(100_000)
    assert len(set(words)) == 100_000
    codes, offsets = code_points(words)
    assert len(KeyTable.of(word_keys(codes, offsets))) == 100_000
    grams = {gram for word in words[:20_000] for gram in plain_grams(word, 4, 5)}
    some, ends = code_points(words[:20_000])
    assert len(KeyTable.of(gram_keys(some, ends, 4, 5)[1])) == len(grams) > 20_000


@pytest.mark.parametrize("count", [0, 1, 5000])
def test_numbers_are_positions_in_ascending_order(count: int) -> None:
    random = np.random.default_rng(count)
    drawn = random.integers(0, 1 << 64, size=2 * count, dtype=np.uint64)
    drawn[::3] >>= np.uint64(40)  # many keys in the first bucket
    table = KeyTable.of(np.repeat(drawn[:count], 2))
    numbers = {key: number for number, key in enumerate(sorted(set(drawn[:count].tolist())))}
    edges = np.array([0, 1, MASK, MASK - 1, 1 << 48, (1 << 48) - 1], dtype=np.uint64)
    asked = np.concatenate([drawn, edges])
    assert len(table) == len(numbers)
    assert table.numbers(asked).tolist() == [numbers.get(key, -1) for key in asked.tolist()]
    everything = KeyTable.of(np.concatenate([drawn, edges]))
    assert (everything.numbers(everything.keys) == np.arange(len(everything))).all()
