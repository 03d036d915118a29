"""Texts of several requests are tagged together: what a model does for sixty it does hardly slower than for one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from xmtc.server.errors import Busy
from xmtc.server.metrics import Tallies

Result = TypeVar("Result")
Answer = list[dict[str, Any]]
"""The labels of one text: key, name, score."""

MOST_TEXTS = 1_024
MOST_CHARACTERS = 4_000_000
"""Of one batch. One request may be more, and is a batch of its own then."""

MOST_ALONE = 32
"""Requests that are no batch and wait for the thread: a batch waits for those before it."""


@dataclass(frozen=True)
class How:
    """How texts are to be tagged; those that go together are tagged alike."""

    k: int | None = None
    threshold: float | str | None = None
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] | None = None


@dataclass(eq=False)
class Job:
    """The texts of one request, and what waits for their labels."""

    texts: Sequence[str]
    how: How
    done: asyncio.Future[list[Answer]]
    characters: int = field(init=False)

    def __post_init__(self) -> None:
        self.characters = sum(map(len, self.texts))


Tag = Callable[[list[str], How], list[Answer]]
"""Texts → the labels of each."""


class Batcher:
    """One thread that a model works in, and the requests that wait for it. It is used from one event loop."""

    def __init__(self, name: str, tag: Tag, queue: int, window: float, tallies: Tallies) -> None:
        self.name = name
        self._tag = tag
        self._queue, self._window = queue, window
        self._tallies = tallies
        self._thread = ThreadPoolExecutor(1, f"model-{name}"[:15])
        self._waiting: list[Job] = []
        self._texts = 0  # that wait
        self._alone = 0  # requests that are no batch
        self._pace = 1_000.0  # texts a second, as of late
        self._runner: asyncio.Task[None] | None = None

    async def tag(self, texts: Sequence[str], how: How) -> list[Answer]:
        """The labels of each text, tagged with those of other requests."""
        if not texts:
            return []
        if self._texts and self._texts + len(texts) > self._queue:
            seconds = self._texts / self._pace
            raise Busy(f"{self._texts:,} texts wait for '{self.name}' already. Try again in a moment.", seconds)
        job = Job(texts, how, asyncio.get_running_loop().create_future())
        self._waiting.append(job)
        self._count(len(texts))
        if self._runner is None:
            self._runner = asyncio.create_task(self._run())
        try:
            return await job.done
        except asyncio.CancelledError:
            if job in self._waiting:  # its time was over
                self._waiting.remove(job)
                self._count(-len(texts))
            raise

    async def alone(self, work: Callable[[], Result]) -> Result:
        """Work in the model's thread between two batches."""
        if self._alone >= MOST_ALONE:
            raise Busy(f"{self._alone} requests wait for '{self.name}' already. Try again in a moment.", 1)
        self._alone += 1
        try:
            return await self._in_thread(work)
        finally:
            self._alone -= 1

    async def _in_thread(self, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _run(self) -> None:
        """Tag until nothing waits. The first text waits a little for others; while a batch is tagged, they gather."""
        try:
            await asyncio.sleep(self._window)
            while self._waiting:
                await self._tag_batch(self._next())
        finally:
            self._runner = None

    def _next(self) -> list[Job]:
        """The request that waits longest, and those after it that are to be tagged alike, as far as there is room."""
        how = self._waiting[0].how
        batch: list[Job] = []
        rest: list[Job] = []
        texts = characters = 0
        for job in self._waiting:
            fits = texts + len(job.texts) <= MOST_TEXTS and characters + job.characters <= MOST_CHARACTERS
            if job.how == how and (fits or not batch):
                batch.append(job)
                texts += len(job.texts)
                characters += job.characters
            else:
                rest.append(job)
        self._waiting = rest
        self._count(-texts)
        return batch

    async def _tag_batch(self, batch: list[Job]) -> None:
        texts = [text for job in batch for text in job.texts]
        started = time.perf_counter()
        try:
            answers = await self._in_thread(lambda: self._tag(texts, batch[0].how))
        except Exception as error:
            for job in batch:
                if not job.done.done():
                    job.done.set_exception(error)
            return
        seconds = time.perf_counter() - started
        self._pace += 0.2 * (len(texts) / seconds - self._pace)
        self._tallies.add("batches", self.name)
        self._tallies.add("texts", self.name, len(texts))
        self._tallies.add("model_seconds", self.name, seconds)
        start = 0
        for job in batch:
            if not job.done.done():
                job.done.set_result(answers[start : start + len(job.texts)])
            start += len(job.texts)

    def _count(self, more: int) -> None:
        self._texts += more
        self._tallies.set("waiting", self.name, self._texts)
