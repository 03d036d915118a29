"""Descriptions against planted data and counting in plain Python; the picture against NumPy's histogram."""

from __future__ import annotations

import json
import math
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from xmtc.cli.describe import description_text, head_text, text_histogram
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.data.description import SHARES, Distribution, describe, document_hashes
from xmtc.data.label_index import LabelIndex
from xmtc.data.planted_corpus import PlantedCorpus
from xmtc.data.reading import read
from xmtc.views.bins import MOST_BARS, doubling_bins, even_bins
from xmtc.views.histograms import histograms
from xmtc.views.plot import Plot, short_number
from xmtc.views.svg import gid

SVG = "{http://www.w3.org/2000/svg}"


def quantile(numbers: list[int], share: float) -> int:
    """The smallest number that at least this share does not exceed, looked for one by one."""
    return next(x for x in sorted(numbers) if sum(y <= x for y in numbers) >= share * len(numbers) - 1e-9)


def with_ids(dataset: Dataset, ids: list[str]) -> Dataset:
    return Dataset(dataset.fields, dataset.features, dataset.labels, dataset.label_index, pa.chunked_array([ids]))


# ---- figures


TEXTS = ["one two", "", "one two", "three", " \n ", "one two", "four  five\tsix\n"]
LABELS = [["a", "b"], ["a"], [], ["a", "c"], ["b"], ["a"], ["a"]]


def test_planted_answers() -> None:
    found = describe(with_ids(as_dataset(TEXTS, LABELS), ["x", "y", "z", "x", "v", "x", "w"]))
    assert found.documents == 7
    assert found.labels is not None
    assert (found.labels.occurring, found.labels.columns, found.labels.pairs) == (3, 3, 8)
    assert found.labels.documents_without == 1
    assert found.labels.seen_once == 1  # c; a has five documents, b two
    assert found.labels.head_shares == {"1": 5 / 8, "10": 5 / 8}
    assert found.labels.per_label.mean == pytest.approx(8 / 3)
    assert found.text is not None
    assert found.text.empty == 2
    assert (found.text.words.quantile(0.5), found.text.words.quantile(1), found.text.words.total) == (2, 3, 7)
    assert found.text.characters.quantile(1) == 15
    assert found.repeated_documents.to_json() == {"distinct": 1, "further": 2}
    assert found.repeated_ids is not None
    assert found.repeated_ids.to_json() == {"distinct": 1, "further": 2}
    assert found.features is None
    assert json.loads(json.dumps(found.to_json())) == found.to_json()


def test_second_file_against_the_first() -> None:
    first = with_ids(as_dataset(["one", "two", ""], [["a"], ["b"], ["a"]]), ["i", "j", "k"])
    second = with_ids(as_dataset(["two", "two", "three", ""], [["b", "c"], ["d"], ["c"], []]), ["j", "l", "m", "i"])
    found = describe(first, second)
    assert found.other is not None
    assert found.other.documents == 4
    assert found.overlap is not None
    assert found.overlap.to_json() == {"documents": 2, "ids": 2, "unseen_labels": 2, "unseen_pairs": 3}
    assert json.dumps(found.to_json())


def test_a_label_that_only_a_column_knows_is_unseen() -> None:
    index = LabelIndex.from_keys(["a", "b"])
    first = Dataset({"text": pa.chunked_array([["x"]])}, labels=sp.csr_array([[1.0, 0.0]]), label_index=index)
    second = Dataset({"text": pa.chunked_array([["y"]])}, labels=sp.csr_array([[0.0, 1.0]]), label_index=index)
    found = describe(first, second)
    assert found.labels is not None
    assert (found.labels.occurring, found.labels.columns) == (1, 2)
    assert found.overlap is not None
    assert (found.overlap.unseen_labels, found.overlap.unseen_pairs) == (1, 1)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.text("ab \n\t\x0bä\u3000.", max_size=12),
            st.lists(st.sampled_from("pqrstuvw"), max_size=4, unique=True),
        ),
        min_size=1,
        max_size=40,
    ),
    st.integers(1, 7),
)
def test_like_counting_in_plain_python(documents: list[tuple[str, list[str]]], chunk: int) -> None:
    texts, labels = [text for text, _ in documents], [keys for _, keys in documents]
    column = pa.chunked_array([texts[at : at + chunk] for at in range(0, len(texts), chunk)], pa.string())
    dataset = as_dataset(Dataset({"text": column}), labels)
    found = describe(dataset)
    words = [len(text.encode().split()) for text in texts]
    per_label = Counter(key for keys in labels for key in keys)
    assert found.text is not None
    assert found.labels is not None
    for numbers, distribution in (
        (words, found.text.words),
        ([len(text) for text in texts], found.text.characters),
        ([len(keys) for keys in labels], found.labels.per_document),
        (list(per_label.values()), found.labels.per_label),
    ):
        assert distribution.total == len(numbers)
        if numbers:
            assert distribution.mean == pytest.approx(sum(numbers) / len(numbers))
            assert [distribution.quantile(share) for share in SHARES] == [quantile(numbers, s) for s in SHARES]
    assert found.labels.occurring == len(per_label)
    assert found.labels.pairs == per_label.total()
    assert found.labels.documents_without == sum(not keys for keys in labels)
    assert found.labels.seen_once == sum(count == 1 for count in per_label.values())
    for percent in (1, 10):
        head = sum(count for _, count in per_label.most_common(max(math.ceil(len(per_label) * percent / 100), 1)))
        assert found.labels.head_shares[str(percent)] == pytest.approx(head / max(per_label.total(), 1))
    copies = Counter(text for text, count in zip(texts, words, strict=True) if count)
    assert found.repeated_documents.distinct == sum(count > 1 for count in copies.values())
    assert found.repeated_documents.further == copies.total() - len(copies)
    assert found.text.empty == words.count(0)


