"""Kernels of a GPU that go over elements: activations and their gradients, dropout, random numbers."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from ox.devices import cuda_state
from ox.devices.gpu.cupy_device import cupy, ordinal
from ox.devices.gpu.kernels import THREADS, blocks_of_elements, kernel
from ox.devices.gpu.multi_tensor import is_on_device
from ox.dtypes import bfloat16, float16, float32

HALVES = (float16, bfloat16)


def launch(function: Any, count: int, *arguments: Any) -> None:
    """Run a kernel of elements. Arguments are arrays on the GPU, whole numbers and numbers of NumPy."""
    function((blocks_of_elements(count),), (THREADS,), (count, *arguments))


def _pointwise(name: str, dtype: Any) -> Any:
    if dtype == float32:
        return kernel(name, "pointwise.cu")
    return kernel(f"{name}_bfloat16", "pointwise.cu" if dtype == bfloat16 else "device_halves.cu")


def _in_one_order(arrays: list[Any]) -> tuple[list[Any], Any]:
    """Arrays of one shape and type whose elements lie in one order in memory without gaps, and a new one that lies so:
    in rows, or as the first one does that does not."""
    for lead in arrays:
        if not lead.flags.c_contiguous:
            break
    else:
        return arrays, cupy().empty(lead.shape, lead.dtype)
    y = cupy().empty_like(lead)
    if y.strides != lead.strides:  # with gaps, or with elements that are repeated
        return [cupy().ascontiguousarray(a) for a in arrays], cupy().empty(lead.shape, lead.dtype)
    for i, a in enumerate(arrays):
        if a.strides != y.strides:
            arrays[i] = cupy().empty_like(y)
            arrays[i][...] = a
    return arrays, y


def pointwise(name: str) -> Any:
    """A kernel of pointwise.cu: of one array, or of two of one shape."""

    def run(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        first = arrays[0]
        if (first.dtype != float32 and first.dtype not in HALVES) or not first.size:
            return None
        if any(a.shape != first.shape or a.dtype != first.dtype for a in arrays):
            return None
        arrays, y = _in_one_order(arrays)
        launch(_pointwise(name, first.dtype), y.size, *arrays, y)
        return y

    return run


def binary(name: str) -> Any:
    """A kernel of pointwise.cu of two arrays in rows. CuPy, which needs more time for a call, does other layouts."""

    def run(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        a, b = arrays
        dtype, shape = a.dtype, a.shape
        if shape != b.shape or dtype != b.dtype or (dtype != float32 and dtype not in HALVES):
            return None
        if not (a.size and a.flags.c_contiguous and b.flags.c_contiguous):
            return None
        y = cupy().empty(shape, dtype)
        launch(_pointwise(name, dtype), y.size, a, b, y)
        return y

    return run


def by_approximation(exact: str, tanh: str) -> Any:
    """Gelu and its gradient."""
    found = {"none": pointwise(exact), "tanh": pointwise(tanh)}
    return lambda xp, arrays, attributes: found[attributes.get("approximate", "none")](xp, arrays, attributes)


def with_alpha_1(name: str) -> Any:
    """A kernel that knows no other `alpha`."""
    run = pointwise(name)
    return lambda xp, arrays, attributes: run(xp, arrays, attributes) if attributes.get("alpha", 1.0) == 1.0 else None


def dropout(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """PhiloxDropout. Key and counter are on the host; in compiled calls, on the device."""
    x, key, counter = arrays
    p = attributes["p"]
    if not x.size or not p < 1 or (x.dtype != float32 and x.dtype not in HALVES):
        return None
    if is_on_device(key) and is_on_device(counter):
        name, start = "ox_dropout_by_device_key", (key, counter)
    elif is_on_device(key) or is_on_device(counter):
        return None
    else:
        name, start = "ox_device_dropout", (signed(key), signed(counter))
    x, y, scale = cupy().ascontiguousarray(x), cupy().empty(x.shape, x.dtype), x.dtype.type(1 / (1 - p))
    dropped = kernel(name, "device_random.cu", x.dtype)
    launch(dropped, (x.size + 3) // 4, x, y, *start, np.float32(p), np.float32(scale), x.size)
    return y


def device_random(name: str) -> Any:
    """RandomUniform or RandomNormal with key and counter on the device, as in compiled calls; the shape on the host."""

    def run(xp: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        key, counter, shape = arrays
        sizes = shape.tolist()
        if not is_on_device(counter) or not prod(sizes):
            return None
        made, following = cupy().empty(sizes, float32), cupy().empty((), np.uint64)
        launch(kernel(name, "device_random.cu"), (made.size + 3) // 4, made, key, counter, following, made.size)
        return made, following

    return run


DRAWS = {"ox.RandomUniform": "ox_random_uniform", "ox.RandomNormal": "ox_device_random_normal"}


def random(op: str, key: Any, counter: Any, sizes: list[int], device: str) -> Any:
    """What RandomUniform and RandomNormal give first, made on a GPU.

    Args:
        key, counter: uint64 on the host.
    """
    with cupy().cuda.Device(ordinal(device)):
        made = cupy().empty(sizes, float32)
        if made.size:
            blocks = (prod(sizes) + 3) // 4
            launch(kernel(DRAWS[op], "device_random.cu"), blocks, made, signed(key), signed(counter), made.size)
    cuda_state.in_use = True
    return made


def signed(number: Any) -> int:
    """The int64 of the same bits."""
    value = int(number)
    return value - (1 << 64) if value >> 63 else value
