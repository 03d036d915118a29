"""The same rankings as prediction files of every supported form, and checks of what is read back."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from hypothesis import strategies as st

from xmtc.cli.predict import write_answers
from xmtc.core.errors import XmtcError
from xmtc.data.dataset import Dataset, text_column
from xmtc.data.predictions import PredictionFile, match_to, read_predictions
from xmtc.data.topk import TopK
from xmtc.workflows.batch_predict import write_parts

IDS = ["a", "b", "ö", "d"]


SCORED = [{"3": 0.25, "0": 0.75, "10": 0.5}, {"2": -1.0}, {}, {"1": 2.0, "4": 0.125}]
"""Scores by label, not in their order; the keys are numbers because some forms know no others."""


EXPECTED = [sorted(row.items(), key=lambda pair: -pair[1]) for row in SCORED]


def top() -> TopK:
    return TopK.from_rankings(IDS, [[(key, f"name {key}", score) for key, score in row] for row in EXPECTED])


def write_lines(path: Path, *lines: str) -> Path:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return path


def write_objects(path: Path, *rows: object) -> Path:
    return write_lines(path, *(json.dumps(row) for row in rows))


def our_jsonl(folder: Path) -> Path:
    write_answers([top()], folder / "p.jsonl", "jsonl")
    return folder / "p.jsonl"


def our_tsv(folder: Path) -> Path:
    write_answers([top()], folder / "p.tsv", "tsv")
    return folder / "p.tsv"


def our_parquet(folder: Path) -> Path:
    write_answers([top()], folder / "p.parquet", "parquet")
    return folder / "p.parquet"


def our_parts(folder: Path) -> Path:
    """Three parts, of two, one and one documents at most."""
    documents = Dataset(fields={"text": text_column(IDS)}, ids=pa.chunked_array([pa.array(IDS)]))
    answers = iter([TopK(top().labels[a:b], top().scores[a:b], top().index, IDS[a:b]) for a, b in ((0, 2), (2, 4))])
    write_parts(folder / "parts", 2, {}, iter(documents.batches(2)), lambda _: next(answers))
    return folder / "parts"


def objects_with_scores(folder: Path) -> Path:
    names = ("key", "label", "label_key", "uri")
    rows = [
        {"uid": name, "predictions": [{names[at]: key, "confidence": score} for key, score in row.items()]}
        for at, (name, row) in enumerate(zip(IDS, SCORED, strict=True))
    ]
    return write_objects(folder / "p.ndjson", *rows)


def pairs_of_key_and_score(folder: Path) -> Path:
    rows = [{"id": name, "labels": [[int(key), score] for key, score in row.items()]} for name, row in _documents()]
    return write_objects(folder / "p.json", *rows)


def labels_beside_scores(folder: Path) -> Path:
    rows = [{"id": name, "labels": list(row), "scores": list(row.values())} for name, row in _documents()]
    return write_objects(folder / "p", *rows)


def parquet_of_others(folder: Path) -> Path:
    """A map from key to score, which Arrow gives back as pairs."""
    kind = pa.map_(pa.string(), pa.float64())
    table = pa.table({"document_id": IDS, "labels": pa.array([list(row.items()) for row in SCORED], kind)})
    pq.write_table(table, folder / "others.parquet")
    return folder / "others.parquet"


def long_csv(folder: Path) -> Path:
    """A line a label, documents mixed; one with an empty key has none."""
    rows = [(name, key, repr(score)) for name, row in reversed(_documents()) for key, score in row.items()]
    with (folder / "long.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([("Probability", " ID ", "Label"), *((s, n, k) for n, k, s in rows[::2])])
        csv.writer(stream).writerows([*((s, n, k) for n, k, s in rows[1::2]), ("", "ö", "")])
    return folder / "long.csv"


def wide_csv(folder: Path) -> Path:
    with (folder / "wide.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["id", "labels", "scores"])
        for name, row in _documents():
            writer.writerow([name, ";".join(row), json.dumps(list(row.values()))])
    return folder / "wide.csv"


def wide_tsv(folder: Path) -> Path:
    lines = [f"{json.dumps(list(row))}\t{';'.join(map(str, row.values()))}\t{name}" for name, row in _documents()]
    return write_lines(folder / "wide.tsv", "tags\tscores\tid", *lines)


WITH_IDS = [
    *(our_jsonl, our_tsv, our_parquet, our_parts, objects_with_scores, pairs_of_key_and_score, labels_beside_scores),
    *(parquet_of_others, long_csv, wide_csv, wide_tsv),
]


def without_ids(folder: Path) -> Path:
    return write_objects(folder / "p.jsonl", *({"labels": [[key, row[key]] for key in row]} for row in SCORED))


def fasttext(folder: Path) -> Path:
    lines = [" ".join(f"__label__{key} {score}" for key, score in row.items()) for row in SCORED]
    return write_lines(folder / "p.txt", *lines)


def score_matrix() -> sp.csr_matrix:
    entries = [(row, int(key), score) for row, scored in enumerate(SCORED) for key, score in scored.items()]
    rows, columns, scores = zip(*entries, strict=True)
    return sp.csr_matrix((scores, (rows, columns)), shape=(4, 11), dtype=np.float32)


def csr_npz(folder: Path) -> Path:
    sp.save_npz(folder / "p.npz", score_matrix())
    return folder / "p.npz"


def csc_npz(folder: Path) -> Path:
    sp.save_npz(folder / "p.npz", score_matrix().tocsc(), compressed=False)
    return folder / "p.npz"


def xc_text(folder: Path) -> Path:
    lines = [" ".join(f"{key}:{score}" for key, score in row.items()) for row in SCORED]
    return write_lines(folder / "p.txt", "4 11", *lines)


BY_ORDER = [without_ids, fasttext, csr_npz, csc_npz, xc_text]


def _documents() -> list[tuple[str, dict[str, float]]]:
    return list(zip(IDS, SCORED, strict=True))


def documents(ids: list[str] | None = None) -> Dataset:
    """Test documents with these ids."""
    ids = IDS if ids is None else ids
    return Dataset(fields={"text": text_column(["x"] * len(ids))}, ids=pa.chunked_array([pa.array(ids, pa.string())]))


def check_sound_or_refused(path: Path, file_format: str | None = None) -> None:
    """A TopK that can be used, or one line that begins with the path."""
    try:
        found = read_predictions(path, file_format)
    except XmtcError as error:
        message = str(error)
        assert message.isprintable(), message
        assert message.startswith(str(path)), message
        assert message.endswith("."), message
        return
    check_sound(found)


def check_sound(found: PredictionFile) -> None:
    best = found.top
    assert len(best.keys()) == len(best.names()) == len(best.ids) == len(best)
    assert not np.isnan(best.scores).any()
    for keys, scores in zip(best.keys(), (row[kept] for row, kept in _kept(best)), strict=True):
        assert len(set(keys)) == len(keys)
        assert (scores[1:] <= scores[:-1]).all()  # not by their difference: two may be infinite
    if found.numbered:
        assert all(key.isdigit() for key in best.index.keys)
    matched = match_to(found, documents(best.ids), "p")
    assert matched.keys() == best.keys()


def _kept(best: TopK) -> list[tuple[np.ndarray, np.ndarray]]:
    return [(scores, labels >= 0) for scores, labels in zip(best.scores, best.labels, strict=True)]


PIECES = [
    *(b'{"id": "a", "labels": [', b'["x", 0.5]', b'{"key": "x", "score": ', b'"scores": [', b"]}\n", b"NaN", b"null"),
    *(b"id,key,score\n", b"id\tlabels\n", b"a,x,1\n", b"a\tx;y\n", b'"', b"[1, 2]", b"\\ud800", b"\n", b"\r\n", b"\t"),
    *(b"__label__", b"__label__x 0.5 ", b"2 3\n", b"0:1 ", b"00000000000000000000001:1", b"9" * 5000, b"1e999", b"inf"),
    *(
        b"\xef\xbb\xbf",
        b"\xff\xfe",
        b"PAR1",
        b"PK\x03\x04",
        b"\x1f\x8b\x08",
        b"\xfd7zXZ\x00",
        b"\x00",
        b"\xc3\xb6",
        b" ",
    ),
]


SOUP = st.lists(st.sampled_from(PIECES) | st.binary(max_size=4), max_size=30).map(b"".join)


NAMES = ["p.jsonl", "p.tsv", "p.csv", "p.txt", "p.npz", "p.parquet", "p"]