def test_sliced_text_is_counted_from_its_start() -> None:
    dataset = as_dataset(["zero", "one two", "three four five", ""], [["a"]] * 4).slice(1, 3)
    found = describe(dataset)
    assert found.text is not None
    assert found.text.words.values.tolist() == [2, 3]
    assert (
        document_hashes(dataset)[0].tolist() == document_hashes(as_dataset(["one two", "three four five"]))[0].tolist()
    )


def test_blocks_of_text_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = as_dataset([*TEXTS, "a longer text " * 9, *TEXTS])
    whole = document_hashes(dataset), describe(dataset).to_json()
    monkeypatch.setattr("xmtc.data.description.BLOCK_BYTES", 10)
    parts = document_hashes(dataset), describe(dataset).to_json()
    assert [part.tolist() for part in whole[0]] == [part.tolist() for part in parts[0]]
    assert whole[1] == parts[1]


def test_features() -> None:
    rows = np.array([[0, 1, 2, 0], [0, 0, 0, 0], [0, 1, 2, 0], [5, 0, 0, 0]], dtype=np.float32)
    found = describe(as_dataset(rows, [["a"]] * 4), as_dataset(rows[2:].astype(np.float64), [["a"]] * 2))
    assert found.text is None
    assert found.features is not None
    assert (found.features.width, found.features.used, found.features.empty) == (4, 3, 1)
    assert found.features.per_document.values.tolist() == [0, 1, 2]
    assert found.repeated_documents.to_json() == {"distinct": 1, "further": 1}
    assert found.overlap is not None
    assert found.overlap.documents == 2


def test_rows_are_equal_in_whatever_order_their_columns_are_kept() -> None:
    ordered = sp.csr_array((np.array([1.0, 2.0]), np.array([0, 3]), np.array([0, 2])), shape=(1, 4))
    turned = sp.csr_array((np.array([2.0, 1.0]), np.array([3, 0]), np.array([0, 2])), shape=(1, 4))
    assert document_hashes(Dataset(features=ordered))[0] == document_hashes(Dataset(features=turned))[0]


def test_text_and_features_share_nothing_that_could_be_compared() -> None:
    found = describe(as_dataset(["a"]), as_dataset(np.ones((2, 2)), [["a"], ["b"]]))
    assert found.overlap is not None
    assert set(found.overlap.to_json().values()) == {None}


def test_line_numbers_are_no_ids(tmp_path: Path) -> None:
    """Readers number documents that have no id; two files would share all of these."""
    plain, named = tmp_path / "plain.jsonl", tmp_path / "named.jsonl"
    plain.write_text('{"text": "a", "labels": []}\n\n{"text": "b", "labels": []}\n')
    named.write_text('{"id": 7, "text": "a", "labels": []}\n{"id": 7, "text": "b", "labels": []}\n')
    both = describe(read(plain), read(plain))
    assert both.repeated_ids is None
    assert both.overlap is not None
    assert both.overlap.ids is None
    assert both.overlap.documents == 2
    repeated = describe(read(named)).repeated_ids
    assert repeated is not None
    assert repeated.further == 1


def test_equal_texts_have_equal_hashes_on_every_machine() -> None:
    hashes, empty = document_hashes(as_dataset(["", "abc"]))
    assert empty.tolist() == [True, False]
    assert hashes[1] == int.from_bytes(bytes.fromhex("d8bb14d833d59559"), "little")  # of b2sum -l 64


