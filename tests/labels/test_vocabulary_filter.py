"""Labels selected by what the vocabulary says about them."""

from __future__ import annotations

import numpy as np
import pytest

from xmtc.core.errors import DataError
from xmtc.data.label_index import LabelIndex
from xmtc.labels.vocabulary_filter import VocabularyFilter

LABELS = LabelIndex.from_keys(
    ["p", "t", "o", "r"],
    ["plant", "tree", "oak", "rock"],
    parents=[[], ["p"], ["t"], ["m"]],
    schemes=[["Nature"], ["Nature", "Wood"], ["Wood"], []],
    collections=[[], [], ["garden"], ["garden"]],
    types=[["topic"]] * 4,
)
COUNTS = np.array([3, 0, 1, 0])


def keys(counts: bool = True, **conditions: object) -> str:
    mask = VocabularyFilter(**conditions).mask(LABELS, COUNTS if counts else None)  # type: ignore[arg-type]
    return "".join(LABELS.strings("key", np.flatnonzero(mask)))


def test_each_condition() -> None:
    assert keys(under=("t",)) == keys(under=("Tree",)) == "to"
    assert keys(under=("t", "rock")) == "tor"
    assert keys(under=("m",)) == "r"  # 'm' is no label, but the parent of one
    assert keys(schemes=("Wood",)) == keys(schemes=("wood",)) == "to"
    assert keys(schemes=("Wood", "Nature")) == "pto"
    assert keys(collections=("garden",)) == "or"
    assert keys(types=("topic",)) == "ptor"
    assert keys(used=True) == "po"
    assert keys(used=False) == "tr"


def test_all_conditions_must_match() -> None:
    assert keys(under=("p",), schemes=("Wood",), used=True) == "o"
    with pytest.raises(DataError, match="none of the model's 4 labels matches under 'r', scheme 'Wood', without"):
        keys(under=("r",), schemes=("Wood",), used=False)
    assert not VocabularyFilter()
    assert VocabularyFilter(used=False)


@pytest.mark.parametrize(
    ("conditions", "words"),
    [
        ({"under": ("tre",)}, "label 'tre' is not among the model's 4 labels. Did you mean 'tree'?"),
        ({"schemes": ("Woods",)}, "scheme 'Woods' does not occur among the model's labels. Did you mean 'Wood'?"),
        ({"types": ("x",)}, "type 'x' does not occur among the model's labels. Available: topic."),
        ({"used": True, "counts": False}, "the model does not store its training label counts"),
    ],
)
def test_mistakes(conditions: dict[str, object], words: str) -> None:
    with pytest.raises(DataError) as caught:
        keys(**conditions)  # type: ignore[arg-type]
    assert str(caught.value).startswith(words)


def test_what_no_label_has() -> None:
    plain = LabelIndex.numbered(3)
    with pytest.raises(DataError, match="no label of the model has a collection"):
        VocabularyFilter(collections=("a",)).mask(plain)
    with pytest.raises(DataError, match="all of the model's 3 labels have training documents"):
        VocabularyFilter(used=False).mask(plain, np.ones(3, dtype=np.int64))


@pytest.mark.parametrize("field", ["under", "schemes", "collections", "types"])
def test_one_string_is_not_a_list(field: str) -> None:
    with pytest.raises(DataError, match=f"^'{field}' must be a list of strings. Got a string; write"):
        VocabularyFilter(**{field: "animals"})
