"""Sparse feature files, 'l1,l2 f:v f:v' per line: with a header 'N D L' (XMLRepository) or without (libsvm)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.core.errors import DataError, shown
from xmtc.core.files import read_blocks, replace_file
from xmtc.data.dataset import Dataset
from xmtc.data.format import FileHead, Format
from xmtc.data.records import ReadOptions, Records

MOST = 2**31 - 1
MOST_LABELS = 100_000_000  # labels without documents need memory, too
_PAIR = rb"\d++:[-+]?[\d.]++(?:[eE][-+]?\d++)?"
_LIBSVM_ENDINGS = (".svm", ".libsvm")
_LIBSVM = re.compile(rb"(?:\d++(?:,\d++)*+)?(?:[ \t]++" + _PAIR + rb")++\s*+(?:#.*)?")


def is_header(line: bytes) -> bool:
    """Whether a line consists of three integers: documents, features, labels."""
    parts = line.split()
    return len(parts) == 3 and all(part.isdigit() for part in parts)


def _is_xmlrepo(head: FileHead) -> bool:
    """Whether the file has a header, followed by a line of digits and colons or by nothing."""
    lines = head.lines
    if not is_header(lines[0]):
        return False
    return len(lines) < 2 or bool(re.search(rb"\d:", lines[1])) or not lines[1].strip(b" \t,0123456789")


def _is_libsvm(head: FileHead) -> bool:
    """Whether the name has a libsvm ending, or the first line and most others are labels and feature:value pairs."""
    matches = [_LIBSVM.fullmatch(line) is not None for line in head.lines[:10]]
    return (matches[0] and 2 * sum(matches) > len(matches)) or head.name.endswith(_LIBSVM_ENDINGS)


@dataclass(frozen=True)
class _Limits:
    """Exclusive upper bounds of feature and label numbers."""

    features: int
    labels: int
    origin: str = "the header"
    """Origin of the bounds, for error messages."""
    drop_beyond: bool = False
    """Skip features unknown to the model instead of rejecting the line."""


def read_xmlrepo(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Yield batches of feature rows with label numbers as keys; check the header's counts against the file."""
    documents: int | None = None
    seen = 0
    number = 0
    for block in read_blocks(path):
        lines = block.removesuffix(b"\n").split(b"\n")
        if documents is None:
            documents, features, labels = _header(lines[0].removeprefix(b"\xef\xbb\xbf"), path)
            limits = _Limits(features, labels)
            lines = lines[1:]
            number = 1
        lines = lines if seen + len(lines) <= documents else _without_blank_end(lines, documents - seen)
        if seen + len(lines) > documents:
            raise DataError(
                f"{path}:{number + documents - seen + 1}: more documents than the {documents:,} in the header. "
                "Correct the header."
            )
        if lines:
            numbered = [(number + at, line) for at, line in enumerate(lines, start=1)]
            records = _records(numbered, path, limits, options, header_lines=1)
            records.label_width = labels
            yield records
        seen += len(lines)
        number += len(lines)
    if documents is None:
        raise DataError(f"{path}: empty. Start the file with a header: documents features labels.")
    if seen < documents:
        raise DataError(
            f"{path}: {documents:,} documents in the header, but {seen:,} in the file. "
            "Correct the header, or download the file again if it is truncated."
        )


def read_libsvm(path: str | Path, options: ReadOptions) -> Iterator[Records]:
    """Yield batches of feature rows; the numbers of features and labels are not given, and # starts a comment."""
    number = 0
    known = options.feature_count
    limits = _Limits(MOST if known is None else known, MOST, "this format", drop_beyond=known is not None)
    for block in read_blocks(path):
        if number == 0:
            block = block.removeprefix(b"\xef\xbb\xbf")
        lines = block.removesuffix(b"\n").split(b"\n")
        bare = [
            (number + at, line.partition(b"#")[0])
            for at, line in enumerate(lines, start=1)
            if line.rstrip(b"\r") and not line.lstrip().startswith(b"#")
        ]
        if bare:
            yield _records(bare, path, limits, options)
        number += len(lines)


def _header(line: bytes, path: str | Path) -> tuple[int, int, int]:
    if not is_header(line):
        raise DataError(f"{path}:1: not a header. Start with three integers: documents features labels.")
    documents, features, labels = (_whole_number(part) for part in line.split())
    if max(documents, features) > MOST or labels > MOST_LABELS:
        raise DataError(
            f"{path}:1: a count is too large (maximum {MOST:,} documents and features, {MOST_LABELS:,} labels). "
            "Correct the header."
        )
    return documents, features, labels


def _whole_number(digits: bytes) -> int:
    """Parse the first 12 significant digits, enough for range checks; Python rejects thousands of digits."""
    return int(digits.lstrip(b"0")[:12] or b"0")


