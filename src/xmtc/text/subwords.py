"""Texts as sequences of subword numbers, split by the tokeniser of a pretrained encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from xmtc.artifact.saved_state import SavedState
from xmtc.artifact.store import State
from xmtc.core.config import Settings
from xmtc.core.errors import ConfigError, DataError, UnsupportedError, missing_extra, shown
from xmtc.core.mapped_text import cut_texts
from xmtc.core.progress import Progress, silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.text.sequences import FIRST_WORD, first_words
from xmtc.text.tokens import BLOCK_BYTES, Span, TokenBlock

TOKENISER = "tokeniser"
"""Name of the table with the tokeniser in a model's state."""


@dataclass(frozen=True)
class PieceSettings(Settings):
    """Conversion of text to a sequence of subwords."""

    max_tokens: int = 256
    """Maximum number of subwords per text, including the special tokens at its start and end; the rest is cut off."""

    of = "text"

    def check(self) -> None:
        self.require_range("max_tokens", 1, 1_000_000)


class PieceReader:
    """Converts texts to subword numbers; `pieces` is the number of embeddings of the encoder.

    A subword's number is that of the tokeniser plus FIRST_WORD, since 0 is padding.
    """

    def __init__(self, content: str, max_tokens: int, pieces: int) -> None:
        self.content = content
        """Content of tokenizer.json."""
        self.max_tokens, self.pieces = max_tokens, pieces
        self._tokeniser = _tokeniser(content, max_tokens)
        most = max(self._tokeniser.get_vocab().values(), default=-1) + 1
        if most > pieces:
            raise DataError(
                f"tokenizer.json has {most:,} subwords, but the encoder has embeddings for {pieces:,}. "
                "Use the tokeniser that belongs to the encoder."
            )

    @property
    def size(self) -> int:
        """Number of ids in use: subwords, and those below FIRST_WORD."""
        return self.pieces + FIRST_WORD

    @property
    def words(self) -> list[str]:
        """Subwords in the order of their numbers; empty for unused numbers."""
        names = [""] * self.pieces
        for name, number in self._tokeniser.get_vocab().items():
            names[number] = name
        return names

    def grown(self, dataset: Dataset, documents: int, runtime: Runtime) -> PieceReader:
        """Return itself, since the vocabulary of subwords is fixed."""
        return self

    def encode(self, dataset: Dataset, runtime: Runtime, progress: Progress = silent) -> TokenBlock:
        """Convert texts to sequences; a text without subwords becomes one unknown word."""
        if not dataset.has_text:
            raise UnsupportedError("this model requires text. Got a feature matrix: pass texts.")
        texts = dataset.text()
        numbers: list[np.ndarray[Any, Any]] = [np.empty(0, dtype=np.uint32)]
        lengths: list[int] = [0]
        with progress.task("splitting into subwords", total=len(texts)) as task:
            for block in cut_texts(texts, BLOCK_BYTES):
                for ids in self._numbers(block.to_pylist()):
                    numbers.append(np.array(ids, dtype=np.uint32))
                    lengths.append(len(ids))
                task.advance(len(block))
        pieces = np.concatenate(numbers)
        if pieces.max(initial=0) >= max(self.pieces, 1):  # special tokens may have numbers outside the vocabulary
            raise DataError("the tokeniser of the model has subwords without an embedding. Train the model again.")
        shifted = pieces.astype(np.int32) + np.int32(FIRST_WORD)
        return first_words(TokenBlock(np.cumsum(lengths, dtype=np.int64), shifted), self.max_tokens)

    def _numbers(self, texts: list[str]) -> Iterator[list[int]]:
        for encoding in _called(self._tokeniser.encode_batch_fast, texts):  # without character offsets
            yield encoding.ids

    def spans(self, text: str) -> list[Span]:
        """Return the subwords of a text with their character ranges, which are empty for special tokens."""
        encoding = _called(self._tokeniser.encode, text)
        pieces = zip(encoding.tokens, encoding.offsets, encoding.word_ids, strict=True)
        return [Span(piece, *_trimmed(text, *(edges if word is not None else (0, 0)))) for piece, edges, word in pieces]

    def by_word(self, text: str, weights: Sequence[float]) -> list[tuple[int, int, float]]:
        """Sum the weights of subwords per word; return start, end and weight of each word."""
        found: dict[int, tuple[int, int, float]] = {}
        words = _called(self._tokeniser.encode, text).word_ids
        for (_, start, end), word, weight in zip(self.spans(text), words, weights, strict=False):
            if word is not None and end > start:
                low, high, before = found.get(word, (start, end, 0.0))
                found[word] = min(low, start), max(high, end), before + weight
        return list(found.values())

    def state(self) -> State:
        """Return the state to save: the complete tokeniser."""
        columns = {"tokeniser": pa.array([self.content], pa.large_string()), "pieces": pa.array([self.pieces])}
        return State(tables={TOKENISER: pa.table(columns)})

    @classmethod
    def from_state(cls, max_tokens: int, state: SavedState) -> PieceReader:
        """Restore from a saved state."""
        columns = {"tokeniser": pa.large_string(), "pieces": pa.int64()}
        table = state.table(TOKENISER, columns, 1)
        return cls(table["tokeniser"][0].as_py(), max_tokens, table["pieces"][0].as_py())


def _called(function: Callable[[Any], Any], given: Any) -> Any:
    """Call the tokeniser; whatever it raises is due to a damaged tokenizer.json."""
    try:
        return function(given)
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of the library is no `Exception`
        raise DataError(f"the tokeniser of the model failed ({_reason(error)}). Train it again.") from None


def _reason(error: BaseException) -> str:
    return shown(str(error).splitlines()[0] if str(error) else type(error).__name__, 160)


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """Strip spaces, which some tokenisers include in the following word."""
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _tokeniser(content: str, max_tokens: int) -> Any:
    """Load a tokeniser; override its truncation to `max_tokens` subwords and disable padding."""
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise missing_extra("subword tokens need tokenizers", "transformers") from None
    try:
        made = Tokenizer.from_str(content)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # no specific exceptions, and a panic of the library is no `Exception`
        raise DataError(f"tokenizer.json cannot be read ({_reason(error)}). Copy it again.") from None
    marks = made.num_special_tokens_to_add(False)
    if max_tokens <= marks:
        raise ConfigError(
            f"'max_tokens' of text must be an integer > {marks}, the number of special tokens. Got {max_tokens}."
        )
    made.enable_truncation(max_tokens)
    made.no_padding()
    return made
