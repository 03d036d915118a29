"""The preset `fast`: planted corpora where one setting helps, where none does, and data too odd for trials."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.models.registry import model_class
from xmtc.presets.fast import CHARACTER_COST, FastChoice, choose_fast

RUNTIME = Runtime(threads=1)


def random_words(rng: np.random.Generator, count: int, length: int) -> list[str]:
    letters = np.array(list("abcdefghijklmnoprstuvz"))
    return ["".join(rng.choice(letters, length)) for _ in range(count)]


def inflected(documents: int = 2000, labels: int = 40) -> Dataset:
    """Each label has a stem, and each text a new ending of it: words tell nothing, character n-grams everything."""
    rng = np.random.default_rng(0)
    stems = random_words(rng, labels, 8)
    endings = random_words(rng, 4000, 4)
    filler = random_words(rng, 50, 5)
    numbers = rng.integers(labels, size=documents)
    texts = [
        f"{stems[number]}{endings[rng.integers(len(endings))]} {' '.join(rng.choice(filler, 2))}" for number in numbers
    ]
    return as_dataset(texts, [[str(number)] for number in numbers])


def with_common_columns(documents: int = 2000, labels: int = 60) -> Dataset:
    """A column for each label, which some documents lack or mistake, and many common columns that tell nothing."""
    rng = np.random.default_rng(0)
    numbers = rng.integers(labels, size=documents)
    common = (rng.random((documents, 80)) < 0.5).astype(np.float32) * 4
    telling = np.zeros((documents, labels), dtype=np.float32)
    telling[np.arange(documents), numbers] = 1.0
    features = sp.csr_array(np.hstack([common, telling]))
    return as_dataset(features, [[str(number)] for number in numbers])


def noise(documents: int = 1000) -> Dataset:
    """Texts of 60 words that do not depend on the labels."""
    rng = np.random.default_rng(0)
    words = np.array(random_words(rng, 300, 6))
    texts = [" ".join(rng.choice(words, 60)) for _ in range(documents)]
    return as_dataset(texts, [[str(number)] for number in rng.integers(30, size=documents)])


def learns(choice: FastChoice, documents: Dataset) -> bool:
    """Whether a model with the chosen settings can be trained and predicts labels for some of the documents."""
    model = model_class(choice.model)(**choice.settings).fit(documents, runtime=RUNTIME)
    return bool((model.predict(documents, 1).labels >= 0).any())


class TestChoice:
    def test_character_ngrams_for_short_texts_with_inflected_words(self) -> None:
        choice = choose_fast(inflected(), runtime=RUNTIME)
        assert choice.settings["text"]["char_ngrams"] == (4, 4)
        assert any("Character n-grams" in reason and "kept" in reason for reason in choice.reasons)
        assert choice.trials[1].score > choice.trials[0].score + 0.2

    def test_idf_where_common_columns_hide_the_telling_ones(self) -> None:
        choice = choose_fast(with_common_columns(), runtime=RUNTIME)
        assert choice.settings["columns"] == "idf"
        assert choice.trials[1].score > choice.trials[0].score

    def test_the_default_where_nothing_helps(self) -> None:
        choice = choose_fast(noise(), runtime=RUNTIME)
        assert choice.model == "parabel"
        assert "columns" not in choice.settings
        assert "text" not in choice.settings
        assert len(choice.trials) > 2

    def test_validation_documents_are_used(self) -> None:
        corpus = inflected()
        train, valid = corpus.slice(0, 1500), corpus.slice(1500, 2000)
        choice = choose_fast(train, valid=valid, runtime=RUNTIME)
        assert "1,500 documents to train on, 500 to score" in choice.reasons[1]
        assert choice.settings["text"]["char_ngrams"] == (4, 4)

    def test_one_vs_all_if_there_are_several_leaves_and_little_work(self) -> None:
        trials = choose_fast(inflected(2500, 1200), runtime=RUNTIME).trials
        flat = [trial for trial in trials if trial.model == "one_vs_all"]
        assert all(trial.settings["text"]["char_ngrams"] == (4, 4) for trial in flat)
        assert len(flat) == len({str(trial.settings) for trial in flat})

    def test_one_vs_all_has_all_kinds_of_ngrams(self) -> None:
        """With few labels and words, they take seconds; and with few leaves, nothing else is to be gained by it."""
        flat = [trial for trial in choose_fast(inflected(800), runtime=RUNTIME).trials if trial.model == "one_vs_all"]
        assert [trial.settings["text"] for trial in flat] == [{"char_ngrams": (4, 4), "word_ngrams": 2}]

    def test_a_lower_cost_is_halved_again(self) -> None:
        """Half of the labels are wrong, and most columns tell nothing: errors should cost little."""
        rng = np.random.default_rng(0)
        numbers = rng.integers(20, size=3000)
        features = np.hstack([np.eye(20)[numbers], rng.random((3000, 800)) < 0.1]).astype(np.float32)
        noisy = np.where(rng.random(3000) < 0.5, rng.integers(20, size=3000), numbers)
        choice = choose_fast(as_dataset(sp.csr_array(features), [[str(number)] for number in noisy]), runtime=RUNTIME)
        costs = [trial.settings["cost"] for trial in choice.trials if "cost" in trial.settings]
        assert costs[:2] == [0.125, 0.062]  # the automatic cost is 0.25
        assert choice.settings["cost"] == 0.062

    def test_one_tree_of_character_ngrams_for_many_labels(self) -> None:
        """In a large corpus of short texts the sample is small, and its trees are like those of all labels."""
        rng = np.random.default_rng(0)
        short = inflected(16_000, 50)
        labels = [[str(number), str(50 + row % 10_500)] for row, number in enumerate(rng.integers(50, size=16_000))]
        choice = choose_fast(as_dataset(short.text().to_pylist(), labels), runtime=RUNTIME)
        assert "6,000 documents to train on, 2,000 to score" in choice.reasons[1]
        expected = {"text": {"char_ngrams": (4, 4)}, "cost": CHARACTER_COST, "trees": 1, "leaf_size": 512}
        assert choice.trials[1].settings == expected

    def test_is_repeatable(self) -> None:
        first, second = (choose_fast(inflected(800), runtime=RUNTIME) for _ in range(2))
        assert (first.model, first.settings, first.reasons) == (second.model, second.settings, second.reasons)

    def test_measure(self) -> None:
        assert any("P@1" in reason for reason in choose_fast(inflected(800), measure="P@1", runtime=RUNTIME).reasons)
        other = choose_fast(inflected(800), measure="PSP@5", runtime=RUNTIME)  # has no parts without propensities
        assert any("nDCG@5" in reason for reason in other.reasons)


class TestOddData:
    """Wherever parabel works with its defaults, the choice works, too."""

    def test_few_documents_follow_the_rules(self) -> None:
        short, long = inflected(100), noise(100)
        choice = choose_fast(short, runtime=RUNTIME)
        assert (choice.model, choice.settings, choice.trials) == ("parabel", {"text": {"char_ngrams": (4, 4)}}, ())
        assert learns(choice, short)
        choice = choose_fast(long, runtime=RUNTIME)
        assert (choice.model, choice.settings, choice.trials) == ("parabel", {}, ())
        assert "default" in choice.reasons[-1]

    def test_one_document(self) -> None:
        documents = as_dataset(["twice twice"], [["label"]])
        assert choose_fast(documents, runtime=RUNTIME).trials == ()

    def test_empty_texts_alone(self) -> None:
        documents = as_dataset([""] * 600, [["a"], ["b"]] * 300)
        assert choose_fast(documents, runtime=RUNTIME).settings == {}

    def test_one_label(self) -> None:
        documents = as_dataset(["some text here"] * 600, [["only"]] * 600)
        assert learns(choose_fast(documents, runtime=RUNTIME), documents)

    def test_equal_texts_leave_nothing_to_score(self) -> None:
        documents = as_dataset(["same text"] * 700, [[str(row % 3)] for row in range(700)])
        choice = choose_fast(documents, runtime=RUNTIME)
        assert choice.settings == {}
        assert learns(choice, documents)

    def test_empty_texts_and_documents_without_labels(self) -> None:
        corpus = inflected(900)
        texts = ["" if row % 3 == 0 else text for row, text in enumerate(corpus.text().to_pylist())]
        labels = [[] if row % 5 == 0 else [str(row % 7)] for row in range(900)]
        documents = as_dataset(texts, labels)
        assert learns(choose_fast(documents, runtime=RUNTIME), documents)

    def test_partial_labels(self) -> None:
        corpus = inflected(900)
        labels = [[str(row % 7)] for row in range(900)]
        rejected = [[str((row + 1) % 7)] for row in range(900)]
        for complete in (False, [row % 2 == 0 for row in range(900)]):
            documents = as_dataset(corpus.text().to_pylist(), labels, rejected, complete)
            assert learns(choose_fast(documents, runtime=RUNTIME), documents)

    def test_every_label_once(self) -> None:
        documents = as_dataset(inflected(600).text().to_pylist(), [[str(row)] for row in range(600)])
        assert learns(choose_fast(documents, runtime=RUNTIME), documents)

    def test_features_with_empty_rows(self) -> None:
        features = sp.random_array((700, 30), density=0.02, random_state=0, format="csr", dtype=np.float32)
        documents = as_dataset(features, [[str(row % 5)] for row in range(700)])
        assert learns(choose_fast(documents, runtime=RUNTIME), documents)

    @pytest.mark.parametrize("measure", ["nonsense", "macroF1@3", "@5"])
    def test_other_measures(self, measure: str) -> None:
        assert choose_fast(inflected(600), measure=measure, runtime=RUNTIME).model
