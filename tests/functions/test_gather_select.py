"""Picking and placing by index and mask, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import BoundsError, DTypeError, ShapeError

R = np.random.default_rng(0)
A = R.normal(size=(3, 4)).astype(np.float32)
B = R.normal(size=(3, 4)).astype(np.float32)
G = R.integers(0, 4, (3, 4))
ROWS = np.array([2, 0, 2])


def written(ufunc: Any, start: Any, key: Any, values: Any) -> Any:
    out = start.copy()
    ufunc.at(out, key, values)
    return out


def placed(key: Any, values: Any, start: Any = A) -> Any:
    out = start.copy()
    out[key] = values
    return out


LINE = np.arange(3)[:, None]

CASES: list[tuple[Callable[..., Any], Any]] = [
    (lambda a, b, g, r: a.gather(1, g), np.take_along_axis(A, G, 1)),
    (lambda a, b, g, r: a.index_select(0, r), A[ROWS]),
    (lambda a, b, g, r: a.take(g - 4), A.ravel()[G - 4]),
    (lambda a, b, g, r: ox.take_along_dim(a, g[:, :1], 1), np.take_along_axis(A, G[:, :1], 1)),
    (lambda a, b, g, r: a.masked_select(a > 0), A[A > 0]),
    (lambda a, b, g, r: (a > 0).nonzero(), np.argwhere(A > 0)),
    (lambda a, b, g, r: ox.where(a > 0)[1], np.nonzero(A > 0)[1]),
    (lambda a, b, g, r: a.select(1, -1), A[:, -1]),
    (lambda a, b, g, r: a.scatter_add(1, g, b), written(np.add, A, (LINE, G), B)),
    (lambda a, b, g, r: a.scatter_reduce(1, g, b, "prod"), written(np.multiply, A, (LINE, G), B)),
    (lambda a, b, g, r: a.scatter_reduce(1, g, b, "amin"), written(np.minimum, A, (LINE, G), B)),
    (lambda a, b, g, r: a.scatter(0, r[:2, None], b[:2, :1]), placed((ROWS[:2], 0), B[:2, 0])),
    (lambda a, b, g, r: a.scatter(0, r[:2, None].expand(2, 3), b[:2, :3]), placed((ROWS[:2], slice(3)), B[:2, :3])),
    (lambda a, b, g, r: a.index_add(0, r, b, alpha=2), written(np.add, A, ROWS, 2 * B)),
    (lambda a, b, g, r: a.index_copy(0, r[:2], b[:2]), placed(ROWS[:2], B[:2])),
    (lambda a, b, g, r: a.index_fill(0, r, 3.0), placed(ROWS, 3)),
    (lambda a, b, g, r: a.index_put((r[:2], r[:2]), b[0, 0]), placed((ROWS[:2], ROWS[:2]), B[0, 0])),
    (lambda a, b, g, r: a.index_put((r, r), b[:, 1], True), written(np.add, A, (ROWS, ROWS), B[:, 1])),
    (lambda a, b, g, r: a.put(r[:2], b[0, :2]), placed(np.unravel_index(ROWS[:2], A.shape), B[0, :2])),
    (lambda a, b, g, r: a.masked_scatter(a > 0, b), placed(A > 0, B.ravel()[: (A > 0).sum()])),
    (lambda a, b, g, r: a.masked_fill(a > 0, 9.0), placed(A > 0, 9)),
    (lambda a, b, g, r: a.select_scatter(b[0], 0, -1), placed(-1, B[0])),
    (lambda a, b, g, r: a.slice_scatter(b[:, :2], 1, 0, 4, 2), placed((slice(None), slice(0, 4, 2)), B[:, :2])),
]


@rows("case", range(len(CASES)))
def test_value(case: int) -> None:
    call, expected = CASES[case]
    got = call(ox.tensor(A), ox.tensor(B), ox.tensor(G), ox.tensor(ROWS))
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6)


@rows("case", range(len(CASES)))
def test_gradient(case: int) -> None:
    """Finite differences of second order, where the result is floating."""
    call, expected = CASES[case]
    if expected.dtype.kind != "f":
        return
    a, b = (ox.tensor(x.astype(np.float64), requires_grad=True) for x in (A, B))
    assert ox.autograd.gradcheck(lambda a, b: call(a, b, ox.tensor(G), ox.tensor(ROWS)), [a, b], order=2, elements=4)


def test_in_place_is_the_same_written() -> None:
    for name, given in {
        "index_add": (0, ox.tensor(ROWS), ox.tensor(B)),
        "scatter_reduce": (1, ox.tensor(G), ox.tensor(B), "amax"),
        "masked_scatter": (ox.tensor(A > 0), ox.tensor(B)),
        "put": (ox.tensor(ROWS), ox.tensor(B[0, :3]), True),
    }.items():
        expected = getattr(ox.tensor(A), name)(*given)
        x = ox.tensor(A)
        assert getattr(x, name + "_")(*given) is x
        assert x.tolist() == expected.tolist()


@rows(
    ("call", "error", "text"),
    [
        (lambda x: x.gather(1, ox.tensor([[4]])), BoundsError, "got      4"),
        (lambda x: x.index_select(0, ox.tensor([-1])), BoundsError, "0 to 2"),
        (lambda x: x.index_add(0, ox.tensor([3]), x[:1]), BoundsError, "size 3"),
        (lambda x: x.index_select(0, ox.tensor([1.0])), DTypeError, "whole numbers"),
        (lambda x: x.masked_select(ox.tensor([1, 0, 1, 1])), DTypeError, "bool"),
        (lambda x: x.masked_select(ox.tensor([True])[:0]), ShapeError, "broadcast"),
        (lambda x: x.index_copy(0, ox.tensor([0]), x), ShapeError, "expected [1, 4]"),
        (lambda x: x.masked_scatter(x > -99, x[0]), ShapeError, "runs out"),
        (lambda x: x.take(ox.tensor([12])), BoundsError, "-12 to 11"),
    ],
)
def test_refused(call: Callable[..., Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call(ox.tensor(A))
    assert text in str(caught.value)
    assert "test_gather_select.py" in str(caught.value)
