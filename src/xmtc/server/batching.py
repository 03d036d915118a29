"""Dynamic batching: predict the texts of several requests in one batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from xmtc.server.errors import TooManyRequests
from xmtc.server.metrics import Metrics
from xmtc.workflows.hosted_model import LabelScores, PredictOptions

Result = TypeVar("Result")
MAX_BATCH_TEXTS = 1_024
MAX_BATCH_CHARACTERS = 4_000_000
"""Maximum size of a batch. A larger request forms its own batch."""
MAX_WAITING_CALLS = 32
"""Maximum number of non-batched calls waiting for the model's thread."""

Predict = Callable[[list[str], PredictOptions], list[LabelScores]]
"""Maps texts to the labels of each."""


@dataclass(eq=False)
class BatchJob:
    """The texts of one request, and the future for their labels."""

    texts: Sequence[str]
    options: PredictOptions
    result: asyncio.Future[list[LabelScores]]
    characters: int = field(init=False)

    def __post_init__(self) -> None:
        self.characters = sum(map(len, self.texts))


class Batcher:
    """The thread of a model and its request queue. It belongs to one event loop."""

    def __init__(self, name: str, predict: Predict, max_queue: int, window: float, metrics: Metrics) -> None:
        self.name = name
        self._predict = predict
        self._max_queue, self._window = max_queue, window
        self._batches = metrics.batches.labels(model=name)
        self._texts = metrics.texts.labels(model=name)
        self._model_seconds = metrics.model_seconds.labels(model=name)
        self._waiting_texts = metrics.waiting_texts.labels(model=name)
        self._thread = ThreadPoolExecutor(1, f"model-{name}"[:15])
        self._queue: list[BatchJob] = []
        self._queued_texts = 0
        self._waiting_calls = 0
        self._throughput = 1_000.0  # texts per second, moving average
        self._runner: asyncio.Task[None] | None = None

    async def predict(self, texts: Sequence[str], options: PredictOptions) -> list[LabelScores]:
        """Predict the labels of each text, batched with other requests."""
        if not texts:
            return []
        if self._queued_texts and self._queued_texts + len(texts) > self._max_queue:
            words = f"the queue of '{self.name}' is full ({self._queued_texts:,} texts). Try again in a moment."
            raise TooManyRequests(words, retry_after=self._queued_texts / self._throughput)
        job = BatchJob(texts, options, asyncio.get_running_loop().create_future())
        self._queue.append(job)
        self._add_queued(len(texts))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        try:
            return await job.result
        except asyncio.CancelledError:
            if job in self._queue:  # it timed out
                self._queue.remove(job)
                self._add_queued(-len(texts))
            raise

    async def call(self, work: Callable[[], Result]) -> Result:
        """Run something else in the model's thread, between two batches."""
        if self._waiting_calls >= MAX_WAITING_CALLS:
            words = f"{self._waiting_calls} requests are already waiting for '{self.name}'. Try again in a moment."
            raise TooManyRequests(words, retry_after=1)
        self._waiting_calls += 1
        try:
            return await self._in_thread(work)
        finally:
            self._waiting_calls -= 1

    def close(self) -> None:
        """Stop the thread without waiting for queued work."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def _run(self) -> None:
        """Process batches until the queue is empty. The first text waits briefly so that others can join its batch."""
        try:
            await asyncio.sleep(self._window)
            while self._queue:
                await self._run_batch(self._next_batch())
        finally:
            self._runner = None

    def _next_batch(self) -> list[BatchJob]:
        """The oldest request and later ones with the same options, up to the maximum batch size."""
        options = self._queue[0].options
        batch: list[BatchJob] = []
        rest: list[BatchJob] = []
        texts = characters = 0
        for job in self._queue:
            fits = texts + len(job.texts) <= MAX_BATCH_TEXTS and characters + job.characters <= MAX_BATCH_CHARACTERS
            if job.options == options and (fits or not batch):
                batch.append(job)
                texts += len(job.texts)
                characters += job.characters
            else:
                rest.append(job)
        self._queue = rest
        self._add_queued(-texts)
        return batch

    async def _run_batch(self, batch: list[BatchJob]) -> None:
        texts = [text for job in batch for text in job.texts]
        started = time.perf_counter()
        try:
            labels = await self._in_thread(lambda: self._predict(texts, batch[0].options))
        except Exception as error:
            for job in batch:
                if not job.result.done():
                    job.result.set_exception(error)
            return
        seconds = time.perf_counter() - started
        self._throughput += 0.2 * (len(texts) / seconds - self._throughput)
        self._batches.inc()
        self._texts.inc(len(texts))
        self._model_seconds.inc(seconds)
        start = 0
        for job in batch:
            if not job.result.done():
                job.result.set_result(labels[start : start + len(job.texts)])
            start += len(job.texts)

    def _add_queued(self, texts: int) -> None:
        self._queued_texts += texts
        self._waiting_texts.set(self._queued_texts)
