"""TopK: the best few labels of each document, what every model returns and every metric eats."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.dataset import LabelIndex
from xmtc.errors import DataError, shown
from xmtc.files import has_surrogate, parse_lines, plain_name, read_blocks, replace_file

if TYPE_CHECKING:
    import pyarrow as pa

Value = TypeVar("Value")
_EXAMPLE = '{"id": "…", "labels": [{"key": "…", "score": 0.5}]}'


class TopK:
    """Label numbers (n, k), best first, −1 where a document has fewer than k; scores (n, k), −∞ at the pads."""

    def __init__(
        self, labels: ArrayLike, scores: ArrayLike, index: LabelIndex, ids: Sequence[str] | None = None
    ) -> None:
        try:
            self.labels: NDArray[np.int64] = np.asarray(labels, dtype=np.int64)  # (n, k)
            self.scores: NDArray[np.float32] = np.asarray(scores, dtype=np.float32)  # (n, k)
        except (ValueError, TypeError):
            raise DataError("labels and scores must be two (n, k) arrays of numbers. Pad short rows with −1.") from None
        self.index = index
        self.ids = [str(name) for name in ids] if ids is not None else [str(row) for row in range(len(self.labels))]
        if self.labels.ndim != 2 or self.labels.shape != self.scores.shape:
            raise DataError(
                f"labels and scores must be two (n, k) arrays. Got {self.labels.shape} and {self.scores.shape}."
            )
        if len(self.ids) != len(self.labels):
            raise DataError(f"{len(self.ids)} document ids for {len(self.labels)} rows. Give one each.")
        if self.labels.size and self.labels.max() >= len(index):
            raise DataError(f"there is no label {self.labels.max()} among {len(index):,}. Labels count from 0.")

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"TopK({len(self):,} documents, k={self.k}, {len(self.index):,} labels)"

    @property
    def k(self) -> int:
        return int(self.labels.shape[1])

    def names(self) -> list[list[str]]:
        """Display names, best first, pads left out."""
        return self._strings("name")

    def keys(self) -> list[list[str]]:
        """Label keys, best first, pads left out."""
        return self._strings("key")

    def pairs(self) -> list[list[tuple[str, float]]]:
        """(name, score) of each document, best first."""
        scores = self._split(self.scores[self.labels >= 0].tolist())
        return [list(zip(*row, strict=True)) for row in zip(self.names(), scores, strict=True)]

    def first(self, k: int) -> TopK:
        """The same answer cut to the best k."""
        return TopK(self.labels[:, :k], self.scores[:, :k], self.index, self.ids)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One JSON-ready record for each document, in the form of the files."""
        digits = self._split(self.scores[self.labels >= 0].astype(str).tolist())  # the shortest that give float32 back
        for document, *columns in zip(self.ids, self.keys(), self.names(), digits, strict=True):
            yield {
                "id": document,
                "labels": [
                    {"key": key, "name": name, "score": float(score)} for key, name, score in zip(*columns, strict=True)
                ],
            }

    def to_arrow(self) -> pa.Table:
        """Columns `id` and `labels` (a list of key, name, score)."""
        import pyarrow as pa

        return pa.Table.from_pylist(list(self.rows()), schema=arrow_schema())

    def write(self, path: str | Path) -> None:
        """JSONL, or Parquet when the name ends in .parquet; the file appears whole or not at all."""
        if plain_name(path).endswith(".parquet"):
            import pyarrow.parquet as pq

            with replace_file(path) as stream:
                pq.write_table(self.to_arrow(), stream)
            return
        with replace_file(path) as stream:
            for row in self.rows():
                stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    @classmethod
    def read(cls, path: str | Path, index: LabelIndex | None = None) -> TopK:
        """Predictions from a file; labels are numbered by `index`, or as the file names them when none is given."""
        rows = list(_parquet_rows(path) if plain_name(path).endswith(".parquet") else _jsonl_rows(path))
        if index is None:
            named = {label["key"]: label.get("name") or label["key"] for row in rows for label in row["labels"]}
            index = LabelIndex.from_keys(list(named), list(named.values()))
        width = max((len(row["labels"]) for row in rows), default=0)
        labels = np.full((len(rows), width), -1, dtype=np.int64)
        scores = np.full((len(rows), width), -np.inf, dtype=np.float32)
        keys = [label["key"] for row in rows for label in row["labels"]]
        flat = index.ids(keys)
        if (flat < 0).any():
            bad = shown(keys[int(np.argmax(flat < 0))])
            raise DataError(f"{path}: label '{bad}' is not in the label index. Read the file without an index.")
        filled = np.arange(width) < np.array([len(row["labels"]) for row in rows], dtype=np.int64)[:, None]  # (n, k)
        labels[filled] = flat
        with np.errstate(over="ignore"):  # beyond float32 is infinite
            scores[filled] = [label["score"] for row in rows for label in row["labels"]]
        return cls(labels, scores, index, [str(row["id"]) for row in rows])

    @classmethod
    def concatenate(cls, parts: Iterable[TopK]) -> TopK:
        """The rows of several answers of one model, one below the other."""
        parts = list(parts)
        if len({part.k for part in parts}) != 1:
            raise DataError("answers to put together need one k. Ask the model for as many labels each time.")
        return cls(
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.scores for part in parts]),
            parts[0].index,
            [name for part in parts for name in part.ids],
        )

    def _strings(self, column: str) -> list[list[str]]:
        return self._split(self.index.strings(column, self.labels[self.labels >= 0]))

    def _split(self, flat: list[Value]) -> list[list[Value]]:
        """One value for each label that is not a pad, as one list for each document."""
        ends = np.cumsum((self.labels >= 0).sum(axis=1)).tolist()
        return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def arrow_schema() -> pa.Schema:
    import pyarrow as pa

    label = pa.struct([("key", pa.string()), ("name", pa.string()), ("score", pa.float32())])
    return pa.schema([("id", pa.string()), ("labels", pa.list_(label))])


