"""Files of documents: what a file holds arrives in the Dataset, and what is wrong is named with its line."""

from __future__ import annotations

import io
import json
import os
import random
import sys

import numpy as np
import pyarrow as pa
import pytest

from tests.support.packing import SUFFIXES, pack
from tests.support.reading import check_refusal, label_sets, write
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.mapped_text import TextSpool
from xmtc.data import formats, read, stream
from xmtc.data import reading as reading_module
from xmtc.data.records import BadLines

ROWS = [
    {"id": "a", "text": "potato starch", "labels": ["sauce", "cheese"]},
    {"id": "b", "text": "größer 🥔 \u2028 line", "labels": ["cheese"]},
    {"id": "c", "text": "", "labels": []},
]
SPARSE = "3 4 5\n0,4 0:1 3:0.5\n2 1:-2e-1\n 2:3\n"


class TestJsonl:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_all_that_is_written_arrives(self, tmp_path, suffix):
        content = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS).encode()
        dataset = read(pack(tmp_path / f"a.jsonl{suffix}", content))
        assert dataset.text().to_pylist() == [row["text"] for row in ROWS]
        assert dataset.document_ids() == [row["id"] for row in ROWS]
        assert label_sets(dataset) == [set(row["labels"]) for row in ROWS]
        assert dataset.label_index.keys == ["cheese", "sauce"]
        assert dataset.features is None

    @pytest.mark.parametrize("name", ["a.txt", "a", "a.json", "a.NDJSON"])
    def test_the_name_does_not_matter(self, tmp_path, name):
        assert len(read(write(tmp_path / name, *ROWS))) == 3

    def test_byte_order_mark_carriage_returns_and_blank_lines(self, tmp_path):
        path = tmp_path / "a.jsonl"
        one, two, three = (json.dumps(row).encode() for row in ROWS)
        path.write_bytes(b"\xef\xbb\xbf" + one + b"\r\n\r\n  \t\n" + two + b"\r\n\n" + three)
        dataset = read(path)
        assert dataset.text().to_pylist() == [row["text"] for row in ROWS]
        assert label_sets(dataset) == [set(row["labels"]) for row in ROWS]

    def test_files_put_together_keep_their_byte_order_marks(self, tmp_path):
        one = write(tmp_path / "one", b"\xef\xbb\xbf" + json.dumps(ROWS[0]).encode())
        both = tmp_path / "both.jsonl"
        both.write_bytes(one.read_bytes() * 2)
        assert len(read(both)) == 2

    def test_a_bad_line_after_blank_ones_keeps_its_number(self, tmp_path):
        assert "invalid JSON" in check_refusal(write(tmp_path / "a.jsonl", b"", ROWS[0], b"", b"  ", b"{bad"), 5)

    def test_line_numbers_go_on_from_block_to_block(self, tmp_path, monkeypatch):
        monkeypatch.setattr("xmtc.core.files.read_blocks.__defaults__", (64,))
        check_refusal(write(tmp_path / "a.jsonl", *ROWS * 50, b"", b"{bad"), 152)
        dataset = read(write(tmp_path / "b.jsonl", *ROWS * 50))
        assert dataset.document_ids() == ["a", "b", "c"] * 50
        assert label_sets(dataset) == [set(row["labels"]) for row in ROWS] * 50

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b"{bad", "invalid JSON"),
            (b'{"text": "a', "invalid JSON (Unterminated string"),
            (b'{"text": "a\tb", "labels": []}', "invalid JSON (Invalid control character at column 12)"),
            (b'{"text": "a", "labels": []} x', "invalid JSON (Extra data"),
            (b"[1]", "not a JSON object"),
            (b"null", "not a JSON object"),
            (b'"text"', "not a JSON object"),
            (b"[" * 100_000, "nested"),
            (b'{"text": "a", "labels": [' + b"9" * 5000 + b"]}", "too long"),
            (b'{"labels": ["x"]}', "no text"),
            (b'{"body": "b", "labels": []}', "no text"),
            (b'{"text": null, "labels": []}', "'text' must be a string. Got null"),
            (b'{"text": 5, "labels": []}', "'text' must be a string. Got a number"),
            (b'{"text": {"a": 1}, "labels": []}', "'text' must be a string. Got an object"),
            (b'{"text": ["a"], "labels": []}', "'text' must be a string. Got a list"),
            (b'{"text": true, "labels": []}', "'text' must be a string. Got a boolean"),
            (b'{"text": "a"}', "no 'labels'"),
            (b'{"text": "a", "labels": "x"}', "'labels' must be a list"),
            (b'{"text": "a", "labels": null}', "'labels' must be a list"),
            (b'{"text": "a", "labels": {"x": 1}}', "'labels' must be a list"),
            (b'{"text": "a", "labels": ["x", ""]}', "a label is empty"),
            (b'{"text": "a", "labels": [["x"]]}', "a label must be a string or an integer. Got a list"),
            (b'{"text": "a", "labels": [null]}', "a label must be a string or an integer. Got null"),
            (b'{"text": "a", "labels": [1.5]}', "a label must be a string or an integer. Got a number"),
            (b'{"text": "a", "labels": [NaN]}', "a label must be a string or an integer. Got a number"),
            (b'{"text": "a", "labels": [true]}', "a label must be a string or an integer. Got a boolean"),
            (b'{"text": "a", "labels": [], "id": [1]}', "'id' must be a string or an integer. Got a list"),
            (b'{"text": "a", "labels": [], "id": true}', "'id' must be a string or an integer. Got a boolean"),
            (b'{"text": "a \\ud83d b", "labels": []}', "'text' contains an unpaired surrogate"),
            (b'{"text": "a", "labels": ["ok", "\\udc00"]}', "'labels' contains an unpaired surrogate"),
            (b'{"text": "a\xff", "labels": []}', "not UTF-8 (byte 0xff at column 12)"),
            (b'{"text": "\xed\xa0\x80", "labels": []}', "not UTF-8 (byte 0xed"),
        ],
    )
    def test_a_bad_line_is_named(self, tmp_path, line, words):
        good = {"text": "fine", "labels": ["x"]}
        assert words in check_refusal(write(tmp_path / "a.jsonl", good, good, line, good), 3)

    def test_a_file_in_utf_16(self, tmp_path):
        path = tmp_path / "a.jsonl"
        path.write_text(json.dumps(ROWS[0]), encoding="utf-16")
        assert "not UTF-8" in check_refusal(path, 1)

    def test_whole_surrogate_pairs_are_characters(self, tmp_path):
        dataset = read(write(tmp_path / "a.jsonl", b'{"text": "\\ud83e\\udd54", "labels": ["\\ud83e\\udd54"]}'))
        assert dataset.text().to_pylist() == ["🥔"]
        assert dataset.label_index.keys == ["🥔"]

    def test_integer_labels_and_ids_become_text(self, tmp_path):
        dataset = read(write(tmp_path / "a.jsonl", {"id": 7, "text": "t", "labels": [3, "x", 3, -1]}))
        assert dataset.document_ids() == ["7"]
        assert label_sets(dataset) == [{"3", "x", "-1"}]

    def test_a_label_counts_once_a_row(self, tmp_path):
        dataset = read(write(tmp_path / "a.jsonl", {"text": "t", "labels": ["x", "y", "x", "x"]}))
        assert label_sets(dataset) == [{"x", "y"}]
        assert dataset.labels.data.tolist() == [1.0, 1.0]

    def test_without_ids_the_line_is_the_id(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"text": "t", "labels": []}, b"", {"id": None, "text": "u", "labels": []})
        assert read(path).document_ids() == ["0", "2"]

    def test_a_file_where_no_row_has_a_label(self, tmp_path):
        dataset = read(write(tmp_path / "a.jsonl", {"text": "t", "labels": []}, {"text": "u", "labels": []}))
        assert dataset.labels.shape == (2, 0)
        assert len(dataset.label_index) == 0

    def test_tags_stand_for_labels_and_unknown_fields_for_nothing(self, tmp_path):
        row = {"text": "t", "tags": ["x"], "year": [1999, {"a": None}], "title": "not read"}
        dataset = read(write(tmp_path / "a.jsonl", row))
        assert label_sets(dataset) == [{"x"}]
        assert dataset.text().to_pylist() == ["t"]

    def test_a_long_line(self, tmp_path):
        text = "wörter " * 1_500_000  # 12 MB in UTF-8
        path = write(tmp_path / "a.jsonl", {"text": text, "labels": ["x"]}, {"text": "short", "labels": ["y"]})
        assert read(path).text().to_pylist() == [text, "short"]
        path.write_bytes(path.read_bytes() + b"{bad\n")
        check_refusal(path, 3)

    @pytest.mark.parametrize("line", [b'{"text": "a\nb", "labels": []}', b"\x85\x0b{", b'{"\\u2028\\n\\ud800": 1}'])
    def test_awkward_characters_stay_out_of_messages(self, tmp_path, line):
        check_refusal(write(tmp_path / "a.jsonl", line), 1)


