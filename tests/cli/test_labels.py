"""`xmtc labels neighbours|map`: labels close to each other by the vectors that a model keeps."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp

from tests.support.command_line import call, mistake
from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.models.popularity import Popularity

KEYS = ["k0", "k1", "k2", "k3", "k4"]
NAMES = ["wine", "beer", "steel", "</script><b>iron", "dust"]
VECTORS = np.array([[3, 0, 0], [4, 3, 0], [0, 0, 1], [0, 1, 2], [0, 0, 0]], dtype=np.float32)
DOCUMENTS = [2, 1, 4, 3, 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of five labels, each in as many documents as DOCUMENTS says."""
    rows = [label for label, count in enumerate(DOCUMENTS) for _ in range(count)]
    labels = sp.csr_array((np.ones(len(rows)), rows, np.arange(len(rows) + 1)), shape=(len(rows), len(KEYS)))
    alternatives: list[list[str]] = [["vino"], [], [], [], []]
    index = LabelIndex.from_keys(KEYS, NAMES, alternatives, [["k9"], ["k0"], [], [], []])
    text = pa.chunked_array([[f"text {row}" for row in rows]])
    made = tmp_path_factory.mktemp("labels") / "small model"
    Popularity().fit(Dataset({"text": text}, labels=labels, label_index=index)).save(made)
    return made


@pytest.fixture
def with_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Popularity, "label_vectors", lambda _: VECTORS)


def content(page: Path) -> dict[str, Any]:
    """What a page was told about its labels."""
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page.read_text())
    assert found is not None
    return dict(json.loads(found[1]))


def unpacked(text: str, kind: str) -> list[int]:
    return [int(value) for value in np.frombuffer(base64.b64decode(text), dtype=kind)]


# ---- neighbours


@pytest.mark.usefixtures("with_vectors")
@pytest.mark.parametrize("asked", ["wine", "k0", "WINE", "vino"])
def test_a_label_is_found_by_name_key_and_alternative(folder: Path, asked: str) -> None:
    found = json.loads(call("labels", "neighbours", folder, asked, "--json").out)
    assert found["label"] == {"key": "k0", "name": "wine", "documents": 2, "alternatives": ["vino"], "broader": ["k9"]}
    assert [each["key"] for each in found["neighbours"]] == ["k1", "k2", "k3", "k4"]
    assert [each["documents"] for each in found["neighbours"]] == [1, 4, 3, 1]
    assert found["neighbours"][0] == {"key": "k1", "name": "beer", "documents": 1, "similarity": 0.8}


@pytest.mark.usefixtures("with_vectors")
def test_neighbours_as_a_table(folder: Path) -> None:
    head, _, *lines = call("labels", "neighbours", folder, "steel", "-k", 2).out.splitlines()
    assert head == "steel (key k2), 4 training documents"
    assert lines[0].split() == ["cosine", "documents", "key", "label"]
    assert [line.split() for line in lines[2:]] == [
        ["0.8944", "3", "k3", "</script><b>iron"],
        ["0.0000", "2", "k0", "wine"],
    ]


@pytest.mark.usefixtures("with_vectors")
def test_bad_questions_for_neighbours(folder: Path, tmp_path: Path) -> None:
    told = mistake("labels", "neighbours", folder, "stel")
    assert told == "label 'stel' is not among the model's 5 labels. Did you mean 'steel'?"
    assert mistake("labels", "neighbours", folder, "wine", "-k", 0) == "'k' must be an integer ≥ 1. Got 0."
    assert "has a zero vector" in mistake("labels", "neighbours", folder, "dust")
    assert str(tmp_path) in mistake("labels", "neighbours", tmp_path, "wine")
    assert "LABEL" in mistake("labels", "neighbours", folder)


@pytest.mark.parametrize("arguments", [("neighbours", "wine"), ("map", "--out", "map.html")])
def test_a_model_without_label_vectors_says_so(folder: Path, arguments: tuple[str, ...], tmp_path: Path) -> None:
    verb, *rest = arguments
    words = [str(tmp_path / word) if word.endswith(".html") else word for word in rest]
    assert mistake("labels", verb, folder, *words).startswith("popularity has no label vectors. Use dxml or leml.")
    assert not list(tmp_path.iterdir())


