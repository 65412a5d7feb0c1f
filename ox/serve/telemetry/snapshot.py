"""A snapshot of a server's counters as plain JSON, for metrics, statistics and the page at `/`.

Several workers give one each, and `merge` adds them up: numbers add, words stay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ox.clock import Clock
from ox.serve.telemetry import gpu, process
from ox.serve.telemetry.histogram import ROWS, SECONDS, Histogram
from ox.serve.telemetry.stages import STAGES, Stages

if TYPE_CHECKING:
    from ox.serve.repository.model import Model

Snapshot = dict[str, Any]
BOUNDS = {"seconds": list(SECONDS), "rows": list(ROWS)}  # of the histograms
TIMES = (*STAGES, "request")


async def snapshot(models: Iterable[Model], server: Mapping[str, Any], clock: Clock) -> Snapshot:
    """Everything counted so far; `server` has the figures of connections and answers.

    On the event loop, which runs other tasks after each model. What the system is asked for is read in a thread.
    """
    served: dict[str, dict[str, Snapshot]] = {}
    for model in models:
        served.setdefault(model.name, {})[model.version] = of_model(model)
        await asyncio.sleep(0)
    on_gpu = any(entry["info"]["device"] != "cpu" for versions in served.values() for entry in versions.values())
    return {
        "workers": 1,
        "server": dict(server),
        "process": await asyncio.to_thread(process.figures, clock.calendar()),
        "gpus": await asyncio.to_thread(gpu.figures) if on_gpu else {},
        "models": served,
        "bounds": BOUNDS,
    }


def of_model(model: Model) -> Snapshot:
    """One version of a model: what runs it, what waits, what it has done."""
    if model.generation is not None:
        return _of_generation(model, model.generation.stats())
    batching = str(model.proof.max_rows) if model.proof.why is None else "off"
    info = {
        "device": model.engine.place,
        "provider": model.engine.provider,
        "batching": batching,
        "samples": str(len(model.samples)),
    }
    if model.proof.why is not None:
        info["why"] = model.proof.why
    stats = model.batcher.stats
    counts = {name: getattr(stats, name) for name in ("split", "late", "gone", "refused", "cells", "padding")}
    if model.sequences is not None:
        counts |= {"sequences": len(model.sequences), "states": model.sequences.states_size}
    return {"info": info, "depth": model.depth, "left": stats.by_reason(), **counts, **of_stages(model.stages)}


def _of_generation(model: Model, stats: Snapshot) -> Snapshot:
    info = {"device": "cpu", "provider": "CPUExecutionProvider", "batching": "texts", "samples": "0"}
    none = dict.fromkeys(("split", "late", "gone", "refused", "cells", "padding"), 0)
    texts = {**stats, "depth": stats["waiting"]}
    return {"info": info, "depth": stats["waiting"], "left": {}, **none, **of_stages(model.stages), "texts": texts}


def of_stages(stages: Stages) -> Snapshot:
    """The counts by name; `sizes` holds (batches, seconds of gathering, seconds of running) by rows."""
    clock = stages.clock
    last_ms = int(1000 * (clock.calendar() - clock.now() + stages.last)) if stages.last else 0
    return {
        "times": {name: _histogram(getattr(stages, name)) for name in TIMES},
        "batch_rows": _histogram(stages.batch_rows),
        "generations": stages.generations,
        "failures": dict(stages.failures),
        "unknown_parameters": stages.unknown_parameters,
        "failed_s": stages.failed_s,
        "sizes": {str(rows): [size.count, size.gather_s, size.run_s] for rows, size in stages.sizes.items()},
        "last_ms": last_ms,
        "start_s": stages.start_s,
    }


def _histogram(histogram: Histogram) -> Snapshot:
    return {"counts": list(histogram.counts), "total": histogram.total}
