"""Normalization: BatchNormalization LayerNormalization."""

from typing import Any

import numpy as np

from ox.core.broadcast import sum_to
from ox.core.constants import axes_tensor, constant
from ox.core.function import function
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import T1, T2, XP, Array, T, U
from ox.core.upcast import downcast
from ox.devices.summation import mean_over
from ox.dtypes import FLOATS, FROM_ONNX, HALF_TYPES, DType, bfloat16, float32, float64, onnx_type
from ox.errors import ShapeError
from ox.ops.elementwise.arithmetic import Add, Div, Mul, Sqrt, Sub
from ox.ops.index.gather import product_of
from ox.ops.nn.batch_norm_gradient import BatchNormalizationGradient
from ox.ops.reduce.reduction import ReduceMean, ReduceSum

__all__ = ["BatchNormalization", "LayerNormalization"]


def widely(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype in HALF_TYPES else array


def as_type(x: TensorType, dtype: DType) -> TensorType:
    return x if x.dtype == dtype else OPS["Cast"](x, to=onnx_type(dtype))


def computed_type(dtype: DType) -> DType:
    """The type in which a gradient of values of `dtype` is computed."""
    return float32 if dtype in HALF_TYPES else dtype


@operator(
    "Y running_mean running_var",
    kind="normalization",
    T=FLOATS,
    T1=FLOATS,
    T2=FLOATS,
    amp="keep",
    batching="each",
    weights="scale B input_mean input_var",
)
def BatchNormalization(
    xp: XP,
    X: T,
    scale: T1,
    B: T1,
    input_mean: T2,
    input_var: T2,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    training_mode: int = 0,
    outputs: int = 1,
) -> tuple[T, T2, T2]:
    """(X - mean) / sqrt(var + epsilon) * scale + B for each channel of X [N, C, ...].

    Mean and variance are the given ones, or in training_mode those of X; then the running ones are
    momentum * given + (1 - momentum) * X's, where the variance is the biased one. ONNX BatchNormalization.
    """
    if X.ndim < 2 or any(a.shape != X.shape[1:2] for a in (scale, B, input_mean, input_var)):
        raise ShapeError(
            f"BatchNormalization of {list(X.shape)} needs one value a channel",
            expected=f"scale, B, input_mean and input_var [{X.shape[1] if X.ndim > 1 else 'C'}]",
            got=", ".join(str(list(a.shape)) for a in (scale, B, input_mean, input_var)),
        )
    x, given_mean, given_var = widely(X), widely(input_mean), widely(input_var)
    column = (-1, *[1] * (X.ndim - 2))
    axes = (0, *range(2, X.ndim))
    if training_mode:
        mean = mean_over(xp, x, axes)
        centered = x - mean.reshape(column)
        var = mean_over(xp, centered * centered, axes)
    else:
        mean, var = given_mean, given_var
        centered = x - mean.reshape(column)
    factor = (widely(scale) / xp.sqrt(var + var.dtype.type(epsilon))).astype(x.dtype, copy=False)
    centered *= factor.reshape(column)
    centered += widely(B).astype(x.dtype, copy=False).reshape(column)
    Y = downcast(centered, X.dtype) if X.dtype in HALF_TYPES else centered.astype(X.dtype, copy=False)
    if not training_mode:
        return Y
    kind = input_mean.dtype
    old, new = given_mean.dtype.type(momentum), given_mean.dtype.type(1 - momentum)
    running = (old * given_mean + new * mean, old * given_var + new * var)
    return (Y, *[r.astype(kind, copy=False) for r in running])


def column_of(x: TensorType, rank: int, dtype: DType) -> TensorType:
    """[C] as [C, 1, ...], which meets [N, C, ...] of so many dimensions."""
    x = as_type(x, dtype)
    return x if rank == 2 else OPS["Unsqueeze"](x, axes_tensor(range(1, rank - 1)))


@BatchNormalization.gradient(
    "X", "scale", "B", "input_mean", "input_var", when=lambda attributes: not attributes["training_mode"]
)
def _(
    g: TensorBase,
    X: TensorBase,
    scale: TensorBase,
    input_mean: TensorBase,
    input_var: TensorBase,
    epsilon: float,
    needs: tuple[bool, ...],
) -> tuple[TensorBase | None, ...]:
    kind, rank, outer = X.dtype, X.ndim, _axes(X.ndim)
    wide = computed_type(kind)
    g = as_type(g, wide)
    var = Add(as_type(input_var, wide), constant(epsilon, g))
    inverse = Div(constant(1, g), Sqrt(var))
    to_x = to_scale = to_b = to_mean = to_var = None
    if needs[0]:
        to_x = as_type(Mul(g, column_of(Mul(inverse, as_type(scale, wide)), rank, wide)), kind)
    if any(needs[1:4]) or needs[4]:
        total = ReduceSum(g, outer, keepdims=0)
    if needs[2]:
        to_b = as_type(total, scale.dtype)
    if needs[3]:
        to_mean = as_type(-(total * inverse * as_type(scale, wide)), input_mean.dtype)
    if needs[1] or needs[4]:
        centered = Sub(as_type(X, wide), column_of(input_mean, rank, wide))
        weighted = Mul(ReduceSum(Mul(g, centered), outer, keepdims=0), inverse)
        if needs[1]:
            to_scale = as_type(weighted, scale.dtype)
        if needs[4]:
            to_var = as_type(weighted * as_type(scale, wide) / var * -0.5, input_var.dtype)
    return to_x, to_scale, to_b, to_mean, to_var


def _axes(rank: int) -> TensorBase:
    return axes_tensor([0, *range(2, rank)])


@BatchNormalization.gradient(
    "X", "scale", "B", "input_mean", "input_var", when=lambda attributes: bool(attributes["training_mode"])
)
def _(
    g: TensorBase | None,
    g_mean: TensorBase | None,
    g_var: TensorBase | None,
    X: TensorBase,
    scale: TensorBase,
    epsilon: float,
    momentum: float,
    needs: tuple[bool, ...],
) -> tuple[TensorBase | None, ...]:
    kind, rank, outer = X.dtype, X.ndim, _axes(X.ndim)
    wide = computed_type(kind)
    if g is not None and g_mean is None and g_var is None:
        inputs = [as_type(each, wide) for each in (g, X, scale)]
        to_x, to_scale, to_b = BatchNormalizationGradient(*inputs, epsilon=epsilon)
        return as_type(to_x, kind), as_type(to_scale, scale.dtype), as_type(to_b, scale.dtype), None, None
    x = as_type(X, wide)
    centered = Sub(x, ReduceMean(x, outer, keepdims=1))
    to_x = to_scale = to_b = None
    if g is not None:
        g = as_type(g, wide)
        var = ReduceMean(Mul(centered, centered), outer, keepdims=1)
        inverse = Div(constant(1, x), Sqrt(Add(var, constant(epsilon, x))))
        normal = Mul(centered, inverse)
        total = ReduceSum(g, outer, keepdims=1)
        weighted = ReduceSum(Mul(g, normal), outer, keepdims=1)
        flat = axes_tensor([0, *range(2, rank)])
        if needs[1]:
            to_scale = as_type(OPS["Squeeze"](weighted, flat), scale.dtype)
        if needs[2]:
            to_b = as_type(OPS["Squeeze"](total, flat), scale.dtype)
        if needs[0]:
            count = X.shape[0] * product_of(X.shape[2:])
            # what the batch's own mean and variance take back
            taken = Add(total, Mul(normal, weighted)) / count
            to_x = Mul(Sub(g, taken), Mul(inverse, column_of(scale, rank, wide)))
    part = 1 - momentum
    if needs[0] and (g_mean is not None or g_var is not None):
        count = X.shape[0] * product_of(X.shape[2:])
        extra = None
        if g_mean is not None:
            extra = column_of(g_mean, rank, wide) * part / count
        if g_var is not None:
            from_var = centered * (column_of(g_var, rank, wide) * (2 * part) / count)
            extra = from_var if extra is None else Add(extra, from_var)
        to_x = OPS["Expand"](extra, OPS["Shape"](X)) if to_x is None else Add(to_x, extra)
    to_x = None if to_x is None else as_type(to_x, kind)
    to_mean = g_mean * momentum if needs[3] and g_mean is not None else None
    to_var = g_var * momentum if needs[4] and g_var is not None else None
    return to_x, to_scale, to_b, to_mean, to_var


@operator(
    "Y Mean InvStdDev",
    kind="normalization",
    T=FLOATS,
    U=(float32, bfloat16),
    ignore_fp_warnings=True,
    amp="float32",
    batching="axis",
    weights="Scale B",
)
def LayerNormalization(
    xp: XP, X: T, Scale: T, B: T = None, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1, outputs: int = 1
) -> tuple[T, U, U]:
    """(X - Mean) * InvStdDev * Scale + B, with mean and deviation over the dimensions from `axis` on.

    Mean and InvStdDev come in `stash_type`; the work is done in float32, and for float64 in float64, as ONNX Runtime
    does. ONNX LayerNormalization, `torch.nn.functional.layer_norm`.
    """
    axes = tuple(range(axis % X.ndim, X.ndim))
    x = widely(X)
    mean = mean_over(xp, x, axes, True)
    centered = x - mean
    variance = mean_over(xp, centered * centered, axes, True)
    inverse = 1 / xp.sqrt(variance + variance.dtype.type(epsilon))
    centered *= inverse
    y = centered * widely(Scale)
    if y.shape != X.shape:
        raise ShapeError(f"LayerNormalization has a Scale {list(Scale.shape)} for {list(X.shape)}")
    if B is not None:
        y += widely(B)
    Y = downcast(y, X.dtype) if X.dtype in HALF_TYPES else y
    if outputs == 1:
        return Y
    stash = FROM_ONNX[stash_type]
    return (Y, mean.astype(stash, copy=False), inverse.astype(stash, copy=False))


@LayerNormalization.expansion
def _(
    X: TensorBase,
    Scale: TensorBase,
    B: TensorBase | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int = 1,
) -> tuple[TensorBase, TensorBase, TensorBase]:
    wide, axes = computed_type(X.dtype), axes_tensor(range(axis % X.ndim, X.ndim))
    x = as_type(X, wide)
    mean = ReduceMean(x, axes)
    centered = Sub(x, mean)
    inverse = Div(constant(1, x), Sqrt(Add(ReduceMean(Mul(centered, centered), axes), constant(epsilon, x))))
    y = Mul(Mul(centered, inverse), as_type(Scale, wide))
    y = y if B is None else Add(y, as_type(B, wide))
    stash = FROM_ONNX[stash_type]
    return as_type(y, X.dtype), as_type(mean, stash), as_type(inverse, stash)


@function("dX dScale dB", kind="gradient", fused=True, T=FLOATS, U=FLOATS, amp="widest")
def LayerNormalizationGradient(g: T, X: T, Scale: T, Mean: U, InvStdDev: U, *, axis: int = -1) -> tuple[T, T, T]:
    """The three gradients where only Y was used and Scale has X's normalized shape; those of halves are computed in
    float32."""
    kind, wide = X.dtype, computed_type(X.dtype)
    outer, inner = axes_tensor(range(axis % X.ndim)), axes_tensor(range(axis % X.ndim, X.ndim))
    g, inverse = as_type(g, wide), as_type(InvStdDev, wide)
    normal = Mul(Sub(as_type(X, wide), as_type(Mean, wide)), inverse)
    scaled = Mul(g, as_type(Scale, wide))
    along = Mul(normal, ReduceMean(Mul(scaled, normal), inner, keepdims=1))
    to_x = Mul(Sub(Sub(scaled, ReduceMean(scaled, inner, keepdims=1)), along), inverse)
    to_scale, to_b = ReduceSum(Mul(g, normal), outer, keepdims=0), ReduceSum(g, outer, keepdims=0)
    return as_type(to_x, kind), as_type(to_scale, kind), as_type(to_b, kind)


@LayerNormalization.gradient("X", "Scale", "B")
def _(
    g: TensorBase | None,
    g_mean: TensorBase | None,
    g_inverse: TensorBase | None,
    X: TensorBase,
    Scale: TensorBase,
    Mean: TensorBase,
    InvStdDev: TensorBase,
    B_shape: tuple[int, ...] | None,
    axis: int,
    epsilon: float,
    needs: tuple[bool, bool, bool],
) -> tuple[TensorBase | None, TensorBase | None, TensorBase | None]:
    kind, wide = X.dtype, computed_type(X.dtype)
    start = axis % X.ndim
    usual = wide == float32 and g_mean is None and g_inverse is None and start > 0 and Scale.ndim == X.ndim - start
    if g is not None and usual:
        grads: tuple[TensorBase, ...] = LayerNormalizationGradient(g, X, Scale, Mean, InvStdDev, axis=axis)
        grads = tuple(as_type(each, kind) for each in grads)
        return grads[0], sum_to(grads[1], Scale.shape), sum_to(grads[2], B_shape or ()) if needs[2] else None
    inner = axes_tensor(range(start, X.ndim))
    x = as_type(X, wide)
    if wide == float64:
        # Mean and InvStdDev come in float32: too coarse
        centered = Sub(x, ReduceMean(x, inner, keepdims=1))
        variance = ReduceMean(Mul(centered, centered), inner, keepdims=1)
        inverse = Div(constant(1, x), Sqrt(Add(variance, constant(epsilon, x))))
    else:
        centered, inverse = Sub(x, as_type(Mean, wide)), as_type(InvStdDev, wide)
    normal = Mul(centered, inverse)
    to_x: Any = None
    to_scale = to_b = None
    if g is not None:
        g = as_type(g, wide)
        if needs[1]:
            to_scale = as_type(sum_to(Mul(g, normal), Scale.shape), kind)
        if needs[2]:
            to_b = as_type(sum_to(g, B_shape or ()), kind)
        if needs[0]:
            scaled = Mul(g, as_type(Scale, wide))
            along = Mul(normal, ReduceMean(Mul(scaled, normal), inner, keepdims=1))
            to_x = Mul(Sub(Sub(scaled, ReduceMean(scaled, inner, keepdims=1)), along), inverse)
    if needs[0] and (g_mean is not None or g_inverse is not None):
        count = product_of(X.shape[axis % X.ndim :])
        if g_mean is not None:
            extra = as_type(g_mean, wide) / count
            to_x = OPS["Expand"](extra, OPS["Shape"](X)) if to_x is None else Add(to_x, extra)
        if g_inverse is not None:
            extra = normal * (as_type(g_inverse, wide) * inverse * inverse / count)
            to_x = Sub(to_x, extra) if to_x is not None else -extra
    return None if to_x is None else as_type(to_x, kind), to_scale, to_b
