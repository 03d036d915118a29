"""Pretrained word vectors: read the vectors of given words from files that may exceed memory.

GloVe text, word2vec text and binary, and .npy with a vocabulary file are distinguished by content. A file is read
once, block by block: words are looked up as bytes, and only the numbers of requested words are parsed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from xmtc.core.errors import DataError, shown
from xmtc.core.files import plain_name, read_blocks
from xmtc.core.progress import Progress, Task, silent

BLOCK_BYTES = 1 << 22
MOST_WIDTH = 1 << 16
"""Maximum dimension; a larger number indicates a damaged header."""
_LONGEST_WORD = 1 << 16
_START_BYTES = 1 << 18
_HEADER = re.compile(rb"([0-9]{1,18}) +(-?[0-9]{1,18})[ \r]*(?:\n|$)")
_CONTROL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class WordVectors:
    """One row per requested word; words missing in the file have zero rows."""

    matrix: NDArray[np.float32]  # (V, width)
    found: NDArray[np.bool_]  # (V,)

    @property
    def coverage(self) -> float:
        """Fraction of words that were found."""
        return float(self.found.mean()) if len(self.found) else 0.0


def read_vectors(path: Path, words: Sequence[str], progress: Progress = silent) -> WordVectors:
    """Read the vectors of `words`, each as written, else Capitalised, else in UPPER case; the first match counts."""
    path = Path(path)
    wanted = _Wanted(words)
    start = b"" if path.suffix.lower() == ".npy" else _start(path)
    if not start or start.startswith(b"\x93NUMPY"):
        _read_array(path, wanted)
    else:
        layout = _layout(path, start)
        with progress.task("reading word vectors", layout.promised) as task:
            (_read_binary if layout.binary else _read_text)(path, layout, wanted, task)
    vectors = wanted.vectors()
    if len(words) and not vectors.found.any():
        raise DataError(
            f"{path}: contains none of the {len(words):,} words, such as '{shown(words[0])}'. Check language and case."
        )
    return vectors


class _Wanted:
    """The requested words, by the bytes of their forms, and the rows found so far."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.rows_of: dict[bytes, tuple[int, ...]] = {}
        """Form → 3 · row + rank of the form, 0 for the word as written; () for the first part of a form with spaces."""
        for row, word in enumerate(words):
            for rank, form in enumerate((word, word[:1].upper() + word[1:], word.upper())):
                if rank and form == word:
                    continue
                key = form.encode("utf-8", "surrogatepass")
                self.rows_of[key] = (*self.rows_of.get(key, ()), 3 * row + rank)
                if b" " in key:
                    self.rows_of.setdefault(key[: key.index(b" ")], ())
        self._ranks = bytearray(b"\x03" * len(words))  # rank of the form found, 3: none
        self._matrix = np.zeros((len(words), 0), dtype=np.float32)

    def open_rows(self, form: bytes) -> list[int]:
        """Return the rows for which this form is better than the one found before, and mark them as found."""
        rows = []
        for number in self.rows_of.get(form, ()):
            row, rank = divmod(number, 3)
            if rank < self._ranks[row]:
                self._ranks[row] = rank
                rows.append(row)
        return rows

    def set_width(self, width: int) -> None:
        self._matrix = np.zeros((len(self._ranks), width), dtype=np.float32)

    def put(self, rows: list[int], values: NDArray[np.float32]) -> None:
        self._matrix[rows] = values  # the last occurrence of a repeated row counts

    def vectors(self) -> WordVectors:
        return WordVectors(self._matrix, np.frombuffer(self._ranks, dtype=np.uint8) < 3)


class _Layout(NamedTuple):
    """Layout of a file of vectors."""

    binary: bool
    promised: int | None  # number of words in the header
    width: int
    skip: int  # bytes before the first vector


def _start(path: Path) -> bytes:
    start = b""
    for block in read_blocks(path, _START_BYTES):
        start += block
        if len(start) >= _START_BYTES:
            break
    if not start:
        raise DataError(f"{path}: empty. Download the file again.")
    return start


