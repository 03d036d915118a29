"""Models with correlation blocks: they learn what labels tell about each other, are saved, updated and refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.support.models import CORRELATION, QUICK, TREE
from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, as_dataset
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.nn.heads.base import LinearHead
from xmtc.nn.heads.correlation import CorrelationHead, CorrelationSettings

RUNTIME = Runtime(threads=1, seed=1)
PAIRS = 8
"""Of labels that occur together; only the first has words in the text."""


def documents_of(count: int, seed: int, pairs: int = PAIRS) -> Dataset:
    """Each text tells one or two labels, every one of which has a companion without words of its own."""
    random = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(count):
        own = random.choice(pairs, random.integers(1, 3), replace=False)
        words = [f"l{label}w{random.integers(3)}" for label in own for _ in range(3)]
        texts.append(" ".join(random.permutation([*words, *(f"noise{random.integers(20)}" for _ in range(4))])))
        labels.append([f"{kind}{label}" for label in own for kind in ("named", "silent")])
    return as_dataset(texts, labels)


def trained(name: str, **more: Any) -> Model:
    quick = {**QUICK[name], "training.validation_size": 0, "training.batch_size": 16, **CORRELATION, **more}
    return model_class(name)(**quick).fit(documents_of(160, 0), runtime=RUNTIME)


def scores_of(model: Model, documents: Dataset) -> np.ndarray:
    return model.score_labels(documents, np.tile(np.arange(len(model.labels)), (len(documents), 1)))


@pytest.mark.parametrize("name", ["xml_cnn", "attention_xml"])
def test_it_learns_and_is_saved(name: str, tmp_path: Path) -> None:
    more = {"training.epochs": 10} if name == "attention_xml" else {}
    model, test = trained(name, **more), documents_of(40, 1)
    assert isinstance(model._members[0].network.head, CorrelationHead)  # type: ignore[attr-defined]
    found = model.predict(test, 4)
    assert test.labels is not None
    assert test.label_index is not None
    keys = np.array(test.label_index.keys)
    hits = [
        set(names[: row.nnz]) == set(keys[row.indices]) for names, row in zip(found.names(), test.labels, strict=True)
    ]
    assert np.mean(hits) > 0.6
    scores = scores_of(model, test)
    assert np.allclose(np.take_along_axis(scores, found.labels, axis=1), found.scores, atol=1e-5)
    model.save(tmp_path / "model")
    assert np.allclose(scores_of(type(model).load(tmp_path / "model"), test), scores, atol=1e-6)
    if "explain" in model.capabilities:
        reasons = model.explain("noise1 l3w1 noise2", "silent3")
        assert sum(item.weight for item in reasons.evidence) == pytest.approx(1.0, abs=1e-5)


def test_blocks_make_companions_agree(one_thread: None) -> None:
    """A block alone, trained on the fixed logits of one label of each pair, finds the other."""
    torch.manual_seed(0)
    head = CorrelationHead(LinearHead(2 * PAIRS, PAIRS), CorrelationSettings(blocks=1, bottleneck=16))
    with torch.no_grad():  # labels of even number have their own feature, others have none
        head.base.rows.zero_()
        head.base.rows[::2] = 8.0 * torch.eye(PAIRS)
        head.base.bias.fill_(-4.0)
    head.base.requires_grad_(False)
    optimiser = torch.optim.Adam(head.blocks.parameters(), lr=0.02)
    mask = torch.ones(32, 1, dtype=torch.bool)
    for _ in range(150):
        own = torch.randint(0, PAIRS, (32,))
        vectors = torch.nn.functional.one_hot(own, PAIRS).float()
        head.zero_grad()
        head.learn(vectors, mask, torch.stack([2 * own, 2 * own + 1], dim=1), 2 * PAIRS)
        optimiser.step()
    logits = head.logits(torch.eye(PAIRS), mask, 0, 2 * PAIRS)
    best = logits.topk(2, dim=1).indices.sort(dim=1).values
    assert best.tolist() == [[2 * label, 2 * label + 1] for label in range(PAIRS)]


def test_new_labels_by_an_update() -> None:
    model = trained("xml_cnn", keep_replay=80)
    model.update(documents_of(80, 2, PAIRS + 2), force=True)
    assert len(model.labels) == 2 * PAIRS + 4
    test = documents_of(60, 3, PAIRS + 2)
    best = model.predict(test, 2).names()
    assert test.labels is not None
    assert test.label_index is not None
    right = [set(np.array(test.label_index.keys)[row.indices]) for row in test.labels]
    assert np.mean([names[0] in wanted for names, wanted in zip(best, right, strict=True)]) > 0.8
    newest = [row for row, wanted in enumerate(right) if f"named{PAIRS}" in wanted]
    found = model.predict(test, 4).names()
    assert np.mean([f"named{PAIRS}" in found[row] for row in newest]) > 0.6


def test_trees_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"'correlation.blocks' of attention_xml must be 0 with a label tree"):
        model_class("attention_xml")(**{**QUICK["attention_xml"], **TREE, **CORRELATION})


def test_settings() -> None:
    for wrong in ({"blocks": -1}, {"bottleneck": 0}):
        with pytest.raises(ConfigError, match=f"'{next(iter(wrong))}' of correlation"):
            model_class("xml_cnn")(correlation=wrong)
