"""The worked examples of CONTRIBUTING.md, registered by one line each as the page says."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

import xmtc
from tests.support.contributing import LINES, PAGE, examples, write_package
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.registry import Entry
from xmtc.data.dataset import as_dataset
from xmtc.data.formats import FORMATS, detected
from xmtc.metrics import METRICS, evaluate, scorer
from xmtc.models.registry import MODELS


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(write_package(tmp_path / "package")))
    monkeypatch.setitem(MODELS.builtin, "rocchio", Entry("xmtc_examples.rocchio:Rocchio", preference=4))
    first = {"hashtags": Entry("xmtc_examples.hashtags:HASHTAGS")}
    monkeypatch.setattr(FORMATS, "builtin", first | FORMATS.builtin)
    monkeypatch.setitem(METRICS.builtin, "hit@k", Entry("xmtc_examples.hit_rate:HIT_RATE"))


def test_every_example_is_there() -> None:
    assert set(examples()) == {"rocchio.py", "hashtags.py", "hit_rate.py", "pyproject.toml"}
    named = re.findall(r'`"[\w@]+": Entry\("xmtc\.(\w+)\.(\w+):', PAGE.read_text())
    assert {f"src/xmtc/{folder}/{module}.py" for folder, module in named} == set(
        re.findall(r"^# (src/xmtc/\S+)$", PAGE.read_text(), flags=re.MULTILINE)
    )


@pytest.mark.usefixtures("registered")
def test_model(tmp_path: Path) -> None:
    texts, labels = ["salt pepper", "iron steel", "salt steel"] * 4, [["spice"], ["metal"], ["spice", "metal"]] * 4
    model = xmtc.create("rocchio", text__min_df=1).fit(texts, labels)
    assert isinstance(model, xmtc.Rocchio)  # type: ignore[attr-defined]
    assert model.predict(["pepper", "iron"], k=1).names() == [["spice"], ["metal"]]
    assert model.predict(["salt"], k=2, deny=["spice"]).names() == [["metal"]]
    model.save(tmp_path / "model")
    again = xmtc.load(tmp_path / "model")
    answer, expected = again.predict(texts, k=2), model.predict(texts, k=2)
    assert np.array_equal(answer.labels, expected.labels)
    assert np.allclose(again.score_labels(texts, answer), answer.scores)
    with pytest.raises(ConfigError, match="'prune' of rocchio must be a number from 0 to 1"):
        xmtc.create("rocchio", prune=2)


@pytest.mark.usefixtures("registered")
def test_format(tmp_path: Path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("\n".join(LINES) + "\n")
    assert detected(path) == "hashtags"
    dataset = xmtc.read(path)
    assert dataset.text()[0].as_py() == "salt and pepper"
    assert sorted(dataset.label_index.keys) == ["metal", "spice"]
    assert xmtc.write(dataset, tmp_path / "again.hashtags") == 0
    assert (tmp_path / "again.hashtags").read_text() == path.read_text()
    tagged = as_dataset(["a #b"], [["c"]])
    with pytest.raises(DataError, match="begins with #"):
        xmtc.write(tagged, tmp_path / "lossy.hashtags")
    assert xmtc.write(tagged, tmp_path / "lossy.hashtags", lossy=True) == 1
    assert (tmp_path / "lossy.hashtags").read_text() == "a b #c\n"


@pytest.mark.usefixtures("registered")
def test_metric() -> None:
    predicted = np.array([[0, 1], [1, 0]])
    truth = sp.csr_array(np.array([[1, 0, 1], [0, 0, 1]], dtype=np.float32))
    assert evaluate(predicted, truth, (1, 2))["hit@2"] == 0.5
    model = xmtc.create("knn", neighbours=1, text__min_df=1).fit(["salt", "iron"] * 3, [["s"], ["i"]] * 3)
    assert scorer("hit@1")(model, ["salt", "iron"], [["s"], ["s"]]) == 0.5
