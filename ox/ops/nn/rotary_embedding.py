"""RotaryEmbedding: positions as rotations of pairs of features."""

from typing import Any

import numpy as np

from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor
from ox.core.operator import OPS, operator
from ox.core.tensor import TensorBase
from ox.core.types import XP, Int64, T
from ox.dtypes import bfloat16, float16, float32
from ox.errors import ArgumentError, ShapeError
from ox.ops.elementwise.arithmetic import Add, Mul, Neg, Sub
from ox.ops.index.gather import add_along, product_of
from ox.ops.nn.normalization import widely

__all__ = ["RotaryEmbedding"]


@operator(
    "Y", kind="attention", T=(float32, float16, bfloat16), amp="widest", batching="each", settings="cos_cache sin_cache"
)
def RotaryEmbedding(
    xp: XP,
    X: T,
    cos_cache: T,
    sin_cache: T,
    position_ids: Int64 = None,
    *,
    interleaved: int = 0,
    num_heads: int | None = None,
    rotary_embedding_dim: int = 0,
) -> T:
    """Each pair of features turned by the angle of its position. ONNX RotaryEmbedding.

    X [N, heads, T, E], or [N, T, heads·E] with `num_heads`; the caches [positions, D/2] with position_ids [N, T], or
    [N, T, D/2] without. D is `rotary_embedding_dim`, by default E; features beyond it stay. Pairs are (i, i + D/2), or
    with `interleaved` (2i, 2i + 1).
    """
    if X.ndim not in (3, 4) or (X.ndim == 3 and not num_heads):
        raise ArgumentError(
            "RotaryEmbedding takes X [N, heads, T, E], or [N, T, heads·E] with num_heads",
            got=f"X {list(X.shape)}, num_heads {num_heads}",
        )
    x = X.transpose(0, 2, 1, 3) if X.ndim == 4 else X.reshape(*X.shape[:2], num_heads, -1)
    turned = rotary_embedding_dim or x.shape[-1]
    cos, sin = (c if position_ids is None else c[position_ids] for c in (cos_cache, sin_cache))
    if cos.shape[-1] * 2 != turned or sin.shape != cos.shape:
        raise ShapeError(
            f"RotaryEmbedding of {turned} features needs caches of {turned // 2}",
            got=f"{list(cos_cache.shape)} and {list(sin_cache.shape)}",
        )
    cos, sin = (widely(c)[:, :, np.newaxis, :] for c in (cos, sin))
    y = widely(x).copy()
    first, second = _pairs(y, turned, interleaved)
    a, b = first.copy(), second.copy()
    first[...] = cos * a - sin * b
    second[...] = sin * a + cos * b
    y = y.astype(X.dtype, copy=False)
    return y.transpose(0, 2, 1, 3) if X.ndim == 4 else y.reshape(X.shape)


def _pairs(x: Any, turned: int, interleaved: int) -> Any:
    if interleaved:
        return x[..., 0:turned:2], x[..., 1:turned:2]
    return x[..., : turned // 2], x[..., turned // 2 : turned]


@RotaryEmbedding.gradient("X")
def _(
    g: TensorBase,
    cos_cache: TensorBase,
    sin_cache: TensorBase,
    position_ids: TensorBase | None,
    interleaved: int,
    num_heads: int | None,
    rotary_embedding_dim: int,
) -> TensorBase:
    # a rotation is undone by the opposite one
    return RotaryEmbedding(
        g,
        cos_cache,
        Neg(sin_cache),
        position_ids,
        interleaved=interleaved,
        num_heads=num_heads,
        rotary_embedding_dim=rotary_embedding_dim,
    )


@RotaryEmbedding.gradient("cos_cache", "sin_cache")
def _(
    g: TensorBase,
    X: TensorBase,
    position_ids: TensorBase | None,
    cos_cache_shape: tuple[int, ...],
    interleaved: int,
    num_heads: int | None,
    rotary_embedding_dim: int,
) -> tuple[TensorBase, TensorBase]:
    (a, b), (to_first, to_second) = (
        _halves(each, cos_cache_shape[-1], interleaved, num_heads, rotary_embedding_dim) for each in (X, g)
    )
    heads = axes_tensor([1])
    grads = []
    for each in (
        Add(Mul(to_first, a), Mul(to_second, b)),
        Sub(Mul(to_second, a), Mul(to_first, b)),
    ):
        summed = OPS["ReduceSum"](each, heads, keepdims=0)
        if position_ids is not None:
            count = product_of(position_ids.shape)
            rows = reshape_to(summed, [count, cos_cache_shape[-1]])
            summed = add_along(rows, reshape_to(position_ids, [count]), 0, cos_cache_shape[0])
        grads.append(summed)
    return grads[0], grads[1]


def _halves(x: TensorBase, half: int, interleaved: int, num_heads: int | None, turned: int) -> tuple[Any, Any]:
    """The first and the second feature of each pair, [N, heads, T, half] each."""
    if x.ndim == 3:
        shape = x.shape
        x = OPS["Transpose"](reshape_to(x, [shape[0], shape[1], num_heads or 1, -1]), perm=[0, 2, 1, 3])
    turned = turned or 2 * half
    ranges = ((0, turned, 2), (1, turned, 2)) if interleaved else ((0, half, 1), (half, turned, 1))
    first, second = (OPS["Slice"](x, *(axes_tensor([n]) for n in (start, end, 3, step))) for start, end, step in ranges)
    return first, second
