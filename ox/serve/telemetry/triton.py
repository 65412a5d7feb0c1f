"""The names under which Triton counts, so that dashboards made for it keep working.

Triton's counters do not end in `_total`, which both exposition formats demand of what they call a counter; so these
are of no declared type, which Prometheus treats alike. Times are microseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric, UnknownMetricFamily

from ox.serve.telemetry.snapshot import Snapshot


def _micro(stage: str) -> Callable[[Snapshot], float]:
    return lambda model: float(round(1e6 * model["times"][stage]["total"]))


COUNTERS: tuple[tuple[str, str, Callable[[Snapshot], float]], ...] = (
    ("request_success", "Requests answered", lambda model: sum(model["times"]["request"]["counts"])),
    ("count", "Rows inferred, and generations", lambda model: model["batch_rows"]["total"] + model["generations"]),
    ("exec_count", "Batches run, and generations",
     lambda model: sum(model["batch_rows"]["counts"]) + model["generations"]),
    ("request_duration_us", "Total time of requests", _micro("request")),
    ("queue_duration_us", "Time of requests in the queue", _micro("queue")),
    ("compute_input_duration_us", "Time to parse requests", _micro("parse")),
    ("compute_infer_duration_us", "Time of the runs of requests", _micro("run")),
    ("compute_output_duration_us", "Time to write responses", _micro("serialise")),
)  # fmt: skip


def families(figures: Snapshot) -> Iterator[Metric]:
    """Triton's metrics of a snapshot."""
    models = [
        ((name, version), model) for name, versions in figures["models"].items() for version, model in versions.items()
    ]
    for name, text, count in COUNTERS:
        family = UnknownMetricFamily(f"nv_inference_{name}", text, labels=["model", "version"])
        for labels, model in models:
            family.add_metric(labels, count(model))
        yield family
    failed = UnknownMetricFamily(
        "nv_inference_request_failure", "Failed requests", labels=["model", "version", "reason"]
    )
    waiting = GaugeMetricFamily(
        "nv_inference_pending_request_count", "Requests in the queue", labels=["model", "version"]
    )
    for labels, model in models:
        waiting.add_metric(labels, model["depth"])
        for reason, count_ in model["failures"].items():
            failed.add_metric([*labels, reason], count_)
    yield from (failed, waiting)
    for name, text, key in (
        ("nv_gpu_memory_total_bytes", "GPU memory", "total"),
        ("nv_gpu_memory_used_bytes", "Used GPU memory, of all processes", "used"),
        ("nv_gpu_utilization", "GPU utilisation", "load"),
    ):
        gauge = GaugeMetricFamily(name, text, labels=["gpu_uuid"])
        for uuid, entry in figures["gpus"].items():
            if key in entry:
                gauge.add_metric([uuid], entry[key])
        yield gauge
