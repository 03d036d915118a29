"""The planted corpus promises its labels can be read off its texts; every model's tests lean on that."""

from __future__ import annotations

import io
import json
import math
import re
import time
import tracemalloc
from collections import Counter
from itertools import combinations, pairwise

import numpy as np
import pytest

from xmtc.core.errors import ConfigError
from xmtc.data import planted_corpus, planted_words
from xmtc.data.planted_corpus import PlantedBatch, PlantedCorpus
from xmtc.data.planted_words import spell

PINNED_LABELS = ["comets of Bombil", "treaties of Fleshisk", "murals of Tundet"]
PINNED_TEXT = (
    "Near Fleshisk these ninlock kept the years along Tundet. Their gidin met lirtom of these gelath"
    " because mullol. Their nastim for questions followed such ranvock. Our nasturd kept lendall of "
    "these broril while trimbal. These rumours from Bombil left the puskurn."
)


def gather(corpus: PlantedCorpus, size: int = 4096, start: int = 0, stop: int | None = None) -> PlantedBatch:
    """All batches as one."""
    ids, texts, labels = [], [], []
    for batch in corpus.batches(size, start, stop):
        assert 1 <= len(batch.ids) <= size
        ids += batch.ids
        texts += batch.texts
        labels += batch.labels
    return PlantedBatch(ids, texts, labels)


def words_of(text: str) -> list[str]:
    return text.replace(".", "").lower().split()


# ---- the same document however it is asked for


def test_first_document_is_pinned() -> None:
    """Published numbers rest on these texts: a change here is a change of the corpus, not of a detail."""
    batch = next(PlantedCorpus().batches(1))
    assert batch.ids == ["d0000000"]
    assert [PlantedCorpus().label_name(label) for label in batch.labels[0]] == PINNED_LABELS
    assert batch.texts == [PINNED_TEXT]


@pytest.mark.parametrize("size", [1, 7, 1000, 1024, 1025, 5000])
def test_batch_size_does_not_matter(size: int) -> None:
    corpus = PlantedCorpus(documents=2500)
    assert gather(corpus, size) == gather(corpus)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 1), (3, 1024), (1023, 1025), (1024, 2048), (1500, 2500), (9, 9), (2500, 2500)]
)
def test_subrange_does_not_matter(start: int, stop: int) -> None:
    corpus = PlantedCorpus(documents=2500)
    whole = gather(corpus)
    part = gather(corpus, 100, start, stop)
    assert part == tuple(column[start:stop] for column in whole)


def test_more_documents_leave_the_first_ones_alone() -> None:
    few, many = gather(PlantedCorpus(documents=1100)), gather(PlantedCorpus(documents=3000))
    assert few == tuple(column[:1100] for column in many)
    assert len(set(many.ids)) == len(set(many.texts)) == 3000


def test_seed_matters() -> None:
    assert gather(PlantedCorpus(seed=0)) == gather(PlantedCorpus(seed=0))
    assert not set(gather(PlantedCorpus(seed=0)).texts) & set(gather(PlantedCorpus(seed=1)).texts)


# ---- labels can be read off the text


@pytest.mark.parametrize(
    "corpus",
    [
        PlantedCorpus(noise=0),
        PlantedCorpus(noise=0, labels=2, labels_per_document=1.3),
        PlantedCorpus(noise=0, labels=50_000, seed=3),
        PlantedCorpus(noise=0, labels=400, labels_per_document=15, words_per_document=5),
        PlantedCorpus(noise=0, labels=30, clusters=30, zipf=0),
        PlantedCorpus(noise=0, labels=1_000_000, documents=500),  # words of three syllables
    ],
)
def test_own_words_are_in_the_documents_of_their_label_and_in_no_other(corpus: PlantedCorpus) -> None:
    batch = gather(corpus)
    own = {label: corpus.label_words(label) for label in {label for used in batch.labels for label in used}}
    owners = {word: label for label, words in own.items() for word in words}
    assert len(owners) == planted_corpus.OWN_WORDS * len(own)
    for text, labels in zip(batch.texts, batch.labels, strict=True):
        found = [word for word in words_of(text) if word in owners]
        assert sorted(found) == sorted(word for label in labels for word in own[label])
        assert sorted({owners[word] for word in found}) == labels  # what an oracle would answer


