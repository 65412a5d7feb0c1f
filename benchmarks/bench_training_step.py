"""An eager training step: a 4-layer, 256-wide, 8-head transformer (T = 128, batch 8, Adam) and a 784-512-512-10 MLP
(batch 64, Adam), beside PyTorch eager with its fused Adam. Also the memory that 200 steps of the MLP leave behind."""

from __future__ import annotations

import resource
import statistics
import time
from typing import Any

import sides

LAYERS, WIDTH, HEADS, LENGTH, BATCH = 4, 256, 8, 128, 8


def transformer(nn: Any, functional: Any, layers: int = LAYERS, width: int = WIDTH, heads: int = HEADS) -> Any:
    """The same page for both libraries: their names are the same."""

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.gelu = nn.GELU()

        def forward(self, x: Any) -> Any:
            b, t, c = x.shape
            q, k, v = self.qkv(self.norm1(x)).reshape(b, t, 3, heads, c // heads).permute(2, 0, 3, 1, 4).unbind(0)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(attended.permute(0, 2, 1, 3).reshape(b, t, c))
            return x + self.down(self.gelu(self.up(self.norm2(x))))

    return nn.Sequential(*[Block() for _ in range(layers)], nn.LayerNorm(width), nn.Linear(width, 64))


def _time(step: Any, warm: int, count: int) -> float:
    for _ in range(warm):
        step()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e3


def _figures(lib: Any, functional: Any, adam: Any) -> dict[str, float]:
    nn = lib.nn
    lib.manual_seed(0)

    def make_step(model: Any, x: Any, targets: Any) -> Any:
        optimizer = adam(model.parameters())
        criterion = nn.CrossEntropyLoss()

        def step() -> None:
            optimizer.zero_grad()
            logits = model(x)
            loss = criterion(logits.reshape(-1, logits.shape[-1]), targets)
            loss.backward()
            optimizer.step()

        return step

    tokens = lib.randn(BATCH, LENGTH, WIDTH)
    step = make_step(transformer(nn, functional), tokens, lib.randint(0, 64, (BATCH * LENGTH,)))
    layers = [nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)]
    mlp = make_step(nn.Sequential(*layers), lib.randn(64, 784), lib.randint(0, 10, (64,)))
    figures = {"transformer, ms": _time(step, 3, 12), "mlp, ms": _time(mlp, 20, 100)}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(200):
        mlp()
    figures["peak growth in 200 steps, MiB"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return figures


def run_ox() -> dict[str, float]:
    import ox

    return _figures(ox, ox.nn.functional, lambda p: ox.optim.Adam(p, lr=1e-3))


def run_torch() -> dict[str, float]:
    import torch

    return _figures(torch, torch.nn.functional, lambda p: torch.optim.Adam(p, lr=1e-3, fused=True))


if __name__ == "__main__":
    sides.main({"ox": run_ox, "torch": run_torch}, unit="milliseconds, smaller is better")
