"""A server's counts and times for Prometheus."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

TIMES = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass
class Load:
    """Load of the pool, now."""

    ready: int = 0
    waiting: int = 0
    judging: int = 0
    failing: str | None = None  # why no worker starts


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self._requests = Counter("rrm_requests", "Requests answered.", ["path", "status"], registry=own)
        self._seconds = Histogram(
            "rrm_request_seconds", "From request to answer.", ["path"], buckets=TIMES, registry=own
        )
        self._rows = Counter("rrm_rows", "Transcripts judged.", ["status"], registry=own)
        self._batch = Histogram(
            "rrm_batch_items", "Items that a worker was given at once.", buckets=SIZES, registry=own
        )
        self._waiting = Gauge("rrm_waiting_items", "Items that were accepted and wait for a worker.", registry=own)
        self._judging = Gauge("rrm_judging_items", "Items that a worker has.", registry=own)
        self._ready = Gauge("rrm_workers_ready", "Workers with a judge loaded.", registry=own)
        self._restarts = Counter("rrm_worker_restarts", "Workers that ended unasked.", registry=own)
        self._unstarted = Counter("rrm_worker_failed_starts", "Starts of a worker that failed.", registry=own)

    def request(self, path: str, status: int, seconds: float) -> None:
        # `path` is an endpoint's, whatever was asked for
        self._requests.labels(path, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def row(self, status: str) -> None:
        self._rows.labels(status).inc()

    def batch(self, size: int) -> None:
        self._batch.observe(size)

    def restarted(self) -> None:
        self._restarts.inc()

    def unstarted(self) -> None:
        self._unstarted.inc()

    def load(self, load: Load) -> None:
        self._waiting.set_function(lambda: load.waiting)
        self._judging.set_function(lambda: load.judging)
        self._ready.set_function(lambda: load.ready)

    def totals(self) -> dict[str, int]:
        """Requests answered, and rows by status, so far."""
        counts = {"requests": 0}
        for family in self.registry.collect():
            for sample in family.samples:
                if sample.name == "rrm_requests_total":
                    counts["requests"] += int(sample.value)
                elif sample.name == "rrm_rows_total":
                    counts[sample.labels["status"]] = int(sample.value)
        return counts

    def exposition(self) -> bytes:
        return generate_latest(self.registry)
