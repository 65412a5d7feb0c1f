"""The same expression in ox and in PyTorch: values, gradients of first and second order, refusals."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

Names = dict[str, Any]


def split(text: str) -> list[str]:
    """Expressions between semicolons and line ends."""
    return [p.strip() for line in text.strip().splitlines() for p in line.split("; ") if p.strip()]


def names(arrays: Names, side: int) -> Names:
    """Fresh tensors of one side (0 ox, 1 PyTorch) under their names, and T for the package."""
    T: Any = torch if side else ox
    made = {name: T.tensor(a) if isinstance(a, np.ndarray) else a for name, a in arrays.items()}
    return {**made, "T": T, "F": T.nn.functional, "nn": T.nn}


def run(expression: str, arrays: Names, side: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return eval(expression, names(arrays, side))


def assert_same(got: Any, expected: Any, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, ox.Tensor), type(got)
        assert tuple(got.shape) == tuple(expected.shape)
        assert str(got.dtype) == str(expected.dtype).removeprefix("torch.")
        wide = got.dtype == ox.float16
        np.testing.assert_allclose(
            got.detach().numpy().astype(np.float64),
            expected.detach().double().numpy(force=True),
            rtol=2e-3 if wide else rtol,
            atol=2e-3 if wide else atol,
        )
    elif isinstance(expected, (tuple, list)):
        assert isinstance(got, (tuple, list))
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b, rtol, atol)
    else:
        assert got == expected


def check_value(expression: str, arrays: Names, rtol: float = 2e-6, atol: float = 1e-6) -> None:
    assert_same(run(expression, arrays, 0), run(expression, arrays, 1), rtol, atol)


def check_gradient(expression: str, arrays: Names, followed: Iterable[str], second: bool = True) -> None:
    """The cotangents of the followed float64 arrays, and those of a sum of their squares."""
    found = []
    followed = list(followed)
    for side in (0, 1):
        own = names(arrays, side)
        for name in followed:
            own[name].requires_grad_()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = eval(expression, own)
        outs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if o.requires_grad]
        T = own["T"]
        total = sum((o * weights(T, o)).sum() for o in outs)
        leaves = [own[name] for name in followed]
        first = T.autograd.grad(total, leaves, create_graph=second, allow_unused=True)
        found.append([*outs, *[_zero(T, g, x) for g, x in zip(first, leaves, strict=True)]])
        if not second:
            continue
        squares = sum((g * g).sum() for g in first if g is not None)
        if squares.requires_grad:
            again = T.autograd.grad(squares, leaves, allow_unused=True)
        else:
            again = [None] * len(leaves)
        found[-1] += [_zero(T, g, x) for g, x in zip(again, leaves, strict=True)]
    assert_same(*found, 1e-6, 1e-8)


def weights(T: Any, out: Any) -> Any:
    return T.tensor(np.cos(np.arange(int(np.prod(out.shape, dtype=int)))).reshape(tuple(out.shape)))


def _zero(T: Any, g: Any, x: Any) -> Any:
    return T.zeros_like(x) if g is None else g


def check_error(expression: str, arrays: Names) -> None:
    """Where PyTorch refuses, ox refuses in its own words."""
    with pytest.raises(Exception):  # noqa: B017 (whatever PyTorch raises)
        run(expression, arrays, 1)
    with pytest.raises(ox.OxError):
        run(expression, arrays, 0)
