"""Dynamic batching: predict the texts of several requests together, in steps so short that no request blocks others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, TypeVar

from xmtc.core.cancellation import Cancellation, Cancelled
from xmtc.server.errors import TooManyRequests
from xmtc.server.metrics import Metrics
from xmtc.workflows.hosted_model import LabelScores, PredictOptions

Result = TypeVar("Result")
MAX_BATCH_TEXTS = 1_024
MAX_BATCH_CHARACTERS = 4_000_000
"""Maximum size of a batch. A larger request is predicted in several."""
STEP_SECONDS = 0.1
"""Target duration of a batch: a request waits for the one in progress. A single text is never divided."""
TEXT_COST = 256
"""Cost of a text in addition to its characters, in characters."""
FIRST_BATCH_COST = 1 << 18
"""Maximum cost of a batch until the speed of the model is known."""
MAX_WAITING_CALLS = 32
"""Maximum number of non-batched calls waiting for the model's thread."""

Predict = Callable[[list[str], PredictOptions], list[LabelScores]]
"""Maps texts to the labels of each."""


@dataclass(eq=False)
class BatchJob:
    """The texts of one request, and the future for their labels."""

    texts: Sequence[str]
    options: PredictOptions
    predict: Predict
    result: asyncio.Future[list[LabelScores]]
    labels: list[LabelScores] = field(default_factory=list)
    """Labels of the first texts, predicted so far."""
    started: int = 0
    """Number of texts predicted or in progress."""
    cost: int = field(init=False)
    """Cost of the waiting texts."""

    def __post_init__(self) -> None:
        self.cost = _cost(self.texts)

    @property
    def waiting(self) -> int:
        """Number of texts that wait for a batch."""
        return len(self.texts) - self.started

    def take(self, budget: float) -> Sequence[str]:
        """Start the next texts of up to this cost, at least one."""
        texts = self.texts[self.started : self.started + MAX_BATCH_TEXTS]
        if self.cost > budget:
            ends = accumulate(len(text) + TEXT_COST for text in texts)
            texts = texts[: max(1, sum(1 for end in ends if end <= budget))]
        self.started += len(texts)
        self.cost -= _cost(texts)
        return texts


@dataclass(eq=False)
class CallJob:
    """Other work for the model's thread, and the future for its result."""

    work: Callable[[], Any]
    cost: int
    result: asyncio.Future[Any]


Job = BatchJob | CallJob


def _cost(texts: Sequence[str]) -> int:
    return sum(map(len, texts)) + TEXT_COST * len(texts)


