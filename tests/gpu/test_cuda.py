"""What only a CUDA device can show: captured steps, bfloat16, and answers that agree with a CPU's."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import Tensor

from tests.support.models import CORRELATION, QUICK, TREE, made, planted_split
from xmtc import load
from xmtc.artifact.workspace import Workspace
from xmtc.core import config
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset, align_labels
from xmtc.data.topk import TopK
from xmtc.metrics import precision
from xmtc.models.base import Model
from xmtc.models.registry import model_class
from xmtc.nn.encoders.transformer import Backbone, TransformerSettings, TransformerStates
from xmtc.nn.prediction import sortable
from xmtc.nn.training import loop
from xmtc.nn.trees import member as tree_member
from xmtc.nn.trees.memory_plan import LevelPlan

pytestmark = pytest.mark.gpu

DEVICE = "cuda"
UNDROPPED = {"encoder.dropout": 0.0, "encoder.word_dropout": 0.0, "training.learning_rate": 0.03}
"""Nothing random within a step: what differs is how sums are ordered."""

KINDS = {
    **QUICK,
    "attention_xml, correlation": {**QUICK["attention_xml"], **CORRELATION},
    "attention_xml, tree": {**QUICK["attention_xml"], **TREE},
}
Split = tuple[Dataset, Dataset]


@pytest.fixture(scope="module")
def split() -> Split:
    return planted_split(1500, 300, labels=60, seed=3)[:2]


@pytest.fixture(scope="module")
def few(split: Split) -> Split:
    """So few that no more than ten steps are made: sums in another order have not yet led elsewhere."""
    return split[0].slice(0, 170), split[1]


def fitted(name: str, split: Split, device: str, precision: str = "float32", **settings: object) -> Model:
    runtime = Runtime(device=device, precision=precision, seed=1)
    return model_class(name.split(",")[0])(**made({**KINDS[name], **settings})).fit(split[0], runtime=runtime)


def undropped(name: str) -> dict[str, object]:
    """One epoch in which nothing is left out at random, whatever the model calls that."""
    off = {**UNDROPPED, "head.dropout": 0.0, "training.skipped_words": 0.0, "training.epochs": 1}
    known = config.flat(config.to_mapping(model_class(name.split(",")[0])().config))
    return {key: value for key, value in off.items() if key in known}


def p_at_1(model: Model, split: Split) -> float:
    truth, _ = align_labels(split[1], model.labels)
    return precision(model.predict(split[1], 1), truth, 1)


def assert_alike(found: TopK, wanted: TopK, tolerance: float) -> None:
    """Equal scores within the tolerance, and equal labels wherever the next is further away than that."""
    np.testing.assert_allclose(found.scores, wanted.scores, atol=tolerance)
    clear = -np.diff(wanted.scores, axis=1, append=-np.inf) > 2 * tolerance
    clear &= -np.diff(wanted.scores, axis=1, prepend=np.inf) > 2 * tolerance
    assert (found.labels == wanted.labels)[clear].all()
    assert clear.mean() > 0.3


def assert_same_steps(found: Model, wanted: Model, documents: Dataset, tolerance: float) -> None:
    """Every score within a share of itself; the steps have moved some of them further apart."""
    every = np.tile(np.arange(len(wanted.labels)), (len(documents), 1))
    scores = wanted.score_labels(documents, every)
    assert scores.max() > 1.3 * scores.min()
    np.testing.assert_allclose(found.score_labels(documents, every), scores, rtol=tolerance, atol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_captured_steps_are_the_steps(monkeypatch: pytest.MonkeyPatch, few: Split, name: str) -> None:
    captured = fitted(name, few, DEVICE, **undropped(name))

    def plain(step: Callable[[Tensor, int], None], *_: object) -> Callable[[Tensor, int], None]:
        return step

    monkeypatch.setattr(loop, "Captured", plain)
    stepped = fitted(name, few, DEVICE, **undropped(name))
    assert_same_steps(captured, stepped, few[1], 0.05)


@pytest.mark.parametrize("name", KINDS)
def test_planted_labels_are_learnt_as_on_a_cpu(split: Split, name: str) -> None:
    on_cpu = p_at_1(fitted(name, split, "cpu"), split)
    assert on_cpu > 0.5
    for arithmetic in ("float32", "bfloat16"):
        assert p_at_1(fitted(name, split, DEVICE, arithmetic), split) > on_cpu - 0.05


@pytest.mark.parametrize("name", KINDS)
def test_a_model_answers_alike_on_both(tmp_path: Path, split: Split, name: str) -> None:
    fitted(name, split, DEVICE, **{"training.epochs": 2}).save(tmp_path / "m")
    on_cpu = load(tmp_path / "m", Runtime(device="cpu"))
    for arithmetic, tolerance in (("float32", 2e-3), ("bfloat16", 3e-2)):
        on_cuda = load(tmp_path / "m", Runtime(device=DEVICE, precision=arithmetic))
        if arithmetic == "float32":
            assert_alike(on_cuda.predict(split[1], 5), on_cpu.predict(split[1], 5), tolerance)
        candidates = np.tile(np.arange(10), (len(split[1]), 1))
        np.testing.assert_allclose(
            on_cuda.score_labels(split[1], candidates), on_cpu.score_labels(split[1], candidates), atol=tolerance
        )


def test_an_interrupted_training_goes_on(tmp_path: Path, few: Split) -> None:
    settings = {**QUICK["attention_xml"], **UNDROPPED, "training.epochs": 1}
    runtime = Runtime(device=DEVICE, precision="float32", seed=1)
    whole = model_class("attention_xml")(**settings).fit(few[0], runtime=runtime)
    (tmp_path / "work").mkdir()
    workspace = Workspace(tmp_path / "work")
    step, steps = loop.Trainer._average, []

    def interrupted(trainer: loop.Trainer) -> None:
        step(trainer)
        steps.append(trainer.course.step)
        if len(steps) == 5:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop.Trainer, "_average", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model_class("attention_xml")(**settings).fit(few[0], runtime=runtime, workspace=workspace)
    assert workspace.has("checkpoint-0")
    resumed = model_class("attention_xml")(**settings).fit(few[0], runtime=runtime, workspace=workspace)
    assert_same_steps(resumed, whole, few[1], 0.05)


@pytest.mark.parametrize("rows", ["float32", "bfloat16"])
def test_rows_in_host_memory_are_learnt_as_on_the_device(
    monkeypatch: pytest.MonkeyPatch, few: Split, rows: str
) -> None:
    settings = {**UNDROPPED, "training.epochs": 1, "head.tree.rows": rows}
    on_device = fitted("attention_xml, tree", few, DEVICE, **settings)

    def on_host(plans: list[LevelPlan], *_: object) -> list[LevelPlan]:
        return [replace(plan, on_host=bool(plan.table)) for plan in plans]

    monkeypatch.setattr(tree_member, "placed", on_host)
    in_memory = fitted("attention_xml, tree", few, DEVICE, **settings)
    assert in_memory._members[0].networks[-1].head.rows.device.type == "cpu"
    tolerance = 0.05 if rows == "float32" else 0.3  # what is rounded at random is drawn by another generator
    assert_same_steps(in_memory, on_device, few[1], tolerance)


def test_equal_scores_come_in_the_order_of_labels() -> None:
    scores = torch.tensor([[0.5, 0.25, 0.5, -torch.inf, 0.75, 0.5]], device=DEVICE)
    labels = torch.tensor([[9, 1, 4, 0, 7, 2]], device=DEVICE)
    order = sortable(scores, labels).topk(6, dim=1).indices
    assert labels.gather(1, order).tolist() == [[7, 2, 4, 9, 1, 0]]


def test_layers_of_encoders_agree_with_plain_operations() -> None:
    """Compiled layers and cuDNN's attention with a bias, forward and backward, in bfloat16 against float32 on a CPU."""
    pytest.importorskip("transformers")
    from tests.support.encoder_kinds import batch, written

    with tempfile.TemporaryDirectory() as folder:
        made, _ = written(Path(folder), "mpnet", hidden_size=64, intermediate_size=128, hidden_dropout_prob=0.0)
        backbone = Backbone.read(made)
    _, words, mask = batch([12, 3, 7], 12, torch.from_numpy(backbone.table()))
    found = []
    for device, kind in (("cpu", torch.float32), (DEVICE, torch.bfloat16)):
        encoder = TransformerStates(backbone.module(), TransformerSettings(dropout=0.0)).to(device).train()
        states = encoder(words.to(device, kind), mask.to(device))
        parameters = [part for part in encoder.parameters() if part.requires_grad]
        gradients = torch.autograd.grad(states.float().square().sum(), parameters)
        found.append([states, *gradients])
    for exact, rough in zip(*found, strict=True):
        cosine = torch.nn.functional.cosine_similarity(exact.flatten(), rough.cpu().float().flatten(), dim=0)
        assert cosine > 0.98
