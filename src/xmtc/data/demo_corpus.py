"""The demo corpus: short English texts about everyday life, science, law and computing.

Labels are the topics of a small thesaurus, `demo_topics/*.toml`, with alternative names, broader terms and typical
phrases. A document is about one to four topics; its sentences are frames of `demo_grammar`, filled with their phrases.
Document i of a seed is the same however many documents are generated.
"""

from __future__ import annotations

import json
import random
import tomllib
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.resources import files
from itertools import accumulate
from typing import Any

from xmtc.core.errors import ConfigError
from xmtc.data import demo_grammar as grammar

AREAS = ("home", "life", "leisure", "science", "law", "computing")
"""Files of topics; also the styles of their sentences."""
PHRASES = ("things", "terms", "stuff", "acts", "cases")
LABEL_COUNTS = (1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 4)
"""How many topics a document has, drawn evenly from these."""
RELATED, SIBLING = 0.75, 0.92
"""Below which random number a further topic is related to the first, or is narrower to the same broader topic."""
TITLE, CHATTER = 0.15, 0.3
"""How often a text consists of titles, and how often a text begins or ends with a sentence about nothing."""
FLATNESS = 0.25
"""The topic of rank r is drawn with a probability proportional to r^-FLATNESS."""
GOLDEN = 0.6180339887498949
"""Multiples of it, modulo 1, are spread evenly: every topic gets its share of any part of the corpus."""


@dataclass(frozen=True)
class Topic:
    """A concept of the demo's thesaurus and the phrases that its texts use."""

    key: str
    name: str
    alternatives: tuple[str, ...]
    broader: str | None
    style: str
    things: tuple[str, ...]
    terms: tuple[str, ...]
    stuff: tuple[str, ...]
    acts: tuple[str, ...]
    cases: tuple[str, ...]
    related: tuple[str, ...] = field(default=())

    def label(self) -> dict[str, Any]:
        """The topic as a record of a label vocabulary."""
        parents = [] if self.broader is None else [self.broader]
        return {"id": self.key, "name": self.name, "alternatives": list(self.alternatives), "parents": parents}


@cache
def demo_topics() -> dict[str, Topic]:
    """All topics by key, broader topics before the narrower ones of each."""
    topics: dict[str, Topic] = {}
    for area in AREAS:
        text = files("xmtc.data").joinpath("demo_topics", f"{area}.toml").read_text(encoding="utf-8")
        for key, table in tomllib.loads(text).items():
            topics[key] = _topic(key, table, None, table["style"])
            for narrower, entry in table.items():
                if isinstance(entry, dict):
                    topics[narrower] = _topic(narrower, entry, key, table["style"])
    return topics


def _topic(key: str, table: dict[str, Any], broader: str | None, style: str) -> Topic:
    lists = {name: _items(table.get(name, "")) for name in ("alternatives", "related", *PHRASES)}
    return Topic(key=key, name=table["name"], broader=broader, style=style, **lists)


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


