"""A whole call of RNN, GRU or LSTM in other operators: its directions, layouts and lengths around `recurrent_cells`."""

from typing import Any

from ox.core.constants import axes_tensor
from ox.core.operator import OPS
from ox.core.tensor import TensorBase
from ox.ops.recurrent.arguments import Call
from ox.ops.recurrent.cells import BACKWARD, FORWARD, GATES
from ox.ops.recurrent.steps import Direction, part

Tensors = dict[str, Any]  # the inputs by name, None where left out


def stacked(parts: list[TensorBase], axis: int) -> TensorBase:
    """Joined along a new axis."""
    parts = [OPS["Unsqueeze"](x, axes_tensor([axis])) for x in parts]
    return parts[0] if len(parts) == 1 else OPS["Concat"](*parts, axis=axis)


def forward(this: Call, tensors: Tensors) -> tuple[TensorBase, ...]:
    """Y, Y_h and for LSTM Y_c."""
    directions = [Direction(this, d, tensors) for d in range(len(this.reverse))]
    made = [(d, *FORWARD[this.kind](d)) for d in directions]
    Y = stacked([d.mask_ended(y) for d, y, _ in made], 1)
    Y = OPS["Transpose"](Y, perm=[2, 0, 1, 3]) if this.layout else Y
    last = zip(*(states for _, _, states in made), strict=True)
    return (Y, *(stacked(list(states), 1 if this.layout else 0) for states in last))


def gates(this: Call, tensors: Tensors, Y: TensorBase) -> tuple[TensorBase, ...]:
    """The four gates of a GRU or LSTM [directions, T, 4, N, H], for LSTM also the cells [directions, T, N, H]."""
    made, cells = [], []
    for d, y in _of_each(this, Y):
        one = Direction(this, d, tensors)
        *four, last = GATES[this.kind](one, y)
        made.append(stacked([one.mask_ended(x) for x in four], 1))
        cells.append(last)
    return (stacked(made, 0), *([stacked(cells, 0)] if this.kind == "LSTM" else []))


def _of_each(this: Call, Y: TensorBase) -> list[tuple[int, TensorBase]]:
    """Each direction's [T, N, H] of Y or of its cotangent."""
    Y = OPS["Transpose"](Y, perm=[1, 2, 0, 3]) if this.layout else Y
    return [(d, part(Y, d, 1, len(this.reverse))) for d in range(len(this.reverse))]


def gradient(
    this: Call, tensors: Tensors, gY: TensorBase | None, gh: TensorBase | None, gc: TensorBase | None, Y: TensorBase
) -> tuple[TensorBase, ...]:
    """The gradients of W, R, B, the first states, X, and of P where there is one."""
    axis = 1 if this.layout else 0
    cotangents = [(0, None)] * len(this.reverse) if gY is None else _of_each(this, gY)
    made: list[Any] = []
    total: Any = None
    for (d, y), (_, g) in zip(_of_each(this, Y), cotangents, strict=True):
        one = Direction(this, d, tensors)
        last = [one.nothing() if g is None else part(g, d, axis, len(this.reverse)) for g in (gh, gc)]
        dW, dR, db, dX, *rest = BACKWARD[this.kind](one, y, g, *last)
        total = dX if total is None else OPS["Add"](total, dX)
        made.append((dW, dR, db, *rest))
    states = 2 if this.kind == "LSTM" else 1
    axes = [0, 0, 0, *[axis] * states, 0]
    dW, dR, dB, *rest = [stacked(list(each), at) for each, at in zip(zip(*made, strict=True), axes, strict=False)]
    dX = OPS["Transpose"](total, perm=[1, 0, 2]) if this.layout else total
    return (dW, dR, dB, *rest[:states], dX, *rest[states:])
