"""Random numbers as files have them: RandomNormal RandomUniform and their Like forms, Bernoulli, Multinomial.

With a seed they are those of NumPy's RandomState, as in onnx.reference: the same at each call. Without one they come
from ox's default generator. What ox itself draws are the functions of `ox.ops.random.philox`, whose state is explicit.
"""

from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

import numpy as np

from ox.core.operator import operator
from ox.core.types import T1, T2, XP, Array, T
from ox.dtypes import ALL, FLOATS, FROM_ONNX, int32, int64, is_floating
from ox.errors import DTypeError, ShapeError

__all__ = ["Bernoulli", "Multinomial", "RandomNormalLike", "RandomUniformLike"]

# Uniform numbers in [0, 1) of a kind, from the default generator, which `ox.random`, on a higher floor, registers here
source: Callable[[Sequence[int], str], Any] = np.empty


def uniform(shape: Sequence[int], seed: float | None, kind: str) -> Array:
    """Numbers in [0, 1), float64; for the kind of draw see `ox.core.random_stream`."""
    if seed is not None:
        return np.random.RandomState(int(seed)).uniform(0, 1, shape)
    return source(shape, kind).astype(np.float64)


def normal(shape: Sequence[int], seed: float | None) -> Array:
    """Numbers of mean 0 and deviation 1, float64, by Box and Muller where there is no seed."""
    if seed is not None:
        return np.random.RandomState(int(seed)).standard_normal(shape)
    count = int(np.prod(shape, dtype=np.int64))
    radius, angle = source([2, ceil(count / 2)], "onnx_normal").astype(np.float64)
    length = np.sqrt(-2 * np.log(1 - radius))
    pairs = np.concatenate([length * np.cos(2 * np.pi * angle), length * np.sin(2 * np.pi * angle)])
    return pairs[:count].reshape(shape)


def _kind(name: str, dtype: int | None, like: Any = None) -> Any:
    kind = like if dtype is None else FROM_ONNX.get(dtype)
    if kind is None or not is_floating(kind):
        raise DTypeError(f"{name} makes floats", got=str(kind), hint="dtype=1 for float32")
    return kind


@operator("output", kind="random", T=FLOATS, batching="each")
def RandomNormal(
    xp: XP, *, shape: Sequence[int], dtype: int = 1, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> T:
    """Normal numbers of a fixed shape. ONNX RandomNormal (`OPS["RandomNormal"]`)."""
    return xp.asarray(mean + scale * normal(list(shape), seed)).astype(_kind("RandomNormal", dtype))


@operator("output", kind="random", T=FLOATS, batching="each")
def RandomUniform(
    xp: XP, *, shape: Sequence[int], dtype: int = 1, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> T:
    """Numbers between low and high, of a fixed shape. ONNX RandomUniform (`OPS["RandomUniform"]`)."""
    return xp.asarray(low + (high - low) * uniform(list(shape), seed, "onnx_uniform")).astype(
        _kind("RandomUniform", dtype)
    )


@operator("output", kind="random", T1=ALL, T2=FLOATS, amp="widest", batching="each", nondifferentiable="input")
def RandomNormalLike(
    xp: XP, input: T1, *, dtype: int | None = None, mean: float = 0.0, scale: float = 1.0, seed: float | None = None
) -> T2:
    """Normal numbers of the input's shape, and of its type unless `dtype` is given.
    ONNX RandomNormalLike."""
    kind = _kind("RandomNormalLike", dtype, input.dtype)
    return xp.asarray(mean + scale * normal(input.shape, seed)).astype(kind)


@operator("output", kind="random", T1=ALL, T2=FLOATS, amp="widest", batching="each", nondifferentiable="input")
def RandomUniformLike(
    xp: XP, input: T1, *, dtype: int | None = None, high: float = 1.0, low: float = 0.0, seed: float | None = None
) -> T2:
    """Numbers between low and high of the input's shape, and of its type unless `dtype` is given.
    ONNX RandomUniformLike."""
    kind = _kind("RandomUniformLike", dtype, input.dtype)
    return xp.asarray(low + (high - low) * uniform(input.shape, seed, "onnx_uniform")).astype(kind)


@operator("output", kind="random", T1=FLOATS, T2=ALL, amp="widest", batching="each", nondifferentiable="input")
def Bernoulli(xp: XP, input: T1, *, dtype: int | None = None, seed: float | None = None) -> T2:
    """1 with the probability of the input, else 0; in its type unless `dtype` is given.
    ONNX Bernoulli."""
    drawn = xp.asarray(uniform(input.shape, seed, "onnx_bernoulli"))
    return (drawn < input.astype(np.float64)).astype(input.dtype if dtype is None else FROM_ONNX[dtype])


@operator("output", kind="random", T1=FLOATS, T2=(int32, int64), ignore_fp_warnings=True, amp="widest", batching="each")
def Multinomial(xp: XP, input: T1, *, dtype: int = 6, sample_size: int = 1, seed: float | None = None) -> T2:
    """`sample_size` classes a row, drawn from the unnormalized log-probabilities in input [N, C].
    ONNX Multinomial."""
    if input.ndim != 2:
        raise ShapeError("Multinomial takes [N, C]", got=str(list(input.shape)))
    logits = input.astype(np.float64)
    shares = xp.exp(logits - logits.max(axis=1, keepdims=True))
    edges = xp.cumsum(shares, axis=1)
    drawn = xp.asarray(uniform((input.shape[0], sample_size), seed, "onnx_multinomial")) * edges[:, -1:]
    chosen = (drawn[:, :, np.newaxis] >= edges[:, np.newaxis, :]).sum(axis=2)
    return xp.minimum(chosen, input.shape[1] - 1).astype(FROM_ONNX[dtype])
