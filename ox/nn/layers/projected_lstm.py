"""An LSTM layer whose states are projected to a smaller size, step by step: ONNX's operator has no projection."""

from __future__ import annotations

from typing import Any

from ox import ops
from ox.core.constants import constant, ints, zeros
from ox.core.symbolic import size_tensor
from ox.ops.recurrent.time_loop import over_time
from ox.tensors.tensor import Tensor


def projected_lstm(
    x: Tensor, weights: list[Any], lens: Tensor | None, states: list[Any], *, bias: bool
) -> list[Tensor]:
    """Y [T, directions, N, P], the last states and the last cells, from x [T, N, I] and each direction's weights."""
    alive = None
    if lens is not None:
        steps = ops.Range(
            ops.Cast(constant(0, x), to=6), ops.Squeeze(ops.Cast(size_tensor([x.shape[0]]), to=6), ints(0)),
            ops.Cast(constant(1, x), to=6),
        )  # fmt: skip
        alive = ops.Less(ops.Unsqueeze(steps, ints(1, 2)), ops.Unsqueeze(lens, ints(0, 2)))
    made = []
    for d, own in enumerate(weights):
        w, r, *rest = own
        *biases, p = rest
        sums = ops.MatMul(x, ops.Transpose(w))
        if bias:
            sums = sums + (biases[0] + biases[1])
        first = [
            zeros([x.shape[1], size], x) if s is None else ops.Gather(s, ops.Squeeze(ints(d), ints(0)), axis=0)
            for s, size in zip(states, (p.static_shape[0], p.static_shape[1]), strict=True)
        ]
        made.append(_direction(sums, ops.Transpose(r), ops.Transpose(p), first, alive, d == 1))
    axes = (1, 0, 0)
    return [
        ops.Concat(*(ops.Unsqueeze(part, ints(axis)) for part in parts), axis=axis)
        for axis, parts in zip(axes, zip(*made, strict=True), strict=True)
    ]


def _direction(
    sums: Tensor, r: Tensor, p: Tensor, first: list[Tensor], alive: Tensor | None, reverse: bool
) -> tuple[Tensor, Tensor, Tensor]:
    def step(states: list[Any], slices: list[Any]) -> Any:
        h, c = states
        i, f, g, o = ops.Split(ops.Add(slices[0], ops.MatMul(h, r)), axis=-1, num_outputs=4, outputs=4)
        cell = ops.Add(ops.Mul(ops.Sigmoid(f), c), ops.Mul(ops.Sigmoid(i), ops.Tanh(g)))
        state = ops.MatMul(ops.Mul(ops.Sigmoid(o), ops.Tanh(cell)), p)
        shown = state
        if alive is not None:
            shown = ops.Where(slices[1], state, constant(0, state))
            state, cell = ops.Where(slices[1], state, h), ops.Where(slices[1], cell, c)
        return [state, cell], [shown]

    (h, c), (y,) = over_time(step, first, [sums] if alive is None else [sums, alive], reverse)
    return y, h, c
