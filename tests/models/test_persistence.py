"""`save` refuses what the command line refuses."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from xmtc import Popularity, load
from xmtc.core.errors import DataError, ModelFormatError
from xmtc.data.label_index import LabelIndex
from xmtc.workflows.train import plan_training


def fitted(label: str) -> Popularity:
    return Popularity().fit(["some text"], [[label]])


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_model_is_replaced_only_if_asked(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    fitted("a").save(folder)
    before = contents(folder)
    with pytest.raises(DataError, match=r"m: already contains a model\. .* replace it with overwrite=True\."):
        fitted("b").save(folder)
    with pytest.raises(DataError, match=r"m: already contains a model\. .* replace it with --force\."):
        plan_training(folder, name="popularity")
    assert contents(folder) == before
    fitted("b").save(folder, overwrite=True)
    assert load(folder).labels.keys == ["b"]


@pytest.mark.parametrize("overwrite", [False, True])
def test_other_files_are_never_overwritten(tmp_path: Path, overwrite: bool) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.txt").write_text("mine")
    for refused in (
        lambda: fitted("a").save(folder, overwrite=overwrite),
        lambda: plan_training(folder, name="popularity", force=overwrite),
    ):
        with pytest.raises(DataError, match=r"thesis: contains other files \('chapter.txt'\)"):
            refused()
    with pytest.raises(DataError, match=r"chapter.txt: is a file\. Pass a folder for the model\."):
        fitted("a").save(folder / "chapter.txt", overwrite=overwrite)
    assert contents(folder) == {"chapter.txt": b"mine"}


def test_empty_folders_and_remains_of_an_interrupted_save_are_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / f"arrays-{'0' * 16}.safetensors").write_bytes(b"half")
    fitted("a").save(tmp_path / "m")
    assert load(tmp_path / "m").labels.keys == ["a"]


def test_further_columns_of_labels_are_saved(tmp_path: Path) -> None:
    index = LabelIndex.from_keys(["a"], ["A"], related=[["b"]], notes=[["n"]], schemes=[["s"]], status=["candidate"])
    model = fitted("a")
    model._labels = index
    model.save(tmp_path / "m")
    assert load(tmp_path / "m").labels == index


@pytest.mark.parametrize(
    ("column", "values", "words"),
    [
        ("related", pa.array(["b"]), "column 'related' of table 'labels' is of type string, expected list"),
        ("status", pa.array([1]), "column 'status' of table 'labels' is of type int64, expected string"),
        ("notes", pa.array([None], pa.list_(pa.string())), "column 'notes' of table 'labels' has missing values"),
        ("types", pa.array([[None]], pa.list_(pa.string())), "column 'types' of table 'labels' has missing values"),
    ],
)
def test_a_damaged_column_of_labels_is_refused(tmp_path: Path, column: str, values: pa.Array, words: str) -> None:
    model = fitted("a")
    saved = model.labels.saved_table().append_column(column, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabelIndex, "saved_table", lambda index: saved)
        model.save(tmp_path / "m")
    with pytest.raises(ModelFormatError) as caught:
        load(tmp_path / "m")
    assert words in str(caught.value)
