"""RNN, GRU and LSTM and their gradients in other operators: what defines them for any activations, peepholes and clip,
what is differentiated twice, and what a file holds of the gradient.

The gradient takes the states from Y. So the gates are known for all steps at once, and only two things are left for a
loop: the cells of an LSTM, and the walk back. Slopes of the activations are made for all steps at once too.
"""

from typing import Any

from ox.core.constants import axes_tensor, constant, number, zeros
from ox.core.operator import OPS
from ox.core.symbolic import size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.ops.elementwise.arithmetic import Add, Mul, Sub
from ox.ops.elementwise.comparison import GreaterOrEqual, Less, Where
from ox.ops.linalg.matmul import Gemm, MatMul
from ox.ops.recurrent.arguments import Call


class Direction:
    """One direction of a call: its tensors, time first, without an axis for the direction."""

    def __init__(self, this: Call, d: int, tensors: dict[str, TensorBase | None]) -> None:
        self.this, self.reverse = this, this.reverse[d]
        self.clip = this.clip
        self.f = this.activations[d]
        X: Any = tensors["X"]
        self.X = _transpose(X, [1, 0, 2]) if this.layout else X
        axis, self.count = 1 if this.layout else 0, len(this.reverse)
        self.W, self.R = (part(tensors[name], d, 0, self.count) for name in ("W", "R"))
        self.Rt = OPS["Transpose"](self.R)
        self.b = None if tensors["B"] is None else part(tensors["B"], d, 0, self.count)
        self.h = self._state(tensors["initial_h"], d, axis)
        self.c = self._state(tensors.get("initial_c"), d, axis) if this.kind == "LSTM" else self.h
        P = tensors.get("P")
        self.P = [None] * 3 if P is None else OPS["Split"](part(P, d, 0, self.count), axis=0, num_outputs=3, outputs=3)
        self.lens = tensors["sequence_lens"]
        self.steps = None
        self.alive = None
        if self.lens is not None:
            T = OPS["Squeeze"](OPS["Shape"](self.X, start=0, end=1), axes_tensor([0]))
            steps = OPS["Range"](number(0, T.array.dtype), T, number(1, T.array.dtype))
            self.steps = OPS["Unsqueeze"](OPS["Cast"](steps, to=6), axes_tensor([1, 2]))
            self.alive = Less(self.steps, OPS["Unsqueeze"](self.lens, axes_tensor([0, 2])))

    def _state(self, given: TensorBase | None, d: int, axis: int) -> TensorBase:
        if given is not None:
            return part(given, d, axis, self.count)
        return self.nothing()

    def nothing(self) -> TensorBase:
        """Zeros like a state."""
        return zeros([self.X.shape[1], self.R.shape[1]], self.X)

    def sums(self, states: TensorBase | None = None) -> TensorBase:
        """[T, N, k·H]: the products with the inputs and the biases that add to them, and with states [T, N, H]."""
        made = MatMul(self.X, OPS["Transpose"](self.W))
        if states is not None:
            made = Add(made, MatMul(states, self.Rt))
        if self.b is not None:
            outer, inner = OPS["Split"](self.b, axis=0, num_outputs=2, outputs=2)
            made = Add(made, Add(outer, inner))
        return made

    def keep_ended(self, alive: TensorBase | None, new: TensorBase, old: TensorBase) -> TensorBase:
        return new if alive is None else Where(alive, new, old)

    def starts(self, after: TensorBase, first: TensorBase) -> TensorBase:
        """The state [T, N, H] that each step began with, from those after the steps."""
        first = OPS["Unsqueeze"](first, axes_tensor([0]))
        axis, end = axes_tensor([0]), axes_tensor([2**62])
        if not self.reverse:
            return OPS["Concat"](first, OPS["Slice"](after, axes_tensor([0]), axes_tensor([-1]), axis), axis=0)
        made = OPS["Concat"](OPS["Slice"](after, axes_tensor([1]), end, axis), first, axis=0)
        if self.lens is None:
            return made
        # in reverse a sequence begins at its own end
        last = Sub(OPS["Unsqueeze"](self.lens, axes_tensor([0, 2])), number(1, self.lens.array.dtype))
        return Where(GreaterOrEqual(self.steps, last), first, made)

    def with_alive(self, *sequences: TensorBase) -> list[TensorBase]:
        return [*sequences, *([] if self.alive is None else [self.alive])]

    def living(self, slices: list[Any]) -> Any:
        return None if self.alive is None else slices[-1]

    def mask_ended(self, Y: TensorBase) -> TensorBase:
        """0 where a sequence has ended."""
        return Y if self.alive is None else Where(self.alive, Y, constant(0, Y))

    def weights(
        self, d_inputs: TensorBase, d_states: TensorBase, states: TensorBase
    ) -> tuple[TensorBase, TensorBase, TensorBase, TensorBase]:
        """The gradients of W, R, b and X from those of the two products, [T, N, k·H]."""
        flat, others = rows(d_inputs), rows(d_states)
        db = OPS["ReduceSum"](flat, axes_tensor([0]), keepdims=0)
        dR = db if d_states is d_inputs else OPS["ReduceSum"](others, axes_tensor([0]), keepdims=0)
        return (
            Gemm(flat, rows(self.X), transA=1),
            Gemm(others, rows(states), transA=1),
            OPS["Concat"](db, dR, axis=0),
            MatMul(d_inputs, self.W),
        )


def _transpose(x: TensorType, perm: list[int]) -> TensorType:
    return OPS["Transpose"](x, perm=perm)


def part(x: Any, d: int, axis: int, count: int) -> TensorBase:
    """One of so many indices along an axis, without it."""
    if count > 1:
        x = OPS["Slice"](x, axes_tensor([d]), axes_tensor([d + 1]), axes_tensor([axis]))
    return OPS["Squeeze"](x, axes_tensor([axis]))


def rows(x: TensorType) -> TensorType:
    return OPS["Reshape"](x, size_tensor([-1, x.shape[-1]]))


def gates(x: TensorBase, count: int) -> tuple[TensorBase, ...]:
    """The parts along the last axis."""
    return OPS["Split"](x, axis=-1, num_outputs=count, outputs=count)


def concat_last(*parts: TensorBase) -> TensorBase:
    return OPS["Concat"](*parts, axis=-1)


def plus(x: TensorType, weight: TensorBase | None, factor: TensorBase) -> TensorType:
    """x + weight·factor, where there is a weight."""
    return x if weight is None else Add(x, Mul(weight, factor))
