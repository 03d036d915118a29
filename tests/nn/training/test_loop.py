"""Optimiser, batches, the training loop and answers, each against a plain way to the same numbers."""

from __future__ import annotations

import itertools
import os
import signal
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from torch import Tensor

from tests.support.models import planted_split
from tests.support.networks import KINDS, Watching, copied, model_of, same, settings_of, stop_at, torch
from xmtc.artifact.workspace import Workspace
from xmtc.core.errors import ConfigError, DataError, XmtcError
from xmtc.core.progress import silent
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import as_dataset
from xmtc.models.attention_xml import AttentionXml
from xmtc.models.base import Model
from xmtc.models.xml_rnn import XmlRnn
from xmtc.nn import prediction
from xmtc.nn.device import chosen_device, chunk_memory
from xmtc.nn.documents import (
    Documents,
    epoch_batches,
    length_steps,
    thinned,
)
from xmtc.nn.encoders.lstm import BiLstm, LstmSettings, PooledLstm, PooledLstmSettings
from xmtc.nn.heads.base import LinearHead, even_chunk
from xmtc.nn.heads.label_attention import LabelAttention
from xmtc.nn.network import Network
from xmtc.nn.prediction import best_labels, candidate_scores
from xmtc.nn.training.loop import Trainer
from xmtc.nn.training.optimisers import Adam, Clipping
from xmtc.text.batches import rounded_length, sorted_batches
from xmtc.text.sequences import FIRST_WORD, PADDING
from xmtc.text.tokens import TokenBlock

CPU = torch.device("cpu")
WORDS, LABELS = 20, 5


pytestmark = pytest.mark.usefixtures("one_thread")


# ---- Adam and clipping


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_adam_is_adam(kind: torch.dtype) -> None:
    torch.manual_seed(0)
    ours = {name: torch.randn(shape, dtype=kind) for name, shape in (("a", (3, 4)), ("b", (5,)), ("c", ()))}
    theirs = {name: torch.nn.Parameter(value.clone()) for name, value in ours.items()}
    adam, reference = Adam(ours), torch.optim.Adam(theirs.values())
    for step in range(12):
        rate = 0.1 / (1 + step)
        adam.rate.fill_(rate)
        reference.param_groups[0]["lr"] = rate
        for name, value in ours.items():
            gradient = torch.randn_like(value) * 10.0 ** (step % 4 - 2)
            value.grad.copy_(gradient)
            theirs[name].grad = gradient
        adam.step({})
        reference.step()
        adam.zero({})
        for name, value in ours.items():
            assert torch.allclose(value, theirs[name].detach(), rtol=1e-5, atol=1e-6)
            assert not value.grad.any()
    assert float(adam.count) == 12


class TestLazyRows:
    def stepped(self, touched: list[list[int]]) -> tuple[Adam, Tensor, list[Tensor]]:
        """Steps with gradients at some rows only; what the table started as, and those gradients."""
        torch.manual_seed(1)
        table = torch.randn(7, 3)
        start, adam, gradients = (
            table.clone(),
            Adam({"table": table, "other": torch.randn(2)}, frozenset({"table"})),
            [],
        )
        adam.rate.fill_(0.05)
        for rows in touched:
            gradient = torch.zeros(7, 3)
            gradient[sorted(set(rows))] = torch.randn(len(set(rows)), 3)
            table.grad.add_(gradient)
            gradients.append(gradient)
            adam.step({"table": torch.tensor(rows)})
            adam.zero({"table": torch.tensor(rows)})
            assert not table.grad.any()
        return adam, start, gradients

    def test_rows_step_by_themselves(self) -> None:
        touched = [[0, 2], [2, 5], [0], [2, 5, 6], [0, 2]]
        adam, start, gradients = self.stepped(touched)
        for row in range(7):
            weight, first, second = start[row].double(), torch.zeros(3).double(), torch.zeros(3).double()
            for number, (rows, gradient) in enumerate(zip(touched, gradients, strict=True), start=1):
                if row in rows:  # moments fall only when a row is touched; the correction counts all steps
                    pull = gradient[row].double()
                    first, second = 0.9 * first + 0.1 * pull, 0.999 * second + 0.001 * pull * pull
                    below = (second / (1 - 0.999**number)).sqrt() + 1e-8
                    weight = weight - 0.05 * first / (1 - 0.9**number) / below
            assert torch.allclose(adam.parameters["table"][row].double(), weight, rtol=1e-5, atol=1e-6)
            assert torch.allclose(adam.first["table"][row].double(), first, atol=1e-6)
            assert torch.allclose(adam.second["table"][row].double(), second, atol=1e-6)

    def test_untouched_rows_stay_bit_for_bit(self) -> None:
        before, start, _ = self.stepped([[0, 2, 5]])
        after, _, _ = self.stepped([[0, 2, 5], [2], [2]])
        for row in (1, 3, 4, 6):
            assert torch.equal(after.parameters["table"][row], start[row])
            assert not after.first["table"][row].any()
        for row in (0, 5):  # touched once, then left alone
            assert torch.equal(after.parameters["table"][row], before.parameters["table"][row])
            assert torch.equal(after.first["table"][row], before.first["table"][row])
            assert torch.equal(after.second["table"][row], before.second["table"][row])
        assert not torch.equal(after.parameters["table"][2], before.parameters["table"][2])

    def test_repeated_rows_are_unique_rows(self) -> None:
        once, _, _ = self.stepped([[0, 2, 5], [1, 2]])
        often, _, _ = self.stepped([[5, 0, 2, 2, 0, 5, 5], [2, 1, 1, 2]])
        for left, right in zip(once.state().values(), often.state().values(), strict=True):
            assert torch.allclose(left, right, rtol=1e-6, atol=0)  # the processor rounds the end of an array apart
        assert torch.allclose(once.parameters["table"], often.parameters["table"], rtol=1e-6, atol=0)


