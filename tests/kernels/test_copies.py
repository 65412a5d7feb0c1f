"""Copies in another order, choices by a mask, sums and extremes: as NumPy, to the bit where nothing is added."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.core.operator import OPS, make_tensor
from ox.devices.cpu_kernels import copy as compiled_copy
from ox.devices.cpu_kernels.row_major import row_major
from ox.errors import ShapeError
from ox.kernels import Library

R = np.random.default_rng(0)
ODD = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40], np.float32)


def f(*shape: int) -> Any:
    made = R.standard_normal(shape).astype(np.float32)
    made.reshape(-1)[: len(ODD)] = ODD
    return made


def assert_bits(a: Any, b: Any) -> None:
    assert a.shape == b.shape and a.dtype == b.dtype
    np.testing.assert_array_equal(a.view(np.uint32), np.ascontiguousarray(b).view(np.uint32))


VIEWS = {
    "a matrix": lambda: f(100, 70).T,
    "with borders": lambda: f(33, 257).T,
    "heads": lambda: f(3, 20, 4, 32).transpose(0, 2, 1, 3),
    "heads of keys": lambda: f(3, 40, 4, 16).transpose(0, 2, 3, 1),
    "channels last": lambda: f(2, 10, 20, 17).transpose(0, 2, 3, 1),
    "cut": lambda: f(90, 120)[5:80, 10:110].T,
    "a step of two": lambda: f(90, 240)[:, ::2].T,
    "an axis of one": lambda: f(90, 1, 120).transpose(2, 1, 0),
    "repeated": lambda: np.broadcast_to(f(90, 1), (90, 100)).T,
    "reversed": lambda: f(90, 100)[::-1].T,
    "doubles": lambda: f(90, 100).astype(np.float64).T,
    **{f"order {p}": lambda p=p: f(9, 10, 8, 11).transpose(p) for p in permutations(range(4)) if p != (0, 1, 2, 3)},
}


@rows("name", VIEWS)
def test_a_row_major_copy(name: str, library: Library) -> None:
    view = VIEWS[name]()
    before = view.copy()
    made = row_major(view)
    assert made.flags.c_contiguous and not np.shares_memory(made, view)
    np.testing.assert_array_equal(made, before)
    if view.dtype == np.float32:
        assert_bits(made, view)


@rows("name", ["a matrix", "with borders", "heads", "channels last", "cut", "an axis of one"])
def test_the_kernel_copies_it(name: str, library: Library) -> None:
    view = VIEWS[name]()
    found = []
    for threads in (1, 2, 3):
        library.set_threads(threads)
        found.append(compiled_copy.contiguous(library, view))
    for made in found:
        assert made is not None
        assert_bits(made, view)


def test_contiguous_and_its_gradient(library: Library) -> None:
    x = ox.tensor(f(90, 80)[:, 8:], requires_grad=True)
    y = x.t().contiguous()
    assert y.is_contiguous() and not np.shares_memory(y.array, x.array)
    cotangent = ox.tensor(R.standard_normal(y.shape).astype(np.float32))
    y.backward(cotangent)
    np.testing.assert_array_equal(x.grad.array, cotangent.array.T)


def test_choices_and_triangles_have_the_bits(library: Library) -> None:
    x, y, mask = f(64, 65), f(64, 65).T.copy().T, R.random((64, 65)) > 0.5
    for value in ODD:
        number = np.array(value)
        assert_bits(OPS["Where"](mask, number, x).array, np.where(mask, number, x))
        assert_bits(OPS["Where"](mask, x, number).array, np.where(mask, x, number))
    assert_bits(OPS["Where"](mask, x, y).array, np.where(mask, x, y))
    assert_bits(OPS["Trilu"](x, np.array(1), upper=0).array, np.tril(x, 1))
    whole = np.ones((64, 65), bool)
    np.testing.assert_array_equal(OPS["Trilu"](whole, upper=1).array, np.triu(whole))


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin"])
def test_extremes_with_nan_and_infinities(name: str, library: Library) -> None:
    expected: Any = np.max if name == "ReduceMax" else np.min
    for columns in (3, 40, 64, 130, 70_000):
        x = R.standard_normal((20_000 // columns + 2, columns)).astype(np.float32)
        x[0], x[1] = -np.inf, np.inf
        for odd in (None, np.nan, np.inf, -np.inf):
            if odd is not None:
                x[-1, columns // 2] = x[-1, -1] = odd
            got = OPS[name](x, np.array([1]), keepdims=0).array
            np.testing.assert_array_equal(got, expected(x, axis=1))


@rows("size", [8191, 1_000_003])
@rows("scale", [1.0, 1e4])
def test_a_sum_is_as_exact_as_numpys(size: int, scale: float, library: Library) -> None:
    """Of numbers of one sign, whose rounding would add up, and of both."""
    for shift in (0.0, scale):
        x = (scale * R.standard_normal(size) + shift).astype(np.float32)
        exact = x.astype(np.float64).sum()
        bound = 4 * np.finfo(np.float32).eps * np.abs(x).astype(np.float64).sum()
        assert abs(float(OPS["ReduceSum"](x, keepdims=0).array) - exact) <= bound
        assert abs(float(OPS["ReduceMean"](x, keepdims=0).array) - exact / size) <= bound / size
        images = x[: size // 60 * 60].reshape(-1, 3, 20)
        got = OPS["ReduceSum"](images, np.array([0, 2]), keepdims=0).array
        np.testing.assert_allclose(got, images.astype(np.float64).sum(axis=(0, 2)), rtol=0, atol=8 * bound / 3)


@pytest.mark.parametrize("name", ["ReduceMax", "ReduceMin", "ReduceSum"])
def test_an_axis_twice_is_an_error(name: str) -> None:
    with pytest.raises(ShapeError):
        OPS[name](make_tensor(np.ones((20, 30, 40), np.float32)), make_tensor(np.array([-1, 2])))


def test_ranges() -> None:
    for given in ((0, 10, 1), (3, 40, 4), (40, 3, -4), (5, 5, 1), (-7, 7, 2)):
        for dtype in (np.int32, np.int64, np.float32, np.float64):
            numbers = [np.array(n, dtype) for n in given]
            made = OPS["Range"](*numbers).array
            assert made.dtype == dtype
            np.testing.assert_array_equal(made, np.arange(*given, dtype=dtype))
