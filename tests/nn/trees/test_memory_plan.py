"""The plan of a tree's training: memory against what is really taken, places of rows, refusals, and when it is told."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.tree_networks import CPU, RUNTIME, TEXTS, TRUTH, VALID, Stopping, tree_model
from xmtc.artifact.workspace import Workspace
from xmtc.core.config import table as settings_table
from xmtc.core.errors import ConfigError
from xmtc.models.attention_xml import AttentionXml
from xmtc.nn.training.loop import Trainer
from xmtc.nn.trees import member as tree_member
from xmtc.nn.trees import memory_plan as plan_module
from xmtc.nn.trees.memory_plan import (
    LevelPlan,
    Sizes,
    described,
    free_memory,
    level_plan,
    place_of,
    placed,
    product_rate,
)
from xmtc.nn.trees.row_table import RowTable

GB = 10**9
AMAZON_670K = Sizes(
    documents=490_449,
    tokens=490_449 * 120,
    labels=490_449 * 5,
    words=500_000,
    word_width=300,
    trained_words=True,
    width=1024,
    hidden=(512, 256),
    batch=200,
    processes=1,
    length=500,
    kept=4,
    averaged=True,
    compute=2,
    chunk=4 << 30,
)
LEVELS = ((2_048, 1, 2_048), (16_384, 2_048, 8), (131_072, 16_384, 8), (670_091, 131_072, 6))
"""Nodes, parents and the most children of a parent."""
RATE = 5e14


def planned(sizes: Sizes = AMAZON_670K, on_cpu: bool = False, **changes: Any) -> list[LevelPlan]:
    sizes = sizes._replace(**changes)
    return [
        level_plan(sizes, nodes, parents, most, min(160, parents), 5, RATE, "cpu" if on_cpu else "cuda")
        for nodes, parents, most in LEVELS
    ]


# ---- memory


@pytest.mark.parametrize("averaged", [True, False])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("nodes", [100, 3_000])
def test_rows_take_what_the_table_takes(nodes: int, kind: torch.dtype, averaged: bool) -> None:
    """But for one row that is nobody's."""
    sizes = AMAZON_670K._replace(width=24, kept=kind.itemsize, averaged=averaged)
    plan = level_plan(sizes, nodes, 50, 60, 10, 5, RATE, "cpu")
    table = RowTable(nodes, 24, place=CPU, kind=kind, averaged=averaged)
    if averaged:
        table.fold(1.0, 1)
    lasting = table.state()
    assert len(lasting) == 3 + averaged
    one_row = 24 * kind.itemsize
    assert sum(part.nbytes for part in lasting.values()) == plan.table + (3 + averaged) * one_row
    table.keep_best()
    assert table.state()["best"].nbytes == plan.best + one_row


def test_working_rows_are_those_of_the_batch_or_of_all_parents() -> None:
    few, all_of_them = (
        level_plan(AMAZON_670K._replace(batch=batch), 16_384, 2_048, 8, 160, 5, RATE, "cuda").parts["rows in use"]
        for batch in (2, 200)
    )
    assert all_of_them / few == 2_048 / 320


def test_processes_that_train_together_work_on_the_rows_of_all() -> None:
    alone, together = (planned(processes=processes, batch=4)[3].parts for processes in (1, 3))
    assert together["rows in use"] == 3 * alone["rows in use"]
    assert {**together, "rows in use": 0} == {**alone, "rows in use": 0}