@pytest.mark.parametrize("factor", [5.0, 0.7])
def test_clipping_against_a_queue(factor: float) -> None:
    """Norms that rise and fall by orders of magnitude, so that the cap, the doubling and the cut all come in."""
    random = np.random.default_rng(2)
    clipping, queue, cuts = Clipping(factor, CPU), deque([np.inf], maxlen=5), 0
    for step in range(60):
        gradients = [torch.from_numpy(random.normal(size=size)).float() for size in (4, 3)]
        size = float(np.sqrt(sum(float((part.double() ** 2).sum()) for part in gradients)))
        wanted = 10.0 ** random.uniform(-3, 2) if step != 2 else 1e6
        gradients = [part * (wanted / size) for part in gradients]
        before = [part.clone() for part in gradients]
        largest = max(queue)
        scale = min(1.0, factor * largest / (wanted + 1e-6))
        queue.append(min(wanted, 2.0 * largest, 1.0))
        cuts += scale < 1.0
        assert step >= 5 or scale == 1.0
        clipping.apply(gradients)
        for part, old in zip(gradients, before, strict=True):
            assert torch.allclose(part, old * scale, rtol=1e-4)
        assert step < 5 or torch.allclose(clipping.norms, torch.tensor(list(queue), dtype=torch.float32), rtol=1e-4)
    assert 0 < cuts < 60


# ---- batches


def padding(lengths: np.ndarray, steps: tuple[int, ...]) -> int:
    return sum(min(step for step in steps if step >= length) for length in lengths.tolist())


