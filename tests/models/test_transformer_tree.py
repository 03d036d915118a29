"""`transformer` with a label tree: planted labels are learnt, saved, resumed and updated; the plan of its memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers", reason="transformers is not installed")

import xmtc
from tests.support.networks import copied, same
from tests.support.tiny_encoder import write_encoder
from tests.support.tree_networks import Stopping
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.models.registry import model_class
from xmtc.nn.tensor_memory import TensorMemory
from xmtc.nn.trees import cascade_member
from xmtc.nn.trees.cascade_plan import CascadePlan, _captured, placed

HERE = Runtime(device="cpu", threads=1, seed=5)
COUNT = 12
CHOSEN = [sorted({number % COUNT, (7 * number + 3) % COUNT}) for number in range(96)]
WORDS = [f"w{chr(97 + label)}" for label in range(COUNT)]
TEXTS = [" ".join(["and", *(WORDS[label] for label in chosen)]) for chosen in CHOSEN]
TRUTH = [[f"label{label:02}" for label in chosen] for chosen in CHOSEN]
VALID = as_dataset(TEXTS[:24], TRUTH[:24])
QUICK: dict[str, Any] = {
    "encoder.rate": 1.0,
    "encoder.dropout": 0.0,
    "frozen": False,
    "text.max_tokens": 8,
    "training.epochs": 2,
    "training.batch_size": 8,
    "training.learning_rate": 0.01,
    "training.warmup_steps": 4,
    "head.tree.height": 2,
    "head.tree.arity": 2,
    "head.tree.cluster_size": 2,
    "head.tree.beam_width": 3,
}
"""Levels of 4, 8 and 12 nodes."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_encoder(tmp_path_factory.mktemp("encoder"), [*WORDS, "and", "new"], width=16, layers=2, positions=14)


def made(tiny: Path, **settings: Any) -> Any:
    return model_class("transformer")(**{**QUICK, "encoder.path": str(tiny), **settings})


def right(model: Any) -> float:
    found = model.predict(TEXTS, 2).names()
    return float(np.mean([set(names) == set(truth) for names, truth in zip(found, TRUTH, strict=True)]))


@pytest.mark.parametrize(
    "settings",
    [
        {"head.pooling": "attention", "head.hidden": 16},
        {"head.levels_from": "last", "head.last_layers": 2, "head.tree.rows": "bfloat16"},
        {"head.levels_from": "last", "head.last_layers": 2, "head.tree.height": 0},
    ],
)
def test_planted_labels_are_learnt_and_kept(tmp_path: Path, tiny: Path, settings: dict[str, Any]) -> None:
    model = made(tiny, **settings, **{"training.epochs": 12}).fit(TEXTS, TRUTH, valid=VALID, runtime=HERE)
    assert right(model) > 0.9
    model.save(tmp_path / "m")
    again = xmtc.load(tmp_path / "m", HERE)
    assert (again.predict(TEXTS, 5).scores == model.predict(TEXTS, 5).scores).all()
    assert again.config == model.config

    own = model.predict(TEXTS[:7], 3)
    np.testing.assert_allclose(model.score_labels(TEXTS[:7], own.labels), own.scores, rtol=1e-4)
    reasons = model.explain(TEXTS[0], TRUTH[0][0])
    assert sum(item.weight for item in reasons.evidence) == pytest.approx(1.0)
    assert len(reasons.path) == (3 if settings.get("head.tree.height", 2) else 0)


def test_rows_by_sgd_are_learnt(tiny: Path) -> None:
    model = made(tiny, **{"head.tree.optimiser": "sgd", "head.tree.sgd_rate": 0.3, "training.epochs": 12})
    assert right(model.fit(TEXTS, TRUTH, runtime=HERE)) > 0.8


@pytest.mark.parametrize("rows", ["float32", "bfloat16"])
def test_resumed_training_ends_with_the_same_weights(tmp_path: Path, tiny: Path, rows: str) -> None:
    def trained(folder: Path | None, progress: Any = None) -> dict[str, Any]:
        model = made(tiny, **{"head.tree.rows": rows, "encoder.dropout": 0.2})
        how: dict[str, Any] = {} if progress is None else {"progress": progress}
        model.fit(TEXTS, TRUTH, valid=VALID, runtime=HERE, workspace=Workspace(folder), **how)
        return copied(model._members[0].network)

    expected = trained(None)
    for step in (4, 15):  # 12 steps are an epoch
        with pytest.raises(KeyboardInterrupt):
            trained(tmp_path, Stopping("training", step))
    assert same(trained(tmp_path), expected)


