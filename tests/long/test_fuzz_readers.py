"""Whatever the bytes: a result or a message of one line, never anything else."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import shutil
import tempfile
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.support import formats
from tests.support.formats import HOW, NEAR_JSON, TEXT_NAMES, often
from tests.support.fuzzing import EDITS, TOKENS, mutated
from xmtc.core.errors import XmtcError
from xmtc.data import BadLines, read, read_vocabulary, stream
from xmtc.data.dataset import Dataset
from xmtc.data.formats import FORMATS as KNOWN
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import TopK

pytestmark = pytest.mark.long

INDEX = LabelIndex.from_keys(["a", "b", "ö"], names=["Ay", "Bee", "Ö"])
DOCUMENTS = [
    {"id": "1", "text": "some text", "labels": ["a", "b"]},
    {"id": 2, "title": "größer", "text": "", "labels": []},
    {"text": "\ud83e\udd54 \u2028", "tags": [3, "x"], "body": None},
]
LABELS = [
    {"key": "a", "name": "Ay", "alt": ["x"], "related": ["b"], "notes": ["n"], "scheme": "s", "status": "candidate"},
    {"id": 2, "parents": ["a"], "description": "d", "schemes": ["s"], "collections": "c", "types": ["t"]},
]
ANSWERS = [{"id": "1", "labels": [{"key": "a", "name": "Ay", "score": 0.5}]}, {"id": 2, "labels": []}]

SOUP = st.one_of(st.binary(max_size=200), st.lists(TOKENS | st.binary(max_size=4), max_size=40).map(b"".join))
MOSTLY_NONE = st.integers(0, 3).flatmap(lambda die: SOUP if die == 0 else st.none())  # None: mutate a valid file


def lines(rows: list[dict], ascii_only: bool = True) -> bytes:
    return "".join(json.dumps(row, ensure_ascii=ascii_only) + "\n" for row in rows).encode("utf-8", "surrogatepass")


PLAIN: list[tuple[str, str, bytes]] = [
    ("jsonl", "a.jsonl", lines(DOCUMENTS[:1] * 3)),
    ("jsonl", "a.jsonl", lines([{"text": "t", "labels": [1, 2]}, {"text": "u", "labels": ["ö"]}], False)),
    ("jsonl", "d.jsonl", lines(DOCUMENTS)),
    ("jsonl", "d.jsonl", lines([{"title": "t", "body": "b", "tags": []}, {"title": "t", "tags": ["x"]}])),
    ("xmlrepo", "b.txt", b"3 4 5\n0,4 0:1 3:0.5\n2 1:-2e-1\n 2:3\n"),
    ("xmlrepo", "b.txt", b"1 1 1\n0 0:1\n"),
    ("libsvm", "b.svm", b"# sets\n0,4 0:1 3:0.5\n2 1:-2e-1 # no\n 2:3\n"),
    ("libsvm", "b.txt", b"1,2 3:1 4:2\n7 1:1\n"),
    ("text", "c.txt", "one line\r\ngrößer\n\nlast".encode()),
    ("csv", "a.csv", 'id,text,labels\n1,"one, ""two""\nlines",a;b\n2,größer,"[""x"", ""y""]"\n3,,\n'.encode()),
    ("csv", "a.csv", "\ufeffID;text;labels\r\n1;\"a;b\";\"x;y\"\r\n2;c;['x', 'y']\r\n".encode()),
    ("csv", "a.csv", b"text,subject_uris\none,<http://x/1> <http://x/2>\ntwo,http://x/1\n"),
    ("tsv", "a.tsv", 'id\ttext\tlabels\n1\tone\ta;b\n\n2\tgrößer\t["x"]\n3\t\t<a> <b>\n'.encode()),
    ("fasttext", "a.txt", "__label__a __label__b one two\nno label\n__label__ö größer __label__c\n".encode()),
    ("annif", "a.tsv", "one\t<http://x/1> <b>\nnone\t\n\ngrößer\thttp://x/1 <c d>\n".encode()),
    (
        "lf",
        "a.json",
        lines([{"uid": "1", "title": "t", "content": "c", "target_ind": [0, 2]}, {"title": "u", "target_ind": []}]),
    ),
]
PACKED = [
    (f"{name}{suffix}", pack(content))
    for _, name, content in PLAIN
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress), (".bz2", bz2.compress))
]
NAMES = st.sampled_from(
    [*sorted({name for _, name, _ in PLAIN}), "a", "a.json", "a.parquet", "X.npz", "a_texts.txt", "a.ft"]
)
FORMATS = st.none() | st.sampled_from([name for name in KNOWN if name != "annif-folder"])


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """In memory where the system has such a place."""
    place = Path(tempfile.mkdtemp(prefix="xmtc-fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))
    yield place
    shutil.rmtree(place)


@pytest.fixture(autouse=True)
def small_headers(monkeypatch) -> None:
    """A header of millions of labels is allowed and slow; here it is only in the way."""
    monkeypatch.setattr("xmtc.data.sparse.MOST_LABELS", 10_000)
    monkeypatch.setattr("xmtc.data.matrices.MOST_LABELS", 10_000)
    monkeypatch.setattr("os.fsync", lambda handle: None)


def check_words(path: Path, message: str) -> None:
    """One line that begins with the file, or with one that belongs to it."""
    assert message.isprintable(), message
    assert message.startswith((str(path), f"{path.parent}/")), message
    assert message.endswith((".", "?")), message


def check_result_or_words(path: Path, use: Callable[[], object]) -> None:
    """Run `use`; a refusal must be one of ours."""
    try:
        use()
    except XmtcError as error:
        check_words(path, str(error))


def check_sound(dataset: Dataset) -> None:
    """Every part of a dataset has its rows and can be looked at."""
    count = len(dataset)
    assert len(dataset.document_ids()) == count
    if dataset.has_text:
        assert all(isinstance(text, str) for text in dataset.text().to_pylist())
    else:
        assert dataset.features is not None
        assert dataset.features.shape[0] == count
    if dataset.labels is not None:
        assert dataset.label_index is not None
        assert dataset.labels.shape == (count, len(dataset.label_index))
        dataset.label_index.strings("name", dataset.labels.indices)


def check_read_every_way(path: Path, file_format: str | None, labelled: bool) -> None:
    bad = BadLines(skip=labelled)
    check_result_or_words(path, lambda: check_sound(read(path, file_format=file_format, labelled=labelled)))
    check_result_or_words(
        path, lambda: [check_sound(batch) for batch in stream(path, file_format=file_format, size=2, bad_lines=bad)]
    )
    for message in bad.messages:
        check_words(path, message)


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@often(9000)
@given(NAMES, SOUP, FORMATS, st.booleans())
def test_soup(folder, name, content, file_format, labelled):
    check_read_every_way(put(folder, name, content), file_format, labelled)


@often(12_000)
@given(st.sampled_from(PLAIN), EDITS, st.integers(0, 9), FORMATS, st.booleans())
def test_mutated_documents(folder, file, edits, die, other, labelled):
    own, name, content = file
    file_format = None if die < 4 else own if die < 8 else other
    check_read_every_way(put(folder, name, mutated(content, edits)), file_format, labelled)


@often(1500)
@given(st.sampled_from(PACKED), EDITS)
def test_mutated_archives(folder, file, edits):
    name, content = file
    check_read_every_way(put(folder, name, mutated(content, edits)), None, True)


@often(1000)
@given(EDITS)
def test_mutated_zstandard(folder, edits):
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as packed:
        packed.write(lines(DOCUMENTS[:1] * 3))
    check_read_every_way(put(folder, "a.jsonl.zst", mutated(sink.getvalue().to_pybytes(), edits)), None, True)


NEAR_CELLS = st.text('a"",;;|\t\n\n\r[]<>\'1ö\x00\ufeff \\', max_size=40)


@often(2000)
@given(NEAR_CELLS, st.sampled_from([",", ";", "\t", "|"]), st.sampled_from(["csv", "tsv"]), st.booleans())
def test_near_tables(folder, rows, delimiter, ending, labelled):
    content = delimiter.join(["id", "text", "labels"]) + "\n" + rows
    check_read_every_way(put(folder, f"near.{ending}", content.encode()), None, labelled)


PAIRS = {
    "two_texts.txt": {"two_texts.txt": b"one\n\ngr\xc3\xb6\n", "two_labels.txt": b"a b\n\nc\n"},
    "trn.json": {
        "trn.json": lines(
            [{"uid": "1", "title": "t", "content": "c", "target_ind": [0, 2]}, {"title": "u", "target_ind": [1]}]
        ),
        "lbl.json": lines(
            [{"uid": "x", "title": "X"}, {"uid": "y", "title": "Y", "content": "z"}, {"title": "no uid"}]
        ),
    },
}


@often(2500)
@given(st.sampled_from(sorted(PAIRS)), st.integers(0, 1), EDITS, st.booleans())
def test_mutated_pairs_of_files(folder, name, which, edits, labelled):
    own = folder / f"{name} and more"
    own.mkdir(exist_ok=True)
    for number, (file, content) in enumerate(PAIRS[name].items()):
        put(own, file, mutated(content, edits) if number == which else content)
    check_read_every_way(own / name, None, labelled)


FOLDER = {"a.txt": b"one", "a.tsv": b"<x>\tX\n<y>\n", "b.txt": b"two\n", "b.key": b"x\nz\n", "c.md": b"#"}


@often(1500)
@given(
    st.sampled_from(sorted(FOLDER)),
    EDITS,
    MOSTLY_NONE,
    st.sampled_from([None, "c.txt", "b.tsv", ".txt", "d.txt/"]),
    st.booleans(),
)
def test_mutated_folders(folder, name, edits, soup, more, labelled):
    own = folder / "texts"
    own.mkdir()
    for file, content in FOLDER.items():
        put(own, file, content if file != name else soup if soup is not None else mutated(content, edits))
    if more is not None and more.endswith("/"):
        (own / more).mkdir()
    elif more is not None:
        put(own, more, mutated(b"<x>\n", edits))
    check_read_every_way(own, None, labelled)
    shutil.rmtree(own)


def parquet_files() -> list[bytes]:
    texts = {"id": ["1", "2", None], "text": ["one", "größer", ""], "labels": [["a", "b"], [], ["ö"]]}
    tables = [pa.table(texts), pa.table({"title": ["a"] * 50, "body": [None] * 50, "tags": ["x;y"] * 50})]
    out = []
    for table in tables:
        for compression in ("none", "zstd", "snappy"):
            sink = BytesIO()
            pq.write_table(table, sink, compression=compression, row_group_size=20)
            out.append(sink.getvalue())
    return out


def npz_files() -> list[bytes]:
    out = []
    for kind in ("csr", "csc"):
        for compressed in (True, False):
            sink = BytesIO()
            sp.save_npz(sink, sp.random(4, 5, 0.4, kind, random_state=0), compressed)
            out.append(sink.getvalue())
    return out


@often(1500)
@given(st.sampled_from(parquet_files()), EDITS, st.booleans())
def test_mutated_parquet(folder, content, edits, labelled):
    check_read_every_way(put(folder, "a.parquet", mutated(content, edits)), None, labelled)


@often(1500)
@given(st.sampled_from(npz_files()), EDITS, st.integers(0, 1))
def test_mutated_matrices(folder, content, edits, which):
    for number, name in enumerate(("X.m.npz", "Y.m.npz")):
        put(folder, name, mutated(content, edits) if number == which else content)
    check_read_every_way(folder / "X.m.npz", None, True)


NUMBERS = st.integers(-2, 6) | st.sampled_from([2**31 - 1, 2**31, 2**40, 2**63 - 1, -(2**63)])
KINDS = st.sampled_from(
    ["int32", "int64", "uint64", "float32", "float64", "bool", "int8", "complex64", "S3", "U3", "float16"]
)


@st.composite
def near_matrices(draw: st.DrawFn) -> dict[str, np.ndarray]:
    """The parts of a matrix, most of them right."""
    matrix = sp.random(3, 4, 0.5, draw(st.sampled_from(["csr", "csc"])), random_state=0)
    parts = {"indices": matrix.indices, "indptr": matrix.indptr, "data": matrix.data}
    parts |= {"shape": np.array(matrix.shape), "format": np.array(matrix.format.encode())}
    for name in draw(st.lists(st.sampled_from(sorted(parts)), max_size=2, unique=True)):
        way = draw(st.integers(0, 4))
        if way == 0:
            del parts[name]
            break
        if way == 1 or name == "format":
            kind = draw(KINDS)
            with np.errstate(all="ignore"):
                parts[name] = np.asarray(draw(st.lists(st.integers(0, 9), max_size=4)), dtype=kind)
        elif way == 2:
            with np.errstate(all="ignore"):
                parts[name] = parts[name].astype(draw(KINDS))
        elif way == 3:
            parts[name] = parts[name].reshape(1, -1)
        else:
            values = parts[name].astype(np.float64 if name == "data" else np.int64)
            values[draw(st.integers(0, max(len(values) - 1, 0))) :][:1] = (
                draw(NUMBERS) if name != "data" else draw(st.floats())
            )
            parts[name] = values
    return parts


@often(2000)
@given(near_matrices(), st.integers(0, 1))
def test_near_matrices(folder, parts, which):
    sink = BytesIO()
    np.savez(sink, **parts)
    for number, name in enumerate(("X.n.npz", "Y.n.npz")):
        good = BytesIO()
        sp.save_npz(good, sp.random(3, 4, 0.5, "csr", random_state=1))
        put(folder, name, (sink if number == which else good).getvalue())
    check_read_every_way(folder / "X.n.npz", None, True)


VOCABULARIES = [("l.jsonl", lines(LABELS)), ("l.tsv", b"a\tAy\tfirst\nb\tBee\n"), ("l.txt", b"a\nb\n\xc3\xb6\n")]
CONCEPTS = [
    (
        "l.ttl",
        """@prefix skos: <http://www.w3.org/2004/02/skos/core#> .
