"""What people write does on "cuda" what it does on the CPU: values, types, gradients. It waits where it has to."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import pytest
from count_table import CountTable
from user_lines import INPUTS, PREPARE, read

import ox

pytestmark = pytest.mark.gpu

TO_THE_HOST = ("cpu()", "numpy(", "tolist()", "item()", "float(", "bool(", "len(", "str(")  # what a line is for
CASES = list(read())


def run(name: str, kind: str, line: str, device: str, counting: AbstractContextManager[None]) -> tuple[Any, list[Any]]:
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


def on_host(value: Any) -> Any:
    return value.detach().cpu().numpy() if isinstance(value, ox.Tensor) else value


def assert_equal(got: Any, wanted: Any) -> None:
    got, wanted = on_host(got), on_host(wanted)
    if not isinstance(wanted, np.ndarray):
        assert type(got) is type(wanted)
        wanted, got = (np.asarray(v) for v in (wanted, got))
        if wanted.dtype.kind == "U":
            return
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    kind = np.complex128 if wanted.dtype.kind == "c" else np.float64
    close = 2e-2 if wanted.dtype.itemsize == 2 else 2e-3
    np.testing.assert_allclose(got.astype(kind), wanted.astype(kind), rtol=close, atol=close)


@pytest.mark.parametrize(("name", "kind", "line"), CASES, ids=[f"{name} {line}" for name, _, line in CASES])
def test_a_line(name: str, kind: str, line: str, count_table: CountTable) -> None:
    wanted, wanted_gradients = run(name, kind, line, "cpu", nullcontext())
    counting = count_table.counting(f"{name}: {line}", ["waits", "to host", "to device"])
    got, gradients = run(name, kind, line, "cuda", counting)
    if isinstance(got, ox.Tensor) and not any(word in line for word in TO_THE_HOST):
        assert got.device.type == "cuda"
    assert_equal(got, wanted)
    for own, theirs in zip(gradients, wanted_gradients, strict=True):
        assert (own is None) == (theirs is None)
        if own is not None:
            assert_equal(own, theirs)