class TestPartialLabels:
    ROWS = (
        {"text": "one", "labels": ["b"]},
        {"text": "two", "labels": ["b", "a"], "rejected": ["z"]},
        {"text": "three", "labels": [], "complete": False},
        {"text": "four", "labels": ["a"], "rejected": [], "complete": True},
        {"text": "five", "labels": ["a"], "rejected": ["b"], "complete": True},
        {"text": "six", "labels": ["a"], "rejected": None, "complete": None},
        {"text": "seven", "labels": ["a"], "rejected": []},
    )

    def check(self, dataset):
        assert dataset.label_index.keys == ["a", "b", "z"]
        assert label_sets(dataset) == [{"b"}, {"a", "b"}, set(), {"a"}, {"a"}, {"a"}, {"a"}]
        rejected = dataset.rejected.toarray()
        assert np.argwhere(rejected).tolist() == [[1, 2], [4, 1]]
        assert dataset.partial.tolist() == [False, True, True, False, False, False, True]

    @pytest.mark.parametrize("slow", [False, True])
    def test_accepted_rejected_and_unknown(self, tmp_path, slow):
        rows = [{**row, "labels": [{"key": key} for key in row["labels"]]} for row in self.ROWS] if slow else self.ROWS
        path = write(tmp_path / "a.jsonl", *rows)
        self.check(read(path))
        formats.write(read(path), tmp_path / "b.jsonl")
        self.check(read(tmp_path / "b.jsonl"))

    def test_whole_numbers(self, tmp_path):
        dataset = read(write(tmp_path / "a.jsonl", {"text": "x", "labels": [], "rejected": [7]}))
        assert dataset.label_index.keys == ["7"]
        assert dataset.rejected.toarray().tolist() == [[1]]

    @pytest.mark.parametrize(
        ("more", "message"),
        [
            ({"rejected": "b"}, '\'rejected\' must be a list such as ["a", "b"]. Got a string.'),
            ({"rejected": [1.5]}, "a label must be a string or an integer. Got a number."),
            ({"rejected": [""]}, "a label is empty. Remove it from the list."),
            ({"rejected": ["b", "a"]}, "label 'a' is both accepted and rejected. Remove it from one list."),
            ({"complete": "no"}, "'complete' must be true or false. Got a string."),
            ({"complete": 0}, "'complete' must be true or false. Got a number."),
        ],
    )
    def test_what_is_wrong(self, tmp_path, more, message):
        path = write(tmp_path / "a.jsonl", *self.ROWS, {"text": "x", "labels": ["a"], **more})
        assert message in check_refusal(path, 8)
        bad = BadLines(skip=True)
        self.check(read(path, bad_lines=bad))
        assert len(bad.messages) == 1

    def test_a_field_that_has_another_use_is_not_a_decision(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"complete": "all of it", "rejected": ["a"]})
        dataset = read(path, text_fields=["complete"], label_field="rejected")
        assert dataset.text().to_pylist() == ["all of it"]
        assert label_sets(dataset) == [{"a"}]
        assert dataset.partial is None

    def test_predicting_ignores_decisions(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"text": "x", "complete": 5, "rejected": 7})
        assert [len(batch) for batch in stream(path)] == [1]

    def test_a_vocabulary_applies_to_rejected_labels(self, tmp_path):
        path = write(tmp_path / "a.jsonl", *self.ROWS)
        vocabulary = tmp_path / "labels.txt"
        vocabulary.write_text("a\nb\n")
        with pytest.raises(DataError, match=r"a\.jsonl:2: label 'z' is not in labels\.txt"):
            read(path, vocabulary=vocabulary)
        dataset = read(path, vocabulary=vocabulary, unknown_labels="drop")
        assert dataset.label_index.keys == ["a", "b"]
        assert np.argwhere(dataset.rejected.toarray()).tolist() == [[4, 1]]

    def test_other_formats_refuse_unknown_labels(self, tmp_path):
        dataset = read(write(tmp_path / "a.jsonl", *self.ROWS))
        with pytest.raises(DataError, match=r"some documents have unknown labels, which csv cannot store"):
            formats.write(dataset, tmp_path / "b.csv")
        formats.write(dataset, tmp_path / "b.csv", lossy=True)
        assert label_sets(read(tmp_path / "b.csv")) == label_sets(dataset)


