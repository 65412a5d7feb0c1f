"""Blockwise attention on the compiled kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.dtypes import float32
from ox.kernels import Library, address

FLOAT = float32.itemsize


def in_rank_4(x: Any) -> Any:
    """[outer, heads, rows, columns]: a view, but for more leading dimensions than two that are no single one."""
    return x[(None,) * (4 - x.ndim)] if x.ndim < 4 else x.reshape(-1, *x.shape[-3:]) if x.ndim > 4 else x


def _rows(library: Library, x: Any) -> Any:
    """`x` as the kernels read it: four dimensions, the last one contiguous."""
    x = in_rank_4(x)
    steps = x.strides
    if (steps[3] != FLOAT and x.shape[3] > 1) or any(step % FLOAT for step in steps[:3]):
        return library.dense(x)
    return x


def lying_as(empty: Any, x: Any, width: int) -> Any:
    """A new array with the leading dimensions of `x`, in the order in which those of `x` lie in memory, so that what
    undoes a transposition of `x` copies nothing."""
    if x.flags.c_contiguous:
        return empty((*x.shape[:-1], width), x.dtype)
    order = sorted(range(3), key=lambda i: -x.strides[i])
    made = empty((*[x.shape[i] for i in order], width), x.dtype)
    return made.transpose(*[order.index(i) for i in range(3)], 3)


def _place(x: Any) -> tuple[int, ...]:
    """The numbers of ox::Rows."""
    a, b, c, _ = x.strides
    return address(x), a // FLOAT, b // FLOAT, c // FLOAT


NO_MASK = (0,) * 5


def _mask(library: Library, mask: Any, shape: tuple[int, ...], held: list[Any]) -> tuple[int, ...]:
    """The numbers of ox::Mask; `held` is what has to live as long as they are used."""
    if mask is None:
        return NO_MASK
    full = in_rank_4(np.broadcast_to(mask, shape))
    size = full.itemsize
    if any(step % size for step in full.strides):
        full = library.dense(full)
    held.append(full)
    return address(full), *[step // size for step in full.strides]


def _numbers(
    library: Library,
    arrays: list[Any],
    y: Any,
    logs: Any,
    masks: list[Any],
    leads: tuple[int, ...],
    attributes: dict[str, Any],
) -> tuple[Any, list[Any]]:
    """The numbers of ox::Attention (attention.h), in its order, and what has to live as long."""
    q, k, v = arrays
    held: list[Any] = []
    shape = (*leads, q.shape[2], k.shape[2])
    allowed, bias, kept = (_mask(library, m, shape, held) for m in (*masks, *[None] * (3 - len(masks))))
    numbers = [
        q.shape[0], q.shape[1], attributes.get("group", 1), q.shape[2], k.shape[2], q.shape[3], v.shape[3],
        attributes.get("causal", 0), *allowed, *bias, *kept, *_place(q), *_place(k), *_place(v), *_place(y),
        address(logs),
    ]  # fmt: skip
    return np.array(numbers, np.int64), held


def fits(arrays: list[Any], attributes: dict[str, Any]) -> bool:
    """Whether kernels take these shapes: the same leading dimensions, `group` heads of queries for one of keys."""
    (q, k, v), group = arrays, attributes.get("group", 1)
    heads = q.shape[:-2] if group == 1 else (*q.shape[:-3], q.shape[-3] // group) if q.ndim > 2 else None
    return k.shape[:-2] == v.shape[:-2] == heads and bool(q.size and k.size and v.size)


def attention(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttention."""
    if not fits(arrays[:3], attributes) or any(x is not None for x in arrays[6:]):
        return None
    leads = arrays[0].shape[:-1]
    q, k, v = (_rows(library, x) for x in arrays[:3])
    y, logs = lying_as(library.empty, q, v.shape[3]), library.empty(leads, float32)
    shape, _held = _numbers(library, [q, k, v], y, logs, arrays[3:6], leads[:-1], attributes)
    library.ox_attention(library.numbers(shape), attributes.get("scale", 1.0))
    return y.reshape(*leads, v.shape[3]), logs


def attention_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttentionGradient."""
    if not fits(arrays[1:4], attributes) or any(x is not None for x in arrays[9:]):
        return None
    g, q, k, v, y = (_rows(library, x) for x in arrays[:5])
    logs, leads = library.dense(arrays[5]), arrays[1].shape[:-2]
    shape, _held = _numbers(library, [q, k, v], y, logs, arrays[6:9], leads, attributes)
    made = [lying_as(library.empty, x, x.shape[3]) for x in (q, k, v)]
    gradients = np.array([number for x in (g, *made) for number in _place(x)], np.int64)
    library.ox_attention_backward(library.numbers(shape), library.numbers(gradients), attributes.get("scale", 1.0))
    return tuple([x.reshape(given.shape) for x, given in zip(made, arrays[1:4], strict=True)])
