"""The parameters of the `xmtc data` commands, and the options of all commands that read documents."""

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
    """Options for reading a file of documents."""

    file_format: Annotated[str | None, Option("NAME", "--format")] = None
    """Format of the input documents (default: detected from name and content)."""
    text_field: Annotated[str | None, Option("NAME,…")] = None
    """Fields with the text, such as title,body."""
    label_field: Annotated[str | None, Option("NAME")] = None
    """Field with the labels."""
    id_field: Annotated[str | None, Option("NAME")] = None
    """Field with the document id."""
    label_separator: Annotated[str, Option("S")] = ";"
    """Separator between labels in a cell: a character, or tab, space, comma or semicolon."""
    on_bad_line: Annotated[Literal["refuse", "skip"], Option()] = "refuse"
    """Lines that cannot be read: stop with an error, or skip and list them."""

    def check(self) -> None:
        _ = self.options

    @cached_property
    def options(self) -> ReadOptions:
        """The options for the readers, which also collect skipped lines and notes there."""
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
    """The label vocabulary of the documents."""

    labels: Annotated[Path | None, Option("FILE")] = None
    """Label vocabulary: JSONL, TSV, CSV, SKOS or a list."""
    language: Annotated[str | None, Option("CODE")] = None
    """Language of the label names in a SKOS file, such as en."""
    unknown_labels: Annotated[NotInLabels, Option()] = "refuse"
    """Labels that are not in --labels: stop with an error, or drop them."""

    def check(self) -> None:
        if self.language is not None and self.labels is None:
            raise ConfigError("--language can only be used with --labels FILE. Add --labels.")


@dataclass(frozen=True, kw_only=True)
class DescribeRequest(BaseRequest):
    """One or two files of documents to describe."""

    source: Annotated[Path, Argument("FILE")]
    """Documents in any supported format."""
    other: Annotated[Path | None, Argument("OTHER")] = None
    """Second file to compare with, such as the test set."""
    vocabulary: VocabularyOptions = field(default_factory=VocabularyOptions)
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class HeadRequest(BaseRequest):
    """The first documents of a file."""

    source: Annotated[Path, Argument("FILE")]
    """Documents in any supported format."""
    count: Annotated[int, Option("N", "-n")] = 5
    """Number of documents."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        check_positive("n", self.count)


@dataclass(frozen=True, kw_only=True)
class SplitRequest(BaseRequest):
    """A file of documents to split into parts."""

    source: Annotated[Path, Argument("FILE")]
    """Documents in any supported format."""
    out: Annotated[Path, Option("DIR", short="-o")]
    """Folder to write the parts to."""
    test: Annotated[float, Option("FRACTION")] = 0.2
    """Fraction of documents for the test set."""
    valid: Annotated[float, Option("FRACTION")] = 0.0
    """Fraction of documents for the validation set."""
    seed: Annotated[int, Option("N")] = 0
    """Random seed."""
    apart: Annotated[bool, Option(names="--split-duplicates")] = False
    """Allow documents with the same text in different parts."""
    to: Annotated[str | None, Option("NAME")] = None
    """Format of the parts (default: the format of FILE)."""
    lossy: Annotated[bool, Option()] = False
    """Replace characters that the format cannot represent."""
    force: Annotated[bool, Option()] = False
    """Replace existing files."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)


@dataclass(frozen=True, kw_only=True)
class ConvertRequest(BaseRequest):
    """A file of documents, or a vocabulary, to write in another format."""

    source: Annotated[Path, Argument("IN")]
    """Documents, or with --vocabulary a label vocabulary."""
    target: Annotated[Path, Argument("OUT")]
    """File to write; its extension determines the format."""
    to: Annotated[str | None, Option("NAME")] = None
    """Format of OUT (default: from its extension)."""
    lossy: Annotated[bool, Option()] = False
    """Replace characters that the format of OUT cannot represent."""
    vocabulary: Annotated[bool, Option()] = False
    """Convert a label vocabulary, such as SKOS, instead of documents."""
    labels: Annotated[Path | None, Option("FILE")] = None
    """Label vocabulary: JSONL, TSV, CSV, SKOS or a list."""
    language: Annotated[str | None, Option("CODE")] = None
    """Language of the label names in a SKOS file, such as en."""
    unknown_labels: Annotated[NotInLabels, Option()] = "refuse"
    """Labels that are not in --labels: stop with an error, or drop them."""
    force: Annotated[bool, Option()] = False
    """Replace OUT if it exists."""
    reading: ReadingOptions = field(default_factory=ReadingOptions)

    def check(self) -> None:
        if self.language is not None and self.labels is None and not self.vocabulary:
            raise ConfigError("--language can only be used with --labels FILE or --vocabulary. Add one of them.")


@dataclass(frozen=True, kw_only=True)
class FetchRequest(BaseRequest):
    """A public data set to download."""

    name: Annotated[str | None, Argument("NAME", complete="datasets")] = None
    """Data set to download (default: list all)."""
    out: Annotated[Path, Option("DIR", short="-o")] = Path("data")
    """Folder for data sets."""
    mirror: Annotated[str | None, Option("URL")] = None
    """Download from this address instead of the public one."""
