"""Every format: files as people have them, options, bad lines, and documents that come back as they were written."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from tests.support.formats import (
    ENDS,
    FEATURE_HOW,
    FEATURE_LINE,
    FEATURE_NAMES,
    HOW,
    NEAR_JSON,
    TEXT_NAMES,
    check_feature_ways_agree,
    check_features,
    check_jsonl_ways_agree,
    check_parquet_ways_agree,
    check_round_trip,
    emptied,
    feature_datasets,
    fields_of,
    near_tables,
    often,
    put,
    rows_of,
    text_datasets,
)
from tests.support.packing import SUFFIXES, pack
from tests.support.reading import check_refusal, label_sets
from xmtc.core.errors import ConfigError, DataError
from xmtc.data import BadLines, read, stream, write
from xmtc.data import jsonl as jsonl_module
from xmtc.data import parquet as parquet_module
from xmtc.data import tables as tables_module
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.formats import detected
from xmtc.data.label_index import LabelIndex

LINE_FORMATS = ["jsonl", "csv", "tsv", "fasttext", "annif", "attentionxml", "lf"]
POTATO = [("potato starch", {"cheese", "sauce"}), ("größer 🥔", {"cheese"}), ("nothing here", set())]


def documents(dataset: Dataset) -> list[tuple[str, set[str]]]:
    """Text and labels of each document."""
    return list(zip(dataset.text().to_pylist(), label_sets(dataset), strict=True))


# ---- files as people have them


class TestTables:
    def test_csv_as_pandas_writes_it(self, tmp_path):
        content = 'id,text,labels\n7,"potato starch, or ""flour""",sauce;cheese\n8,größer,cheese\n9,,\n'
        dataset = read(put(tmp_path / "a.csv", content))
        assert documents(dataset) == [
            ('potato starch, or "flour"', {"sauce", "cheese"}),
            ("größer", {"cheese"}),
            ("", set()),
        ]
        assert dataset.document_ids() == ["7", "8", "9"]

    def test_csv_with_the_index_of_a_data_frame(self, tmp_path):
        dataset = read(put(tmp_path / "a.csv", ",text,tags\n0,one,\"['a', 'b']\"\n1,two,[]\n"))
        assert documents(dataset) == [("one", {"a", "b"}), ("two", set())]
        assert dataset.document_ids() == ["1", "2"]  # lines from 0

    def test_csv_of_a_spreadsheet_in_german(self, tmp_path):
        content = 'ID;Titel;text;labels\r\nd1;T;"Käse; gerieben";"a;b"\r\nd2;T;"zwei\nZeilen";a\r\n;T;drei;\r\n'
        dataset = read(put(tmp_path / "a.csv", b"\xef\xbb\xbf" + content.encode()), id_field="ID")
        assert documents(dataset) == [("Käse; gerieben", {"a", "b"}), ("zwei\nZeilen", {"a"}), ("drei", set())]
        assert dataset.document_ids() == ["d1", "d2", "4"]

    @pytest.mark.parametrize("delimiter", [",", ";", "|", "\t"])
    def test_any_delimiter(self, tmp_path, delimiter):
        lines = [["id", "text", "labels"], ["1", f"a{delimiter}b", "x"], ["2", 'say "hi"', "y"]]
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=delimiter).writerows(lines)
        dataset = read(put(tmp_path / "a.csv", out.getvalue()))
        assert documents(dataset) == [(f"a{delimiter}b", {"x"}), ('say "hi"', {"y"})]

    @pytest.mark.parametrize(
        ("cell", "labels"),
        [
            ("['a', 'b']", {"a", "b"}),
            ('["a", "b"]', {"a", "b"}),
            ("['a' 'b'\n 'c']", {"a", "b", "c"}),
            ("[\"it's\", 'b,c']", {"it's", "b,c"}),
            (r"['it\'s', 'x\\y']", {"it's", "x\\y"}),
            ("[1, 2]", {"1", "2"}),
            ("[ ]", set()),
            ("", set()),
            (" ; ", set()),
            ("a", {"a"}),
            ("a;b; c ;;", {"a", "b", "c"}),
            ("a, b", {"a, b"}),
            ("<http://x/1> <http://x/2>", {"http://x/1", "http://x/2"}),
            ("<http://x/1>;<http://x/2>", {"<http://x/1>", "<http://x/2>"}),
            ("[a] b", {"[a] b"}),
        ],
    )
    def test_labels_in_a_cell(self, tmp_path, cell, labels):
        out = io.StringIO(newline="")
        csv.writer(out).writerows([["text", "labels"], ["t", cell]])
        assert label_sets(read(put(tmp_path / "a.csv", out.getvalue()))) == [labels]
        pq.write_table(pa.table({"text": ["t"], "labels": [cell]}), tmp_path / "a.parquet")
        assert label_sets(read(tmp_path / "a.parquet")) == [labels]
        if "\n" not in cell:
            assert label_sets(read(put(tmp_path / "a.tsv", f"text\tlabels\nt\t{cell}\n"))) == [labels]

    @pytest.mark.parametrize(
        "cell", ["[a, b]", "['a' ... 'b']", "['a''b']", "[None]", '["a"', "{'a'}", "[[1]]", "[1.5]"]
    )
    def test_lists_that_are_none(self, tmp_path, cell):
        path = put(tmp_path / "a.tsv", f"text\tlabels\nt\tx\nt\t{cell}\n")
        if cell.startswith("[") and cell.endswith("]"):
            check_refusal(path, 3)
        else:
            assert label_sets(read(path))[1] == {cell}

    def test_annifs_csv(self, tmp_path):
        content = "text,subject_uris,title\none,http://x/1;a http://x/2,T\ntwo,<http://x/1>,\nthree,,U\n"
        dataset = read(put(tmp_path / "a.csv", content))
        assert documents(dataset) == [
            ("one", {"http://x/1;a", "http://x/2"}),
            ("two", {"http://x/1"}),
            ("three", set()),
        ]

    def test_tsv_keeps_quotes(self, tmp_path):
        dataset = read(put(tmp_path / "a.tsv", 'id\ttext\tlabels\n1\t"quoted\tx\n2\tit\'s "fine"\ta;b\r\n\n3\t\t\n'))
        assert documents(dataset) == [('"quoted', {"x"}), ('it\'s "fine"', {"a", "b"}), ("", set())]

    def test_options(self, tmp_path):
        path = put(tmp_path / "a.csv", "nr,head,main,topics\n1,h,m,a|b\n2,,n,\n")
        how = {"text_fields": ["main", "head"], "label_field": "topics", "id_field": "nr", "label_separator": "|"}
        dataset = read(path, **how)
        assert fields_of(dataset) == {"main": ["m", "n"], "head": ["h", ""]}
        assert label_sets(dataset) == [{"a", "b"}, set()]
        assert dataset.document_ids() == ["1", "2"]
        assert "--text-field" in check_refusal(path, 1)
        assert "Did you mean 'topics'" in check_refusal(path, 1, text_fields="main", label_field="topic")
        assert "for the ids" in check_refusal(path, 1, text_fields="main", label_field="topics", id_field="number")
        assert "for the text" in check_refusal(path, 1, text_fields="text", label_field="topics")
        with pytest.raises(ConfigError):
            read(path, label_separator="")

    def test_one_column_for_two_things(self, tmp_path):
        path = put(tmp_path / "a.csv", "text,labels\na;b,x\n")
        assert "is used for both text and labels" in check_refusal(path, 1, label_field="text", text_fields="text")
        both = put(tmp_path / "c.csv", "title,keywords\na,b\n")
        (batch,) = stream(both, text_fields=["title", "keywords"])
        assert batch.text().to_pylist() == ["a\nb"]
        assert label_sets(read(both)) == [{"b"}]
        check_refusal(put(tmp_path / "b.csv", "text,text,labels\na,b,x\n"), 1)

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    def test_parquet_of_other_tools(self, tmp_path, kind):
        texts = pa.array(["one", "two"]).cast(kind)
        for labels in ([["a", "b"], []], ["a;b", ""], [[1, 2], []]):
            pq.write_table(pa.table({"id": [5, 6], "text": texts, "labels": labels}), tmp_path / "a.parquet")
            dataset = read(tmp_path / "a.parquet")
            assert documents(dataset) == [("one", {"1", "2"} if labels[0] == [1, 2] else {"a", "b"}), ("two", set())]
            assert dataset.document_ids() == ["5", "6"]

    def test_parquet_with_a_column_twice(self, tmp_path):
        table = pa.table([pa.array(["a"]), pa.array(["b"]), pa.array([["x"]])], names=["text", "text", "labels"])
        pq.write_table(table, tmp_path / "a.parquet")
        assert "two columns are named 'text'" in check_refusal(tmp_path / "a.parquet")

    def test_parquet_with_dots_in_names(self, tmp_path):
        pq.write_table(pa.table({"text": ["a"], "text.raw": ["b"], "labels": [["x"]]}), tmp_path / "a.parquet")
        assert documents(read(tmp_path / "a.parquet")) == [("a", {"x"})]
        assert documents(read(tmp_path / "a.parquet", text_fields=["text.raw"])) == [("b", {"x"})]

    def test_parquet_with_times_for_ids(self, tmp_path):
        times = pa.array([2**62], pa.timestamp("us"))
        pq.write_table(pa.table({"id": times, "text": ["a"], "labels": [["x"]]}), tmp_path / "a.parquet")
        check_refusal(tmp_path / "a.parquet")

    def test_the_limit_of_the_csv_module_is_put_back(self, tmp_path):
        before = csv.field_size_limit(1000)
        try:
            content = "text,labels\n" + "x" * 5000 + ",a\n" + "y" * 200_000 + ",b\n"
            assert len(read(put(tmp_path / "a.csv", content))) == 2
            assert csv.field_size_limit() == 1000
        finally:
            csv.field_size_limit(before)

    def test_a_table_without_labels(self, tmp_path):
        for name, content in (("a.csv", "id,text\n1,one\n2,two\n"), ("a.tsv", "id\ttext\n1\tone\n2\ttwo\n")):
            path = put(tmp_path / name, content)
            assert [text for batch in stream(path) for text in batch.text().to_pylist()] == ["one", "two"]
            assert read(path, labelled=False).labels is None
            assert "no column 'labels'" in check_refusal(path, 1)

    def test_only_a_header(self, tmp_path):
        for name in ("a.csv", "a.tsv"):
            assert "no documents" in check_refusal(
                put(tmp_path / name, "id,text,labels\n".replace(",", ",\t"[name == "a.tsv"]))
            )


