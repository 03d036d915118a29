"""One attention over the words: it learns, and it looks where the answer is."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from xmtc.core.runtime import Runtime
from xmtc.models.attention_lstm import AttentionLstmModel
from xmtc.models.registry import model_class

SIGNS = {"zorbex": "fish", "quillam": "bird", "vantorp": "snake", "merusk": "horse"}
"""Words that each tell a label, one a text; all others are noise."""
QUICK = {
    "vectors": "random",
    "corpus.width": 16,
    "encoder.units": 8,
    "encoder.hidden": 16,
    "encoder.dropout": 0.1,
    "training.epochs": 12,
    "training.batch_size": 16,
    "training.learning_rate": 0.02,
    "training.validation_size": 0,
}


def texts_and_labels(count: int, seed: int) -> tuple[list[str], list[list[str]]]:
    chance = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        words = [f"noise{number}" for number in chance.integers(0, 40, chance.integers(6, 14))]
        sign = str(chance.choice(list(SIGNS)))
        words.insert(int(chance.integers(0, len(words) + 1)), sign)
        texts.append(" ".join(words))
        labels.append([SIGNS[sign]])
    return texts, labels


def test_it_learns_and_looks_at_the_words_that_tell(one_thread: None) -> None:
    model = model_class("attention_lstm")(**QUICK)
    assert isinstance(model, AttentionLstmModel)
    model.fit(*texts_and_labels(240, 0), runtime=Runtime(threads=1, seed=1))
    texts, labels = texts_and_labels(40, 1)
    found = model.predict(texts, k=1).names()
    assert np.mean([row == truth for row, truth in zip(found, labels, strict=True)]) > 0.9
    looked = 0
    for text, (label,) in zip(texts[:10], labels[:10], strict=True):
        reasons = model.explain(text, label)
        assert reasons.kind == "tokens"
        assert reasons.shares
        assert sum(item.weight for item in reasons.evidence) == pytest.approx(1, abs=1e-5)
        assert [text[item.start : item.end] for item in reasons.evidence] == [item.text for item in reasons.evidence]
        assert len(reasons.evidence) == len(text.split())
        around = text.split().index(next(word for word in text.split() if word in SIGNS))
        looked += abs(text.split().index(reasons.evidence[0].text) - around) <= 1  # states tell of neighbours too
    assert looked >= 7
    assert model.explain("", "fish").evidence == ()


def test_vectors_are_as_wide_as_published() -> None:
    settings = AttentionLstmModel().config
    assert (settings.corpus.kind, settings.corpus.width, 2 * settings.encoder.units, settings.encoder.hidden) == (
        "cbow",
        256,
        256,
        256,
    )
