"""Attention in blocks on a GPU, of float32, float16 and bfloat16: by cuDNN where it takes the call, else by kernels of
ours (device_attention.cu). Each function gives None for what neither does."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.devices.cpu_kernels.attention import fits, in_rank_4, lying_as
from ox.devices.gpu import cudnn_attention
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.elementwise import signed
from ox.devices.gpu.kernels import THREADS, kernel
from ox.devices.gpu.multi_tensor import is_on_device
from ox.dtypes import HALF_TYPES, bool_, float32

TILE = 64  # queries, or keys, of a block: device_attention.cu
WIDTHS = (32, 64, 128, 256)  # that the kernels are compiled for
NO_MASK = (0,) * 5


def width_of(*arrays: Any) -> int | None:
    """The width of the kernels for these queries and values; None where they are too wide."""
    widest = max(x.shape[-1] for x in arrays)
    return next((width for width in WIDTHS if widest <= width), None)


def attention(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttention. The logarithms are of float32."""
    q, k, v, *more = arrays
    if not _are_there(arrays[:6]):
        return None
    found = cudnn_attention.attention(xp, arrays, attributes)
    if found is not None:
        return found
    if not _takes([q, k, v], [q, k, v], more, attributes):
        return None
    leads = q.shape[:-1]
    q, k, v = (_rows(x) for x in (q, k, v))
    y, logs = lying_as(cupy().empty, q, v.shape[3]), cupy().empty(leads, float32)
    numbers, held = _numbers([q, k, v, y], logs, more, leads[:-1], attributes)
    _launch("ox_device_attention", q, v, q.shape[0] * q.shape[1], q.shape[2], [numbers], attributes)
    del held
    return y.reshape(*leads, v.shape[3]), logs


def attention_gradient(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BlockwiseAttentionGradient, from the logarithms that `attention` gave."""
    if not _are_there(arrays[:9]):
        return None
    found = cudnn_attention.attention_gradient(xp, arrays, attributes)
    if found is not None:
        return found
    g, q, k, v, y, logs, *more = arrays
    if logs.dtype != float32 or not _takes([q, k, v], [g, q, k, v, y], more, attributes):
        return None
    shapes, leads = [x.shape for x in (q, k, v)], q.shape[:-2]
    g, q, k, v, y = (_rows(x) for x in (g, q, k, v, y))
    logs = cupy().ascontiguousarray(logs)
    numbers, held = _numbers([q, k, v, y], logs, more, leads, attributes)
    made, dots = [lying_as(cupy().empty, x, x.shape[3]) for x in (q, k, v)], cupy().empty(logs.shape, float32)
    gradients = _structure([*(number for x in (g, *made) for number in _place(x)), dots.data.ptr])
    for name, x in (("ox_device_attention_to_q", q), ("ox_device_attention_to_keys", k)):
        _launch(name, q, v, x.shape[0] * x.shape[1], x.shape[2], [numbers, gradients], attributes)
    del held
    return tuple([x.reshape(shape) for x, shape in zip(made, shapes, strict=True)])


def _are_there(arrays: list[Any]) -> bool:
    """Whether all of these are on the GPU: key and counter alone may be numbers of the host."""
    return all(x is None or is_on_device(x) for x in arrays)


def _takes(factors: list[Any], alike: list[Any], more: list[Any], attributes: dict[str, Any]) -> bool:
    q, _, v = factors
    allowed, bias, kept, *_ = [*more, None, None, None]
    numbers = [x for x in (*alike, bias, kept) if x is not None]
    return (
        q.dtype in (float32, *HALF_TYPES)
        and all(x.dtype == q.dtype for x in numbers)
        and (allowed is None or allowed.dtype == bool_)
        and q.ndim > 1
        and fits(factors, attributes)
        and width_of(q, v) is not None
    )


def _rows(x: Any) -> Any:
    """`x` in four dimensions, the last one without gaps."""
    x = in_rank_4(x)
    return x if x.strides[3] == x.itemsize or x.shape[3] == 1 else cupy().ascontiguousarray(x)


def _place(x: Any) -> tuple[int, ...]:
    """The numbers of Matrix."""
    return x.data.ptr, *[step // x.itemsize for step in x.strides[:3]]


def _mask(mask: Any, shape: tuple[int, ...], held: list[Any]) -> tuple[int, ...]:
    """The numbers of Mask; `held` is what has to live as long as they are used."""
    if mask is None:
        return NO_MASK
    whole = in_rank_4(cupy().broadcast_to(mask, shape))
    held.append(whole)
    return whole.data.ptr, *[step // whole.itemsize for step in whole.strides]


def _structure(numbers: list[int]) -> Any:
    """64-bit numbers that a kernel takes as one argument."""
    return np.array(numbers, np.int64).view(f"V{8 * len(numbers)}")


def _numbers(
    matrices: list[Any], logs: Any, more: list[Any], leads: tuple[int, ...], attributes: dict[str, Any]
) -> tuple[Any, list[Any]]:
    """The numbers of Attention (device_attention.cu), in its order, and what has to live as long."""
    q, k, v, _ = matrices
    allowed, bias, kept, key, counter = [*more, None, None, None, None, None][:5]
    held: list[Any] = [key, counter]
    shape = (*leads, q.shape[2], k.shape[2])
    masks = [number for mask in (allowed, bias, kept) for number in _mask(mask, shape, held)]
    start = [0 if x is None or is_on_device(x) else signed(x) for x in (key, counter)]
    blocks = 0 if key is None else (logs.size * k.shape[2] + 3) // 4
    there = [x.data.ptr if x is not None and is_on_device(x) else 0 for x in (key, counter)]
    sizes = [q.shape[1], attributes.get("group", 1), q.shape[2], k.shape[2], q.shape[3], v.shape[3]]
    places = [number for x in matrices for number in _place(x)]
    causal = attributes.get("causal", 0)
    return _structure([*sizes, causal, *masks, *places, logs.data.ptr, *start, blocks, *there]), held


def _launch(
    name: str, q: Any, v: Any, heads: int, rows: int, structures: list[Any], attributes: dict[str, Any]
) -> None:
    function = kernel(name, "device_attention.cu", q.dtype, f"#define WIDTH {width_of(q, v)}\n")
    p = attributes.get("p", 0.0)
    left = np.float32(1 / (1 - p) if p < 1 else 0.0)
    scale = np.float32(attributes.get("scale", 1.0))
    function((heads * -(-rows // TILE),), (THREADS,), (*structures, scale, np.float32(p), left))
