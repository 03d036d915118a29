"""What a vocabulary says about labels, to be shown beside them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

from xmtc.data.label_index import LabelIndex


class LabelDetails:
    """Broader labels, description, notes, schemes and number of training documents of labels, as JSON."""

    def __init__(
        self,
        labels: LabelIndex,
        counts: NDArray[np.int64] | None,
        most_characters: int | None = None,
        most_values: int | None = None,
    ) -> None:
        """`most_characters` shortens each text, `most_values` each list."""
        self._labels, self._counts = labels, counts
        self._most_characters, self._most_values = most_characters, most_values

    def __call__(self, numbers: ArrayLike) -> list[dict[str, Any]]:
        """The details of the labels with these numbers. `documents` is None if the training counts are unknown.

        A broader label is given by name, or by key if its name is not known. A note that is the description is left
        out.
        """
        chosen = np.asarray(numbers, dtype=np.int64)
        parents = self._column("parents", chosen)
        names = self._names([key for keys in parents for key in keys])
        counts = [None] * len(chosen) if self._counts is None else self._counts[chosen].tolist()
        columns = zip(
            parents,
            self._labels.strings("description", chosen),
            self._column("notes", chosen),
            self._column("schemes", chosen),
            counts,
            strict=True,
        )
        return [
            {
                "broader": [names[key] for key in keys],
                "description": self._shortened(description or ""),
                "notes": [self._shortened(note) for note in notes if note != description],
                "schemes": schemes,
                "documents": documents,
            }
            for keys, description, notes, schemes, documents in columns
        ]

    def _column(self, name: str, numbers: NDArray[np.int64]) -> list[list[str]]:
        lists = self._labels.table[name].take(pa.array(numbers)).to_pylist()
        return [[value for value in values or [] if value][: self._most_values] for values in lists]

    def _shortened(self, text: str) -> str:
        most = self._most_characters
        return text if most is None or len(text) <= most else text[: most - 1] + "…"

    def _names(self, keys: list[str]) -> dict[str, str]:
        """Key → name."""
        names = {key: key for key in keys}
        for labels in (self._labels.ancestors, self._labels):
            if labels is not None:
                numbers = labels.ids(distinct := list(names))
                known = [key for key, number in zip(distinct, numbers, strict=True) if number >= 0]
                names |= zip(known, labels.strings("name", numbers[numbers >= 0]), strict=True)
        return names
