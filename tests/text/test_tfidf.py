"""Tokens, vocabulary and tf-idf against slow and independent ways to the same answer."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.text import cache
from xmtc.text import tokens as tokens_module
from xmtc.text import vocabulary as vocabulary_module
from xmtc.text.cache import content_hash, tfidf_of, tokens_of
from xmtc.text.tfidf import TextSettings, Tfidf
from xmtc.text.tokens import MARK, WORD, Tokens, character_classes, fold, spans, tokenise
from xmtc.text.vocabulary import Vocabulary

TEXTS = [
    "The quick brown fox, the lazy dog.",
    "Le café d'Élise: 12 œufs & 3_4 crêpes!",
    "",
    "Straße ÄÖÜ — naïve façade; e\u0301te\u0301 = été",
    "漢字かな交じり文 and ไทย and हिन्दी",
    "a b c I x",
    "the THE The fox FOX",
]

words = st.text(
    alphabet=st.one_of(
        st.sampled_from("aAbB zZ0_-.,\n\t\u0301\u0308\u200dß̸=Σσς"), st.characters(exclude_categories=["Cs"])
    ),
    max_size=40,
)


def column(texts: list[str], chunk: int = 3) -> pa.ChunkedArray:
    pieces = [pa.array(texts[i : i + chunk], pa.string()) for i in range(0, len(texts), chunk)]
    return pa.chunked_array(pieces, pa.string())


def reference_tokens(text: str) -> list[str]:
    """The rule, character by character."""
    out: list[str] = []
    current = ""
    for character in text:
        word = character.isalnum() or character == "_"
        mark = unicodedata.category(character).startswith("M")
        if word or (mark and current):
            current += character
        elif current:
            out.append(current)
            current = ""
    return [*out, current] if current else out


def listed(tokens: Tokens) -> list[list[str]]:
    types = tokens.types.to_pylist()
    return [
        [types[own[i]] for i in block.ids[block.indptr[row] : block.indptr[row + 1]]]
        for block, own in zip(tokens.blocks, tokens.types_of, strict=True)
        for row in range(len(block.indptr) - 1)
    ]


class TestTokens:
    def test_follow_the_rule(self) -> None:
        assert listed(tokenise(column(TEXTS))) == [reference_tokens(text) for text in TEXTS]

    @given(st.lists(words, max_size=8))
    @settings(max_examples=300)
    def test_follow_the_rule_on_anything(self, texts: list[str]) -> None:
        known = [  # code points that this Python's Unicode tables know
            "".join(c for c in text if unicodedata.category(c) != "Cn") for text in texts
        ]
        assert listed(tokenise(column(known))) == [reference_tokens(text) for text in known]

    @given(words)
    @settings(max_examples=300)
    def test_normal_forms_give_the_same_tokens(self, text: str) -> None:
        known = "".join(c for c in text if unicodedata.category(c) != "Cn")
        composed, decomposed = (unicodedata.normalize(form, known) for form in ("NFC", "NFD"))
        assert [fold(s.token) for s in spans(composed)] == [fold(s.token) for s in spans(decomposed)]

    def test_agree_with_a_regular_expression_where_there_are_no_marks(self) -> None:
        plain = [text for text in TEXTS if not any(unicodedata.category(c).startswith("M") for c in text)]
        assert listed(tokenise(column(plain))) == [re.findall(r"\w+", text) for text in plain]

    @given(words)
    @settings(max_examples=200)
    def test_spans_point_at_their_tokens(self, text: str) -> None:
        found = spans(text)
        assert [text[span.start : span.end] for span in found] == [span.token for span in found]
        assert [span.token for span in found] == listed(tokenise(column([text])))[0]

    def test_blocks_and_threads_do_not_matter(self, monkeypatch: pytest.MonkeyPatch) -> None:
        texts = [f"{text} number {i}" for i in range(200) for text in TEXTS]
        whole = tokenise(column(texts, 50))
        monkeypatch.setattr(tokens_module, "BLOCK_BYTES", 500)
        for threads, chunk in ((1, 7), (2, 7), (2, 1000)):
            small = tokenise(column(texts, chunk), threads)
            assert len(small.blocks) > 10
            assert len(small) == len(texts)
            assert listed(small) == listed(whole)
            assert small.types.to_pylist() == whole.types.to_pylist()

    def test_slices_of_columns(self) -> None:
        texts = column(TEXTS, 4).slice(1, 5)
        assert listed(tokenise(texts)) == [reference_tokens(text) for text in TEXTS[1:6]]

    def test_nothing(self) -> None:
        assert len(tokenise(pa.chunked_array([], pa.string()))) == 0
        assert listed(tokenise(column(["", ""]))) == [[], []]

    def test_many_distinct_words(self) -> None:
        """More types in one block than two bytes can number."""
        texts = [" ".join(f"{i:x}{j:x}" for j in range(300)) for i in range(0x100, 0x100 + 300)]
        tokens = tokenise(column(texts, 300))
        assert tokens.blocks[0].ids.dtype == np.int32
        assert listed(tokens) == [text.split() for text in texts]

    def test_classes_agree_with_this_python(self) -> None:
        classes = character_classes()
        for code in range(0x110000):
            character = chr(code)
            category = unicodedata.category(character)
            if category in ("Cn", "Cs"):
                continue  # unknown to this Python, or not text
            expected = WORD if character.isalnum() or character == "_" else MARK if category[0] == "M" else 0
            assert classes[code] == expected, hex(code)

    def test_fold(self) -> None:
        assert fold("E\u0301TE\u0301") == "été"
        assert fold("Straße") == "straße"
        assert fold("ABC", lowercase=False) == "ABC"


class TestVocabulary:
    def test_most_widespread_first(self) -> None:
        vocabulary = Vocabulary.fit(tokenise(column(["b a", "b c a", "b b d", "C c"])))
        assert vocabulary.terms.to_pylist() == ["b", "a", "c", "d"]
        assert vocabulary.frequencies.tolist() == [3, 2, 2, 1]
        assert vocabulary.documents == 4

    def test_cut(self) -> None:
        tokens = tokenise(column(["b a", "b c a", "b b d", "C c"]))
        assert Vocabulary.fit(tokens, min_df=2).terms.to_pylist() == ["b", "a", "c"]
        assert Vocabulary.fit(tokens, max_terms=1).terms.to_pylist() == ["b"]
        assert Vocabulary.fit(tokens, lowercase=False).terms.to_pylist() == ["b", "a", "c", "C", "d"]

    def test_encode_keeps_reading_order(self) -> None:
        tokens = tokenise(column(["b a", "b c a", "b b d"]))
        vocabulary = Vocabulary.fit(tokens, min_df=2)
        encoded = vocabulary.encode(tokenise(column(["a zzz B b", "", "c a"])))
        assert encoded.indptr.tolist() == [0, 4, 4, 6]
        assert encoded.ids.tolist() == [1, -1, 0, 0, -1, 1]

    @pytest.mark.parametrize("lowercase", [True, False])
    def test_many_words_go_another_way_to_the_same_numbers(
        self, lowercase: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked = tokenise(column([*CORPUS, "ÉTÉ CAFÉ Zzz quick"]))

        def numbered() -> tuple[list[str], list[int], list[int]]:
            monkeypatch.setattr(tokens_module, "BLOCK_BYTES", 40)
            tokens = tokenise(column(CORPUS))
            assert len(tokens.blocks) > 5
            vocabulary = Vocabulary.fit(tokens, lowercase=lowercase, min_token_length=2)
            encoded = vocabulary.encode(asked, lowercase)
            return vocabulary.terms.to_pylist(), vocabulary.frequencies.tolist(), encoded.ids.tolist()

        one_by_one = numbered()
        monkeypatch.setattr(vocabulary_module, "MANY", 1)
        assert numbered() == one_by_one
        forms = [{fold(token, lowercase) for token in reference_tokens(text)} for text in CORPUS]
        assert dict(zip(*one_by_one[:2], strict=True)) == Counter(
            form for text in forms for form in text if len(form) > 1
        )


def slow_tfidf(texts: list[str], grams: int, min_df: int) -> tuple[list[str], np.ndarray]:
    """tf-idf by the book, dense, for a handful of texts."""
    documents = []
    for text in texts:
        tokens = [fold(token) for token in reference_tokens(text)]
        tokens = [token for token in tokens if len(token) > 1]
        documents.append(
            Counter(" ".join(tokens[i : i + n]) for n in range(1, grams + 1) for i in range(len(tokens) - n + 1))
        )
    frequency = Counter(term for document in documents for term in document)
    terms = sorted(term for term, count in frequency.items() if count >= min_df)
    rows = np.zeros((len(texts), len(terms)))
    for row, document in enumerate(documents):
        for column_number, term in enumerate(terms):
            if document[term]:
                idf = math.log((1 + len(texts)) / (1 + frequency[term])) + 1
                rows[row, column_number] = (1 + math.log(document[term])) * idf
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return terms, np.divide(rows, lengths, out=np.zeros_like(rows), where=lengths > 0)


CORPUS = [
    *TEXTS,
    "the lazy dog and the quick brown fox jump over the lazy dog",
    "quick brown dogs, quick brown foxes",
    "été façade café 12 œufs",
]


class TestTfidf:
    @pytest.mark.parametrize("grams", [1, 2, 3])
    @pytest.mark.parametrize("min_df", [1, 2])
    def test_equals_the_book(self, grams: int, min_df: int) -> None:
        tokens = tokenise(column(CORPUS))
        tfidf = Tfidf.fit(tokens, TextSettings(word_ngrams=grams, min_df=min_df))
        terms, expected = slow_tfidf(CORPUS, grams, min_df)
        names = tfidf.terms.to_pylist()
        assert sorted(names) == terms
        order = [names.index(term) for term in terms]
        np.testing.assert_allclose(tfidf.transform(tokens).toarray()[:, order], expected, atol=1e-6)

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            ({}, {}),
            ({"word_ngrams": 2}, {"ngram_range": (1, 2)}),
            (
                {"lowercase": False, "sublinear": False, "min_df": 1},
                {"lowercase": False, "sublinear_tf": False, "min_df": 1},
            ),
        ],
    )
    def test_equals_scikit_learn(self, planted: tuple, ours: dict, theirs: dict) -> None:
        vectorizers = pytest.importorskip("sklearn.feature_extraction.text")
        texts = planted[0].text().to_pylist()
        unseen = [*planted[1].text().to_pylist(), "", "???"]
        tfidf = Tfidf.fit(tokenise(column(texts, 100)), TextSettings(**ours))
        judge = vectorizers.TfidfVectorizer(**{"sublinear_tf": True, "min_df": 2, **theirs}).fit(texts)
        names = tfidf.terms.to_pylist()
        assert set(names) == set(judge.vocabulary_)
        order = [judge.vocabulary_[name] for name in names]
        difference = tfidf.transform(tokenise(column(unseen, 33)), 2) - judge.transform(unseen)[:, order]
        assert abs(difference).max() < 1e-6

    def test_character_ngrams_equal_the_book(self) -> None:
        texts = ["banana band", "band", "bandana x"]
        settings_ = TextSettings(char_ngrams=(3, 4), min_df=1, min_token_length=1, sublinear=False)
        tokens = tokenise(column(texts))
        tfidf = Tfidf.fit(tokens, settings_)
        counted = []
        for text in texts:
            count: Counter[str] = Counter(text.split())
            for word in text.split():
                marked = f"<{word}>"
                count.update(f"#{marked[i : i + n]}" for n in (3, 4) for i in range(len(marked) - n + 1))
            counted.append(count)
        frequency = Counter(term for count in counted for term in count)
        names = [
            name if kind == 0 else f"#{name}"
            for name, kind in zip(tfidf.terms.to_pylist(), tfidf.kinds.tolist(), strict=True)
        ]
        assert sorted(names) == sorted(frequency)
        idf = np.array([math.log(4 / (1 + frequency[name])) + 1 for name in names])
        rows = np.array([[count[name] for name in names] for count in counted]) * idf
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        np.testing.assert_allclose(tfidf.transform(tokens).toarray(), rows, atol=1e-6)

    def test_most_widespread_features_are_kept(self) -> None:
        tokens = tokenise(column(CORPUS))
        everything = Tfidf.fit(tokens, TextSettings(word_ngrams=3, min_df=1))
        for count in (1, 5, 20):
            few = Tfidf.fit(tokens, TextSettings(word_ngrams=3, min_df=1, max_features=count))
            assert few.terms.to_pylist() == everything.terms.to_pylist()[:count]
            assert few.transform(tokens).shape == (len(CORPUS), count)

    def test_ngrams_of_a_cut_vocabulary(self) -> None:
        """An n-gram that is kept is found again, whatever was cut."""
        tokens = tokenise(column(CORPUS))
        for count in range(5, 60, 5):
            tfidf = Tfidf.fit(tokens, TextSettings(word_ngrams=3, min_df=1, max_features=count))
            found = set(tfidf.transform(tokens).indices.tolist())
            assert found == set(range(len(tfidf)))

    def test_many_words_go_another_way_to_the_same_rows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        tokens = tokenise(column(CORPUS))
        for count in (90, 120):
            tfidf = Tfidf.fit(tokens, TextSettings(min_df=1, char_ngrams=(2, 3), max_features=count))
            assert 0 < tfidf.kinds.sum() < len(tfidf) == count < 4 * len(tokens.types)
            one_by_one = tfidf.transform(tokens).toarray()
            with monkeypatch.context() as patched:
                patched.setattr(vocabulary_module, "MANY", 1)
                np.testing.assert_array_equal(tfidf.transform(tokens).toarray(), one_by_one)

    def test_unknown_words_make_an_empty_row(self) -> None:
        tfidf = Tfidf.fit(tokenise(column(CORPUS)), TextSettings())
        assert tfidf.transform(tokenise(column(["zzz qqq", ""]))).nnz == 0

    def test_occurrences_equal_the_kernels(self) -> None:
        tokens = tokenise(column(CORPUS))
        for chosen in (
            {"word_ngrams": 3, "min_df": 1},
            {"char_ngrams": (2, 4)},
            {"word_ngrams": 2, "char_ngrams": (3, 3)},
        ):
            tfidf = Tfidf.fit(tokens, TextSettings(**chosen))
            rows = tfidf.transform(tokens)
            for number, text in enumerate(CORPUS):
                assert {feature for feature, _, _ in tfidf.occurrences(text)} == set(rows[[number]].indices.tolist())

    def test_evidence_adds_up_to_the_score(self) -> None:
        tokens = tokenise(column(CORPUS))
        tfidf = Tfidf.fit(tokens, TextSettings(word_ngrams=2, char_ngrams=(3, 4)))
        weights = np.random.default_rng(0).normal(size=len(tfidf))
        for number, text in enumerate(CORPUS):
            found = tfidf.evidence(text, dict(enumerate(weights.tolist())))
            expected = float((tfidf.transform(tokens)[[number]] @ weights)[0])
            assert sum(item.weight for item in found) == pytest.approx(expected, abs=1e-5)
            assert all(text[item.start : item.end] == item.text for item in found)

    @pytest.mark.parametrize(
        ("bad", "message"),
        [
            ({"min_df": 0}, "'min_df' of text must be an integer ≥ 1. Got 0."),
            ({"char_ngrams": (3,)}, "'char_ngrams' of text must be empty or two ascending integers"),
            ({"char_ngrams": (5, 3)}, "'char_ngrams' of text must be empty or two ascending integers"),
            ({"word_ngrams": 9}, "'word_ngrams' of text must be an integer from 1 to 5. Got 9."),
            ({"idf": "odd"}, "'idf' of text must be one of smooth, plain. Got 'odd'."),
        ],
    )
    def test_bad_settings(self, bad: dict, message: str) -> None:
        with pytest.raises(ConfigError, match=re.escape(message)):
            TextSettings(**bad)


class TestCache:
    @pytest.fixture
    def runtime(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
        monkeypatch.setattr(cache, "WORTHWHILE_BYTES", 0)
        return Runtime(threads=1, cache=tmp_path / "cache")

    def test_second_time_from_the_cache(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        first = tokens_of(column(TEXTS), runtime)
        monkeypatch.setattr(cache, "tokenise", lambda *_: pytest.fail("tokenised again"))
        second = tokens_of(column(TEXTS, 2), runtime)  # other chunks, same texts
        assert listed(second) == listed(first) == [reference_tokens(text) for text in TEXTS]

    def test_features_from_the_cache(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        chosen = TextSettings(word_ngrams=2, char_ngrams=(3, 4))
        fitted, rows = tfidf_of(column(CORPUS), chosen, runtime)
        with monkeypatch.context() as patch:
            patch.setattr(Tfidf, "fit", lambda *_: pytest.fail("fitted again"))
            again, same = tfidf_of(column(CORPUS), chosen, runtime)
            assert again.terms.equals(fitted.terms)
            assert (same != rows).nnz == 0
            unseen = tokenise(column(["the quick brown café", "dogs"]))
            assert (again.transform(unseen) != fitted.transform(unseen)).nnz == 0
        other, _ = tfidf_of(column(CORPUS), TextSettings(), runtime)
        assert len(other) < len(fitted)

    def test_other_texts_are_other_entries(self, runtime: Runtime) -> None:
        tokens_of(column(["ab c"]), runtime)
        assert listed(tokens_of(column(["a bc"]), runtime)) == [["a", "bc"]]
        assert listed(tokens_of(column(["ab", "c"]), runtime)) == [["ab"], ["c"]]

    def test_hash_tells_boundaries_apart(self) -> None:
        hashes = {content_hash(column(texts)) for texts in (["ab", "c"], ["a", "bc"], ["abc"], ["abc", ""], [])}
        assert len(hashes) == 5
        assert content_hash(column(TEXTS, 1)) == content_hash(column(TEXTS, 7))
        assert content_hash(column(["x", *TEXTS, "y"], 4).slice(1, len(TEXTS))) == content_hash(column(TEXTS))

    def test_damage_costs_only_time(self, runtime: Runtime) -> None:
        tokens_of(column(TEXTS), runtime)
        assert runtime.cache is not None
        for path in runtime.cache.rglob("*.arrow"):
            path.write_bytes(b"no arrow".ljust(path.stat().st_size))
        assert listed(tokens_of(column(TEXTS), runtime)) == [reference_tokens(text) for text in TEXTS]

    def test_oldest_entries_go_first(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache, "LIMIT_BYTES", 1)
        tokens_of(column(["one text"]), runtime)
        tokens_of(column(["another text"]), runtime)
        assert runtime.cache is not None
        assert len(list(runtime.cache.iterdir())) == 1

    def test_other_folders_are_left_alone(self, runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
        assert runtime.cache is not None
        (runtime.cache / "thesis").mkdir(parents=True)
        (runtime.cache / "thesis" / "chapter").write_text("mine")
        (runtime.cache / "CACHEDIR.TAG").write_text("x")
        monkeypatch.setattr(cache, "LIMIT_BYTES", 1)
        for text in ("one text", "another text"):
            tokens_of(column([text]), runtime)
        assert (runtime.cache / "thesis" / "chapter").read_text() == "mine"
        assert len(list(runtime.cache.iterdir())) == 3

    def test_unwritable_place(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(cache, "WORTHWHILE_BYTES", 0)
        (tmp_path / "file").write_text("in the way")
        runtime = Runtime(threads=1, cache=tmp_path / "file")
        assert listed(tokens_of(column(["some text"]), runtime)) == [["some", "text"]]
