"""What every reader takes and yields: how to read a file, and batches of documents as they stand in it."""

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
    """What becomes of a line that cannot be read: it ends the reading, or it is left out and remembered."""

    def __init__(self, skip: bool = False) -> None:
        self.skip = skip
        self.messages: list[str] = []
        """One line for each bad line, as a refusal would have said it."""

    def add(self, error: DataError) -> None:
        """Called where a line is bad; raises unless bad lines are skipped."""
        if not self.skip:
            raise error from None
        self.messages.append(str(error))


@dataclass(frozen=True)
class ReadOptions:
    """How to read a file of documents; what is None is found out from the file."""

    file_format: str | None = None
    """One of the known formats."""
    text_fields: Sequence[str] | None = None
    """Fields or columns that hold the text, in order."""
    label_field: str | None = None
    """Field or column of the labels."""
    id_field: str | None = None
    """Field or column of the document ids."""
    label_separator: str = ";"
    """What parts labels within one cell of a table; a cell that is a list, ["a", "b"], needs none."""
    labelled: bool = True
    """Whether every document must say its labels (it may say that it has none); else they are read where present."""
    ignore_labels: bool = False
    """Whether nobody asks for labels, so that what stands in their place does not matter."""
    bad_lines: BadLines = field(default_factory=BadLines)
    """What becomes of lines that cannot be read."""
    notes: list[str] = field(default_factory=list)
    """Filled while reading: what a user should know that is no error."""
    feature_count: int | None = None
    """Features that a model knows, for a format that does not say how many there are; those beyond are left out."""

    def __post_init__(self) -> None:
        if isinstance(self.text_fields, str):
            object.__setattr__(self, "text_fields", (self.text_fields,))
        elif self.text_fields is not None:
            object.__setattr__(self, "text_fields", tuple(self.text_fields) or None)
        if self.text_fields and len(set(self.text_fields)) < len(self.text_fields):
            raise ConfigError(f"a text field is named twice: {shown(', '.join(self.text_fields))}. Name each once.")
        if not self.label_separator:
            raise ConfigError("the label separator must be at least one character, such as ';'.")


@dataclass
class Records:
    """Neighbouring documents of a file. Labels are keys; nothing is numbered yet."""

    ids: list[str] | pa.Array
    lines: Sequence[int] | NDArray[np.int64]
    """Line number of each document, for messages."""
    fields: dict[str, pa.Array] = field(default_factory=dict)
    features: Csr | None = None
    label_counts: Sequence[int] | NDArray[np.int64] | None = None
    """Labels of each document; None where the file has none."""
    label_keys: list[str] | pa.Array = field(default_factory=list)
    """The labels of all documents, one after the other."""
    label_width: int | None = None
    """How many labels there are, where the file says so; keys are then the numbers below."""
    label_index: LabelIndex | None = None
    """The `label_width` labels with their names, where a file beside this one has them."""
    label_names: Mapping[str, str] = field(default_factory=dict)
    """Names of labels that the file itself gives."""

    def __len__(self) -> int:
        return len(self.lines)


def json_kind(value: Any) -> str:
    """A JSON value's type in a reader's words."""
    kinds = {
        dict: "an object",
        list: "a list",
        str: "a string",
        bool: "a truth value",
        type(None): "null",
        bytes: "bytes",
    }
    return kinds.get(type(value), "a number")