class TestFields:
    def test_title_and_body_where_one_is_missing(self, tmp_path):
        path = write(
            tmp_path / "a.jsonl",
            {"title": "only a title", "labels": []},
            {"title": None, "body": "only a body", "labels": []},
            {"body": "the body", "title": "the title", "labels": []},
        )
        dataset = read(path)
        assert list(dataset.fields) == ["title", "body"]
        assert dataset.fields["title"].to_pylist() == ["only a title", "", "the title"]
        assert dataset.fields["body"].to_pylist() == ["", "only a body", "the body"]
        assert dataset.text().to_pylist() == ["only a title", "only a body", "the title\nthe body"]
        (batch,) = stream(path)
        assert batch.text().to_pylist() == dataset.text().to_pylist()

    @pytest.mark.parametrize("row", [{}, {"title": None, "body": None}])
    def test_a_document_without_any(self, tmp_path, row):
        path = write(tmp_path / "a.jsonl", {"title": "a", "body": "b", "labels": []}, {**row, "labels": []})
        check_refusal(path, 2)

    def test_a_field_that_is_not_text(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"title": "a", "labels": []}, {"title": "b", "body": 3, "labels": []})
        assert "'body' must be a string. Got a number" in check_refusal(path, 2)

    def test_a_field_that_is_no_text_from_the_start_is_something_else(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"title": "a", "content": {"x": 1}, "labels": []})
        assert list(read(path).fields) == ["title"]

    def test_chosen_fields(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"id": "1", "head": "h", "text": "t", "labels": []})
        assert read(path, text_fields=["text", "head"]).text().to_pylist() == ["t\nh"]
        assert list(read(path, text_fields="head").fields) == ["head"]
        named_id = read(path, text_fields=["id"])
        assert named_id.text().to_pylist() == named_id.document_ids() == ["1"]
        assert "'nothing'" in check_refusal(path, 1, text_fields=["nothing"])

    def test_a_chosen_field_stays_where_it_is_empty(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"head": "", "text": "t", "labels": []})
        assert list(read(path, text_fields=["head", "text"]).fields) == ["head", "text"]


