"""NumPy kernels against one-node ONNX Runtime sessions, float32: the sizes of `ox.devices.onnxruntime.dispatch_table`.

Each side runs alone in its process, for the threads of the two libraries slow each other.

    python benchmarks/bench_executors.py            # all operators
    ONLY=Gelu,Conv python benchmarks/bench_executors.py
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import sides

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

R = np.random.default_rng(0)
SIZES = (256, 4096, 65536, 1 << 20)
Call = tuple[str, list[Any], dict[str, Any]]


def f(*shape: int) -> np.ndarray[Any, Any]:
    return np.asarray(R.random(shape, dtype=np.float32) + np.float32(0.1))


def calls() -> Iterator[tuple[str, Call]]:
    """Label, and operator with inputs and attributes."""
    for name in ("Add", "Mul", "Div", "Max", "Pow", "Greater"):
        for n in SIZES:
            yield f"{name} {n}", (name, [f(n), f(n)], {})
    for n in SIZES:
        yield f"Add row {n}", ("Add", [f(n // 64, 64), f(64)], {})
        yield f"Mul scalar {n}", ("Mul", [f(n // 64, 64), f()], {})
        yield f"Where {n}", ("Where", [f(n) > 0.6, f(n), f(n)], {})
        yield f"Clip {n}", ("Clip", [f(n), np.array(0.2, "f"), np.array(0.5, "f")], {})
        yield f"Cast to float16 {n}", ("Cast", [f(n)], {"to": 10})
    for name in ("Neg", "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Relu", "Gelu"):
        for n in SIZES:
            yield f"{name} {n}", (name, [f(n)], {})
    for name in ("Softmax", "LogSoftmax"):
        for n in SIZES:
            yield f"{name} {n}", (name, [f(n // 64, 64)], {"axis": -1})
    for n in SIZES:
        yield f"LayerNormalization {n}", ("LayerNormalization", [f(n // 64, 64), f(64), f(64)], {})
        yield f"BatchNormalization {n}", ("BatchNormalization", [f(n // 64, 4, 4, 4), *[f(4) for _ in range(4)]], {})
        yield f"GlobalAveragePool {n}", ("GlobalAveragePool", [f(n // 64, 4, 4, 4)], {})
        yield f"MaxPool {n}", ("MaxPool", [f(n // 256, 4, 8, 8)], {"kernel_shape": [2, 2], "strides": [2, 2]})
        yield f"MaxPool k3 s2 {n}", ("MaxPool", [f(n // 256, 4, 8, 8)], {"kernel_shape": [3, 3], "strides": [2, 2]})
        yield f"AveragePool {n}", ("AveragePool", [f(n // 256, 4, 8, 8)], {"kernel_shape": [2, 2], "strides": [2, 2]})
        yield f"Conv 4-8 k3 {n}", ("Conv", [f(n // 256, 4, 8, 8), f(8, 4, 3, 3)], {"pads": [1, 1, 1, 1]})
        yield f"ConvTranspose 4-8 k3 {n}", ("ConvTranspose", [f(n // 256, 4, 8, 8), f(4, 8, 3, 3)], {})
        yield f"Gather rows {n}", ("Gather", [f(50, 64), R.integers(0, 50, n // 64)], {})
        yield (
            f"ScatterElements {n}",
            (
                "ScatterElements",
                [f(64, 50), np.repeat(R.integers(0, 50, (1, n // 64)), 64, 0), f(64, n // 64)],
                {"axis": 1, "reduction": "add"},
            ),
        )
        for name in ("ReduceSum", "ReduceMean", "ReduceMax"):
            yield f"{name} last {n}", (name, [f(n // 64, 64), np.array([1])], {})
            yield f"{name} first {n}", (name, [f(n // 64, 64), np.array([0])], {})
    for m, k, n in ((16, 16, 16), (64, 64, 64), (128, 128, 128), (64, 784, 512), (1024, 256, 1024), (4096, 768, 768)):
        yield f"MatMul {m}x{k}x{n}", ("MatMul", [f(m, k), f(k, n)], {})
        yield f"MatMul {m}x{k}x{n} B turned", ("MatMul", [f(m, k), f(n, k).T], {})
    yield "Conv 64-64 k3 32x32 batch 64", ("Conv", [f(64, 64, 32, 32), f(64, 64, 3, 3)], {"pads": [1, 1, 1, 1]})


def best(run: Callable[[], Any]) -> float:
    """Microseconds of the fastest of several blocks."""
    run()
    start = time.perf_counter()
    run()
    count = max(1, int(0.01 / max(time.perf_counter() - start, 1e-7)))
    fastest = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(count):
            run()
        fastest = min(fastest, (time.perf_counter() - start) / count)
    return fastest * 1e6


def measure(executor: str) -> dict[str, float]:
    import ox.ops  # noqa: F401 (defines the operators)
    from ox.core.operator import OPS
    from ox.devices.onnxruntime import dispatch_table

    only = [name for name in os.environ.get("ONLY", "").split(",") if name]
    figures = {}
    for label, (name, arrays, attributes) in calls():
        op = OPS.get(name)
        if op is None or (only and name not in only):
            continue
        if op.takes_output_count:
            attributes["outputs"] = 1
        # the way a call goes when the size is right; not through the Tensor, which costs both the same
        run = (
            partial(op.kernel, np)
            if executor == "numpy"
            else dispatch_table.ALLOWED.get(name, (None, None, dispatch_table.run))[2]
        )
        if executor == "numpy":
            figures[label] = best(lambda run=run, a=arrays, k=attributes: run(*a, **k))
        else:
            figures[label] = best(lambda run=run, o=op, a=arrays, k=attributes: run(o, a, k))
    return figures


if __name__ == "__main__":
    sides.main({"onnxruntime": partial(measure, "onnxruntime"), "numpy": partial(measure, "numpy")}, unit="µs")