def test_noise_is_the_share_of_labels_without_their_words() -> None:
    corpus = PlantedCorpus(documents=4000, noise=0.2)
    batch = gather(corpus)
    words = {label: set(corpus.label_words(label)) for label in range(corpus.labels)}
    present = Counter(
        len(words[label] & set(words_of(text)))
        for text, labels in zip(batch.texts, batch.labels, strict=True)
        for label in labels
    )
    assert set(present) == {0, planted_corpus.OWN_WORDS}  # all or nothing
    assert present[0] / present.total() == pytest.approx(0.2, abs=0.02)


def test_no_own_words_at_all_with_full_noise() -> None:
    corpus = PlantedCorpus(noise=1)
    own = {word for label in range(corpus.labels) for word in corpus.label_words(label)}
    assert not own & {word for text in gather(corpus).texts for word in words_of(text)}


def test_the_cluster_shows_in_the_text_even_under_full_noise() -> None:
    """Naive vote: the cluster most of whose words are in the text is one of the document's clusters."""
    corpus = PlantedCorpus(noise=1)
    clusters = {w: c for c in range(corpus.cluster_count) for w in corpus.cluster_words(c)}
    assert len(clusters) == corpus.cluster_count * planted_corpus.CLUSTER_WORDS
    batch = gather(corpus)
    right = 0
    for text, labels in zip(batch.texts, batch.labels, strict=True):
        votes = Counter(clusters[word] for word in words_of(text) if word in clusters)
        right += bool(votes) and votes.most_common(1)[0][0] in {corpus.cluster_of(label) for label in labels}
    assert right > 0.98 * corpus.documents


def test_nearest_mean_of_the_first_documents_labels_the_following() -> None:
    """Another implementation as the judge: cosine to the mean tf-idf of each label's training documents."""
    sklearn_text = pytest.importorskip("sklearn.feature_extraction.text")
    corpus = PlantedCorpus(documents=3000)
    train, test = gather(corpus, stop=2000), gather(corpus, start=2000)
    vectorizer = sklearn_text.TfidfVectorizer()
    features = vectorizer.fit_transform(train.texts).toarray()
    holds = np.zeros((len(train.labels), corpus.labels))
    for row, labels in enumerate(train.labels):
        holds[row, labels] = 1
    means = holds.T @ features
    means /= np.linalg.norm(means, axis=1, keepdims=True) + 1e-9
    ranking = np.argsort(-(vectorizer.transform(test.texts) @ means.T), axis=1)
    hits = [
        (row[0] in labels, len(set(row[: len(labels)]) & set(labels)) / len(labels))
        for row, labels in zip(ranking, test.labels, strict=True)
    ]
    precision_at_1, r_precision = np.mean(hits, axis=0)
    assert precision_at_1 > 0.97
    assert r_precision > 0.9


# ---- labels: how many, how often, together


def test_every_document_has_distinct_known_labels() -> None:
    corpus = PlantedCorpus(labels=12, labels_per_document=4)
    for labels in gather(corpus).labels:
        assert labels
        assert labels == sorted(set(labels))
        assert 0 <= labels[0] <= labels[-1] < corpus.labels


@pytest.mark.parametrize(("labels", "mean"), [(200, 1.0), (200, 2.5), (20, 2.5), (5000, 12.0)])
def test_labels_per_document(labels: int, mean: float) -> None:
    corpus = PlantedCorpus(documents=4096, labels=labels, labels_per_document=mean)
    assert np.mean([len(used) for used in gather(corpus).labels]) == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("words", [30, 40, 300])
def test_words_per_document(words: int) -> None:
    corpus = PlantedCorpus(words_per_document=words)
    assert np.mean([len(words_of(text)) for text in gather(corpus).texts]) == pytest.approx(words, rel=0.1)


def frequencies(corpus: PlantedCorpus) -> np.ndarray:
    """Documents of each label, most frequent first."""
    used = [label for labels in gather(corpus).labels for label in labels]
    return np.sort(np.bincount(used, minlength=corpus.labels))[::-1]


