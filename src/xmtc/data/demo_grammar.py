"""The grammar of the demo corpus: English inflection, and sentence frames with slots for the phrases of a topic.

The frames are in `demo_grammar.toml`. Their slots: `{act}` is a verb phrase and `{acting}` its gerund, `{case}` a
clause, `{thing}`, `{a_thing}` and `{plural}` an object, `{a_term}` and `{terms}` another countable noun, `{stuff}` a
noun without an article, `{topic}` a name of the topic; `another` and `other_` ask for a second phrase of the same kind.
`{place}`, `{past}`, `{often}`, `{soon}` and `{person}` carry no information about the topic.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

VOWEL_SOUND = re.compile(r"(?i)(?!(uni[^nm]|unit|use|usu|eu|one\b|once|ur[aio]|ufo|ukul))[aeiou]|hour|hono|heir|honest")
SPELLED_OUT = re.compile(r"[A-Z]{2,}\d*s?\b|[A-Z]-|[A-Z]\d*\b")
"""Words read letter by letter, such as 'SSD', 'X-ray' and 'MP3 player'."""
READ_AS_WORDS = ("RAM", "LED", "LAN", "SIM", "ROM", "LASER", "NATO")
LETTERS_WITH_AN = "AEFHILMNORSX"

PLURALS = {
    "axis": "axes",
    "bacterium": "bacteria",
    "basis": "bases",
    "child": "children",
    "crisis": "crises",
    "die": "dice",
    "echo": "echoes",
    "foot": "feet",
    "fungus": "fungi",
    "goose": "geese",
    "half": "halves",
    "hero": "heroes",
    "hypothesis": "hypotheses",
    "knife": "knives",
    "leaf": "leaves",
    "life": "lives",
    "loaf": "loaves",
    "man": "men",
    "mango": "mangoes",
    "mouse": "mice",
    "person": "people",
    "potato": "potatoes",
    "quiz": "quizzes",
    "scarf": "scarves",
    "shelf": "shelves",
    "thief": "thieves",
    "tomato": "tomatoes",
    "tooth": "teeth",
    "volcano": "volcanoes",
    "wife": "wives",
    "wolf": "wolves",
    "woman": "women",
}
COMPOUNDED = ("woman", "man", "wife", "knife", "shelf", "tooth", "child")
"""Nouns with an irregular plural that are written together with another, such as 'bookshelf'."""
UNCHANGED = ("aircraft", "deer", "fish", "headquarters", "salmon", "series", "sheep", "species", "squid", "trout")
"""Nouns whose plural is the singular."""
DOUBLING = (
    *("admit", "begin", "cancel", "commit", "control", "defer", "forget", "format", "fuel", "handicap", "kidnap"),
    *("label", "level", "model", "occur", "patrol", "prefer", "quit", "refer", "regret", "reset", "signal", "submit"),
    *("transfer", "transmit", "travel", "unplug", "unzip", "upset", "zigzag"),
)
"""Verbs that double their last consonant before -ing, besides those of one short syllable."""
PROPER = (
    *("Python", "Java", "English", "Christmas", "Easter", "Halloween", "New", "Linux", "Latin", "German", "French"),
    *("Roman", "Earth", "Bluetooth"),
)
"""First words of names that keep their capital."""
LINKS = (" of ", " for ", " with ", " to ", " in ", " on ", " from ", " at ", " against ")
"""Words after which a noun phrase stays as it is in the plural."""


@dataclass(frozen=True)
class Frames:
    """Sentence frames and words to fill them with."""

    places: tuple[str, ...]
    past: tuple[str, ...]
    often: tuple[str, ...]
    soon: tuple[str, ...]
    people: tuple[str, ...]
    openings: tuple[str, ...]
    closings: tuple[str, ...]
    questions: tuple[str, ...]
    statements: tuple[str, ...]
    titles: tuple[str, ...]
    problems: tuple[str, ...]
    styles: dict[str, tuple[str, ...]]


@cache
def frames() -> Frames:
    """The frames of the grammar file."""
    table = tomllib.loads(files("xmtc.data").joinpath("demo_grammar.toml").read_text(encoding="utf-8"))
    styles = {name: _lines(text) for name, text in table.pop("styles").items()}
    return Frames(**{name: _lines(text) for name, text in table.items()}, styles=styles)


def _lines(text: str) -> tuple[str, ...]:
    return tuple(text.strip().splitlines())


@cache
def with_article(noun: str) -> str:
    """A noun phrase with 'a' or 'an' in front."""
    spelled = SPELLED_OUT.match(noun) and not noun.startswith(READ_AS_WORDS)
    vowel = noun[0] in LETTERS_WITH_AN if spelled else VOWEL_SOUND.match(noun)
    return f"{'an' if vowel else 'a'} {noun}"


@cache
def plural(noun: str) -> str:
    """The plural of a noun phrase: of the word before 'of', 'for' and the like, otherwise of the last word."""
    cut = min((at for at in map(noun.find, LINKS) if at > 0), default=len(noun))
    *before, last = re.split(r"(?<=[ -])", noun[:cut])
    return "".join([*before, _plural_word(last)]) + noun[cut:]


def _plural_word(word: str) -> str:
    if word.lower() in UNCHANGED:
        return word
    if word.lower() in PLURALS:
        return word[0] + PLURALS[word.lower()][1:]
    if word.endswith(("man", "wife", "knife", "shelf", "tooth", "child")) and word not in ("human", "talisman"):
        ending = next(
            each for each in ("woman", "man", "wife", "knife", "shelf", "tooth", "child") if word.endswith(each)
        )
        return word.removesuffix(ending) + PLURALS[ending]
    if re.search(r"[^aeiou]y$", word):
        return word[:-1] + "ies"
    return word + ("es" if re.search(r"(s|x|z|ch|sh)$", word) and not word.endswith("stomach") else "s")


@cache
def gerund(phrase: str) -> str:
    """A verb phrase in its -ing form: 'bake a cake' becomes 'baking a cake'."""
    verb, blank, rest = phrase.partition(" ")
    prefix, hyphen, last = verb.rpartition("-")
    return prefix + hyphen + _gerund_word(last) + blank + rest


def _gerund_word(verb: str) -> str:
    if verb.endswith("ie"):
        return verb[:-2] + "ying"
    if verb.endswith("e") and not verb.endswith(("ee", "oe", "ye", "inge")) and verb != "be":
        return verb[:-1] + "ing"
    if verb in DOUBLING or re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxyh]", verb):
        return verb + verb[-1] + "ing"
    return verb + "ing"


@cache
def in_sentence(name: str) -> str:
    """A name as it is written in the middle of a sentence."""
    word = re.split(r"[ -]", name)[0]
    return name if word in PROPER or not word[1:].islower() else name[:1].lower() + name[1:]


def fill(frame: str, words: dict[str, str]) -> str:
    """A frame with its slots filled, beginning with a capital."""
    text = frame.format_map(words)
    return text[:1].upper() + text[1:]
