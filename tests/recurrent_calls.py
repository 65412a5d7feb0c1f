"""Calls of RNN, GRU and LSTM over time, forward and backward, to be compared between executors and devices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np

from ox.core.operator import OPS
from ox.tensors.tensor import make_tensor
from ox.tolerance import compare

Arrays = list[Any]
KINDS = {"RNN": 1, "GRU": 3, "LSTM": 4}
SIZES = ((6, 5, 7, 9), (4, 19, 30, 70), (5, 1, 3, 32))  # steps, samples, inputs, units
DIRECTIONS = ("forward", "reverse", "bidirectional")
R = np.random.default_rng(0)


def f(*shape: int) -> Any:
    return (0.4 * R.standard_normal(shape)).astype(np.float32)


def inputs_of(kind: str, sizes: tuple[int, ...], direction: str, *, ended: bool, layout: int = 0) -> Arrays:
    """X W R B sequence_lens initial_h and, for an LSTM, initial_c."""
    (T, N, size, H), d, k = sizes, 2 if direction == "bidirectional" else 1, KINDS[kind]
    lengths = R.integers(0, T + 1, N).astype(np.int32) if ended else None
    states = [f(*((N, d, H) if layout else (d, N, H))) for _ in range(2 if kind == "LSTM" else 1)]
    x = f(N, T, size) if layout else f(T, N, size)
    return [x, f(d, k * H, size), f(d, k * H, H), f(d, 2 * k * H), lengths, *states]


def settings_of(kind: str, direction: str, layout: int = 0, **more: Any) -> dict[str, Any]:
    return {"direction": direction, "layout": layout, **({"linear_before_reset": 1} if kind == "GRU" else {}), **more}


def arrays_of(result: Any) -> Arrays:
    return [y.array for y in (result if isinstance(result, tuple) else (result,))]


def on_host(a: Any) -> Any:
    return a


def forward(kind: str, inputs: Arrays, settings: dict[str, Any]) -> Arrays:
    """What the operator gives, with the gates where there are some."""
    name, count = {"RNN": ("RNN", 2), "GRU": ("ox.GRUGates", 3), "LSTM": ("ox.LSTMGates", 5)}[kind]
    return arrays_of(OPS[name](*inputs, outputs=count, **settings))


def backward(kind: str, inputs: Arrays, made: Arrays, cotangents: Arrays, settings: dict[str, Any]) -> Arrays:
    lstm = kind == "LSTM"
    states = [make_tensor(a) for a in (made[0], *made[3 if lstm else 2 :])]
    given = [*inputs, *([None] if lstm else []), *cotangents, *states]
    return arrays_of(OPS[f"ox.{kind}Gradient"](*given, outputs=6 if lstm else 5, **settings))


def both(kind: str, inputs: Arrays, settings: dict[str, Any], put: Callable[[Any], Any] = on_host) -> Arrays:
    """Outputs and gradients, from the same cotangents every time.

    Args:
        inputs: arrays of the host.
        put: makes what the operators get of such an array.
    """
    dtype, inputs = inputs[0].dtype, [None if a is None else put(a) for a in inputs]
    made = forward(kind, inputs, settings)
    draw = np.random.default_rng(1)
    wanted = made[: 3 if kind == "LSTM" else 2]
    cotangents = [put(draw.standard_normal(y.shape).astype(dtype)) for y in wanted]
    return [*made, *backward(kind, inputs, made, cotangents, settings)]


CALLS = [
    *product(KINDS, SIZES, DIRECTIONS, (False, True)),
    *[(f"RNN {function}", SIZES[1], "bidirectional", True) for function in ("Relu", "Sigmoid")],
]


def call_of(kind: str, sizes: tuple[int, ...], direction: str, ended: bool) -> tuple[str, Arrays, dict[str, Any]]:
    kind, _, function = kind.partition(" ")
    more: dict[str, Any] = {"activations": [function] * 2} if function else {}
    return kind, inputs_of(kind, sizes, direction, ended=ended), settings_of(kind, direction, **more)


def assert_close(got: Arrays, expected: Arrays) -> None:
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert compare(a, b).ok, f"output {i}: {compare(a, b)}"