def test_planted_corpus() -> None:
    corpus = PlantedCorpus(documents=3000, labels=300, seed=3)
    batches = list(corpus.batches())
    texts = [text for batch in batches for text in batch.texts]
    labels = [[str(label) for label in row] for batch in batches for row in batch.labels]
    found = describe(as_dataset(texts, labels))
    assert found.labels is not None
    assert found.labels.per_document.mean == pytest.approx(sum(map(len, labels)) / 3000)
    assert found.labels.occurring == len({label for row in labels for label in row})
    assert found.text is not None
    assert found.text.words.mean == pytest.approx(sum(len(text.split()) for text in texts) / 3000)


# ---- bins


@settings(max_examples=80)
@given(st.lists(st.integers(0, 5000), min_size=1, max_size=60), st.lists(st.integers(0, 300), max_size=60))
def test_bins_hold_everything_once(first: list[int], second: list[int]) -> None:
    distributions = [Distribution.of(first), Distribution.of(second)]
    bins = even_bins(distributions)
    assert len(bins.edges) - 1 <= MOST_BARS
    edges = [*bins.edges[:-1].tolist(), 10**9] if bins.open_end else bins.edges.tolist()
    for numbers, distribution in zip((first, second), distributions, strict=True):
        assert bins.count(distribution).tolist() == np.histogram(numbers, [*edges[:-1], edges[-1] - 0.5])[0].tolist()
    positive = [number + 1 for number in first]
    doubling = doubling_bins([Distribution.of(positive)])
    assert doubling.count(Distribution.of(positive)).sum() == len(first)
    assert doubling.count(Distribution.of(positive))[(positive[0]).bit_length() - 1] >= 1


def test_the_longest_share_an_open_bin() -> None:
    numbers = [3] * 500 + [4] * 300 + [900, 1000]
    bins = even_bins([Distribution.of(numbers)])
    assert bins.open_end
    assert bins.count(Distribution.of(numbers)).tolist() == [0, 0, 0, 500, 300, 0, 2]
    assert bins.label(6) == "6 or more"
    assert "≥6" in histograms("file", describe(as_dataset(["a " * number for number in numbers]))).svg()


def test_short_numbers() -> None:
    told = [short_number(number) for number in (0, 1, 10, 100, 999, 1000, 2500, 10**6, 999_999, 3 * 10**9)]
    assert told == ["0", "1", "10", "100", "999", "1k", "2.5k", "1M", "1000k", "3G"]


# ---- the picture


def bars(plot: Plot, panel: str, number: int = 0) -> tuple[list[int], list[float]]:
    """Counts and heights of the bars of a file in a panel."""
    (axes,) = [axes for axes in plot.figure.axes if axes.get_xlabel() == panel]
    tips = [rectangle.get_gid().partition("|")[2] for rectangle in axes.containers[number]]
    assert all(panel in tip for tip in tips)
    counts = [int(tip.rpartition(": ")[2].split()[0].replace(",", "")) for tip in tips]
    tops = [axes.transData.transform((0, each.get_y() + each.get_height()))[1] for each in axes.containers[number]]
    return counts, [float(top - axes.bbox.y0) for top in tops]


def test_bars_are_a_histogram() -> None:
    generator = np.random.default_rng(5)
    chances = 1 / np.arange(1, 301)
    labels = sp.csr_array((generator.random((500, 300)) < chances / 1.5).astype(np.float32))
    sizes, per_label = np.diff(labels.indptr), np.bincount(labels.indices)
    texts = pa.chunked_array([[f"w{number}" for number in range(500)]])
    found = describe(Dataset({"text": texts}, labels=labels))
    plot = histograms("train.jsonl", found)
    counts, heights = bars(plot, "labels per document")
    whole = np.histogram(sizes, np.arange(len(counts) + 1) - 0.5)[0]
    whole[-1] = (sizes >= len(counts) - 1).sum()
    assert counts == whole.tolist()
    np.testing.assert_allclose(np.array(heights) / max(heights), whole / whole.max(), atol=1e-3)
    octaves, heights = bars(plot, "documents per label")
    assert octaves == np.histogram(per_label[per_label > 0], 2.0 ** np.arange(len(octaves) + 1))[0].tolist()
    drawn = np.array(octaves) > 0
    assert len(set(octaves)) > 5
    assert np.corrcoef(np.array(heights)[drawn], np.log(np.array(octaves)[drawn]))[0, 1] > 0.999999
    assert all((height > 1e-6) == (count > 0) for height, count in zip(heights, octaves, strict=True))


