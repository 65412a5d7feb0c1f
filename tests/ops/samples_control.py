"""Samples of If, Loop and Scan; their branches and bodies are functions of tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sample import Sample, call, ints, normal

import ox


def _product(x: Any, w: Any) -> Any:
    return x * w, (x + w).sum(0)


def _curve(x: Any, w: Any) -> Any:
    return (x + w).sin(), w * x.shape[0]


def _step(i: Any, go: Any, h: Any, w: Any) -> Any:
    return go, (h * w).sin() + i, w * 1.5, (h * h).sum(1)


def _fold(h: Any, k: Any, x: Any, y: Any) -> Any:
    return (h * x + y).tanh(), k + 1, h * y, x + k


_axes: dict[str, Any] = {
    "num_scan_inputs": 2,
    "scan_input_axes": [1, -1],
    "scan_input_directions": [0, 1],
    "scan_output_axes": [1, 0],
    "scan_output_directions": [1, 0],
}

MORE: dict[str, Callable[[], list[Sample]]] = {
    "If": lambda: [
        call(np.array(taken), normal(2, 3), normal(3), then_branch=_product, else_branch=_curve, outputs=2)
        for taken in (True, False)
    ],
    "Loop": lambda: [
        call(np.array(3), None, normal(2, 3), normal(3), body=_step, outputs=3),
        call(np.array(1), np.array(True), normal(2, 3), normal(3), body=_step, outputs=3),
        call(None, np.array(True), normal(3), np.array(0), body=_until, outputs=2),
    ],
    "Scan": lambda: [
        call(normal(3), ints(0), normal(4, 3), normal(4, 3), body=_fold, num_scan_inputs=2, outputs=4),
        call(normal(3), ints(0), normal(3, 4), normal(3, 4), body=_fold, outputs=4, **_axes),
    ],
}


def _until(i: Any, go: Any, h: Any, k: Any) -> Any:
    return k < 2, (h * h).cos() * ox.tensor(2.0, dtype=h.dtype), k + 1
