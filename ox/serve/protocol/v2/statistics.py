"""The statistics extension: counters and times of a model in Triton's format."""

from __future__ import annotations

from typing import Any

from ox.serve.telemetry.snapshot import Snapshot


def statistics(name: str, version: str, counts: Snapshot) -> dict[str, Any]:
    """One entry of `model_stats`, from the result of `ox.serve.telemetry.snapshot.of_stages`.

    Per request: `queue` until its batch began, `compute_input` reading it, `compute_infer` the run, `compute_output`
    writing the answer. Per batch: `compute_input` putting its inputs together. There is no cache. A generation counts
    as an inference and as an execution: generations join and leave batches between tokens.
    """
    rows, times, failures, generations = (counts[name] for name in ("batch_rows", "times", "failures", "generations"))
    succeeded = sum(times["request"]["counts"])

    def requests(stage: str) -> dict[str, int]:
        return duration(succeeded, times[stage]["total"])

    return {
        "name": name,
        "version": version,
        "last_inference": counts["last_ms"],
        "inference_count": round(rows["total"]) + generations,
        "execution_count": sum(rows["counts"]) + generations,
        "inference_stats": {
            "success": requests("request"),
            "fail": duration(sum(failures.values()), counts["failed_s"]),
            "queue": requests("queue"),
            "compute_input": requests("parse"),
            "compute_infer": requests("run"),
            "compute_output": requests("serialise"),
            "cache_hit": duration(0, 0.0),
            "cache_miss": duration(0, 0.0),
        },
        "batch_stats": [
            {
                "batch_size": int(size),
                "compute_input": duration(batches, gather_s),
                "compute_infer": duration(batches, run_s),
                "compute_output": duration(batches, 0.0),  # responses are written per request, not per batch
            }
            for size, (batches, gather_s, run_s) in sorted(counts["sizes"].items(), key=lambda entry: int(entry[0]))
        ],
    }


def duration(count: int, seconds: float) -> dict[str, int]:
    """A count and the total time in nanoseconds."""
    return {"count": count, "ns": round(1e9 * seconds)}
