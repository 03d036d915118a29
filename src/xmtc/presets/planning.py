"""What candidate models would take, and whether that fits into time, memory and the limits of a prediction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from xmtc.artifact.workspace import Workspace
from xmtc.core.durations import whole_seconds
from xmtc.core.errors import XmtcError
from xmtc.core.progress import Task
from xmtc.core.runtime import Runtime
from xmtc.data.dataset import Dataset
from xmtc.presets.candidates import Candidate
from xmtc.presets.clock import Clock, OutOfTime, TimedProgress
from xmtc.presets.estimates import Estimate, available_megabytes, estimate
from xmtc.presets.search_data import SearchOptions

RESERVE = 0.06
"""Fraction of the time that is kept for combining the models and writing the result."""
PLANNING, LARGEST_PART = 0.15, 1 / 3
"""Fraction of the time for measuring models on samples, and the largest part of what is left of it for one model."""
ROUNDS = {1: 1.9, 3: 3.0, 5: 5.0}
"""Number of folds → how many times a model is trained, including the final training; 1 holds out a part."""
NOT_MEASURED = "not measured: no time left for planning"


@dataclass(frozen=True)
class Planner:
    """Measures candidates on samples; what was measured is kept in the workspace."""

    options: SearchOptions
    train: Dataset
    workspace: Workspace
    runtime: Runtime
    clock: Clock

    @property
    def end(self) -> float:
        """Seconds on the clock at which models have to be trained."""
        return (1 - RESERVE) * self.clock.limit

    def estimates(self, candidates: Iterable[Candidate], task: Task) -> dict[str, Estimate | str]:
        """What each candidate would take, or why that is not known."""
        until = min(self.clock.elapsed + PLANNING * self.clock.limit, self.end)
        return {each.name: each.needs or self.estimate(each, until, task) for each in candidates}

    def estimate(self, candidate: Candidate, until: float, task: Task) -> Estimate | str:
        """What a candidate would take, measured in a part of the time until then."""
        name = f"estimate-{candidate.name}"
        if self.workspace.has(name):
            return Estimate(**self.workspace.load(name)[1])
        end = self.clock.elapsed + (until - self.clock.elapsed) * LARGEST_PART
        watched = TimedProgress(task, f"measuring {candidate.name} on a sample", self.clock, end)
        try:
            watched.check()
            found = estimate(candidate, self.train, self.runtime, watched)
        except OutOfTime:
            return NOT_MEASURED
        except (XmtcError, MemoryError) as error:
            return str(error) or "out of memory"
        self.workspace.save(name, {}, asdict(found))
        return found

    def folds(self, estimates: Iterable[Estimate | str]) -> int:
        """The most folds with which as many candidates fit as with any other number, in the order of the candidates."""
        if self.workspace.has("folds"):  # before an interruption
            return int(self.workspace.load("folds")[1]["folds"])
        costs = [found.train_seconds for found in estimates if isinstance(found, Estimate)]
        left = self.end - self.clock.elapsed

        def fitting(folds: int) -> int:
            count, total = 0, 0.0
            for cost in costs:
                if total + cost * ROUNDS[folds] <= left:
                    total += cost * ROUNDS[folds]
                    count += 1
            return count

        found = max((folds for folds in ROUNDS if folds <= self.options.most_folds), key=lambda f: (fitting(f), f))
        self.workspace.save("folds", {}, {"folds": found})
        return found

    def obstacle(self, found: Estimate, cost: float, end: float) -> str:
        """Why a model that takes `cost` seconds, until `end` on the clock, does not fit; empty if it does."""
        if end > self.end:
            return f"would take {whole_seconds(cost)}"
        if found.memory_megabytes > available_megabytes():
            return f"would take {found.memory_megabytes:,.0f} MiB of memory"
        ms, megabytes = self.options.limits
        if found.predict_ms > ms:
            return f"would take {found.predict_ms:.2g} ms per prediction"
        if found.megabytes > megabytes:
            return f"would take {found.megabytes:.3g} MiB on disk"
        return ""
