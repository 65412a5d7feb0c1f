"""Samples of the functions of linear algebra that have a body."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import Sample, call, single


def _square(*shape: int) -> Any:
    """Matrices that are well conditioned: finite differences of a nearly singular one are too inexact to compare."""
    return 0.25 * single(*shape, shape[-1]) + 2 * np.eye(shape[-1], dtype=np.float32)


def _positive(*shape: int) -> Any:
    x = single(*shape, shape[-1])
    return x @ x.swapaxes(-1, -2) + np.eye(shape[-1], dtype=np.float32)


MORE: dict[str, Callable[[], list[Sample]]] = {}
FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.Solve": lambda: [
        call(_square(3), single(3, 2)),
        call(_square(2, 5), single(2, 5, 1)),
        call(np.float32([[0, 1, 2], [1, 0, 0], [4, 5, 0]]), single(3, 3)),
        call(_square(1), single(1, 1)),
    ],
    "ox.Cholesky": lambda: [call(_positive(4)), call(_positive(2, 3, 3)), call(_positive(1))],
    "ox.LogDet": lambda: [call(_square(4), outputs=2), call(_square(2, 3)[:, ::-1].copy(), outputs=2)],
}
