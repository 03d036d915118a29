"""The XMLRepository's text format: a header 'N D L', then 'l1,l2 f:v f:v' a document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from xmtc.data.records import Records
from xmtc.errors import DataError, shown
from xmtc.files import read_blocks

MOST = 2**31 - 1
MOST_LABELS = 100_000_000  # a label costs memory whether a document holds it or not


def is_header(line: bytes) -> bool:
    """Three whole numbers: documents, features, labels."""
    parts = line.split()
    return len(parts) == 3 and all(part.isdigit() for part in parts)


def read_xmlrepo(path: str | Path) -> Iterator[Records]:
    """Batches of feature rows with label numbers as keys; the header's three counts are held against the file."""
    shape: tuple[int, int, int] | None = None
    seen = 0
    number = 0
    for block in read_blocks(path):
        lines = block.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        if shape is None:
            shape = _header(lines[0].removeprefix(b"\xef\xbb\xbf"), path)
            lines = lines[1:]
            number = 1
        lines = lines if seen + len(lines) <= shape[0] else _without_blank_end(lines, shape[0] - seen)
        if seen + len(lines) > shape[0]:
            raise DataError(
                f"{path}:{number + shape[0] - seen + 1}: more documents than the {shape[0]:,} of the header. "
                "Correct the header."
            )
        if lines:
            yield _records([line.rstrip(b"\r") for line in lines], path, number, shape)
        seen += len(lines)
        number += len(lines)
    if shape is None:
        raise DataError(f"{path}: empty. Begin with a header: documents features labels.")
    if seen < shape[0]:
        raise DataError(
            f"{path}: the header announces {shape[0]:,} documents, the file has {seen:,}. "
            "Correct the header, or fetch the file again if it is cut short."
        )


def _header(line: bytes, path: str | Path) -> tuple[int, int, int]:
    if not is_header(line):
        raise DataError(f"{path}:1: not a header. Begin with three whole numbers: documents features labels.")
    documents, features, labels = (_whole_number(part) for part in line.split())
    if max(documents, features) > MOST or labels > MOST_LABELS:
        raise DataError(
            f"{path}:1: a count is too large (at most {MOST:,} documents and features, {MOST_LABELS:,} labels). "
            "Correct the header."
        )
    return documents, features, labels


def _whole_number(digits: bytes) -> int:
    """Its value as far as it is of use: Python refuses to read thousands of digits."""
    return int(digits.lstrip(b"0")[:12] or b"0")


def _without_blank_end(lines: list[bytes], wanted: int) -> list[bytes]:
    while len(lines) > wanted and not lines[-1].strip():
        lines = lines[:-1]
    return lines


def _records(lines: list[bytes], path: str | Path, before: int, shape: tuple[int, int, int]) -> Records:
    _, width, labels = shape
    rows: list[NDArray[np.float64]] = []
    keys: list[str] = []
    counts: list[int] = []
    for number, line in enumerate(lines, start=before + 1):
        head, _, rest = line.partition(b" ")
        if b":" in head:  # no labels, and the space that should say so is missing
            head, rest = b"", line
        found = _label_numbers(head, labels, f"{path}:{number}")
        keys += found
        counts.append(len(found))
        rows.append(_pairs(rest, width, f"{path}:{number}"))
    flat = np.concatenate(rows) if rows else np.empty((0, 2))
    indptr = np.concatenate([[0], np.cumsum([len(row) for row in rows])])
    features = sp.csr_array(
        (flat[:, 1].astype(np.float32), flat[:, 0].astype(np.int32), indptr), shape=(len(lines), width)
    )
    with np.errstate(over="ignore"):
        features.sum_duplicates()
    if not np.isfinite(features.data).all():
        bad = int(np.searchsorted(features.indptr, int(np.argmin(np.isfinite(features.data))), side="right"))
        raise DataError(f"{path}:{before + bad}: the values of a feature add up to infinity. Write each feature once.")
    first = before + 1
    return Records(
        ids=[str(number - 2) for number in range(first, first + len(lines))],
        lines=list(range(first, first + len(lines))),
        features=features,
        label_counts=counts,
        label_keys=keys,
        label_width=labels,
    )


def _label_numbers(head: bytes, labels: int, place: str) -> list[str]:
    out = []
    for part in head.split(b",") if head else []:
        if not part.isdigit():
            raise DataError(f"{place}: label '{_shown(part)}' is not a whole number. Write label,label feature:value.")
        label = _whole_number(part)
        if label >= labels:
            raise DataError(
                f"{place}: label {_shown(part)} is not below the {labels:,} of the header. Labels count from 0."
            )
        out.append(str(label))
    return out


def _pairs(text: bytes, width: int, place: str) -> NDArray[np.float64]:
    """(nnz, 2): feature number and value."""
    pieces = text.split()
    if any(piece.count(b":") != 1 for piece in pieces):
        bad = next(piece for piece in pieces if piece.count(b":") != 1)
        raise DataError(f"{place}: '{_shown(bad)}' is not of the form feature:value. Part pairs with a space.")
    try:
        pairs = np.array(b" ".join(pieces).replace(b":", b" ").split(b" "), dtype=np.float64) if pieces else np.empty(0)
    except ValueError:
        raise DataError(f"{place}: a feature or its value is not a number. Write feature:value pairs.") from None
    pairs = pairs.reshape(-1, 2)
    numbers, values = pairs[:, 0], pairs[:, 1]
    if (numbers != np.floor(numbers)).any() or (numbers < 0).any() or (numbers >= width).any():
        bad_number = numbers[(numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= width)][0]
        raise DataError(
            f"{place}: feature {bad_number:.12g} is not a whole number below the {width:,} of the header. "
            "Features count from 0."
        )
    if not np.isfinite(values).all() or (np.abs(values) > 3e38).any():
        raise DataError(f"{place}: a value is not finite. Replace it with a number.")
    return pairs


def _shown(part: bytes) -> str:
    return shown(part.decode(errors="replace"), 40)
