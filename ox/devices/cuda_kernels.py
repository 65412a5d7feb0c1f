"""Generated kernels on a GPU, compiled by NVRTC through CuPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ox.devices.cuda import cupy
from ox.errors import OxError
from ox.kernels.gpu_source import gpu_source

THREADS = 256  # of a block
WARP = 32  # threads that work on one row, or one block of elements: cuda.h
MOST_BLOCKS = 1 << 16  # of a launch; each takes several rows

Kernel = Callable[[int, int, int], None]  # the number of rows; addresses of the table and the plan (blocks.h)


class NvrtcError(OxError):
    """A source that NVRTC refuses."""


def load(text: str, names: Sequence[str]) -> dict[str, Kernel]:
    """The kernels of a source in the language of ox/kernels/source, by name.

    Raises:
        NvrtcError: it does not compile; the error has the compiler's log.
    """
    module = cupy().RawModule(code=gpu_source(text), options=("--std=c++17",))
    try:
        return {name: _launch(module.get_function(name)) for name in names}
    except cupy().cuda.compiler.CompileException as error:
        raise NvrtcError("NVRTC does not compile a generated kernel", got=str(error)[:2000]) from error


def _launch(function: Any) -> Kernel:
    def launch(count: int, table: int, plan: int) -> None:
        blocks = min(-(-count * WARP // THREADS), MOST_BLOCKS)
        function((blocks,), (THREADS,), (count, table, plan))

    return launch
