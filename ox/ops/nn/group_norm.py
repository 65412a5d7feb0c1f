"""Normalization within an example: InstanceNormalization GroupNormalization MeanVarianceNormalization."""

from collections.abc import Sequence
from math import prod
from typing import Any

from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor, constant
from ox.core.function import function
from ox.core.operator import OPS, operator
from ox.core.symbolic import Dim
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Array, T
from ox.core.upcast import downcast
from ox.devices.summation import mean_over
from ox.dtypes import FLOATS, HALF_TYPES
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.arithmetic import Add, Div, Max, Mul, Sqrt, Sub
from ox.ops.nn.normalization import as_type, column_of, computed_type, widely
from ox.ops.reduce.reduction import ReduceMean, ReduceSum

__all__ = ["GroupNormalization", "InstanceNormalization", "MeanVarianceNormalization"]


def _check(name: str, X: Array, scale: Array, bias: Array) -> None:
    if X.ndim < 2 or scale.shape != X.shape[1:2] or bias.shape != X.shape[1:2]:
        raise ShapeError(
            f"{name} of {list(X.shape)} needs one scale and one bias a channel",
            expected=f"[{X.shape[1] if X.ndim > 1 else 'C'}]",
            got=f"{list(scale.shape)} and {list(bias.shape)}",
        )


def _normalized(xp: XP, x: Array, groups: int, epsilon: float) -> Array:
    """[N, C, ...] with mean 0 and variance 1 in each of the groups of channels."""
    if not x.size:
        return x.copy()
    rows = x.reshape(x.shape[0], groups, -1)
    centered = rows - mean_over(xp, rows, (2,), True)
    variance = mean_over(xp, centered * centered, (2,), True)
    centered /= xp.sqrt(variance + x.dtype.type(epsilon))
    return centered.reshape(x.shape)


def _scaled(X: Array, normal: Array, scale: Array, bias: Array) -> Array:
    column = (-1, *[1] * (X.ndim - 2))
    normal *= widely(scale).reshape(column)
    normal += widely(bias).reshape(column)
    return downcast(normal, X.dtype) if X.dtype in HALF_TYPES else normal


@operator(
    "output", kind="normalization", T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="each", weights="scale B"
)
def InstanceNormalization(xp: XP, input: T, scale: T, B: T, *, epsilon: float = 1e-5) -> T:
    """Each channel of each example with mean 0 and variance 1, times scale [C] plus B [C]; input [N, C, ...].
    ONNX InstanceNormalization, `torch.nn.functional.instance_norm`."""
    _check("InstanceNormalization", input, scale, B)
    return _scaled(input, _normalized(xp, widely(input), input.shape[1], epsilon), scale, B)


@InstanceNormalization.gradient("input", "scale", "B")
def _(g: TensorBase, input: TensorBase, scale: TensorBase, epsilon: float, needs: tuple[bool, ...]) -> Any:
    return _group_gradients(g, input, scale, None, epsilon, needs)