@pytest.mark.parametrize("zipf", [0.6, 0.8, 1.0])
def test_label_frequencies_are_zipfian(zipf: float) -> None:
    counts = frequencies(PlantedCorpus(documents=30_000, labels=1000, zipf=zipf))
    assert counts[0] > 8 * np.median(counts)
    ranks = np.arange(5, 500)
    slope = np.polyfit(np.log(ranks + 1), np.log(counts[ranks]), 1)[0]
    assert slope == pytest.approx(-zipf, abs=0.15)


def test_without_zipf_all_labels_are_alike() -> None:
    counts = frequencies(PlantedCorpus(documents=30_000, zipf=0))
    assert counts == pytest.approx(np.full(200, counts.mean()), rel=0.25)  # five standard deviations


def test_an_id_does_not_give_away_the_frequency() -> None:
    """A model that breaks ties by id must not profit."""
    corpus = PlantedCorpus(documents=30_000)
    used = [label for labels in gather(corpus).labels for label in labels]
    counts = np.bincount(used, minlength=corpus.labels)
    assert abs(np.corrcoef(np.arange(corpus.labels), np.argsort(np.argsort(counts)))[0, 1]) < 0.2


def test_labels_of_a_cluster_occur_together() -> None:
    corpus = PlantedCorpus(documents=5000)
    cluster = [corpus.cluster_of(label) for label in range(corpus.labels)]
    assert set(cluster) == set(range(round(math.sqrt(200))))
    batch = gather(corpus)
    pairs = [pair for labels in batch.labels for pair in combinations(labels, 2)]
    together = np.mean([cluster[first] == cluster[second] for first, second in pairs])
    share = np.bincount([cluster[label] for labels in batch.labels for label in labels])
    chance = np.sum((share / share.sum()) ** 2)  # two labels drawn apart
    assert together > 4 * chance


# ---- words and names


def test_words_are_lower_case_letters_in_sentences() -> None:
    for text in gather(PlantedCorpus(documents=300)).texts:
        assert all(re.fullmatch("[a-z]+", word) for word in words_of(text))
        assert re.fullmatch(r"([A-Z][a-z]*( [A-Za-z][a-z]*)+\.( |$))+", text)


def test_places_have_a_capital_in_the_text() -> None:
    corpus = PlantedCorpus(documents=300, noise=0)
    batch = gather(corpus)
    for text, labels in zip(batch.texts, batch.labels, strict=True):
        for label in labels:
            assert corpus.label_words(label)[0].capitalize() in text.replace(".", "").split()


def test_spelling_is_a_bijection() -> None:
    """Checked where it is cheap, around the step from two syllables to three, and far out."""
    short = 1 << planted_words.SHORT_BITS
    numbers = np.concatenate([np.arange(200_000), np.arange(short - 50_000, short + 200_000), [short + 2**27 - 1]])
    assert len(set(spell(numbers))) == len(numbers)
    for bits in (8, 13):
        assert sorted(planted_words._scramble(np.arange(1 << bits), bits)) == list(range(1 << bits))


def test_spelling_can_be_read_in_one_way_only() -> None:
    """Uniqueness rests on this: parts are distinct, and consonants never touch consonants of another part."""
    for parts in (planted_words.ONSETS, planted_words.MEDIALS, planted_words.CODAS, planted_words.VOWELS):
        assert len(set(parts)) == len(parts)
    assert all(
        re.fullmatch("[^aeiou]+", part)
        for part in [*planted_words.ONSETS, *planted_words.MEDIALS, *planted_words.CODAS]
    )
    tables = (planted_words.HEADS, planted_words.MIDDLES, planted_words.TAILS)
    assert [len(set(table)) for table in tables] == [1 << 7, 1 << 8, 1 << 12]
    own, of_clusters, noise = planted_corpus.OWN_WORDS, planted_corpus.CLUSTER_WORDS - 1, 1  # words per label, at most
    assert (own + of_clusters + noise) * planted_corpus.MOST_LABELS + 4096 < 1 << planted_words.LONG_BITS


def test_neighbouring_numbers_look_different() -> None:
    words = spell(np.arange(5000))
    same_start = np.mean([first[:2] == second[:2] for first, second in pairwise(words)])
    assert same_start < 0.05


