"""attention_xml with an output vector for each label in place of the shared perceptron."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests.support.models import QUICK, TREE, planted_split
from xmtc import load
from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import align_labels
from xmtc.metrics import precision
from xmtc.models.registry import model_class
from xmtc.nn.heads.label_outputs import LabelOutputs


def test_learns_predicts_again_and_explains(tmp_path: Path) -> None:
    train, test = planted_split(400, 60, labels=12, seed=4)[:2]
    settings = {**QUICK["attention_xml"], "head.outputs": "label"}
    here = Runtime(threads=1, device="cpu")
    model = model_class("attention_xml")(**settings).fit(train, runtime=here)
    assert isinstance(model._members[0].network.head, LabelOutputs)
    truth, _ = align_labels(test, model.labels)
    found = model.predict(test, 3)
    assert precision(found, truth, 1) > 0.6
    model.save(tmp_path / "m")
    again = load(tmp_path / "m", here)
    np.testing.assert_array_equal(again.predict(test, 3).scores, found.scores)
    text = test.text()[0].as_py()
    reasons = again.explain(text, again.predict([text], 1).names()[0][0])
    assert sum(item.weight for item in reasons.evidence) == pytest.approx(1.0, abs=1e-5)


def test_not_with_a_label_tree() -> None:
    with pytest.raises(ConfigError, match=r"'outputs' of head must be 'shared' with a label tree"):
        model_class("attention_xml")(**{**QUICK["attention_xml"], **TREE, "head.outputs": "label"})
