"""A training step of a small transformer in float32, under bfloat16 autocast, and under float16 autocast with a scaler.

Neither side has a faster lower type on every CPU: PyTorch has it where the CPU has bfloat16 instructions (AVX-512 BF16
or AMX); ox computes in float32 and rounds, so its figure shows what the rounding costs. The gain is on a GPU.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import sides

BATCH, LENGTH, WIDTH, HEADS, LAYERS, WORDS = 8, 128, 256, 4, 2, 512


def _figures(T: Any, scaler_of: Any) -> dict[str, float]:
    nn = T.nn
    warnings.simplefilter("ignore")
    T.manual_seed(0)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(WORDS, WIDTH), nn.TransformerEncoder(layer, LAYERS), nn.Linear(WIDTH, WORDS))
    optimizer = T.optim.AdamW(model.parameters(), lr=1e-4)
    x, y = T.randint(0, WORDS, (BATCH, LENGTH)), T.randint(0, WORDS, (BATCH * LENGTH,))

    def step(dtype: Any, scaler: Any) -> None:
        optimizer.zero_grad()
        with T.autocast("cpu", dtype=dtype or T.bfloat16, enabled=dtype is not None):
            loss = nn.functional.cross_entropy(model(x).reshape(-1, WORDS), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    def best(dtype: Any, scaled: bool) -> float:
        scaler = scaler_of("cpu", enabled=scaled)
        times = []
        for _ in range(8):
            start = time.perf_counter()
            step(dtype, scaler)
            times.append(time.perf_counter() - start)
        return 1e3 * min(times[2:])

    return {"float32": best(None, False), "bfloat16": best(T.bfloat16, False), "float16": best(T.float16, True)}


def run_ox() -> dict[str, float]:
    import ox

    return _figures(ox, ox.GradScaler)


def run_torch() -> dict[str, float]:
    import torch

    return _figures(torch, torch.amp.GradScaler)


if __name__ == "__main__":
    sides.main({"ox": run_ox, "torch": run_torch}, unit="ms a step")
