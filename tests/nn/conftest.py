"""Parity with PyTorch: the same weights, the same inputs, the same outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox.tolerance import compare


def same(got: Any, expected: Any, what: str = "") -> None:
    """Within the tolerance table, or shapes and types are named."""
    got, expected = np.asarray(got.array if hasattr(got, "node") else got), np.asarray(expected.detach())
    assert got.shape == expected.shape, f"{what}: {got.shape} for {expected.shape}"
    difference = compare(got, expected)
    assert difference.ok, f"{what}: {difference}"


@pytest.fixture
def parity() -> Callable[..., None]:
    """``parity(ours, theirs, *arrays)``: two modules (state is copied from theirs) or functions on the same inputs.

    Forward, the gradients of floating inputs and of parameters, and buffers afterwards are compared.
    """
    torch = pytest.importorskip("torch")

    def check(ours: Any, theirs: Any, *arrays: Any, **kwargs: Any) -> None:
        is_module = isinstance(ours, ox.nn.Module)
        if is_module:
            ours.load_state_dict({k: v.numpy().copy() for k, v in theirs.state_dict().items()})
            ours.zero_grad()
            theirs.zero_grad()
        mine, yours = [], []
        for a in arrays:
            floating = isinstance(a, np.ndarray) and a.dtype.kind == "f"
            mine.append(ox.tensor(a.copy()).requires_grad_(floating) if isinstance(a, np.ndarray) else a)
            yours.append(torch.tensor(a).requires_grad_(floating) if isinstance(a, np.ndarray) else a)
        ours_kw = {k: ox.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
        theirs_kw = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}
        got, expected = ours(*mine, **ours_kw), theirs(*yours, **theirs_kw)
        got, expected = (list(x) if isinstance(x, tuple) else [x] for x in (got, expected))
        for i, (y, z) in enumerate(zip(got, expected, strict=True)):
            assert (y is None) == (z is None)
            if z is not None:
                same(y, z, f"output {i}")
        cotangent = (
            np.random.default_rng(1)
            .standard_normal(tuple(expected[0].shape))
            .astype(str(expected[0].dtype).split(".")[1])
        )
        if expected[0].requires_grad:
            got[0].backward(ox.tensor(cotangent))
            expected[0].backward(torch.tensor(cotangent))
        for i, (x, z) in enumerate(zip(mine, yours, strict=True)):
            if getattr(z, "grad", None) is not None:
                same(x.grad, z.grad, f"gradient of input {i}")
        if is_module:
            named = dict(ours.named_parameters())
            for name, p in theirs.named_parameters():
                assert (p.grad is None) == (named[name].grad is None), name
                if p.grad is not None:
                    same(named[name].grad, p.grad, f"gradient of {name}")
            buffers = dict(ours.named_buffers())
            for name, b in theirs.named_buffers():
                same(buffers[name], b, name)

    return check


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