class TestPrediction:
    """`stream` and `labelled=False`: documents whose labels nobody needs."""

    def test_jsonl_without_labels(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"text": "t"}, {"text": "u", "labels": None}, {"text": "v", "labels": ["x"]})
        assert [text for batch in stream(path) for text in batch.text().to_pylist()] == ["t", "u", "v"]
        assert read(path, labelled=False).labels.toarray().tolist() == [[0], [0], [1]]
        assert read(write(tmp_path / "b.jsonl", {"text": "t"}), labelled=False).labels is None

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_lines_of_text(self, tmp_path, suffix):
        content = "\ufefffirst line\r\n\r\nthird größer\n  spaces stay  \nlast".encode()
        path = pack(tmp_path / f"a.txt{suffix}", content)
        batches = list(stream(path))
        texts = [text for batch in batches for text in batch.text().to_pylist()]
        assert texts == ["first line", "", "third größer", "  spaces stay  ", "last"]
        assert [name for batch in batches for name in batch.document_ids()] == ["0", "1", "2", "3", "4"]

    def test_a_line_of_text_that_is_not_utf_8(self, tmp_path):
        path = write(tmp_path / "a.txt", b"fine", b"", b"\xe9t\xe9")
        assert "not UTF-8 (byte 0xe9" in check_refusal(path, 3, labelled=False)

    @pytest.mark.parametrize("file_format", [None, "text"])
    def test_lines_of_text_cannot_be_trained_on(self, tmp_path, file_format):
        assert "plain text without labels" in check_refusal(
            write(tmp_path / "a.txt", b"words"), 1, file_format=file_format
        )

    def test_a_format_by_name(self, tmp_path):
        path = write(tmp_path / "a.txt", b"1 2 3", b"words")
        (batch,) = stream(path, file_format="text")
        assert batch.text().to_pylist() == ["1 2 3", "words"]
        assert "Did you mean 'jsonl'?" in check_refusal(path, file_format="json")

    @pytest.mark.parametrize("size", [1, 2, 5, 1000])
    def test_batches_of_a_stream(self, tmp_path, size):
        path = write(tmp_path / "a.jsonl", *({"id": f"d{n}", "text": f"text {n}"} for n in range(7)))
        batches = list(stream(path, size=size))
        assert [len(batch) for batch in batches] == [min(size, 7 - start) for start in range(0, 7, size)]
        assert [name for batch in batches for name in batch.document_ids()] == [f"d{n}" for n in range(7)]
        assert [text for batch in batches for text in batch.text().to_pylist()] == [f"text {n}" for n in range(7)]

    def test_a_stream_of_features(self, tmp_path):
        path = tmp_path / "a.txt"
        path.write_text(SPARSE)
        batches = list(stream(path, size=2))
        assert [batch.features.toarray().tolist() for batch in batches] == [
            [[1, 0, 0, 0.5], [0, np.float32(-0.2), 0, 0]],
            [[0, 0, 3, 0]],
        ]

    def test_standard_input(self, monkeypatch):
        content = b'{"text": "one"}\n{"text": "two"}\n'
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(content))))  # type: ignore[arg-type]
        assert [text for batch in stream("-") for text in batch.text().to_pylist()] == ["one", "two"]


