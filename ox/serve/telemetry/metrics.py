"""What `/metrics` shows: a snapshot in Prometheus's text format, or in OpenMetrics for whoever asks for it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ox.serve.telemetry import triton
from ox.serve.telemetry.histogram import ROWS, SECONDS, buckets
from ox.serve.telemetry.merge import merge
from ox.serve.telemetry.snapshot import Snapshot
from ox.serve.telemetry.stages import STAGES

MODEL = ["model", "version"]


def render(snapshots: Sequence[Snapshot], accept: str = "") -> tuple[bytes, bytes]:
    """The body and its content type, of all workers together."""
    figures = _Figures(merge(snapshots))
    if "application/openmetrics-text" in accept:
        text: bytes = openmetrics.generate_latest(figures)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST.encode()
    return generate_latest(figures), CONTENT_TYPE_LATEST.encode()


class _Figures(Collector):
    """A merged snapshot as the library wants to walk over it."""

    def __init__(self, figures: Snapshot) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        yield from _of_models(self._figures)
        yield from _of_server(self._figures)
        yield from _of_process(self._figures)
        yield from triton.families(self._figures)


def _of_models(figures: Snapshot) -> Iterator[Metric]:
    stages = HistogramMetricFamily(
        "ox_stage_seconds", "Time of answered requests in each stage, of batches in stage batch",
        labels=[*MODEL, "stage"],
    )  # fmt: skip
    request = HistogramMetricFamily(
        "ox_request_seconds", "Time of answered requests, from whole to written", labels=MODEL
    )
    rows = HistogramMetricFamily("ox_batch_rows", "Rows that ran together", labels=MODEL)
    left = CounterMetricFamily("ox_batches", "Batches by why they left", labels=[*MODEL, "left"])
    failures = CounterMetricFamily(
        "ox_failures", "Requests not answered, by Triton's reason", labels=[*MODEL, "reason"]
    )
    splits = CounterMetricFamily("ox_batch_splits", "Parts that failing batches were split into", labels=MODEL)
    cells = CounterMetricFamily("ox_padded_cells", "Elements of inputs that ran padded", labels=MODEL)
    padding = CounterMetricFamily("ox_padding_cells", "Elements of them that were padding", labels=MODEL)
    depth = GaugeMetricFamily("ox_queue_depth", "Requests that wait for an instance", labels=MODEL)
    sequences = GaugeMetricFamily("ox_sequences", "Sequences under way", labels=MODEL)
    states = GaugeMetricFamily("ox_sequence_state_bytes", "What they keep between requests", labels=MODEL)
    info = GaugeMetricFamily(
        "ox_model_info", "What runs each model, always 1", labels=[*MODEL, "device", "provider", "batching"]
    )
    for name, versions in figures["models"].items():
        for version, model in versions.items():
            labels = [name, version]
            for stage in STAGES:
                entry = model["times"][stage]
                stages.add_metric([*labels, stage], buckets(SECONDS, entry["counts"]), entry["total"])
            entry = model["times"]["request"]
            request.add_metric(labels, buckets(SECONDS, entry["counts"]), entry["total"])
            rows.add_metric(labels, buckets(ROWS, model["batch_rows"]["counts"]), model["batch_rows"]["total"])
            for why, count in model["left"].items():
                left.add_metric([*labels, why], count)
            for reason, count in model["failures"].items():
                failures.add_metric([*labels, reason], count)
            splits.add_metric(labels, model["split"])
            cells.add_metric(labels, model["cells"])
            padding.add_metric(labels, model["padding"])
            depth.add_metric(labels, model["depth"])
            if "sequences" in model:
                sequences.add_metric(labels, model["sequences"])
                states.add_metric(labels, model["states"])
            what = model["info"]
            info.add_metric([*labels, what["device"], what["provider"], what["batching"]], 1)
    yield from (stages, request, rows, left, failures, splits, cells, padding, depth, sequences, states, info)


def _of_server(figures: Snapshot) -> Iterator[Metric]:
    server = figures["server"]
    requests = CounterMetricFamily("ox_requests", "Answers by HTTP status", labels=["status"])
    for status, count in sorted(server["replies"].items()):
        requests.add_metric([status], count)
    yield requests
    rpcs = CounterMetricFamily("ox_rpcs", "Answers over gRPC by code", labels=["code"])
    for code, count in sorted(server["rpcs"].items()):
        rpcs.add_metric([code], count)
    yield rpcs
    reloads = CounterMetricFamily("ox_reloads", "Loads of a model's versions by outcome", labels=["model", "outcome"])
    for model, outcomes in server["reloads"].items():
        for outcome, count in outcomes.items():
            reloads.add_metric([model, outcome], count)
    yield reloads
    yield CounterMetricFamily("ox_log_dropped", "Lines of the log that nobody took", value=server["dropped"])
    yield GaugeMetricFamily("ox_connections", "Open connections", value=server["connections"])
    yield GaugeMetricFamily("ox_body_bytes", "Bytes of request bodies held", value=server["buffered"])
    yield GaugeMetricFamily("ox_answer_bytes", "Bytes of answers held, also for runs", value=server["answers"])
    waits = "Runs that waited until there was memory for their answers"
    yield CounterMetricFamily("ox_answer_waits", waits, value=server["answer_waits"])
    yield CounterMetricFamily("ox_answer_wait_seconds", "Time that they waited", value=server["answer_wait_s"])
    slow = "Connections and streams ended because their clients did not take their answers"
    yield CounterMetricFamily("ox_slow_clients", slow, value=server["slow"])
    yield GaugeMetricFamily(
        "ox_workers", "Processes that serve, all of them in these figures", value=figures["workers"]
    )


def _of_process(figures: Snapshot) -> Iterator[Metric]:
    for key, family, name, text in (
        ("cpu_s", CounterMetricFamily, "process_cpu_seconds", "CPU time used"),
        ("resident", GaugeMetricFamily, "process_resident_memory_bytes", "Memory held"),
        ("virtual", GaugeMetricFamily, "process_virtual_memory_bytes", "Addresses taken"),
        ("files", GaugeMetricFamily, "process_open_fds", "Open files and sockets"),
        ("most_files", GaugeMetricFamily, "process_max_fds", "Most open files and sockets"),
        ("start_s", GaugeMetricFamily, "process_start_time_seconds", "When the oldest process began, in Unix time"),
    ):
        if key in figures["process"]:
            yield family(name, text, value=figures["process"][key])
