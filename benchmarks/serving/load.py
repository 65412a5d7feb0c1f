"""The load generators: wrk for HTTP/1.1, h2load for gRPC. Both are C, so that they take little of the shared cores."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from serving.peers import Request

# Each answer's status is looked at by wrk itself, which counts all but 2xx and 3xx.
SCRIPT = """
local file = io.open(os.getenv("BODY"), "rb")
wrk.method, wrk.body = "POST", file:read("*a")
for name, value in string.gmatch(os.getenv("HEADERS"), "([^:]+):([^;]+);") do wrk.headers[name] = value end
function done(summary, latency, requests)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format('JSON{"answers":%d,"us":%d,"failed":%d,"p50":%f,"p99":%f}', summary.requests,
    summary.duration, failed, latency:percentile(50) / 1000, latency:percentile(99) / 1000))
end
"""


@dataclass(frozen=True)
class Figures:
    rate: float  # answers a second
    p50: float  # ms
    p99: float


class LoadError(Exception):
    """The load generator could not do its work, or the server failed some of it."""


def missing() -> list[str]:
    return [tool for tool in ("wrk", "h2load") if shutil.which(tool) is None]


def put(request: Request, port: int, concurrency: int, seconds: int, warm: bool) -> Figures:
    """Closed loop: `concurrency` connections, one request each. A server that is not `warm` gets a second before."""
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder) / "body"
        body.write_bytes(request.body)
        run = _h2load if request.form == "grpc" else _wrk
        if not warm:
            run(request, port, concurrency, 1, body)
        return run(request, port, concurrency, seconds, body)


def _wrk(request: Request, port: int, concurrency: int, seconds: int, body: Path) -> Figures:
    script = body.with_name("load.lua")
    script.write_text(SCRIPT)
    line = ["wrk", "-t1", f"-c{concurrency}", "--timeout", "10s", "-s", str(script)]
    url = f"http://127.0.0.1:{port}{request.path}"
    headers = "".join(f"{name}:{value};" for name, value in request.headers.items())
    environment = os.environ | {"BODY": str(body), "HEADERS": headers}
    done = subprocess.run([*line, f"-d{seconds}s", url], capture_output=True, text=True, env=environment)
    found = re.search(r"JSON(\{.*\})", done.stdout)
    if done.returncode or found is None:
        raise LoadError(f"wrk: {done.stderr or done.stdout}")
    figures = json.loads(found[1])
    if figures["failed"] or not figures["answers"]:
        raise LoadError(f"{figures['failed']} of {figures['answers']} requests failed")
    return Figures(1e6 * figures["answers"] / figures["us"], figures["p50"], figures["p99"])


def _h2load(request: Request, port: int, concurrency: int, seconds: int, body: Path) -> Figures:
    log = body.with_name("log")
    line = ["h2load", "-t1", f"-c{concurrency}", "-m1", f"-D{seconds}", "-d", str(body)]
    for name, value in request.headers.items():
        line += ["-H", f"{name}: {value}"]
    done = subprocess.run(
        [*line, f"--log-file={log}", f"http://127.0.0.1:{port}{request.path}"], capture_output=True, text=True
    )
    counts = re.search(r"(\d+) done, (\d+) succeeded, (\d+) failed, (\d+) errored", done.stdout)
    bodies = re.search(r"\((\d+)\) data", done.stdout)
    if done.returncode or counts is None or bodies is None:
        raise LoadError(f"h2load: {done.stderr or done.stdout}")
    succeeded, failed = int(counts[2]), int(counts[3]) + int(counts[4])
    if failed or not succeeded:
        raise LoadError(f"{failed} of {succeeded + failed} requests failed")
    if int(bodies[1]) < succeeded * 40:  # a refusal has status 200, too, but no message
        raise LoadError("answers without a message")
    rows = np.loadtxt(log, dtype=np.int64, ndmin=2)  # when, status, how long in microseconds
    times = rows[rows[:, 1] == 200, 2] / 1000
    return Figures(succeeded / seconds, float(np.percentile(times, 50)), float(np.percentile(times, 99)))