class TestXmlRepository:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_all_that_is_written_arrives(self, tmp_path, suffix):
        dataset = read(pack(tmp_path / f"a.txt{suffix}", SPARSE.encode()))
        expected = np.array([[1, 0, 0, 0.5], [0, -0.2, 0, 0], [0, 0, 3, 0]], dtype=np.float32)
        np.testing.assert_array_equal(dataset.features.toarray(), expected)
        assert dataset.labels.toarray().tolist() == [[1, 0, 0, 0, 1], [0, 0, 1, 0, 0], [0, 0, 0, 0, 0]]
        assert dataset.label_index.keys == ["0", "1", "2", "3", "4"]
        assert dataset.document_ids() == ["0", "1", "2"]
        assert not dataset.has_text

    @pytest.mark.parametrize(
        "content",
        [
            b"\xef\xbb\xbf" + SPARSE.encode(),
            SPARSE.replace("\n", "\r\n").encode(),
            SPARSE.rstrip("\n").encode(),
            SPARSE.encode() + b"\n\r\n  \n",
            SPARSE.replace("\n 2:3", "\n2:3").encode(),
            SPARSE.replace("3 4 5", "0003 4\t5 ").encode(),
        ],
        ids=["mark", "carriage return", "no last line end", "blank end", "no space for no labels", "odd header"],
    )
    def test_other_ways_to_write_it(self, tmp_path, content):
        plain, other = tmp_path / "plain", tmp_path / "other"
        plain.write_text(SPARSE)
        other.write_bytes(content)
        one, two = read(plain), read(other)
        assert one.features.toarray().tolist() == two.features.toarray().tolist()
        assert one.labels.toarray().tolist() == two.labels.toarray().tolist()

    def test_rows_without_labels_or_features(self, tmp_path):
        path = write(tmp_path / "a", b"4 2 2", b"", b"1", b" 1:5", b"0,1 0:1")
        dataset = read(path)
        assert dataset.features.toarray().tolist() == [[0, 0], [0, 0], [0, 5], [1, 0]]
        assert dataset.labels.toarray().tolist() == [[0, 0], [0, 1], [0, 0], [1, 1]]

    def test_repeats_within_a_row(self, tmp_path):
        dataset = read(write(tmp_path / "a", b"1 2 2", b"1,1 0:1 1:2 0:3"))
        assert dataset.labels.toarray().tolist() == [[0, 1]]
        assert dataset.features.toarray().tolist() == [[4, 2]]

    def test_blocks_change_nothing(self, tmp_path, monkeypatch):
        rows = [f"{n % 5},{n % 3} {n % 4}:{n}" for n in range(200)]
        path = tmp_path / "a"
        path.write_text("\n".join(["200 4 5", *rows, ""]))
        whole = read(path)
        monkeypatch.setattr("xmtc.core.files.read_blocks.__defaults__", (50,))
        assert (read(path).features != whole.features).nnz == 0
        assert (read(path).labels != whole.labels).nnz == 0
        path.write_text("\n".join(["200 4 5", *rows[:150], "9 0:1", *rows[151:], ""]))
        check_refusal(path, 152)
        path.write_text("\n".join(["150 4 5", *rows]))
        check_refusal(path, 152)

    @pytest.mark.parametrize(
        ("header", "words"),
        [
            (b"1 4 5", "more documents than the 1"),
            (b"3 4", "plain text without labels"),
            (b"3 4 5 6", "plain text without labels"),
            (b"99999999999 4 5", "too large"),
            (b"2 4 99999999999999999999", "too large"),
            (b"2 4 " + b"9" * 5000, "too large"),
        ],
    )
    def test_a_header_that_is_wrong(self, tmp_path, header, words):
        message = check_refusal(write(tmp_path / "a", header, b"0 0:1", b"1 1:1"), 3 if header == b"1 4 5" else 1)
        assert words in message

    def test_a_header_that_promises_too_much(self, tmp_path):
        message = check_refusal(write(tmp_path / "a", b"1000 4 5", b"0 0:1", b"1 1:1"))
        assert "1,000 documents in the header, but 2 in the file" in message

    def test_no_header(self, tmp_path):
        assert "not a header" in check_refusal(write(tmp_path / "a", b"0 0:1"), 1, file_format="xmlrepo")

    @pytest.mark.parametrize(
        ("row", "words"),
        [
            (b"5 0:1", "label 5 is not below 5, the limit set by the header"),
            (b"9999999999999999999999 0:1", "is not below 5"),
            (b"7" * 5000 + b" 0:1", "is not below 5"),
            (b"-1 0:1", "label '-1' is not an integer"),
            (b"1, 0:1", "label '' is not an integer"),
            (b"1;2 0:1", "label '1;2' is not an integer"),
            (b"\xff\x85 0:1", "is not an integer"),
            (b"1 4:1", "feature 4 is not"),
            (b"1 -1:1", "feature -1 is not"),
            (b"1 0.5:1", "feature 0.5 is not"),
            (b"1 nan:1", "feature nan is not"),
            (b"1 inf:1", "feature inf is not"),
            (b"1 0:nan", "not finite"),
            (b"1 0:inf", "not finite"),
            (b"1 0:-Infinity", "not finite"),
            (b"1 0:1e39", "not finite"),
            (b"1 0:3e38 0:3e38", "sum to infinity"),
            (b"1 0:", "not a number"),
            (b"1 :1", "not a number"),
            (b"1 0:x", "not a number"),
            (b"1 0:1:2", "not of the form feature:value"),
            (b"1 2 0:1", "'2' is not of the form feature:value"),
        ],
    )
    def test_a_bad_row_is_named(self, tmp_path, row, words):
        assert words in check_refusal(write(tmp_path / "a", b"4 4 5", b"0 0:1", b"", row, b"1 1:1"), 4)

    def test_no_features_at_all(self, tmp_path):
        assert read(write(tmp_path / "a", b"2 0 1", b"0", b"")).features.shape == (2, 0)
        assert "< 0, the limit set by the header" in check_refusal(write(tmp_path / "b", b"1 0 1", b"0 0:1"), 2)

    def test_no_labels_at_all(self, tmp_path):
        assert read(write(tmp_path / "a", b"1 1 0", b" 0:1")).labels.shape == (1, 0)


