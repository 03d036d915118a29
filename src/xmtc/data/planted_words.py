"""Words of the synthetic corpus: English words, and pseudo-words spelled from a number."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Strings = NDArray[np.object_]


def strings(words: str | Iterable[str]) -> Strings:
    """An array of Python strings: picking from it and adding to it costs no copy of the characters."""
    return np.array(words.split() if isinstance(words, str) else list(words), dtype=object)


# ---- English words. Most end in s, as no invented word does; a test holds the others against the spelling.

NOUNS = strings(
    "bridges orchards tariffs glaciers violins reefs treaties looms comets vaccines harbours murals fossils "
    "canals operas lanterns dialects railways vineyards volcanoes libraries ferries meadows telescopes "
    "cathedrals minerals puppets reservoirs falcons markets poems dunes archives windmills insects statues "
    "lagoons engines carpets strikes mosses clocks hospitals rivers ballads dams orchids auctions tunnels "
    "dolphins temples wages lighthouses deserts medals beacons granaries choirs swamps maps breweries juries "
    "theatres quarries currencies kites estuaries schools magnets festivals candles prisons camels aqueducts "
    "forests mirrors parliaments compasses beaches monasteries buttons satellites caves harvests pigments "
    "fountains museums bees castles fevers lenses gardens canoes chapels islands ceramics locks badgers"
)
COMMON = strings(  # the most frequent of the words that hint at nothing
    "years days stories names friends letters visitors reasons numbers questions roads hours families plans "
    "neighbours voices habits owners workers towns seasons rumours memories answers papers customs colours "
    "travellers debts stones rules cousins winters guests promises secrets notes errors summers prices"
)
ENGLISH = np.concatenate([NOUNS, COMMON])
FUNCTION_WORDS = {  # by the letter that stands for them in SENTENCES; the first of a list is the commonest
    "d": strings("the their our its these those such"),
    "p": strings("of in near with from for under beyond between along across against behind beside"),
    "q": strings("in near from under beyond along across behind beside around above after before"),
    "v": strings("met kept found held followed reached changed crossed left built made gave saw joined"),
    "k": strings("and or but while as because where until"),
    "o": strings("often meanwhile today once again always sometimes here soon perhaps now still then"),
}
# Content words (c) take whatever the document has to say. A sentence starts with a function word and ends
# with a content word, so that capital and full stop need no look at the words.
SENTENCES = strings("odcvdc dcpcvdc qcdcvdcpc dcpcvcpc dckcvqdc qdcdcvc dcvcpdckc ocvdcpckdcvc odcpcvc")

KINDS = {letter: kind for kind, letter in enumerate(["c", *FUNCTION_WORDS])}
CONTENT, PREPOSITIONS = KINDS["c"], [KINDS["p"], KINDS["q"]]
LENGTHS = np.array([len(sentence) for sentence in SENTENCES])
CONTENTS = np.array([sentence.count("c") for sentence in SENTENCES])
SLOTS = np.array([[KINDS.get(letter, -1) for letter in f"{sentence:<{LENGTHS.max()}}"] for sentence in SENTENCES])
SIZES = np.array([0, *(len(words) for words in FUNCTION_WORDS.values())])  # of each kind
FUNCTION = np.concatenate(list(FUNCTION_WORDS.values()))
BOTH_CASES = strings([*FUNCTION, *(word.capitalize() for word in FUNCTION)])

# ---- Invented words: onset vowel (medial vowel) medial vowel coda. Consonants and vowels alternate, so a
# ---- word can be cut in one way only: two numbers never give the same word.

ONSETS = strings("b d f g h j k l m n p r s t v w z br dr gr tr fl pl st th sh")
VOWELS = strings("a e i o u")
MEDIALS = strings(
    "l n r m t d v b k s p g nd ll st rr nn lv rn nt br tr rt mb ld lm rl rd rv th sh z f mm tt ss nv lt rm "
    "ng nk mp rk dr ns lk sk sp gr mv nl str"
)
CODAS = strings("n l r m t k th x nd rn ll ck ng rd sk p")

HEADS = strings(["".join(parts) for parts in product(ONSETS, VOWELS)][: 1 << 7])
MIDDLES = strings(["".join(parts) for parts in product(MEDIALS, VOWELS)][: 1 << 8])
TAILS = strings(["".join(parts) for parts in product(MEDIALS, VOWELS, CODAS)][: 1 << 12])
SHORT_BITS, LONG_BITS = 7 + 12, 7 + 8 + 12
HEADS_BOTH_CASES = strings([*HEADS, *(head.capitalize() for head in HEADS)])
MIDDLES_AND_NONE = strings([*MIDDLES, ""])


def _scramble(numbers: Integers, bits: int) -> Integers:
    """A bijection of [0, 2^bits): odd products and shifted xors, so that neighbours look unrelated."""
    scrambled = numbers.astype(np.uint64)
    for multiplier in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93):
        scrambled = (scrambled * np.uint64(multiplier)) & np.uint64((1 << bits) - 1)
        scrambled = scrambled ^ (scrambled >> np.uint64(bits // 2))
    return scrambled.astype(np.int64)


def spell(numbers: Integers, capital: NDArray[np.bool_] | bool = False) -> Strings:
    """The words of these numbers: two syllables for the first 2^19 numbers, three for the next 2^27."""
    is_long = numbers >= 1 << SHORT_BITS
    long_code = _scramble(numbers - (1 << SHORT_BITS), LONG_BITS)
    code = np.where(is_long, long_code, _scramble(numbers, SHORT_BITS))
    head = np.where(is_long, code >> 20, code >> 12) + np.where(capital, len(HEADS), 0)
    middle = np.where(is_long, (code >> 12) & 255, len(MIDDLES))
    words: Strings = HEADS_BOTH_CASES[head] + MIDDLES_AND_NONE[middle] + TAILS[code & 4095]
    return words
