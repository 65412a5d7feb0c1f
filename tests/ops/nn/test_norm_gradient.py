"""Gradients of LayerNormalization and RMSNormalization: of halves, and of weights that are broadcast."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.core.operator import OPS
from ox.tolerance import compare

HALVES = [ox.float16, ox.bfloat16]
NORMS = ["LayerNormalization", "RMSNormalization"]


def inputs(name: str, shapes: list[tuple[int, ...]], dtype: Any) -> list[Any]:
    draw = np.random.default_rng(0).standard_normal
    arrays = [draw(shape) + 0.5 for shape in shapes[: 3 if name == "LayerNormalization" else 2]]
    return [ox.tensor(a.astype(np.float32)).to(dtype).requires_grad_() for a in arrays]


def gradients(name: str, given: list[Any]) -> list[Any]:
    y: Any = OPS[name](*given, axis=1)
    return list(ox.autograd.grad((y * ox.arange(y.numel()).reshape(y.shape).to(y.dtype) / y.numel()).sum(), given))


@rows("name", NORMS)
@rows("dtype", [ox.float32, ox.float64, *HALVES], ids=str)
@rows("shape", [(1, 1), (1, 7), (5, 1), (7,), (1,)])
def test_of_weights_that_are_broadcast(shape: tuple[int, ...], dtype: Any, name: str) -> None:
    given = inputs(name, [(3, 5, 7), shape, shape], dtype)
    whole = [given[0], *[x.detach().expand(5, 7).clone().requires_grad_() for x in given[1:]]]
    found, wanted = gradients(name, given), gradients(name, whole)
    assert [g.shape for g in found] == [x.shape for x in given] and {g.dtype for g in found} == {dtype}
    summed: Any = [wanted[0].double()]
    for g in wanted[1:]:
        g = g.double()
        axes = [i for i, size in enumerate((1,) * (2 - len(shape)) + shape) if size == 1]
        summed.append((g.sum(axes, keepdim=True) if axes else g).reshape(shape))
    for a, b in zip(found, summed, strict=True):
        assert compare(a.numpy(), b.to(dtype).numpy()).ok


@rows("name", NORMS)
@rows("dtype", HALVES, ids=str)
def test_of_halves_are_computed_in_float32(dtype: Any, name: str) -> None:
    """Sums of 4,096 rows, which would stop at 2,048 or 256 in halves, are those of float32, rounded."""
    given = inputs(name, [(4096, 6), (6,), (6,)], dtype)
    wide = [x.detach().float().requires_grad_() for x in given]

    def all_gradients(inputs: list[Any]) -> list[Any]:
        y: Any = OPS[name](*inputs)
        return list(ox.autograd.grad(y, inputs, ox.ones_like(y)))

    for a, b in zip(all_gradients(given), all_gradients(wide), strict=True):
        assert a.dtype == dtype
        np.testing.assert_array_equal(a.float().numpy(), b.to(dtype).float().numpy())


@pytest.mark.parametrize("name", NORMS)
def test_second_gradients_of_halves(name: str) -> None:
    def second(given: list[Any]) -> list[Any]:
        y: Any = OPS[name](*given)
        (slope,) = ox.autograd.grad((y * y * y).sum(), given[0], create_graph=True)
        return list(ox.autograd.grad((slope * slope).sum(), given[:2]))

    given = inputs(name, [(3, 5), (5,), (5,)], ox.float16)
    wide = [x.detach().double().requires_grad_() for x in given]
    for a, b in zip(second(given), second(wide), strict=True):
        np.testing.assert_allclose(a.double().numpy(), b.numpy(), rtol=0.03, atol=0.03 * np.abs(b.numpy()).max())
