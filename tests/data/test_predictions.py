"""Anybody's predictions: every form holds the same rankings, documents find their own, and mistakes have a line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.packing import SUFFIXES, pack
from tests.support.predictions import (
    BY_ORDER,
    EXPECTED,
    NAMES,
    SOUP,
    WITH_IDS,
    check_sound_or_refused,
    csr_npz,
    documents,
    fasttext,
    our_jsonl,
    our_parquet,
    our_parts,
    our_tsv,
    wide_csv,
    wide_tsv,
    write_lines,
    write_objects,
    xc_text,
)
from xmtc.core.errors import DataError
from xmtc.data.label_index import LabelIndex
from xmtc.data.predictions import FORMATS, match_to, read_predictions
from xmtc.data.topk import ANSWERS, TopK, part_name


def rankings(found: TopK) -> list[list[tuple[str, float]]]:
    """(key, score) of each document, with a look at the pads."""
    assert ((found.labels >= 0) == (found.scores > -np.inf)).all()
    scores = [[score for _, score in row] for row in found.pairs()]
    return [list(zip(*row, strict=True)) for row in zip(found.keys(), scores, strict=True)]


def refusal(path: Path, line: int | None = None, file_format: str | None = None) -> str:
    """What is said of a file that is refused: one line that begins with the path and ends with the remedy."""
    with pytest.raises(DataError) as caught:
        match_to(read_predictions(path, file_format), documents(), path)
    message = str(caught.value)
    assert message.startswith(f"{path}: " if line is None else f"{path}:{line}: "), message
    assert message.isprintable()
    assert message.endswith(".")
    return message


class TestForms:
    @pytest.mark.parametrize("form", [*WITH_IDS, *BY_ORDER], ids=lambda form: form.__name__)
    def test_every_form_says_the_same(self, tmp_path: Path, form: Callable[[Path], Path]) -> None:
        found = read_predictions(form(tmp_path))
        assert found.has_ids == (form in WITH_IDS)
        assert rankings(match_to(found, documents(), "p")) == EXPECTED

    @pytest.mark.parametrize("form", [our_jsonl, our_parquet, our_tsv, our_parts], ids=lambda form: form.__name__)
    def test_our_own_forms_keep_the_names(self, tmp_path: Path, form: Callable[[Path], Path]) -> None:
        found = read_predictions(form(tmp_path)).top
        assert found.names()[found.ids.index("a")] == ["name 0", "name 10", "name 3"]

    @pytest.mark.parametrize("form", WITH_IDS, ids=lambda form: form.__name__)
    def test_documents_are_found_by_id(self, tmp_path: Path, form: Callable[[Path], Path]) -> None:
        """Other order, and only some of those that were predicted."""
        matched = match_to(read_predictions(form(tmp_path)), documents(["d", "a"]), "p")
        assert rankings(matched) == [EXPECTED[3], EXPECTED[0]]
        assert matched.ids == ["d", "a"]

    @pytest.mark.parametrize("form", BY_ORDER, ids=lambda form: form.__name__)
    def test_otherwise_the_order_tells(self, tmp_path: Path, form: Callable[[Path], Path]) -> None:
        found = read_predictions(form(tmp_path))
        assert match_to(found, documents(["w", "x", "y", "z"]), "p").ids == ["w", "x", "y", "z"]
        with pytest.raises(DataError, match="4 predictions for 3 test documents"):
            match_to(found, documents(["w", "x", "y"]), "p")

    def test_ids_that_nobody_knows_are_those_of_other_documents(self, tmp_path: Path) -> None:
        found = read_predictions(our_jsonl(tmp_path))
        with pytest.raises(
            DataError, match=r"^p: no id matches a test document: 'a' in the predictions, 'w' in the test set\."
        ):
            match_to(found, documents(["w", "x", "y", "z"]), "p")

    @pytest.mark.parametrize("suffix", SUFFIXES[1:])
    @pytest.mark.parametrize("form", [our_jsonl, our_tsv, wide_csv, fasttext, xc_text], ids=lambda form: form.__name__)
    def test_compressed(self, tmp_path: Path, form: Callable[[Path], Path], suffix: str) -> None:
        plain = form(tmp_path)
        packed = pack(tmp_path / f"{plain.name}{suffix}", plain.read_bytes())
        assert rankings(match_to(read_predictions(packed), documents(), packed)) == EXPECTED

    @pytest.mark.parametrize("form", [our_jsonl, our_tsv, wide_csv, fasttext, xc_text], ids=lambda form: form.__name__)
    def test_byte_order_mark_and_carriage_returns(self, tmp_path: Path, form: Callable[[Path], Path]) -> None:
        path = form(tmp_path)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\r", b"").replace(b"\n", b"\r\n"))
        assert rankings(match_to(read_predictions(path), documents(), path)) == EXPECTED

    @pytest.mark.parametrize(
        ("form", "kind"),
        [(our_tsv, "tsv"), (wide_csv, "csv"), (wide_tsv, "tsv"), (fasttext, "fasttext"), (xc_text, "xc")],
    )
    def test_a_form_that_is_named_needs_no_ending(
        self, tmp_path: Path, form: Callable[[Path], Path], kind: str
    ) -> None:
        path = form(tmp_path).rename(tmp_path / "out.log")
        assert rankings(match_to(read_predictions(path, kind), documents(), path)) == EXPECTED

    def test_labels_without_scores_stay_in_order(self, tmp_path: Path) -> None:
        for path in (
            write_objects(tmp_path / "p.jsonl", {"id": "a", "labels": ["y", "x", 3]}),
            write_lines(tmp_path / "p.csv", "id,labels", "a,y;x;3"),
            write_lines(tmp_path / "q.csv", "id,key", "a,y", "a,x", "a,3"),
            write_lines(tmp_path / "p.txt", "__label__y __label__x __label__3"),
        ):
            found = read_predictions(path).top
            assert found.keys() == [["y", "x", "3"]]
            assert (np.diff(found.scores[0]) < 0).all()

    def test_ties_stay_in_order(self, tmp_path: Path) -> None:
        scored = [("b", 0.5), ("c", 0.75), ("a", 0.5), ("d", 0.5)]
        for path in (
            write_objects(tmp_path / "p.jsonl", {"id": "a", "labels": scored}),
            write_lines(tmp_path / "p.csv", "id,key,score", *(f"a,{key},{score}" for key, score in scored)),
            write_lines(tmp_path / "p.txt", " ".join(f"__label__{key} {score}" for key, score in scored)),
        ):
            assert read_predictions(path).top.keys() == [["c", "b", "a", "d"]]

    def test_ties_of_a_matrix_go_by_column(self, tmp_path: Path) -> None:
        sp.save_npz(tmp_path / "p.npz", sp.csr_matrix(([1.0, 2, 1, 1], [7, 1, 2, 5], [0, 4]), shape=(1, 8)))
        assert read_predictions(tmp_path / "p.npz").top.keys() == [["1", "2", "5", "7"]]

    def test_an_entry_of_a_matrix_that_is_zero_was_predicted(self, tmp_path: Path) -> None:
        sp.save_npz(tmp_path / "p.npz", sp.csr_matrix(([0.0, -1.0], [1, 0], [0, 2]), shape=(1, 3)))
        assert read_predictions(tmp_path / "p.npz").top.keys() == [["1", "0"]]

    def test_fasttext_labels_hold_all_but_its_blanks(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "p.txt", "__label__größe\u00a0x 1e-05 __label____label__1 1.00001\t", "")
        assert read_predictions(path).top.keys() == [["__label__1", "größe\u00a0x"], []]

    def test_numbers_are_known_as_such(self, tmp_path: Path) -> None:
        assert read_predictions(csr_npz(tmp_path)).numbered
        assert read_predictions(xc_text(tmp_path)).numbered
        assert not read_predictions(fasttext(tmp_path)).numbered
        path = write_lines(tmp_path / "zeros.txt", "0001 0011", "010:1 " + "0" * 9000 + "7:2")
        assert read_predictions(path, "xc").top.keys() == [["7", "10"]]

    def test_of_equal_ids_the_order_tells(self, tmp_path: Path) -> None:
        rows = [{"id": "a", "labels": [str(number)]} for number in range(3)]
        path = write_objects(tmp_path / "p.jsonl", *rows)
        assert match_to(read_predictions(path), documents(["a", "a", "a"]), path).keys() == [["0"], ["1"], ["2"]]
        with pytest.raises(DataError, match="document 'a' occurs twice"):
            match_to(read_predictions(path), documents(["a", "b", "c"]), path)

    def test_a_document_without_a_line_has_no_labels_where_a_line_is_a_label(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "p.tsv", "id\tkey\tscore", "a\tx\t1", "d\ty\t2", "d\tx\t1")
        assert match_to(read_predictions(path), documents(), path).keys() == [["x"], [], [], ["y", "x"]]


PAIRS = '{"id": "%s", "labels": [["x", %s]]}'


class TestMistakes:
    @pytest.mark.parametrize(
        ("name", "lines", "line", "words"),
        [
            ("p.jsonl", [PAIRS % ("a", 1), PAIRS % ("b", "NaN")], 2, "a score is not a number"),
            ("p.jsonl", [PAIRS % ("a", '"high"')], 1, "a score is not a number"),
            ("p.jsonl", [PAIRS % ("a", "true")], 1, "a score is not a number"),
            ("p.jsonl", [PAIRS % ("a", "1" + "0" * 400)], 1, "a score is not a number"),
            ("p.jsonl", ['{"labels": [{"key": "x", "score": 1}, {"key": "y"}]}'], 1, "a score is not a number"),
            ("p.jsonl", ["", '{"id": "a", "labels": ["x", "y", "x"]}'], 2, "a label occurs twice"),
            ("p.jsonl", ['{"id": "a", "labels": [1, "1"]}'], 1, "a label occurs twice"),
            ("p.jsonl", ['{"id": "a", "labels": ["x"], "scores": [1, 2]}'], 1, "as long as the list of labels"),
            ("p.jsonl", ['{"id": "a", "labels": ["x"], "scores": 1}'], 1, "as long as the list of labels"),
            ("p.jsonl", ['{"id": "a", "labels": "x"}'], 1, "no list of labels"),
            ("p.jsonl", ['{"id": "a", "text": "x"}'], 1, "no list of labels"),
            ("p.jsonl", ['{"id": "a", "labels": [""]}'], 1, "a label has no key"),
            ("p.jsonl", ['{"id": "a", "labels": [{"name": "x"}]}'], 1, "a label has no key"),
            ("p.jsonl", ['{"id": 1.5, "labels": []}'], 1, "'id' must be a string or an integer"),
            ("p.jsonl", ['{"id": "a", "labels": ["x"]}', '{"id"'], 2, "invalid JSON"),
            ("p.jsonl", ["x"], 1, "invalid JSON"),
            ("p.csv", ["id,key,score", "a,x,1", "a,y,nan"], 2, "a score is not a number"),
            ("p.csv", ["id,key,score", "a,x,1", "b,x,1", "b,x,0"], 3, "a label occurs twice"),
            ("p.csv", ["id,key,score", "a,x,1", "a,y"], 3, "2 cells, but 3 in the header"),
            ("p.csv", ["id,key,score", 'a,"x,1'], 2, "invalid CSV"),
            ("p.csv", ["id,labels", "a,x", "a,y"], 3, "document 'a' occurs twice"),
            ("p.csv", ["id,labels,scores", "a,x;y,1"], 2, "2 labels but 1 scores"),
            ("p.csv", ["document,label", "a,x"], 1, "columns id and key (or labels) are required"),
            ("p.tsv", ["id\tscore", "a\t1"], 1, "columns id and key (or labels) are required"),
            ("p.tsv", ["id\tkey\tscore", "a\tx\t1\t2"], 2, "4 cells, but 3 in the header"),
            ("p.txt", ["__label__x 1", "__label__x nan"], 2, "a score is not a number"),
            ("p.txt", ["__label__x 1 __label__y"], 1, "a score is not a number"),
            ("p.txt", ["__label__x 1 __label__x 0.5"], 1, "a label occurs twice"),
            ("p.txt", ["__label__x 1", "a text __label__x 1"], 2, "unexpected 'a'"),
            ("p.txt", ["__label__x 0.9 0.8"], 1, "unexpected '0.8'"),
            ("p.txt", ["__label__x 1 __label__ 2"], 1, "unexpected '__label__'"),
            ("p.txt", ["1 2", "0:1 2:1"], 2, "'2' is not a number below 2"),
            ("p.txt", ["1 2", "0"], 2, "'0' is not a number below 2"),
            ("p.txt", ["1 2", "-1:1"], 2, "'-1' is not a number below 2"),
            ("p.txt", ["1 2", "0:x"], 2, "a score is not a number"),
            ("p.txt", ["1 2", "0:1 00:1"], 2, "a label occurs twice"),
            ("p.txt", ["1 2", "0" * 5000 + "9:1"], 2, "is not a number below 2"),
            ("p.txt", ["3 2", "0:1", "1:1"], None, "3 documents in the header, but 2 in the file"),
            ("p.txt", ["1 2", "0:1", "1:1"], None, "1 documents in the header, but 2 in the file"),
            ("p.txt", ["words"], 1, "not a supported prediction format"),
            ("p.txt", [], None, "empty"),
            ("p.jsonl", [""], None, "contains no predictions"),
            ("p.tsv", [], None, "empty"),
            ("p.csv", ["id,key,score"], None, "contains no predictions"),
            ("p.npz", ["words"], None, "not a sparse matrix"),
            ("p.parquet", ["words"], None, "not a readable Parquet file"),
            ("p.jsonl", ['{"id": "a", "labels": []}'], None, "no prediction for 3 of 4 test documents, such as 'b'"),
            ("p.jsonl", ['{"labels": []}'], None, "1 predictions for 4 test documents"),
            ("p.jsonl", ['{"id": "a", "labels": []}', '{"labels": []}'], None, "2 predictions for 4 test documents"),
        ],
    )
    def test_refused(self, tmp_path: Path, name: str, lines: list[str], line: int | None, words: str) -> None:
        assert words in refusal(write_lines(tmp_path / name, *lines), line)

    @pytest.mark.parametrize("name", ["p.jsonl", "p.csv", "p.tsv", "p.txt"])
    def test_not_utf8(self, tmp_path: Path, name: str) -> None:
        head = {"p.csv": b"id,key\n", "p.tsv": b"id\tkey\n", "p.txt": b"__label__x\n"}.get(name, b"{}\n")
        body = {"p.csv": b"a,\xff\n", "p.tsv": b"a\t\xff\n", "p.txt": b"__label__\xff\n"}
        (tmp_path / name).write_bytes(head + body.get(name, b'{"labels": ["\xff"]}\n'))
        if name == "p.jsonl":
            (tmp_path / name).write_bytes(b'{"labels": []}\n{"labels": ["\xff"]}\n')
        assert "not UTF-8" in refusal(tmp_path / name, 2)

    def test_half_a_surrogate_pair_becomes_a_question_mark(self, tmp_path: Path) -> None:
        row = '{"id": "\\ud800", "labels": [{"key": "x\\ud800", "name": "\\udfff", "score": 1}]}'
        found = read_predictions(write_lines(tmp_path / "p.jsonl", row)).top
        assert (found.ids, found.keys(), found.names()) == (["?"], [["x?"]], [["?"]])

    def test_folders(self, tmp_path: Path) -> None:
        assert "not a folder of predictions" in refusal(tmp_path)
        assert "is a folder, not a file" in refusal(tmp_path, file_format="fasttext")
        parts = our_parts(tmp_path)
        (parts / part_name(1)).unlink()
        with pytest.raises(DataError, match="missing"):
            read_predictions(parts)
        said = json.loads((parts / ANSWERS).read_text())
        (parts / ANSWERS).write_text(json.dumps({**said, "complete": False}))
        assert "the predictions are incomplete" in refusal(parts)

    def test_missing_file_and_unknown_form(self, tmp_path: Path) -> None:
        assert "no such file" in refusal(tmp_path / "nowhere.jsonl")
        said = refusal(our_jsonl(tmp_path), file_format="jsnl")
        assert "no prediction format 'jsnl'. Did you mean 'jsonl'?" in said
        assert all(form in said for form in FORMATS)

    def test_parquet_goes_by_its_name(self, tmp_path: Path) -> None:
        path = our_parquet(tmp_path)
        assert "the name ends in .parquet, but the format is jsonl. Rename it" in refusal(path, file_format="jsonl")
        path = path.rename(tmp_path / "p.bin")
        assert "Rename it to end in .parquet" in refusal(path)

    @pytest.mark.parametrize("form", [our_parquet, csr_npz], ids=lambda form: form.__name__)
    def test_cut_short(self, tmp_path: Path, form: Callable[[Path], Path]) -> None:
        path = form(tmp_path)
        path.write_bytes(path.read_bytes()[:-100])
        refusal(path)

    def test_a_matrix_with_nan(self, tmp_path: Path) -> None:
        sp.save_npz(tmp_path / "p.npz", sp.csr_matrix(np.array([[np.nan, 1.0]])))
        assert "a value is not finite" in refusal(tmp_path / "p.npz")


# ---- whatever the bytes


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("soup")


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(NAMES), st.sampled_from([None, *FORMATS]), SOUP)
def test_soup(place: Path, name: str, file_format: str | None, content: bytes) -> None:
    (place / name).write_bytes(content)
    check_sound_or_refused(place / name, file_format)


def test_a_label_index_of_its_own(tmp_path: Path) -> None:
    """The numbers of a matrix are its columns, also those that nobody predicted."""
    assert read_predictions(csr_npz(tmp_path)).top.index == LabelIndex.numbered(11)


class TestWhoIsWho:
    """Slips that would give a number and the wrong one."""

    def test_true_labels_beside_predictions(self, tmp_path: Path) -> None:
        path = write_objects(tmp_path / "p.jsonl", {"id": "a", "labels": ["right"], "predictions": ["wrong"]})
        assert read_predictions(path).top.keys() == [["wrong"]]
        path = write_lines(tmp_path / "p.csv", "id,labels,predictions", "a,right,wrong")
        assert read_predictions(path).top.keys() == [["wrong"]]

    def test_objects_as_annif_writes_them(self, tmp_path: Path) -> None:
        row = {"id": "a", "labels": [{"uri": "http://x/1", "label": "one", "score": 0.5}]}
        top = read_predictions(write_objects(tmp_path / "p.jsonl", row)).top
        assert (top.keys(), top.names()) == ([["http://x/1"]], [["one"]])

    def test_lines_counted_in_another_way(self, tmp_path: Path) -> None:
        path = write_lines(tmp_path / "p.csv", "id,key,score", "0,x,1", "1,y,1", "2,z,1")
        with pytest.raises(DataError, match="no prediction for 1 of 3 test documents, such as '3'"):
            match_to(read_predictions(path), documents(["1", "2", "3"]), path)

    def test_test_documents_with_one_id(self, tmp_path: Path) -> None:
        path = write_objects(tmp_path / "p.jsonl", {"id": "c", "labels": []}, {"id": "a", "labels": ["x"]})
        with pytest.raises(DataError, match="two test documents have the same id"):
            match_to(read_predictions(path), documents(["a", "a", "c"]), path)

    def test_no_more_is_kept_than_is_wanted(self, tmp_path: Path) -> None:
        matrix = sp.csr_matrix(np.array([[0.1, 0.4, 0.3, 0.2], [0, 0, 0.5, 0]]))
        sp.save_npz(tmp_path / "p.npz", matrix)
        assert read_predictions(tmp_path / "p.npz", most=2).top.labels.tolist() == [[1, 2], [2, -1]]
        path = write_objects(tmp_path / "p.jsonl", {"labels": [["a", 0.1], ["b", 0.9], ["c", 0.5]]})
        assert read_predictions(path, most=2).top.keys() == [["b", "c"]]
