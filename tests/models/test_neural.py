"""Training on documents with unknown labels: labels that were hidden are found, as if nothing had been hidden."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

pytest.importorskip("torch")

from tests.support.models import QUICK, TREE
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.models.registry import model_class

SMALL = {"training.validation_size": 0, "training.batch_size": 16, "training.epochs": 12}
VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    "flat": ("xml_cnn", {"encoder.filters": 16, "encoder.hidden": 32}),
    "tree": (
        "attention_xml",
        {"encoder.units": 16, "head.hidden": [16], **TREE, "head.tree.height": 1, "head.tree.beam_width": 4},
    ),
}
LABELS = 12


def documents_of(count: int, seed: int) -> Dataset:
    """Texts with words that belong to their two labels."""
    random = np.random.default_rng(seed)
    held = [random.choice(LABELS, 2, replace=False).tolist() for _ in range(count)]
    texts = [
        " ".join(random.permutation([f"l{a}w{random.integers(3)}" for a in pair for _ in range(3)])) for pair in held
    ]
    return as_dataset(texts, [[f"label{label:02}" for label in pair] for pair in held])


def half_hidden(train: Dataset) -> Dataset:
    """Most documents keep one of their two labels and three rejected ones; all else is unknown."""
    assert train.labels is not None
    random = np.random.default_rng(5)
    partial, right = random.random(len(train)) < 0.8, train.labels.toarray() > 0
    keys = random.random(right.shape)
    first = keys == np.where(right, keys, 2.0).min(axis=1, keepdims=True)
    wrong = np.argsort(np.argsort(np.where(right, 2.0, keys), axis=1), axis=1) < 3
    labels = sp.csr_array((right & (first | ~partial[:, None])).astype(np.float32))
    rejected = sp.csr_array((wrong & partial[:, None]).astype(np.float32))
    return replace(train, labels=labels, rejected=rejected, partial=partial)


@pytest.mark.parametrize("variant", VARIANTS)
def test_hidden_labels_are_not_negatives(variant: str) -> None:
    name, settings = VARIANTS[variant]
    given, test = half_hidden(documents_of(240, 1)), documents_of(60, 2)
    assert test.labels is not None
    right = test.labels.toarray() > 0
    scores = []
    for train in (given, replace(given, rejected=None, partial=None)):
        model = model_class(name)(**{**QUICK[name], **SMALL, **settings}).fit(train, runtime=Runtime(threads=1, seed=1))
        found = model.score_labels(test, np.tile(np.arange(LABELS), (len(test), 1)))
        scores.append((found[right].mean(), found[~right].mean()))
    (masked, noise), (negative, _) = scores
    assert masked > negative + 0.15
    assert masked > noise + 0.4
