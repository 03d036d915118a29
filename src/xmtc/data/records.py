"""What every format's reader yields: a batch of documents as they stand in the file, with their line numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from xmtc.dataset import Csr


@dataclass
class Records:
    """Neighbouring documents of a file. Labels are keys; nothing is numbered yet."""

    ids: list[str]
    lines: Sequence[int] | NDArray[np.int64]
    """Line number of each document, for messages."""
    fields: dict[str, pa.Array] = field(default_factory=dict)
    features: Csr | None = None
    label_counts: Sequence[int] | NDArray[np.int64] | None = None
    """Labels of each document; None where the file has none."""
    label_keys: list[str] | pa.Array = field(default_factory=list)
    """The labels of all documents, one after the other."""
    label_width: int | None = None
    """How many labels the file's header announces."""

    def __len__(self) -> int:
        return len(self.lines)
