"""The training loop: batches of similar length, gradient clipping, weight averaging, validation, checkpoints."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import torch
from torch import Tensor

from xmtc.artifact.workspace import Workspace
from xmtc.core.config import Alias, Range, Settings
from xmtc.core.errors import XmtcError
from xmtc.core.progress import Progress
from xmtc.core.runtime import Runtime
from xmtc.nn.documents import Documents, epoch_batches, length_steps, lightened, thinned
from xmtc.nn.heads.base import gradient_of
from xmtc.nn.network import TABLE, Network
from xmtc.nn.tensors import read_tensor, written_later
from xmtc.nn.training.cuda_graphs import Captured
from xmtc.nn.training.interrupts import interrupts_held_back
from xmtc.nn.training.objectives import AllLabelsObjective, Objective
from xmtc.nn.training.optimisers import Adam, Clipping, Optimiser
from xmtc.nn.training.process_group import Group
from xmtc.nn.training.weight_averaging import Averages, share_of
from xmtc.text.batches import Batch

REPORT_SECONDS = 0.5
"""Time between readings of the loss, each of which waits for the device."""
FOLDS = 50
"""How many times a table of rows is added to its average within the averaging window."""


@dataclass(frozen=True)
class TrainingSettings(Settings):
    """Training of a network: epochs, learning rate, averaging, validation and checkpoints."""

    epochs: int = 30
    """Maximum number of epochs."""
    batch_size: Annotated[int | Literal["auto"], Alias("batch")] = "auto"
    """Documents per step; 'auto' is 1/200 of the training set, between 16 and 128."""
    learning_rate: Annotated[float, Range(3e-4, 3e-3, log=True)] = 1e-3
    """Learning rate of the optimiser."""
    warmup_steps: Annotated[int, Alias("warm_up")] = 0
    """Steps of linear learning rate warm-up."""
    decay_from: float = 1.0
    """Fraction of the epochs after which the learning rate decays linearly to zero; 1 keeps it constant."""
    averaging: Literal["window", "all", "none"] = "window"
    """Weight averaging: exponential over the last epochs ('window'), all since `average_from` ('all'), or none."""
    average_from: float = 1.0
    """Epochs before weight averaging starts."""
    average_window: float = 1.0
    """Length of the exponential averaging window, in epochs."""
    clip: float = 5.0
    """Clip gradients at this multiple of the largest of the last five norms; 0 disables clipping."""
    validate_every: Annotated[int, Alias("check_every")] = 0
    """Steps between validations; 0 validates after every epoch."""
    patience: int = 10
    """Stop after this many validations without a better nDCG@5."""
    validation_size: Annotated[int, Alias("held_out")] = 1000
    """Maximum number of validation documents, taken from the validation set or else a tenth of the training set."""
    minutes: float = 0.0
    """Time limit for training one network, in minutes; 0 for none."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints, from which interrupted training resumes."""
    lengths: int = 8
    """Number of distinct lengths that texts are padded to."""
    skipped_words: Annotated[float, Range(0, 0.5)] = 0.0
    """Fraction of words dropped at random from each text, as regularisation."""

    of = "training"

    def check(self) -> None:
        for name in ("epochs", "patience", "lengths"):
            self.require_range(name, 1)
        if self.batch_size != "auto":
            self.require("batch_size", self.batch_size >= 1, "an integer ≥ 1, or auto")
        sizes = ("warmup_steps", "validate_every", "validation_size")
        for name in (*sizes, "average_from", "clip", "minutes", "checkpoint_minutes"):
            self.require_range(name, 0)
        self.require_range("learning_rate", 0, open_low=True)
        self.require_range("average_window", 0, open_low=True)
        self.require_range("decay_from", 0, 1)
        self.require("skipped_words", 0 <= self.skipped_words < 1, "a number ≥ 0 and < 1")


@dataclass
class Course:
    """State of a training run: everything that is not a tensor."""

    step: int = 0
    averaged: int = 0
    best_score: float = -1.0
    best_step: int = 0
    waited: int = 0
    seconds: float = 0.0
    finished: bool = False
    chunk: int = 0
    loss_sum: float = 0.0
    loss_steps: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)