def test_more_of_anything_takes_more() -> None:
    def total(plan: LevelPlan) -> int:
        return plan.device + plan.host

    def of(nodes: int = 10_000, parents: int = 1_000, most: int = 16, epochs: int = 5, **changes: Any) -> LevelPlan:
        return level_plan(AMAZON_670K._replace(**changes), nodes, parents, most, 100, epochs, RATE, "cuda")

    base = of()
    for more in (
        of(nodes=11_000),
        of(most=17),
        of(documents=500_000),
        of(tokens=10**9),
        of(labels=10**8),
        of(words=600_000),
        of(word_width=301),
        of(width=1030),
        of(hidden=(512, 257)),
        of(length=501),
        of(compute=4),
    ):
        assert total(more) > total(base)
    for less in (of(trained_words=False), of(averaged=False), of(kept=2)):
        assert total(less) < total(base)
    sizes = [total(of(nodes=nodes)) for nodes in range(1_000, 50_000, 7_000)]
    assert sizes == sorted(set(sizes))
    top = [total(level_plan(AMAZON_670K, nodes, 1, nodes, 1, 5, RATE, "cuda")) for nodes in (100, 10_000, 1_000_000)]
    assert top == sorted(set(top))
    assert of(epochs=10).seconds == 2 * base.seconds
    assert of(nodes=11_000).seconds == base.seconds  # what is scored of a document is the same
    assert of(most=32).seconds > base.seconds


def test_what_was_measured() -> None:
    """GB that training reserved on a card with room to spare, and seconds of an epoch: the plan is near."""
    records = Sizes(90_452, 13_558_352, 258_000, 100_002, 200, True, 1024, (512,), 128, 1, 250, 4, True, 2, 4 << 30)
    planted = Sizes(10**6, 34 * 10**6, 3 * 10**6, 3_430_000, 64, True, 512, (256,), 512, 1, 64, 4, True, 2, 4 << 30)
    for measured, plan in (
        (24.0, level_plan(records, 35_116, 8_192, 5, 160, 6, RATE, "cuda")),
        (23.8, level_plan(planted, 10**6, 131_072, 8, 40, 1, RATE, "cuda")),
    ):
        assert 0.7 * measured < plan.device / 1e9 < 1.2 * measured
    assert level_plan(planted, 10**6, 131_072, 8, 40, 1, RATE, "cuda").seconds == pytest.approx(17.8, rel=0.3)


# ---- places


def test_rows_go_to_the_host_where_the_device_is_too_small() -> None:
    plans = planned()
    assert [bool(plan.table) for plan in plans] == [False, True, True, True]
    roomy = placed(plans, 140 * GB, 1000 * GB)
    assert not any(plan.on_host for plan in roomy)
    assert roomy == plans
    on_device = [plan.device for plan in plans]
    tight = placed(plans, int(on_device[2] / 0.89), 1000 * GB)  # the third level just fits
    assert [plan.on_host for plan in tight] == [False, False, False, True]
    assert tight[3].device == on_device[3] - plans[3].table
    assert tight[3].host == plans[3].table + plans[3].best
    assert tight[2].host == plans[2].best
    for free in range(61, 141, 10):  # with more memory never more levels in the host's
        with_less, with_more = (placed(plans, at * GB, 1000 * GB) for at in (free, free + 10))
        assert sum(plan.on_host for plan in with_less) >= sum(plan.on_host for plan in with_more)
        assert all(plan.device <= 0.9 * free * GB for plan in with_less)


def refusal(plans: list[LevelPlan], free: int, host: int | None) -> str:
    with pytest.raises(ConfigError) as caught:
        placed(plans, free, host)
    message = str(caught.value)
    assert "\n" not in message
    return message


def named_settings(message: str) -> list[str]:
    return re.findall(r"[a-z]+(?:\.[a-z_]+)+", message)


