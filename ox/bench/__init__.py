"""A load generator for servers of the Open Inference Protocol V2, over HTTP and gRPC; `ox bench` on the command line.

result = ox.bench.run("http://127.0.0.1:8000", Plan(concurrency=(1, 8, 32), seconds=5))
result.steps[-1].percentile(99)

It imports nothing of ox.serve: it measures what any client would see.
"""

from __future__ import annotations

from ox.bench.measure import run
from ox.bench.plan import Plan
from ox.bench.result import Result, Step

__all__ = ["Plan", "Result", "Step", "run"]