class TestFastText:
    def test_the_tutorials_lines(self, tmp_path):
        content = (
            "__label__sauce __label__cheese How much does potato starch affect a cheese sauce recipe?\n"
            "__label__food-safety  Two blanks\r\n"
            "no label\n\n"
            "at __label__the the __label__end\n"
            "__label__only\n"
        )
        dataset = read(put(tmp_path / "cooking.train", content))
        assert documents(dataset) == [
            ("How much does potato starch affect a cheese sauce recipe?", {"sauce", "cheese"}),
            (" Two blanks", {"food-safety"}),
            ("no label", set()),
            ("", set()),
            ("at the", {"the", "end"}),
            ("", {"only"}),
        ]
        assert dataset.document_ids() == ["0", "1", "2", "3", "4", "5"]

    def test_an_empty_label(self, tmp_path):
        assert "label is empty" in check_refusal(put(tmp_path / "a", "__label__a x\n__label__ y\n"), 2)


class TestAnnif:
    def test_lines(self, tmp_path):
        content = (
            "A text\t<http://www.yso.fi/onto/yso/p2558> <http://www.yso.fi/onto/yso/p12738>\n"
            "Another\thttp://www.yso.fi/onto/yso/p2558 http://x/y\r\n\n"
            "No subjects\t\n"
            "Names\t<machine learning> <a>\n"
        )
        dataset = read(put(tmp_path / "a.tsv", content))
        yso = "http://www.yso.fi/onto/yso/"
        assert documents(dataset) == [
            ("A text", {f"{yso}p2558", f"{yso}p12738"}),
            ("Another", {f"{yso}p2558", "http://x/y"}),
            ("No subjects", set()),
            ("Names", {"machine learning", "a"}),
        ]

    def test_a_folder_of_texts(self, tmp_path):
        folder = tmp_path / "docs"
        folder.mkdir()
        put(folder / "b.txt", "The second.\r\nTwo lines.")
        put(folder / "b.tsv", "<http://x/1>\tcheese\n<http://x/2>\tsauce\r\n\n")
        put(folder / "a.v1.txt", b"\xef\xbb\xbfThe first.")
        put(folder / "a.v1.tsv", "<http://x/1>\tcheese\nhttp://x/3\n")
        put(folder / "c.txt", "By name.")
        put(folder / "c.key", "cheese\n\nbread\n")
        put(folder / "notes.md", "not a document")
        dataset = read(folder)
        assert dataset.document_ids() == ["a.v1", "b", "c"]
        assert documents(dataset) == [
            ("The first.", {"http://x/1", "http://x/3"}),
            ("The second.\r\nTwo lines.", {"http://x/1", "http://x/2"}),
            ("By name.", {"cheese", "bread"}),
        ]
        index = dataset.label_index
        assert dict(zip(index.keys, index.names, strict=True))["http://x/1"] == "cheese"
        assert dict(zip(index.keys, index.names, strict=True))["http://x/3"] == "http://x/3"

    def test_a_folder_without_subjects(self, tmp_path):
        put(tmp_path / "a.txt", "one")
        with pytest.raises(DataError) as caught:
            read(tmp_path)
        assert str(caught.value).startswith(f"{tmp_path / 'a.txt'}: no label file a.tsv or a.key")
        (batch,) = stream(tmp_path)
        assert batch.text().to_pylist() == ["one"]

    def test_a_text_that_was_packed_and_cut(self, tmp_path):
        packed = pack(tmp_path / "x.gz", random.Random(0).randbytes(3000).hex().encode()).read_bytes()
        put(tmp_path / "a.txt", packed[: len(packed) // 2])
        put(tmp_path / "a.tsv", "<a>\n")
        with pytest.raises(DataError, match="damaged or truncated"):
            read(tmp_path)

    def test_subjects_are_found_in_linear_time(self, tmp_path):
        for subjects in ("< " * 2_000_000, "<a> " * 1_000_000, "<" * 4_000_000 + ">", "> " * 2_000_000):
            path = put(tmp_path / "a.tsv", f"text\t{subjects}\nmore\t<x>\n")
            start = time.perf_counter()
            assert len(read(path, file_format="annif")) == 2
            assert time.perf_counter() - start < 20


class TestAttentionXml:
    def test_two_files(self, tmp_path):
        put(tmp_path / "train_raw_texts.txt", "title /SEP/ body\n\nthird")
        put(tmp_path / "train_labels.txt", "a b\n\n c  d \n")
        dataset = read(tmp_path / "train_raw_texts.txt")
        assert documents(dataset) == [("title /SEP/ body", {"a", "b"}), ("", set()), ("third", {"c", "d"})]

    @pytest.mark.parametrize("stem", ["train", "Train", "İ", "a\u1e9e", ""])
    @pytest.mark.parametrize("ending", ["_texts.txt", "_raw_texts.txt", "_Texts.TXT"])
    def test_the_name_of_the_labels(self, tmp_path, stem, ending):
        put(tmp_path / f"{stem}{ending}", "one\n")
        put(tmp_path / f"{stem}_labels.txt", "a\n")
        assert documents(read(tmp_path / f"{stem}{ending}")) == [("one", {"a"})]

    def test_files_of_different_length(self, tmp_path):
        texts, labels = tmp_path / "x_texts.txt", tmp_path / "x_labels.txt"
        for first, second, words in (
            ("a\nb\nc\n", "x\ny\n", f"{labels}: no labels for line 3"),
            ("a\n", "x\ny\n", f"{labels}:2: no matching line"),
        ):
            put(texts, first)
            put(labels, second)
            with pytest.raises(DataError) as caught:
                read(texts)
            assert str(caught.value).startswith(words)

    def test_without_labels(self, tmp_path):
        path = put(tmp_path / "test_texts.txt", "one\ntwo\n")
        assert [text for batch in stream(path) for text in batch.text().to_pylist()] == ["one", "two"]
        assert "no label file test_labels.txt" in check_refusal(path, file_format="attentionxml")


class TestLabelFeatures:
    TRAIN: ClassVar = [
        {"uid": "B01", "title": "Mug", "content": "A mug.", "target_ind": [2, 0], "target_rel": [1.0, 1.0]},
        {"uid": "B02", "title": "Cup", "content": "", "target_ind": [], "target_rel": []},
    ]
    LABELS: ClassVar = [
        {"uid": "L0", "title": "Plate"},
        {"uid": "L1", "title": "Fork"},
        {"uid": "L2", "title": "Tea", "content": "x"},
    ]

    def lines(self, rows: list[dict]) -> bytes:
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)

    @pytest.mark.parametrize("suffix", ["", ".gz"])
    def test_a_set_of_the_repository(self, tmp_path, suffix):
        pack(tmp_path / f"trn.json{suffix}", self.lines(self.TRAIN))
        pack(tmp_path / f"lbl.json{suffix}", self.lines(self.LABELS))
        dataset = read(tmp_path / f"trn.json{suffix}")
        assert fields_of(dataset) == {"title": ["Mug", "Cup"], "content": ["A mug.", ""]}
        assert label_sets(dataset) == [{"L0", "L2"}, set()]
        assert dataset.document_ids() == ["B01", "B02"]
        assert dataset.label_index.names == ["Plate", "Fork", "Tea"]
        assert dataset.label_index.table["description"].to_pylist() == ["", "", "x"]

    def test_without_the_labels_file(self, tmp_path):
        dataset = read(put(tmp_path / "trn.json", self.lines(self.TRAIN)))
        assert label_sets(dataset) == [{"0", "2"}, set()]

    def test_labels_beyond_the_file_can_be_skipped(self, tmp_path):
        put(tmp_path / "lbl.json", self.lines(self.LABELS[:2]))
        path = put(tmp_path / "trn.json", self.lines([*self.TRAIN, {**self.TRAIN[1], "uid": "B03", "target_ind": [1]}]))
        assert "label 2 is out of range: lbl.json has 2 labels" in check_refusal(path, 1)
        bad = BadLines(skip=True)
        dataset = read(path, bad_lines=bad)
        assert dataset.document_ids() == ["B02", "B03"]
        assert label_sets(dataset) == [set(), {"L1"}]
        assert len(bad.messages) == 1

    def test_what_is_in_the_labels_file_stays(self, tmp_path):
        labels = put(tmp_path / "lbl.json", b'{"uid": "L0", "title": "Plate", "rank": 7}')
        write(as_dataset(["x"], [["L0"]]), tmp_path / "one.json")
        assert labels.read_bytes() == b'{"uid": "L0", "title": "Plate", "rank": 7}'
        write(as_dataset(["y"], [["L0", "new"]]), tmp_path / "two.json")
        assert [json.loads(line)["uid"] for line in labels.read_text().splitlines()] == ["L0", "new"]
        assert json.loads(labels.read_text().splitlines()[0])["rank"] == 7
        assert documents(read(tmp_path / "one.json")) == [("x", {"L0"})]
        assert documents(read(tmp_path / "two.json")) == [("y", {"L0", "new"})]

    def test_labels_without_a_uid_get_no_company(self, tmp_path):
        labels = put(tmp_path / "lbl.json", b'{"title": "Plate"}\n')
        write(as_dataset(["x"], [["0"]]), tmp_path / "one.json")
        with pytest.raises(DataError, match="no unique uid"):
            write(as_dataset(["x"], [["new"]]), tmp_path / "two.json")
        assert labels.read_bytes() == b'{"title": "Plate"}\n'
        assert sorted(os.listdir(tmp_path)) == ["lbl.json", "one.json"]

    def test_the_order_of_fields_is_that_of_the_text(self, tmp_path):
        columns = {"body": pa.chunked_array([["b"]]), "title": pa.chunked_array([["t"]])}
        write(Dataset(fields=columns), tmp_path / "one.json")
        assert read(tmp_path / "one.json").text().to_pylist() == ["b\nt"]


class TestFeatures:
    def test_libsvm_lines(self, tmp_path):
        content = "# made by hand\n3,1 0:1.5 7:2e-1 # why\n 2:3\n0 \n\n  # nothing\n5\t1:1\r\n"
        dataset = read(put(tmp_path / "a.txt", content))
        assert rows_of(dataset) == [
            ({0: 1.5, 7: np.float32(0.2)}, {"1", "3"}),
            ({2: 3.0}, set()),
            ({}, {"0"}),
            ({1: 1.0}, {"5"}),
        ]
        assert dataset.document_ids() == ["1", "2", "3", "6"]
        assert dataset.features.shape == (4, 8)

    def test_as_scikit_learn_writes_them(self, tmp_path):
        datasets = pytest.importorskip("sklearn.datasets")
        features = sp.random(20, 9, 0.3, "csr", random_state=0, dtype=np.float32)
        labels = sp.random(20, 4, 0.4, "csr", random_state=1)
        labels.data[:] = 1
        for comment in (None, "a comment\nof two lines"):
            path = tmp_path / "a.svm"
            datasets.dump_svmlight_file(features, labels, str(path), multilabel=True, comment=comment)
            for named in (path, shutil.copy(path, tmp_path / "plain")):
                dataset = read(named)
                assert len(dataset) == 20
                np.testing.assert_array_equal(
                    dataset.features.toarray(), features.toarray()[:, : dataset.features.shape[1]]
                )
                assert label_sets(dataset) == [set(map(str, labels[[row]].indices)) for row in range(20)]

    @pytest.mark.parametrize("kind", ["csr", "csc"])
    @pytest.mark.parametrize("build", [sp.csr_matrix, sp.csr_array])
    @pytest.mark.parametrize("compressed", [True, False])
    def test_as_scipy_saves_them(self, tmp_path, kind, build, compressed):
        features = build(sp.random(20, 9, 0.3, "csr", random_state=0, dtype=np.float64)).asformat(kind)
        labels = build(sp.random(20, 4, 0.4, "csr", random_state=1) > 0).astype(np.int8).asformat(kind)
        sp.save_npz(tmp_path / "X.trn.npz", features, compressed)
        sp.save_npz(tmp_path / "Y.trn.npz", labels, compressed)
        dataset = read(tmp_path / "X.trn.npz")
        np.testing.assert_array_equal(dataset.features.toarray(), features.toarray().astype(np.float32))
        np.testing.assert_array_equal(dataset.labels.toarray(), labels.toarray())
        (tmp_path / "Y.trn.npz").unlink()
        assert "no Y.trn.npz in the same folder" in check_refusal(tmp_path / "X.trn.npz")
        assert sum(len(batch) for batch in stream(tmp_path / "X.trn.npz", size=7)) == 20

    def test_other_sparse_matrices(self, tmp_path):
        sp.save_npz(tmp_path / "X.npz", sp.random(5, 5, 0.5, "coo", random_state=0))
        assert "neither csr nor csc" in check_refusal(tmp_path / "X.npz")
        np.savez(tmp_path / "X.npz", a=np.eye(3))
        check_refusal(tmp_path / "X.npz")
        np.save(tmp_path / "X.npy", np.eye(3))
        check_refusal(tmp_path / "X.npy", file_format="npz")

    def test_a_shape_that_only_a_number_vouches_for(self, tmp_path):
        column = {"indices": [0], "indptr": [0, 1], "data": [1.0], "shape": [2**31 - 1, 1], "format": b"csc"}
        np.savez(tmp_path / "X.npz", **{name: np.asarray(value) for name, value in column.items()})
        assert "too many for 1 entries" in check_refusal(tmp_path / "X.npz")

    def test_matrices_of_different_height(self, tmp_path):
        sp.save_npz(tmp_path / "X.npz", sp.eye(3, format="csr"))
        sp.save_npz(tmp_path / "Y.npz", sp.eye(4, format="csr"))
        with pytest.raises(DataError, match="4 rows, but 3 in"):
            read(tmp_path / "X.npz")

    def test_labels_that_are_not_these_documents(self, tmp_path):
        sp.save_npz(tmp_path / "Y.npz", sp.eye(4, format="csr"))
        with pytest.raises(DataError, match="Remove it first"):
            write(Dataset(features=sp.csr_array(np.eye(3, dtype=np.float32))), tmp_path / "X.npz")
        assert os.listdir(tmp_path) == ["Y.npz"]

    @pytest.mark.parametrize("value", ["3.4028235e38", "-3.4028235e38", "1e-45", "-0.0"])
    def test_extreme_values(self, tmp_path, value):
        dataset = read(put(tmp_path / "a.svm", f"0 0:{value}\n"))
        assert dataset.features.data.tolist() == [np.float32(value)]
        assert "not finite" in check_refusal(put(tmp_path / "a.svm", "0 0:1\n1 0:3.5e38\n"), 2)

    def test_sums_are_taken_before_rounding(self, tmp_path):
        dataset = read(put(tmp_path / "a.svm", "0 0:3e38 0:3e38 0:-3e38\n"))
        assert dataset.features.data.tolist() == [np.float32(3e38)]

    def test_features_that_a_model_does_not_know(self, tmp_path):
        path = put(tmp_path / "a.svm", "0 0:1 5:2\n1 9:1\n")
        assert read(path, feature_count=5).features.toarray().tolist() == [[1, 0, 0, 0, 0], [0, 0, 0, 0, 0]]
        assert read(path, feature_count=20).features.shape == (2, 20)


# ---- telling formats apart

TYPICAL: list[tuple[str, str, bytes]] = [
    ("jsonl", "a.jsonl", b'{"text": "t", "labels": ["a"]}\n'),
    ("jsonl", "a.txt", b'\n  {"text": "t", "labels": ["a"]}\n'),
    ("jsonl", "a.csv", b'{"text": "t", "labels": ["a"]}\n'),
    ("lf", "trn.json", b'{"uid": "1", "title": "t", "target_ind": [0]}\n'),
    ("jsonl", "trn.json", b'{"uid": "1", "title": "t", "target_ind": [0], "labels": ["a"]}\n'),
    ("csv", "a.CSV", b"text,labels\na,b\n"),
    ("tsv", "a.tsv", b"text\tlabels\na\t<b>\n"),
    ("tsv", "a.tab", b"text\tlabels\na\tb\n"),
    ("annif", "a.tsv", b"one\t<a> <b>\n"),
    ("annif", "a.txt", b"\xef\xbb\xbfone\t<a>\r\n"),
    ("annif", "a.tsv", b"one\t\n\ntwo\t<a>\n"),
    ("annif", "a.tsv", b"\t<a>\n"),
    ("fasttext", "a.txt", b"__label__a text\n"),
    ("fasttext", "a.txt", b"no label here\n__label__a text\n"),
    ("fasttext", "a.ft", b"nothing at all\n"),
    ("xmlrepo", "a.txt", b"2 5 3\n0,2 1:0.5 4:1\n 0:1\n"),
    ("xmlrepo", "a.txt", b"1 5 3\n0,2\n"),
    ("xmlrepo", "a", b"1 5 3\r\n"),
    ("libsvm", "a.txt", b"0,2 1:0.5 4:1\n 0:1\n"),
    ("libsvm", "a.txt", b" 1:0.5 4:1\n"),
    ("libsvm", "a.txt", b"# comment\n3 1:-1e-5\n"),
    ("libsvm", "a.svm", b"3\n"),
    ("text", "a.txt", b"Note: a colon\n"),
    ("text", "a.txt", b"12:30 is the time\n"),
    ("text", "a.txt", b"7 10:30\nthe rest is words\nand more words\n"),
    ("text", "a.txt", b"1 2 3\nwords that follow\n"),
    ("text", "a.txt", b"1984 was a year\n"),
    ("text", "a.txt", b"3 4\n"),
    ("text", "a.txt", b"a,b,c\n"),
    ("text", "a.txt", b"key\tname\nkey\tname\n"),
    ("text", "a.txt", b"a < b and\tb > c\n"),
    ("text", "a.txt", b"one\t<a> <b> and more\n"),
    ("text", "a.txt", b"<html>\n"),
    ("text", "a.txt", b"a__label__b\n"),
    ("text", "a.txt", b"BZhang et al. wrote\n"),
    ("text", "x_texts.txt", b"no labels beside\n"),
    ("text", "PAR.txt", b"PAR is a word\n"),
    ("parquet", "a", b"PAR1"),
    ("npz", "X.npz", b"PK\x03\x04"),
]


class TestDetection:
    @pytest.mark.parametrize(("expected", "name", "content"), TYPICAL)
    def test_by_name_and_content(self, tmp_path, expected, name, content):
        assert detected(put(tmp_path / name, content)) == expected

    @pytest.mark.parametrize("suffix", SUFFIXES[1:])
    @pytest.mark.parametrize(
        ("expected", "name", "content"), [row for row in TYPICAL if row[0] not in ("parquet", "npz")]
    )
    def test_compressed(self, tmp_path, expected, name, content, suffix):
        assert detected(pack(tmp_path / f"{name}{suffix}", content)) == expected

    def test_by_what_is_beside(self, tmp_path):
        path = put(tmp_path / "x_texts.txt", "1 2 3\n")
        put(tmp_path / "x_labels.txt.gz", "a\n")
        assert detected(path) == "attentionxml"
        folder = tmp_path / "folder"
        folder.mkdir()
        put(folder / "a.txt", "x")
        assert detected(folder) == "annif-folder"

    @pytest.mark.parametrize(
        ("name", "content"),
        [
            ("a.xlsx", b"PK\x03\x04"),
            ("a.csv", b"PK\x03\x04"),
            ("a.pdf", b"%PDF-1.4"),
            ("a.json", b'[\n{"text": "a"}]'),
            ("a.csv", "text;labels\na;b\n".encode("utf-16")),
            ("a.parquet", b"text,labels\na,b\n"),
            ("X.npz", b"text"),
            ("a.tsv", b"key\tname\nother\tname\n"),
        ],
    )
    def test_what_is_something_else(self, tmp_path, name, content):
        check_refusal(put(tmp_path / name, content), None if b"\t" not in content and b"\xff" not in content[:1] else 1)

    @pytest.mark.parametrize("file_format", [*TEXT_NAMES, *FEATURE_NAMES])
    def test_what_is_written_is_known_again(self, tmp_path, file_format):
        name = (TEXT_NAMES | FEATURE_NAMES)[file_format]
        features = sp.csr_array(np.eye(3, dtype=np.float32))
        dataset = as_dataset(features if file_format in FEATURE_NAMES else ["one", "two", "three"], [[], ["1"], ["2"]])
        write(dataset, tmp_path / name, file_format=file_format)
        assert detected(tmp_path / name) == file_format
        assert label_sets(read(tmp_path / name)) == [set(), {"1"}, {"2"}]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("file_format", [*LINE_FORMATS, "xmlrepo", "libsvm"])
def test_every_compression(tmp_path, file_format, suffix):
    name = (TEXT_NAMES | FEATURE_NAMES)[file_format]
    features = sp.csr_array(np.eye(3, dtype=np.float32))
    keys = [["1", "2"], ["2"], []]
    dataset = as_dataset(features if file_format in FEATURE_NAMES else [text for text, _ in POTATO], keys)
    path = tmp_path / f"{name}{suffix}"
    assert write(dataset, path, file_format=file_format) == 0
    assert label_sets(read(path)) == [set(row) for row in keys]
    assert sum(len(batch) for batch in stream(path, size=2)) == 3


# ---- bad lines


def bad_file(folder: Path, file_format: str) -> tuple[Path, dict[int, str], list[tuple[str, set[str]]]]:
    """A file with bad lines: its path, the words for each bad line, and the good documents."""
    good = [("one", {"a"}), ("two", {"b"}), ("three", {"a", "b"})]
    path = folder / TEXT_NAMES[file_format]
    if file_format in ("jsonl", "lf"):
        key = "labels" if file_format == "jsonl" else "target_ind"
        lines = [
            b'{"no": "text"}',
            json.dumps({"title": "one", key: ["a"]}).encode(),
            b"{bad",
            b'{"title": "\xff"}',
            b"",
            json.dumps({"title": "two", key: ["b"]}).encode(),
            json.dumps({"title": "no labels"}).encode(),
            b'{"title": "\\ud800", "%s": []}' % key.encode(),
            json.dumps({"title": "three", key: ["b", "a"]}).encode(),
        ]
        words = {1: "no text", 3: "invalid JSON", 4: "not UTF-8", 7: f"no '{key}'", 8: "surrogate"}
        return put(path, b"\n".join(lines)), words, good
    if file_format == "csv":
        content = (
            b"id,text,labels\n1,one,a\n2,\xff,a\n3,too,many,cells\n4,few\n5,two,b\n"
            b'6,"multi\nline \xff text\nof three",a\n7,"not "doubled",a\n8,[x],[x]\n9,three,"a;b"\n'
        )
        words = {3: "not UTF-8", 4: "4 cells", 5: "2 cells", 8: "not UTF-8", 10: "invalid CSV", 11: "not a list"}
        return put(path, content), words, good
    if file_format == "tsv":
        content = (
            b"id\ttext\tlabels\n1\tone\ta\n2\t\xff\ta\n\n3\ttoo\tmany\tcells\n4\ttwo\tb\n5\tx\t[x]\n6\tthree\ta;b\n"
        )
        return put(path, content), {3: "not UTF-8", 5: "4 cells", 7: "not a list"}, good
    if file_format == "fasttext":
        content = b"__label__a one\n__label__ x\n\xff\n__label__b two\n__label__a __label__b three\n"
        return put(path, content), {2: "label is empty", 3: "not UTF-8"}, good
    if file_format == "annif":
        content = b"one\t<a>\nno tab\n\xff\t<a>\n\ntwo\t<b>\ntwo\ttabs\t<b>\nthree\t<a> b\n"
        return put(path, content), {2: "a tab", 3: "not UTF-8", 6: "a tab"}, good
    assert file_format == "attentionxml"
    put(folder / "a_labels.txt", b"a\na\n\xff\nb\na b\n")
    return put(path, b"one\n\xff\nbad labels\ntwo\nthree\n"), {2: "not UTF-8", 3: "not UTF-8"}, good


class TestBadLines:
    @pytest.mark.parametrize("file_format", LINE_FORMATS)
    @pytest.mark.parametrize("block", [1 << 20, 30])
    def test_they_are_left_out_and_listed(self, tmp_path, file_format, block, monkeypatch):
        monkeypatch.setattr("xmtc.core.files.read_blocks.__defaults__", (block,))
        monkeypatch.setattr(jsonl_module, "BLOCK", block)
        path, words, good = bad_file(tmp_path, file_format)
        bad = BadLines(skip=True)
        dataset = read(path, bad_lines=bad, file_format=file_format)
        assert documents(dataset) == good
        assert len(bad.messages) == len(words)
        for (line, what), message in zip(words.items(), bad.messages, strict=True):
            at = (
                f"{tmp_path / 'a_labels.txt'}:3: "
                if file_format == "attentionxml" and line == 3
                else f"{path}:{line}: "
            )
            assert message.startswith(at)
            assert what in message
            assert message.isprintable()
        streamed = [
            text
            for batch in stream(path, bad_lines=BadLines(skip=True), file_format=file_format, size=1)
            for text in batch.text().to_pylist()
        ]
        assert {text for text, _ in good} <= set(streamed)

    @pytest.mark.parametrize("file_format", LINE_FORMATS)
    def test_the_first_is_refused(self, tmp_path, file_format):
        path, words, _ = bad_file(tmp_path, file_format)
        first = min(words)
        assert words[first] in check_refusal(path, first, file_format=file_format)

    def test_rows_after_an_open_quote(self, tmp_path):
        rows = "".join(f"{number},text {number},a\n" for number in range(5, 2000))
        path = put(
            tmp_path / "a.csv", f'id,text,labels\n1,"open,a\n2,two,b\n3,"quoted, fine",a\n4,"two\nlines",b\n{rows}'
        )
        bad = BadLines(skip=True)
        dataset = read(path, bad_lines=bad)
        assert dataset.document_ids() == ["2", "3", "4", *map(str, range(5, 2000))]
        assert dataset.text().to_pylist()[:3] == ["two", "quoted, fine", "two\nlines"]
        assert [message.partition(": ")[0] for message in bad.messages] == [f"{path}:2"]
        path = put(tmp_path / "b.csv", f'id,text,labels\n{rows}9999,"open to the end,a\n3,x,a\n')
        bad = BadLines(skip=True)
        assert len(read(path, bad_lines=bad)) == 1996
        assert [message.partition(": ")[0] for message in bad.messages] == [f"{path}:1997"]

    def test_quotes_that_stay_open_on_every_line(self, tmp_path, monkeypatch):
        monkeypatch.setattr(tables_module, "_MOST_AGAIN", 1 << 20)
        path = put(tmp_path / "a.csv", "text,labels\n" + 'a","\n' * 200_000)
        with pytest.raises(DataError, match="too many unclosed quotes"):
            read(path, bad_lines=BadLines(skip=True))

    def test_features(self, tmp_path):
        rows = "0 0:1\nx 0:1\n1 9:1\n2 1:1\n1 0:nan\n"
        bad = BadLines(skip=True)
        dataset = read(put(tmp_path / "a.txt", f"5 2 3\n{rows}"), bad_lines=bad)
        assert rows_of(dataset) == [({0: 1.0}, {"0"}), ({1: 1.0}, {"2"})]
        assert dataset.document_ids() == ["0", "3"]
        assert [message.split(":")[1] for message in bad.messages] == ["3", "4", "6"]
        bad = BadLines(skip=True)
        dataset = read(put(tmp_path / "a.svm", rows), bad_lines=bad)
        assert dataset.document_ids() == ["0", "2", "3"]
        assert [message.split(":")[1] for message in bad.messages] == ["2", "5"]

    def test_parquet(self, tmp_path):
        table = pa.table({"text": ["one", None, "three", "four"], "labels": [["a"], ["b"], None, ["", "b"]]})
        pq.write_table(table, tmp_path / "a.parquet")
        bad = BadLines(skip=True)
        dataset = read(tmp_path / "a.parquet", bad_lines=bad)
        assert documents(dataset) == [("one", {"a"})]
        assert [message.split(":")[1] for message in bad.messages] == ["2", "3", "4"]
        check_refusal(tmp_path / "a.parquet", 2)

    def test_a_folder(self, tmp_path):
        for name, text in (("a", b"one"), ("b", b"\xff"), ("c", b"three"), ("d", b"four")):
            put(tmp_path / f"{name}.txt", text)
            if name != "d":
                put(tmp_path / f"{name}.tsv", "<x>\n")
        bad = BadLines(skip=True)
        dataset = read(tmp_path, bad_lines=bad)
        assert dataset.document_ids() == ["a", "c"]
        assert len(bad.messages) == 2

    def test_nothing_but_bad_lines(self, tmp_path):
        path = put(tmp_path / "a.jsonl", b"{bad\n{worse\n")
        bad = BadLines(skip=True)
        with pytest.raises(DataError, match="The file has no valid line"):
            read(path, bad_lines=bad)
        assert len(bad.messages) == 2


# ---- large lines


@pytest.mark.parametrize("file_format", LINE_FORMATS)
def test_a_line_of_ten_megabytes(tmp_path, file_format):
    words = ["wörter " * 1_300_000, '"' * 5_000_000, "<" * 5_000_000, "_label_" * 700_000, "a,b;" * 2_000_000]
    dataset = as_dataset([*words, "short"], [["a"], ["b"], [], ["a"], [], ["b"]])
    path = tmp_path / TEXT_NAMES[file_format]
    write(dataset, path, file_format=file_format)
    start = time.perf_counter()
    assert documents(read(path)) == documents(dataset)
    assert time.perf_counter() - start < 20


@pytest.mark.parametrize("file_format", ["xmlrepo", "libsvm"])
def test_a_line_of_many_features(tmp_path, file_format):
    row = sp.csr_array(np.arange(1, 600_001, dtype=np.float32)[None, :])
    dataset = as_dataset(row, [[str(number) for number in range(100_000)]])
    path = tmp_path / FEATURE_NAMES[file_format]
    write(dataset, path, file_format=file_format)
    start = time.perf_counter()
    again = read(path)
    assert time.perf_counter() - start < 20
    assert (again.features != dataset.features).nnz == 0
    assert again.labels.nnz == 100_000


# ---- files that change or are cut


def noise(count: int) -> Dataset:
    source = random.Random(0)
    return as_dataset(
        [source.randbytes(40).hex() for _ in range(count)], [[str(source.randrange(9))] for _ in range(count)]
    )


class TestUnsteadyFiles:
    @pytest.mark.parametrize("file_format", [*LINE_FORMATS, "parquet", "xmlrepo", "libsvm"])
    @pytest.mark.parametrize("change", ["append", "truncate"])
    def test_a_file_that_changes_while_it_is_read(self, tmp_path, file_format, change, monkeypatch):
        monkeypatch.setattr("xmtc.core.files.read_blocks.__defaults__", (2000,))
        monkeypatch.setattr(jsonl_module, "BLOCK", 2000)
        monkeypatch.setattr(parquet_module, "_BATCH", 10)
        dataset = noise(20_000 if file_format in ("csv", "tsv") else 2000)  # a table comes a megabyte at a time
        if file_format in FEATURE_NAMES:
            dataset = Dataset(features=sp.random(2000, 50, 0.2, "csr", dtype=np.float32, random_state=0))
        path = tmp_path / (TEXT_NAMES | FEATURE_NAMES)[file_format]
        write(dataset, path, file_format=file_format)
        batches = stream(path, size=5, file_format=file_format)
        next(batches)
        if change == "append":
            with path.open("ab") as out:
                out.write(b"\n")
        else:
            os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(DataError) as caught:
            list(batches)
        assert str(caught.value).startswith(f"{tmp_path}")  # two files may fall out of step before that is seen

    @pytest.mark.parametrize("suffix", SUFFIXES[1:])
    @pytest.mark.parametrize("file_format", [*LINE_FORMATS, "xmlrepo", "libsvm"])
    def test_an_archive_cut_short(self, tmp_path, file_format, suffix):
        dataset = noise(300)
        if file_format in FEATURE_NAMES:
            dataset = Dataset(features=sp.random(300, 50, 0.2, "csr", dtype=np.float32, random_state=0))
        path = tmp_path / ((TEXT_NAMES | FEATURE_NAMES)[file_format] + suffix)
        write(dataset, path, file_format=file_format)
        whole = path.read_bytes()
        for part in (0.05, 0.6, 0.99):
            put(path, whole[: int(len(whole) * part)])
            for named in (None, file_format):
                for bad_lines in (BadLines(), BadLines(skip=True)):
                    assert "damaged or truncated" in check_refusal(path, file_format=named, bad_lines=bad_lines)

    @pytest.mark.parametrize("name", ["a_labels.txt", "lbl.json"])
    def test_a_file_beside_that_is_cut_short(self, tmp_path, name):
        path = tmp_path / ("a_texts.txt" if name == "a_labels.txt" else "a.json")
        write(noise(300), path)
        beside = tmp_path / name
        packed = pack(tmp_path / f"{name}.gz", beside.read_bytes()).read_bytes()
        beside.unlink()
        put(tmp_path / f"{name}.gz", packed[: len(packed) // 2])
        with pytest.raises(DataError, match="damaged or truncated"):
            read(path)

    @pytest.mark.parametrize("name", ["a.parquet", "X.npz"])
    @pytest.mark.parametrize("part", [0, 0.05, 0.5, 0.99])
    def test_a_table_or_matrix_cut_short(self, tmp_path, name, part):
        dataset = (
            noise(50) if name == "a.parquet" else as_dataset(sp.random(50, 50, 0.2, "csr", random_state=0), [[]] * 50)
        )
        write(dataset, tmp_path / name)
        whole = (tmp_path / name).read_bytes()
        put(tmp_path / name, whole[: int(len(whole) * part)])
        check_refusal(tmp_path / name)
        for file_format in ("parquet", "npz"):
            packed = pack(tmp_path / f"{name}.gz", whole).read_bytes()
            put(tmp_path / f"{name}.gz", packed[: len(packed) // 2])
            check_refusal(tmp_path / f"{name}.gz", file_format=file_format)


# ---- what is written


class TestWriting:
    def test_nothing_to_write(self, tmp_path):
        for name in ("a.jsonl", "a.csv", "a.parquet"):
            with pytest.raises(DataError, match="no documents to write"):
                write(as_dataset([]), tmp_path / name)
        assert os.listdir(tmp_path) == []

    def test_a_label_without_a_key(self, tmp_path):
        dataset = Dataset(
            fields={"text": pa.chunked_array([["t"]])},
            labels=sp.csr_array(np.ones((1, 1), dtype=np.float32)),
            label_index=LabelIndex.from_keys([""]),
        )
        with pytest.raises(DataError, match="empty key"):
            write(dataset, tmp_path / "a.jsonl")

    @pytest.mark.parametrize(
        ("name", "words"), [("a.xyz", "does not determine a format"), ("a.svm", "these documents have text")]
    )
    def test_names_that_do_not_fit(self, tmp_path, name, words):
        with pytest.raises(DataError, match=words):
            write(as_dataset(["a"]), tmp_path / name)

    def test_fields_that_would_not_come_back(self, tmp_path):
        for name in ("id", "labels", " a", "a\tb", ""):
            for file in ("a.csv", "a.tsv"):
                with pytest.raises(DataError):
                    write(Dataset(fields={name: pa.chunked_array([["t"]])}), tmp_path / file)
        assert os.listdir(tmp_path) == []

    def test_fields_with_separators_in_their_names(self, tmp_path):
        fields = {"a;b;c;d|e": pa.chunked_array([["one"]]), 'say "x"': pa.chunked_array([["two"]])}
        for name in ("a.csv", "a.tsv", "a.jsonl", "a.parquet"):
            write(Dataset(fields=fields), tmp_path / name)
            assert fields_of(read(tmp_path / name, text_fields=list(fields))) == {
                "a;b;c;d|e": ["one"],
                'say "x"': ["two"],
            }

    def test_labels_that_are_not_numbers(self, tmp_path):
        dataset = as_dataset(sp.csr_array(np.eye(1, dtype=np.float32)), [["x"]])
        for file_format, name in FEATURE_NAMES.items():
            with pytest.raises(DataError, match="requires numeric label keys"):
                write(dataset, tmp_path / name, file_format=file_format)
        assert os.listdir(tmp_path) == []

    def test_names_of_labels_stay_in_a_folder(self, tmp_path):
        index = LabelIndex.from_keys(["1", "2"], ["one\tname", "two"])
        dataset = Dataset(
            fields={"text": pa.chunked_array([["t"]])}, labels=sp.csr_array([[1.0, 1.0]]), label_index=index
        )
        write(dataset, tmp_path / "a", file_format="annif-folder")
        assert read(tmp_path / "a").label_index.names == ["one name", "two"]
        write(dataset, tmp_path / "a.json")
        assert read(tmp_path / "a.json").label_index.names == ["one\tname", "two"]

    def test_a_folder_is_not_written_over(self, tmp_path):
        write(as_dataset(["a"]), tmp_path / "a", file_format="annif-folder")
        with pytest.raises(DataError, match="already exists"):
            write(as_dataset(["b"]), tmp_path / "a", file_format="annif-folder")
        assert read(tmp_path / "a").text().to_pylist() == ["a"]
        assert os.listdir(tmp_path) == ["a"]

    @pytest.mark.parametrize("identifier", ["", "..", ".a", "a/b", "a\\b", "a\nb", "x" * 300, "\ufeff"])
    def test_ids_that_are_no_file_names(self, tmp_path, identifier):
        dataset = Dataset(fields={"text": pa.chunked_array([["t"]])}, ids=pa.chunked_array([[identifier]]))
        with pytest.raises(DataError, match="is not a valid file name"):
            write(dataset, tmp_path / "a", file_format="annif-folder", lossy=True)
        assert os.listdir(tmp_path) == []

    def test_labels_that_would_become_one(self, tmp_path):
        for file_format in ("fasttext", "attentionxml"):
            with pytest.raises(DataError, match="would get the same key"):
                write(
                    as_dataset(["t"], [["a b", "a_b"]]), tmp_path / "a_texts.txt", file_format=file_format, lossy=True
                )
        assert os.listdir(tmp_path) == []

    def test_a_marker_that_comes_together_when_one_goes(self, tmp_path):
        assert write(as_dataset(["x ____label____y\r"]), tmp_path / "a.ft", lossy=True) == 1
        assert documents(read(tmp_path / "a.ft", file_format="fasttext"))[0][1] == set()


# ---- round trips


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    """A folder that is empty at the beginning of each example; nothing is forced to the disk."""
    return tmp_path_factory.mktemp("round")


@pytest.fixture(scope="module", autouse=True)
def no_sync() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


def check_there_and_back(dataset: Dataset, file_format: str, folder: Path) -> None:
    """JSONL, another format, and JSONL again: the same bytes. Ids are row numbers, which every format gives."""
    emptied(folder)
    first, second = folder / "first.jsonl", folder / "second.jsonl"
    dataset = Dataset({"text": dataset.text()}, None, dataset.labels, dataset.label_index)
    write(dataset, first)
    path = folder / TEXT_NAMES[file_format]
    try:
        write(read(first), path, file_format=file_format)
    except DataError:
        return
    again = read(path, file_format=file_format)
    write(Dataset({"text": again.text()}, None, again.labels, again.label_index, again.ids), second)
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("file_format", TEXT_NAMES)
@often(40)
@given(dataset=text_datasets())
def test_text_comes_back_or_is_refused(place, file_format, dataset):
    check_round_trip(dataset, file_format, place)


@pytest.mark.parametrize("file_format", TEXT_NAMES)
@often(12)
@given(dataset=text_datasets())
def test_there_and_back(place, file_format, dataset):
    check_there_and_back(dataset, file_format, place)


@pytest.mark.parametrize("file_format", FEATURE_NAMES)
@often(30)
@given(dataset=feature_datasets())
def test_features_come_back(place, file_format, dataset):
    check_features(dataset, file_format, place)


# ---- fast and slow readers


@often(250)
@given(st.lists(st.tuples(NEAR_JSON, ENDS), min_size=1, max_size=4), HOW)
def test_both_ways_through_jsonl_agree(place, lines, how):
    check_jsonl_ways_agree(place, lines, how)


@often(100)
@given(near_tables(), HOW)
def test_both_ways_through_parquet_agree(place, table, how):
    check_parquet_ways_agree(place, table, how)


@often(200)
@given(st.lists(FEATURE_LINE, min_size=1, max_size=3), st.booleans(), FEATURE_HOW)
def test_both_ways_through_features_agree(place, lines, header, how):
    check_feature_ways_agree(place, lines, header, how)


def test_standard_input_in_a_format_that_is_named(monkeypatch):
    for file_format, content in (
        ("csv", b"text,labels\none,a\n"),
        ("tsv", b"text\tlabels\none\ta\n"),
        ("fasttext", b"__label__a one\n"),
        ("annif", b"one\t<a>\n"),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]
        assert [text for batch in stream("-", file_format=file_format) for text in batch.text().to_pylist()] == ["one"]