<http://x/1> a skos:Concept ; skos:prefLabel "one"@en, "eins"@de ; skos:altLabel "1"@es ; skos:broader <http://x/2> .
<http://x/2> a skos:Concept ; skos:prefLabel "größer" .
""".encode(),
    ),
    (
        "l.nt",
        b"""
<http://x/1> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <http://www.w3.org/2004/02/skos/core#Concept> .
<http://x/1> <http://www.w3.org/2004/02/skos/core#prefLabel> "\\u00f6"@en .
""",
    ),
    (
        "l.rdf",
        b"""<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:skos="http://www.w3.org/2004/02/skos/core#">
<skos:Concept rdf:about="http://x/1"><skos:prefLabel xml:lang="en">one</skos:prefLabel></skos:Concept></rdf:RDF>
""",
    ),
    (
        "l.jsonld",
        b"""{"@context": {"skos": "http://www.w3.org/2004/02/skos/core#"}, "@graph": [{"@id": "http://x/1",
"@type": "skos:Concept", "skos:prefLabel": {"@language": "en", "@value": "one"}, "skos:broader": {"@id": "http://x/2"}}]}
""",
    ),
]


@often(2000)
@given(st.sampled_from(VOCABULARIES), MOSTLY_NONE, EDITS, st.booleans())
def test_vocabularies(folder, file, soup, edits, numbered):
    name, content = file
    check_vocabulary(put(folder, name, mutated(content, edits) if soup is None else soup), numbered)


@often(2500)
@given(st.sampled_from(CONCEPTS), MOSTLY_NONE, EDITS)
def test_skos(folder, file, soup, edits):
    name, content = file
    check_vocabulary(put(folder, name, mutated(content, edits) if soup is None else soup), False)


def check_vocabulary(path: Path, numbered: bool) -> None:
    def use() -> None:
        index = read_vocabulary(path, numbered).index
        assert len(index) == len(set(index.keys)) == len(index.names) > 0
        assert index.ids(index.keys).tolist() == list(range(len(index)))

    check_result_or_words(path, use)


def check_use_answers(path: Path, index: LabelIndex | None) -> None:
    top = TopK.read(path, index)
    assert len(top.names()) == len(top.keys()) == len(top.pairs()) == len(top.ids) == len(top)
    again = path.with_name("again.jsonl")
    top.write(again)
    assert TopK.read(again, index).pairs() == top.pairs()


@often(1500)
@given(MOSTLY_NONE, EDITS, st.booleans())
def test_answers_in_jsonl(folder, soup, edits, with_index):
    path = folder / "answers.jsonl"
    path.write_bytes(mutated(lines(ANSWERS), edits) if soup is None else soup)
    check_result_or_words(path, lambda: check_use_answers(path, INDEX if with_index else None))


@often(1000)
@given(EDITS, MOSTLY_NONE)
def test_answers_in_parquet(folder, edits, soup):
    whole, path = folder / "whole.parquet", folder / "answers.parquet"
    if not whole.exists():
        TopK([[0, 1], [2, -1]], [[0.5, 0.25], [1, -1]], INDEX).write(whole)
    path.write_bytes(mutated(whole.read_bytes(), edits) if soup is None else soup)
    check_result_or_words(path, lambda: check_use_answers(path, None))


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=30) | st.text(
    "\x00\t\n\r\x0b\x85\u2028\u2029\ufeff\ufffe\uffff\U0010ffff🥔ö\u0301\\\"/'{}[],", max_size=8
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {"text": WORDS, "labels": st.lists(WORDS.filter(bool) | st.integers(), max_size=4)},
        optional={"id": WORDS | st.integers()},
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("file_format", TEXT_NAMES)
@often(500)
@given(dataset=formats.text_datasets())
def test_text_comes_back_or_is_refused(folder, file_format, dataset):
    own = folder / "round"
    own.mkdir(exist_ok=True)
    formats.check_round_trip(dataset, file_format, own)


@pytest.mark.parametrize("file_format", formats.FEATURE_NAMES)
@often(500)
@given(dataset=formats.feature_datasets())
def test_features_come_back(folder, file_format, dataset):
    own = folder / "round"
    own.mkdir(exist_ok=True)
    formats.check_features(dataset, file_format, own)


@often(3000)
@given(st.lists(st.tuples(NEAR_JSON, formats.ENDS), min_size=1, max_size=4), HOW)
def test_both_ways_through_jsonl_agree(folder, lines, how):
    formats.check_jsonl_ways_agree(folder, lines, how)


@often(1500)
@given(formats.near_tables(), HOW)
def test_both_ways_through_parquet_agree(folder, table, how):
    formats.check_parquet_ways_agree(folder, table, how)


@often(1500)
@given(st.lists(formats.FEATURE_LINE, min_size=1, max_size=3), st.booleans(), formats.FEATURE_HOW)
def test_both_ways_through_features_agree(folder, lines, header, how):
    formats.check_feature_ways_agree(folder, lines, header, how)


@often(2000)
@given(ROWS, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_jsonl_comes_back_as_it_was_written(folder, rows, ascii_only, end):
    path = folder / "round.jsonl"
    path.write_bytes("".join(json.dumps(row, ensure_ascii=ascii_only) + end for row in rows).encode())
    dataset = read(path)
    assert dataset.text().to_pylist() == [row["text"] for row in rows]
    step = end.count("\n")
    assert dataset.document_ids() == [str(row.get("id", number * step)) for number, row in enumerate(rows)]
    assert dataset.labels is not None
    assert dataset.label_index is not None
    assert dataset.label_index.keys == sorted({str(label) for row in rows for label in row["labels"]})
    for number, row in enumerate(rows):
        held = dataset.label_index.strings("key", dataset.labels[[number]].indices)
        assert set(held) == {str(label) for label in row["labels"]}
        assert len(held) == len(set(held))