@dataclass(frozen=True)
class DemoCorpus:
    """A seeded corpus of `documents` texts."""

    documents: int = 11_000
    """Number of documents."""
    seed: int = 0
    """Seed of all random choices; another seed gives other texts."""

    def __post_init__(self) -> None:
        for name, least in (("documents", 1), ("seed", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ConfigError(f"'{name}' must be an integer ≥ {least}. Got {value!r}.")

    @cached_property
    def _ranked(self) -> tuple[list[Topic], list[float]]:
        """Topics in order of frequency, and their cumulated probabilities."""
        topics = list(demo_topics().values())
        random.Random(f"ranks {self.seed}").shuffle(topics)
        sums = list(accumulate((rank + 1) ** -FLATNESS for rank in range(len(topics))))
        return topics, [value / sums[-1] for value in sums]

    def document(self, number: int) -> dict[str, Any]:
        """One document: id, text and the keys of its labels."""
        chance = random.Random(f"{self.seed} {number}")  # seeded by a string: the same in every process
        topics = self._choose_topics(chance, number)
        text = _write(chance, topics)
        return {"id": f"demo-{number:05d}", "text": text, "labels": [topic.key for topic in topics]}

    def jsonl(self, start: int = 0, stop: int | None = None) -> str:
        """Documents start … stop-1, one JSON object per line."""
        numbers = range(start, self.documents if stop is None else stop)
        return "".join(json.dumps(self.document(number)) + "\n" for number in numbers)

    def labels_jsonl(self) -> str:
        """The label vocabulary, one JSON object per line."""
        return "".join(json.dumps(topic.label()) + "\n" for topic in demo_topics().values())

    def _choose_topics(self, chance: random.Random, number: int) -> list[Topic]:
        """One topic by frequency, and up to three that go well with it."""
        ranked, sums = self._ranked
        first = ranked[min(bisect(sums, (number + 1) * GOLDEN % 1), len(ranked) - 1)]
        chosen = [first]
        for _ in range(chance.choice(LABEL_COUNTS) - 1):
            partner = _partner(chance, first, ranked)
            if partner not in chosen:
                chosen.append(partner)
        return chosen


def _partner(chance: random.Random, first: Topic, ranked: list[Topic]) -> Topic:
    topics, draw = demo_topics(), chance.random()
    if draw < RELATED and first.related:
        return topics[chance.choice(first.related)]
    if draw < SIBLING:
        family = [topic for topic in _narrower(first.broader or first.key) if topic is not first]
        return chance.choice(family)
    return chance.choice(ranked)


@cache
def _narrower(key: str) -> tuple[Topic, ...]:
    return tuple(topic for topic in demo_topics().values() if key in (topic.broader, topic.key))


def _write(chance: random.Random, topics: list[Topic]) -> str:
    """A text with one to four sentences on each topic, no two of them from the same frame."""
    frames, used = grammar.frames(), set[str]()

    def sentence(topic: Topic, choices: Sequence[str]) -> str:
        frame = chance.choice([each for each in choices if each not in used])
        used.add(frame)
        return grammar.fill(frame, _slots(chance, topic))

    if chance.random() < TITLE:
        return ". ".join(sentence(topic, frames.titles) for topic in topics)
    sentences = [sentence(topics[0], frames.openings)] if chance.random() < CHATTER else []
    for topic in topics:
        kinds = [frames.questions, frames.statements, frames.styles[topic.style]]
        if topic.style != "science":
            kinds.append(frames.problems)
        for _ in range(chance.choice((1, 2, 3, 4) if len(topics) == 1 else (1, 1, 2, 2))):
            sentences.append(sentence(topic, chance.choice(kinds)))
    if chance.random() < CHATTER:
        sentences.append(sentence(topics[0], frames.closings))
    return " ".join(sentences)


def _slots(chance: random.Random, topic: Topic) -> dict[str, str]:
    """A phrase for every slot of a frame."""
    frames = grammar.frames()
    thing, other_thing = chance.sample(topic.things, 2)
    term = chance.choice(topic.terms or topic.things)
    stuff, other_stuff = chance.sample(topic.stuff, 2)
    act, other_act = chance.sample(topic.acts, 2)
    names = [topic.name, *topic.alternatives]
    return {
        "act": act,
        "acting": grammar.gerund(act),
        "other_act": other_act,
        "other_acting": grammar.gerund(other_act),
        "case": chance.choice(topic.cases),
        "thing": thing,
        "a_thing": grammar.with_article(thing),
        "plural": grammar.plural(thing),
        "another": other_thing,
        "another_thing": grammar.with_article(other_thing),
        "other_plural": grammar.plural(other_thing),
        "a_term": grammar.with_article(term),
        "terms": grammar.plural(term),
        "stuff": stuff,
        "other_stuff": other_stuff,
        "topic": grammar.in_sentence(chance.choice(names)),
        "place": chance.choice(frames.places),
        "past": chance.choice(frames.past),
        "often": chance.choice(frames.often),
        "soon": chance.choice(frames.soon),
        "person": chance.choice(frames.people),
    }
