"""The worked examples of CONTRIBUTING.md, registered by one line each as the page says."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import typer
from typer.testing import CliRunner

import xmtc
from tests.support.contributing import LINES, PAGE, examples, write_package
from xmtc.core.errors import ConfigError, DataError
from xmtc.core.registry import Entry
from xmtc.data.dataset import as_dataset
from xmtc.data.formats import FORMATS, detected
from xmtc.metrics import METRICS, evaluate, scorer
from xmtc.models.registry import MODELS
from xmtc.workflows.serve import ServeRequest


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(write_package(tmp_path / "package")))
    monkeypatch.setitem(MODELS.builtin, "rocchio", Entry("xmtc_examples.rocchio:Rocchio", preference=4))
    first = {"hashtags": Entry("xmtc_examples.hashtags:HASHTAGS")}
    monkeypatch.setattr(FORMATS, "builtin", first | FORMATS.builtin)
    monkeypatch.setitem(METRICS.builtin, "hit@k", Entry("xmtc_examples.hit_rate:HIT_RATE"))


def test_every_example_is_there() -> None:
    registered = {"src/xmtc/models/rocchio.py", "src/xmtc/data/hashtags.py", "src/xmtc/metrics/hit_rate.py"}
    others = {"src/xmtc/cli/frequent.py", "src/xmtc/nn/encoders/gru.py", "src/xmtc/nn/heads/weighted.py"}
    assert set(re.findall(r"^# (src/xmtc/\S+)$", PAGE.read_text(), flags=re.MULTILINE)) == registered | others
    assert set(examples()) == {Path(name).name for name in registered | others} | {"pyproject.toml"}
    named = re.findall(r'`"[\w@]+": Entry\("xmtc\.(\w+)\.(\w+):', PAGE.read_text())
    assert {f"src/xmtc/{folder}/{module}.py" for folder, module in named} == registered


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


@pytest.mark.usefixtures("registered")
def test_command(tmp_path: Path) -> None:
    from xmtc_examples.frequent import frequent  # type: ignore[import-not-found]

    model = xmtc.create("knn", neighbours=1, text__min_df=1).fit(["salt", "iron", "steel"], [["s"], ["m"], ["m"]])
    model.save(tmp_path / "model")
    app = typer.Typer()
    app.command()(frequent)
    done = CliRunner().invoke(app, [str(tmp_path / "model"), "-k", "1"])
    assert (done.exit_code, done.output) == (0, "2\tm\n")
    assert "How many labels." in CliRunner().invoke(app, ["--help"]).output
    refused = CliRunner().invoke(app, [str(tmp_path / "model"), "-k", "0"])
    assert isinstance(refused.exception, ConfigError)


def test_route() -> None:
    """The two parts of the example, put where the page says."""
    fastapi = pytest.importorskip("fastapi")
    from starlette.testclient import TestClient

    from xmtc.server import routes, schemas

    schema, route = re.findall(r"^# in [^\n]*\n(.*?)^```$", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    scope = dict(vars(schemas))
    exec(compile(schema, "schemas.py", "exec"), scope)
    source = Path(routes.__file__).read_text()
    assert source.index("def api_router") < source.index("    return router\n") < source.index("def public_router")
    source = source.replace("    return router\n", f"{route}\n    return router\n", 1)
    scope = {**vars(routes), "VersionsResponse": scope["VersionsResponse"]}
    exec(compile(source, "routes.py", "exec"), scope)
    models = {"cooking": SimpleNamespace(current=SimpleNamespace(version="6b1f0c9d2e4a8b70"))}
    app = fastapi.FastAPI()
    app.include_router(scope["api_router"](SimpleNamespace(settings=ServeRequest(folders=()), models=models)))
    with TestClient(app) as client:
        example = scope["VersionsResponse"].example
        assert client.get("/v1/versions").json() == example
        described = client.get("/openapi.json").json()["paths"]["/v1/versions"]["get"]["responses"]
        assert described["200"]["content"]["application/json"]["example"] == example
        assert "401" in described


@pytest.mark.usefixtures("registered")
def test_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Padding changes nothing, and the model that the page names learns with it, and with the head of the page."""
    torch = pytest.importorskip("torch")
    from xmtc_examples.gru import GruSettings  # type: ignore[import-not-found]

    xml_rnn = Path(xmtc.__file__).parent / "models" / "xml_rnn.py"
    source = re.sub(
        r"from xmtc.nn.encoders.lstm import \w+", "from xmtc_examples.gru import GruSettings", xml_rnn.read_text()
    )
    [method] = re.findall(r"`(def _head.*?:) (return WeightedHead.*?)`", PAGE.read_text())
    body = f"\n    {method[0]}\n        {method[1]}\n"
    imports = "from xmtc.nn.heads.base import Head\nfrom xmtc_examples.weighted import WeightedHead\n"
    source = source.replace("from xmtc_examples.gru", f"{imports}from xmtc_examples.gru")
    source = source.replace("PooledLstmSettings", "GruSettings").replace("XmlRnn", "XmlGru") + body
    (tmp_path / "xml_gru_example.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    from xml_gru_example import XmlGru  # type: ignore[import-not-found]

    torch.manual_seed(0)
    encoder = GruSettings(units=4).build(3).eval()
    words, mask = torch.randn(5, 2, 3), torch.tensor([[True] * 5, [False] * 5])
    padded = torch.cat([torch.randn(2, 2, 3), words]), torch.cat([torch.zeros(2, 2, dtype=torch.bool), mask], dim=1)
    assert torch.allclose(encoder(words, mask)[0], encoder(*padded)[0], atol=1e-6)
    assert not encoder(words, mask)[1].any()
    texts, labels = ["salt pepper", "iron steel"] * 20, [["spice"], ["metal"]] * 20
    settings = {"vectors": "random", "corpus__width": 8, "encoder__units": 8, "training__learning_rate": 0.05}
    model = XmlGru(**settings, training__epochs=5, text__min_df=1).fit(texts, labels)
    assert model.predict(["pepper", "iron"], k=1).names() == [["spice"], ["metal"]]
    assert type(model._members[0].network_of(0)[0].head).__name__ == "WeightedHead"
    with pytest.raises(ConfigError, match="'units' of encoder must be an integer from 1 to 65536"):
        GruSettings(units=0)


@pytest.mark.usefixtures("registered")
def test_head() -> None:
    """Loss and gradients are those of autograd, whatever the chunk."""
    torch = pytest.importorskip("torch")
    from xmtc_examples.weighted import WeightedHead  # type: ignore[import-not-found]

    torch.manual_seed(0)
    head, vectors = WeightedHead(40, 6, weight=3.0).double(), torch.randn(5, 6, dtype=torch.float64)
    positives = torch.tensor([[3, 39], [0, -1], [-1, -1], [17, 20], [21, -1]])
    loss, gradient = head.learn(vectors, torch.empty(0), positives, 16)
    found = {name: parameter.grad.clone() for name, parameter in head.named_parameters()}
    head.zero_grad()
    vectors.requires_grad_()
    truth = torch.zeros(5, 41, dtype=torch.float64).scatter_(1, positives % 41, 1.0)[:, :40]
    expected = torch.nn.functional.binary_cross_entropy_with_logits(
        vectors @ head.rows.t() + head.bias, truth, pos_weight=torch.tensor(3.0, dtype=torch.float64)
    )
    expected.backward()
    assert torch.allclose(loss, expected)
    assert torch.allclose(gradient, vectors.grad)
    assert all(torch.allclose(found[name], parameter.grad) for name, parameter in head.named_parameters())
