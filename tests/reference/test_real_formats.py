"""Real data through every format and back, and what other libraries make of our files and we of theirs."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.sparse as sp

from tests.support.formats import FEATURE_NAMES, TEXT_NAMES, read_back
from tests.support.reading import label_sets
from tests.support.real_formats import check_same, check_through, key_columns, one_lined
from xmtc.data import read, write


@pytest.fixture(scope="module", autouse=True)
def no_sync() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.mark.parametrize("file_format", TEXT_NAMES)
@pytest.mark.parametrize("name", ["eurlex57k/dev.jsonl.xz", "cooking/train.jsonl.xz"])
def test_text_through_every_format(shared_data, tmp_path, name, file_format):
    dataset = read(shared_data / name).slice(0, 3000)
    exact = file_format in ("jsonl", "csv", "parquet", "annif-folder", "lf")
    check_through(dataset if exact else one_lined(dataset), file_format, tmp_path)


@pytest.mark.parametrize("file_format", ["tsv", "fasttext", "annif", "attentionxml"])
def test_lossy_text_differs_where_it_says_so(shared_data, tmp_path, file_format):
    dataset = read(shared_data / "eurlex57k/dev.jsonl.xz").slice(0, 3000)
    path = tmp_path / TEXT_NAMES[file_format]
    changed = write(dataset, path, file_format=file_format, lossy=True)
    again = read_back(path, file_format, list(dataset.fields))
    pairs = zip(dataset.text().to_pylist(), again.text().to_pylist(), strict=True)
    assert changed == sum(one != two for one, two in pairs)
    assert key_columns(again) == key_columns(dataset)


@pytest.mark.parametrize("file_format", FEATURE_NAMES)
@pytest.mark.parametrize("name", ["delicious", "bibtex"])
def test_features_through_every_format(shared_data, tmp_path, name, file_format):
    dataset = read(shared_data / name / "test.txt.gz")
    path = tmp_path / FEATURE_NAMES[file_format]
    assert write(dataset, path, file_format=file_format) == 0
    again = read(path, file_format=file_format)
    wide = again.features.copy()
    wide.resize(dataset.features.shape)
    assert (wide != dataset.features).nnz == 0
    assert wide.nnz == dataset.features.nnz
    assert key_columns(again) == key_columns(dataset)


def test_scikit_learn_and_scipy_read_ours(shared_data, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    dataset = read(shared_data / "bibtex/test.txt.gz")
    write(dataset, tmp_path / "a.svm")
    features, labels = datasets.load_svmlight_file(
        str(tmp_path / "a.svm"),
        n_features=dataset.features.shape[1],
        multilabel=True,
        zero_based=True,
        dtype=np.float32,
    )
    assert (sp.csr_array(features) != dataset.features).nnz == 0
    assert [set(map(str, map(int, row))) for row in labels] == label_sets(dataset)
    write(dataset, tmp_path / "X.npz")
    assert (sp.load_npz(tmp_path / "X.npz") != dataset.features).nnz == 0
    assert (sp.load_npz(tmp_path / "Y.npz") != dataset.labels).nnz == 0


def test_we_read_theirs(shared_data, tmp_path):
    datasets = pytest.importorskip("sklearn.datasets")
    dataset = read(shared_data / "delicious/test.txt.gz")
    matrices = sp.csr_matrix(dataset.features), sp.csr_matrix(dataset.labels)
    datasets.dump_svmlight_file(*matrices, str(tmp_path / "a.svm"), multilabel=True, comment="by scikit-learn")
    again = read(tmp_path / "a.svm")
    again.features.resize(dataset.features.shape)
    assert (again.features != dataset.features).nnz == 0
    assert label_sets(again) == label_sets(dataset)
    sp.save_npz(tmp_path / "X.trn.npz", matrices[0].tocsc())
    sp.save_npz(tmp_path / "Y.trn.npz", matrices[1].astype(bool).tocsc())
    again = read(tmp_path / "X.trn.npz")
    assert (again.features != dataset.features).nnz == 0
    assert (again.labels != dataset.labels).nnz == 0


def test_pandas_and_we_read_the_same_tables(shared_data, tmp_path):
    pandas = pytest.importorskip("pandas")
    dataset = read(shared_data / "cooking/train.jsonl.xz").slice(0, 2000)
    write(dataset, tmp_path / "a.csv")
    frame = pandas.read_csv(tmp_path / "a.csv", dtype=str, keep_default_na=False)
    assert frame["text"].tolist() == dataset.text().to_pylist()
    assert frame["id"].tolist() == dataset.document_ids()
    assert [set(filter(None, cell.split(";"))) for cell in frame["labels"]] == label_sets(dataset)
    frame["labels"] = [str(sorted(labels)) for labels in label_sets(dataset)]
    for options in ({"index": False}, {"sep": ";", "encoding": "utf-8-sig", "lineterminator": "\r\n"}):
        frame.to_csv(tmp_path / "b.csv", **options)
        check_same(tmp_path / "b.csv", "csv", dataset)


def test_the_csv_module_reads_ours(shared_data, tmp_path):
    import csv

    dataset = read(shared_data / "eurlex57k/dev.jsonl.xz").slice(0, 1000)
    write(dataset, tmp_path / "a.csv")
    before = csv.field_size_limit(2**31 - 1)
    try:
        with (tmp_path / "a.csv").open(encoding="utf-8", newline="") as stream:
            rows = list(csv.DictReader(stream, strict=True))
    finally:
        csv.field_size_limit(before)
    assert [row["id"] for row in rows] == dataset.document_ids()
    assert [{name: row[name] for name in dataset.fields} for row in rows] == [
        dict(zip(dataset.fields, texts, strict=True))
        for texts in zip(*(column.to_pylist() for column in dataset.fields.values()), strict=True)
    ]
