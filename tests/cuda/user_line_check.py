"""Runs a line of user_lines.txt on the CPU and on a GPU, and compares values, types and gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from user_lines import INPUTS, PREPARE

import ox

COUNTERS = ["waits", "to host", "to device"]
TO_THE_HOST = ("cpu()", "numpy(", "tolist()", "item()", "float(", "bool(", "len(", "str(")  # what a line is for


def check(name: str, kind: str, line: str, counting: AbstractContextManager[Any]) -> None:
    """`counting` counts what the GPU is asked to do.

    Raises:
        AssertionError: the GPU gives something else than the CPU.
    """
    wanted, wanted_gradients = _run(name, kind, line, "cpu", nullcontext())
    _run(name, kind, line, "cuda", nullcontext())  # so that constants which a process uploads once are there
    got, gradients = _run(name, kind, line, "cuda", counting)
    if isinstance(got, ox.Tensor) and not any(word in line for word in TO_THE_HOST):
        assert got.device.type == "cuda", f"the result is on {got.device}"
    _assert_equal(got, wanted)
    for own, theirs in zip(gradients, wanted_gradients, strict=True):
        assert (own is None) == (theirs is None), f"a gradient is {own}, that of the CPU {theirs}"
        if own is not None:
            _assert_equal(own, theirs)


def _run(name: str, kind: str, line: str, device: str, counting: AbstractContextManager[Any]) -> tuple[Any, list[Any]]:
    """The result, and the gradients of the input and of a layer's parameters."""
    ox.manual_seed(0)
    x = ox.tensor(INPUTS[kind]).to(device)
    x.requires_grad_(x.is_floating_point())
    do, parameters = PREPARE[name](line, x)
    with counting:
        result = do()
        result = result[0] if isinstance(result, tuple) else result
        if isinstance(result, ox.Tensor) and result.requires_grad and result.is_floating_point():
            result.square().sum().backward()
    return result, [leaf.grad for leaf in (x, *parameters)]


def _on_host(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, ox.Tensor) else value


def _assert_equal(got: Any, wanted: Any) -> None:
    got, wanted = _on_host(got), _on_host(wanted)
    if not isinstance(wanted, np.ndarray):
        assert type(got) is type(wanted), f"{type(got)}, on the CPU {type(wanted)}"
        wanted, got = (np.asarray(v) for v in (wanted, got))
        if wanted.dtype.kind == "U":
            return
    found, expected = (got.dtype, got.shape), (wanted.dtype, wanted.shape)
    assert found == expected, f"{found}, on the CPU {expected}"
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    close = 2e-2 if wanted.dtype.itemsize == 2 else 2e-3
    np.testing.assert_allclose(got.astype(kind), wanted.astype(kind), rtol=close, atol=close)