@pytest.mark.parametrize("most", [1, 2, 3, 8])
@pytest.mark.parametrize("seed", range(6))
def test_length_steps_pad_the_least(most: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    lengths = np.minimum(random.geometric(0.05, 40), 60)
    steps = length_steps(lengths, most)
    assert steps == sorted(set(steps))
    assert steps[-1] == lengths.max()
    assert len(steps) <= most
    longest = int(lengths.max())
    edges = sorted({*range(8, longest, 8), longest})  # what may be chosen from
    options = itertools.combinations(edges[:-1], min(most, len(edges)) - 1)
    assert padding(lengths, tuple(steps)) == min(padding(lengths, (*option, longest)) for option in options)


@pytest.mark.parametrize("length", [1, 8, 9, 5000])
def test_documents_of_one_length(length: int) -> None:
    assert length_steps(np.full(5, length), 8)[-1] == length
    assert padding(np.full(5, length), tuple(length_steps(np.full(5, length), 8))) == 5 * length


@pytest.mark.parametrize("size", [1, 7, 16, 50, 80])
def test_epoch_batches(size: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 50)
    steps = length_steps(lengths, 4)
    batches = epoch_batches(lengths, steps, size, np.random.default_rng(1))
    assert len(batches) == -(-50 // size)  # in every epoch alike
    rows = np.concatenate([batch.rows for batch in batches])
    assert set(rows.tolist()) == set(range(50))
    assert all(len(batch.rows) == size for batch in batches)
    assert all(lengths[batch.rows].max() <= batch.length for batch in batches)
    assert all(batch.length in steps for batch in batches)
    counts = np.bincount(rows)
    assert (counts > 1).sum() <= len(rows) - 50
    again = epoch_batches(lengths, steps, size, np.random.default_rng(1))
    assert all(np.array_equal(left.rows, right.rows) for left, right in zip(batches, again, strict=True))
    other = epoch_batches(lengths, steps, size, np.random.default_rng(2))
    assert any(not np.array_equal(left.rows, right.rows) for left, right in zip(batches, other, strict=True))


@pytest.mark.parametrize(("tokens", "most"), [(64, 4), (200, 50), (1, 3), (10_000, 7)])
def test_sorted_batches(tokens: int, most: int) -> None:
    lengths = np.random.default_rng(0).integers(1, 60, 50)
    batches = list(sorted_batches(lengths, tokens, most))
    assert sorted(np.concatenate([batch.rows for batch in batches]).tolist()) == list(range(50))
    assert all(len(batch.rows) <= most for batch in batches)
    assert all(len(batch.rows) == 1 or len(batch.rows) * batch.length <= tokens for batch in batches)
    assert all(rounded_length(lengths[batch.rows]).max() == batch.length for batch in batches)
    assert [batch.length for batch in batches] == sorted(batch.length for batch in batches)
    assert list(sorted_batches(np.empty(0, dtype=np.int64), tokens, most)) == []


def test_tokens_are_padded_on_the_left() -> None:
    block = TokenBlock(np.array([0, 3, 4, 6]), np.array([5, 6, 7, 8, 9, 10], dtype=np.int32))
    found = Documents(block, None, CPU).tokens(torch.tensor([2, 0, 1, 0]), 4)
    assert found.tolist() == [[0, 0, 9, 10], [0, 5, 6, 7], [0, 0, 0, 8], [0, 5, 6, 7]]


def padded_labels(labels: sp.csr_array) -> np.ndarray:
    block = TokenBlock(np.arange(labels.shape[0] + 1), np.ones(labels.shape[0], dtype=np.int32))
    return Documents(block, labels, CPU).positives(torch.arange(labels.shape[0])).numpy()


def test_padded_labels() -> None:
    labels = sp.csr_array(np.array([[0, 1, 0, 1], [0, 0, 0, 0], [1, 1, 1, 0]], dtype=np.float32))
    assert padded_labels(labels).tolist() == [[1, 3, -1], [-1, -1, -1], [0, 1, 2]]
    assert padded_labels(sp.csr_array((2, 4), dtype=np.float32)).tolist() == [[-1], [-1]]


@pytest.mark.parametrize("labels", [1, 15, 16, 17, 100, 4000])
@pytest.mark.parametrize("most", [0, 1, 16, 50, 10_000])
def test_chunks_are_even_and_aligned(labels: int, most: int) -> None:
    chunk = even_chunk(labels, most)
    assert chunk % 16 == 0
    assert chunk <= max(most, 16) + 15
    last = labels - (-(-labels // chunk) - 1) * chunk
    assert 0 < last <= chunk


# ---- the loop


def planted(documents: int = 60, labels: int = LABELS, seed: int = 0) -> tuple[TokenBlock, sp.csr_array]:
    """Texts of noise in which the word of each of their labels stands somewhere."""
    random = np.random.default_rng(seed)
    texts, truth = [], np.zeros((documents, labels), dtype=np.float32)
    for row in range(documents):
        chosen = random.choice(labels, random.integers(1, min(3, labels + 1)), replace=False)
        noise = random.integers(FIRST_WORD + labels, max(WORDS, FIRST_WORD + labels + 5), random.integers(1, 15))
        texts.append(random.permutation(np.concatenate([noise, FIRST_WORD + chosen])))
        truth[row, chosen] = 1.0
    indptr = np.concatenate([[0], np.cumsum([len(text) for text in texts])]).astype(np.int64)
    return TokenBlock(indptr, np.concatenate(texts).astype(np.int32)), sp.csr_array(truth)


def documents_of(count: int = 60, labels: int = LABELS, seed: int = 0) -> Documents:
    return Documents(*planted(count, labels, seed), CPU)


def made(labels: int = LABELS, *, pooled: bool = False, trained_words: bool = True, dropout: float = 0.3) -> Network:
    torch.manual_seed(11)
    table = torch.randn(max(WORDS, FIRST_WORD + labels + 5), 6)
    table[PADDING] = 0.0
    if pooled:
        lstm = PooledLstmSettings(units=4, hidden=5, word_dropout=dropout, dropout=dropout)
        encoder, head = PooledLstm(6, lstm), LinearHead(labels, 5)
    else:
        encoder = BiLstm(6, LstmSettings(units=4, word_dropout=dropout, dropout=dropout))
        head = LabelAttention(labels, 8, (4,))
    return Network(table, encoder, head, trained_words=trained_words, compute=torch.float32)


def trainer_of(
    network: Network, documents: Documents, validate: Any = None, log: Any = None, **changes: Any
) -> Trainer:
    extra = {} if log is None else {"log": log}
    free = 1 << 20
    return Trainer(network, documents, settings_of(**changes), seed=3, free=free, validate=validate, **extra)


def loss_of(network: Network, documents: Documents) -> float:
    network.eval()
    rows = torch.arange(len(documents))
    tokens = documents.tokens(rows, int(documents.lengths.max()))
    return float(network.head.learn(*network.encode(tokens), documents.positives(rows), 16)[0])


@pytest.mark.parametrize("pooled", [False, True])
def test_planted_data_are_learnt(pooled: bool) -> None:
    network, documents = made(pooled=pooled, dropout=0.0), documents_of(200)
    before = loss_of(network, documents)
    trainer_of(network, documents, epochs=25, batch_size=32, learning_rate=0.03).run(silent, Workspace(), "x")
    assert loss_of(network, documents) < 0.15 * before
    block, truth = planted(80, seed=9)
    found, _ = best_labels([network], Documents(block, None, CPU), 1)
    hits = truth.toarray()[np.arange(80), found[:, 0]]
    assert hits.mean() > 0.95


@pytest.mark.parametrize(("averaging", "start"), [("all", 0.0), ("all", 1.5), ("window", 0.0), ("window", 1.0)])
def test_averaged_weights(averaging: str, start: float) -> None:
    network, seen = made(), []
    trainer = trainer_of(network, documents_of(), averaging=averaging, average_from=start, average_window=0.5)
    per_epoch = trainer.per_epoch
    assert per_epoch == 8
    trainer.run(Watching(lambda step: seen.append(copied(network))), Workspace(), "x")
    assert len(seen) == 16
    first = max(1, int(np.ceil(start * per_epoch)))
    expected = {name: part.double() for name, part in seen[first - 1].items()}
    for count, weights in enumerate(seen[first:], start=2):
        share = 1 / count if averaging == "all" else 1 / min(0.5 * per_epoch, count)
        expected = {name: (1 - share) * part + share * weights[name] for name, part in expected.items()}
    if averaging == "all":
        plain = {name: torch.stack([part[name].double() for part in seen[first - 1 :]]).mean(0) for name in expected}
        assert all(torch.allclose(plain[name], expected[name]) for name in plain)
    for name, part in network.named_parameters():
        assert torch.allclose(part.double(), expected[name], atol=1e-6), name
        assert not torch.equal(part, seen[-1][name])


def test_without_averaging_the_last_weights_stay() -> None:
    network, seen = made(), []
    trainer_of(network, documents_of(), averaging="none").run(
        Watching(lambda step: seen.append(copied(network))), Workspace(), "x"
    )
    assert same(copied(network), seen[-1])


def test_rate_rises_and_falls() -> None:
    network, rates = made(), []
    trainer = trainer_of(network, documents_of(), warmup_steps=4, decay_from=0.5, learning_rate=0.2)
    trainer.run(Watching(lambda step: rates.append(float(trainer.optimiser.rate))), Workspace(), "x")
    expected = [0.2 * min(1, (step + 1) / 4) * min(1, (16 - step) / 8) for step in range(16)]
    assert np.allclose(rates, expected, rtol=1e-6)
    assert rates[0] == pytest.approx(0.05)
    assert rates[-1] == pytest.approx(0.2 / 8)


def test_training_stops_after_patience_and_leaves_the_best() -> None:
    scores, seen = iter([0.1, 0.5, 0.5, 0.3, 0.2, 0.9]), []
    network = made()

    def validate() -> float:
        seen.append(copied(network))
        return next(scores)

    lines: list[dict[str, Any]] = []
    trainer = trainer_of(network, documents_of(), validate, lines.append, validate_every=3, patience=3)
    trainer.run(silent, Workspace(), "x")
    assert [line["step"] for line in lines] == [3, 6, 9, 12, 15]  # an equal score is no better one
    assert [line["best"] for line in lines] == [True, True, False, False, False]
    assert (trainer.course.best_step, trainer.course.best_score, trainer.course.step) == (6, 0.5, 15)
    assert same(copied(network), seen[1])
    assert not network.training


def test_validation_sees_averages_and_leaves_the_raw_weights() -> None:
    """The course of the raw weights is the same whether or not it is looked at."""
    alone: list[dict[str, Tensor]] = []
    looked: list[dict[str, Tensor]] = []
    validated: list[dict[str, Tensor]] = []

    def validate() -> float:
        watched.eval()
        validated.append(copied(watched))
        return -float(len(validated)) / 100

    plain = made()
    trainer_of(plain, documents_of(), averaging="all", average_from=0.0).run(
        Watching(lambda step: alone.append(copied(plain))), Workspace(), "x"
    )
    watched = made()
    trainer_of(watched, documents_of(), validate, averaging="all", average_from=0.0, validate_every=5).run(
        Watching(lambda step: looked.append(copied(watched))), Workspace(), "x"
    )
    assert all(same(left, right) for left, right in zip(alone, looked, strict=True))
    assert len(validated) == 4  # three, and one at the end
    for place, found in zip((5, 10, 15, 16), validated, strict=True):
        for name, part in found.items():
            mean = torch.stack([weights[name].double() for weights in looked[:place]]).mean(0)
            assert torch.allclose(part.double(), mean, atol=1e-6)


def test_time_limit_stops_and_still_looks() -> None:
    network, looks = made(), []

    def validate() -> float:
        looks.append(copied(network))
        return 0.3

    trainer = trainer_of(network, documents_of(), validate, epochs=10_000, validate_every=10**6, minutes=0.3 / 60)
    trainer.run(silent, Workspace(), "x")
    assert 0 < trainer.course.step < trainer.total
    assert trainer.course.finished
    assert trainer.course.best_score == 0.3  # what is left was looked at
    assert len(looks) == 1
    assert same(copied(network), looks[0])


def test_padding_stays_zero_and_frozen_words_stay() -> None:
    network = made()
    trainer_of(network, documents_of(), averaging="none").run(silent, Workspace(), "x")
    assert not network.table[PADDING].any()
    frozen = made(trained_words=False)
    before = copied(frozen)
    trainer_of(frozen, documents_of(), averaging="none").run(silent, Workspace(), "x")
    after = copied(frozen)
    assert torch.equal(before["table"], after["table"])
    assert not torch.equal(before["head.rows"], after["head.rows"])


@pytest.mark.parametrize(("count", "labels", "batch"), [(1, 1, 8), (1, 5, "auto"), (3, 1, 100), (7, 17, 7), (5, 2, 1)])
@pytest.mark.parametrize("pooled", [False, True])
def test_small_trainings(count: int, labels: int, batch: int | str, pooled: bool) -> None:
    network, documents = made(labels, pooled=pooled), documents_of(count, labels)
    before = loss_of(network, documents)
    trainer_of(network, documents, epochs=8, batch_size=batch, lengths=8).run(silent, Workspace(), "x")
    assert loss_of(network, documents) < before
    assert all(torch.isfinite(part).all() for part in network.parameters())


# ---- exact resume


COURSES = {
    "averaged": {"averaging": "window", "average_from": 0.5, "validate_every": 3, "warmup_steps": 5, "decay_from": 0.4},
    "every epoch": {"averaging": "all", "average_from": 1.0},
    "raw": {"averaging": "none", "clip": 0.0, "validate_every": 5},
}


def built(validated: bool, course: str, log: Any = None, *, frozen: bool = False) -> tuple[Network, Trainer]:
    network, documents = made(trained_words=not frozen), documents_of()
    block, truth = planted(12, seed=4)
    seen, wanted = Documents(block, None, CPU), padded_labels(truth)

    def validate() -> float:
        return float(candidate_scores([network], seen, wanted)[wanted >= 0].mean())

    return network, trainer_of(network, documents, validate if validated else None, log, **COURSES[course])


def told(trainer: Trainer) -> list[dict[str, Any]]:
    """What the log says, without times; losses are added up in other portions, and agree but for rounding."""
    lines = trainer.course.history
    kept = [{key: line[key] for key in line if key not in ("seconds", "documents_per_second")} for line in lines]
    return [{**line, "loss": pytest.approx(line["loss"], rel=1e-5)} for line in kept]


def uninterrupted(validated: bool, course: str, **changes: Any) -> tuple[dict[str, Tensor], Trainer]:
    network, trainer = built(validated, course, **changes)
    trainer.run(silent, Workspace(), "checkpoint")
    return copied(network), trainer


def resumed(folder: Path, validated: bool, course: str, **changes: Any) -> tuple[dict[str, Tensor], Trainer]:
    network, trainer = built(validated, course, **changes)
    if Workspace(folder).has("checkpoint"):
        torch.rand(17)  # the state of the random numbers comes from the checkpoint
    trainer.run(silent, Workspace(folder), "checkpoint")
    return copied(network), trainer


@pytest.mark.parametrize("course", COURSES)
@pytest.mark.parametrize("validated", [True, False])
def test_interrupted_after_a_step(tmp_path: Path, course: str, validated: bool) -> None:
    expected, whole = uninterrupted(validated, course)
    log = told(whole)
    for step in (1, 3, 8, 11, 16):
        (folder := tmp_path / str(step)).mkdir()
        _, trainer = built(validated, course)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(Watching(stop_at(step)), Workspace(folder), "checkpoint")
        found, trainer = resumed(folder, validated, course)
        assert same(found, expected), step
        lines = [{key: line[key] for key in wanted} for line, wanted in zip(trainer.course.history, log, strict=True)]
        assert lines == log, step
        assert trainer.course.best_score == whole.course.best_score


@pytest.mark.parametrize("place", ["log", "validate", "learn"])
def test_interrupted_elsewhere(tmp_path: Path, place: str) -> None:
    """From the log, where a step is done; or within validation and a step, where the checkpoint before stands."""
    expected, whole = uninterrupted(True, "averaged")
    calls = 0

    def stopping(inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == 4:
                raise KeyboardInterrupt
            return inner(*given)

        return call

    for before in (0, 2):
        (folder := tmp_path / str(before)).mkdir()
        calls = 0
        if before:
            with pytest.raises(KeyboardInterrupt):
                built(True, "averaged")[1].run(Watching(stop_at(before)), Workspace(folder), "checkpoint")
        network, trainer = built(True, "averaged")
        owner: Any = network if place == "learn" else trainer
        setattr(owner, place, stopping(getattr(owner, place)))
        with pytest.raises(KeyboardInterrupt):
            trainer.run(silent, Workspace(folder), "checkpoint")
        assert Workspace(folder).has("checkpoint") == (place == "log" or bool(before))
        found, trainer = resumed(folder, True, "averaged")
        assert same(found, expected)
        assert trainer.course.best_step == whole.course.best_step


def test_interrupted_again_and_again(tmp_path: Path) -> None:
    expected, _ = uninterrupted(True, "averaged", frozen=True)
    for step in (2, 4, 1, 5):  # counted from the checkpoint before
        _, trainer = built(True, "averaged", frozen=True)
        with pytest.raises(KeyboardInterrupt):
            trainer.run(Watching(stop_at(step)), Workspace(tmp_path), "checkpoint")
    assert trainer.course.step == 12
    assert same(resumed(tmp_path, True, "averaged", frozen=True)[0], expected)


@pytest.mark.parametrize("place", ["validate", "learn"])
def test_control_c_waits_for_the_end_of_the_step(tmp_path: Path, place: str) -> None:
    expected, _ = uninterrupted(True, "averaged")
    network, trainer = built(True, "averaged")
    owner: Any = network if place == "learn" else trainer
    inner = getattr(owner, place)

    def pressed(*given: Any) -> Any:
        if trainer.course.step >= 5 and not Workspace(tmp_path).has("checkpoint"):
            os.kill(os.getpid(), signal.SIGINT)
        return inner(*given)

    setattr(owner, place, pressed)
    with pytest.raises(KeyboardInterrupt):
        trainer.run(silent, Workspace(tmp_path), "checkpoint")
    assert trainer.course.step == 6
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert Workspace(tmp_path).load("checkpoint")[1]["step"] == 6
    assert same(resumed(tmp_path, True, "averaged")[0], expected)


def test_a_killed_training_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    expected, _ = uninterrupted(True, "averaged")

    def killed(step: int) -> None:
        if step == 14:
            raise RuntimeError("killed")

    _, trainer = built(True, "averaged")
    trainer.settings = settings_of(**COURSES["averaged"], checkpoint_minutes=0.0)
    with pytest.raises(RuntimeError, match="killed"):
        trainer.run(Watching(killed), Workspace(tmp_path), "checkpoint")
    assert 12 <= Workspace(tmp_path).load("checkpoint")[1]["step"] < 14
    assert same(resumed(tmp_path, True, "averaged")[0], expected)


def test_early_stop_stays_a_stop(tmp_path: Path) -> None:
    """A training that has run out of patience when it is interrupted does not go on."""
    made_so = {"validate_every": 2, "patience": 2}
    network = made()
    trainer = trainer_of(network, documents_of(), lambda: 0.5, **made_so)
    with pytest.raises(KeyboardInterrupt):
        trainer.run(Watching(stop_at(6)), Workspace(tmp_path), "checkpoint")
    network = made()
    again = trainer_of(network, documents_of(), lambda: 0.9, **made_so)
    again.run(silent, Workspace(tmp_path), "checkpoint")
    assert (again.course.step, again.course.best_step) == (6, 2)


# ---- whole models

CHOSEN = [sorted({number % 4, number * 7 % 4}) for number in range(60)]
NOISE = [" ".join(f"noise{number * place % 11}" for place in range(number % 9)) for number in range(60)]
TEXTS = [" ".join([noise, *(f"w{label}" for label in chosen)]) for noise, chosen in zip(NOISE, CHOSEN, strict=True)]
TRUTH = [[f"label{label}" for label in chosen] for chosen in CHOSEN]


def weights_of(model: Any) -> list[dict[str, Tensor]]:
    return [copied(member.network) for member in model._members]


def test_a_model_interrupted_in_its_second_member(tmp_path: Path) -> None:
    runtime = Runtime(device="cpu", threads=1, seed=5)
    whole = model_of(AttentionXml, members=2).fit(TEXTS, TRUTH, runtime=runtime)
    first, second = weights_of(whole)
    assert not torch.equal(first["head.rows"], second["head.rows"])
    answer = whole.predict(TEXTS, 4)
    for step in (1, 8):
        (folder := tmp_path / str(step)).mkdir()
        with pytest.raises(KeyboardInterrupt):
            model_of(AttentionXml, members=2).fit(
                TEXTS, TRUTH, runtime=runtime, progress=Watching(stop_at(step), which=1), workspace=Workspace(folder)
            )
        assert Workspace(folder).has("member-0")
        assert Workspace(folder).has("checkpoint-1")
        model = model_of(AttentionXml, members=2)
        model.fit(TEXTS, TRUTH, runtime=runtime, workspace=Workspace(folder))
        assert not Workspace(folder).has("checkpoint-1")
        assert all(same(left, right) for left, right in zip(weights_of(model), (first, second), strict=True))
        found = model.predict(TEXTS, 4)
        assert np.array_equal(found.labels, answer.labels)
        assert np.array_equal(found.scores, answer.scores)
        assert model.facts == whole.facts


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_leaves_torch_as_it_was(tmp_path: Path, kind: type[Model]) -> None:
    torch.manual_seed(77)
    torch.set_num_threads(2)
    state, threads = torch.get_rng_state(), torch.get_num_threads()
    model = model_of(kind, training__epochs=1).fit(TEXTS, TRUTH, runtime=Runtime(device="cpu", threads=1))
    found = model.predict(TEXTS, 3)
    model.save(tmp_path / "model")
    loaded = Model.load(tmp_path / "model", Runtime(device="cpu", threads=1))
    assert np.array_equal(loaded.predict(TEXTS, 3).scores, found.scores)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads
    with pytest.raises(KeyboardInterrupt):
        model_of(kind).fit(TEXTS, TRUTH, runtime=Runtime(device="cpu", threads=1), progress=Watching(stop_at(2)))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("kind", KINDS)
def test_small_models(kind: type[Model]) -> None:
    """One document, one label, one word, nothing to validate on."""
    runtime = Runtime(device="cpu", threads=1)
    for texts, truth in (
        (["one word"], [["a"]]),
        (["", "x"], [["a"], ["b"]]),
        (["same"] * 30, [["a"], [], ["b"]] * 10),
    ):
        model = model_of(kind, training__batch_size="auto").fit(texts, truth, runtime=runtime)
        answer = model.predict([*texts, "", "never seen"], 5)
        assert np.isfinite(answer.scores[:, 0]).all()
        assert (answer.labels[:, len(model.labels) :] == -1).all()


def test_empty_validation_set_holds_documents_out() -> None:
    """Given no document to validate on, a tenth of the training documents is held out as if none were given."""
    runtime = Runtime(device="cpu", threads=1)
    empty = as_dataset(TEXTS, TRUTH).take(np.empty(0, dtype=np.int64))
    without = model_of(XmlRnn).fit(TEXTS, TRUTH, runtime=runtime)
    model = model_of(XmlRnn).fit(TEXTS, TRUTH, valid=empty, runtime=runtime)
    assert model.facts == without.facts
    assert same(weights_of(model)[0], weights_of(without)[0])
    assert 0 < model.facts["nDCG@5 held out"] <= 1


def test_a_label_of_nearly_all_documents_starts_at_its_share() -> None:
    """Shares are of all training documents, those held out included."""
    truth = [["always", *(["once"] if row == 3 else [])] if row % 20 else [] for row in range(60)]
    model: Any = model_of(XmlRnn, training__epochs=1, training__batch_size=54, training__learning_rate=1e-9)
    model.fit(TEXTS, truth, runtime=Runtime(device="cpu", threads=1))
    bias = model._members[0].network.head.bias.detach().numpy()
    assert np.allclose(np.sort(bias), np.sort([np.log(57 / 3), np.log(1 / 59)]), atol=1e-3)


# ---- answers


def plain_probabilities(networks: list[Network], documents: Documents) -> np.ndarray:
    """(n, L) one document at a time, without padding."""
    rows = []
    for row, length in enumerate(documents.lengths.tolist()):
        tokens = documents.tokens(torch.tensor([row]), length)
        parts = [torch.sigmoid(net.head.logits(*net.encode(tokens), 0, net.head.labels)) for net in networks]
        rows.append(torch.stack(parts).mean(0)[0].numpy())
    return np.array(rows)


def several(labels: int, *, pooled: bool, count: int = 3) -> list[Network]:
    networks = []
    for number in range(count):
        network = made(labels, pooled=pooled).eval()
        with torch.no_grad():
            for part in (network.table, network.head.rows):
                part.add_(torch.randn(part.shape, generator=torch.Generator().manual_seed(number)))
        networks.append(network)
    return networks


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("free", [1, 1 << 30])
@pytest.mark.parametrize(("labels", "k"), [(37, 4), (37, 20), (37, 40), (3, 5), (1, 1)])
def test_best_labels(monkeypatch: pytest.MonkeyPatch, pooled: bool, count: int, free: int, labels: int, k: int) -> None:
    monkeypatch.setattr(prediction, "chunk_memory", lambda device: free)
    networks, documents = several(labels, pooled=pooled, count=count), documents_of(23, labels, seed=2)
    expected = plain_probabilities(networks, documents)
    allowed = np.random.default_rng(0).random(labels) < 0.6
    allowed[0] = True
    for mask in (None, allowed):
        found, given = best_labels(networks, documents, k, mask)
        scores = expected if mask is None else np.where(mask, expected, -np.inf)
        best = -np.sort(-scores, axis=1)[:, :k]
        width = best.shape[1]
        assert found.shape == given.shape == (23, k)
        assert np.allclose(given[:, :width], best, atol=1e-6)
        assert np.array_equal(found[:, :width] == -1, np.isneginf(best))
        own = np.take_along_axis(scores, np.maximum(found[:, :width], 0), axis=1)  # two may be equal but for rounding
        assert np.allclose(own[~np.isneginf(best)], best[~np.isneginf(best)], atol=1e-6)
        assert all(len(set(row)) == len(row) for row in ([n for n in row if n >= 0] for row in found.tolist()))
        assert (found[:, width:] == -1).all()
        assert np.isneginf(given[:, width:]).all()


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("free", [1, 1 << 30])
def test_candidate_scores(monkeypatch: pytest.MonkeyPatch, pooled: bool, free: int) -> None:
    monkeypatch.setattr(prediction, "chunk_memory", lambda device: free)
    networks, documents = several(37, pooled=pooled), documents_of(23, 37, seed=2)
    candidates = np.random.default_rng(1).integers(-1, 37, (23, 40))
    found = candidate_scores(networks, documents, candidates)
    expected = np.take_along_axis(plain_probabilities(networks, documents), np.maximum(candidates, 0), axis=1)
    assert np.allclose(found[candidates >= 0], expected[candidates >= 0], atol=1e-6)
    assert candidate_scores(networks, documents, candidates[:, :0]).shape == (23, 0)


def test_no_documents() -> None:
    documents = Documents(TokenBlock(np.zeros(1, dtype=np.int64), np.empty(0, dtype=np.int32)), None, CPU)
    found, given = best_labels([made()], documents, 3)
    assert found.shape == given.shape == (0, 3)
    assert candidate_scores([made()], documents, np.empty((0, 2), dtype=np.int64)).shape == (0, 2)


# ---- the device


@pytest.mark.parametrize("name", ["gpu", "meta", "cuda:99", "cuda:007", "cuda:200"])
def test_devices_that_are_not_there(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        chosen_device(Runtime(device=name))
    assert chosen_device(Runtime(device="cpu")) == CPU


def test_memory_of_a_chunk_on_a_cpu_is_always_the_same() -> None:
    assert chunk_memory(CPU) == 64 << 20


class TestSkippedWords:
    def test_what_is_left_keeps_its_order_and_padding_comes_first(self) -> None:
        torch.manual_seed(0)
        tokens = torch.zeros(50, 40, dtype=torch.int32)
        for row in range(50):
            length = 1 + row % 40
            tokens[row, 40 - length :] = torch.arange(2, 2 + length)
        found = thinned(tokens, 0.3)
        counts = []
        for before, after in zip(tokens.tolist(), found.tolist(), strict=True):
            words = [word for word in after if word]
            assert after == [0] * (40 - len(words)) + words
            assert words == sorted(set(words))  # in order, none twice
            assert set(words) <= set(before)
            counts.append(len(words) / sum(word > 0 for word in before))
        assert 0.6 < np.mean(counts) < 0.8
        assert torch.equal(thinned(tokens, 0.0), tokens)
        assert not torch.equal(thinned(tokens, 0.3), found)  # others the next time


class TestWhatGoesWrong:
    def test_a_loss_that_is_no_number_stops_the_training(self, tmp_path: Path) -> None:
        train, _, _ = planted_split(60, 5, labels=8, seed=1)
        wild = {"units": 4}, {"epochs": 3, "batch_size": 8, "learning_rate": 1e30, "clip": 0.0, "validation_size": 6}
        model = AttentionXml(encoder=wild[0], head={"hidden": [4]}, vectors="random", training=wild[1])
        with pytest.raises(
            XmtcError, match=r"diverged at step .*: the loss is NaN or infinite. Lower training.learning_rate"
        ):
            model.fit(train, runtime=Runtime(threads=1))

    @pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
    def test_a_network_beyond_memory_is_told_in_a_line(self, error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
        def beyond(*_: object) -> None:
            raise error

        train, _, _ = planted_split(20, 2, labels=4, seed=1)
        monkeypatch.setattr(AttentionXml, "_encoder", beyond)
        with pytest.raises(ConfigError, match=r"not enough memory for this network\. Lower training\.batch"):
            AttentionXml(vectors="random").fit(train, runtime=Runtime(threads=1))

    def test_words_that_nothing_holds(self) -> None:
        with pytest.raises(DataError, match="no word occurs in 1 or more training texts"):
            AttentionXml().fit(["…", ""], [["a"], ["b"]])

    def test_equal_scores_are_in_the_order_of_labels(self) -> None:
        scores = torch.tensor([[0.5, 0.25, 0.5, -torch.inf, 0.5, 0.0]])
        keys = prediction.sortable(scores, torch.arange(6)[None])
        assert keys.argsort(descending=True).tolist() == [[0, 2, 4, 1, 5, 3]]

    def test_other_vectors_do_not_slip_into_a_resumed_training(self, tmp_path: Path) -> None:
        """The vectors that a training began with are those that it goes on with."""
        train, test, _ = planted_split(60, 5, labels=8, seed=1)
        words = sorted({word for text in train.text().to_pylist() for word in text.lower().replace(".", "").split()})
        file = tmp_path / "vectors.txt"

        def write(seed: int) -> None:
            rows = np.random.default_rng(seed).normal(size=(len(words), 4))
            lines = [f"{word} {' '.join(f'{x:.4f}' for x in row)}" for word, row in zip(words, rows, strict=True)]
            file.write_text("\n".join(lines) + "\n")

        def model() -> AttentionXml:
            small = {"encoder": {"units": 4}, "head": {"hidden": [4]}, "frozen": True}
            return AttentionXml(**small, vectors=str(file), training={"epochs": 2, "batch_size": 8})

        write(0)
        whole = model().fit(train, runtime=Runtime(threads=1))
        workspace = Workspace(tmp_path)
        stopping = Watching(stop_at(3))
        with pytest.raises(KeyboardInterrupt):
            model().fit(train, runtime=Runtime(threads=1), progress=stopping, workspace=workspace)
        write(1)
        resumed = model().fit(train, runtime=Runtime(threads=1), workspace=workspace)
        assert (resumed.predict(test, 3).scores == whole.predict(test, 3).scores).all()
        assert resumed.facts == whole.facts
