"""The batcher alone: samples per second, compared with plain `session.run` in as many threads.

    python benchmarks/bench_batcher.py [--seconds 1] [--clients 32]

No sockets and no protocol: what is left of the difference is the queue, the threads, the copies into batches and out of
them. The models are those of bench_serve.py: mlp runs on the event loop, and once more in threads; cnn runs in threads.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from serving import models

from ox.clock import SYSTEM
from ox.serve import ModelConfig, RequestLimits
from ox.serve.repository.model import Model
from ox.serve.runtime.instance import Feed
from ox.serve.runtime.proof import rows
from ox.serve.tuning.measure import throughput
from ox.serve.tuning.tune import Point, Setting, run


def through(model: Model, feeds: list[Feed], clients: int, seconds: float) -> Point:
    setting = Setting(model.instances, model.threads, model.proof.max_rows)
    return run(model, feeds, setting, clients, seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--clients", type=int, default=32)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        models.write(Path(folder))
        for name, inline in (("mlp", True), ("mlp", False), ("cnn", False)):
            model = Model(Path(folder) / f"{name}.onnx", ModelConfig(), RequestLimits())
            model.inline = inline
            feeds = [feed for feed, _ in rows(model.engine, model.samples, 32)]
            most = model.proof.max_rows
            feed = {key: value.repeat(most, 0) for key, value in feeds[0].items()}
            instances = [model.engine.instance(index) for index in range(1 if inline else model.instances)]
            plain = most * throughput(instances, feed, arguments.seconds, SYSTEM.now)
            point = through(model, feeds, arguments.clients, arguments.seconds)
            print(
                f"{name} {'on the loop' if inline else 'in threads'}: {point.rate:,.0f} samples/s "
                f"({1e6 / point.rate:.2f} µs a row), {point.rows:.1f} rows a batch, p50 {1e3 * point.p50:.3f} ms, "
                f"p99 {1e3 * point.p99:.3f} ms; session.run alone with {most} rows: {plain:,.0f} samples/s "
                f"({1e6 / plain:.2f} µs a row)"
            )


if __name__ == "__main__":
    main()
