"""What `/metrics` shows, in Prometheus's form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from ox.serve.telemetry.histogram import Histogram

if TYPE_CHECKING:
    from ox.serve.http import Front
    from ox.serve.repository.repository import Repository

CONTENT_TYPE = CONTENT_TYPE_LATEST.encode()


class Metrics(Collector):
    """A server's figures in Prometheus's form."""

    def __init__(self, front: Front, repository: Repository) -> None:
        self._front, self._repository = front, repository
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
        for model in self._repository.models():
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
