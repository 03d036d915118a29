"""Download public datasets of the catalogue."""

from __future__ import annotations

from pathlib import Path

from xmtc.core.progress import Progress, silent
from xmtc.data.catalogue import CATALOGUE, DataSet
from xmtc.data.catalogue import find as find_dataset
from xmtc.data.downloads import Fetched, fetch
from xmtc.workflows.data_requests import FetchRequest

__all__ = ["CATALOGUE", "DataSet", "Fetched", "fetch_dataset", "find_dataset", "unfinished_downloads"]


def fetch_dataset(request: FetchRequest, *, progress: Progress = silent) -> Fetched:
    """Download, verify and unpack a dataset into its own folder."""
    return fetch(find_dataset(request.name or ""), request.out, mirror=request.mirror, progress=progress)


def unfinished_downloads(request: FetchRequest) -> list[Path]:
    """Partial files that an interrupted download left behind."""
    return sorted((request.out / find_dataset(request.name or "").name).glob("*.part"))
