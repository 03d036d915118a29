"""A hundred thousand library records through every text format and back, every document compared."""

from __future__ import annotations

import pytest

from tests.support.formats import TEXT_NAMES
from tests.support.real_formats import check_through, one_lined
from xmtc.data import read
from xmtc.data.dataset import Dataset

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def records(shared_data) -> Dataset:
    return read(shared_data / "tibkat-gnd/train.jsonl.xz")


@pytest.mark.parametrize("file_format", TEXT_NAMES)
def test_library_records(records, tmp_path, file_format):
    assert len(records) == 90_452
    exact = file_format in ("jsonl", "csv", "parquet", "annif-folder", "lf")
    check_through(records if exact else one_lined(records), file_format, tmp_path)