def test_updates(tiny: Path) -> None:
    model = made(tiny, **{"training.epochs": 12, "keep_replay": 100, "update.epochs": 30, "update.learning_rate": 1.0})
    model.fit(TEXTS, TRUTH, runtime=HERE)
    before = right(model)
    model.update(["new and", "and new", "new new"] * 6, [["fresh"]] * 18)
    assert model.predict(["new"], 1).names() == [["fresh"]]
    assert right(model) > 0.8 * before
    assert len(model.labels) == COUNT + 1

    texts, truth = TEXTS[:4] * 3, TRUTH[:4] * 3
    rejected = [[names[0]] for names in truth]
    before = model.score_labels(texts, rejected)[:, 0]
    model.update(texts, [[]] * 12, rejected=rejected, complete=[False] * 12)
    assert (model.score_labels(texts, rejected)[:, 0] < before).all()


# ---- the plan


def plan_and_peak(tiny: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> tuple[Any, int]:
    """The plan of a training, and the most bytes that the tensors of the training take."""
    plans, memory = [], TensorMemory(torch.device("cpu"))
    planned = cascade_member._plan

    def watched(*given: Any) -> Any:
        plans.append(planned(*given))
        memory.__enter__()  # whatever is made from here on
        return plans[-1]

    monkeypatch.setattr(cascade_member, "_plan", watched)
    try:
        made(tiny, **settings).fit(TEXTS, TRUTH, valid=VALID, runtime=HERE)
    finally:
        memory.__exit__(None, None, None)
    return plans[0], memory.peak


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"head.tree.beam_width": 8, "training.batch_size": 96},
        {"head.levels_from": "last", "head.last_layers": 2, "training.averaging": "none", "head.hidden": 200},
        {"head.tree.rows": "bfloat16", "head.tree.optimiser": "sgd", "head.hidden": 200, "frozen": True},
        {"head.hidden": 2000, "head.tree.height": 1, "head.tree.cluster_size": 2},
    ],
)
def test_the_plan_is_near_the_peak(tiny: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any]) -> None:
    plan, peak = plan_and_peak(tiny, monkeypatch, **settings, **{"training.epochs": 1, "training.average_from": 0.5})
    texts = plan.parts["texts"] + (plan.parts["the subword embeddings"] if settings.get("frozen") else 0)
    assert 0.85 * peak < plan.total - texts < 1.15 * peak


def test_what_does_not_fit_is_refused(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cascade_member, "free_memory", lambda device: (1_000_000, None))
    message = r"the label tree and its encoder need .* of it for .*; 1.0 MB is free. Lower training.batch_size or"
    with pytest.raises(ConfigError, match=message) as said:
        made(tiny, **{"training.batch_size": 96, "head.hidden": 99}).fit(TEXTS, TRUTH, runtime=HERE)
    assert "\n" not in str(said.value)


def test_rows_move_to_the_host_before_training_is_refused() -> None:
    plan = CascadePlan({"texts": 10}, {"forward": {"validation": 20}}, 1000, 250, torch.device("cuda"))
    assert placed(plan, 2000, 2000).place == torch.device("cuda")
    moved = placed(plan, 500, 2000)
    assert (moved.place, moved.total, moved.host) == (torch.device("cpu"), 30, 1250)
    with pytest.raises(
        ConfigError, match=r"1 kB of host memory for its rows; 1 kB is free. Set head.tree.rows=bfloat16"
    ):
        placed(plan, 500, 1300)
    on_cpu = replace(plan, device=torch.device("cpu"))
    with pytest.raises(
        ConfigError, match=r"need 1 kB, 1 kB of it for the table of rows; 1 kB is free. Set head.tree.rows"
    ):
        placed(on_cpu, 1400, None)
    assert placed(on_cpu, 1500, None).total == 1280


def test_a_captured_step_keeps_its_memory() -> None:
    phases = {"forward": {"a": 30, "b": 5}, "update": {"c": 20}, "validation": {"validation": 40}}
    found = _captured(phases, 7)
    assert found == {
        "capture": {"a": 30, "b": 5, "copies for the capture": 21},
        "validation": {"a": 30, "b": 5, "validation": 40},
    }