def _layout(path: Path, start: bytes) -> _Layout:
    """Detect the header, text or binary, and the width: from the header, or the most common one in the first lines."""
    if start.startswith(b"PK\x03\x04"):
        raise DataError(f"{path}: is a ZIP archive. Unpack it and pass the file of vectors.")
    skip = len(_BYTE_ORDER_MARK) if start.startswith(_BYTE_ORDER_MARK) else 0
    header = _HEADER.match(start, skip)
    first = start[header.end() if header else skip :].split(b"\n", 1)[0]
    binary = (header is not None and plain_name(path).endswith(".bin")) or not _is_text(first)
    if header is None:
        if binary:
            raise DataError(f"{path}: contains no word vectors. Pass GloVe or word2vec text, word2vec binary, or .npy.")
        lines = start[skip:].removesuffix(b"\n").split(b"\n")
        widths = Counter(line.rstrip(b" \r").count(b" ") for line in lines)
        layout = _Layout(False, None, widths.most_common(1)[0][0], skip)
    else:
        layout = _Layout(binary, int(header[1]), int(header[2]), header.end())
    if not 1 <= layout.width <= MOST_WIDTH:
        raise DataError(
            f"{path}:1: vectors have {layout.width:,} values; the supported range is 1 to {MOST_WIDTH:,}. "
            "Write one word and its numbers per line, or download the file again."
        )
    return layout