def test_two_files_are_told_apart_without_colour() -> None:
    found = describe(as_dataset(["a b", "c"], [["x"], ["y"]]), as_dataset(["a"], [["x", "y"]]))
    plot = histograms("train", found, "test")
    outlines = [each for axes in plot.figure.axes for each in axes.patches if each.get_gid() == gid("outline")]
    assert len(outlines) == 3
    assert not any(outline.get_fill() for outline in outlines)
    assert all(bar.get_alpha() == 0 for axes in plot.figure.axes for bar in axes.containers[1])
    assert sum(bars(plot, "words per text", 1)[0]) == 1
    assert "outline" not in histograms("train", found).svg()


def test_names_are_escaped_and_control_characters_shown() -> None:
    name = '<b>&"x"</b>\x00\x1b\udcff.jsonl'
    root = ElementTree.fromstring(histograms(name, describe(as_dataset(["a"], [["x"]]))).svg().encode())
    assert root.find(f"{SVG}title").text == '<b>&"x"</b>\\x00\\x1b\\udcff.jsonl'  # type: ignore[union-attr]
    assert not list(root.iter(f"{SVG}b"))


def odd_datasets() -> dict[str, Dataset]:
    wide = sp.csr_array(
        (np.ones(1_000_000, dtype=np.float32), np.arange(1_000_000), np.array([0, 1_000_000])), shape=(1, 1_000_000)
    )
    return {
        "one document": as_dataset(["a"], [["x"]]),
        "all equal": as_dataset(["a b"] * 20, [["x", "y"]] * 20),
        "no label occurs": as_dataset(["a", "b"], [[], []]),
        "no labels": as_dataset(["a", "b"]),
        "nothing but empty texts": as_dataset(["", ""], [[], ["x"]]),
        "a million labels": Dataset({"text": pa.chunked_array([["a"]])}, labels=wide),
        "far apart": as_dataset(["a " * 100_000, "b"], [[str(number) for number in range(500)], ["0"]]),
        "features": as_dataset(np.eye(3), [["x"]] * 3),
        "labels only": Dataset(labels=sp.csr_array(np.eye(2, dtype=np.float32))),
    }


@pytest.mark.parametrize("name", odd_datasets())
def test_odd_data_can_be_told_and_drawn(name: str) -> None:
    dataset = odd_datasets()[name]
    for found in (describe(dataset), describe(dataset, dataset.slice(0, 1))):
        plot = histograms("file", found, "other")
        assert len(ElementTree.fromstring(plot.svg()).findall(f".//{SVG}path")) < 400
        box, (width, height) = plot.figure.get_tightbbox(), plot.figure.get_size_inches()
        assert min(box.x0, box.y0) >= 0
        assert box.x1 <= width
        assert box.y1 <= height
        for axes in plot.figure.axes:
            (low, high), (left, right) = axes.get_ylim(), axes.get_xlim()
            for bar in (bar for container in axes.containers for bar in container):
                assert left <= bar.get_x() <= bar.get_x() + bar.get_width() <= right
                assert low <= bar.get_y() <= bar.get_y() + bar.get_height() <= high
        text = description_text("file", found, "other")
        assert f"{len(dataset):,}" in text
        assert max(map(len, text.splitlines())) < 170
        assert json.dumps(found.to_json())
    assert head_text(dataset, 2)


# ---- words for the terminal


def test_tables() -> None:
    text = description_text(
        "train.jsonl", describe(as_dataset(TEXTS, LABELS), as_dataset(["one two"], [["z"]])), "t.csv"
    )
    lines: dict[str, list[str]] = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            lines.setdefault(line.split("  ")[0].strip(), line.split())
    assert lines["documents"][-2:] == ["7", "1"]
    assert lines["labels not in train.jsonl"][-3:] == ["1", "(100.0", "%)"]
    assert "2 (of 1 texts)" in text
    assert "12,345" in description_text("many", describe(as_dataset(["a"] * 12_345)))


def test_text_histogram() -> None:
    distribution = Distribution.of([0] * 8 + [1] * 4 + [3])
    assert text_histogram(distribution, even_bins([distribution])) == "0 █▄ ▁   5"
    assert text_histogram(Distribution.of([]), even_bins([distribution])) == "0        5"


def test_head_shows_what_is_there() -> None:
    dataset = with_ids(as_dataset(["word " * 100, "\x1b[31mred", ""], [["a", "b"], ["a"], []]), ["i", "j", "k"])
    told = head_text(dataset, 2)
    assert told.splitlines()[0] == "i"
    assert "labels: a, b" in told
    assert "\x1b" not in told
    assert told.endswith("… and 1 more")
    assert max(map(len, told.splitlines())) <= 112
    assert "(no text)" in head_text(dataset, 10)
    assert "labels: (none)" in head_text(dataset, 10)
    assert "3 features: 0:1" in head_text(as_dataset(np.ones((1, 3)), [["a"]]), 1)
