"""Word tokeniser shared by all models: text → token numbers, with character offsets on demand.

A token starts with a letter, a digit or an underscore and continues over these and combining marks. Case folding and
Unicode normalisation are applied to the distinct tokens, a thousand times fewer than the tokens of the text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.core.buffers import Buffers
from xmtc.core.mapped_text import cut_texts, let_go, string_offsets
from xmtc.core.normal_forms import normalise
from xmtc.core.parallel import run_parallel
from xmtc.core.string_table import Pieces, StringTable
from xmtc.text import token_kernels

BLOCK_BYTES = 1 << 20
"""Bytes of text to process at a time: small enough to bound memory, large enough that threads rarely contend."""

WORD, MARK = 1, 2
"""Character classes; all other characters are 0 and separate words."""

RULE = 1
"""Version of the tokenisation rules, incremented when they change, which invalidates cached tokens."""


class TokenBlock(NamedTuple):
    """Consecutive documents: the token numbers of document i are ids[indptr[i]:indptr[i + 1]]."""

    indptr: NDArray[np.int64]
    ids: NDArray[Any]  # int32; uint16 for block-local type numbers, if there are few


class Span(NamedTuple):
    """A token as written in the text, with its character range."""

    token: str
    start: int
    end: int


@dataclass(frozen=True)
class Tokens:
    """A tokenised corpus. Each block has local type numbers, two bytes per token; `types_of` maps them to `types`."""

    blocks: list[TokenBlock]
    types_of: list[NDArray[np.int32]]
    """For each block: local type number → number in `types`."""
    types: pa.Array
    """The distinct tokens (types) as written in the text."""
    folded: dict[tuple[bool, int], tuple[pa.Array, NDArray[np.int32]]] = field(default_factory=dict, repr=False)
    """Results of `vocabulary.folded_words`."""

    def __len__(self) -> int:
        return sum(len(block.indptr) - 1 for block in self.blocks)

    def under(self, numbers: NDArray[np.int32]) -> Iterator[tuple[TokenBlock, NDArray[np.int32]]]:
        """Yield each block with a mapping from its local types to `numbers`, given by type of the corpus."""
        for block, types in zip(self.blocks, self.types_of, strict=True):
            yield block, numbers[types]


def fold(token: str, lowercase: bool = True) -> str:
    """Normalise a token: NFC, and lower case if requested."""
    if token.isascii():
        return token.lower() if lowercase else token
    composed = normalise("NFC", token)
    return normalise("NFC", composed.lower()) if lowercase else composed


def tokenise(texts: pa.ChunkedArray, threads: int = 1, advance: Callable[[int], None] | None = None) -> Tokens:
    """Split texts into tokens. The result does not depend on `threads`."""
    blocks: list[TokenBlock] = []
    types_of: list[NDArray[np.int32]] = []
    if texts.nbytes <= BLOCK_BYTES:
        return _tokenise_few(texts, advance)
    types, workspaces = StringTable(), [_Workspace(BLOCK_BYTES // 64) for _ in range(threads)]

    def process(block: pa.Array) -> tuple[TokenBlock, Pieces]:
        workspace = workspaces.pop()
        workspace.table.clear()
        numbered = _numbered(_split(block, workspace), workspace.table)
        pieces = workspace.table.pieces()
        workspaces.append(workspace)
        let_go(block)
        return numbered, pieces

    for numbered, pieces in run_parallel(process, _blocks(texts), threads):
        blocks.append(numbered)
        types_of.append(types.number(*pieces))
        if advance is not None:
            advance(len(numbered.indptr) - 1)
    return Tokens(blocks, types_of, types.strings().cast(pa.string()))


def _tokenise_few(texts: pa.ChunkedArray, advance: Callable[[int], None] | None) -> Tokens:
    """Split texts that fit into one block, without the work of joining blocks."""
    tokens = Tokens([], [], pa.array([], pa.string()))
    for block in _blocks(texts):
        workspace = _Workspace(texts.nbytes)  # at least a byte per token
        tokens.blocks.append(_numbered(_split(block, workspace), workspace.table))
        types = workspace.table.strings().cast(pa.string())
        tokens = Tokens(tokens.blocks, [np.arange(len(types), dtype=np.int32)], types)
        if advance is not None:
            advance(len(block))
    return tokens


def tokenise_with_breaks(texts: pa.Array) -> tuple[TokenBlock, pa.Array, NDArray[np.uint8]]:
    """Split a few texts into tokens; return them with the types and what separates each from the one before.

    2 stands for a line end, 1 for the end of a sentence, 0 for neither.
    """
    workspace = _Workspace(texts.nbytes)
    split = _split(texts, workspace)
    block = _numbered(split, workspace.table)
    offsets = string_offsets(texts)
    breaks = token_kernels.find_breaks(split.data, offsets, split.indptr, split.starts, split.lengths)
    return block, workspace.table.strings(), breaks


def spans(text: str) -> list[Span]:
    """Return the tokens of one text with their character offsets."""
    split = _split(pa.array([text], pa.string()), _Workspace(0))
    before = np.concatenate([[0], np.cumsum((split.data & 0xC0) != 0x80)])  # characters before each byte
    edges = zip(before[split.starts].tolist(), before[split.starts + split.lengths].tolist(), strict=True)
    return [Span(text[start:end], start, end) for start, end in edges]


@cache
def character_classes() -> NDArray[np.uint8]:
    """Return the class of each code point (0x110000,): WORD starts or continues a token, MARK only continues one.

    Read from a file, so that all Python versions split alike: runs of code points as 'gap length gap length …' in
    base 36.
    """
    classes = np.zeros(0x110000, dtype=np.uint8)
    content = Path(__file__).with_name("unicode_classes.txt").read_text(encoding="ascii")
    _, words, marks = re.split(r"^(?:word|mark)$", content, flags=re.MULTILINE)
    for runs, kind in ((words, WORD), (marks, MARK)):
        edges = np.cumsum([int(number, 36) for number in runs.split()])  # start, stop, start, stop, …
        for start, stop in edges.reshape(-1, 2).tolist():
            classes[start:stop] = kind
    return classes


def _blocks(texts: pa.ChunkedArray) -> Iterator[pa.Array]:
    """Yield Arrow string arrays of up to about BLOCK_BYTES with complete documents; small chunks are joined."""
    waiting: list[pa.Array] = []
    size = 0
    for piece in cut_texts(texts, BLOCK_BYTES):
        offsets = string_offsets(piece)
        length = int(offsets[-1] - offsets[0])
        if waiting and size + length > BLOCK_BYTES:
            yield _joined(waiting)
            waiting, size = [], 0
        waiting.append(piece)
        size += length
    if waiting:
        yield _joined(waiting)


def _joined(pieces: list[pa.Array]) -> pa.Array:
    if len(pieces) == 1:
        return pieces[0]
    joined = pa.concat_arrays(pieces)
    for piece in pieces:
        let_go(piece)
    return joined


class _Workspace:
    """Memory for splitting one block of texts at a time."""

    def __init__(self, expected: int) -> None:
        self.table = StringTable(expected)
        self.buffer = Buffers().get


class _Split(NamedTuple):
    """The tokens of some texts, as pieces of their bytes."""

    indptr: NDArray[np.int64]  # (n + 1,) where the tokens of each text start
    data: NDArray[np.uint8]
    starts: NDArray[np.int32]
    lengths: NDArray[np.int32]


def _split(texts: pa.Array, workspace: _Workspace) -> _Split:
    """Find the tokens of texts; the result is valid until the workspace is used again."""
    offsets = string_offsets(texts)
    data = np.frombuffer(texts.buffers()[2] or b"", dtype=np.uint8)
    longest = int(np.diff(offsets).max(initial=0)) + 1
    room = (int(offsets[-1]) - int(offsets[0]) + len(texts)) // 2  # tokens of one byte, with a byte between them
    kinds, edges = workspace.buffer("kinds", longest, np.uint8), workspace.buffer("edges", longest, np.int32)
    starts, lengths = workspace.buffer("starts", room, np.int32), workspace.buffer("lengths", room, np.int32)
    indptr = np.empty(len(texts) + 1, dtype=np.int64)
    token_kernels.split_words(data, offsets, character_classes(), kinds, edges, starts, lengths, indptr)
    return _Split(indptr, data, starts[: indptr[-1]], lengths[: indptr[-1]])


def _numbered(split: _Split, table: StringTable) -> TokenBlock:
    """Number the tokens in an empty table."""
    ids = table.number(split.data, split.starts, split.lengths)
    return TokenBlock(split.indptr, ids.astype(np.uint16) if len(table) <= 1 << 16 else ids)