def _without_blank_end(lines: list[bytes], wanted: int) -> list[bytes]:
    while len(lines) > wanted and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _records(
    numbered: list[tuple[int, bytes]], path: str | Path, limits: _Limits, options: ReadOptions, header_lines: int = 0
) -> Records:
    plain = _plain(numbered, limits)
    if plain is not None:
        plain.ids = pa.array(np.asarray(plain.lines) - 1 - header_lines).cast(pa.string())
        return plain
    rows: list[NDArray[np.float64]] = []
    keys: list[list[str]] = []
    kept: list[int] = []
    for number, line in numbered:
        place = f"{path}:{number}"
        head, _, rest = line.rstrip().replace(b"\t", b" ").partition(b" ")
        if b":" in head:  # no labels, and no leading space either
            head, rest = b"", line
        try:
            labels, pairs = _label_numbers(head, limits, place), _pairs(rest, limits, place)
        except DataError as error:
            options.bad_lines.add(error)
            continue
        keys.append(labels)
        rows.append(pairs)
        kept.append(number)
    flat = np.concatenate([np.empty((0, 2)), *rows])
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows], dtype=np.int64)])
    open_width = limits.features == MOST
    width = int(flat[:, 0].max(initial=-1)) + 1 if open_width else limits.features
    features = sp.csr_array((flat[:, 1], flat[:, 0].astype(np.int32), indptr), shape=(len(kept), width))
    features.sum_duplicates()  # before rounding: intermediate sums may exceed float32
    features = features.astype(np.float32)
    return Records(
        ids=[str(number - 1 - header_lines) for number in kept],
        lines=kept,
        features=features,
        label_counts=[len(row) for row in keys],
        label_keys=[key for row in keys for key in row],
    )


def _plain(numbered: list[tuple[int, bytes]], limits: _Limits) -> Records | None:
    """Parse all lines at once if each is 'l,l f:v f:v' with single spaces and ascending features; otherwise None.

    Several times faster than parsing line by line, which is needed to report errors. Ids are left empty.
    """
    heads, _, rests = zip(*(line.rstrip().partition(b" ") for _, line in numbered), strict=True)
    labels = _numbers([head for head in heads if head], b",", b"0123456789,", pa.int64())
    pairs = _numbers([rest for rest in rests if rest], b" ", b"0123456789.:eE+- ", pa.float64())
    if labels is None or pairs is None or len(pairs) % 2 or (len(labels) and labels.max() >= limits.labels):
        return None
    features, values = pairs[0::2], pairs[1::2]
    if len(features) and not (features.min() >= 0 and features.max() < limits.features):
        return None
    columns = features.astype(np.int64)
    counts = np.array([rest.count(b":") for rest in rests])
    rows = np.repeat(np.arange(len(rests)), counts)
    if len(columns) != counts.sum() or (columns != features).any() or not _finite(values):
        return None
    if ((np.diff(columns) <= 0) & (np.diff(rows) == 0)).any():
        return None
    width = int(columns.max(initial=-1)) + 1 if limits.features == MOST else limits.features
    indptr = np.concatenate([[0], np.cumsum(counts)])
    matrix = sp.csr_array((values.astype(np.float32), columns.astype(np.int32), indptr), shape=(len(rests), width))
    return Records(
        ids=[],
        lines=[number for number, _ in numbered],
        features=matrix,
        label_counts=[head.count(b",") + 1 if head else 0 for head in heads],
        label_keys=pa.array(labels).cast(pa.string()),
    )


def _numbers(parts: list[bytes], separator: bytes, allowed: bytes, kind: pa.DataType) -> NDArray[Any] | None:
    """Parse all numbers of lines such as 'l,l' or 'f:v f:v' (alternating colons and spaces); otherwise None."""
    joined = separator.join(parts)
    if not joined:
        return np.asarray(pa.array([], kind))
    if joined.translate(None, allowed) or max(map(len, joined.split(separator)), default=0) > 40:
        return None
    marks = np.frombuffer(joined, dtype=np.uint8)
    marks = marks[(marks == ord(":")) | (marks == ord(separator))]
    if separator == b" ":
        if len(marks) % 2 == 0 or (marks[0::2] != ord(":")).any() or (marks[1::2] != ord(" ")).any():
            return None
        joined = joined.replace(b":", b" ")
    try:
        # Arrow parses a piece only if all of it is a number; NumPy's text parser finds two numbers in '1+2'.
        return np.asarray(pa.array(joined.split(separator), pa.binary()).cast(pa.string()).cast(kind))
    except pa.ArrowInvalid:
        return None


def _label_numbers(head: bytes, limits: _Limits, place: str) -> list[str]:
    out = []
    for part in head.split(b",") if head else []:
        if not part.isdigit():
            raise DataError(f"{place}: label '{_shown(part)}' is not an integer. Write label,label feature:value.")
        label = _whole_number(part)
        if label >= limits.labels:
            raise DataError(
                f"{place}: label {_shown(part)} is not below {limits.labels:,}, the limit set by {limits.origin}. "
                "Labels are numbered from 0."
            )
        out.append(str(label))
    return out


