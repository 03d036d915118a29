"""The demo corpus is English, its labels are sound, and a model trained on it tags what people type."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter

import pytest

from xmtc.core.errors import ConfigError
from xmtc.data import demo_grammar as grammar
from xmtc.data.demo_corpus import DemoCorpus, Topic, demo_topics
from xmtc.models.parabel import Parabel

TRAIN = 10_000
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?")

Documents = list[dict[str, object]]


@pytest.fixture(scope="module")
def documents() -> Documents:
    return [json.loads(line) for line in DemoCorpus(documents=TRAIN).jsonl().splitlines()]


@pytest.fixture(scope="module")
def model(documents: Documents) -> Parabel:
    return Parabel().fit([row["text"] for row in documents], [row["labels"] for row in documents])


def phrases(topic: Topic) -> list[str]:
    """What shows that a text is about a topic."""
    names = [grammar.in_sentence(name) for name in (topic.name, *topic.alternatives)]
    nouns = [*topic.things, *topic.terms]
    forms = [*map(grammar.plural, nouns), *map(grammar.gerund, topic.acts)]
    return [*names, *nouns, *topic.stuff, *topic.acts, *topic.cases, *forms]


class TestThesaurus:
    def test_size(self) -> None:
        topics = demo_topics().values()
        assert len(topics) >= 300
        assert 20 <= sum(topic.broader is None for topic in topics) <= 60
        assert {topic.style for topic in topics} == set(grammar.frames().styles)

    def test_names_are_unique(self) -> None:
        names = Counter(
            name.lower() for topic in demo_topics().values() for name in {topic.name, *topic.alternatives, topic.key}
        )
        own = Counter(topic.name.lower() for topic in demo_topics().values() if topic.name.lower() == topic.key)
        assert [name for name, count in (names - own).items() if count > 1] == []

    @pytest.mark.parametrize("topic", demo_topics().values(), ids=demo_topics())
    def test_entries(self, topic: Topic) -> None:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", topic.key)
        assert topic.name[0].isupper()
        assert topic.alternatives
        assert topic.broader is None or demo_topics()[topic.broader].broader is None
        assert set(topic.related) <= set(demo_topics()) - {topic.key}
        for items in (topic.things, topic.stuff, topic.acts, topic.cases):
            assert len(items) >= 4
            assert len(set(items)) == len(items)
        for items in (topic.things, topic.terms, topic.acts):
            assert [item for item in items if re.match(r"(a|an|the|some) ", item)] == []
        for item in (*topic.things, *topic.terms, *topic.stuff, *topic.acts, *topic.cases):
            assert re.fullmatch(
                r"[A-Za-z0-9ÀÂÉÈÊàâçéèêëîïñôöùû'’+#.:/&%°-]+( [A-Za-z0-9àâçéèêëîïñôöùû'’+#.:/&%°-]+)*", item
            ), item

    def test_vocabulary_file(self) -> None:
        rows = [json.loads(line) for line in DemoCorpus().labels_jsonl().splitlines()]
        assert [row["id"] for row in rows] == list(demo_topics())
        assert {parent for row in rows for parent in row["parents"]} <= set(demo_topics())


class TestGrammar:
    def test_articles(self) -> None:
        with_a = ("university", "USB stick", "European law", "RAM chip", "uniform", "one-way ticket")
        with_an = ("apple", "hour", "umbrella", "SSD", "X-ray", "MP3 player")
        assert [grammar.with_article(noun) for noun in with_a] == [f"a {noun}" for noun in with_a]
        assert [grammar.with_article(noun) for noun in with_an] == [f"an {noun}" for noun in with_an]

    def test_plurals(self) -> None:
        pairs = {
            "knife": "knives",
            "bookshelf": "bookshelves",
            "joint of beef": "joints of beef",
            "battery": "batteries",
            "toothbrush": "toothbrushes",
            "woman": "women",
            "human": "humans",
            "sheep": "sheep",
            "key ring": "key rings",
        }
        assert {noun: grammar.plural(noun) for noun in pairs} == pairs

    def test_gerunds(self) -> None:
        pairs = {
            "bake a cake": "baking a cake",
            "stir the soup": "stirring the soup",
            "stir-fry noodles": "stir-frying noodles",
            "tie a knot": "tying a knot",
            "cancel a trip": "cancelling a trip",
            "fix it": "fixing it",
            "see": "seeing",
            "mow the lawn": "mowing the lawn",
        }
        assert {verb: grammar.gerund(verb) for verb in pairs} == pairs


class TestDocuments:
    def test_the_same_in_another_process(self, documents: Documents) -> None:
        code = "from xmtc.data.demo_corpus import DemoCorpus; print(DemoCorpus(documents=5).jsonl(), end='')"
        environment = {**os.environ, "PYTHONHASHSEED": "7"}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert [json.loads(line) for line in done.stdout.splitlines()] == documents[:5]

    def test_another_seed_gives_other_texts(self, documents: Documents) -> None:
        other = DemoCorpus(seed=1)
        assert [other.document(number)["text"] for number in range(50)] != [row["text"] for row in documents[:50]]

    def test_every_label_is_frequent_enough(self, documents: Documents) -> None:
        counts = Counter(label for row in documents for label in row["labels"])  # type: ignore[attr-defined]
        assert min(counts[key] for key in demo_topics()) >= 8
        assert max(counts.values()) >= 5 * min(counts.values())

    def test_labels_and_lengths(self, documents: Documents) -> None:
        labels = [row["labels"] for row in documents]
        assert {len(each) for each in labels} == {1, 2, 3, 4}  # type: ignore[arg-type]
        assert all(len(set(each)) == len(each) for each in labels)  # type: ignore[call-overload, arg-type]
        lengths = sorted(len(str(row["text"]).split()) for row in documents)
        assert lengths[0] >= 2
        assert 15 <= lengths[len(lengths) // 2] <= 40
        assert lengths[-1] <= 120

    def test_vocabulary_is_large(self, documents: Documents) -> None:
        assert len({word for row in documents for word in WORD.findall(str(row["text"]).lower())}) >= 5000

    def test_text_supports_its_labels(self, documents: Documents) -> None:
        cues = {key: phrases(topic) for key, topic in demo_topics().items()}
        for row in documents:
            text = str(row["text"]).lower()
            for key in row["labels"]:  # type: ignore[attr-defined]
                assert any(cue.lower() in text for cue in cues[key]), row

    def test_sentences_are_well_formed(self, documents: Documents) -> None:
        for row in documents:
            text = str(row["text"])
            assert text[0].isupper() or text[0].isdigit(), text
            assert not re.search(r"[{}|_]|  |\.\.|\ban? an? |\bthe (a|an|the|my) ", text), text
            assert not re.search(r"\ba [aeio][a-z]", text.replace("a one", "")) or re.search(
                r"\ba (eu|one|once)", text
            ), text

    def test_ambiguous_words(self) -> None:
        owners: dict[str, set[str]] = {}
        for topic in demo_topics().values():
            for phrase in phrases(topic):
                for word in WORD.findall(phrase.lower()):
                    owners.setdefault(word, set()).add(topic.key)
        for word in (
            "bank",
            "mouse",
            "python",
            "court",
            "plant",
            "tablet",
            "virus",
            "match",
            "ring",
            "cell",
            "branch",
            "file",
        ):
            assert len(owners.get(word, ())) >= 2, word

    @pytest.mark.parametrize("settings", [{"documents": 0}, {"seed": -1}, {"documents": 1.5}, {"seed": True}])
    def test_bad_settings(self, settings: dict[str, int]) -> None:
        with pytest.raises(ConfigError, match="must be an integer"):
            DemoCorpus(**settings)


EVERYDAY = {
    "How do I get red wine out of a carpet?": {"stain-removal", "carpets", "wine", "cleaning"},
    "My knee hurts whenever I walk downstairs": {"feet-and-joints", "sports-injuries", "running", "health"},
    "The tap in the bathroom has been dripping all night": {"plumbing", "bathroom-cleaning", "repairs"},
    "Do I have to pay rent while the heating is broken?": {"renting", "heating", "rent-increases", "housing-law"},
    "I forgot the password of my email account": {"passwords", "email", "hacked-accounts", "it-security"},
    "Which wine would you serve with salmon?": {"wine", "fish-dishes"},
    "Our dog barks at every postman": {"dogs", "animals"},
    "Why do stars twinkle but planets do not?": {"stars", "planets", "astronomy"},
    "They fired me without any notice": {"dismissal", "employment-law", "work-contracts"},
    "Is there a cure for snoring?": {"sleep-problems"},
    "my python function returns none and I can't see why": {"python-programming", "programming", "debugging"},
    "What do I wear to a job interview in summer?": {"job-interviews", "shirts-and-suits", "clothing"},
    "The plane leaves at six, how early should we be at the airport?": {"flights", "travel"},
    "A bee stung me and my hand is swollen": {"insect-bites", "first-aid", "bees", "allergies"},
    "Divorced parents arguing about who gets the children at Christmas": {
        "custody",
        "divorce",
        "christmas",
        "family-law",
    },
    "the screen of my laptop stays black": {"laptops", "monitors", "hardware"},
    "How can I lower my electricity bill?": {"energy-bills"},
    "My grandson wants to build a birdhouse": {"woodworking", "birdwatching", "grandparents", "birds"},
    "Is it true that volcanoes change the climate?": {"volcanoes", "climate-change", "earth"},
    "need a present for my colleague's fiftieth birthday": {"gifts", "birthdays", "celebrations"},
}
"""Sentences as people type them, and the labels that fit."""


class TestEverydaySentences:
    def test_the_grammar_did_not_produce_them(self, documents: Documents) -> None:
        texts = "\n".join(str(row["text"]).lower() for row in documents)
        assert [sentence for sentence in EVERYDAY if sentence.lower() in texts] == []
        assert {label for labels in EVERYDAY.values() for label in labels} <= set(demo_topics())

    def test_get_a_fitting_label(self, model: Parabel) -> None:
        predictions = model.predict(list(EVERYDAY), k=3).names()
        missed = [text for text, names in zip(EVERYDAY, predictions, strict=True) if not EVERYDAY[text] & set(names)]
        assert len(missed) <= 5, missed
