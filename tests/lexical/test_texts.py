"""Texts as the matcher reads them."""

from __future__ import annotations

import importlib.util

import numpy as np
import pyarrow as pa
import pytest

from xmtc.labels.name_index import fold_all
from xmtc.lexical.texts import analyse


def test_words_sentences_and_lines() -> None:
    texts = ["The café.\nA CAFE; Straße, strasse", "", "Über cafés? Ja"]
    found = analyse(pa.array(texts, pa.string()), None)
    words = [found.words.folded[token] for token in found.tokens]
    assert words == ["the", "cafe", "a", "cafe", "strasse", "strasse", "uber", "cafes", "ja"]
    assert found.indptr.tolist() == [0, 6, 6, 9]
    assert found.breaks.tolist() == [0, 0, 2, 0, 1, 0, 0, 0, 1]
    number = {word: i for i, word in enumerate(found.words.folded)}
    assert len(number) == len(found.words.folded) == 7
    assert found.words.stems[number["cafe"]] == found.words.stems[number["cafes"]]
    assert found.words.forms[number["cafe"]] != found.words.forms[number["cafes"]]


def test_ends_of_sentences() -> None:
    texts = ["Web 2.0 is", "St. Gallen", "so?) No!", "a.b.c ; d", 'He said "no." And .NET', "1.\n2", "x.\r\ny"]
    found = analyse(pa.array(texts, pa.string()), None)
    parts = [part.tolist() for part in np.split(found.breaks, found.indptr[1:-1])]
    assert parts == [[0, 0, 0, 0], [0, 1], [0, 1], [0, 0, 0, 1], [0, 0, 0, 1, 0], [0, 2], [0, 2]]


@pytest.mark.skipif(importlib.util.find_spec("snowballstemmer") is None, reason="needs snowballstemmer")
@pytest.mark.parametrize(
    ("language", "words"),
    [("ru", "новый нового новый НОВЫЙ"), ("cs", "počítač počítače Počítačem"), ("de", "Haus Häuser HAUSES")],
)
def test_stems_of_a_language_depend_on_accents(language: str, words: str) -> None:
    found = analyse(pa.array([words], pa.string()), language)
    assert len(set(found.words.stems[found.tokens].tolist())) == 1
    assert all(word == fold_all([word])[0] for word in found.words.folded)


def test_part_of_an_array() -> None:
    texts = pa.array(["one", "two words", "three. Four", ""], pa.string())
    part = analyse(texts.slice(1, 2), None)
    whole = analyse(pa.array(["two words", "three. Four"], pa.string()), None)
    assert [part.words.folded[i] for i in part.tokens] == ["two", "words", "three", "four"]
    assert part.breaks.tolist() == whole.breaks.tolist() == [0, 0, 0, 1]


def test_no_texts() -> None:
    for texts in ([], ["", "…"]):
        found = analyse(pa.array(texts, pa.string()), None)
        assert found.indptr.tolist() == [0] * (len(texts) + 1)
        assert len(found.tokens) == len(found.breaks) == 0
