"""CausalConvWithState: each channel with its own short filter over the past."""

from typing import Any

from ox.core.constants import axes_tensor, constant, zeros
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, T
from ox.dtypes import bfloat16, float16, float32
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.activation import Sigmoid
from ox.ops.elementwise.arithmetic import Add, Mul, Sub
from ox.ops.nn.normalization import as_type, widely
from ox.ops.reduce.reduction import ReduceSum

__all__ = ["CausalConvWithState"]

FAR = 2**62


@operator(
    "output present_state",
    kind="convolution",
    T=(float32, float16, bfloat16),
    ignore_fp_warnings=True,
    amp="lower",
    batching="each",
    weights="weight bias",
)
def CausalConvWithState(
    xp: XP,
    input: T,
    weight: T,
    bias: T = None,
    past_state: T = None,
    *,
    activation: str = "none",
    outputs: int = 1,
) -> tuple[T, T]:
    """The sum over k of weight [C, 1, k] with the last k places of input [N, C, L], plus bias [C]; before the input
    lies past_state [N, C, k - 1], or zeros. The second output is the state for what follows.

    Args:
        activation: "none", "silu" or "swish" (which is the same).

    ONNX CausalConvWithState.
    """
    if activation not in ("none", "silu", "swish"):
        raise ArgumentError(f"CausalConvWithState has no activation {activation!r}", expected="none, silu or swish")
    if input.ndim != 3 or weight.ndim != 3 or weight.shape[:2] != (input.shape[1], 1):
        raise ShapeError(
            "CausalConvWithState takes input [N, C, L] and weight [C, 1, k]",
            got=f"{list(input.shape)} and {list(weight.shape)}",
        )
    n, channels, length = input.shape
    k = weight.shape[2]
    past = xp.zeros((n, channels, k - 1), input.dtype) if past_state is None else past_state
    if past.shape != (n, channels, k - 1):
        raise ShapeError("past_state", expected=str([n, channels, k - 1]), got=str(list(past.shape)))
    whole = xp.concatenate([past, input], axis=2)
    x, w = widely(whole), widely(weight)
    y = xp.zeros(input.shape, x.dtype)
    for i in range(k):
        y += x[:, :, i : i + length] * w[:, :, i]
    if bias is not None:
        y += widely(bias).reshape(-1, 1)
    if activation != "none":
        y /= 1 + xp.exp(-y)
    y = y.astype(input.dtype, copy=False)
    return y if outputs == 1 else (y, whole[:, :, length:].copy())


@CausalConvWithState.expansion
def _(
    input: TensorBase,
    weight: TensorBase,
    bias: TensorBase | None = None,
    past_state: TensorBase | None = None,
    *,
    activation: str = "none",
) -> tuple[TensorBase, TensorBase]:
    """A Scan over the taps of the filter, whose number no attribute may hold."""
    kind = input.dtype
    x, w = as_type(input, float32), as_type(weight, float32)
    past = zeros([*input.shape[:2], weight.shape[2] - 1], x) if past_state is None else as_type(past_state, float32)
    whole = OPS["Concat"](past, x, axis=2)
    length, along, one = OPS["Shape"](input, start=2, end=3), axes_tensor([2]), axes_tensor([1])

    def tap(total: Any, place: Any, w_tap: Any) -> tuple[Any, ...]:
        window = OPS["Slice"](whole, place, Add(place, length), along)
        return Add(total, Mul(window, w_tap)), Add(place, one)

    first = zeros(x.shape, x)
    y, _ = OPS["Scan"](first, axes_tensor([0]), w, body=tap, num_scan_inputs=1, scan_input_axes=[2])
    if bias is not None:
        y = Add(y, OPS["Unsqueeze"](as_type(bias, float32), one))
    if activation != "none":
        y = Mul(y, Sigmoid(y))
    state = OPS["Slice"](whole, length, axes_tensor([FAR]), along)
    return as_type(y, kind), as_type(state, kind)


@CausalConvWithState.gradient("input", "weight", "bias", "past_state")
def _(
    g: TensorBase | None,
    g_state: TensorBase | None,
    input: TensorBase,
    weight: TensorBase,
    bias: TensorBase | None,
    past_state: TensorBase | None,
    activation: str,
    needs: tuple[bool, ...],
) -> tuple[TensorBase | None, ...]:
    kind, k = input.dtype, int(weight.shape[2])
    x, w = as_type(input, float32), as_type(weight, float32)
    past = zeros([*input.shape[:2], k - 1], x) if past_state is None else as_type(past_state, float32)
    whole = OPS["Concat"](past, x, axis=2)
    windows = [_from(whole, i, i - k + 1) for i in range(k)]
    taps = [OPS["Squeeze"](_from(w, i, i + 1 - k), axes_tensor([2])) for i in range(k)]  # [C, 1] each
    to_whole: Any = None
    to_weight = to_bias = None
    if g is not None:
        g = as_type(g, float32)
        if activation != "none":
            total: Any = None if bias is None else OPS["Unsqueeze"](as_type(bias, float32), axes_tensor([1]))
            for window, tap in zip(windows, taps, strict=True):
                part = Mul(window, tap)
                total = part if total is None else Add(total, part)
            gate = Sigmoid(total)
            one = constant(1, gate)
            g = Mul(g, Mul(gate, Add(one, Mul(total, Sub(one, gate)))))
        if needs[1]:
            parts = [ReduceSum(Mul(g, window), axes_tensor([0, 2]), keepdims=0) for window in windows]
            to_weight = OPS["Concat"](*[OPS["Unsqueeze"](p, axes_tensor([1, 2])) for p in parts], axis=2)
        if needs[2]:
            to_bias = as_type(ReduceSum(g, axes_tensor([0, 2]), keepdims=0), kind)
        for i, tap in enumerate(taps):
            placed = OPS["Pad"](Mul(g, tap), axes_tensor([i, k - 1 - i]), constant(0, g), axes_tensor([2]))
            to_whole = placed if to_whole is None else Add(to_whole, placed)
    if g_state is not None and k > 1:
        # the state is the end of the whole
        length = OPS["Shape"](input, start=2, end=3)
        pads = OPS["Concat"](length, axes_tensor([0]), axis=0)
        placed = OPS["Pad"](as_type(g_state, float32), pads, constant(0, x), axes_tensor([2]))
        to_whole = placed if to_whole is None else Add(to_whole, placed)
    to_input = to_past = None
    if to_whole is not None:
        to_input = as_type(_from(to_whole, k - 1, 0), kind) if needs[0] else None
        cut = OPS["Slice"](to_whole, axes_tensor([0]), axes_tensor([k - 1]), axes_tensor([2]))
        to_past = as_type(cut, kind) if needs[3] else None
    return to_input, None if to_weight is None else as_type(to_weight, kind), to_bias, to_past


def _from(x: TensorType, start: int, end: int) -> TensorType:
    """A slice of the last axis up to `end` places (0 or less) from its end."""
    return OPS["Slice"](x, axes_tensor([start]), axes_tensor([end if end < 0 else FAR]), axes_tensor([2]))
