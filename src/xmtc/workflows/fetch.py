"""Fetch public data sets of the catalogue."""

from __future__ import annotations

from pathlib import Path

from xmtc.core.progress import Progress, silent
from xmtc.data.catalogue import CATALOGUE, DataSet
from xmtc.data.catalogue import find as find_dataset
from xmtc.data.downloads import Fetched, fetch
from xmtc.workflows.data_requests import FetchRequest

__all__ = ["CATALOGUE", "DataSet", "Fetched", "fetch_dataset", "find_dataset", "unfinished_downloads"]


def fetch_dataset(request: FetchRequest, *, progress: Progress = silent) -> Fetched:
    """A data set in a folder of its own, checked and unpacked."""
    return fetch(find_dataset(request.name or ""), request.out, mirror=request.mirror, progress=progress)


def unfinished_downloads(request: FetchRequest) -> list[Path]:
    """Files that a download that was interrupted has left."""
    return sorted((request.out / find_dataset(request.name or "").name).glob("*.part"))