@operator(
    "Y", kind="normalization", T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="each", weights="scale bias"
)
def GroupNormalization(
    xp: XP, X: T, scale: T, bias: T, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> T:
    """Each group of channels of each example with mean 0 and variance 1, times scale [C] plus bias [C]; X [N, C, ...].

    The work is done in float32, and for float64 in float64. ONNX GroupNormalization,
    `torch.nn.functional.group_norm`.
    """
    _check("GroupNormalization", X, scale, bias)
    if num_groups < 1 or X.shape[1] % num_groups:
        raise ArgumentError("num_groups must divide the channels", got=f"{X.shape[1]} channels, {num_groups} groups")
    return _scaled(X, _normalized(xp, widely(X), num_groups, epsilon), scale, bias)


@GroupNormalization.expansion
def _(
    X: TensorBase,
    scale: TensorBase,
    bias: TensorBase,
    *,
    num_groups: int,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> TensorBase:
    wide = computed_type(X.dtype)
    x = as_type(X, wide)
    groups = OPS["Reshape"](x, axes_tensor([0, num_groups, -1]))
    centered = Sub(groups, ReduceMean(groups, axes_tensor([2])))
    deviation = Sqrt(Add(ReduceMean(Mul(centered, centered), axes_tensor([2])), constant(epsilon, x)))
    y = OPS["Reshape"](Div(centered, deviation), OPS["Shape"](X))
    behind = axes_tensor(range(1, X.ndim - 1))
    columns = [as_type(OPS["Unsqueeze"](v, behind) if X.ndim > 2 else v, wide) for v in (scale, bias)]
    return as_type(Add(Mul(y, columns[0]), columns[1]), X.dtype)


@GroupNormalization.gradient("X", "scale", "bias")
def _(g: TensorBase, X: TensorBase, scale: TensorBase, num_groups: int, epsilon: float, needs: tuple[bool, ...]) -> Any:
    return _group_gradients(g, X, scale, num_groups, epsilon, needs)


def _group_gradients(
    g: TensorBase, X: TensorBase, scale: TensorBase, groups: int | None, epsilon: float, needs: tuple[bool, ...]
) -> tuple[TensorBase | None, ...]:
    """Of X, scale and bias; a group is one channel where `groups` is None."""
    kind, rank, shape = X.dtype, X.ndim, X.shape
    wide = computed_type(kind)
    count = groups or shape[1]
    if kind == wide == scale.dtype and all(needs) and X.array.size and not isinstance(shape[1], Dim):
        of_groups, by_group = axes_tensor([0, count, shape[1] // count, -1]), axes_tensor([count, -1])
        to_x, to_scale, to_bias = GroupNormalizationGradient(
            OPS["Reshape"](g, of_groups),
            OPS["Reshape"](X, of_groups),
            OPS["Reshape"](scale, by_group),
            epsilon=epsilon,
        )
        channels = axes_tensor([-1])
        return reshape_to(to_x, shape), OPS["Reshape"](to_scale, channels), OPS["Reshape"](to_bias, channels)
    g = as_type(g, wide)
    outer = axes_tensor([0, *range(2, rank)])
    rows = as_type(X, wide)
    in_groups = axes_tensor([0, groups or 1, -1 if X.array.size else prod(shape[1:]) // (groups or 1)])
    if groups is not None:
        rows = OPS["Reshape"](rows, in_groups)
    inner = axes_tensor([2] if groups is not None else range(2, rank))
    normal, inverse = standardized(rows, inner, epsilon)
    to_scale = to_bias = to_x = None
    if needs[1]:
        whole = normal if groups is None else reshape_to(normal, shape)
        to_scale = as_type(ReduceSum(Mul(g, whole), outer, keepdims=0), kind)
    if needs[2]:
        to_bias = as_type(ReduceSum(g, outer, keepdims=0), kind)
    if needs[0]:
        scaled = Mul(g, column_of(scale, rank, wide))
        if groups is not None:
            scaled = OPS["Reshape"](scaled, in_groups)
        back = unstandardized(scaled, normal, inverse, inner)
        to_x = as_type(back if groups is None else reshape_to(back, shape), kind)
    return to_x, to_scale, to_bias


@function("dX dScale dB", kind="gradient", fused=True, T=FLOATS, amp="widest")
def GroupNormalizationGradient(g: T, X: T, scale: T, *, epsilon: float = 1e-5) -> tuple[T, T, T]:
    """The gradients [N, G, C, S], [G, C] and [G, C] from a cotangent g and data X [N, G, C, S], of which each of the G
    groups of C channels was normalized, times scale [G, C]."""
    inner, outer = axes_tensor([2, 3]), axes_tensor([0, 3])
    normal, inverse = standardized(X, inner, epsilon)
    back = unstandardized(Mul(g, OPS["Unsqueeze"](scale, axes_tensor([2]))), normal, inverse, inner)
    return back, ReduceSum(Mul(g, normal), outer, keepdims=0), ReduceSum(g, outer, keepdims=0)


def standardized(x: TensorBase, axes: TensorBase, epsilon: float) -> tuple[TensorBase, TensorBase]:
    """x with mean 0 and variance 1 along the axes, and the inverse of the deviation."""
    centered = Sub(x, ReduceMean(x, axes, keepdims=1))
    variance = ReduceMean(Mul(centered, centered), axes, keepdims=1)
    inverse = Div(constant(1, x), Sqrt(Add(variance, constant(epsilon, x))))
    return Mul(centered, inverse), inverse


def unstandardized(g: TensorType, normal: TensorBase, inverse: TensorBase, axes: TensorBase) -> TensorType:
    """The cotangent of x from that of its standardized form."""
    along = Mul(normal, ReduceMean(Mul(g, normal), axes, keepdims=1))
    return Mul(Sub(Sub(g, ReduceMean(g, axes, keepdims=1)), along), inverse)


@operator("Y", kind="normalization", T=FLOATS, ignore_fp_warnings=True, amp="float32", batching="each")
def MeanVarianceNormalization(xp: XP, X: T, *, axes: Sequence[int] = [0, 2, 3]) -> T:
    """(X - mean) / (deviation + 1e-9) along axes. ONNX MeanVarianceNormalization."""
    x, chosen = widely(X), tuple(axes)
    centered = x - mean_over(xp, x, chosen, True)
    deviation = xp.sqrt(mean_over(xp, centered * centered, chosen, True))
    y = centered / (deviation + x.dtype.type(1e-9))
    return downcast(y, X.dtype) if X.dtype in HALF_TYPES else y


@MeanVarianceNormalization.gradient("X")
def _(g: TensorBase, X: TensorBase, axes: Sequence[int]) -> TensorBase:
    kind, wide, along = X.dtype, computed_type(X.dtype), axes_tensor(axes)
    x, g = as_type(X, wide), as_type(g, wide)
    centered = Sub(x, ReduceMean(x, along, keepdims=1))
    deviation = Sqrt(ReduceMean(Mul(centered, centered), along, keepdims=1))
    divisor = Add(deviation, constant(1e-9, x))
    # where nothing deviates, `centered` is 0 and so is its share: the quotient only has to be finite
    share = Div(ReduceMean(Mul(g, centered), along, keepdims=1), Max(deviation, constant(1e-30, x)))
    back = Div(Sub(g, Div(Mul(centered, share), divisor)), divisor)
    return as_type(Sub(back, ReduceMean(back, along, keepdims=1)), kind)
