"""What every format's reader yields: a batch of documents as they stand in the file, with their line numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.dataset import Csr


@dataclass
class Records:
    """Neighbouring documents of a file. Labels are keys; nothing is numbered yet."""

    ids: list[str]
    lines: list[int]
    """Line number of each document, for messages."""
    fields: dict[str, pa.Array] = field(default_factory=dict)
    features: Csr | None = None
    label_counts: list[int] | None = None
    """Labels of each document; None where the file has none."""
    label_keys: list[str] = field(default_factory=list)
    """The labels of all documents, one after the other."""
    label_width: int | None = None
    """How many labels the file's header announces."""

    def __len__(self) -> int:
        return len(self.ids)

    def label_offsets(self) -> NDArray[np.int64]:
        counts = self.label_counts if self.label_counts is not None else [0] * len(self)
        return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
