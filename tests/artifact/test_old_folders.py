"""Model folders that version 0.1.0 wrote load, verify and predict what they predicted then."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from xmtc import load
from xmtc.core.runtime import Runtime
from xmtc.models.registry import MODELS, available
from xmtc.workflows.models import verify

FOLDERS = Path(__file__).parent / "folders-0.1"
NAMES = sorted(path.stem for path in FOLDERS.glob("*.json") if path.stem != "documents")
DOCUMENTS = json.loads((FOLDERS / "documents.json").read_text(encoding="utf-8"))


def test_there_is_one_of_each_family() -> None:
    families = {json.loads((FOLDERS / name / "model.json").read_text())["model"] for name in NAMES}
    newer, alike = {"lexical", "lsan"}, {"attention_lstm", "bonsai", "transformer", "xml_rnn"}
    assert families == set(MODELS) - newer - alike
    assert sum(path.stat().st_size for path in FOLDERS.rglob("*") if path.is_file()) <= 300_000


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_predicts_what_it_did(name: str) -> None:
    folder = FOLDERS / name
    if not available(json.loads((folder / "model.json").read_text())["model"]):
        pytest.skip("needs an extra that is not installed")
    verify(folder)
    expected = json.loads((FOLDERS / f"{name}.json").read_text(encoding="utf-8"))
    found = load(folder, Runtime(device="cpu", threads=1)).predict(DOCUMENTS, k=3)
    assert found.names() == expected["names"]
    scores = np.array([[np.nan if s is None else s for s in row] for row in expected["scores"]])
    given = np.where(np.isfinite(found.scores), found.scores, np.nan)
    np.testing.assert_allclose(given, scores, rtol=1e-5, atol=1e-6)
