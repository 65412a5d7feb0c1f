"""Work on a GPU against the same on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import ox


def random(*shape: int, dtype: Any = ox.float32, seed: int = 0) -> Any:
    return ox.tensor(np.random.default_rng(seed).standard_normal(shape).astype(np.float32)).to(dtype)


def compare(work: Callable[..., Any], *inputs: Any, tolerance: float | None = None) -> None:
    """Results and gradients on the GPU and on the CPU."""
    found = []
    for device in ("cuda", "cpu"):
        own = [x.detach().to(device).requires_grad_(x.dtype.kind != "i" and x.dtype != ox.bool) for x in inputs]
        made = work(*own)
        factors = (ox.arange(made.numel(), device=device) + 1) / made.numel()
        loss = (made * factors.reshape(made.shape).to(made.dtype)).sum()
        loss.backward()
        assert made.device.type == device
        found.append([made, *[x.grad for x in own if x.grad is not None]])
    for a, b in zip(*found, strict=True):
        assert a.dtype == b.dtype
        allowed = tolerance or {ox.float32: 2e-5, ox.float64: 1e-9, ox.float16: 1e-2}.get(a.dtype, 6e-2)
        a, b = a.detach().cpu().double().numpy(), b.detach().double().numpy()
        np.testing.assert_allclose(a, b, rtol=allowed, atol=allowed * max(1.0, np.abs(b).max()))