def test_no_english_word_can_be_spelled() -> None:
    def group(parts: np.ndarray) -> str:
        return "(" + "|".join(parts) + ")"

    vowel = group(planted_words.VOWELS)
    invented = re.compile(
        f"{group(planted_words.ONSETS)}{vowel}({group(planted_words.MEDIALS)}{vowel}){{1,2}}{group(planted_words.CODAS)}"
    )
    assert all(invented.fullmatch(word) for word in spell(np.arange(0, 2_000_000, 997)))
    english = [*planted_words.ENGLISH, *planted_words.FUNCTION]
    assert [word for word in english if invented.fullmatch(word)] == []
    assert len(set(planted_words.ENGLISH)) == len(planted_words.ENGLISH)
    assert not set(planted_words.ENGLISH) & set(planted_words.FUNCTION)


@pytest.mark.parametrize("labels", [2, 200, 200_000])
def test_names_are_unique_and_made_of_planted_words(labels: int) -> None:
    corpus = PlantedCorpus(labels=labels)
    names = corpus.label_names()
    assert len(set(names)) == len(names) == labels
    for label in range(0, labels, max(labels // 50, 1)):
        assert names[label] == corpus.label_name(label)
        noun, place = re.fullmatch("(?:[a-z]+ )?([a-z]+) of ([A-Z][a-z]+)", names[label]).groups()
        assert noun == corpus.cluster_words(corpus.cluster_of(label))[0]
        assert place.lower() == corpus.label_words(label)[0]


def test_jsonl_holds_the_same_documents() -> None:
    corpus = PlantedCorpus(documents=2100)
    handle = io.StringIO()
    corpus.write_jsonl(handle, start=1000, stop=2100)
    lines = [json.loads(line) for line in handle.getvalue().splitlines()]
    names = corpus.label_names()
    part = gather(corpus, start=1000)
    assert [tuple(line) for line in lines] == [("id", "text", "labels")] * 1100
    assert [line["id"] for line in lines] == part.ids
    assert [line["text"] for line in lines] == part.texts
    assert [line["labels"] for line in lines] == [[names[label] for label in used] for used in part.labels]


# ---- size and settings


def test_a_million_labels_need_neither_time_nor_tables() -> None:
    corpus = PlantedCorpus(documents=1_000_000, labels=1_000_000)
    started = time.process_time()
    assert len(gather(corpus, stop=2000).ids) == 2000
    assert time.process_time() - started < 2
    tracemalloc.start()
    for _ in corpus.batches(1024, start=900_000, stop=906_000):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6  # a million strings would be some 60 MB


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"documents": 0}, "'documents' of planted must be an integer ≥ 1. Got 0."),
        ({"labels": 1}, "'labels' of planted must be an integer ≥ 2 and ≤ 10000000. Got 1."),
        ({"labels": 11_000_000}, "'labels' of planted must be an integer ≥ 2 and ≤ 10000000. Got 11000000."),
        ({"labels": 20.0}, "'labels' of planted must be an integer ≥ 2 and ≤ 10000000. Got 20.0."),
        ({"clusters": 201}, "'clusters' of planted must be None or an integer ≥ 1 and ≤ labels. Got 201."),
        (
            {"labels_per_document": 0.5},
            "'labels_per_document' of planted must be a number ≥ 1 and ≤ 1000. Got 0.5.",
        ),
        ({"words_per_document": True}, "'words_per_document' of planted must be an integer ≥ 1. Got True."),
        ({"zipf": -1}, "'zipf' of planted must be a number ≥ 0 and ≤ 3. Got -1."),
        ({"noise": math.nan}, "'noise' of planted must be a number ≥ 0 and ≤ 1. Got nan."),
        ({"noise": "much"}, "'noise' of planted must be a number ≥ 0 and ≤ 1. Got 'much'."),
        ({"seed": -1}, "'seed' of planted must be an integer ≥ 0. Got -1."),
    ],
)
def test_settings_are_checked(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        PlantedCorpus(**settings)
    assert str(caught.value) == message


@pytest.mark.parametrize(("size", "start", "stop"), [(0, 0, 10), (5, -1, 10), (5, 10, 5), (5, 0, 2001)])
def test_ranges_are_checked_at_the_call(size: int, start: int, stop: int) -> None:
    with pytest.raises(ConfigError):
        PlantedCorpus().batches(size, start, stop)