def _is_text(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return _CONTROL.search(line) is None


def _read_text(path: Path, layout: _Layout, wanted: _Wanted, task: Task) -> None:
    wanted.set_width(layout.width)
    known = wanted.rows_of
    number = 1 if layout.promised is not None else 0  # lines so far, with the header
    skip, first = layout.skip, True
    read = 0  # lines that are not blank
    for block in read_blocks(path, BLOCK_BYTES):
        at, skip = min(skip, len(block)), max(skip - len(block), 0)
        rows: list[int] = []
        lines: list[tuple[int, bytes]] = []  # (line number, numbers) of each row
        before, blank = number, 0
        while at < len(block):
            end = block.find(b"\n", at)
            end = end if end >= 0 else len(block)
            space = block.find(b" ", at, end)
            number += 1
            if first or space < 0 or block[at:space] in known:
                line = block[at:end].rstrip(b" \r")
                if line:
                    word, numbers = _parts(line, layout.width, known, path, number)
                    if first:
                        _parsed([(number, numbers)], layout.width, path)  # detect a wrong file type immediately
                    first = False
                    found = wanted.open_rows(word)
                    rows += found
                    lines += [(number, numbers)] * len(found)
                else:
                    blank += 1
            at = end + 1
        if rows:
            wanted.put(rows, _parsed(lines, layout.width, path))
        read += number - before - blank
        task.advance(number - before)
    if layout.promised is not None and read < layout.promised:
        raise _truncated(path, read, layout.promised)


def _parts(line: bytes, width: int, known: dict[bytes, Any], path: Path, number: int) -> tuple[bytes, bytes]:
    """Split a line into the word, which may contain spaces, and its numbers."""
    values = line.count(b" ")
    word = line.rsplit(b" ", min(width, values))[0] if values != width else line[: line.index(b" ")]
    if values < width or (values > width and word not in known and all(map(_is_number, word.split(b" ")[1:]))):
        raise DataError(
            f"{path}:{number}: {values:,} values, but the other vectors have {width:,}. "
            f"Write one word and {width:,} numbers per line, or download the file again."
        )
    return word, line[len(word) + 1 :]


def _is_number(piece: bytes) -> bool:
    try:
        float(piece)
    except ValueError:
        return False
    return True


def _parsed(lines: list[tuple[int, bytes]], width: int, path: Path) -> NDArray[np.float32]:
    """Parse numbers (lines, width); the error names the first invalid line."""
    try:
        values = _floats(b" ".join([numbers for _, numbers in lines]))
    except ValueError:
        for number, numbers in lines:
            for piece in numbers.split(b" "):
                try:
                    _floats(piece)
                except ValueError:
                    raise DataError(
                        f"{path}:{number}: '{shown(piece.decode('utf-8', 'replace'))}' is not a number. "
                        f"Write one word and {width:,} numbers per line, or download the file again."
                    ) from None
        raise
    matrix = values.reshape(len(lines), width)
    bad = np.flatnonzero(~np.isfinite(matrix).all(axis=1))
    if len(bad):
        raise _not_finite(f"{path}:{lines[bad[0]][0]}")
    return matrix


def _floats(text: bytes) -> NDArray[np.float32]:
    pieces = pc.split_pattern(pa.array([text], pa.large_string()), " ").flatten()
    return np.asarray(pc.cast(pieces, pa.float32()), dtype=np.float32)


def _read_binary(path: Path, layout: _Layout, wanted: _Wanted, task: Task) -> None:
    count, size = layout.promised or 0, 4 * layout.width
    skip, read, rest = layout.skip, 0, b""
    is_ready = False
    for block in read_blocks(path, max(BLOCK_BYTES, size)):
        buffer = rest + block
        at, skip = min(skip, len(buffer)), max(skip - len(buffer), 0)
        rows: list[int] = []
        pieces: list[bytes] = []
        before = read
        while read < count:
            while buffer[at : at + 1] == b"\n":
                at += 1
            space = buffer.find(b" ", at, at + _LONGEST_WORD)
            if space < 0 and len(buffer) - at >= _LONGEST_WORD:
                raise DataError(f"{path}: no word before vector {read + 1:,}. Download the file again.")
            end = space + 1 + size
            if space < 0 or end > len(buffer):
                break
            found = wanted.open_rows(buffer[at:space])
            if found:
                rows += found
                pieces += [buffer[space + 1 : end]] * len(found)
            read += 1
            at = end
        if read and not is_ready:  # allocate only after the width proved plausible
            wanted.set_width(layout.width)
            is_ready = True
        if rows:
            values = np.frombuffer(b"".join(pieces), dtype="<f4").astype(np.float32).reshape(len(rows), layout.width)
            bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
            if len(bad):
                raise _not_finite(f"{path}: the vector of '{shown(wanted.words[rows[bad[0]]])}'")
            wanted.put(rows, values)
        rest = buffer[at:]
        task.advance(read - before)
        if read == count:
            break
    if read < count:
        raise _truncated(path, read, count)


def _not_finite(place: str) -> DataError:
    return DataError(f"{place}: a value is infinite or NaN. Remove the word, or download the file again.")


def _truncated(path: Path, read: int, count: int) -> DataError:
    return DataError(f"{path}: truncated: {read:,} vectors, but {count:,} in the header. Download the file again.")


def _read_array(path: Path, wanted: _Wanted) -> None:
    """Read rows of a memory-mapped .npy file, with the words in a vocabulary file in the same folder."""
    try:
        array = np.lib.format.open_memmap(path, mode="r")  # never unpickles
    except FileNotFoundError:
        raise DataError(f"{path}: no such file. Check the path.") from None
    except OSError as error:
        reason = error.strerror or shown(str(error))
        raise DataError(f"{path}: cannot be opened ({reason}). Check the path and its permissions.") from None
    except (ValueError, EOFError) as error:
        reason = shown(str(error), 120).rstrip(".")
        raise DataError(f"{path}: cannot be read as .npy ({reason}). Save a plain array of numbers.") from None
    if array.dtype.kind not in "fiu":
        raise DataError(f"{path}: must contain real numbers. Got {array.dtype}. Save a plain array of float32.")
    if array.ndim != 2 or not 1 <= array.shape[1] <= MOST_WIDTH:
        raise DataError(f"{path}: must have the shape (words, width). Got {array.shape}. Save one row per word.")
    vocabulary = _vocabulary(path)
    wanted.set_width(array.shape[1])
    rows: list[int] = []
    lines: list[int] = []
    number = 0
    for block in read_blocks(vocabulary):
        for word in block.removesuffix(b"\n").split(b"\n"):
            word = word.removeprefix(_BYTE_ORDER_MARK) if number == 0 else word
            found = wanted.open_rows(word.removesuffix(b"\r"))
            rows += found
            lines += [number] * len(found)
            number += 1
    if number != len(array):
        raise DataError(
            f"{vocabulary}: {number:,} words for the {len(array):,} rows of {path.name}. Write one word per row."
        )
    for first in range(0, len(rows), 1 << 16):
        chosen = slice(first, first + (1 << 16))
        with np.errstate(over="ignore"):
            values = array[lines[chosen]].astype(np.float32)
        bad = np.flatnonzero(~np.isfinite(values).all(axis=1))
        if len(bad):
            raise _not_finite(f"{path}: row {lines[first + int(bad[0])] + 1:,}")
        wanted.put(rows[chosen], values)


def _vocabulary(path: Path) -> Path:
    beside = [path.with_suffix(suffix) for suffix in (".txt", ".vocab", ".words")] + [path.with_name("vocab.txt")]
    for vocabulary in beside:
        if vocabulary.is_file():
            return vocabulary
    raise DataError(
        f"{path}: no vocabulary file in the same folder. Write {beside[0].name} with one word per line, in row order."
    )
