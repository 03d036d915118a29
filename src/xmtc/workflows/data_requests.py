"""What the verbs on files of documents take, and the options of every verb that reads documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from xmtc.core.errors import ConfigError, check_positive
from xmtc.core.request import Argument, BaseRequest, Option

if TYPE_CHECKING:
    from xmtc.data.records import ReadOptions

SEPARATORS = {"tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}

NotInLabels = Literal["refuse", "drop"]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions(BaseRequest):
    """How a file of documents is read."""

    file_format: Annotated[str | None, Option("NAME", "--format")] = None
    """Format of the documents (default: detected from name and content)."""
    text_field: Annotated[str | None, Option("NAME,…")] = None
    """Fields that hold the text, such as title,body."""
    label_field: Annotated[str | None, Option("NAME")] = None
    """Field that holds the labels."""
    id_field: Annotated[str | None, Option("NAME")] = None
    """Field that holds the document id."""
    label_separator: Annotated[str, Option("S")] = ";"
    """Separator between labels in a cell of a table; also: tab, space, comma."""
    on_bad_line: Annotated[Literal["refuse", "skip"], Option()] = "refuse"
    """Lines that cannot be read: stop there, or skip and list them."""

    def check(self) -> None:
        _ = self.options

    @cached_property
    def options(self) -> ReadOptions:
        """The options as readers take them; skipped lines and notes are collected there."""
        from xmtc.data.records import BadLines, ReadOptions

        fields = [name.strip() for name in (self.text_field or "").split(",") if name.strip()]
        return ReadOptions(
            file_format=self.file_format,
            text_fields=fields or None,
            label_field=self.label_field,
            id_field=self.id_field,
            label_separator=SEPARATORS.get(self.label_separator, self.label_separator),
            bad_lines=BadLines(self.on_bad_line == "skip"),
        )


@dataclass(frozen=True, kw_only=True)
class VocabularyOptions(BaseRequest):
    """The vocabulary that labels of documents come from."""

    labels: Annotated[Path | None, Option("FILE")] = None
    """Label names: JSONL, TSV, SKOS or a list."""
    language: Annotated[str | None, Option("CODE")] = None
    """Language of the names in a SKOS file."""
    unknown_labels: Annotated[NotInLabels, Option()] = "refuse"
    """Labels that are not in --labels."""

    def check(self) -> None:
        if self.language is not None and self.labels is None:
            raise ConfigError("--language chooses among the names in --labels FILE. Name that file too.")


@dataclass(frozen=True, kw_only=True)
class DescribeRequest(BaseRequest):
    """One or two files of documents to describe."""

    source: Annotated[Path, Argument("FILE")]
    """Documents in any known format."""
    other: Annotated[Path | None, Argument("[OTHER]")] = None
    """A second file, such as the test file of the first."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class HeadRequest(BaseRequest):
    """The first documents of a file."""

    source: Annotated[Path, Argument("FILE")]
    """Documents in any known format."""
    count: Annotated[int, Option("N", "-n")] = 5
    """How many documents."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        check_positive("n", self.count)


@dataclass(frozen=True, kw_only=True)
class SplitRequest(BaseRequest):
    """A file of documents to split into parts."""

    source: Annotated[Path, Argument("FILE")]
    """Documents in any known format."""
    out: Annotated[Path, Option("DIR")]
    """Folder for the parts."""
    test: Annotated[float, Option("SHARE")] = 0.2
    """Share of documents for testing."""
    valid: Annotated[float, Option("SHARE")] = 0.0
    """Share of documents for validation."""
    seed: Annotated[int, Option("N")] = 0
    """Seed of the choice."""
    apart: Annotated[bool, Option()] = False
    """Let documents with the same text go to different parts."""
    to: Annotated[str | None, Option("NAME")] = None
    """Format of the parts (default: that of FILE)."""
    lossy: Annotated[bool, Option()] = False
    """Replace characters that a format cannot hold."""
    force: Annotated[bool, Option()] = False
    """Replace files that are there."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class ConvertRequest(BaseRequest):
    """A file of documents, or a vocabulary, to write in another format."""

    source: Annotated[Path, Argument("IN")]
    """Documents, or a label vocabulary."""
    target: Annotated[Path, Argument("OUT")]
    """The file to write; its name tells the format."""
    to: Annotated[str | None, Option("NAME")] = None
    """Format of OUT (default: by its name)."""
    lossy: Annotated[bool, Option()] = False
    """Replace characters that OUT's format cannot hold."""
    vocabulary: Annotated[bool, Option()] = False
    """IN is a label vocabulary, such as SKOS."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label names: JSONL, TSV, SKOS or a list."""
    language: Annotated[str | None, Option("CODE")] = None
    """Language of the names in a SKOS file."""
    unknown_labels: Annotated[NotInLabels, Option()] = "refuse"
    """Labels that are not in --labels."""
    force: Annotated[bool, Option()] = False
    """Replace OUT if it is there."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if self.language is not None and self.labels is None and not self.vocabulary:
            raise ConfigError("--language chooses among the names of a vocabulary. Add --labels FILE or --vocabulary.")


@dataclass(frozen=True, kw_only=True)
class FetchRequest(BaseRequest):
    """A public data set to fetch."""

    name: Annotated[str | None, Argument("[NAME]")] = None
    """Which data set (default: list them)."""
    out: Annotated[Path, Option("DIR")] = Path("data")
    """Folder for data sets."""
    mirror: Annotated[str | None, Option("URL")] = None
    """Fetch from this address instead of the public one."""