def _jsonl_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    before = 0
    for block in read_blocks(path):
        for number, row in parse_lines(block, path, before, _EXAMPLE):
            yield _checked(row, f"{path}:{number}")
        before += block.count(b"\n")


def _parquet_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = b"".join(read_blocks(path))
    try:
        rows = pq.read_table(pa.BufferReader(content)).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = shown(str(error) or type(error).__name__, 120).rstrip(".")
        raise DataError(f"{path}: not a readable Parquet file ({reason}). Fetch or write it again.") from None
    for number, row in enumerate(rows, start=1):
        yield _checked(row, f"{path}:{number}")


def _checked(row: dict[str, Any], place: str) -> dict[str, Any]:
    document, labels = row.get("id"), row.get("labels")
    if not isinstance(document, (str, int)) or not isinstance(labels, list):
        raise DataError(f"{place}: not a prediction. Write {_EXAMPLE}.")
    keys = []
    for label in labels:
        key, name, score = (label.get(part) if isinstance(label, dict) else None for part in ("key", "name", "score"))
        if not isinstance(key, str) or not _is_score(score) or not isinstance(name, (str, type(None))):
            raise DataError(f"{place}: a label lacks its key or its score. Write {_EXAMPLE}.")
        keys.append(key)
        if has_surrogate(key) or has_surrogate(name or ""):
            raise DataError(f"{place}: a label holds half of a surrogate pair. Write the whole character.")
    if has_surrogate(str(document)):
        raise DataError(f"{place}: 'id' holds half of a surrogate pair. Write the whole character.")
    if len(set(keys)) < len(keys):
        raise DataError(f"{place}: a label is there twice. Keep one of them.")
    return row


def _is_score(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**127  # float32 ends there
    return isinstance(value, float) and not math.isnan(value)
