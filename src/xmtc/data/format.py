"""`Format`: a data format as one object with detector, reader, writer and capabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from xmtc.core.files import first_bytes, plain_name
from xmtc.data.dataset import Dataset
from xmtc.data.records import ReadOptions, Records


class FileHead:
    """The name and the first bytes of a file, by which formats recognise it."""

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self.is_pipe = str(path) == "-"

    @cached_property
    def name(self) -> str:
        """File name in lower case, without the ending of a compressed file."""
        return plain_name(self.path)

    @cached_property
    def is_folder(self) -> bool:
        """Whether the path is a folder."""
        return not self.is_pipe and Path(self.path).is_dir()

    @cached_property
    def raw(self) -> bytes:
        """The first bytes, decompressed."""
        return first_bytes(self.path)

    @cached_property
    def start(self) -> bytes:
        """The first bytes without a byte order mark."""
        return self.raw.removeprefix(b"\xef\xbb\xbf")

    @cached_property
    def first_line(self) -> bytes:
        """The first line that is not blank."""
        return self.start.lstrip().split(b"\n", 1)[0].rstrip(b"\r")

    @cached_property
    def lines(self) -> list[bytes]:
        """Lines that are neither blank nor comments; at least one, which may be empty."""
        lines = [line.rstrip(b"\r") for line in self.start.split(b"\n")]
        return [line for line in lines if line.strip() and not line.startswith(b"#")] or [b""]


Reader = Callable[[str | Path, ReadOptions], Iterator[Records]]
Writer = Callable[[Dataset, Path, bool], int]
"""(dataset, path, lossy: whether unsupported characters may be replaced) → number of texts and keys changed."""


@dataclass(frozen=True, kw_only=True)
class Format:
    """A file format for documents."""

    name: str
    description: str
    """Short description for the documentation."""
    read: Reader
    write: Writer | None = None
    sniff: Callable[[FileHead], bool] | None = None
    """Whether a file has this format, by name and first bytes; if None, `endings` decides."""
    part_name: str = ""
    """Pattern for the file name of a part such as 'train' or 'test'."""
    endings: tuple[str, ...] = ()
    """File name endings that select this format for writing."""
    holds: str = "text"
    """'text' or 'features'."""
    fields: bool = False
    """Whether text fields stay separate."""
    ids: bool = False
    """Whether document ids are stored."""
    decisions: bool = False
    """Whether rejected labels and incomplete label lists are stored."""
    split_field: bool = False
    """Whether documents have named values by which they can be split; the reader handles `ReadOptions.split_field`."""
    folder: bool = False
    """Whether documents are files in a folder."""
    lines: bool = True
    """Whether the file consists of text lines, and may be compressed."""
    labels_beside: Callable[[Path], Path | None] | None = None
    """Returns the label file of a document file, if the format stores labels in a separate file."""

    def recognises(self, head: FileHead) -> bool:
        """Whether a file has this format."""
        return head.name.endswith(self.endings or ("\0",)) if self.sniff is None else self.sniff(head)
