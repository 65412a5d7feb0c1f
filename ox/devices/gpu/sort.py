"""Places sorted on a GPU by kernels of a known number, which a CUDA graph can hold."""

from __future__ import annotations

from typing import Any

from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.elementwise import launch
from ox.devices.gpu.kernels import MOST_BLOCKS, THREADS, kernel
from ox.dtypes import int32, int64

INDEX = {int32: "int", int64: "long long"}
TILE = 2048  # keys that a block sorts (ox/kernels/source/device_sort.cu)


def sorted_places(places: Any, n: int) -> tuple[Any, int]:
    """Places in [-n, n) in ascending order, each with its position among them; equal ones stay in their order. The
    number of bits of n and of the positions is at most 63 together.

    Args:
        places: int32 or int64 [k], contiguous.

    Returns:
        keys: int64, at least [k]: places times 2**bits, plus positions. The place of what is outside is n.
        bits: of the positions.
    """
    bits = position_bits(places.size)
    keys = cupy().empty(1 << bits, int64)
    launch(_kernel("keys", places.dtype), keys.size, places, keys, places.size, n, bits)
    size = min(TILE, keys.size)
    _sort_tiles(keys, 2, size)
    while size < keys.size:
        size *= 2
        stride = size // 2
        while stride >= TILE:
            launch(_kernel("step"), keys.size // 2, keys, size, stride)
            stride //= 2
        _sort_tiles(keys, size, size)
    return keys, bits


def position_bits(count: int) -> int:
    """The bits of the positions of so many places."""
    return max(1, (count - 1).bit_length())


def _sort_tiles(keys: Any, first: int, last: int) -> None:
    """Steps of runs of `first` to `last` keys, as far as they are within tiles."""
    blocks = min(-(-keys.size // TILE), MOST_BLOCKS)
    _kernel("tile")((blocks,), (THREADS,), (keys, keys.size, first, last))


def _kernel(name: str, index: Any = int64) -> Any:
    return kernel(f"ox_device_sort_{name}", "device_sort.cu", more=f"#define INDEX {INDEX[index]}\n")
