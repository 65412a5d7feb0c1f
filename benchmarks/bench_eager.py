"""Eager training steps and single operators beside PyTorch eager with its fused optimizers.

    python benchmarks/bench_eager.py                   # everything
    python benchmarks/bench_eager.py "step: cnn" gelu  # names that contain one of these words

A third side is ox without its compiled kernels (OX_KERNELS=0).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

import sides
from bench_resnet import resnet18
from bench_training_step import _transformer

Workload = Callable[[Any], Callable[[], Any]]
SECONDS = 1.5  # of measuring, after as much warm-up as a third of it
WORDS = [word for word in sys.argv[1:] if not word.startswith("--")] if "--side" not in sys.argv else []


def _step(lib: Any, model: Any, x: Any, targets: Any, kind: str = "Adam", **options: Any) -> Callable[[], Any]:
    fused = {"fused": True} if lib.__name__ == "torch" else {}
    optimizer = getattr(lib.optim, kind)(model.parameters(), lr=1e-3, **options, **fused)
    criterion = lib.nn.CrossEntropyLoss()

    def step() -> None:
        optimizer.zero_grad()
        logits = model(x)
        criterion(logits.reshape(-1, logits.shape[-1]), targets).backward()
        optimizer.step()

    return step


def mlp(lib: Any, batch: int = 64) -> Callable[[], Any]:
    nn = lib.nn
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    return _step(lib, nn.Sequential(*layers), lib.randn(batch, 784), lib.randint(0, 10, (batch,)))


def transformer(lib: Any) -> Callable[[], Any]:
    model = _transformer(lib.nn, lib.nn.functional)
    return _step(lib, model, lib.randn(8, 128, 256), lib.randint(0, 64, (8 * 128,)))


def cnn(lib: Any) -> Callable[[], Any]:
    nn, layers, inside = lib.nn, [], 3
    for outside in (32, 64, 128):
        layers += [nn.Conv2d(inside, outside, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inside = outside
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(128 * 4 * 4, 10))
    return _step(lib, model, lib.randn(64, 3, 32, 32), lib.randint(0, 10, (64,)))


def resnet(lib: Any) -> Callable[[], Any]:
    model = resnet18(lib.nn, lib.nn.functional)
    x, targets = lib.randn(32, 3, 32, 32), lib.randint(0, 10, (32,))
    return _step(lib, model, x, targets, "SGD", momentum=0.9, weight_decay=5e-4)


def lstm(lib: Any) -> Callable[[], Any]:
    model = lib.nn.LSTM(256, 256, 2)
    x = lib.randn(100, 32, 256)
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-2)

    def step() -> None:
        optimizer.zero_grad()
        y, _ = model(x)
        y.square().mean().backward()
        optimizer.step()

    return step


def through(module: Callable[[Any], Any], *shape: int) -> Workload:
    """Forward and backward of a module on a random input."""

    def workload(lib: Any) -> Callable[[], Any]:
        model = module(lib)
        x = lib.randn(*shape, requires_grad=True)
        g = lib.ones_like(model(x))

        def step() -> None:
            x.grad = None
            model(x).backward(g)

        return step

    return workload


def attention(length: int, causal: bool) -> Workload:
    def workload(lib: Any) -> Callable[[], Any]:
        q, k, v = (lib.randn(1, 4, length, 64, requires_grad=True) for _ in range(3))
        g = lib.ones(1, 4, length, 64)

        def step() -> None:
            q.grad = k.grad = v.grad = None
            lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).backward(g)

        return step

    return workload


def cross_entropy(lib: Any) -> Callable[[], Any]:
    x, targets = lib.randn(8192, 128, requires_grad=True), lib.randint(0, 128, (8192,))

    def step() -> None:
        x.grad = None
        lib.nn.functional.cross_entropy(x, targets).backward()

    return step


IMAGE = (16, 64, 32, 32)
WORKLOADS: dict[str, Workload] = {
    "step: mlp": mlp,
    "step: mlp, batch 1": lambda lib: mlp(lib, 1),
    "step: transformer": transformer,
    "step: cnn": cnn,
    "step: resnet18": resnet,
    "step: lstm": lstm,
    "conv 64 to 64": through(lambda lib: lib.nn.Conv2d(64, 64, 3, padding=1), 64, 64, 32, 32),
    "conv 256 to 256": through(lambda lib: lib.nn.Conv2d(256, 256, 3, padding=1), 32, 256, 8, 8),
    "conv depthwise": through(lambda lib: lib.nn.Conv2d(64, 64, 3, padding=1, groups=64), *IMAGE),
    "conv groups 4": through(lambda lib: lib.nn.Conv2d(64, 64, 3, padding=1, groups=4), *IMAGE),
    "conv transposed": through(lambda lib: lib.nn.ConvTranspose2d(64, 64, 2, 2), *IMAGE),
    "max pool": through(lambda lib: lib.nn.MaxPool2d(2), *IMAGE),
    "batch norm": through(lambda lib: lib.nn.BatchNorm2d(64), *IMAGE),
    "group norm": through(lambda lib: lib.nn.GroupNorm(8, 64), *IMAGE),
    "layer norm": through(lambda lib: lib.nn.LayerNorm(256), 4096, 256),
    "gelu": through(lambda lib: lib.nn.GELU(), 1024, 1024),
    "silu": through(lambda lib: lib.nn.SiLU(), 1024, 1024),
    "softmax": through(lambda lib: lib.nn.Softmax(-1), 8192, 128),
    "cross entropy": cross_entropy,
    "dropout": through(lambda lib: lib.nn.Dropout(0.5), 1024, 1024),
    "embedding": lambda lib: _embedding(lib),
    "attention T 512, causal": attention(512, True),
    "attention T 4096": attention(4096, False),
}


def _embedding(lib: Any) -> Callable[[], Any]:
    model, tokens = lib.nn.Embedding(10_000, 256), lib.randint(0, 10_000, (64, 64))
    g = lib.ones(64, 64, 256)

    def step() -> None:
        model.weight.grad = None
        model(tokens).backward(g)

    return step


def _figures(lib: Any) -> dict[str, float]:
    words = [word for word in os.environ.get("WORKLOADS", "").split("|") if word]
    figures = {}
    for name, workload in WORKLOADS.items():
        if words and not any(word in name for word in words):
            continue
        lib.manual_seed(0)
        step = workload(lib)
        times: list[float] = []
        warm = time.perf_counter() + SECONDS / 3
        while time.perf_counter() < warm or not times:
            step()
            times = times or [0.0]
        times = []
        end = time.perf_counter() + SECONDS
        while time.perf_counter() < end or len(times) < 3:
            start = time.perf_counter()
            step()
            times.append(time.perf_counter() - start)
        times.sort()
        figures[name] = times[len(times) // 2] * 1e3
    return figures


def run_ox() -> dict[str, float]:
    import ox

    return _figures(ox)


def run_torch() -> dict[str, float]:
    import torch

    return _figures(torch)


def run_without() -> dict[str, float]:
    os.environ["OX_KERNELS"] = "0"
    return run_ox()


if __name__ == "__main__":
    if WORDS:
        os.environ["WORKLOADS"] = "|".join(WORDS)
    sides.main({"ox": run_ox, "torch": run_torch, "without": run_without}, unit="milliseconds, smaller is better")
