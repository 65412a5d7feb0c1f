"""Kernels over many tensors of a GPU in one launch: tables of addresses, and what ox/kernels/source has for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ox.devices import cuda_state
from ox.devices.gpu import device_checks
from ox.devices.gpu.cupy_device import cupy, to_device
from ox.devices.gpu.kernels import THREADS, are_on, functions
from ox.dtypes import DType, bfloat16, float16, float32, float64

KINDS = {float32: 0, float16: 1, bfloat16: 2, float64: 3}  # device_numbers.h
SOURCE = '#include "device_tensors.cu"\n'
NAMES = (
    "ox_unscale_tensors", "ox_multiply_tensors", "ox_square_sums_of_tensors", "ox_norm_of_sums", "ox_clip_factor",
    "ox_update_scale", "ox_check_scale",
)  # fmt: skip
PER_THREAD = 8  # elements, about
MOST_BLOCKS = 512  # blocks of one tensor


def kind_of(array: Any) -> int | None:
    """The number of its element type in kernels; None for one that they do not have."""
    return KINDS.get(array.dtype)


def is_on_device(array: Any) -> bool:
    """Whether something is an array on a GPU, for whose kernels it may be."""
    return isinstance(array, cuda_state.array_type) and are_on()


def is_dense(array: Any) -> bool:
    """Whether its elements lie one after the other."""
    flags = array.flags
    return bool(flags.c_contiguous or flags.f_contiguous)


def apart(arrays: Sequence[Any]) -> list[bool]:
    """For each array of a GPU whether kernels may write it among the others: of a type that they have, dense, and in
    memory that no other one of them shares."""
    order = sorted(range(len(arrays)), key=lambda i: arrays[i].data.ptr)
    result = [kind_of(a) is not None and a.size > 0 and is_dense(a) for a in arrays]
    end, last = 0, -1  # of the memory so far, and whose it is
    for i in order:
        begin = arrays[i].data.ptr
        if begin < end:
            result[i] = result[last] = False
        if begin + arrays[i].nbytes > end:
            end, last = begin + arrays[i].nbytes, i
    return result


def by_device(arrays: Sequence[Any]) -> list[list[int]]:
    """The numbers of arrays of each GPU, in the order in which these come first: a kernel reads memory of its own."""
    found: dict[int, list[int]] = {}
    for i, array in enumerate(arrays):
        found.setdefault(array.data.device_id, []).append(i)
    return list(found.values())


def beside(number: Any, array: Any) -> Any:
    """A number on a GPU, on the GPU of an array."""
    device = array.data.device_id
    return number if number.data.device_id == device else to_device(number, f"cuda:{device}")


def table(lines: Sequence[Sequence[int]]) -> Any:
    """int64 [lines, width] on the GPU. The memory of arrays comes back from step to step, and so do their addresses:
    most tables were uploaded before."""
    content = np.array(lines, np.int64)
    return _uploaded(content.tobytes(), cupy().cuda.Device().id, cupy().cuda.get_current_stream().ptr)


@lru_cache(maxsize=64)
def _uploaded(content: bytes, device: int, stream: int) -> Any:
    return cupy().asarray(np.frombuffer(content, np.int64))


def grid(sizes: Sequence[int]) -> tuple[int, int]:
    """A column of blocks for each tensor."""
    return len(sizes), min(max(1, -(-max(sizes) // (THREADS * PER_THREAD))), MOST_BLOCKS)


class Tensors:
    """Dense arrays of a GPU, of the types that kernels have.

    Args:
        arrays: one at least, those of `apart`.
    """

    def __init__(self, arrays: Sequence[Any]) -> None:
        self._arrays = arrays
        self._table = table([(a.data.ptr, KINDS[a.dtype], a.size) for a in arrays])
        self._grid = grid([a.size for a in arrays])
        self._functions = functions(SOURCE, NAMES)

    def unscale(self, scale: Any, found: Any) -> None:
        """Divide by the float32 `scale`, and set the float32 `found` to 1 if an infinity or NaN was there."""
        self._functions["ox_unscale_tensors"](self._grid, (THREADS,), (self._table, scale, found))

    def norm(self, dtype: DType) -> Any:
        """The 2-norm of all elements together, in a type of floats; summed in float64, in a fixed order."""
        xp = cupy()
        sums = xp.empty(self._grid[0] * self._grid[1], np.float64)
        made = xp.empty((), dtype)
        self._functions["ox_square_sums_of_tensors"](self._grid, (THREADS,), (self._table, sums))
        self._functions["ox_norm_of_sums"]((1,), (THREADS,), (sums, sums.size, made.data.ptr, KINDS[dtype]))
        return made

    def clip(self, most: float, norm: Any) -> None:
        """Multiply by ``most / (norm + 1e-6)`` where that is below 1; `norm` is a number on the GPU."""
        factor = cupy().empty((), np.float64)
        self._functions["ox_clip_factor"]((1,), (1,), (norm.data.ptr, KINDS[norm.dtype], np.float64(most), factor))
        self._functions["ox_multiply_tensors"](self._grid, (THREADS,), (self._table, factor))


@dataclass(frozen=True)
class Collapse:
    """When the scale of a GradScaler has collapsed: so many steps skipped in a row, at a scale below this one. `check`
    is the number of the check (`ox.devices.gpu.device_checks`) that then fails."""

    skips: int
    scale: float
    check: int


def update_scale(
    numbers: tuple[Any, Any, Any], found: Any, growth: float, backoff: float, interval: int, limit: Collapse
) -> None:
    """The numbers of a GradScaler after an iteration, in place.

    Args:
        numbers: scale, growth tracker and count of skipped steps: float32, int64 and int64 on the GPU.
        found: a float32 flag there.
    """
    functions(SOURCE, NAMES)["ox_update_scale"](
        (1,), (1,),
        (*numbers, found, np.float64(growth), np.float64(backoff), interval, np.float64(limit.scale), limit.skips,
         device_checks.address(), limit.check),
    )  # fmt: skip
    device_checks.after_launch()


def check_scale(scale: Any, skipped: Any, limit: Collapse) -> None:
    """Look for a collapse of numbers that are those of `update_scale` after an iteration, without waiting."""
    functions(SOURCE, NAMES)["ox_check_scale"](
        (1,), (1,),
        (scale, skipped, np.float64(limit.scale), limit.skips, device_checks.address(), limit.check),
    )  # fmt: skip
    device_checks.after_launch()
