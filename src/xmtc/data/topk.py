"""TopK: the highest-scoring labels of each document, returned by every model and consumed by every metric."""

from __future__ import annotations

import json
import math
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from xmtc.core.errors import DataError, shown
from xmtc.core.files import has_surrogate, parse_lines, plain_name, read_blocks, replace_file
from xmtc.core.parsing import parse_json, read_json
from xmtc.data.label_index import LabelIndex

if TYPE_CHECKING:
    import pyarrow as pa

Value = TypeVar("Value")
Details = Callable[[NDArray[np.int64]], list[dict[str, Any]]]
"""Label numbers → further JSON fields of each."""
_EXAMPLE = '{"id": "…", "labels": [{"key": "…", "score": 0.5}]}'
_CELLS = 1 << 19
"""Label slots per Arrow batch and per row group of a Parquet file."""

ANSWERS = "_answers.json"
"""Manifest of a folder of predictions: their origin and whether they are complete. Parquet readers skip `_` files."""
FORMAT = 1
TrainedOn = tuple[int, list[tuple[str, str, int]]]
"""Number of training documents, and (key, name, number of documents) of each label of a model."""
TRAINED_ON = "xmtc.trained_on"
"""Metadata key of a Parquet file of predictions with these figures."""


class TopK:
    """Label numbers (n, k), best first, padded with −1; scores (n, k), padded with −∞.

    `known_words` (n,) is False for documents without a word or feature that the model knows, whose labels therefore do
    not depend on the document; None if this is not recorded.
    """

    def __init__(
        self,
        labels: ArrayLike,
        scores: ArrayLike,
        index: LabelIndex,
        ids: Sequence[str] | None = None,
        known_words: ArrayLike | None = None,
    ) -> None:
        try:
            self.labels: NDArray[np.int64] = np.asarray(labels, dtype=np.int64)  # (n, k)
            self.scores: NDArray[np.float32] = np.asarray(scores, dtype=np.float32)  # (n, k)
        except (ValueError, TypeError):
            raise DataError("labels and scores must be (n, k) arrays of numbers. Pad short rows with −1.") from None
        self.index = index
        self.details: Details | None = None
        """Further fields of each label in `rows`."""
        self.ids = [str(name) for name in ids] if ids is not None else [str(row) for row in range(len(self.labels))]
        if self.labels.ndim != 2 or self.labels.shape != self.scores.shape:
            raise DataError(
                f"labels and scores must be (n, k) arrays. Got the shapes {self.labels.shape} and {self.scores.shape}."
            )
        if len(self.ids) != len(self.labels):
            raise DataError(f"{len(self.ids)} document ids for {len(self.labels)} rows. Pass one id per row.")
        if self.labels.size and self.labels.max() >= len(index):
            raise DataError(f"label {self.labels.max()} is out of range for {len(index):,} labels numbered from 0.")
        self.known_words: NDArray[np.bool_] | None = None if known_words is None else np.asarray(known_words, bool)
        if self.known_words is not None and self.known_words.shape != (len(self.labels),):
            shape = self.known_words.shape
            raise DataError(f"known_words has the shape {shape} for {len(self.labels)} rows. Pass one value per row.")

    def named(self, ids: Sequence[str]) -> TopK:
        """Return the same predictions with these document ids."""
        return TopK(self.labels, self.scores, self.index, ids, self.known_words)

    def relabelled(self, labels: ArrayLike, scores: ArrayLike, index: LabelIndex | None = None) -> TopK:
        """Return other labels and scores for the same documents, numbered by `index` if it is given."""
        return TopK(labels, scores, self.index if index is None else index, self.ids, self.known_words)

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        return f"TopK({len(self):,} documents, k={self.k}, {len(self.index):,} labels)"

    @property
    def k(self) -> int:
        """Number of label slots per document."""
        return int(self.labels.shape[1])

    def names(self) -> list[list[str]]:
        """Return the display names of each document's labels, best first, without padding."""
        return self._strings("name")

    def keys(self) -> list[list[str]]:
        """Return the keys of each document's labels, best first, without padding."""
        return self._strings("key")

    def pairs(self) -> list[list[tuple[str, float]]]:
        """Return (name, score) pairs for each document, best first."""
        scores = self._split(self.scores[self.labels >= 0].tolist())
        return [list(zip(*row, strict=True)) for row in zip(self.names(), scores, strict=True)]

    def first(self, k: int) -> TopK:
        """Return the top k labels of each document."""
        return self.relabelled(self.labels[:, :k], self.scores[:, :k])

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one JSON-ready record per document, as prediction files contain them.

        `known_words` is present, and false, only in records of documents without a known word.
        """
        if self.details is not None:
            yield from self._detailed_rows(self.details)
            return
        unknown = [False] * len(self) if self.known_words is None else (~self.known_words).tolist()
        digits = self._split(self.scores[self.labels >= 0].astype(str).tolist())  # shortest text that restores float32
        for document, lacks, *columns in zip(self.ids, unknown, self.keys(), self.names(), digits, strict=True):
            yield {
                "id": document,
                "labels": [
                    {"key": key, "name": name, "score": float(score)} for key, name, score in zip(*columns, strict=True)
                ],
                **({"known_words": False} if lacks else {}),
            }

    def _detailed_rows(self, details: Details) -> Iterator[dict[str, Any]]:
        plain = TopK(self.labels, self.scores, self.index, self.ids, self.known_words)
        fields = self._split(details(self.labels[self.labels >= 0]))
        for row, extra in zip(plain.rows(), fields, strict=True):
            row["labels"] = [label | more for label, more in zip(row["labels"], extra, strict=True)]
            yield row

    def to_arrow(self) -> pa.Table:
        """Convert to a table with the columns `id`, `labels` (a list of key, name, score) and `known_words`."""
        import pyarrow as pa

        step = max(1, _CELLS // max(1, self.k))
        batches = [self._arrow(start, start + step) for start in range(0, len(self), step)]
        return pa.Table.from_batches(batches, arrow_schema())

    def _arrow(self, start: int, stop: int) -> pa.RecordBatch:
        import pyarrow as pa

        schema = arrow_schema()
        labels, filled = self.labels[start:stop], self.labels[start:stop] >= 0
        numbers = pa.array(labels[filled])
        columns = [self.index.table[name].take(numbers).combine_chunks() for name in ("key", "name")]
        parts = pa.StructArray.from_arrays(
            [*columns, pa.array(self.scores[start:stop][filled])], ["key", "name", "score"]
        )
        ends = np.concatenate([[0], np.cumsum(filled.sum(axis=1))]).astype(np.int32)
        lists = pa.ListArray.from_arrays(pa.array(ends), parts, type=schema.field("labels").type)
        ids = pa.array(self.ids[start:stop], pa.string())
        known = pa.nulls(len(ids), pa.bool_()) if self.known_words is None else pa.array(self.known_words[start:stop])
        return pa.RecordBatch.from_arrays([ids, lists, known], schema=schema)

    def write(self, path: str | Path) -> None:
        """Write JSONL, or Parquet if the name ends in .parquet; atomic."""
        if plain_name(path).endswith(".parquet"):
            with replace_file(path) as stream:
                write_parquet([self], stream)
            return
        with replace_file(path) as stream:
            for row in self.rows():
                stream.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")

    @classmethod
    def read(cls, path: str | Path, index: LabelIndex | None = None) -> TopK:
        """Read predictions from a file or from a complete folder of parts.

        Labels are numbered by `index`, or by first occurrence in the file if `index` is None.
        """
        ids: list[str] = []
        known: list[bool] = []

        def rankings() -> Iterator[list[tuple[str, str | None, float]]]:
            for place, row in read_rows(path):
                _check(row, place)
                ids.append(str(row["id"]))
                known.append(row.get("known_words") is not False)
                yield [(label["key"], label.get("name"), label["score"]) for label in row["labels"]]

        top = cls.from_rankings(ids, rankings())
        top.known_words = None if all(known) else np.array(known)
        if index is None:
            return top
        numbers = np.append(index.ids(top.index.keys), -1)  # padding, −1, stays −1
        if (numbers[:-1] < 0).any():
            bad = shown(top.index.key(int(np.argmin(numbers))))
            raise DataError(f"{path}: label '{bad}' is not in the label index. Read the file without an index.")
        return top.relabelled(numbers[top.labels], top.scores, index)

    @classmethod
    def from_rankings(cls, ids: Sequence[str], rankings: Iterable[Sequence[tuple[str, str | None, float]]]) -> TopK:
        """Create from (key, name, score) of each document's labels, best first; number labels by first occurrence."""
        counts, numbers, given = array("q"), array("q"), array("d")
        named: dict[str, tuple[int, str]] = {}
        for ranking in rankings:
            counts.append(len(ranking))
            for key, name, score in ranking:
                number = named[key][0] if key in named else len(named)
                named[key] = number, name or key
                numbers.append(number)
                given.append(score)
        filled = np.arange(max(counts, default=0)) < np.array(counts, dtype=np.int64)[:, None]  # (n, k)
        labels = np.full(filled.shape, -1, dtype=np.int64)
        scores = np.full(filled.shape, -np.inf, dtype=np.float32)
        labels[filled] = np.array(numbers, dtype=np.int64)
        with np.errstate(over="ignore"):  # beyond float32 is infinite
            scores[filled] = np.array(given, dtype=np.float64)
        return cls(labels, scores, LabelIndex.from_keys(list(named), [name for _, name in named.values()]), ids)

    @classmethod
    def concatenate(cls, parts: Iterable[TopK]) -> TopK:
        """Concatenate the rows of several predictions of one model."""
        parts = list(parts)
        if len({part.k for part in parts}) != 1:
            raise DataError("predictions to concatenate must have the same k. Predict with the same k each time.")
        return cls(
            np.concatenate([part.labels for part in parts]),
            np.concatenate([part.scores for part in parts]),
            parts[0].index,
            [name for part in parts for name in part.ids],
            join_masks([part.known_words for part in parts]),
        )

    def _strings(self, column: str) -> list[list[str]]:
        return self._split(self.index.strings(column, self.labels[self.labels >= 0]))

    def _split(self, flat: list[Value]) -> list[list[Value]]:
        """Split a flat list with one value per label, padding excluded, into one list per document."""
        ends = np.cumsum((self.labels >= 0).sum(axis=1)).tolist()
        return [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def join_masks(masks: Sequence[NDArray[np.bool_] | None]) -> NDArray[np.bool_] | None:
    """Concatenate masks of documents with known words; None if one of them is not recorded."""
    recorded = [mask for mask in masks if mask is not None]
    return np.concatenate(recorded) if recorded and len(recorded) == len(masks) else None


def arrow_schema() -> pa.Schema:
    """Return the schema of prediction tables: id, labels as a list of key, name, score, and known_words."""
    import pyarrow as pa

    label = pa.struct([("key", pa.string()), ("name", pa.string()), ("score", pa.float32())])
    return pa.schema([("id", pa.string()), ("labels", pa.list_(label)), ("known_words", pa.bool_())])


def write_parquet(answers: Iterable[TopK], stream: IO[bytes], trained_on: TrainedOn | None = None) -> int:
    """Write batches of predictions, with training label counts as metadata; return the number of documents."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = cells = 0
    waiting: list[pa.Table] = []
    facts = None if trained_on is None else {TRAINED_ON: json.dumps(trained_on, ensure_ascii=False)}
    with pq.ParquetWriter(stream, arrow_schema().with_metadata(facts)) as writer:
        for answer in answers:
            waiting.append(answer.to_arrow())
            count, cells = count + len(answer), cells + answer.labels.size
            if cells >= _CELLS:
                writer.write_table(pa.concat_tables(waiting))
                waiting, cells = [], 0
        if waiting:
            writer.write_table(pa.concat_tables(waiting))
    return count


def read_trained_on(path: str | Path) -> TrainedOn | None:
    """Read the label counts of the training set from a file of predictions; None if the file has none."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    if Path(path).is_dir() or not plain_name(path).endswith(".parquet"):
        return None
    try:
        metadata = pq.read_schema(path).metadata or {}
        facts = parse_json(metadata[TRAINED_ON.encode()])
        return int(facts[0]), [(str(key), str(name), int(count)) for key, name, count in facts[1]]
    except (KeyError, ValueError, TypeError, IndexError, OSError, pa.ArrowException):
        return None


def read_rows(path: str | Path, example: str = _EXAMPLE) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (file:line, unchecked record) for each document of a JSONL or Parquet file or a folder of parts."""
    if Path(path).is_dir():
        return _folder_rows(Path(path))
    return _parquet_rows(path) if plain_name(path).endswith(".parquet") else _jsonl_rows(path, example)


def _jsonl_rows(path: str | Path, example: str) -> Iterator[tuple[str, dict[str, Any]]]:
    before = 0
    for block in read_blocks(path):
        for number, row in parse_lines(block, path, before, example):
            yield f"{path}:{number}", row
        before += block.count(b"\n")


def _parquet_rows(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = b"".join(read_blocks(path))
    try:
        batches = pq.ParquetFile(pa.BufferReader(content)).iter_batches()
        for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), start=1):
            yield f"{path}:{number}", row
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = shown(str(error) or type(error).__name__, 120).rstrip(".")
        raise DataError(f"{path}: not a readable Parquet file ({reason}). Download or create it again.") from None


def _folder_rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    manifest = read_answers(folder)
    if manifest is None:
        raise DataError(f"{folder}: not a folder of predictions: {ANSWERS} is missing. Pass a file of predictions.")
    if not manifest["complete"]:
        raise DataError(f"{folder}: the predictions are incomplete. Run the same command again with --resume.")
    count = 0
    for number in range(manifest["parts"]):
        part = folder / part_name(number)
        if not part.is_file():
            raise DataError(f"{part}: missing, so the folder is damaged. Copy the folder or predict again.")
        for place, row in _parquet_rows(part):
            yield place, row
            count += 1
    if count != manifest["documents"]:
        raise DataError(
            f"{folder}: {count:,} documents, expected {manifest['documents']:,}. Copy the folder or predict again."
        )


def part_name(number: int) -> str:
    """Return the file name of a part in a folder of predictions."""
    return f"part-{number:05d}.parquet"


def read_answers(folder: Path) -> dict[str, Any] | None:
    """Read the manifest of a folder of predictions; None if the folder has none."""
    path = folder / ANSWERS
    if not path.is_file():
        return None
    try:
        manifest = dict(read_json(path, any_number=True))
        version = manifest["format"]
        if version == FORMAT:  # the layout of other versions is unknown
            counts = [manifest[name] for name in ("documents", "parts")] if manifest["complete"] else []
            if not isinstance(manifest["made_of"], dict) or not all(isinstance(count, int) for count in counts):
                raise TypeError
    except (ValueError, TypeError, KeyError):
        raise DataError(f"{path}: damaged. Predict again with --force, or copy the folder again.") from None
    if version != FORMAT:
        raise DataError(
            f"{path}: format {shown(version)}; this version of xmtc reads format {FORMAT}. "
            "Use the version that wrote it."
        )
    return manifest


def _check(row: dict[str, Any], place: str) -> None:
    document, labels = row.get("id"), row.get("labels")
    if not isinstance(document, (str, int)) or not isinstance(labels, list):
        raise DataError(f"{place}: not a prediction. Write {_EXAMPLE}.")
    keys = []
    for label in labels:
        key, name, score = (label.get(part) if isinstance(label, dict) else None for part in ("key", "name", "score"))
        if not isinstance(key, str) or not _is_score(score) or not isinstance(name, (str, type(None))):
            raise DataError(f"{place}: a label has no valid key or score. Write {_EXAMPLE}.")
        keys.append(key)
        if has_surrogate(key) or has_surrogate(name or ""):
            raise DataError(f"{place}: a label contains an unpaired surrogate. Write the complete character.")
    if has_surrogate(str(document)):
        raise DataError(f"{place}: 'id' contains an unpaired surrogate. Write the complete character.")
    if len(set(keys)) < len(keys):
        raise DataError(f"{place}: a label occurs twice. Remove the duplicate.")


def _is_score(value: Any) -> bool:
    if isinstance(value, int) and not isinstance(value, bool):
        return abs(value) < 2**127  # within the range of float32
    return isinstance(value, float) and not math.isnan(value)