class Batcher:
    """The thread of a model and its request queue. It belongs to one event loop.

    The thread serves the smallest and the oldest request in turn, with others that fit into the same batch. So neither
    many nor large requests of one client delay the small ones of another by more than a batch, and all progress.
    `current` returns the function of the current model; all texts of a request are predicted by the same model.
    """

    def __init__(
        self, name: str, current: Callable[[], Predict], max_queue: int, window: float, metrics: Metrics
    ) -> None:
        self.name = name
        self._current = current
        self._max_queue, self._window = max_queue, window
        self._batches = metrics.batches.labels(model=name)
        self._texts = metrics.texts.labels(model=name)
        self._model_seconds = metrics.model_seconds.labels(model=name)
        self._waiting_texts = metrics.waiting_texts.labels(model=name)
        self._thread = ThreadPoolExecutor(1, f"model-{name}"[:15])
        self._queue: list[Job] = []
        self._queued_texts = 0
        self._throughput = 1_000.0  # texts per second, moving average
        self._speed = FIRST_BATCH_COST / STEP_SECONDS  # cost per second, moving average
        self._running: tuple[Sequence[Job], Cancellation] = (), Cancellation()
        self._runner: asyncio.Task[None] | None = None

    async def predict(self, texts: Sequence[str], options: PredictOptions) -> list[LabelScores]:
        """Predict the labels of each text, batched with other requests."""
        if not texts:
            return []
        if self._queued_texts and self._queued_texts + len(texts) > self._max_queue:
            words = f"the queue of '{self.name}' is full ({self._queued_texts:,} texts). Try again in a moment."
            raise TooManyRequests(words, retry_after=self._queued_texts / self._throughput)
        job = BatchJob(texts, options, self._current(), asyncio.get_running_loop().create_future())
        self._add_queued(len(texts))
        labels: list[LabelScores] = await self._answer(job, self._window)
        return labels

    async def call(self, work: Callable[[], Result], characters: int = 0) -> Result:
        """Run something else in the model's thread, between two batches; `characters` is the size of its text."""
        calls = sum(isinstance(job, CallJob) for job in self._queue)
        if calls >= MAX_WAITING_CALLS:
            words = f"{calls} requests are already waiting for '{self.name}'. Try again in a moment."
            raise TooManyRequests(words, retry_after=1)
        job = CallJob(work, characters, asyncio.get_running_loop().create_future())
        result: Result = await self._answer(job, 0)
        return result

    def close(self) -> None:
        """Stop the thread without waiting for queued work."""
        self._running[1].cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _answer(self, job: Job, window: float) -> Any:
        self._queue.append(job)
        if self._runner is None:
            self._runner = asyncio.create_task(self._run(window))
        try:
            return await job.result
        except asyncio.CancelledError:  # it timed out
            self._remove(job)
            jobs, cancellation = self._running
            if jobs and all(other.result.done() for other in jobs):
                cancellation.cancel()
            raise

    async def _run(self, window: float) -> None:
        """Work until the queue is empty. The first text waits briefly so that others can join its batch."""
        try:
            await asyncio.sleep(window)
            is_oldest = False
            while self._queue:
                lead = self._queue[0] if is_oldest else min(self._queue, key=lambda job: job.cost)
                is_oldest = not is_oldest
                if isinstance(lead, CallJob):
                    await self._run_call(lead)
                else:
                    await self._run_batch(self._next_batch(lead))
        finally:
            self._runner = None

    def _next_batch(self, lead: BatchJob) -> list[tuple[BatchJob, Sequence[str]]]:
        """Start the next texts of this request, and small requests with the same options, up to the size of a batch."""
        budget = min(self._speed * STEP_SECONDS, MAX_BATCH_CHARACTERS)
        batch = [(lead, lead.take(budget))]
        room = MAX_BATCH_TEXTS - len(batch[0][1])
        budget -= _cost(batch[0][1])
        alike = (lead.options, lead.predict)
        others = [job for job in self._queue if isinstance(job, BatchJob) and (job.options, job.predict) == alike]
        for job in sorted(others, key=lambda job: job.cost):
            if job is not lead and job.cost <= budget and job.waiting <= room:
                budget -= job.cost
                room -= job.waiting
                batch.append((job, job.take(budget + job.cost)))
        self._queue = [job for job in self._queue if isinstance(job, CallJob) or job.waiting]
        self._add_queued(-sum(len(texts) for _, texts in batch))
        return batch

    async def _run_batch(self, batch: list[tuple[BatchJob, Sequence[str]]]) -> None:
        lead = batch[0][0]
        texts = [text for _, part in batch for text in part]
        started = time.perf_counter()
        labels = await self._in_thread([job for job, _ in batch], lambda: lead.predict(texts, lead.options))
        if labels is None:
            return
        self._record(texts, time.perf_counter() - started)
        start = 0
        for job, part in batch:
            job.labels += labels[start : start + len(part)]
            start += len(part)
            if len(job.labels) == len(job.texts) and not job.result.done():
                job.result.set_result(job.labels)

    async def _run_call(self, job: CallJob) -> None:
        self._queue.remove(job)
        result = await self._in_thread([job], lambda: (job.work(),))
        if result is not None and not job.result.done():
            job.result.set_result(result[0])

    async def _in_thread(self, jobs: Sequence[Job], work: Callable[[], Result]) -> Result | None:
        """The result of this work in the model's thread. None after an error, which the requests receive."""
        cancellation = Cancellation()
        self._running = jobs, cancellation
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, cancellation.run, work)
        except Cancelled:
            return None
        except Exception as error:
            for job in jobs:
                self._remove(job)
                if not job.result.done():
                    job.result.set_exception(error)
            return None
        finally:
            self._running = (), cancellation

    def _record(self, texts: list[str], seconds: float) -> None:
        self._throughput += 0.2 * (len(texts) / seconds - self._throughput)
        speed = _cost(texts) / seconds
        if speed > self._speed or seconds > STEP_SECONDS / 2:  # a small batch predicts little about a large one
            self._speed += 0.5 * (speed - self._speed)
        self._batches.inc()
        self._texts.inc(len(texts))
        self._model_seconds.inc(seconds)

    def _remove(self, job: Job) -> None:
        if job in self._queue:
            self._queue.remove(job)
            if isinstance(job, BatchJob):
                self._add_queued(-job.waiting)

    def _add_queued(self, texts: int) -> None:
        self._queued_texts += texts
        self._waiting_texts.set(self._queued_texts)
