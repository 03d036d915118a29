"""Word sequences: which words are read, under which numbers, and what becomes of the rest."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from xmtc.artifact.saved_state import SavedState
from xmtc.core.errors import ConfigError, UnsupportedError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.text.sequences import FIRST_WORD, UNKNOWN, SequenceSettings, WordSequences, first_words
from xmtc.text.tokens import TokenBlock

TEXTS = ["The cat sat. The Cat ran!", "a dog sat", "", "— … !", "cat"]


def fitted(texts: list[str] = TEXTS, **settings: object) -> tuple[WordSequences, TokenBlock]:
    return WordSequences.fit(as_dataset(texts), SequenceSettings(**settings), Runtime(threads=1))  # type: ignore[arg-type]


def words_of(sequences: WordSequences, block: TokenBlock) -> list[list[str]]:
    """What was read, word by word; '?' is an unknown one."""
    names = {number + FIRST_WORD: word for number, word in enumerate(sequences.words)} | {UNKNOWN: "?"}
    return [[names[number] for number in part.tolist()] for part in np.split(block.ids, block.indptr[1:-1])]


def test_words_in_reading_order_and_lower_case() -> None:
    sequences, block = fitted()
    read = [["the", "cat", "sat", "the", "cat", "ran"], ["a", "dog", "sat"], ["?"], ["?"], ["cat"]]
    assert words_of(sequences, block) == read
    assert sequences.words == ["cat", "sat", "a", "dog", "ran", "the"]  # by documents, then by name
    assert sequences.size == 6 + FIRST_WORD
    assert block.ids.dtype == np.int32


def test_case_can_be_kept() -> None:
    sequences, block = fitted(lowercase=False)
    assert words_of(sequences, block)[0] == ["The", "cat", "sat", "The", "Cat", "ran"]


def test_long_texts_are_cut() -> None:
    sequences, block = fitted(max_tokens=2)
    assert words_of(sequences, block) == [["the", "cat"], ["a", "dog"], ["?"], ["?"], ["cat"]]
    assert "ran" in sequences.words  # words are chosen from the whole texts


@pytest.mark.parametrize("settings", [{"min_df": 2}, {"max_words": 2}])
def test_rare_words_are_unknown(settings: dict[str, int]) -> None:
    sequences, block = fitted(**settings)
    assert sequences.words == ["cat", "sat"]
    assert words_of(sequences, block)[:2] == [["?", "cat", "sat", "?", "cat", "?"], ["?", "?", "sat"]]


def test_new_texts() -> None:
    sequences, block = fitted()
    again = sequences.encode(as_dataset(TEXTS), Runtime(threads=1))
    assert np.array_equal(again.ids, block.ids)
    assert np.array_equal(again.indptr, block.indptr)
    new = sequences.encode(as_dataset(["", "THE bird ran", "?!"]), Runtime(threads=1))
    assert words_of(sequences, new) == [["?"], ["the", "?", "ran"], ["?"]]


def test_no_texts() -> None:
    block = fitted()[0].encode(Dataset(fields=as_dataset(["x"]).take(np.empty(0, dtype=np.int64)).fields), Runtime())
    assert block.indptr.tolist() == [0]
    assert block.ids.tolist() == []


def test_features_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="trained on text"):
        fitted()[0].encode(as_dataset(np.eye(3, dtype=np.float32)), Runtime(threads=1))


def test_state_and_back() -> None:
    sequences, block = fitted(max_tokens=4)
    back = WordSequences.from_state(sequences.settings, SavedState(sequences.state()))
    assert back.words == sequences.words
    assert back.size == sequences.size
    assert back.state() == sequences.state()
    assert np.array_equal(back.encode(as_dataset(TEXTS), Runtime(threads=1)).ids, block.ids)


@pytest.mark.parametrize("text", [TEXTS[0], "Élise, e\u0301te\u0301 — Straße_7!", "a  b\nc 漢字 d"])
def test_spans_line_up_with_numbers(text: str) -> None:
    sequences, block = fitted([text], max_tokens=4)
    found = sequences.spans(text)
    assert [text[word.start : word.end] for word in found] == [word.token for word in found]
    assert len(found) == len(block.ids) == min(4, len(found))
    alone = [sequences.encode(as_dataset([word.token]), Runtime(threads=1)).ids.tolist() for word in found]
    assert [number for ids in alone for number in ids] == block.ids.tolist()


def test_first_words_against_a_loop() -> None:
    random = np.random.default_rng(0)
    lengths = random.integers(0, 9, 50)
    indptr = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = random.integers(1, 100, indptr[-1]).astype(np.int32)
    for most in (1, 4, 20):
        expected = [ids[low:high][:most].tolist() or [UNKNOWN] for low, high in pairwise(indptr)]
        cut = first_words(TokenBlock(indptr, ids), most)
        assert [part.tolist() for part in np.split(cut.ids, cut.indptr[1:-1])] == expected


@pytest.mark.parametrize("name", ["max_tokens", "max_words", "min_df"])
def test_settings_are_checked(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        SequenceSettings(**{name: 0})