class TestRefusals:
    def test_the_device(self) -> None:
        message = refusal(planned(), 5 * GB, 1000 * GB)
        assert message.startswith("tree level 1 of 4 (2,048 nodes) needs ")
        assert "on the device" in message
        assert "; 5.0 GB is free. Lower " in message

    def test_the_host(self) -> None:
        plans = planned()
        message = refusal(plans, int(plans[2].device / 0.89), 8 * GB)
        assert message.startswith("tree level 4 of 4 (670,091 nodes) needs 13.7 GB host memory for its rows; 8.0 GB")
        assert "head.tree.rows=bfloat16" in message
        free = int((plans[3].device - plans[3].table) / 0.89)
        assert refusal(plans, free, 8 * GB).startswith("tree level 4 of 4")
        assert placed(planned(kept=2), free, 8 * GB)[3].on_host  # as the message says

    def test_a_device_that_is_the_host(self) -> None:
        plans = planned(on_cpu=True)
        wanted = plans[3].device + plans[3].best
        assert placed(plans, int(wanted / 0.9) + 1, None) == plans
        message = refusal(plans, int(wanted / 0.9) - 1, None)
        assert message.startswith(f"tree level 4 of 4 (670,091 nodes) needs {wanted / GB:.1f} GB, ")
        assert f"{plans[3].table / GB:.1f} GB of it for the table of rows" in message
        assert message.endswith("Set head.tree.rows=bfloat16, or lower encoder.units.")
        assert "on the device" not in message

    @pytest.mark.parametrize(
        ("changes", "part", "remedy"),
        [
            ({"words": 50_000_000}, "words", "text.max_words"),
            ({"tokens": 10**11}, "texts", "text.max_tokens"),
            ({"batch": 100_000}, "steps", "training.batch_size"),
        ],
    )
    def test_what_is_largest_is_named_with_a_remedy(self, changes: dict[str, int], part: str, remedy: str) -> None:
        message = refusal(planned(**changes), 50 * GB, 10**15)
        assert f" of it for {part}" in message
        assert remedy in message.split(" is free. Lower ")[1]

    def test_candidates_and_rows_in_use(self) -> None:
        sizes = AMAZON_670K._replace(words=1000)
        for part, plan in (
            ("candidates", level_plan(sizes._replace(documents=10**8), 10**6, 10**5, 10, 1000, 5, RATE, "cuda")),
            ("rows in use", level_plan(sizes._replace(width=8192), 10**6, 10**5, 10, 10**4, 5, RATE, "cuda")),
        ):
            message = refusal([plan], 20 * GB, 10**15)
            assert f" of it for {part}" in message
            assert "head.tree.beam_width" in message.split(" is free. Lower ")[1]

    def test_remedies_are_settings(self) -> None:
        known = {row.name for row in settings_table(AttentionXml.Config())}
        plans = planned()
        messages = [
            refusal(plans, 5 * GB, 1000 * GB),
            refusal(plans, int(plans[2].device / 0.89), 8 * GB),
            refusal(planned(words=50_000_000), 50 * GB, 10**15),
            refusal(planned(tokens=10**11), 50 * GB, 10**15),
            refusal(planned(batch=100_000), 50 * GB, 10**15),
            refusal([level_plan(AMAZON_670K, 10**8, 1, 10**8, 1, 5, RATE, "cuda")], 50 * GB, 10**15),
        ]
        assert len(set(messages)) == len(messages)
        for message in messages:
            assert named_settings(message)
            assert set(named_settings(message)) <= known, message


# ---- the plan in words


def test_the_plan_is_told_level_by_level() -> None:
    plans = planned()
    lines = described(placed(plans, int(plans[2].device / 0.89), 1000 * GB), torch.device("cuda"))
    assert len(lines) == 5
    assert lines[0].startswith("plan for cuda: 4 levels, about ")
    assert lines[0].endswith(" for each tree")
    for number, (line, (nodes, _, _)) in enumerate(zip(lines[1:], LEVELS, strict=True), start=1):
        assert line.startswith(f"  level {number}, {nodes:,} nodes: ")
    assert f"{plans[3].table / GB:.1f} GB" in lines[4]
    assert "(in host memory)" in lines[4]
    assert "of host memory" in lines[4]
    assert not any("host memory" in line for line in lines[:4])
    hours = re.findall(r"about ([0-9.]+) (min|h)", lines[0])
    assert len(hours) == 1
    told = float(hours[0][0]) * (60 if hours[0][1] == "min" else 3600)
    assert told == pytest.approx(sum(plan.seconds for plan in plans), rel=0.05)


