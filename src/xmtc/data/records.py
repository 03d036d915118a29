"""Input and output of every reader: options for reading a file, and batches of its documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.core.errors import ConfigError, DataError, shown
from xmtc.data.dataset import Csr
from xmtc.data.label_index import LabelIndex


class BadLines:
    """Policy for invalid lines: raise an error, or skip them and collect the messages."""

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.messages: list[str] = []
        """Error message of each skipped line."""

    def add(self, error: DataError) -> None:
        """Report an invalid line; raise unless invalid lines are skipped."""
        if not self.skip:
            raise error from None
        self.messages.append(str(error))


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a file of documents; None means automatic detection."""

    file_format: str | None = None
    """Name of a supported format."""
    text_fields: Sequence[str] | None = None
    """Fields or columns with the text, in order."""
    label_field: str | None = None
    """Field or column with the labels."""
    id_field: str | None = None
    """Field or column with the document ids."""
    split_field: str | None = None
    """Field or column by which documents will be split, such as a patient or a date; every document needs a value."""
    label_separator: str = ";"
    """Separator between labels in a table cell; not used for cells that are lists, such as ["a", "b"]."""
    labelled: bool = True
    """Whether every document must have a (possibly empty) list of labels; otherwise labels are optional."""
    ignore_labels: bool = False
    """Whether to skip labels without checking them."""
    bad_lines: BadLines = field(default_factory=BadLines)
    """Policy for invalid lines."""
    notes: list[str] = field(default_factory=list)
    """Notes for the user, collected while reading."""
    feature_count: int | None = None
    """Number of features of the model, for formats without a header; features beyond it are skipped."""

    def __post_init__(self) -> None:
        if isinstance(self.text_fields, str):
            object.__setattr__(self, "text_fields", (self.text_fields,))
        elif self.text_fields is not None:
            object.__setattr__(self, "text_fields", tuple(self.text_fields) or None)
        if self.text_fields and len(set(self.text_fields)) < len(self.text_fields):
            raise ConfigError(f"a text field is given twice: {shown(', '.join(self.text_fields))}. Give each once.")
        if not self.label_separator:
            raise ConfigError("the label separator is empty. Pass at least one character, such as ';'.")


@dataclass
class Records:
    """A batch of consecutive documents of a file. Labels are keys, not yet numbered."""

    ids: list[str] | pa.Array
    lines: Sequence[int] | NDArray[np.int64]
    """Line number of each document, for messages."""
    fields: dict[str, pa.Array] = field(default_factory=dict)
    features: Csr | None = None
    label_counts: Sequence[int] | NDArray[np.int64] | None = None
    """Number of labels of each document; None if the file has no labels."""
    label_keys: list[str] | pa.Array = field(default_factory=list)
    """The labels of all documents, concatenated."""
    rejected_counts: Sequence[int] | NDArray[np.int64] | None = None
    """Number of rejected labels of each document; None if no document of the batch has any."""
    rejected_keys: list[str] | pa.Array = field(default_factory=list)
    """The rejected labels of all documents, concatenated."""
    partial: NDArray[np.bool_] | None = None
    """Whether each document may have labels that are not listed; None if all label lists are complete."""
    label_width: int | None = None
    """Number of labels if the file states it; keys are then numbers below it."""
    label_index: LabelIndex | None = None
    """The `label_width` labels with their names, if a companion file provides them."""
    label_names: Mapping[str, str] = field(default_factory=dict)
    """Label names found in the file itself, by key."""
    split_values: Sequence[str | None] | pa.Array | None = None
    """Values of the field by which documents will be split; None if the options name no such field."""

    def __len__(self) -> int:
        return len(self.lines)


def json_kind(value: Any) -> str:
    """Describe the type of a JSON value for error messages."""
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a boolean",
        type(None): "null",
        bytes: "bytes",
    }
    return kinds.get(type(value), "a number")