# ---- the map


@pytest.mark.usefixtures("with_vectors")
def test_a_map_holds_every_label(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "map.html"
    assert call("labels", "map", folder, "--out", page).out.startswith(f"{page}: map of 5 labels, ")
    text = page.read_text()
    assert "<h1>Labels of small model</h1>" in text
    assert "5 labels of a popularity model" in text
    assert "</script><b>" not in text
    assert not re.search(r"(src|href)=|https?:|url\(|@import", text)
    found = content(page)
    assert found["names"] == ["steel", "</script><b>iron", "wine", "beer", "dust"]  # the most frequent first
    assert found["keys"] == ["k2", "k3", "k0", "k1", "k4"]
    assert unpacked(found["documents"], "<u4") == [4, 3, 2, 1, 1]
    near = np.reshape(unpacked(found["near"], "<u2"), (5, found["width"]))
    assert near[:4, 0].tolist() == [1, 0, 3, 2]
    assert near[4].tolist() == [4] * 4  # no vector, near to none
    assert unpacked(found["cosines"], "i1")[0] == 89
    assert unpacked(found["regions"], "u1")[4] == 7
    places = np.reshape(unpacked(found["places"], "<u2"), (5, 2))
    assert len({tuple(place) for place in places.tolist()}) == 5


@pytest.mark.usefixtures("with_vectors")
def test_maps_are_the_same_under_a_seed(folder: Path, tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("again", 1), ("other", 2)):
        call("labels", "map", folder, "--out", tmp_path / f"{name}.html", "--seed", seed)
    one, again, other = ((tmp_path / f"{name}.html").read_text() for name in ("one", "again", "other"))
    assert one == again
    assert one != other


@pytest.mark.usefixtures("with_vectors")
def test_the_page_has_a_name_of_its_own_and_is_not_overwritten(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    call("labels", "map", folder)
    page = tmp_path / "small model-labels.html"
    before = page.read_bytes()
    page.write_text("mine")
    assert mistake("labels", "map", folder).endswith("Choose another file, or replace it with --force.")
    assert page.read_text() == "mine"
    call("labels", "map", folder, "--force")
    assert page.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == [page.name]


@pytest.mark.usefixtures("with_vectors")
def test_only_the_most_frequent_are_drawn_when_asked(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "map.html"
    done = call("labels", "map", folder, "--out", page, "--most", 3)
    assert "2 rarer labels left out" in done.err
    assert content(page)["names"] == ["steel", "</script><b>iron", "wine"]
    assert "3 most frequent of 5 labels" in page.read_text()


@pytest.mark.usefixtures("with_vectors")
def test_one_label_makes_a_map(folder: Path, tmp_path: Path) -> None:
    call("labels", "map", folder, "--out", tmp_path / "map.html", "--most", 1)
    assert content(tmp_path / "map.html")["names"] == ["steel"]


@pytest.mark.usefixtures("with_vectors")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (lambda folder: ["--out", folder / "map.svg"], "is an HTML page"),
        (lambda folder: ["--out", folder / "none" / "map.html"], "does not exist. Create it first."),
        (lambda folder: ["--out", folder / "map.html", "--most", 0], "'most' must be an integer ≥ 1. Got 0."),
    ],
)
def test_bad_questions_for_a_map(
    folder: Path, tmp_path: Path, options: Callable[[Path], list[object]], words: str
) -> None:
    assert words in mistake("labels", "map", folder, *options(tmp_path))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_no_model(tmp_path: Path) -> None:
    assert str(tmp_path) in mistake("labels", "map", tmp_path, "--out", tmp_path / "map.html")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [["labels"], ["labels", "--help"]])
def test_help_names_both(words: list[str]) -> None:
    out = call(*words).out
    assert "neighbours" in out
    assert "map" in out
