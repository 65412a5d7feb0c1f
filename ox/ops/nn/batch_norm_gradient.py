"""The gradient of BatchNormalization in training, where only its first output was used."""

from typing import Any

from ox.core.constants import axes_tensor, constant
from ox.core.function import function
from ox.core.operator import OPS
from ox.core.types import XP, Array, T
from ox.devices.summation import mean_over, sum_over
from ox.dtypes import FLOATS
from ox.ops.elementwise.arithmetic import Add, Div, Mul, Sqrt, Sub
from ox.ops.index.gather import product_of
from ox.ops.reduce.reduction import ReduceMean, ReduceSum

TOGETHER = 1 << 17  # elements of some channels that are worked on at a time, so that they stay in the cache


@function("dX dScale dB", kind="gradient", fused=True, T=FLOATS, amp="widest")
def BatchNormalizationGradient(g: T, X: T, scale: T, *, epsilon: float = 1e-5) -> tuple[T, T, T]:
    """The gradients [N, C, ...], [C] and [C] from a cotangent g and the data X [N, C, ...], whose own mean and variance
    the normalization took."""
    rank = X.ndim
    outer, spatial = axes_tensor([0, *range(2, rank)]), axes_tensor(range(1, rank - 1))
    centered = Sub(X, ReduceMean(X, outer, keepdims=1))
    variance = ReduceMean(Mul(centered, centered), outer, keepdims=1)
    inverse = Div(constant(1, X), Sqrt(Add(variance, constant(epsilon, X))))
    normal = Mul(centered, inverse)
    total, weighted = ReduceSum(g, outer, keepdims=1), ReduceSum(Mul(g, normal), outer, keepdims=1)
    # what the batch's own mean and variance take back
    taken = Add(total, Mul(normal, weighted)) / (X.shape[0] * product_of(X.shape[2:]))
    column = OPS["Unsqueeze"](scale, spatial) if rank > 2 else scale
    to_x = Mul(Sub(g, taken), Mul(inverse, column))
    return to_x, OPS["Squeeze"](weighted, outer), OPS["Squeeze"](total, outer)


def by_channels(xp: XP, g: Array, X: Array, scale: Array, *, epsilon: float = 1e-5) -> tuple[Any, Any, Any]:
    """The same, some channels at a time."""
    N, C = X.shape[:2]
    x, g = X.reshape(N, C, -1), g.reshape(N, C, -1)
    count = X.dtype.type(N * x.shape[2])
    to_x, to_scale, to_b = xp.empty_like(x), xp.empty(C, X.dtype), xp.empty(C, X.dtype)
    step = max(1, TOGETHER // int(count))
    for first in range(0, C, step):
        some = slice(first, first + step)
        part, cotangent = x[:, some], g[:, some]
        part = part - mean_over(xp, part, (0, 2), True)
        variance = sum_over(xp, xp.vecdot(part, part), (0,)) / count
        total, weighted = sum_over(xp, cotangent, (0, 2)), sum_over(xp, xp.vecdot(cotangent, part), (0,))
        inverse = 1 / xp.sqrt(variance + X.dtype.type(epsilon))
        to_scale[some], to_b[some] = weighted * inverse, total
        part *= (inverse * inverse * weighted / count)[:, None]
        part += (total / count)[:, None]
        out = to_x[:, some]
        xp.subtract(cotangent, part, out=out)
        out *= (inverse * scale[some])[:, None]
    return to_x.reshape(X.shape), to_scale, to_b


BatchNormalizationGradient.large = by_channels
