"""A load generator process for one step. Protocol with `measure.run`: JSON task in, `ready`, `go`, JSON result out."""

from __future__ import annotations

import asyncio
import base64
import gc
import json
import sys
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import numpy as np

from ox.bench.address import Address
from ox.bench.answer import Reply, ResponseValidator
from ox.bench.model import Model, Tensor
from ox.bench.pool import Closed, Open, Pool, arrivals
from ox.bench.recorder import Failures, Recorder
from ox.clock import SYSTEM


async def work(task: dict[str, Any], begin: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """Opens the connections, waits until it may `begin`, and measures."""
    address, timeout = Address(**task["address"]), task["timeout"]
    groups = [tuple(Tensor(n, kind, tuple(shape)) for n, kind, shape in task[key]) for key in ("inputs", "outputs")]
    known = [Reply(status, base64.b64decode(body), length) for status, body, length in task["known"]]
    judge = ResponseValidator(Model(task["model"], *groups), known, address.grpc, task["check"])
    requests = [base64.b64decode(text) for text in task["requests"]]
    recorder = Recorder(float("inf"), float("inf"))
    count = task["clients"]
    rate = task["rate"]
    pool: Pool
    if rate is None:
        pool = Closed(address, requests, judge, recorder, count, timeout)
    else:
        pool = Open(address, requests, judge, recorder, count, timeout)
    pool.turn = task["part"]  # not all processes begin with the same request
    try:
        await pool.open()
    except (OSError, TimeoutError) as error:
        return {"unreachable": str(error) or type(error).__name__}
    await begin()
    now = perf_counter()
    recorder.begin(now, task["warmup"], task["seconds"])
    if isinstance(pool, Open):
        pool.schedule(arrivals(task["arrivals"], rate, now, task["part"], task["parts"]))
    await pool.run()
    await pool.close()
    late = np.frombuffer(recorder.late, np.float64)
    return {
        "histogram": recorder.histogram.to_json(),
        "failures": _plain(recorder.failures),
        "failed_early": _plain(recorder.failed_early),
        "within": recorder.within,
        "reconnects": recorder.reconnects,
        "late": float(np.percentile(late, 99)) if late.size else 0.0,
    }


async def _read_message() -> None:
    """Reads one line from stdin: all processes begin when the last one is connected."""
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


def _plain(failures: Failures) -> dict[str, Any]:
    return {"counts": failures.counts, "examples": failures.examples}


def main() -> None:
    task = json.loads(sys.stdin.readline())
    loop = SYSTEM.new_event_loop()
    outcome = loop.run_until_complete(work(task, _read_message))
    print(json.dumps(outcome), flush=True)


if __name__ == "__main__":
    main()
