"""Inspect files of documents: statistics of one or two files, and the first documents of a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from xmtc.core.progress import Progress, silent
from xmtc.data.dataset import Dataset
from xmtc.data.description import SHARES, Description, Distribution, Repeats
from xmtc.data.description import describe as describe_documents
from xmtc.data.reading import read, read_some
from xmtc.workflows.data_requests import DescribeRequest, HeadRequest

__all__ = ["SHARES", "Dataset", "Description", "Distribution", "Repeats", "describe", "first_documents"]


def describe(request: DescribeRequest, *, progress: Progress = silent) -> Description:
    """Count documents, labels, lengths and duplicates; with two files, what they share."""

    def documents(path: Path) -> Dataset:
        """Read the documents, with their labels if they have any."""
        return read(
            path,
            replace(request.reading.options, labelled=False),
            vocabulary=request.vocabulary.labels,
            language=request.vocabulary.language,
            unknown_labels=request.vocabulary.unknown_labels,
            progress=progress,
        )

    first = documents(request.source)
    return describe_documents(first, None if request.other is None else documents(request.other), progress=progress)


def first_documents(request: HeadRequest) -> Dataset:
    """Read the first documents of a file."""
    return read_some(request.source, request.count, request.reading.options)