def test_one_is_not_several() -> None:
    plan = level_plan(AMAZON_670K, 1, 1, 1, 1, 5, RATE, "cpu")
    lines = described([plan], CPU)
    assert lines[0].startswith("plan for cpu: 1 level, ")
    assert lines[1].startswith("  level 1, 1 node: ")


def test_trained_rows_go_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda", 1)
    monkeypatch.setattr(plan_module, "free_memory", lambda device: (1000, 10**6))
    assert place_of(900, device) == device
    assert place_of(901, device) == CPU


def test_what_is_free_here() -> None:
    free, host = free_memory(CPU)
    assert host is None
    assert 10**6 < free < 10**14
    assert free <= plan_module._physical_memory() < 10**14
    assert product_rate(CPU, torch.float32) > 1e6


# ---- through the model


class TestModels:
    def test_a_refused_training_trains_nothing(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tree_member, "free_memory", lambda device: (10**5, None))
        monkeypatch.setattr(Trainer, "run", lambda *_: pytest.fail("trained"))
        progress = Stopping()
        with pytest.raises(ConfigError, match=r"^tree level 1 of 3 \(4 nodes\) needs .* 100 kB is free\. "):
            tree_model().fit(TEXTS, TRUTH, runtime=RUNTIME, progress=progress, workspace=Workspace(tmp_path))
        assert not list(tmp_path.glob("member-*"))
        assert not any(event.startswith(("plan", "training")) for event in progress.events)

    def test_a_flat_model_has_no_plan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tree_member, "free_memory", lambda device: (10**6, None))
        progress = Stopping()
        tree_model(head__tree__height=0, training__epochs=1).fit(TEXTS, TRUTH, runtime=RUNTIME, progress=progress)
        assert not any(event.startswith("plan") for event in progress.events)

    def test_the_plan_is_told_once_and_first(self) -> None:
        progress = Stopping()
        model = tree_model(members=2, training__epochs=1)
        model.fit(TEXTS, TRUTH, valid=VALID, runtime=RUNTIME, progress=progress)
        plans = [place for place, event in enumerate(progress.events) if event.startswith("plan for cpu: 3 levels")]
        assert len(plans) == 1
        first = next(place for place, event in enumerate(progress.events) if event.startswith("training"))
        assert plans[0] < first
        said = progress.events[plans[0] + 1 : plans[0] + 4]
        starts = [f"  level {level}, {nodes:,} nodes: " for level, nodes in ((1, 4), (2, 8), (3, 13))]
        assert all(line.startswith(start) for line, start in zip(said, starts, strict=True))
        assert sum(event.startswith("training level 1 of 3") for event in progress.events) == 2

    def test_the_plan_knows_the_model_s_sizes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Rows of the last level as they are kept: 13 of 8 numbers in the table, 2 bytes each, averaged or not."""
        found: list[LevelPlan] = []

        def watched(plans: list[LevelPlan], *free: object) -> list[LevelPlan]:
            found.extend(plans)
            return list(plans)

        monkeypatch.setattr(tree_member, "placed", watched)
        for averaging, copies in (("window", 4), ("none", 3)):
            found.clear()
            changes = {"head__tree__rows": "bfloat16", "training__averaging": averaging, "training__epochs": 1}
            model = tree_model(**changes, head__tree__beam_width=2).fit(TEXTS[:9], TRUTH[:9], runtime=RUNTIME)
            counts = [level.nodes for level in model._members[0].levels.levels]
            assert [plan.nodes for plan in found] == counts
            assert [plan.table for plan in found] == [0, *(copies * 2 * nodes * 8 for nodes in counts[1:])]
            assert [plan.best for plan in found] == [0, *(2 * nodes * 8 for nodes in counts[1:])]
            assert found[1].parts["candidates"] == 4 * 9 * 2
