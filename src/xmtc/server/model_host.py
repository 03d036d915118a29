"""The models of a service, each reloaded when a new one is saved in its folder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from xmtc.core.errors import DataError, XmtcError, nearest, shown
from xmtc.core.runtime import Runtime
from xmtc.server.batching import Batcher
from xmtc.server.errors import Problem, TooManyRequests
from xmtc.server.metrics import Metrics
from xmtc.workflows.feedback import Feedback, FeedbackFullError, FeedbackQuotaError, feedback_path
from xmtc.workflows.hosted_model import (
    HostedModel,
    check_servable,
    folder_names,
    manifest_signature,
)
from xmtc.workflows.serve import ServeRequest

Result = TypeVar("Result")
Log = Callable[[str], None]
"""Writes a line for the operator."""
POLL_SECONDS = 1.0
"""Interval between checks of the model folders."""


class ServedModel:
    """One model folder: the loaded model, its request queue and its feedback."""

    def __init__(
        self, name: str, folder: Path, *, settings: ServeRequest, runtime: Runtime, metrics: Metrics, log: Log
    ) -> None:
        self.name = name
        self._folder = folder
        self._runtime = runtime
        self._metrics = metrics
        self._log = log
        place = feedback_path(folder)
        self._feedback_file = place if settings.feedback is None else settings.feedback / place.name
        self._feedback: Feedback | None = None
        self._feedback_limits = settings.feedback_limits
        self._signature = manifest_signature(folder)
        self.current = HostedModel(folder, runtime)
        metrics.loads.labels(model=name).inc()
        self.batcher = Batcher(name, lambda: self.current.predict, settings.queue, settings.window / 1000, metrics)

    def reload(self) -> str | None:
        """Load a new model if one was saved in the folder; returns a log line, or None if nothing changed.

        If loading fails, the current model stays, and the next change of the folder triggers another attempt.
        """
        signature = manifest_signature(self._folder)
        if signature in ((), self._signature):
            return None
        self._signature = signature
        try:
            check_servable(self._folder)
            model = HostedModel(self._folder, self._runtime)
            model.name_index()
        except Exception as error:  # for any error, even out of memory, keep the current model
            self._metrics.failed_loads.labels(model=self.name).inc()
            why = str(error) if isinstance(error, XmtcError) else f"{type(error).__name__}: {shown(str(error), 200)}"
            return f"{self.name}: keeping the previous model; the new one failed to load. {why}"
        if model.version == self.current.version:
            return None
        self.current = model
        self._metrics.loads.labels(model=self.name).inc()
        return f"{self.name}: new model loaded ({model.label_count:,} labels)"

    @property
    def accepts_feedback(self) -> bool:
        """Whether the feedback file is writable."""
        file = self._feedback_file
        return os.access(file.parent, os.W_OK) and (not file.exists() or os.access(file, os.W_OK))

    def add_feedback(self, text: str, accepted: list[str], rejected: list[str], *, complete: bool, client: str) -> int:
        """Save feedback; it is on disk when this returns its number."""
        model = self.current
        model.check_keys(accepted, "accepted")
        model.check_keys(rejected, "rejected")
        try:
            if self._feedback is None:
                self._feedback = Feedback(self._feedback_file, limits=self._feedback_limits)
            number = self._feedback.add(
                version=model.version, text=text, accepted=accepted, rejected=rejected, complete=complete, client=client
            )
        except FeedbackQuotaError as error:
            raise TooManyRequests(str(error), retry_after=error.retry_after) from None
        except FeedbackFullError as error:
            raise Problem(507, str(error)) from None
        except DataError as error:  # do not reveal the path of the file
            self._log(str(error))
            raise Problem(503, "feedback could not be saved. See the standard error of the service.") from None
        self._metrics.feedback.labels(model=self.name).inc()
        return number

    def describe(self) -> dict[str, Any]:
        """The model's entry in the response of `/v1/models`."""
        return {"name": self.name, **self.current.describe(), "feedback": self.accepts_feedback}


class ModelHost:
    """All models of a service by name. The first one is the default."""

    def __init__(self, settings: ServeRequest, metrics: Metrics, *, log: Log, announces_reloads: bool = True) -> None:
        self.settings = settings
        self.metrics = metrics
        self._log = log
        self._announces_reloads = announces_reloads
        self._executor = ThreadPoolExecutor(2, "background")  # loading, searching, writing feedback
        runtime = settings.runtime()
        self.models = {
            name: ServedModel(name, folder, settings=settings, runtime=runtime, metrics=metrics, log=log)
            for name, folder in folder_names(settings.folders).items()
        }

    def __getitem__(self, name: str | None) -> ServedModel:
        if name is None:
            return next(iter(self.models.values()))
        if name not in self.models:
            remedy = nearest(name, self.models) or f" Models: {', '.join(self.models)}."
            raise Problem(404, f"no model '{shown(name)}'.{remedy}")
        return self.models[name]

    async def in_background(self, work: Callable[[], Result]) -> Result:
        """Run work that does not need a model's thread without blocking the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def watch(self) -> None:
        """Build the label name indexes, then watch the folders until cancelled."""
        for model in self.models.values():
            with suppress(Exception):  # a search will report it
                await self.in_background(model.current.name_index)
        while True:
            await asyncio.sleep(POLL_SECONDS)
            self.metrics.record_process()
            for model in self.models.values():
                line = await self.in_background(model.reload)
                if line is not None and self._announces_reloads:
                    self._log(line)

    def close(self) -> None:
        """Stop all threads without waiting for them."""
        for model in self.models.values():
            model.batcher.close()
        self._executor.shutdown(wait=False, cancel_futures=True)
