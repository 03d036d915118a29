"""Stems of words: by light rules for European languages together, or by the Snowball algorithm of a known language.

The light rules remove endings of inflection, so that singular and plural, cases and spellings share a stem; words of
different meaning seldom do. They apply until none fits any more, hence the stem of a stem is itself. Words of other
scripts are their own stems.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from threading import local

import pyarrow as pa

from xmtc.core.errors import ConfigError, missing_extra, nearest, shown, upgrade_command
from xmtc.core.normal_forms import normalise

LONGEST = 64
"""Characters of the longest word with a stem; a longer one is a number or several words joined."""
CACHED = 1 << 16
"""Words whose stems are remembered."""

ALGORITHMS = {
    "ar": "arabic",
    "ca": "catalan",
    "cs": "czech",
    "da": "danish",
    "de": "german",
    "el": "greek",
    "en": "english",
    "eo": "esperanto",
    "es": "spanish",
    "et": "estonian",
    "eu": "basque",
    "fa": "persian",
    "fi": "finnish",
    "fr": "french",
    "ga": "irish",
    "hi": "hindi",
    "hu": "hungarian",
    "hy": "armenian",
    "id": "indonesian",
    "it": "italian",
    "lt": "lithuanian",
    "ne": "nepali",
    "nl": "dutch",
    "no": "norwegian",
    "pl": "polish",
    "pt": "portuguese",
    "ro": "romanian",
    "ru": "russian",
    "sr": "serbian",
    "sv": "swedish",
    "ta": "tamil",
    "tr": "turkish",
    "yi": "yiddish",
}
"""Snowball algorithms by language (ISO 639-1)."""

_FUNCTION_WORDS = frozenset(
    (
        *("and", "are", "aus", "bei", "con", "das", "del", "dem", "den", "der", "des", "die", "ein", "est", "for"),
        *("has", "las", "les", "los", "mit", "not", "par", "per", "por", "que", "sur", "the", "und", "une", "von"),
        *("was", "with"),
    )
)
"""Endings are not removed if such a word would remain: it is in almost every text."""
_VOWELS = frozenset("aeiouy")
_KEPT = _VOWELS | {"c"}
_DOUBLED = frozenset("bdfgklmnprt")


@cache
def _letters() -> dict[int, str | None]:
    """Latin letters without their marks; a mark of its own is removed."""
    table: dict[int, str | None] = dict.fromkeys(range(0x300, 0x370))
    for code in (*range(0xC0, 0x250), *range(0x1E00, 0x1F00)):
        base = unicodedata.normalize("NFD", chr(code))[0]
        if base.isascii():
            table[code] = base
    table.update(
        {ord(letter): to for letter, to in zip("ßæøœłđı", ("ss", "ae", "o", "oe", "l", "d", "i"), strict=True)}
    )
    return table


def without_marks(word: str) -> str:
    """The word with plain Latin letters: 'häuser' is 'hauser', 'straße' is 'strasse'."""
    return word if word.isascii() else normalise("NFC", normalise("NFC", word).translate(_letters()))


def light_stem(word: str) -> str:
    """The stem of a word in lower case, whatever its language."""
    if len(word) > LONGEST:
        word = without_marks(word)
    return word if len(word) > LONGEST else _light_stem(word)


@lru_cache(maxsize=CACHED)
def _light_stem(word: str) -> str:
    word = without_marks(word)
    while (rule := _RULES.get(word[-1:])) is not None:
        shorter = rule(word)
        if shorter == word or shorter in _FUNCTION_WORDS:
            break
        word = shorter
    return word


def _without(word: str, ending: str, least: int) -> str:
    """The word without an ending, if at least so many letters remain."""
    return word[: -len(ending)] if len(word) >= least + len(ending) and word.endswith(ending) else word


def _s(word: str) -> str:
    if word.endswith(("sis", "xis")):
        return _without(word, "is", 4)  # analysis, analyses; praxis, praxen
    if word.endswith("niss"):
        return word[:-1]  # ergebnisse, ergebnis
    return word if word[-2:-1] in ("s", "i", "u") else _without(word, "s", 3)  # class, basis, virus; cars


def _e(word: str) -> str:
    return word if word.endswith("ense") else _without(word, "e", 4)  # license would lose more letters; care is not car


def _n(word: str) -> str:
    if word.endswith(("ern", "eln")):
        return _without(word, "n", 4)  # kindern, regeln
    return _undoubled(_without(word, "n" if len(word) == 5 and word[-2] == "e" else "en", 4))  # namen, frauen


def _r(word: str) -> str:
    if word.endswith("iker") or word[-3:-2] in _VOWELS:
        return word  # physiker, career, bauer, tier
    return _undoubled(_without(word, "er", 4))  # kinder


def _d(word: str) -> str:
    return _undoubled(word) if word.endswith("eed") else _undoubled(_without(word, "ed", 4), 4)  # planned


def _g(word: str) -> str:
    shorter = _without(word, "ing", 4)
    return _undoubled(word) if _VOWELS.isdisjoint(shorter) else _undoubled(shorter, 4)  # planning


def _x(word: str) -> str:
    if word.endswith("eaux"):
        return word[:-1]
    return word[:-2] + "l" if len(word) >= 6 and word.endswith("aux") else word  # journaux


def _y(word: str) -> str:
    return word[:-1] + "i" if len(word) >= 4 and word[-2] not in _VOWELS else word  # study, studies


def _z(word: str) -> str:
    return word[:-1] + "c" if len(word) >= 4 else word  # cruz, cruces


def _vowel(word: str) -> str:
    if len(word) < 6 or (word[-1] == "i" and word[-2] in _KEPT):
        return word  # policy is not police, nor fischerei fische
    return word[:-1]  # economico, economica; biologia, biology


def _undoubled(word: str, least: int = 6) -> str:
    """One letter for two equal ones at the end, if the word is long enough: programme, programming, program."""
    return word[:-1] if len(word) >= least and word[-1] == word[-2] and word[-1] in _DOUBLED else word


_RULES: dict[str, Callable[[str], str]] = {
    **dict.fromkeys(_DOUBLED, _undoubled),
    **dict.fromkeys("aio", _vowel),
    "s": _s,
    "e": _e,
    "n": _n,
    "r": _r,
    "d": _d,
    "g": _g,
    "x": _x,
    "y": _y,
    "z": _z,
}
"""The rule for words that end with a letter; a word that does not fit it is returned as it is."""


def snowball_algorithm(language: str) -> str:
    """The Snowball algorithm of a language, such as 'de' or 'de-AT'; an unknown language is an error."""
    code = language.lower().replace("_", "-").split("-")[0]
    if code not in ALGORITHMS:
        hint = f"{nearest(code, ALGORITHMS)} Available: {', '.join(ALGORITHMS)}."
        raise ConfigError(f"no stemmer for language '{shown(language)}'.{hint}")
    return ALGORITHMS[code]


def stems(types: Iterable[str] | pa.Array, language: str | None = None) -> list[str]:
    """The stems of distinct words in lower case: by Snowball if a language is given, otherwise by light rules."""
    words: list[str] = types.to_pylist() if isinstance(types, (pa.Array, pa.ChunkedArray)) else list(types)
    if language is None:
        return [light_stem(word) for word in words]
    stem = _snowball(snowball_algorithm(language), language)
    return [word if len(word) > LONGEST else stem(word) for word in words]


@cache
def _snowball(algorithm: str, language: str) -> Callable[[str], str]:
    """A stemmer that remembers frequent words: in Python, Snowball takes 0.05 to 0.2 ms a word."""
    try:
        import snowballstemmer
    except ImportError:
        raise missing_extra("stemming by language needs snowballstemmer", "snowball") from None
    if algorithm not in snowballstemmer.algorithms():
        raise ConfigError(
            f"the installed snowballstemmer does not support language '{shown(language)}'. "
            f"Update it with: {upgrade_command('snowballstemmer')}"
        )
    stemmers = local()  # a stemmer holds the word that it works on

    def stem(word: str) -> str:
        if not hasattr(stemmers, "own"):
            stemmers.own = snowballstemmer.stemmer(algorithm)
        return str(stemmers.own.stemWord(word))

    return lru_cache(maxsize=CACHED)(stem)