class TestNoDocuments:
    @pytest.mark.parametrize(
        ("name", "content"),
        [("a.txt", b"0 5 5\n")]
        + [
            (name, content)
            for name in ("a.jsonl", "a.txt", "a.jsonl.gz", "a.txt.zst")
            for content in (b"", b"\n\n", b"\xef\xbb\xbf", b" \r\n")
        ],
    )
    def test_an_empty_file(self, tmp_path, name, content):
        path = pack(tmp_path / name, content)
        check_refusal(path)
        with pytest.raises(DataError, match="Write one"):
            list(stream(path))

    @pytest.mark.parametrize("file_format", [None, "jsonl", "xmlrepo"])
    def test_a_folder_and_a_missing_file(self, tmp_path, file_format):
        assert "is a folder" in check_refusal(tmp_path, file_format=file_format)
        assert "no such file" in check_refusal(tmp_path / "missing.jsonl", file_format=file_format)

    @pytest.mark.parametrize("suffix", [".gz", ".xz", ".zst", ".bz2"])
    @pytest.mark.parametrize("part", [0.05, 0.5, 0.99])
    def test_an_archive_cut_short(self, tmp_path, suffix, part):
        noise = random.Random(0)
        content = b"".join(
            json.dumps({"text": noise.randbytes(30).hex(), "labels": ["x"]}).encode() + b"\n" for _ in range(500)
        )
        path = pack(tmp_path / f"a.jsonl{suffix}", content)
        packed = path.read_bytes()
        path.write_bytes(packed[: int(len(packed) * part)])
        assert "damaged or truncated" in check_refusal(path)
        with pytest.raises(DataError, match="damaged or truncated"):
            list(stream(path))


