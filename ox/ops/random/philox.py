"""Random numbers without hidden state: Philox RandomUniform RandomNormal, functions of the domain ``ox``.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011): ten rounds of multiplication turn
a 64-bit key and a counter into four 32-bit words. Each call returns the counter from which the next one goes on.
"""

from collections.abc import Iterator
from math import pi
from typing import Any

import numpy as np

from ox.core.constants import axes_tensor, constant, number
from ox.core.function import function
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType
from ox.core.types import XP, Float32, HostInt64, T, UInt32, UInt64
from ox.devices.cpu_kernels import random as compiled_random
from ox.dtypes import FLOATS, float32, float64, int64, onnx_type, uint8, uint32, uint64
from ox.ops.elementwise.arithmetic import Add, Div, Log, Mul, Sqrt
from ox.ops.elementwise.comparison import BitShift, BitwiseAnd, BitwiseXor, GreaterOrEqual
from ox.ops.elementwise.trigonometry import Cos, Sin

__all__ = ["Philox", "PhiloxDropout", "RandomNormal", "RandomUniform"]

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)  # golden ratio, sqrt(3) - 1
LOW = 0xFFFFFFFF
TO_UNIT, TO_OPEN_UNIT, TO_ANGLE = 2.0**-24, 2.0**-32, 2 * pi * 2.0**-32


@function("bits next", kind="random", batching="each")
def Philox(key: UInt64, counter: UInt64, shape: HostInt64) -> tuple[UInt32, UInt64]:
    """Random words of 32 bits.

    Args:
        key: uint64 [], the seed.
        counter: uint64 [], where in the key's stream to start.
        shape: int64 [rank], sizes of the result.

    Returns:
        bits: uint32 of `shape`.
        next: uint64 [], the counter after those used; four words each.
    """
    words, count, following = _words(key, counter, shape)
    return _shaped(OPS["Cast"](OPS["Concat"](*words, axis=0), to=onnx_type(uint32)), count, shape), following


@function("output next", kind="random", batching="each")
def RandomUniform(key: UInt64, counter: UInt64, shape: HostInt64) -> tuple[Float32, UInt64]:
    """Uniform numbers in [0, 1), multiples of 2**-24; arguments and the second result as for `Philox`."""
    return _uniform(key, counter, shape)


def _uniform(key: TensorBase, counter: TensorBase, shape: TensorBase) -> tuple[TensorBase, TensorBase]:
    words, count, following = _words(key, counter, shape)
    bits = BitShift(OPS["Concat"](*words, axis=0), _u64(8), direction="RIGHT")
    unit = Mul(OPS["Cast"](bits, to=onnx_type(float32)), number(TO_UNIT, float32))
    return _shaped(unit, count, shape), following


@function("output next", kind="random", batching="each")
def RandomNormal(key: UInt64, counter: UInt64, shape: HostInt64) -> tuple[Float32, UInt64]:
    """Normal numbers of mean 0 and deviation 1 by Box and Muller; arguments and the second result as for `Philox`.

    Computed in float64, so that a logarithm that differs in its last bit gives the same float32 all but once in some
    hundred million numbers.
    """
    (a, b, c, d), count, following = _words(key, counter, shape)
    to = onnx_type(float64)
    unit = Add(OPS["Cast"](OPS["Concat"](a, c, axis=0), to=to), number(0.5, float64))
    radius = Sqrt(Mul(Log(Mul(unit, number(TO_OPEN_UNIT, float64))), number(-2.0, float64)))
    angle = Mul(OPS["Cast"](OPS["Concat"](b, d, axis=0), to=to), number(TO_ANGLE, float64))
    pairs = OPS["Concat"](Mul(radius, Cos(angle)), Mul(radius, Sin(angle)), axis=0)
    return _shaped(OPS["Cast"](pairs, to=onnx_type(float32)), count, shape), following


@function("Y", kind="random", fused=True, T=FLOATS, amp="widest")
def PhiloxDropout(X: T, key: UInt64, counter: UInt64, *, p: float) -> T:
    """X with each element 0 where its number of `RandomUniform` is below p, else times 1 / (1 - p). The gradient draws
    the same numbers again, so nothing of the size of X is kept for it."""
    drawn, _ = _uniform(key, counter, OPS["Shape"](X))
    kept = OPS["Cast"](GreaterOrEqual(drawn, number(p, float32)), to=onnx_type(X.array.dtype))
    return Mul(X, Mul(kept, constant(1 / (1 - p), X)))


@PhiloxDropout.gradient("X")
def _(g: TensorBase, key: TensorBase, counter: TensorBase, p: float) -> TensorBase:
    made: TensorBase = PhiloxDropout(g, key, counter, p=p)
    return made


def _u64(value: int) -> TensorBase:
    return number(value, uint64)


