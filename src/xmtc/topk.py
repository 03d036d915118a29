"""TopK: the best few labels of each document, what every model returns and every metric eats."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.dataset import LabelIndex
from xmtc.errors import DataError
from xmtc.files import plain_name, read_blocks, replace_file

if TYPE_CHECKING:
    import pyarrow as pa


class TopK:
    """Label numbers (n, k), best first, −1 where a document has fewer than k; scores (n, k), −∞ at the pads."""

    def __init__(
        self, labels: ArrayLike, scores: ArrayLike, index: LabelIndex, ids: Sequence[str] | None = None
    ) -> None:
        self.labels: NDArray[np.int64] = np.asarray(labels, dtype=np.int64)  # (n, k)
        self.scores: NDArray[np.float32] = np.asarray(scores, dtype=np.float32)  # (n, k)
        self.index = index
        self.ids = list(ids) if ids is not None else [str(row) for row in range(len(self.labels))]
        if self.labels.ndim != 2 or self.labels.shape != self.scores.shape:
            raise DataError(
                f"labels and scores must be two (n, k) arrays. Got {self.labels.shape} and {self.scores.shape}."
            )
        if len(self.ids) != len(self.labels):
            raise DataError(f"{len(self.ids)} document ids for {len(self.labels)} rows. Give one each.")

    def __len__(self) -> int:
        return len(self.labels)

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
        return [
            list(zip(names, scores, strict=False))
            for names, scores in zip(self.names(), self.scores.tolist(), strict=True)
        ]

    def first(self, k: int) -> TopK:
        """The same answer cut to the best k."""
        return TopK(self.labels[:, :k], self.scores[:, :k], self.index, self.ids)

    def rows(self) -> Iterator[dict[str, Any]]:
        """One JSON-ready record for each document, in the form of the files."""
        digits = self.scores.astype(str)  # the shortest text that gives the same float32 back
        for i, (keys, names) in enumerate(zip(self.keys(), self.names(), strict=True)):
            yield {
                "id": self.ids[i],
                "labels": [
                    {"key": key, "name": name, "score": float(digits[i, rank])}
                    for rank, (key, name) in enumerate(zip(keys, names, strict=True))
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
            index = LabelIndex.from_keys(list(named), names=list(named.values()))
        width = max((len(row["labels"]) for row in rows), default=0)
        labels = np.full((len(rows), width), -1, dtype=np.int64)
        scores = np.full((len(rows), width), -np.inf, dtype=np.float32)
        flat = index.ids([label["key"] for row in rows for label in row["labels"]])
        if (flat < 0).any():
            bad = [label["key"] for row in rows for label in row["labels"]][int(np.argmax(flat < 0))]
            raise DataError(f"{path}: label '{bad}' is not in the label index. Read it without an index.")
        start = 0
        for i, row in enumerate(rows):
            count = len(row["labels"])
            labels[i, :count] = flat[start : start + count]
            scores[i, :count] = [label["score"] for label in row["labels"]]
            start += count
        return cls(labels, scores, index, [str(row["id"]) for row in rows])

    @classmethod
    def concatenate(cls, parts: Iterable[TopK]) -> TopK:
        """The rows of several answers of one model, one below the other."""
        parts = list(parts)
        return cls(
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.scores for part in parts]),
            parts[0].index,
            [name for part in parts for name in part.ids],
        )

    def _strings(self, column: str) -> list[list[str]]:
        kept = self.labels >= 0
        flat = self.index.strings(column, self.labels[kept])
        ends = np.cumsum(kept.sum(axis=1)).tolist()
        starts = [0, *ends[:-1]]
        return [flat[start:end] for start, end in zip(starts, ends, strict=True)]


def arrow_schema() -> pa.Schema:
    import pyarrow as pa

    label = pa.struct([("key", pa.string()), ("name", pa.string()), ("score", pa.float32())])
    return pa.schema([("id", pa.string()), ("labels", pa.list_(label))])


def _jsonl_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    number = 0
    for block in read_blocks(path):
        for line in block.splitlines():
            number += 1
            if line.strip():
                yield _checked(_parsed(line, path, number), f"{path}:{number}")


def _parsed(line: bytes, path: str | Path, number: int) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise DataError(f"{path}:{number}: not JSON. Write one prediction a line.") from None


def _checked(row: Any, place: str) -> dict[str, Any]:
    remedy = 'Write {"id": …, "labels": [{"key": …, "score": …}]}.'
    if not isinstance(row, dict) or "id" not in row or not isinstance(row.get("labels"), list):
        raise DataError(f"{place}: not a prediction. {remedy}")
    for label in row["labels"]:
        scored = isinstance(label, dict) and isinstance(label.get("score"), (int, float))
        if not scored or not isinstance(label.get("key"), str):
            raise DataError(f"{place}: a label lacks its key or its score. {remedy}")
    return row


def _parquet_rows(path: str | Path) -> Iterator[dict[str, Any]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(str(path))
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{path}: not a readable Parquet file ({str(error).splitlines()[0]}).") from None
    for number, row in enumerate(table.to_pylist(), start=1):
        yield _checked(row, f"{path}:{number}")
