"""Kernels on a GPU, compiled by NVRTC through CuPy: those of ox/kernels/source, and generated ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from ox.devices.gpu.cupy_device import cupy
from ox.dtypes import DType, bfloat16, float16, float32, float64
from ox.errors import OxError
from ox.kernels.gpu_source import gpu_source
from ox.kernels.library import OFF

THREADS = 256  # of a block
WARP = 32  # threads that work on one row, or one block of elements: cuda.h
MOST_BLOCKS = 1 << 16  # of a launch; each takes several rows
OPTIONS = ("--std=c++17",)
# Without fused multiply-add: each operation rounds, as those of CuPy's own kernels one after the other do
EXACT = (*OPTIONS, "--fmad=false")
# What a source has of an element type: NUMBER in memory, which LOAD and STORE convert from and to COMPUTED
TYPES: dict[DType, tuple[str, str, str, str]] = {
    float32: ("float", "x", "x", "float"),
    float16: ("unsigned short", "from_half(x)", "to_half(x)", "float"),
    bfloat16: ("unsigned short", "from_bfloat16(x)", "to_bfloat16(x)", "float"),
    float64: ("double", "x", "x", "double"),
}

# Unsigned words by their bytes, of which kernels that only move elements copy any type
WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned int", 8: "unsigned long long", 16: "uint4"}

Kernel = Callable[[int, int, int], None]  # the number of rows; addresses of the table and the plan (blocks.h)


@cache
def are_on() -> bool:
    """Whether kernels of ours run on GPUs: not with ``OX_KERNELS=off``, which leaves all to CuPy."""
    return os.environ.get("OX_KERNELS", "").lower() not in OFF


class NvrtcError(OxError):
    """A source that NVRTC refuses."""


def load(text: str, names: Sequence[str]) -> dict[str, Kernel]:
    """The kernels of a source in the language of ox/kernels/source, by name.

    Raises:
        NvrtcError: it does not compile; the error has the compiler's log.
    """
    return {name: _launch(function) for name, function in _functions(text, names, OPTIONS).items()}


@cache
def functions(text: str, names: tuple[str, ...], options: tuple[str, ...] = EXACT) -> dict[str, Any]:
    """Kernels as CuPy has them: called with the grid, the block and the arguments. Compiled once a process.

    Raises:
        NvrtcError: as in `load`.
    """
    return _functions(text, names, options)


def typed(file: str, dtype: DType, more: str = "") -> str:
    """A source of ox/kernels/source for an element type.

    Args:
        more: further lines before it.
    """
    number, load_, store, computed = TYPES[dtype]
    head = (
        f"#define NUMBER {number}\n#define LOAD(x) ({load_})\n#define STORE(x) ({store})\n#define COMPUTED {computed}\n"
    )
    return f'{head}{more}#include "{file}"\n'


@cache
def kernel(name: str, file: str, dtype: DType = float32, more: str = "") -> Any:
    """One kernel of a source for an element type, called as those of `functions`. Errors as there."""
    return functions(typed(file, dtype, more), (name,), OPTIONS)[name]


def _functions(text: str, names: Sequence[str], options: tuple[str, ...]) -> dict[str, Any]:
    module = cupy().RawModule(code=gpu_source(text), options=options)
    try:
        return {name: module.get_function(name) for name in names}
    except cupy().cuda.compiler.CompileException as error:
        raise NvrtcError("NVRTC does not compile a kernel", got=str(error)[:2000]) from error


def _launch(function: Any) -> Kernel:
    def launch(count: int, table: int, plan: int) -> None:
        function((blocks_of_rows(count),), (THREADS,), (count, table, plan))

    return launch


def blocks_of_rows(rows: int) -> int:
    """Of a launch in which a warp does a row."""
    return max(1, min(-(-rows * WARP // THREADS), MOST_BLOCKS))


def blocks_of_elements(count: int) -> int:
    """Of a launch in which a thread does an element, or several."""
    return max(1, min(-(-count // THREADS), MOST_BLOCKS))


def together(size: int, *arrays: Any) -> int:
    """How many bytes a thread moves at once: the largest power of two, up to 16, that divides the bytes of each row and
    the addresses of arrays.

    Args:
        size: bytes of a row, which lie together.
    """
    bits = 16 | size
    for array in arrays:
        bits |= array.data.ptr
    return bits & -bits


def divisor(n: int) -> int:
    """A divisor from 1 to 2**31 - 1 as Divisor<int> of division.h has it."""
    power = 1 << 31 + (n - 1).bit_length()
    packed = -(-power // n) << 32 | n
    return packed - (1 << 64) if packed >> 63 else packed
