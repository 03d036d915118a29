"""Label vocabularies: JSONL, TSV and plain lists, and what they do to the labels of a data file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_files import SUFFIXES, pack
from tests.unit.test_readers import label_sets, write
from xmtc.data import read, read_vocabulary
from xmtc.errors import DataError

SPARSE = b"3 2 3\n0,2 0:1\n1 1:1\n2 0:2\n"


def refusal(path: Path, line: int | None = None) -> str:
    with pytest.raises(DataError) as caught:
        read_vocabulary(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: " if line is None else f"{path}:{line}: ")
    assert message.isprintable()
    assert message.count(". ") >= 1
    assert message.endswith(".")
    return message


class TestForms:
    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_plain_list(self, tmp_path, suffix):
        content = "\ufeffgreen cheese\r\n\r\n  größe \nlast".encode()
        vocabulary = read_vocabulary(pack(tmp_path / f"labels.txt{suffix}", content))
        assert vocabulary.plain
        index = vocabulary.index
        assert index.keys == index.names == ["green cheese", "größe", "last"]

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_tsv(self, tmp_path, suffix):
        content = b"l1\tOne\tthe first\nl2\tTwo\n\nl3\t\tno name\nl4\n"
        vocabulary = read_vocabulary(pack(tmp_path / f"labels.tsv{suffix}", content))
        assert not vocabulary.plain
        index = vocabulary.index
        assert index.keys == ["l1", "l2", "l3", "l4"]
        assert index.names == ["One", "Two", "l3", "l4"]
        assert index.strings("description", [0, 1, 2, 3]) == ["the first", "", "no name", ""]

    @pytest.mark.parametrize("suffix", SUFFIXES)
    def test_jsonl(self, tmp_path, suffix):
        content = (
            b'\xef\xbb\xbf{"key": "l1", "name": "One", "alternatives": ["uno", 1], '
            b'"parents": ["l2"], "description": "d"}\n'
            b'\n{"id": 2, "name": null, "alt": ["zwei"], "broader": [7]}\n{"key": null, "id": "l3", "alt": null}'
        )
        vocabulary = read_vocabulary(pack(tmp_path / f"labels.jsonl{suffix}", content))
        assert not vocabulary.plain
        index = vocabulary.index
        assert index.keys == ["l1", "2", "l3"]
        assert index.names == ["One", "2", "l3"]
        assert index.table["alternatives"].to_pylist() == [["uno", "1"], ["zwei"], []]
        assert index.table["parents"].to_pylist() == [["l2"], ["7"], []]
        assert index.strings("description", [0, 1, 2]) == ["d", "", ""]

    def test_labels_are_found_as_a_person_writes_them(self, tmp_path):
        rows = {"key": "a", "name": "Ä b"}, {"key": "c", "alt": ["See"]}
        index = read_vocabulary(write(tmp_path / "l.jsonl", *rows)).index
        assert [index.find(words) for words in ("a", "Ä b", "ä B", "see", "C")] == [0, 0, 0, 1, 1]
        with pytest.raises(DataError, match="Did you mean 'Ä b'"):
            index.find("Ä bb")
        with pytest.raises(DataError, match="is not among"):
            index.find("\ud800\n")


class TestRefused:
    @pytest.mark.parametrize(
        ("name", "line", "words"),
        [
            ("l.txt", b"b", "label 'b' was on line 2 before"),
            ("l.txt", b" b ", "label 'b' was on line 2 before"),
            ("l.tsv", b"b\tother name", "label 'b' was on line 2 before"),
            ("l.tsv", b"\tname without key", "a label without a key"),
            ("l.txt", b"\xff", "not UTF-8 (byte 0xff at column 1)"),
        ],
    )
    def test_a_bad_line_of_text(self, tmp_path, name, line, words):
        assert words in refusal(write(tmp_path / name, b"a", b"b", b"", line), 4)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b'{"key": "b"}', "label 'b' was on line 2 before"),
            (b'{"key": ""}', "a label without a key"),
            (b'{"name": "x"}', 'no "key" or "id"'),
            (b'{"key": true}', 'no "key" or "id"'),
            (b'{"key": ["x"]}', 'no "key" or "id"'),
            (b'{"key": 1.5}', 'no "key" or "id"'),
            (b'{"key": "x", "name": ["y"]}', "'name' must be a string. Got ['y']"),
            (b'{"key": "x", "description": {}}', "'description' must be a string. Got {}"),
            (b'{"key": "x", "alt": "y"}', "'alt' must be a list of strings. Got y"),
            (b'{"key": "x", "parents": [null]}', "'parents' must be a list of strings"),
            (b'{"key": "\\ud800"}', "'key' holds half of a surrogate pair"),
            (b'{"key": "x", "name": "\\ud800"}', "'name' holds half of a surrogate pair"),
            (b'{"key": "x", "alternatives": ["\\udfff"]}', "'alternatives' holds half of a surrogate pair"),
            (b"x", "not JSON"),
            (b'["x"]', "not a JSON object"),
        ],
    )
    def test_a_bad_object(self, tmp_path, line, words):
        assert words in refusal(write(tmp_path / "l.jsonl", {"key": "a"}, {"key": "b"}, b"", line), 4)

    def test_the_example_is_of_a_label(self, tmp_path):
        assert '{"key": ' in refusal(write(tmp_path / "l.jsonl", b"x"), 1)

    @pytest.mark.parametrize("name", ["l.txt", "l.jsonl", "l.tsv.gz"])
    @pytest.mark.parametrize("content", [b"", b"\n \n"])
    def test_nothing_in_it(self, tmp_path, name, content):
        assert "no labels in it" in refusal(pack(tmp_path / name, content))

    def test_no_file(self, tmp_path):
        assert "no such file" in refusal(tmp_path / "missing.txt")
        assert "is a folder" in refusal(tmp_path)


class TestOnDocuments:
    ROWS = (
        {"text": "t", "labels": ["b", "a"]},
        {"text": "u", "labels": []},
        {"text": "v", "labels": ["a", "p1265"]},
        {"text": "w", "labels": ["q"]},
    )

    def test_an_unknown_label_is_refused_with_file_and_line(self, tmp_path):
        train = write(tmp_path / "train.jsonl", *self.ROWS[:2], b"", *self.ROWS[2:])
        labels = write(tmp_path / "labels.txt", b"a", b"b")
        with pytest.raises(DataError) as caught:
            read(train, vocabulary=labels)
        # such as train.jsonl:1482: label 'p1265' is not in labels.txt. Add it, or pass --unknown-labels drop.
        remedy = "Add it, or pass --unknown-labels drop."
        assert str(caught.value) == f"{train}:4: label 'p1265' is not in labels.txt. {remedy}"

    def test_an_unknown_label_of_awkward_characters(self, tmp_path):
        train = write(tmp_path / "train.jsonl", {"text": "t", "labels": ["x\n\u2028" + "y" * 500]})
        with pytest.raises(DataError) as caught:
            read(train, vocabulary=write(tmp_path / "labels.txt", b"a"))
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) < len(str(train)) + 200

    def test_an_unknown_label_is_dropped(self, tmp_path):
        train = write(tmp_path / "train.jsonl", *self.ROWS)
        labels = write(tmp_path / "labels.tsv", b"unused\tUnused", b"b\tBee", b"a\tAy")
        dataset = read(train, vocabulary=labels, unknown_labels="drop")
        assert label_sets(dataset) == [{"a", "b"}, set(), {"a"}, set()]
        assert dataset.label_index.keys == ["b", "a"]  # in the vocabulary's order, without what no document holds
        assert dataset.label_index.names == ["Bee", "Ay"]
        assert len(dataset) == 4

    def test_dropping_all(self, tmp_path):
        train = write(tmp_path / "train.jsonl", *self.ROWS)
        dataset = read(train, vocabulary=write(tmp_path / "l.txt", b"z"), unknown_labels="drop")
        assert dataset.labels.shape == (4, 0)


class TestNumbers:
    """The XMLRepository's label numbers: lines of a plain list name them, keys of other forms are looked up."""

    @pytest.fixture
    def train(self, tmp_path):
        path = tmp_path / "train.txt"
        path.write_bytes(SPARSE)
        return path

    def test_lines_name_the_labels(self, tmp_path, train):
        dataset = read(train, vocabulary=write(tmp_path / "Y.txt", b"zero", b"one", b"two", b"three"))
        assert dataset.label_index.keys == ["0", "1", "2"]
        assert dataset.label_index.names == ["zero", "one", "two"]
        assert label_sets(dataset) == [{"0", "2"}, {"1"}, {"2"}]

    def test_names_may_be_empty_or_there_twice(self, tmp_path, train):
        dataset = read(train, vocabulary=write(tmp_path / "Y.txt", b"same", b"", b"same"))
        assert dataset.label_index.names == ["same", "1", "same"]

    def test_too_few_names(self, tmp_path, train):
        labels = write(tmp_path / "Y.txt", b"zero", b"one")
        with pytest.raises(DataError) as caught:
            read(train, vocabulary=labels)
        assert str(caught.value) == f"{labels}: 2 names for the 3 labels of {train}. Add the rest."

    @pytest.mark.parametrize("name", ["Y.tsv", "Y.jsonl"])
    def test_keys_are_looked_up(self, tmp_path, train, name):
        rows = {
            "Y.tsv": [b"2\ttwo", b"0\tzero", b"9\tnine", b"1\tone"],
            "Y.jsonl": [{"id": number, "name": word} for number, word in ((2, "two"), (0, "zero"), (1, "one"))],
        }
        dataset = read(train, vocabulary=write(tmp_path / name, *rows[name]))
        assert dataset.label_index.names == ["two", "zero", "one"]
        assert label_sets(dataset) == [{"0", "2"}, {"1"}, {"2"}]

    def test_a_number_without_key(self, tmp_path, train):
        with pytest.raises(DataError) as caught:
            read(train, vocabulary=write(tmp_path / "Y.tsv", b"2\ttwo", b"0\tzero"))
        assert str(caught.value).startswith(f"{train}:3: label '1' is not in Y.tsv. Add it")

    def test_an_empty_list(self, tmp_path, train):
        with pytest.raises(DataError, match="no labels in it"):
            read(train, vocabulary=write(tmp_path / "Y.txt"))
