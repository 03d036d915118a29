"""What a service counts: for all of its processes together, in the text form that Prometheus reads.

Each process writes a row of its own in a small shared file, and whoever is asked adds the rows up.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

ROUTES = (
    *("/", "/page", "/v1/predict", "/v1/explain", "/v1/models", "/v1/labels", "/v1/feedback"),
    *("/healthz", "/readyz", "/metrics", "/openapi.json", "other"),
)
STATUSES = (200, 201, 400, 401, 404, 405, 408, 413, 415, 421, 422, 429, 431, 500, 503, 0)
"""0 stands for any other."""
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds, the upper ends of the buckets of a histogram."""
OF_MODELS = {
    "texts": ("counter", "xmtc_texts_total", "Texts that were tagged."),
    "batches": ("counter", "xmtc_batches_total", "Batches in which they were tagged."),
    "model_seconds": ("counter", "xmtc_model_seconds_total", "Seconds for which the model was at work on them."),
    "explained": ("counter", "xmtc_explanations_total", "Labels that were explained."),
    "feedback": ("counter", "xmtc_feedback_total", "Decisions of people that were kept."),
    "loads": ("counter", "xmtc_model_loads_total", "Times that the model was loaded."),
    "failed_loads": ("counter", "xmtc_model_failed_loads_total", "Times that a new model could not be loaded."),
    "waiting": ("gauge", "xmtc_waiting_texts", "Texts that wait for the model now."),
}


class Tallies:
    """Counters of one process among `rows`; `file` is where all of them write, where there are several."""

    def __init__(self, models: Sequence[str], rows: int = 1, row: int = 0, file: int | None = None) -> None:
        self.models = list(models)
        self._names = [(kind, name) for kind in OF_MODELS for name in self.models]
        self._places = {name: place for place, name in enumerate(self._names)}
        requests = len(ROUTES) * len(STATUSES)
        seconds = len(ROUTES) * (len(BOUNDS) + 2)  # buckets, the last without an end, and the sum
        width = len(self._names) + requests + seconds + 3
        if file is None and rows > 1:
            with tempfile.TemporaryFile() as made:
                file = os.dup(made.fileno())
            os.ftruncate(file, rows * width * 8)
        self.file = -1 if file is None else file
        shared = mmap.mmap(self.file, rows * width * 8)  # without a file, memory of this process alone
        self._rows = np.frombuffer(shared, dtype=np.float64).reshape(rows, width)
        parts = np.split(self._rows, np.cumsum([len(self._names), requests, seconds]), axis=1)
        self._models, self._requests, self._seconds, self._process = (part[row] for part in parts)
        self._all = parts
        self._spent = 0.0  # of the process, as far as it is counted
        for model in self.models:  # what waited in a process that died waits no more
            self.set("waiting", model, 0)

    def add(self, kind: str, model: str, count: float = 1) -> None:
        self._models[self._places[kind, model]] += count

    def set(self, kind: str, model: str, value: float) -> None:
        self._models[self._places[kind, model]] = value

    def request(self, route: str, status: int, seconds: float) -> None:
        """A request that was answered."""
        where = ROUTES.index(route)
        code = STATUSES.index(status if status in STATUSES else 0)
        self._requests[where * len(STATUSES) + code] += 1
        start = where * (len(BOUNDS) + 2)
        self._seconds[start + sum(seconds > bound for bound in BOUNDS)] += 1
        self._seconds[start + len(BOUNDS) + 1] += seconds

    def beat(self) -> None:
        """Say what this process takes."""
        now = time.process_time()
        self._process[:] = self._process[0] + now - self._spent, _resident(), 1
        self._spent = now

    def text(self) -> str:
        """All that was counted, for Prometheus."""
        self.beat()
        return "\n".join([*self._of_models(), *self._of_requests(), *self._of_processes(), ""])

    def _of_models(self) -> Iterator[str]:
        sums = self._all[0].sum(axis=0)
        for kind, (form, name, words) in OF_MODELS.items():
            yield from (f"# HELP {name} {words}", f"# TYPE {name} {form}")
            for model in self.models:
                yield f'{name}{{model="{_escaped(model)}"}} {sums[self._places[kind, model]]:.15g}'

    def _of_requests(self) -> Iterator[str]:
        counts = self._all[1].sum(axis=0).reshape(len(ROUTES), len(STATUSES))
        seconds = self._all[2].sum(axis=0).reshape(len(ROUTES), len(BOUNDS) + 2)
        yield from ("# HELP xmtc_requests_total Requests by status.", "# TYPE xmtc_requests_total counter")
        for route, row in zip(ROUTES, counts, strict=True):
            for status, count in zip(STATUSES, row, strict=True):
                if count:
                    yield f'xmtc_requests_total{{route="{route}",status="{status or "other"}"}} {count:.15g}'
        name = "xmtc_request_seconds"
        yield from (f"# HELP {name} Seconds from a request to its answer.", f"# TYPE {name} histogram")
        for route, row in zip(ROUTES, seconds, strict=True):
            if not row[:-1].any():
                continue
            for bound, count in zip((*BOUNDS, "+Inf"), np.cumsum(row[:-1]), strict=True):
                yield f'{name}_bucket{{route="{route}",le="{bound}"}} {count:.15g}'
            yield f'{name}_sum{{route="{route}"}} {row[-1]:.15g}'
            yield f'{name}_count{{route="{route}"}} {row[:-1].sum():.15g}'

    def _of_processes(self) -> Iterator[str]:
        cpu, resident, processes = self._all[3].sum(axis=0)
        for form, name, words, value in (
            ("counter", "xmtc_cpu_seconds_total", "CPU time of the processes.", cpu),
            ("gauge", "xmtc_resident_bytes", "Memory of the processes, mapped models among it.", resident),
            ("gauge", "xmtc_processes", "Processes that answer.", processes),
        ):
            yield from (f"# HELP {name} {words}", f"# TYPE {name} {form}", f"{name} {value:.15g}")


def _resident() -> float:
    """Bytes of memory of this process; 0 where the system does not say."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        return 0.0
    return float(statm.read_text().split()[1]) * mmap.PAGESIZE


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