def _words(key: TensorBase, counter: TensorBase, shape: TensorBase) -> tuple[list[TensorBase], TensorBase, TensorBase]:
    """Enough words for `shape`, as four uint64 [blocks]; their number; the next counter."""
    count = OPS["Size"](OPS["ConstantOfShape"](shape, value=np.zeros(1, uint8)))
    blocks = Div(Add(count, number(3, int64)), number(4, int64))
    steps = OPS["Range"](number(0, int64), blocks, number(1, int64))
    low, half = _u64(LOW), _u64(32)
    place = Add(OPS["Cast"](steps, to=onnx_type(uint64)), counter)
    a, b = BitwiseAnd(place, low), BitShift(place, half, direction="RIGHT")
    c = d = BitwiseXor(a, a)
    k0, k1 = BitwiseAnd(key, low), BitShift(key, half, direction="RIGHT")
    for i in range(ROUNDS):
        if i:
            k0 = BitwiseAnd(Add(k0, _u64(KEY_STEPS[0])), low)
            k1 = BitwiseAnd(Add(k1, _u64(KEY_STEPS[1])), low)
        p0, p1 = Mul(a, _u64(MULTIPLIERS[0])), Mul(c, _u64(MULTIPLIERS[1]))
        a = BitwiseXor(BitwiseXor(BitShift(p1, half, direction="RIGHT"), b), k0)
        c = BitwiseXor(BitwiseXor(BitShift(p0, half, direction="RIGHT"), d), k1)
        b, d = BitwiseAnd(p1, low), BitwiseAnd(p0, low)
    return [a, b, c, d], count, Add(counter, OPS["Cast"](blocks, to=onnx_type(uint64)))


def _shaped(flat: TensorType, count: TensorBase, shape: TensorBase) -> TensorType:
    zero = number(0, int64)
    start, end = OPS["Unsqueeze"](zero, axes_tensor([0])), OPS["Unsqueeze"](count, axes_tensor([0]))
    return OPS["Reshape"](OPS["Slice"](flat, start, end), shape, allowzero=1)


# -- the same as kernels -----------------------------------------------------------------------------------------

CHUNK = 8192  # blocks; their six buffers stay in a core's own cache


@Philox.fast
def _(xp: XP, key: Any, counter: Any, shape: Any) -> Any:
    sizes, count, blocks = _sizes(shape)
    out = xp.empty((4, blocks), uint32)
    for place, words in _chunks(xp, key, counter, blocks):
        for row, word in enumerate(words):
            out[row, place] = word
    return _cut(out, count, sizes), xp.add(counter, uint64.type(blocks))


@RandomUniform.fast
def _(xp: XP, key: Any, counter: Any, shape: Any) -> Any:
    sizes, count, blocks = _sizes(shape)
    following = xp.add(counter, uint64.type(blocks))
    kernels = compiled_random.library(xp, key, count) if MODE.get().executor is None else None
    if kernels is not None:
        return compiled_random.uniform(kernels, key, counter, sizes), following
    out = xp.empty((4, blocks), float32)
    for place, words in _chunks(xp, key, counter, blocks):
        for row, word in enumerate(words):
            word >>= uint64.type(8)
            # by way of int64, which processors convert faster; exact, for these are 24 bits
            out[row, place] = word.view(int64)
    out *= float32.type(TO_UNIT)
    return _cut(out, count, sizes), following


@PhiloxDropout.fast
def _(xp: XP, X: Any, key: Any, counter: Any, *, p: float) -> Any:
    drawn, _ = RandomUniform.kernel(xp, key, counter, np.array(X.shape, int64))
    kept = (drawn >= float32.type(p)).astype(X.dtype)
    return X * (kept * X.dtype.type(1 / (1 - p)))


@RandomNormal.fast
def _(xp: XP, key: Any, counter: Any, shape: Any) -> Any:
    sizes, count, blocks = _sizes(shape)
    out = xp.empty((4, blocks), float32)
    for place, words in _chunks(xp, key, counter, blocks):
        for pair in (0, 1):
            radius = (words[2 * pair].astype(float64) + 0.5) * TO_OPEN_UNIT
            xp.log(radius, out=radius)
            radius *= -2.0
            xp.sqrt(radius, out=radius)
            angle = words[2 * pair + 1].astype(float64) * TO_ANGLE
            out[pair, place] = radius * xp.cos(angle)
            out[2 + pair, place] = radius * xp.sin(angle)
    return _cut(out, count, sizes), xp.add(counter, uint64.type(blocks))


def _sizes(shape: Any) -> tuple[list[int], int, int]:
    sizes = shape.tolist()
    count = int(np.prod(sizes, dtype=np.int64))
    return sizes, count, (count + 3) // 4


def _cut(planes: Any, count: int, sizes: list[int]) -> Any:
    return planes.reshape(-1)[:count].reshape(sizes)


def _chunks(xp: XP, key: Any, counter: Any, blocks: int) -> Iterator[tuple[Any, list[Any]]]:
    """(slice, four uint64 arrays) after another; the arrays are written anew each time."""
    low, half = uint64.type(LOW), uint64.type(32)
    k0, k1 = key & low, key >> half
    keys = []
    for _ in range(ROUNDS):
        keys.append((k0, k1))
        k0, k1 = (k0 + uint64.type(KEY_STEPS[0])) & low, (k1 + uint64.type(KEY_STEPS[1])) & low
    m0, m1 = uint64.type(MULTIPLIERS[0]), uint64.type(MULTIPLIERS[1])
    chunk = CHUNK if xp.__name__ == "numpy" else max(blocks, 1)
    for start in range(0, blocks, chunk):
        stop = min(start + chunk, blocks)
        place = xp.arange(start, stop, dtype=uint64)
        place += counter
        a, b = place & low, place >> half
        c, d = xp.zeros_like(a), xp.zeros_like(a)
        p0, p1 = xp.empty_like(a), xp.empty_like(a)
        for k0, k1 in keys:
            xp.multiply(a, m0, out=p0)
            xp.multiply(c, m1, out=p1)
            xp.right_shift(p1, half, out=a)
            a ^= b
            a ^= k0
            xp.right_shift(p0, half, out=c)
            c ^= d
            c ^= k1
            xp.bitwise_and(p1, low, out=b)
            xp.bitwise_and(p0, low, out=d)
        yield slice(start, stop), [a, b, c, d]
