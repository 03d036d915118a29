"""Round trips of real data sets through a format, compared document by document."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.support.formats import TEXT_NAMES, read_back
from xmtc.data import write
from xmtc.data.dataset import Dataset
from xmtc.data.formats import FORMATS


def key_columns(dataset: Dataset) -> tuple[list[int], list[str]]:
    """The label keys of all documents, one after the other, and how many each has."""
    assert dataset.labels is not None
    assert dataset.label_index is not None
    keys = dataset.label_index.table["key"].combine_chunks()
    order = np.argsort(np.asarray(pc.rank(keys, sort_keys="ascending")), kind="stable")
    ordered = dataset.labels[:, order]
    ordered.sort_indices()
    return ordered.indptr.tolist(), keys.take(pa.array(order)).take(pa.array(ordered.indices)).to_pylist()


def check_same(path: Path, file_format: str, dataset: Dataset) -> None:
    """The documents of a file are these; a folder has them in the order of their names."""
    again = read_back(path, file_format, list(dataset.fields))
    form = FORMATS[file_format]
    if file_format == "annif-folder":
        names = dataset.document_ids()
        dataset = dataset.take(np.argsort([f"{name}.txt" for name in names], kind="stable"))
    assert len(again) == len(dataset)
    if form.ids:
        assert again.document_ids() == dataset.document_ids()
    assert again.text().combine_chunks().equals(dataset.text().combine_chunks())
    assert key_columns(again) == key_columns(dataset)


def check_through(dataset: Dataset, file_format: str, folder: Path) -> None:
    """Written, read and compared; of text that a format cannot hold, only the characters it names may change."""
    path = folder / TEXT_NAMES[file_format]
    assert write(dataset, path, file_format=file_format) == 0
    check_same(path, file_format, dataset)


def one_lined(dataset: Dataset) -> Dataset:
    """Without the few characters that formats of one line a document cannot hold."""
    texts = pc.replace_substring_regex(dataset.text().combine_chunks(), "[\r\v\t\ufeff]", " ")
    return Dataset({"text": pa.chunked_array([texts])}, None, dataset.labels, dataset.label_index, dataset.ids)
