"""Label vocabularies: JSONL, TSV and plain lists, read and written, and what they do to the labels of a data file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.packing import SUFFIXES, pack
from tests.support.reading import label_sets, write
from tests.support.reading import vocabulary_refusal as refusal
from xmtc.core.errors import DataError
from xmtc.data import read, read_vocabulary
from xmtc.data.label_index import FURTHER, LabelIndex
from xmtc.data.vocabularies import LabelVocabulary, apply, write_vocabulary

SPARSE = b"3 2 3\n0,2 0:1\n1 1:1\n2 0:2\n"


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

    @pytest.mark.parametrize("header", ["key\tname", "URI\tlabel\tdescription", " id \t Name"])
    def test_the_header_of_a_tsv(self, tmp_path, header):
        (tmp_path / "labels.tsv").write_text(f"{header}\nl1\tOne\nkey\tname\n")
        assert read_vocabulary(tmp_path / "labels.tsv").index.keys == ["l1", "key"]  # a label further down

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

    def test_narrower_labels_of_jsonl(self, tmp_path):
        """The inverse of broader ones; those that are not in the vocabulary are ignored, as is the label itself."""
        path = write(
            tmp_path / "l.jsonl",
            {"key": "a", "narrower": ["b", "c", "a", "x", "old"]},
            {"key": "b", "broader": ["a", "y"]},
            {"key": "c", "narrower": ["b"]},
            {"key": "old", "replaced_by": "a", "narrower": ["c"]},
        )
        assert read_vocabulary(path).index.table["parents"].to_pylist() == [[], ["a", "y", "c"], ["a"]]

    def test_further_fields_of_jsonl(self, tmp_path):
        first = {"related": ["b"], "notes": ["n", "m"], "schemes": ["s", "t"], "collections": ["c"], "types": ["x"]}
        second = {
            "key": "b",
            "scheme": "s",
            "note": "one",
            "related": "a",
            "types": 5,
            "collections": "",
            "notes": None,
        }
        index = read_vocabulary(write(tmp_path / "l.jsonl", {"key": "a", "status": "candidate", **first}, second)).index
        assert {name: index.table[name].to_pylist() for name in FURTHER} == {
            "related": [["b"], ["a"]],
            "notes": [["n", "m"], ["one"]],
            "schemes": [["s", "t"], ["s"]],
            "collections": [["c"], []],
            "types": [["x"], ["5"]],
            "status": ["candidate", ""],
        }

    @pytest.mark.parametrize("name", ["labels", "labels.txt", "labels.gz"])
    def test_jsonl_is_told_by_content_too(self, tmp_path, name):
        content = b'\xef\xbb\xbf\n{ "key": "l1", "name": "One"}\n'
        assert read_vocabulary(pack(tmp_path / name, content)).index.names == ["One"]
        assert read_vocabulary(pack(tmp_path / "l.tsv", b'{"a"\tOne\n')).index.keys == ['{"a"']
        assert read_vocabulary(pack(tmp_path / "l.txt", b"{a}\n@prefix\nprefix x\n")).plain

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
            ("l.txt", b"b", "label 'b' is already on line 2"),
            ("l.txt", b" b ", "label 'b' is already on line 2"),
            ("l.tsv", b"b\tother name", "label 'b' is already on line 2"),
            ("l.tsv", b"\tname without key", "a label has no key"),
            ("l.txt", b"\xff", "not UTF-8 (byte 0xff at column 1)"),
        ],
    )
    def test_a_bad_line_of_text(self, tmp_path, name, line, words):
        assert words in refusal(write(tmp_path / name, b"a", b"b", b"", line), 4)

    @pytest.mark.parametrize(
        ("line", "words"),
        [
            (b'{"key": "b"}', "label 'b' is already on line 2"),
            (b'{"key": ""}', "a label has no key"),
            (b'{"name": "x"}', 'no "key" or "id"'),
            (
                b'{"id": "d1", "text": "a", "labels": ["b"]}',
                "is a document with labels, not a label. Pass a vocabulary: {",
            ),
            (b'{"key": true}', 'no "key" or "id"'),
            (b'{"key": ["x"]}', 'no "key" or "id"'),
            (b'{"key": 1.5}', 'no "key" or "id"'),
            (b'{"key": "x", "name": ["y"]}', "'name' must be a string. Got ['y']"),
            (b'{"key": "x", "description": {}}', "'description' must be a string. Got {}"),
            (b'{"key": "x", "alt": "y"}', "'alt' must be a list of strings. Got y"),
            (b'{"key": "x", "parents": [null]}', "'parents' must be a list of strings"),
            (b'{"key": "x", "related": {"y": 1}}', "'related' must be a list of strings"),
            (b'{"key": "x", "scheme": [["y"]]}', "'scheme' must be a list of strings"),
            (b'{"key": "x", "status": ["a", "b"]}', "'status' must be a string"),
            (b'{"key": "x", "notes": "\\ud800"}', "'notes' contains an unpaired surrogate"),
            (b'{"key": "\\ud800"}', "'key' contains an unpaired surrogate"),
            (b'{"key": "x", "name": "\\ud800"}', "'name' contains an unpaired surrogate"),
            (b'{"key": "x", "alternatives": ["\\udfff"]}', "'alternatives' contains an unpaired surrogate"),
            (b'{"key": "x", "deprecated": "yes"}', "'deprecated' must be true or false. Got yes"),
            (b'{"key": "x", "replaced_by": true}', "'replaced_by' must be a list of strings. Got True"),
            (b'{"key": "x", "replaced_by": [["a"]]}', "'replaced_by' must be a list of strings"),
            (b'{"key": "x", "replaced_by": "\\ud800"}', "'replaced_by' contains an unpaired surrogate"),
            (b"x", "invalid JSON"),
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
        assert "contains no labels" in refusal(pack(tmp_path / name, content))

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
        assert dataset.label_index.keys == ["unused", "b", "a"]  # the whole vocabulary
        assert dataset.used_labels().label_index.names == ["Bee", "Ay"]
        assert len(dataset) == 4

    def test_dropping_all(self, tmp_path):
        train = write(tmp_path / "train.jsonl", *self.ROWS)
        dataset = read(train, vocabulary=write(tmp_path / "l.txt", b"z"), unknown_labels="drop")
        assert dataset.labels.shape == (4, 1)
        assert dataset.used_labels().labels.shape == (4, 0)


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
        assert str(caught.value) == f"{labels}: 2 names for the 3 labels of {train}. Add the missing names."

    @pytest.mark.parametrize("name", ["Y.tsv", "Y.jsonl"])
    def test_keys_are_looked_up(self, tmp_path, train, name):
        rows = {
            "Y.tsv": [b"2\ttwo", b"0\tzero", b"9\tnine", b"1\tone"],
            "Y.jsonl": [{"id": number, "name": word} for number, word in ((2, "two"), (0, "zero"), (1, "one"))],
        }
        dataset = read(train, vocabulary=write(tmp_path / name, *rows[name]))
        assert dataset.used_labels().label_index.names == ["two", "zero", "one"]
        assert label_sets(dataset) == [{"0", "2"}, {"1"}, {"2"}]

    def test_a_number_without_key(self, tmp_path, train):
        with pytest.raises(DataError) as caught:
            read(train, vocabulary=write(tmp_path / "Y.tsv", b"2\ttwo", b"0\tzero"))
        assert str(caught.value).startswith(f"{train}:3: label '1' is not in Y.tsv. Add it")

    def test_an_empty_list(self, tmp_path, train):
        with pytest.raises(DataError, match="contains no labels"):
            read(train, vocabulary=write(tmp_path / "Y.txt"))


class TestDeprecated:
    def read(self, tmp_path: Path, *rows: dict) -> LabelVocabulary:
        return read_vocabulary(write(tmp_path / "l.jsonl", *rows))

    def test_labels_in_use_and_others(self, tmp_path):
        vocabulary = self.read(
            tmp_path,
            {"key": "old", "name": "Old", "deprecated": True, "replaced_by": "new"},
            {"key": "a", "deprecated": False, "replaced_by": None},
            {"key": "gone", "deprecated": True},
            {"key": 7, "replaced_by": 8},  # what is replaced is deprecated
            {"key": "new", "deprecated": None, "replaced_by": []},
            {"key": 8},
        )
        assert vocabulary.index.keys == ["a", "new", "8"]
        assert vocabulary.replaced == {"old": "new", "7": "8"}
        assert vocabulary.deprecated == {"gone"}

    def test_of_several_the_first_that_leads_somewhere(self, tmp_path):
        vocabulary = self.read(
            tmp_path,
            {"key": "x", "replaced_by": ["nowhere", "y", "b", "a"]},
            {"key": "y", "replaced_by": ["x", "z"]},
            {"key": "z", "deprecated": True},
            {"key": "v", "replaced_by": ["w", "a"]},
            {"key": "w", "replaced_by": ["b"]},
            {"key": "a"},
            {"key": "b"},
        )
        assert vocabulary.replaced == {"x": "b", "y": "b", "v": "b", "w": "b"}
        assert vocabulary.deprecated == {"z"}

    def test_chains_circles_and_dead_ends(self, tmp_path):
        chain = [{"key": f"c{n}", "replaced_by": f"c{n + 1}"} for n in range(20_000)]
        circle = [{"key": f"o{n}", "deprecated": True, "replaced_by": f"o{(n + 1) % 20_000}"} for n in range(20_000)]
        dead = [{"key": f"d{n}", "deprecated": True, "replaced_by": f"d{n + 1}"} for n in range(20_000)]
        vocabulary = self.read(
            tmp_path, *chain, *circle, *dead, {"key": "c20000"}, {"key": "self", "replaced_by": "self"}
        )
        assert vocabulary.replaced == {row["key"]: "c20000" for row in chain}
        assert vocabulary.deprecated == {row["key"] for row in circle + dead} | {"self"}

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from("abcdefghUV?"), max_size=3), min_size=1)
    )
    def test_any_web_of_replacements(self, tmp_path, web):
        rows = [{"key": key, "deprecated": True, "replaced_by": to} for key, to in web.items()]
        vocabulary = self.read(tmp_path, {"key": "U"}, *rows, {"key": "V"})

        def reached(key: str, seen: frozenset[str] = frozenset()) -> set[str]:
            onward = (reached(to, seen | {key}) for to in web.get(key, []) if to not in seen | {key})
            return {key}.union(*onward)

        ends = {key: reached(key) & {"U", "V"} for key in web}
        assert vocabulary.deprecated == {key for key in web if not ends[key]}
        assert vocabulary.replaced.keys() == {key for key in web if ends[key]}
        for key, new in vocabulary.replaced.items():
            assert new in ends[key]
            if web[key][0] in ("U", "V"):
                assert new == web[key][0]

    def test_nothing_in_use(self, tmp_path):
        path = write(tmp_path / "l.jsonl", {"key": "a", "replaced_by": "b"}, {"key": "b", "deprecated": True})
        assert "all labels are deprecated" in refusal(path)

    def test_a_deprecated_label_is_there_once(self, tmp_path):
        path = write(tmp_path / "l.jsonl", {"key": "a", "deprecated": True}, {"key": "a"})
        assert "label 'a' is already on line 1" in refusal(path, 2)


class TestApply:
    VOCABULARY = LabelVocabulary(
        LabelIndex.from_keys(["a", "ö"]), replaced={"old": "a", "älter": "ö"}, deprecated=frozenset("z")
    )

    @pytest.mark.parametrize("kind", [pa.string(), pa.large_string()])
    def test_replaced_keys_are_exchanged(self, kind):
        keys = pa.array(["a", "old", "z", None, "älter", "", "unknown", "old"], kind)
        now = apply(keys, self.VOCABULARY)
        assert now.type == kind
        assert now.to_pylist() == ["a", "a", "z", None, "ö", "", "unknown", "a"]
        assert apply(keys.slice(1, 1), self.VOCABULARY).to_pylist() == ["a"]
        assert apply(pa.array([], kind), self.VOCABULARY).to_pylist() == []

    def test_nothing_to_exchange(self):
        keys = pa.array(["old", "a"])
        assert apply(keys, LabelVocabulary(LabelIndex.from_keys(["a"]))) is keys


ODD = st.text(max_size=12) | st.text('\x00\t\n\r\x0b\x85\u2028\ufeff\uffff🥔ö\u0301\\"{}[], @#<', max_size=6)
NAMES = ODD.filter(bool)  # a label without a name is shown by its key
LINES = ODD.map(lambda text: "".join(c for c in text if c not in "\t\r\n\ufeff").strip()).filter(bool)
KEYS = LINES.filter(lambda text: not (text.startswith("<") and text.endswith(">")))  # which TSV reads as marks of a URI


@st.composite
def vocabularies(draw) -> LabelVocabulary:
    keys = draw(st.lists(NAMES, unique=True, min_size=1, max_size=12))
    used = draw(st.integers(1, len(keys)))
    replaced = draw(st.integers(used, len(keys)))
    lists = st.lists(ODD, max_size=3)
    columns = [draw(st.lists(of, min_size=used, max_size=used)) for of in (NAMES, lists, lists, ODD)]
    further = {
        name: draw(st.none() | st.lists(ODD if name == "status" else lists, min_size=used, max_size=used))
        for name in FURTHER
    }
    return LabelVocabulary(
        LabelIndex.from_keys(keys[:used], *columns, **further),
        replaced={key: draw(st.sampled_from(keys[:used])) for key in keys[used:replaced]},
        deprecated=frozenset(keys[replaced:]),
    )


class TestWritten:
    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(vocabularies(), st.sampled_from(["l.jsonl", "l.json", "labels", "l.txt", "l.jsonl.gz", "l.ndjson.zst"]))
    def test_jsonl_comes_back(self, tmp_path, vocabulary, name):
        write_vocabulary(vocabulary, tmp_path / name)
        assert read_vocabulary(tmp_path / name) == vocabulary
        assert read_vocabulary(tmp_path / name, numbered=True) == vocabulary

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(
        st.dictionaries(KEYS, st.tuples(LINES, st.just("") | LINES), min_size=1), st.sampled_from(["", ".gz", ".xz"])
    )
    def test_tsv_comes_back(self, tmp_path, rows, suffix):
        names, descriptions = zip(*rows.values(), strict=True)
        vocabulary = LabelVocabulary(LabelIndex.from_keys(list(rows), names, descriptions=descriptions))
        write_vocabulary(vocabulary, tmp_path / f"l.tsv{suffix}")
        assert read_vocabulary(tmp_path / f"l.tsv{suffix}") == vocabulary

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(vocabularies())
    def test_tsv_comes_back_or_is_refused(self, tmp_path, vocabulary):
        path = tmp_path / "l.tsv"
        path.unlink(missing_ok=True)
        try:
            write_vocabulary(vocabulary, path)
        except DataError as error:
            message = str(error)
            assert not path.exists()
        else:
            assert read_vocabulary(path) == vocabulary
            return
        assert message.isprintable()
        assert message.startswith(f"{path}: TSV ")

    @pytest.mark.parametrize("key", ["<>", "<http://x/1>"])
    def test_a_key_in_angle_brackets_is_refused_in_tsv(self, tmp_path, key):
        vocabulary = LabelVocabulary(LabelIndex.from_keys([key]))
        with pytest.raises(DataError, match=rf"TSV cannot store the angle brackets of '{key}'\. Write JSONL\."):
            write_vocabulary(vocabulary, tmp_path / "l.tsv")
        assert not (tmp_path / "l.tsv").exists()
        write_vocabulary(vocabulary, tmp_path / "l.jsonl")
        assert read_vocabulary(tmp_path / "l.jsonl") == vocabulary

    def test_lines_that_people_read(self, tmp_path):
        index = LabelIndex.from_keys(["a", "b"], ["Käse", "b"], [["x"], []], [[], ["a"]], ["", "d"])
        write_vocabulary(LabelVocabulary(index, replaced={"c": "a"}, deprecated=frozenset("zy")), tmp_path / "l.jsonl")
        assert (tmp_path / "l.jsonl").read_text().splitlines() == [
            '{"key": "a", "name": "Käse", "alternatives": ["x"]}',
            '{"key": "b", "name": "b", "parents": ["a"], "description": "d"}',
            '{"key": "c", "deprecated": true, "replaced_by": "a"}',
            '{"key": "y", "deprecated": true}',
            '{"key": "z", "deprecated": true}',
        ]
        write_vocabulary(
            LabelVocabulary(LabelIndex.from_keys(["a", "b"], ["A", "b"], descriptions=["", "d"])), tmp_path / "l.tsv"
        )
        assert (tmp_path / "l.tsv").read_text() == "a\tA\nb\tb\td\n"

    def test_a_plain_list_gets_keys(self, tmp_path):
        listed = read_vocabulary(write(tmp_path / "Y.txt", b"zero", b"", b"two"), numbered=True)
        assert listed.plain
        for name in ("Y.jsonl", "Y.tsv"):
            write_vocabulary(listed, tmp_path / name)
            again = read_vocabulary(tmp_path / name, numbered=True)
            assert again == LabelVocabulary(listed.index)
            assert again.index.keys == ["0", "1", "2"]

    @pytest.mark.parametrize(
        ("vocabulary", "name", "words"),
        [
            (
                LabelVocabulary(LabelIndex.from_keys(["a"], alternatives=[["x"]])),
                "l.tsv",
                "no column for 'alternatives' of 'a'",
            ),
            (
                LabelVocabulary(LabelIndex.from_keys(["a"], parents=[["x"]])),
                "l.tsv.gz",
                "no column for 'parents' of 'a'",
            ),
            (LabelVocabulary(LabelIndex.from_keys(["a"], status=["x"])), "l.tsv", "no column for 'status' of 'a'"),
            (
                LabelVocabulary(LabelIndex.from_keys(["a"]), replaced={"b": "a"}),
                "l.tsv",
                "no column for 'deprecated' of 'b'",
            ),
            (
                LabelVocabulary(LabelIndex.from_keys(["a"]), deprecated=frozenset("b")),
                "l.tsv",
                "no column for 'deprecated'",
            ),
            (
                LabelVocabulary(LabelIndex.from_keys(["a\tb"])),
                "l.tsv",
                r"TSV cannot store the tab, line break or outer spaces of 'a\tb'",
            ),
            (LabelVocabulary(LabelIndex.from_keys(["a"], ["b\n"])), "l.tsv", r"of 'b\n'"),
            (LabelVocabulary(LabelIndex.from_keys(["a"], descriptions=[" d"])), "l.tsv", "of ' d'"),
            (LabelVocabulary(LabelIndex.from_keys([""])), "l.tsv", "a label has no key"),
            (LabelVocabulary(LabelIndex.from_keys([""])), "l.jsonl", "a label has no key"),
            (
                LabelVocabulary(LabelIndex.from_keys(["a"]), deprecated=frozenset(["\ud800"])),
                "l.jsonl",
                "unpaired surrogate",
            ),
            (LabelVocabulary(LabelIndex.from_keys([])), "l.jsonl", "no labels to write"),
            (LabelVocabulary(LabelIndex.from_keys(["a"])), "l.ttl", "writing SKOS is not supported"),
            (LabelVocabulary(LabelIndex.from_keys(["a"])), "l.csv", "writing CSV is not supported"),
            (LabelVocabulary(LabelIndex.from_keys(["ID"], ["Name"])), "l.tsv", "would be read as a header"),
        ],
    )
    def test_refused(self, tmp_path, vocabulary, name, words):
        path = tmp_path / name
        path.write_bytes(b"as it was")
        with pytest.raises(DataError) as caught:
            write_vocabulary(vocabulary, path)
        message = str(caught.value)
        assert message.startswith(f"{path}: ")
        assert words in message
        assert message.isprintable()
        assert path.read_bytes() == b"as it was"
        assert list(tmp_path.iterdir()) == [path]

    @pytest.mark.parametrize(
        ("name", "count", "copies"),
        [
            ("eurlex57k/labels.jsonl.gz", 7201, ["l.jsonl"]),
            ("tibkat-gnd/labels.tsv.gz", 41_218, ["l.tsv", "l.jsonl.zst"]),
        ],
    )
    def test_real_vocabularies_come_back(self, tmp_path, shared_data, name, count, copies):
        vocabulary = read_vocabulary(shared_data / name)
        assert len(vocabulary.index) == count
        for copy in copies:
            write_vocabulary(vocabulary, tmp_path / copy)
            assert read_vocabulary(tmp_path / copy) == vocabulary