def _pairs(text: bytes, limits: _Limits, place: str) -> NDArray[np.float64]:
    """Parse pairs of feature number and value, of shape (nnz, 2)."""
    pieces = text.split()
    if any(piece.count(b":") != 1 for piece in pieces):
        bad = next(piece for piece in pieces if piece.count(b":") != 1)
        raise DataError(f"{place}: '{_shown(bad)}' is not of the form feature:value. Separate pairs with a space.")
    try:
        pairs = np.array(b" ".join(pieces).replace(b":", b" ").split(b" "), dtype=np.float64) if pieces else np.empty(0)
    except ValueError:
        raise DataError(f"{place}: a feature or its value is not a number. Write feature:value pairs.") from None
    pairs = pairs.reshape(-1, 2)
    if limits.drop_beyond:
        pairs = pairs[~(pairs[:, 0] >= limits.features)]
    numbers, values = pairs[:, 0], pairs[:, 1]
    outside = (numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= limits.features)
    if outside.any():
        raise DataError(
            f"{place}: feature {numbers[outside][0]:.12g} is not an integer ≥ 0 and < {limits.features:,}, "
            f"the limit set by {limits.origin}. Correct the feature."
        )
    if not _finite(values):
        raise DataError(f"{place}: a value is not finite. Replace it with a finite number.")
    _check_sums(pairs, place)
    return pairs


def _check_sums(pairs: NDArray[np.float64], place: str) -> None:
    """Check that the sums of repeated features are finite."""
    order = np.argsort(pairs[:, 0], kind="stable")
    numbers, values = pairs[order].T
    starts = np.flatnonzero(np.diff(numbers, prepend=-1.0) != 0)
    if len(starts) < len(numbers) and not _finite(np.add.reduceat(values, starts)):
        raise DataError(f"{place}: the values of a repeated feature sum to infinity. Write each feature once.")


def _finite(values: NDArray[np.float64]) -> bool:
    """Whether all values are finite in float32."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(values.astype(np.float32)).all())


def _shown(part: bytes) -> str:
    return shown(part.decode(errors="replace"), 40)


# ---- writing


def write_xmlrepo(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write a header and one line per document, with label numbers."""
    assert dataset.features is not None
    numbers = label_numbers(dataset, path)
    numbered = np.array_equal(numbers, np.arange(len(numbers)))
    labels = len(numbers) if numbered else int(numbers.max(initial=-1)) + 1
    with replace_file(path) as stream:
        stream.write(f"{len(dataset)} {dataset.features.shape[1]} {labels}\n".encode())
        for batch in dataset.batches(4096):
            stream.write(_lines(batch, numbers))
    return 0


def write_libsvm(dataset: Dataset, path: Path, lossy: bool = False) -> int:
    """Write one line per document; features keep their numbers, from 0."""
    numbers = label_numbers(dataset, path)
    with replace_file(path) as stream:
        for batch in dataset.batches(4096):
            stream.write(_lines(batch, numbers))
    return 0


def _lines(batch: Dataset, numbers: NDArray[np.int64]) -> bytes:
    assert batch.features is not None
    pairs = [
        f"{column}:{value}"
        for column, value in zip(batch.features.indices.tolist(), batch.features.data.astype(str).tolist(), strict=True)
    ]
    keys = [] if batch.labels is None else numbers[batch.labels.indices].tolist()
    ends = np.zeros(len(batch) + 1, dtype=np.int64) if batch.labels is None else batch.labels.indptr
    cuts = batch.features.indptr
    return "".join(
        f"{','.join(map(str, sorted(keys[ends[row] : ends[row + 1]])))} {' '.join(pairs[cuts[row] : cuts[row + 1]])}\n"
        for row in range(len(batch))
    ).encode()


def label_numbers(dataset: Dataset, path: Path) -> NDArray[np.int64]:
    """Return the number of each label: its key, which must be an integer."""
    if dataset.label_index is None:
        return np.empty(0, dtype=np.int64)
    keys = dataset.label_index.keys
    for key in keys:
        if not (key.isascii() and key.isdigit() and str(int(key[:12])) == key and int(key) < MOST_LABELS):
            raise DataError(
                f"{path}: this format requires numeric label keys, and '{shown(key)}' is not a number. "
                "Number the labels, or choose a format that stores label names."
            )
    return np.array([int(key) for key in keys], dtype=np.int64)


XMLREPO = Format(
    name="xmlrepo",
    description="a header, then l1,l2 f:v f:v",
    read=read_xmlrepo,
    write=write_xmlrepo,
    sniff=_is_xmlrepo,
    part_name="{}.txt",
    holds="features",
)
LIBSVM = Format(
    name="libsvm",
    description="l1,l2 f:v f:v",
    read=read_libsvm,
    write=write_libsvm,
    sniff=_is_libsvm,
    part_name="{}.svm",
    endings=_LIBSVM_ENDINGS,
    holds="features",
)
