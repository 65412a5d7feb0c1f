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
from ox.bench.answer import Reply, ResponseValidator, Validator
from ox.bench.completions import CompletionValidator
from ox.bench.model import Model, Tensor
from ox.bench.pool import Closed, Open, Pool, arrivals
from ox.bench.recorder import Failures, Recorder
from ox.bench.sequences import GrpcSequences, HttpSequences, SequenceValidator
from ox.bench.text_client import TextClient
from ox.bench.text_figures import TextRecorder
from ox.clock import SYSTEM


async def work(task: dict[str, Any], begin: Callable[[], Awaitable[None]]) -> dict[str, Any]:
    """Opens the connections, waits until it may `begin`, and measures."""
    address, timeout = Address(**task["address"]), task["timeout"]
    judge: Validator
    recorder: Recorder
    if is_text := task.get("text", False):
        judge, recorder = CompletionValidator(task["part"], task["parts"]), TextRecorder(float("inf"), float("inf"))
    else:
        judge, recorder = _validator(task, address), Recorder(float("inf"), float("inf"))
    requests = [base64.b64decode(text) for text in task["requests"]]
    count = task["clients"]
    rate = task["rate"]
    pool: Pool
    if rate is None:
        pool = Closed(address, requests, judge, recorder, count, timeout)
    else:
        pool = Open(address, requests, judge, recorder, count, timeout)
    if is_text:
        pool.http = TextClient
    elif isinstance(judge, SequenceValidator):
        pool.http, pool.grpc = HttpSequences, GrpcSequences
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
        "text": recorder.text.share() if isinstance(recorder, TextRecorder) else None,
    }


def _validator(task: dict[str, Any], address: Address) -> ResponseValidator:
    groups = [tuple(Tensor(n, kind, tuple(shape)) for n, kind, shape in task[key]) for key in ("inputs", "outputs")]
    known = [Reply(status, base64.b64decode(body), length) for status, body, length in task["known"]]
    model = Model(task["model"], *groups)
    if task["sequence"]:
        return SequenceValidator(model, known, address.grpc, task["sequence"], task["part"], task["parts"])
    return ResponseValidator(model, known, address.grpc, task["check"])


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
