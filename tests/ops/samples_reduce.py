"""Samples of the operators that reduce or run along axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import Sample, call, ints, normal, positive, single


def reductions(values: Callable[..., Any]) -> list[Sample]:
    some = [
        call(values(2, 3, 4), *axes, keepdims=k)
        for axes in ((), (ints(1),), (ints(-1, 0),), (ints(0, 1, 2),))
        for k in (0, 1)
    ]
    return [*some, call(values(2, 3), None, noop_with_empty_axes=1), call(values())]


def zeros_among(*places: int) -> np.ndarray[Any, Any]:
    """[2, 4] with zeros, where the gradient of a product is no quotient."""
    x = normal(2, 4)
    x.flat[list(places)] = 0
    return x


MORE: dict[str, Callable[[], list[Sample]]] = {
    **{
        name: lambda: reductions(normal)
        for name in ("ReduceMin", "ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp")
    },
    "ReduceLogSum": lambda: reductions(positive),
    "ReduceProd": lambda: [
        *reductions(normal),
        *[call(zeros_among(*p), ints(1)) for p in ((1,), (1, 6), (1, 2), (0, 1, 2), (4, 5))],
    ],
    "CumSum": lambda: [call(normal(3, 4), np.array(a), exclusive=e, reverse=r) for a, e, r in _ways],
    "CumProd": lambda: [
        *[call(normal(3, 4), np.array(a), exclusive=e, reverse=r) for a, e, r in _ways],
        *[call(zeros_among(*p), np.array(1), exclusive=e, reverse=r) for p in _zeros for _, e, r in _ways],
        call(normal(3, 0), np.array(1), exclusive=1),
    ],
}
_ways = [(0, 0, 0), (1, 1, 0), (-1, 0, 1), (0, 1, 1)]
_zeros = [(1,), (1, 6), (1, 2), (0, 1, 3), (5, 7)]

FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.CumulativeArgMax": lambda: [
        call(single(3, 4, 5), axis=1),
        call(np.array([1, 3, 3, 2, 3, 0], np.int64), axis=0),
        call(np.array([[2, 1], [2, 5]], np.float32), axis=0),
        call(np.array([[0, 0, 11], [0, 9, 3]], np.uint8), axis=1),
        call(np.array([[-np.inf, 2], [-np.inf, 1]], np.float32), axis=0),
    ],
    "ox.LogCumSumExp": lambda: [call(30 * single(3, 4), axis=a, reverse=r) for a in (0, 1) for r in (0, 1)],
}
