"""The text of `/metrics`: a snapshot in Prometheus's text format, or in OpenMetrics if the client accepts it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from ox.serve.telemetry import text_metrics, triton
from ox.serve.telemetry.family import add_histogram
from ox.serve.telemetry.histogram import ROWS, SECONDS
from ox.serve.telemetry.merge import merge
from ox.serve.telemetry.snapshot import Snapshot
from ox.serve.telemetry.stages import STAGES

MODEL = ["model", "version"]


def render(snapshots: Sequence[Snapshot], accept: str = "") -> tuple[bytes, bytes]:
    """The body and its content type, of all workers together."""
    figures = _Figures(merge(snapshots))
    if 0 < _quality(accept, "application/openmetrics-text") >= _quality(accept, "text/plain"):
        text: bytes = openmetrics.generate_latest(figures)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST.encode()
    return generate_latest(figures), CONTENT_TYPE_LATEST.encode()


def _quality(accept: str, kind: str) -> float:
    """How much a client wants a content type, from 0 to 1 (RFC 9110, section 12.4.2)."""
    for entry in accept.lower().replace(" ", "").split(","):
        name, *parameters = entry.split(";")
        if name == kind:
            quality = next((each[2:] for each in parameters if each.startswith("q=")), "1")
            try:
                return float(quality)
            except ValueError:
                return 1.0
    return 0.0


class _Figures(Collector):
    """A merged snapshot as the library wants to walk over it, without families that have no samples."""

    def __init__(self, figures: Snapshot) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Metric]:
        for part in (_of_models, text_metrics.families, _of_server, _of_process, triton.families):
            yield from (family for family in part(self._figures) if family.samples)


def _of_models(figures: Snapshot) -> Iterator[Metric]:
    stages = HistogramMetricFamily(
        "ox_stage_seconds", "Time of answered requests by stage; stage batch: time to form a batch",
        labels=[*MODEL, "stage"],
    )  # fmt: skip
    request = HistogramMetricFamily(
        "ox_request_seconds",
        "Time of answered requests, from the complete request to the written response",
        labels=MODEL,
    )
    rows = HistogramMetricFamily("ox_batch_rows", "Batch sizes, in samples", labels=MODEL)
    left = CounterMetricFamily("ox_batches", "Batches by the reason why they were started", labels=[*MODEL, "left"])
    failures = CounterMetricFamily("ox_failures", "Failed requests by Triton's reason", labels=[*MODEL, "reason"])
    unknown = CounterMetricFamily(
        "ox_unknown_parameters", "Requests for texts with unknown parameters, which were ignored", labels=MODEL
    )
    splits = CounterMetricFamily("ox_batch_splits", "Parts into which failed batches were split", labels=MODEL)
    cells = CounterMetricFamily("ox_padded_cells", "Elements of padded inputs", labels=MODEL)
    padding = CounterMetricFamily("ox_padding_cells", "Padding elements of padded inputs", labels=MODEL)
    depth = GaugeMetricFamily("ox_queue_depth", "Requests that wait for an instance", labels=MODEL)
    sequences = GaugeMetricFamily("ox_sequences", "Active sequences", labels=MODEL)
    states = GaugeMetricFamily("ox_sequence_state_bytes", "Size of the states of active sequences", labels=MODEL)
    info = GaugeMetricFamily(
        "ox_model_info",
        "Device and batching of each model, always 1",
        labels=[*MODEL, "device", "provider", "batching"],
    )
    for name, versions in figures["models"].items():
        for version, model in versions.items():
            labels = [name, version]
            for stage in STAGES:
                add_histogram(stages, [*labels, stage], SECONDS, model["times"][stage])
            add_histogram(request, labels, SECONDS, model["times"]["request"])
            add_histogram(rows, labels, ROWS, model["batch_rows"])
            for why, count in model["left"].items():
                left.add_metric([*labels, why], count)
            for reason, count in model["failures"].items():
                failures.add_metric([*labels, reason], count)
            if model["unknown_parameters"]:
                unknown.add_metric(labels, model["unknown_parameters"])
            splits.add_metric(labels, model["split"])
            cells.add_metric(labels, model["cells"])
            padding.add_metric(labels, model["padding"])
            depth.add_metric(labels, model["depth"])
            if "sequences" in model:
                sequences.add_metric(labels, model["sequences"])
                states.add_metric(labels, model["states"])
            what = model["info"]
            info.add_metric([*labels, what["device"], what["provider"], what["batching"]], 1)
    yield from (stages, request, rows, left, failures, unknown, splits, cells, padding, depth, sequences, states, info)


def _of_server(figures: Snapshot) -> Iterator[Metric]:
    server = figures["server"]
    requests = CounterMetricFamily("ox_requests", "Responses by HTTP status", labels=["status"])
    for status, count in sorted(server["replies"].items()):
        requests.add_metric([status], count)
    yield requests
    rpcs = CounterMetricFamily("ox_rpcs", "gRPC responses by code", labels=["code"])
    for code, count in sorted(server["rpcs"].items()):
        rpcs.add_metric([code], count)
    yield rpcs
    reloads = CounterMetricFamily(
        "ox_reloads", "Loads and unloads of model versions by outcome", labels=["model", "outcome"]
    )
    for model, outcomes in server["reloads"].items():
        for outcome, count in outcomes.items():
            reloads.add_metric([model, outcome], count)
    yield reloads
    yield CounterMetricFamily("ox_log_dropped", "Dropped log lines", value=server["dropped"])
    yield GaugeMetricFamily("ox_connections", "Open connections", value=server["connections"])
    yield GaugeMetricFamily("ox_body_bytes", "Bytes of request bodies in memory", value=server["buffered"])
    yield GaugeMetricFamily(
        "ox_answer_bytes", "Bytes of responses in memory or reserved for runs", value=server["answers"]
    )
    waits = "Runs that waited for response memory"
    yield CounterMetricFamily("ox_answer_waits", waits, value=server["answer_waits"])
    yield CounterMetricFamily(
        "ox_answer_wait_seconds", "Time that runs waited for response memory", value=server["answer_wait_s"]
    )
    slow = "Connections and streams closed because the client read too slowly"
    yield CounterMetricFamily("ox_slow_clients", slow, value=server["slow"])
    yield GaugeMetricFamily("ox_workers", "Server processes included in these metrics", value=figures["workers"])


def _of_process(figures: Snapshot) -> Iterator[Metric]:
    for key, family, name, text in (
        ("cpu_s", CounterMetricFamily, "process_cpu_seconds", "CPU time used"),
        ("resident", GaugeMetricFamily, "process_resident_memory_bytes", "Memory held"),
        ("virtual", GaugeMetricFamily, "process_virtual_memory_bytes", "Addresses taken"),
        ("files", GaugeMetricFamily, "process_open_fds", "Open files and sockets"),
        ("most_files", GaugeMetricFamily, "process_max_fds", "Limit of open files and sockets"),
        ("start_s", GaugeMetricFamily, "process_start_time_seconds", "Start time of the oldest process, in Unix time"),
    ):
        if key in figures["process"]:
            yield family(name, text, value=figures["process"][key])
