"""The statistics extension's form: what a model has done so far, as Triton and its clients write it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ox.serve.repository.model import Model


def statistics(model: Model) -> dict[str, Any]:
    """One entry of `model_stats`.

    Per request: `queue` until its batch began, `compute_input` reading it, `compute_infer` the run, `compute_output`
    writing the answer. Per batch: `compute_input` putting its inputs together. There is no cache.
    """
    stages = model.stages
    succeeded = stages.request.count
    # what is counted by a monotonic clock, which a step of the wall clock does not touch
    last = time.time() - (time.perf_counter() - stages.last) if stages.last else 0.0
    return {
        "name": model.name,
        "version": model.version,
        "last_inference": round(1000 * last),
        "inference_count": round(stages.batch_rows.total),
        "execution_count": stages.batch_rows.count,
        "inference_stats": {
            "success": duration(succeeded, stages.request.total),
            "fail": duration(sum(stages.failures.values()), stages.failed_s),
            "queue": duration(succeeded, stages.queue.total),
            "compute_input": duration(succeeded, stages.parse.total),
            "compute_infer": duration(succeeded, stages.run.total),
            "compute_output": duration(succeeded, stages.serialise.total),
            "cache_hit": duration(0, 0.0),
            "cache_miss": duration(0, 0.0),
        },
        "batch_stats": [
            {
                "batch_size": rows,
                "compute_input": duration(size.count, size.gather_s),
                "compute_infer": duration(size.count, size.run_s),
                "compute_output": duration(size.count, 0.0),  # answers are written a request, not a batch
            }
            for rows, size in sorted(stages.sizes.items())
        ],
    }


def duration(count: int, seconds: float) -> dict[str, int]:
    """How often something happened, and how long it took in all."""
    return {"count": count, "ns": round(1e9 * seconds)}