class Trainer:
    """Trains one network. `validate` scores the current weights; with None, the last averages are the result."""

    def __init__(
        self,
        network: Network,
        documents: Documents,
        settings: TrainingSettings,
        *,
        seed: int,
        free: int,
        validate: Callable[[], float] | None,
        log: Callable[[dict[str, Any]], None] = lambda line: None,
        group: Group | None = None,
        objective: Objective | None = None,
        optimiser: Callable[[Mapping[str, Tensor], frozenset[str]], Optimiser] = Adam,
    ) -> None:
        self.network, self.documents, self.settings, self.seed = network, documents, settings, seed
        self.validate, self.log = validate, log
        self.group = group or Group(Runtime(), network.table.device)
        self.parameters: dict[str, Tensor] = {name: p for name, p in network.named_parameters() if p.requires_grad}
        device = network.table.device
        self.optimiser = optimiser(self.parameters, frozenset({TABLE}) & self.parameters.keys())
        self.objective = objective or AllLabelsObjective(network.head, documents)
        self.objective.bind(self.optimiser)
        self.clipping = Clipping(settings.clip, device) if settings.clip else None
        self.loss = torch.zeros((), device=device)  # of the steps since the last reading
        self.seen = 0
        self.averages = Averages({n: p for n, p in self.parameters.items() if n not in self.objective.table_parameters})
        self.size = batch_size(settings, len(documents), self.group)
        self.steps = length_steps(documents.lengths, settings.lengths)
        self.course = Course()
        self.course.chunk = self.objective.chunk(self.size, self.steps[-1], network.compute.itemsize, free)
        self.per_epoch = len(self._batches(0))
        self.total = settings.epochs * self.per_epoch

    def run(self, progress: Progress, workspace: Workspace, name: str, title: str = "training") -> None:
        """Train to the end, resuming from the checkpoint if there is one; the network ends up with the best weights."""
        if workspace.has(name):
            self._resume(workspace, name)
        self.group.wait()
        if self.group.rank:
            own = self.seed + self.course.step + 7919 * self.group.rank
            torch.manual_seed(own)  # each process has its own dropout
        saved = time.perf_counter()
        started = saved - self.course.seconds
        captures = self.network.encoder.captures and self.objective.captures
        captures &= self.loss.is_cuda and self.group.size == 1
        step = self._captured() if captures else self._step
        with progress.task(title, total=self.total * self.size) as task, interrupts_held_back() as interrupted:
            task.advance(self.course.step * self.size)
            reported, reported_step = time.perf_counter(), self.course.step
            whole = True  # between steps, where a checkpoint is exact
            try:
                for rows, length in self._remaining():
                    if self.course.finished:
                        break
                    whole = False
                    self.optimiser.rate.fill_(self._rate())
                    self.network.train()
                    step(rows, length)
                    self.course.step += 1
                    self._average()
                    now = time.perf_counter()
                    at_check = self.course.step % (self.settings.validate_every or self.per_epoch) == 0
                    at_check |= self.course.step == self.total
                    over = self._is_over(now - started, at_check)
                    at_check |= over
                    at_report = at_check or now - reported > REPORT_SECONDS
                    if at_report:
                        self._read_loss()
                        now = time.perf_counter()
                        speed = (self.course.step - reported_step) * self.size / max(now - reported, 1e-9)
                        self.course.seconds = now - started
                        if at_check:
                            self._check(speed)
                        self.course.finished |= over
                    whole = True
                    if at_check and self.group.leads:
                        self.log(self.course.history[-1])
                    task.advance(self.size)
                    if at_report:
                        task.note(self._note(speed))
                        reported, reported_step = time.perf_counter(), self.course.step
                        self.course.seconds = reported - started
                        if reported - saved > 60 * self.settings.checkpoint_minutes:
                            self._save(workspace, name)
                            saved = time.perf_counter()
                    if interrupted():
                        raise KeyboardInterrupt
            except KeyboardInterrupt:
                if whole:  # otherwise the last checkpoint is used
                    self._save(workspace, name)
                raise
        self._finish()

    def _is_over(self, seconds: float, at_check: bool) -> bool:
        """Whether the time limit is reached; parallel processes follow the leader, at points that all of them reach."""
        is_over = 0 < 60 * self.settings.minutes < seconds
        if self.group.size == 1:
            return is_over
        return at_check and self.group.agreed(is_over, self.loss.device) > 0

    # ---- one step

    def _captured(self) -> Callable[[Tensor, int], None]:
        """Steps as CUDA graphs; rows in host memory are copied outside of them."""
        table = self.objective.table
        if table is None or not table.on_host:
            return Captured(self._step, self._tensors(), self._rehearse)
        learn = Captured(self._learn, self._tensors())

        def step(rows: Tensor, length: int) -> None:
            self.objective.take(rows)
            learn(rows, length)
            self.objective.put()

        return step

    def _step(self, rows: Tensor, length: int) -> None:
        rows = self.group.share(rows)
        self.objective.take(rows)
        self._learn(rows, length)
        self.objective.put()

    def _rehearse(self, rows: Tensor, length: int) -> None:
        """A step that does not write to the table, which is too large to be restored afterwards."""
        self.objective.take(rows)
        self._learn(rows, length)

    def _learn(self, rows: Tensor, length: int) -> None:
        ready = self.objective.encoded(rows)
        if ready is not None:
            self.loss += self.objective.learn(rows, *ready, self.course.chunk)[0]
            self._descend({})
            return
        tokens, weights = self.documents.tokens(rows, length), self.documents.weights(rows, length)
        if self.settings.skipped_words and weights is not None:
            weights = lightened(weights, self.settings.skipped_words)
        elif self.settings.skipped_words:
            tokens = thinned(tokens, self.settings.skipped_words)
        touched = {}
        if TABLE in self.parameters:
            flat = self.group.gathered(tokens).reshape(-1).long()
            touched[TABLE] = flat if flat.is_cuda else flat.unique()  # counting would break graph capture
        chunk = self.course.chunk
        self.loss += self.network.learn(
            tokens, lambda encoded, mask: self.objective.learn(rows, encoded, mask, chunk), weights
        )
        self._descend(touched)

    def _descend(self, touched: Mapping[str, Tensor]) -> None:
        """One step of the optimiser; `touched` has the rows of each table that have a gradient."""
        gradients = [gradient_of(parameter) for parameter in self.parameters.values()]
        self.group.average(gradients)
        if self.clipping is not None:
            self.clipping.apply(gradients)
        self.optimiser.step(touched)
        self.optimiser.zero(touched)

    def _rate(self) -> float:
        """Learning rate of the next step."""
        done = self.course.step / self.total
        rise = min(1.0, (self.course.step + 1) / max(1, self.settings.warmup_steps))
        start = self.settings.decay_from
        fall = 1.0 if done <= start else (1.0 - done) / (1.0 - start)
        return self.settings.learning_rate * rise * fall

    def _batches(self, epoch: int) -> list[Batch]:
        random = np.random.default_rng([self.seed, epoch])
        return epoch_batches(self.documents.lengths, self.steps, self.size, random)

    def _remaining(self) -> Iterator[tuple[Tensor, int]]:
        """Rows and length of the remaining batches."""
        for epoch in range(self.course.step // self.per_epoch, self.settings.epochs):
            batches = self._batches(epoch)[self.course.step - epoch * self.per_epoch :]
            rows = torch.from_numpy(np.stack([batch.rows for batch in batches])).to(self.loss.device)
            yield from zip(rows, [batch.length for batch in batches], strict=True)  # copied once, not per step

    # ---- averaged weights

    def _average(self) -> None:
        """Average in every step; a table, which may be large, only at every fiftieth part of the window."""
        settings, course, table = self.settings, self.course, self.objective.table
        if settings.averaging == "none" or course.step < settings.average_from * self.per_epoch:
            return
        window = settings.average_window * self.per_epoch
        apart = max(1, int(window) // FOLDS)
        if table is not None and course.averaged % apart == 0:
            table.fold(share_of(settings.averaging, window / apart, 1 + course.averaged // apart), course.step)
        course.averaged += 1
        self.averages.fold(share_of(settings.averaging, window, course.averaged))

    @contextmanager
    def _shown(self) -> Iterator[None]:
        """Use the averaged weights in the network, temporarily."""
        with self.averages.shown(), self.objective.averages_shown():
            yield

    # ---- validation

    def _check(self, speed: float) -> None:
        """Score the averaged weights on the validation set and keep the best."""
        course = self.course
        line = {
            "step": course.step,
            "epoch": round(course.step / self.per_epoch, 4),
            "seconds": round(course.seconds, 3),
            "loss": course.loss_sum / max(1, course.loss_steps),
            "rate": self._rate(),
            "documents_per_second": round(speed, 1),
        }
        course.loss_sum, course.loss_steps = 0.0, 0
        if self.validate is not None:
            with self._shown():
                score = self.group.agreed(self.validate(), self.loss.device)
                line["score"], line["best"] = score, score > course.best_score
                if score > course.best_score:
                    course.best_score, course.best_step, course.waited = score, course.step, 0
                    self.averages.keep_best()
                    if self.objective.table is not None:
                        self.objective.table.keep_best()
                else:
                    course.waited += 1
                    course.finished = course.waited >= self.settings.patience
        course.history.append(line)

    def _finish(self) -> None:
        """Leave the best weights in the network, or the averages without validation."""
        self.network.train()  # discards caches from the last validation
        self.averages.finish()
        self.objective.finish()
        self.network.eval()
        for weight in self.parameters.values():
            weight.grad = None

    def _read_loss(self) -> None:
        """Read the loss of the steps since the last reading, which waits for the device."""
        loss = float(self.loss)
        if not math.isfinite(loss):
            raise XmtcError(
                f"training diverged at step {self.course.step:,}: the loss is NaN or infinite. "
                "Lower training.learning_rate, or set training.clip."
            )
        self.course.loss_sum += loss
        self.course.loss_steps += self.course.step - self.seen
        self.loss.zero_()
        self.seen = self.course.step

    def _note(self, speed: float) -> str:
        course = self.course
        loss = course.loss_sum / course.loss_steps if course.loss_steps else course.history[-1]["loss"]
        best = f"  nDCG@5 {100 * course.best_score:.2f}" if course.best_score >= 0 else ""
        return f"loss {loss:.5f}  {speed:,.0f} docs/s{best}"

    # ---- checkpoints

    def _tensors(self) -> dict[str, Tensor]:
        """All tensors on the device that a step changes, except the table."""
        kept = {f"weight.{name}": weight for name, weight in self.parameters.items()}
        kept |= {f"optimiser.{name}": part for name, part in self.optimiser.state().items()}
        kept["loss"] = self.loss
        if self.clipping is not None:
            kept["norms"] = self.clipping.norms
        return kept

    def _lasting(self) -> dict[str, Tensor]:
        """Those that persist between steps: not the rows that a step takes from a table and returns."""
        names = self.objective.table_parameters
        passing = {f"{kind}.{name}" for kind in ("weight", "optimiser.first", "optimiser.second") for name in names}
        return {name: part for name, part in self._tensors().items() if name not in passing}

    def _save(self, workspace: Workspace, name: str) -> None:
        """Write a checkpoint, atomically; a run without a folder needs none."""
        if workspace.folder is None or not self.group.leads:
            return
        self._read_loss()
        kept = self._lasting() | self.averages.state()
        if self.objective.table is not None:
            kept |= {f"table.{name}": part for name, part in self.objective.table.state().items()}
        kept["random"] = torch.get_rng_state()
        if self.loss.is_cuda:
            kept["random.cuda"] = torch.cuda.get_rng_state(self.loss.device)
        workspace.save(name, {key: written_later(part) for key, part in kept.items()}, vars(self.course))

    @torch.no_grad()
    def _resume(self, workspace: Workspace, name: str) -> None:
        arrays, values = workspace.map(name)
        chunk = self.course.chunk
        self.course = Course(**values)
        self.course.chunk = min(chunk, self.course.chunk)  # this machine may have less memory
        self.seen = self.course.step
        device = self.loss.device
        for key, part in self._lasting().items():
            part.copy_(read_tensor(arrays[key]))
        averaged = {key: array for key, array in arrays.items() if key.startswith(("average.", "best."))}
        self.averages.restore({key: read_tensor(array).to(device) for key, array in averaged.items()})
        if self.objective.table is not None:
            table = {key.removeprefix("table."): array for key, array in arrays.items() if key.startswith("table.")}
            self.objective.table.restore(table)
        torch.set_rng_state(read_tensor(arrays["random"]))
        if "random.cuda" in arrays and self.loss.is_cuda:
            torch.cuda.set_rng_state(read_tensor(arrays["random.cuda"]), device)


def automatic_batch_size(documents: int) -> int:
    """Documents per step if the setting is 'auto'."""
    return min(128, max(16, documents // 200))


def batch_size(settings: TrainingSettings, documents: int, group: Group) -> int:
    """Documents per step, divisible by the number of processes."""
    size = automatic_batch_size(documents) if settings.batch_size == "auto" else settings.batch_size
    return max(min(size, documents) // group.size, 1) * group.size
