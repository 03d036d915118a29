"""Files of every data format: Hypothesis strategies for documents and lines, and checks of round trips and readers."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tests.support.reading import label_sets
from xmtc.core.errors import DataError, XmtcError
from xmtc.data import BadLines, read, write
from xmtc.data import jsonl as jsonl_module
from xmtc.data import parquet as parquet_module
from xmtc.data.dataset import Dataset, as_dataset, labels_from_lists
from xmtc.data.formats import FORMATS

TEXT_NAMES = {
    "jsonl": "a.jsonl",
    "csv": "a.csv",
    "tsv": "a.tsv",
    "parquet": "a.parquet",
    "fasttext": "a.txt",
    "annif": "a.tsv",
    "annif-folder": "a",
    "attentionxml": "a_texts.txt",
    "lf": "a.json",
}


FEATURE_NAMES = {"xmlrepo": "a.txt", "libsvm": "a.svm", "npz": "X.a.npz"}


def put(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows_of(dataset: Dataset) -> list[tuple[dict[int, float], set[str]]]:
    """Features, explicit zeros too, and labels of each document."""
    assert dataset.features is not None
    rows = [dataset.features[[number]] for number in range(len(dataset))]
    found = [dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)) for row in rows]
    return list(zip(found, label_sets(dataset), strict=True))


def fields_of(dataset: Dataset) -> dict[str, list[str]]:
    return {name: column.to_pylist() for name, column in dataset.fields.items()}


CHARACTERS = st.characters(exclude_categories=["Cs"])


ODD = "\x00\t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u2029\ufeff\ufffe\uffff\U0010ffff🥔ö\u0301\\\"/'{}[]<>(),;:#|_ a"


PIECES = st.sampled_from(
    ["__label__", "__label__a", "<a>", "['a']", '["a"]', "0:1", "3 4 5", "{", "BZh9", "\ufeff", ";"]
)


TEXTS = (
    st.text(CHARACTERS, max_size=20)
    | st.text(ODD, max_size=8)
    | st.lists(PIECES | st.text(ODD, max_size=2), max_size=4).map("".join)
)


KEYS = st.sampled_from(["a", "b", "7", "sauce"]) | TEXTS.filter(bool)


FIELDS = st.sampled_from(
    [("text",), ("text",), ("title",), ("title", "body"), ("body", "title"), ("content",), ("head", "text")]
)


@st.composite
def text_datasets(draw: st.DrawFn) -> Dataset:
    count = draw(st.integers(1, 4))
    column = st.lists(TEXTS, min_size=count, max_size=count)
    fields = {name: pa.chunked_array([pa.array(draw(column), pa.string())]) for name in draw(FIELDS)}
    labels, index = labels_from_lists(draw(st.lists(st.lists(KEYS, max_size=4), min_size=count, max_size=count)))
    ids = draw(
        st.none() | column | st.lists(st.text("abc.- ", min_size=1), min_size=count, max_size=count, unique=True)
    )
    return Dataset(fields, None, labels, index, None if ids is None else pa.chunked_array([pa.array(ids, pa.string())]))


@st.composite
def feature_datasets(draw: st.DrawFn) -> Dataset:
    rows, columns, width = draw(st.integers(1, 5)), draw(st.integers(1, 6)), draw(st.integers(0, 12))
    values = st.floats(width=32, allow_nan=False, allow_infinity=False) | st.sampled_from(
        [0.0, -0.0, 3.4028235e38, 1e-45]
    )
    cells = draw(st.dictionaries(st.tuples(st.integers(0, rows - 1), st.integers(0, columns - 1)), values, max_size=12))
    at = np.array(sorted(cells), dtype=np.int64).reshape(-1, 2)
    data = np.array([cells[tuple(place)] for place in at.tolist()], dtype=np.float32)
    indptr = np.searchsorted(at[:, 0], np.arange(rows + 1))
    features = sp.csr_array((data, at[:, 1], indptr), shape=(rows, columns))
    held = (
        draw(st.lists(st.tuples(st.integers(0, rows - 1), st.integers(0, max(width - 1, 0))), max_size=8))
        if width
        else []
    )
    dense = np.zeros((rows, width), dtype=np.float32)
    for place in held:
        dense[place] = 1
    return as_dataset(features, sp.csr_array(dense))


def emptied(folder: Path) -> Path:
    for entry in folder.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    return folder


def read_back(path: Path, file_format: str, fields: Sequence[str]) -> Dataset:
    apart = FORMATS[file_format].fields and file_format != "lf"
    return read(path, file_format=file_format, text_fields=list(fields) if apart else None)


def in_order(dataset: Dataset, file_format: str) -> Dataset:
    """A folder is read in the order of its names."""
    if file_format != "annif-folder":
        return dataset
    names = [f"{name}.txt" for name in dataset.document_ids()]
    return dataset.take(sorted(range(len(names)), key=names.__getitem__))


def check_round_trip(dataset: Dataset, file_format: str, folder: Path) -> None:
    """Documents come back as they were, or are refused without a trace; `lossy` says how many things it changed."""
    path = emptied(folder) / (TEXT_NAMES | FEATURE_NAMES)[file_format]
    form = FORMATS[file_format]
    try:
        assert write(dataset, path, file_format=file_format) == 0
    except DataError as error:
        check_words(error, path)
        assert os.listdir(folder) == []
        check_lossy(dataset, file_format, path)
        return
    again, dataset = read_back(path, file_format, list(dataset.fields)), in_order(dataset, file_format)
    assert again.text().to_pylist() == dataset.text().to_pylist()
    assert label_sets(again) == label_sets(dataset)
    assert again.document_ids() == (dataset.document_ids() if form.ids else [str(row) for row in range(len(dataset))])
    if form.fields and file_format != "lf":
        assert fields_of(again) == fields_of(dataset)


def check_lossy(dataset: Dataset, file_format: str, path: Path) -> None:
    try:
        changed = write(dataset, path, file_format=file_format, lossy=True)
    except DataError as error:
        check_words(error, path)
        assert os.listdir(path.parent) == []
        return
    again, dataset = read_back(path, file_format, list(dataset.fields)), in_order(dataset, file_format)
    assert len(again) == len(dataset)
    apart = FORMATS[file_format].fields
    pairs = (
        [(dataset.fields[name], again.fields[name]) for name in dataset.fields]
        if apart
        else [(dataset.text(), again.text())]
    )
    differing = sum(one != two for old, new in pairs for one, two in zip(old.to_pylist(), new.to_pylist(), strict=True))
    differing += sum(len(old - new) for old, new in zip(label_sets(dataset), label_sets(again), strict=True))
    if FORMATS[file_format].ids:
        differing += sum(one != two for one, two in zip(dataset.document_ids(), again.document_ids(), strict=True))
    assert changed == differing > 0


def check_words(error: XmtcError, path: Path) -> None:
    message = str(error)
    assert message.startswith(str(path)), message
    assert message.isprintable(), message
    assert message.endswith("."), message


def check_features(dataset: Dataset, file_format: str, folder: Path) -> None:
    path = emptied(folder) / FEATURE_NAMES[file_format]
    assert write(dataset, path, file_format=file_format) == 0
    again = read(path, file_format=file_format)
    assert rows_of(again) == rows_of(dataset)
    if file_format != "libsvm":
        assert again.features.shape == dataset.features.shape
        assert again.labels.shape == dataset.labels.shape


def often(examples: int) -> Callable:
    return settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck), print_blob=True)


GOOD = st.builds(
    '{{"id": {}, "text": {}, "labels": {}}}'.format,
    st.sampled_from(['"q"', '"7"', '"ö"', "null"]),
    st.sampled_from(['"a"', '"ö\\n"', '"\\ud83e\\udd54"', '""', '"\\u0000 \\/"']),
    st.sampled_from(["[]", '["a"]', '["b", "a", "b"]', '["\\u00f6"]']),
)


VALUES = st.sampled_from(
    [
        *(
            '"a"',
            '""',
            '"ö"',
            '"\\ud800"',
            '"\\udc00\\ud800"',
            '"\\u0000"',
            '"a\tb"',
            '"a\x00b"',
            '"\\x"',
            "'a'",
            '"\x7f"',
        ),
        *("null", "true", "0", "-0", "-1", "01", "1.0", "1e2", "1.5", "+1", "9223372036854775808", "1e999", ".5", "5."),
        *("NaN", "-NaN", "Infinity", "-Infinity", "Inf", "-Inf", "nan", "undefined", "", "0x1", "1_000", "--1"),
        *("[]", '["a"]', '[""]', "[1, 2]", '[1, "a"]', "[null]", '[["a"]]', "[1.0]", "[-0]", "[true]", "[1,]", "[,]"),
        *("{}", '{"a": {"b": [1, {}]}}', '{"a": 1, "a": 2}', "{1: 2}", '{"a"}', '["a" "b"]', "[9223372036854775808]"),
        *("[NaN]", '{"text": "inner"}', "/* c */ 1", '"\\ud83e" ', '"\ufeff"', "[1e2]", '"\u2028"'),
    ]
)


NAMES = ["id", "text", "labels", "title", "body", "tags", "x", "\\u0074ext", "uid", "rejected", "complete"]
PAIR = st.tuples(st.sampled_from(NAMES), VALUES)


ODD_LINE = st.lists(PAIR, max_size=5).map(
    lambda pairs: "{" + ", ".join(f'"{key}": {value}' for key, value in pairs) + "}"
)


NEAR_JSON = st.one_of(
    GOOD,
    GOOD,
    st.tuples(GOOD, PAIR).map(lambda both: both[0][:-1] + f', "{both[1][0]}": {both[1][1]}' + "}"),
    st.tuples(PAIR, GOOD).map(lambda both: "{" + f'"{both[0][0]}": {both[0][1]}, ' + both[1][1:]),
    ODD_LINE,
    st.sampled_from(
        ["", " ", "{}", "{", "}", "[]", "null", "{}{}", "\ufeff{}", '{"text": "a", "labels": []} ', "{} x", "\x0c"]
    ),
)


ENDS = st.sampled_from(["\n", "\n", "\n", "\r\n", "\n\n", " \n", "\r", ""])


def outcome(path: Path, **how: object) -> object:
    """All that a reading gives, or what it says."""
    bad = BadLines(skip=bool(how.pop("skip", False)))
    try:
        dataset = read(path, bad_lines=bad, **how)  # type: ignore[arg-type]
    except XmtcError as error:
        return str(error), bad.messages
    labels = None if dataset.labels is None else (label_sets(dataset), dataset.label_index.table.to_pydict())
    rejected = None if dataset.rejected is None else dataset.rejected.toarray().tolist()
    return fields_of(dataset), dataset.document_ids(), labels, rejected, dataset.partial_rows().tolist(), bad.messages


def check_jsonl_ways_agree(folder: Path, lines: list[tuple[str, str]], how: dict[str, bool]) -> None:
    path = put(folder / "near.jsonl", "".join(line + end for line, end in lines))
    fast = outcome(path, file_format="jsonl", **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jsonl_module, "_fast", lambda *arguments: None)
        slow = outcome(path, file_format="jsonl", **how)
    assert fast == slow


HOW = st.fixed_dictionaries({"labelled": st.booleans(), "skip": st.booleans()})


@st.composite
def near_tables(draw: st.DrawFn) -> pa.Table:
    count = draw(st.integers(1, 4))

    def column(kinds: list[tuple[pa.DataType, st.SearchStrategy]]) -> pa.Array:
        kind, values = draw(st.sampled_from(kinds))
        return pa.array(draw(st.lists(values, min_size=count, max_size=count)), kind)

    words = st.sampled_from(["a", "", "ö", "a;b", "['a']", "[x]", "<a> <b>"])
    maybe = words | st.none()
    dictionary = pa.dictionary(pa.int32(), pa.string())
    texts = [
        (pa.string(), words),
        (pa.string(), maybe),
        (pa.large_string(), maybe),
        (dictionary, maybe),
        (pa.null(), st.none()),
    ]
    whole = st.integers(0, 9)
    lists = [
        (pa.list_(pa.string()), st.lists(words.filter(bool))),
        (pa.list_(pa.string()), st.lists(maybe) | st.none()),
        (pa.large_list(pa.string()), st.lists(words)),
        (pa.list_(pa.large_string()), st.lists(words)),
        (pa.list_(pa.int64()), st.lists(whole | st.none())),
        (pa.list_(pa.list_(pa.string())), st.lists(st.lists(words))),
        (pa.float64(), st.floats()),
    ]
    ids = [
        (pa.int64(), whole | st.none()),
        (pa.uint8(), whole),
        (pa.float64(), st.floats()),
        (pa.bool_(), st.booleans()),
    ]
    names = draw(st.lists(st.sampled_from(["id", "text", "labels", "title", "body"]), unique=True, min_size=1))
    kinds = {
        "id": texts + ids,
        "labels": texts + lists,
        "text": [*texts, ids[0]],
        "title": texts,
        "body": [*texts, ids[0]],
    }
    return pa.table({name: column(kinds[name]) for name in names})


def check_parquet_ways_agree(folder: Path, table: pa.Table, how: dict[str, bool]) -> None:
    path = folder / "near.parquet"
    pq.write_table(table, path)
    fast = outcome(path, **how)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_module, "_fast", lambda *arguments: None)
        slow = outcome(path, **how)
    assert fast == slow


FEATURE_PIECES = st.sampled_from(
    [
        *(
            "0",
            "1",
            "2",
            "7",
            "007",
            "-1",
            "+1",
            "1.5",
            "1.",
            ".5",
            "1e2",
            "1e",
            "1+2",
            "1-2",
            "1.2.3",
            "1e999",
            "3e38",
            "-0",
        ),
        *(
            ":",
            ":",
            ":",
            " ",
            " ",
            " ",
            ",",
            ",",
            "\t",
            "  ",
            "\r",
            "#",
            "nan",
            "inf",
            "1_0",
            "x",
            "",
            "9" * 50,
            "0:1 1:1",
            "0x1",
        ),
    ]
)


FEATURE_LINE = st.sampled_from(["0,1 0:1 1:2.5", " 2:1e-3", "2", "", "1 0:1"]) | st.lists(
    FEATURE_PIECES, max_size=9
).map("".join)


def check_feature_ways_agree(folder: Path, lines: list[str], header: bool, how: dict[str, object]) -> None:
    content = (f"{len(lines)} 3 3\n" if header else "") + "".join(f"{line}\n" for line in lines)
    path = put(folder / "near.txt", content)

    def features() -> object:
        bad = BadLines(skip=bool(how["skip"]))
        try:
            dataset = read(
                path, file_format="xmlrepo" if header else "libsvm", bad_lines=bad, feature_count=how["known"]
            )
        except XmtcError as error:
            return str(error), bad.messages
        return rows_of(dataset), dataset.features.shape, dataset.document_ids(), dataset.labels.shape, bad.messages

    fast = features()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xmtc.data.sparse._plain", lambda *arguments: None)
        slow = features()
    assert fast == slow


FEATURE_HOW = st.fixed_dictionaries({"skip": st.booleans(), "known": st.none() | st.integers(1, 3)})
