"""What `/metrics` shows. Counted by hand on the event loop, because a Prometheus client's own counters take locks that
cost more than a small model; turned into Prometheus's form only when somebody asks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from ox.serve.http import Front
    from ox.serve.model import Model

SECONDS = (
    1e-5,
    2.5e-5,
    5e-5,
    1e-4,
    2.5e-4,
    5e-4,
    1e-3,
    2.5e-3,
    5e-3,
    1e-2,
    2.5e-2,
    5e-2,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    10.0,
)
ROWS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()


class Histogram:
    """Counts of values up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, float]]:
        """(upper bound, values up to it), as Prometheus wants them."""
        rows, running = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            rows.append((bound, float(running)))
        return rows


class Stages:
    """Where a model's requests spend their time, and how many rows run together."""

    __slots__ = ("batch_rows", "parse", "queue", "run", "serialise")

    def __init__(self) -> None:
        self.parse, self.queue = Histogram(SECONDS), Histogram(SECONDS)
        self.run, self.serialise = Histogram(SECONDS), Histogram(SECONDS)
        self.batch_rows = Histogram(ROWS)


class Metrics(Collector):
    """A server's figures in Prometheus's form."""

    def __init__(self, front: Front, models: Iterable[Model]) -> None:
        self._front, self._models = front, tuple(models)
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def text(self) -> bytes:
        """The exposition format."""
        return generate_latest(self._registry)

    def collect(self) -> Sequence[Metric]:
        stages = HistogramMetricFamily(
            "ox_stage_seconds", "Time of one request in each stage", labels=["model", "stage"]
        )
        rows = HistogramMetricFamily("ox_batch_rows", "Rows that ran together", labels=["model"])
        depth = GaugeMetricFamily("ox_queue_depth", "Requests that wait for an instance", labels=["model"])
        labels = ["model", "version", "device", "provider", "batching"]
        info = GaugeMetricFamily("ox_model_info", "What runs each model, always 1", labels=labels)
        for model in self._models:
            for stage in ("parse", "queue", "run", "serialise"):
                histogram: Histogram = getattr(model.stages, stage)
                stages.add_metric([model.name, stage], histogram.buckets(), histogram.total)
            rows.add_metric([model.name], model.stages.batch_rows.buckets(), model.stages.batch_rows.total)
            depth.add_metric([model.name], model.batcher.depth)
            batching = str(model.proof.max_rows) if model.proof.why is None else "off"
            info.add_metric([model.name, model.version, model.engine.device, model.engine.provider, batching], 1)
        requests = CounterMetricFamily("ox_requests", "Answers by HTTP status", labels=["status"])
        for status, count in sorted(self._front.replies.items()):
            requests.add_metric([str(status)], count)
        connections = GaugeMetricFamily("ox_connections", "Open connections", value=len(self._front.connections))
        held = GaugeMetricFamily("ox_body_bytes", "Bytes of request bodies held", value=self._front.buffered)
        return [stages, rows, depth, info, requests, connections, held]
