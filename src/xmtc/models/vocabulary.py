"""The labels of a model that is given a whole vocabulary: which of them it keeps, and what it records about them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xmtc.data.dataset import Dataset
from xmtc.data.label_index import LabelIndex
from xmtc.data.vocabularies import LabelVocabulary, as_vocabulary, with_vocabulary
from xmtc.labels.hierarchy import linked

Vocabulary = LabelIndex | LabelVocabulary | str | Path
"""All labels that documents may have, or the path of a file of them."""


def training_labels(
    train: Dataset, vocabulary: Vocabulary | None, uses_names: bool
) -> tuple[Dataset, LabelIndex | None]:
    """Documents with the labels to train on, and the whole vocabulary, if there is one.

    Labels without training documents are dropped unless the model uses label names, which takes texts.
    """
    if vocabulary is not None and train.labels is not None:
        train = with_vocabulary(train, vocabulary)
    listed = train.label_index if train.whole_vocabulary else None
    if listed is not None and uses_names and train.has_text:
        return train, listed
    train = (train if listed is None else train.used_labels()).without_rejected_only()
    if listed is not None and train.label_index is not None:
        train = replace(train, label_index=linked(train.label_index, listed))
    return train, listed


def new_vocabulary(documents: Any, vocabulary: Vocabulary | None) -> LabelVocabulary | None:
    """The vocabulary of an update: the given one, or that of its documents."""
    if vocabulary is not None:
        return as_vocabulary(vocabulary)
    if isinstance(documents, Dataset) and documents.whole_vocabulary and documents.label_index is not None:
        return LabelVocabulary(documents.label_index)
    return None


def vocabulary_facts(vocabulary: LabelIndex | None, labels: LabelIndex, counts: NDArray[np.int64]) -> dict[str, Any]:
    """The size of the vocabulary, and the number of its labels without training documents, for the training facts."""
    if vocabulary is None:
        return {}
    numbers = labels.ids(vocabulary.table["key"].combine_chunks())
    used = int(np.count_nonzero(counts[numbers[numbers >= 0]]))
    return {"vocabulary": {"labels": len(vocabulary), "without_documents": len(vocabulary) - used}}
