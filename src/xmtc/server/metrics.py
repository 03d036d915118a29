"""Prometheus metrics of a service. Worker processes share them through prometheus_client's multiprocess mode."""

from __future__ import annotations

import mmap
import time
from collections.abc import Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

DIRECTORY_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable with the folder for the metrics of worker processes; prometheus_client reads it on import."""
CONTENT_TYPE = "text/plain; version=0.0.4"
BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Upper bounds of the latency histogram, in seconds."""

__all__ = ["BUCKETS", "CONTENT_TYPE", "DIRECTORY_VARIABLE", "Metrics", "mark_process_dead"]


class Metrics:
    """The metrics of one process, which writes to `directory` if the service has several processes."""

    def __init__(self, models: Sequence[str], directory: str | None = None) -> None:
        disable_created_metrics()  # one series per metric, as in multiprocess mode
        registry = CollectorRegistry()

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(name, documentation, labels, registry=registry)

        def gauge(name: str, documentation: str, *labels: str) -> Gauge:
            return Gauge(name, documentation, labels, registry=registry, multiprocess_mode="livesum")

        self.texts = counter("xmtc_texts_total", "Texts predicted.", "model")
        self.batches = counter("xmtc_batches_total", "Batches predicted.", "model")
        self.model_seconds = counter("xmtc_model_seconds_total", "Seconds spent on predictions.", "model")
        self.explanations = counter("xmtc_explanations_total", "Labels explained.", "model")
        self.feedback = counter("xmtc_feedback_total", "Feedback records saved.", "model")
        self.loads = counter("xmtc_model_loads_total", "Times the model was loaded.", "model")
        self.failed_loads = counter("xmtc_model_failed_loads_total", "New models that failed to load.", "model")
        self.waiting_texts = gauge("xmtc_waiting_texts", "Texts waiting in the queue.", "model")
        self.requests = counter("xmtc_requests_total", "HTTP requests by route and status.", "route", "status")
        self.request_seconds = Histogram(
            "xmtc_request_seconds",
            "Seconds from a request to its response.",
            ["route"],
            registry=registry,
            buckets=BUCKETS,
        )
        self.dropped_connections = counter(
            "xmtc_dropped_connections_total", "Connections dropped or refused because of the limit on connections."
        )
        self._cpu_seconds = counter("xmtc_cpu_seconds_total", "CPU time of all processes in seconds.")
        self._resident_bytes = gauge("xmtc_resident_bytes", "Resident memory of all processes with mapped models.")
        self._processes = gauge("xmtc_processes", "Worker processes.")
        by_model = (self.texts, self.batches, self.model_seconds, self.explanations, self.feedback)
        for metric in (*by_model, self.loads, self.failed_loads, self.waiting_texts):
            for model in models:
                metric.labels(model=model)  # its series starts at 0
        self._recorded_cpu = 0.0
        self._registry = registry
        if directory is not None:
            self._registry = CollectorRegistry()
            MultiProcessCollector(self._registry, directory)

    def observe_request(self, route: str, status: int, seconds: float) -> None:
        """Count a request; status 0 means that the client disconnected before the response."""
        self.requests.labels(route=route, status=str(status or "other")).inc()
        self.request_seconds.labels(route=route).observe(seconds)

    def record_process(self) -> None:
        """Record the CPU time and memory of this process."""
        now = time.process_time()
        self._cpu_seconds.inc(now - self._recorded_cpu)
        self._recorded_cpu = now
        self._resident_bytes.set(_resident_bytes())
        self._processes.set(1)

    def exposition(self) -> bytes:
        """All metrics in the Prometheus text format, summed over all processes."""
        self.record_process()
        return generate_latest(self._registry)


def _resident_bytes() -> float:
    """Resident memory of this process in bytes; 0 if unknown."""
    statm = Path("/proc/self/statm")
    return float(statm.read_text().split()[1]) * mmap.PAGESIZE if statm.exists() else 0.0
