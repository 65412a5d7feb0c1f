"""The multiplications and additions of a call, for the operators with most of them."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt, prod
from typing import Any

Count = Callable[[list[Any], Any], int]


def _matmul(arrays: list[Any], out: Any) -> int:
    if not arrays[0].ndim:
        return 0
    inner = arrays[0].size // max(prod(arrays[0].shape[:-1]), 1)
    return int(2 * out.size * inner)


def _gemm(arrays: list[Any], out: Any) -> int:
    # either may be transposed: what the two and the result have, without their common size
    return 2 * isqrt(arrays[0].size * arrays[1].size * out.size)


def _linear_gradient(arrays: list[Any], out: Any) -> int:
    return 2 * int(2 * arrays[0].size * arrays[2].shape[1])


def _conv(arrays: list[Any], out: Any) -> int:
    return _windows(arrays[1], out)


def _conv_transpose(arrays: list[Any], out: Any) -> int:
    return _windows(arrays[1], arrays[0])


def _windows(weight: Any, places: Any) -> int:
    return int(2 * places.size * prod(weight.shape[1:])) if weight.ndim > 2 else 0


COUNTS: dict[str, Count] = {
    "MatMul": _matmul,
    "Gemm": _gemm,
    "ox.Linear": _matmul,
    "ox.LinearGradient": _linear_gradient,
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
}


def flops(name: str, arrays: list[Any], result: Any) -> int:
    """Two for each product that is added up; 0 for operators that are not in `COUNTS`."""
    count = COUNTS.get(name) or COUNTS.get(f"ox.{name}")
    return 0 if count is None else count(arrays, result[0] if isinstance(result, tuple) else result)
