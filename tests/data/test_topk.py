"""TopK: the best few labels of each document, in memory and in files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.packing import pack
from tests.support.reading import write
from xmtc.core.errors import DataError
from xmtc.data import topk
from xmtc.data.label_index import LabelIndex
from xmtc.data.topk import ANSWERS, TopK, arrow_schema, part_name, write_parquet

INDEX = LabelIndex.from_keys(["k0", "größe\u2028", "🥔", "k3"], names=["zero", "Größe\n", "potato 🥔", "three"])
FILES = ["a.jsonl", "a.parquet", "a", "a.jsonl.gz", "a.jsonl.zst", "a.parquet.xz"]


def answers() -> TopK:
    labels = [[2, 1, 0], [3, -1, -1], [-1, -1, -1]]
    scores = [[0.1, 1 / 3, -1e-30], [7.0, -np.inf, -np.inf], [-np.inf] * 3]
    return TopK(labels, scores, INDEX, ["a", "ö\u2028", "3"])


class TestMemory:
    def test_known_words_travel(self, tmp_path):
        top = TopK([[0, 1], [1, 0], [2, -1]], np.zeros((3, 2)), INDEX, None, [True, False, True])
        assert ["known_words" in row for row in top.rows()] == [False, True, False]
        assert list(top.rows())[1]["known_words"] is False
        both = TopK.concatenate(
            [top.first(1).named(["a", "b", "c"]), top.relabelled([[0], [0], [0]], np.zeros((3, 1)))]
        )
        assert both.known_words.tolist() == [True, False, True] * 2
        assert TopK.concatenate([top, TopK(top.labels, top.scores, INDEX)]).known_words is None
        for name in ("a.jsonl", "a.parquet"):
            top.write(tmp_path / name)
            assert TopK.read(tmp_path / name).known_words.tolist() == [True, False, True]
            assert TopK.read(tmp_path / name, INDEX).known_words.tolist() == [True, False, True]
            answers().write(tmp_path / name)
            assert TopK.read(tmp_path / name).known_words is None
        with pytest.raises(DataError, match="known_words has the shape"):
            TopK([[0]], [[1.0]], INDEX, None, [True, False])

    def test_names_keys_and_pairs_leave_pads_out(self):
        top = answers()
        assert top.names() == [["potato 🥔", "Größe\n", "zero"], ["three"], []]
        assert top.keys() == [["🥔", "größe\u2028", "k0"], ["k3"], []]
        assert top.pairs()[0] == list(zip(top.names()[0], top.scores[0].tolist(), strict=True))
        assert top.pairs()[1:] == [[("three", 7.0)], []]
        assert len(top) == 3
        assert top.k == 3

    def test_a_pad_between_labels_shifts_no_score(self):
        top = TopK([[-1, 0, 3]], [[-np.inf, 0.5, 0.25]], INDEX)
        assert top.pairs() == [[("zero", 0.5), ("three", 0.25)]]
        assert [label["score"] for label in next(top.rows())["labels"]] == [0.5, 0.25]

    def test_first(self):
        top = answers().first(1)
        assert top.keys() == [["🥔"], ["k3"], []]
        assert top.ids == answers().ids
        assert answers().first(10).keys() == answers().keys()

    def test_no_rows(self):
        top = TopK(np.empty((0, 5)), np.empty((0, 5)), INDEX)
        assert top.names() == top.pairs() == list(top.rows()) == []

    def test_ids_default_to_row_numbers_and_are_text(self):
        assert TopK([[0], [1]], [[1], [1]], INDEX).ids == ["0", "1"]
        assert TopK([[0], [1]], [[1], [1]], INDEX, [7, 8]).ids == ["7", "8"]

    def test_concatenate(self):
        top = answers()
        both = TopK.concatenate([top, top])
        assert both.keys() == top.keys() * 2
        assert both.ids == top.ids * 2
        for parts in ([], [top, top.first(1)]):
            with pytest.raises(DataError, match="must have the same k"):
                TopK.concatenate(parts)

    @pytest.mark.parametrize(
        ("labels", "scores", "ids", "words"),
        [
            ([0], [1.0], None, "must be (n, k) arrays"),
            ([[0]], [[1.0, 2.0]], None, "must be (n, k) arrays"),
            ([[0], [1, 2]], [[1.0], [2.0]], None, "must be (n, k) arrays"),
            ([["x"]], [[1.0]], None, "must be (n, k) arrays"),
            ([[0]], [[1.0]], ["a", "b"], "2 document ids for 1 rows"),
            ([[0, 4]], [[1.0, 0.5]], None, "label 4 is out of range for 4 labels"),
        ],
    )
    def test_refused(self, labels, scores, ids, words):
        with pytest.raises(DataError) as caught:
            TopK(labels, scores, INDEX, ids)
        assert words in str(caught.value)


class TestRoundTrip:
    @pytest.mark.parametrize("name", FILES)
    def test_with_the_index(self, tmp_path, name):
        top = answers()
        top.write(tmp_path / name)
        back = TopK.read(tmp_path / name, INDEX)
        np.testing.assert_array_equal(back.labels, top.labels)
        np.testing.assert_array_equal(back.scores, top.scores)
        assert back.scores.dtype == np.float32
        assert back.ids == top.ids

    @pytest.mark.parametrize("name", FILES)
    def test_without_the_index(self, tmp_path, name):
        answers().write(tmp_path / name)
        back = TopK.read(tmp_path / name)
        assert back.names() == answers().names()
        assert back.keys() == answers().keys()
        assert back.pairs() == answers().pairs()

    @pytest.mark.parametrize("name", FILES)
    def test_no_rows(self, tmp_path, name):
        TopK(np.empty((0, 5)), np.empty((0, 5)), INDEX).write(tmp_path / name)
        assert len(TopK.read(tmp_path / name)) == 0

    def test_lines_of_json(self, tmp_path):
        answers().write(tmp_path / "a.jsonl")
        rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().split("\n")[:-1]]
        assert [row["id"] for row in rows] == answers().ids
        assert rows[1]["labels"] == [{"key": "k3", "name": "three", "score": 7.0}]
        assert rows[0]["labels"][0]["score"] == 0.1  # as short as float32 allows, not 0.10000000149011612
        assert rows[2]["labels"] == []

    def test_parquet_for_others(self, tmp_path):
        answers().write(tmp_path / "a.parquet")
        table = pq.read_table(tmp_path / "a.parquet")
        assert table.schema.equals(arrow_schema())
        assert [row["key"] for row in table["labels"][0].as_py()] == answers().keys()[0]

    @pytest.mark.parametrize("cells", [1, 4, 1 << 19])
    def test_arrow_says_what_the_rows_say(self, monkeypatch, tmp_path, cells):
        """In one piece or in many: what is held at once does not matter."""
        monkeypatch.setattr(topk, "_CELLS", cells)
        parts = [answers(), answers().first(1), TopK([[-1, 3]], [[-np.inf, 0.5]], INDEX, ["pad first"])]
        for top in parts:
            assert top.to_arrow() == pa.Table.from_pylist(list(top.rows()), arrow_schema())
        with (tmp_path / "a.parquet").open("wb") as stream:
            assert write_parquet(parts, stream) == 7
        whole = pq.ParquetFile(tmp_path / "a.parquet")
        assert whole.read() == pa.concat_tables([top.to_arrow() for top in parts])
        assert whole.num_row_groups == {1: 3, 4: 2}.get(cells, 1)

    @given(
        st.lists(
            st.lists(
                st.tuples(st.integers(0, 3), st.floats(width=32, allow_nan=False)), max_size=4, unique_by=lambda p: p[0]
            )
        )
    )
    def test_any_scores(self, tmp_path_factory, rows):
        labels = np.full((len(rows), 4), -1)
        scores = np.full((len(rows), 4), -np.inf, np.float32)
        for number, row in enumerate(rows):
            for rank, (label, score) in enumerate(row):
                labels[number, rank], scores[number, rank] = label, score
        top = TopK(labels, scores, INDEX)
        for name in ("a.jsonl", "a.parquet"):
            path = tmp_path_factory.getbasetemp() / name
            top.write(path)
            assert TopK.read(path, INDEX).pairs() == top.pairs()


class TestFolder:
    @pytest.fixture
    def folder(self, tmp_path):
        """Two parts that are complete."""
        answers().write(tmp_path / part_name(0))
        answers().first(1).write(tmp_path / part_name(1))
        self.say(tmp_path, complete=True, documents=6, parts=2)
        return tmp_path

    @staticmethod
    def say(folder, **words):
        (folder / ANSWERS).write_text(json.dumps({"format": 1, "made_of": {}, **words}))

    def test_parts_in_order(self, folder):
        for index in (None, INDEX):
            top = TopK.read(folder, index)
            assert top.ids == answers().ids * 2
            assert top.keys() == answers().keys() + answers().first(1).keys()
        answers().write(folder / part_name(2))  # beyond what is said to be there
        assert len(TopK.read(folder)) == 6

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            ({"complete": False}, "the predictions are incomplete. Run the same command again with --resume."),
            ({"complete": True, "documents": 7, "parts": 2}, "6 documents, expected 7. "),
            ({"complete": True, "documents": 6, "parts": 3}, "part-00002.parquet: missing, so the folder is damaged. "),
            ({"complete": True, "documents": 6}, "_answers.json: damaged. "),
            ({"complete": True, "documents": 6, "parts": "2"}, "_answers.json: damaged. "),
            ({"complete": True, "documents": 6, "parts": 1.5}, "_answers.json: damaged. "),
            ({"complete": False, "made_of": 3}, "_answers.json: damaged. "),
            ({"format": 2}, "_answers.json: format 2; this version of xmtc reads format 1. "),
        ],
    )
    def test_refused(self, folder, words, message):
        self.say(folder, **words)
        with pytest.raises(DataError) as caught:
            TopK.read(folder)
        assert str(caught.value).startswith(str(folder))
        assert message in str(caught.value)

    def test_not_such_a_folder(self, folder):
        (folder / ANSWERS).unlink()
        with pytest.raises(DataError, match=r"not a folder of predictions: _answers.json is missing."):
            TopK.read(folder)


class TestFilesOfOthers:
    def test_numbers_as_ids_no_names_other_fields(self, tmp_path):
        path = write(
            tmp_path / "a.jsonl",
            b'\xef\xbb\xbf{"id": 12, "labels": [{"score": 1, "key": "b"}, {"key": "a", "score": 0.5, "name": null}]}\r',
            b"",
            {"id": "x", "labels": [{"key": "a", "name": "Ay", "score": -2, "why": [1]}], "model": {"name": "m"}},
        )
        top = TopK.read(path)
        assert top.ids == ["12", "x"]
        assert top.keys() == [["b", "a"], ["a"]]
        assert top.names()[1] == ["Ay"]
        assert top.scores.tolist() == [[1, 0.5], [-2, -np.inf]]

    def test_parquet_with_other_types(self, tmp_path):
        labels = [[{"key": "b", "score": 1.0}], []]
        pq.write_table(pa.table({"extra": [1, 2], "id": [7, 8], "labels": labels}), tmp_path / "a.parquet")
        top = TopK.read(tmp_path / "a.parquet")
        assert top.ids == ["7", "8"]
        assert top.pairs() == [[("b", 1.0)], []]

    def test_labels_the_index_does_not_have(self, tmp_path):
        path = write(tmp_path / "a.jsonl", {"id": "1", "labels": [{"key": "not\nthere", "score": 1}]})
        with pytest.raises(DataError) as caught:
            TopK.read(path, INDEX)
        assert str(caught.value).startswith(rf"{path}: label 'not\nthere' is not in the label index. ")

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b"{", "invalid JSON"),
            (b"[]", "not a JSON object"),
            (b"[" * 100_000, "nested"),
            (b"\xff", "not UTF-8"),
            (b"{}", "not a prediction"),
            (b'{"labels": []}', "not a prediction"),
            (b'{"id": null, "labels": []}', "not a prediction"),
            (b'{"id": [], "labels": []}', "not a prediction"),
            (b'{"id": "1", "labels": {}}', "not a prediction"),
            (b'{"id": "1", "labels": ["a"]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": "a"}]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"score": 1}]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": 5, "score": 1}]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": "a", "score": "1"}]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": "a", "score": true}]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": "a", "score": NaN}]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": "a", "score": 1' + b"0" * 400 + b"}]}", "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": "a", "score": 1, "name": []}]}', "has no valid key or score"),
            (b'{"id": "1", "labels": [{"key": "\\ud800", "score": 1}]}', "unpaired surrogate"),
            (b'{"id": "\\ud800", "labels": []}', "unpaired surrogate"),
            (b'{"id": "1", "labels": [{"key": "a", "score": 1}, {"key": "a", "score": 0}]}', "occurs twice"),
        ],
    )
    def test_a_bad_line_is_named(self, tmp_path, line, words):
        path = write(tmp_path / "a.jsonl", {"id": "0", "labels": []}, b"", line)
        with pytest.raises(DataError) as caught:
            TopK.read(path)
        message = str(caught.value)
        assert message.startswith(f"{path}:3: ")
        assert words in message
        assert message.isprintable()
        assert message.endswith(".")

    @pytest.mark.parametrize(
        "content",
        [b"", b"PAR1", b"not parquet at all" * 20, b"PAR1" + bytes(100) + b"PAR1"],
    )
    def test_broken_parquet(self, tmp_path, content):
        path = tmp_path / "a.parquet"
        path.write_bytes(content)
        self.check_refused(path, f"{path}: not a readable Parquet file (")

    def test_parquet_cut_short_or_flipped(self, tmp_path):
        path = tmp_path / "a.parquet"
        answers().write(path)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        self.check_refused(path, f"{path}: not a readable Parquet file (")

    def test_parquet_of_something_else(self, tmp_path):
        path = tmp_path / "a.parquet"
        for columns in ({"x": [1]}, {"id": [1], "labels": ["a"]}, {"id": [None], "labels": [[{"key": "a"}]]}):
            pq.write_table(pa.table(columns), path)
            self.check_refused(path, f"{path}:1: ")

    @pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
    def test_no_file(self, tmp_path, name):
        self.check_refused(tmp_path / name, f"{tmp_path / name}: no such file. ")
        (tmp_path / name).mkdir()
        self.check_refused(tmp_path / name, f"{tmp_path / name}: not a folder of predictions")

    @pytest.mark.parametrize("name", ["a.jsonl.gz", "a.parquet.gz"])
    def test_an_archive_cut_short(self, tmp_path, name):
        path = pack(tmp_path / name, b'{"id": "1", "labels": []}\n' * 100)
        path.write_bytes(path.read_bytes()[:-10])
        self.check_refused(path, f"{path}: ")

    @staticmethod
    def check_refused(path: Path, start: str) -> None:
        with pytest.raises(DataError) as caught:
            TopK.read(path)
        assert str(caught.value).startswith(start)
        assert str(caught.value).isprintable()
        assert str(caught.value).endswith(".")