def test_what_to_do_with_unknown_labels_has_two_answers(tmp_path):
    path = write(tmp_path / "a.jsonl", *ROWS)
    with pytest.raises(ConfigError, match="must be 'refuse' or 'drop'"):
        read(path, unknown_labels="count")


class TestSpool:
    """Text beyond the limit lies in a mapped file; nobody can tell from the columns."""

    @staticmethod
    def batches() -> list[pa.RecordBatch]:
        return [
            pa.record_batch({"id": [f"{n}"], "text": [f"text {n} " + "ö" * n], "title": ["" if n % 2 else "t"]})
            for n in range(100)
        ]

    @pytest.mark.parametrize("limit", [0, 1, 500, 3000])
    def test_same_columns_beyond_the_limit(self, limit):
        small, large = TextSpool(limit), TextSpool(1 << 30)
        for batch in self.batches():
            small.add(batch)
            large.add(batch)
        mapped, held = small.finish(), large.finish()
        assert mapped.equals(held)
        assert mapped.slice(40, 30).equals(held.slice(40, 30))
        rows = [99, 0, 50, 50]
        assert mapped.take(rows).equals(held.take(rows))

    def test_the_file_has_no_name(self, tmp_path, monkeypatch):
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        spool = TextSpool(0)
        for batch in self.batches():
            spool.add(batch)
        assert os.listdir(tmp_path) == []
        descriptors = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0
        table = spool.finish()
        assert os.listdir(tmp_path) == []
        if descriptors:
            assert len(os.listdir("/proc/self/fd")) <= descriptors  # mapped: no copy in memory, no open file of ours
        assert table.num_rows == 100

    def test_nothing_at_all(self):
        assert TextSpool().finish().num_rows == 0

    def test_a_file_beyond_the_limit_reads_the_same(self, tmp_path, monkeypatch):
        rows = [{"id": f"d{n}", "text": f"text {n}", "labels": [f"l{n % 7}", "all"]} for n in range(500)]
        path = write(tmp_path / "a.jsonl", *rows)
        monkeypatch.setattr("xmtc.core.files.read_blocks.__defaults__", (1000,))
        held = read(path)
        monkeypatch.setattr(reading_module, "TextSpool", lambda: TextSpool(2000))
        before = pa.total_allocated_bytes()
        mapped = read(path)
        assert pa.total_allocated_bytes() - before < sum(column.nbytes for column in held.fields.values())
        path.unlink()
        for one, two in [
            (held, mapped),
            (held.slice(123, 321), mapped.slice(123, 321)),
            (held.take([499, 3, 250]), mapped.take([499, 3, 250])),
        ]:
            assert one.text().to_pylist() == two.text().to_pylist()
            assert one.document_ids() == two.document_ids()
            assert label_sets(one) == label_sets(two)
        assert mapped.take([7]).text().to_pylist() == ["text 7"]
