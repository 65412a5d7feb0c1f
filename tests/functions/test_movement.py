"""Moving, joining, cutting and diagonals, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, OxError, ShapeError

A = np.arange(12.0).reshape(3, 4)
K = np.arange(24.0).reshape(2, 3, 4)
V = np.array([3.0, 1.0, 2.0])
COUNTS = np.array([2, 0, 3])

CASES: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda a, k, v: a.roll(2, 1), lambda a, k, v: np.roll(a, 2, 1)),
    (lambda a, k, v: k.roll((1, -5), (0, 2)), lambda a, k, v: np.roll(k, (1, -5), (0, 2))),
    (lambda a, k, v: a.roll(5), lambda a, k, v: np.roll(a, 5)),
    (lambda a, k, v: a.rot90(3), lambda a, k, v: np.rot90(a, 3)),
    (lambda a, k, v: k.rot90(1, (2, 0)), lambda a, k, v: np.rot90(k, 1, (2, 0))),
    (lambda a, k, v: a.fliplr() + a.flipud(), lambda a, k, v: np.fliplr(a) + np.flipud(a)),
    (lambda a, k, v: k.movedim((0, 1), (2, 0)), lambda a, k, v: np.moveaxis(k, (0, 1), (2, 0))),
    (lambda a, k, v: k.swapaxes(0, -1), lambda a, k, v: np.swapaxes(k, 0, -1)),
    (lambda a, k, v: a.tile(2, 1, 3), lambda a, k, v: np.tile(a, (2, 1, 3))),
    (lambda a, k, v: k.tile(2), lambda a, k, v: np.tile(k, 2)),
    (lambda a, k, v: a.repeat_interleave(2, 1), lambda a, k, v: np.repeat(a, 2, 1)),
    (lambda a, k, v: a.repeat_interleave(ox.tensor(COUNTS), 0), lambda a, k, v: np.repeat(a, COUNTS, 0)),
    (lambda a, k, v: a.unfold(1, 2, 1), lambda a, k, v: np.lib.stride_tricks.sliding_window_view(a, 2, 1)),
    (lambda a, k, v: a.diagonal(1), lambda a, k, v: np.diagonal(a, 1)),
    (lambda a, k, v: k.diagonal(-1, 2, 1), lambda a, k, v: np.diagonal(k, -1, 2, 1)),
    (lambda a, k, v: v.diag(-1), lambda a, k, v: np.diag(v, -1)),
    (lambda a, k, v: a.diag(), lambda a, k, v: np.diag(a)),
    (lambda a, k, v: a.diagflat(1), lambda a, k, v: np.diagflat(a, 1)),
    (lambda a, k, v: k.tril(-1) + k.triu(1), lambda a, k, v: np.tril(k, -1) + np.triu(k, 1)),
    (lambda a, k, v: a.trace(), lambda a, k, v: np.trace(a)),
    (lambda a, k, v: ox.hstack([a, a]), lambda a, k, v: np.hstack([a, a])),
    (lambda a, k, v: ox.dstack([v, v]), lambda a, k, v: np.dstack([v, v])),
    (lambda a, k, v: ox.column_stack([v, a]), lambda a, k, v: np.column_stack([v, a])),
    (lambda a, k, v: ox.atleast_3d(a), lambda a, k, v: np.atleast_3d(a)),
    (lambda a, k, v: a.tensor_split(3, 1)[1], lambda a, k, v: np.array_split(a, 3, 1)[1]),
    (lambda a, k, v: a.hsplit([1, 3])[1], lambda a, k, v: np.hsplit(a, [1, 3])[1]),
    (lambda a, k, v: ox.meshgrid(v, a[0], indexing="xy")[1], lambda a, k, v: np.meshgrid(v, a[0])[1]),
    (lambda a, k, v: a.as_strided((2, 3), (1, 4), 2), lambda a, k, v: a.ravel()[[[2, 6, 10], [3, 7, 11]]]),
    (lambda a, k, v: a.as_strided((0, 100), (1, 1)), lambda a, k, v: np.empty((0, 100), a.dtype)),  # reads nothing
    (lambda a, k, v: ox.block_diag(a[:1], v)[1], lambda a, k, v: np.concatenate([np.zeros(4), v])),
    (lambda a, k, v: ox.combinations(v), lambda a, k, v: v[[[0, 1], [0, 2], [1, 2]]]),
    (lambda a, k, v: ox.cartesian_prod(v, a[0, :2])[3], lambda a, k, v: np.array([v[1], a[0, 1]])),
]


@rows("case", range(len(CASES)))
def test_value(case: int) -> None:
    ours, theirs = CASES[case]
    got, expected = ours(*map(ox.tensor, (A, K, V))), theirs(A, K, V)
    assert got.shape == np.shape(expected)
    assert got.tolist() == np.asarray(expected).tolist()


@rows("case", range(len(CASES)))
def test_gradient(case: int) -> None:
    given = [ox.tensor(x, requires_grad=True) for x in (A, K, V)]
    assert ox.autograd.gradcheck(CASES[case][0], given, order=2, elements=3)


def test_triangle_indices() -> None:
    assert ox.tril_indices(3, 4, 1).tolist() == np.stack(np.tril_indices(3, 1, 4)).tolist()
    assert ox.triu_indices(3, 4).tolist() == np.stack(np.triu_indices(3, 0, 4)).tolist()


def test_diag_embed_and_diagonal_are_inverses() -> None:
    for offset in (-2, 0, 1):
        assert ox.diag_embed(ox.tensor(K), offset).diagonal(offset, -2, -1).tolist() == K.tolist()
        x = ox.zeros(5, 4, dtype=ox.float64)
        line = ox.arange(float(x.diagonal(offset).numel())).double() + 1
        assert x.diagonal_scatter(line, offset).diagonal(offset).tolist() == line.tolist()


def test_a_nan_stays_on_its_diagonal() -> None:
    made = ox.tensor([float("nan"), 1.0]).diag()
    assert made.isnan().sum().item() == 1
    assert made[0, 1].item() == 0


def test_diagonal_is_a_view() -> None:
    x = ox.zeros(3, 3)
    x.diagonal().fill_(2.0)
    assert x.trace().item() == 6


@rows(
    "call",
    [
        lambda x: x.roll((1, 2), 0), lambda x: x.tile(-1), lambda x: x.unfold(0, 9, 1), lambda x: x.hsplit(3),
        lambda x: x.movedim(0, (0, 1)), lambda x: ox.meshgrid(x), lambda x: x[0].tril(),
        lambda x: x.diag_embed(0, 1, 1),
        lambda x: x.repeat_interleave(ox.tensor([1, 2])), lambda x: x.as_strided((9,), (9,)), lambda x: ox.vstack([]),
    ],
)  # fmt: skip
def test_refused(call: Callable[..., Any]) -> None:
    with pytest.raises(OxError) as caught:
        call(ox.tensor(A))
    assert isinstance(caught.value, (ArgumentError, ShapeError, IndexError))
    assert "test_movement.py" in str(caught.value)


COPIES = (
    "x.flip(0)", "x.fliplr()", "x.rot90()", "x.rot90(4)", "x.roll(0, 0)", "x.roll(0)", "x.diag()", "x.repeat(1, 1)",
    "x.tile(1)", "x.repeat_interleave(1, 0)", "ox.nn.functional.pad(x, (0, 0))", "ox.nn.functional.pad(x, (-1, 0))",
)  # fmt: skip


@rows("copy", COPIES)
def test_what_is_a_copy_in_pytorch_is_no_view(copy: str) -> None:
    x = ox.tensor(A)
    eval(copy, {"x": x, "ox": ox}).mul_(7)
    assert x.tolist() == A.tolist()
    x.requires_grad_()
    made = eval(copy, {"x": x, "ox": ox})
    made *= 2
    made.sum().backward()
    assert x.grad is not None
    assert x.grad.array.max() == 2
