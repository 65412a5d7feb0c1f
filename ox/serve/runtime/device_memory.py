"""A GPU's memory: the error of a run or a session that finds none, with who holds what."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from contextlib import suppress

from ox.devices import cuda
from ox.devices.gpu import nvml
from ox.devices.onnxruntime.arena import memory_error
from ox.errors import DeviceError, OutOfMemoryError, ServeError
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.lost_device import lost_device
from ox.serve.runtime.runtime_error import failed_operator

log = logging.getLogger("ox.serve")
MIB = 1 << 20
# Of CUDA, cuDNN, cuBLAS and ONNX Runtime's arena.
MISSING = re.compile(
    r"out of memory|_ALLOC_FAILED|Failed to allocate memory|bad_alloc|smaller than requested bytes", re.I
)


class DeviceMemory:
    """What runs on a GPU allocate from: the arena of their session, beside CuPy's pool and other processes.

    Args:
        limit: `gpu_mem_limit` in bytes, None for none.
        number: of the GPU.
    """

    def __init__(self, limit: int | None, number: int = 0) -> None:
        self.limit, self.number = limit, number

    def is_missing(self, error: Exception) -> bool:
        """Whether a failure is for lack of memory."""
        return isinstance(error, OutOfMemoryError) or MISSING.search(str(error)) is not None

    def refusal(self, error: Exception) -> ServeError | None:
        """The error for clients if a run failed for lack of memory or because the GPU is lost, else None.

        413 if the run wants more than `gpu_mem_limit` has for all, 503 if others have it. The other processes on the
        GPU are for the operator's log: clients are not told of them.
        """
        if not self.is_missing(error):
            with GATE.using():
                return lost_device(error, self.number)
        known, operator = memory_error(error), failed_operator(error)
        more = (f"{max(1, known[1] // MIB):,} MiB more" if known else "more") + (f" for {operator}" if operator else "")
        what, status = "the GPU has no memory left for this request", 503
        hint = "again in a moment, or a smaller request"
        if others := nvml.others(self.number):
            log.warning("a run finds no memory on cuda:%d, beside other processes: %s", self.number, others)
        if known is not None and self.limit is not None and known[1] > self.limit:
            what, status = "this request needs more memory of the GPU than a run may take", 413
            hint = "a smaller request, or a higher gpu_mem_limit"
        got = f"{more}; {self.holders()}"
        return ServeError(what, status=status, expected=self.allowed(), got=got, hint=hint)

    def allowed(self) -> str:
        """The limit, in words."""
        if self.limit is None:
            return "free memory (there is no gpu_mem_limit)"
        return f"at most {self.limit // MIB:,} MiB for a session (gpu_mem_limit)"

    def hint(self) -> str:
        """What to try where a model finds no memory."""
        others = "end another process on the GPU, " if nvml.others(self.number) else ""
        return f"{others}a lower gpu_mem_limit or fewer instances of other models, unload one, or another GPU"

    def others(self) -> dict[str, str]:
        """The other processes on the GPU, for `extra` of an error."""
        others = nvml.others(self.number)
        return {nvml.OTHERS: others} if others else {}

    def holders(self) -> str:
        """How much of the GPU is held now, in a line."""
        if not cuda.available():
            return "who holds it is not known without CuPy"
        held = cuda.memory(f"cuda:{self.number}")
        rest = max(0, held.total - held.free - held.held)
        return (
            f"of {held.total // MIB:,} MiB of cuda:{self.number}, {held.free // MIB:,} are free, CuPy's pool in this "
            f"process holds {held.held // MIB:,} ({held.used // MIB:,} in arrays), sessions of ONNX Runtime and other "
            f"processes {rest // MIB:,}"
        )


def free_bytes(number: int) -> int | None:
    """What is free on a GPU, or on a MIG slice of one, without what CuPy's pool does not use; None without CuPy, or
    where the GPU is lost."""
    if not cuda.available():
        return None
    with GATE.using(), suppress(DeviceError, cuda.cupy().cuda.runtime.CUDARuntimeError):
        free_pools([number])
        return cuda.memory(f"cuda:{number}").free
    return None


def outside_pool(number: int) -> int:
    """What of a GPU is free or in CuPy's pool: the rest is taken by sessions, CUDA graphs and other processes. Within
    `GATE`."""
    memory = cuda.memory(f"cuda:{number}")
    return memory.free + memory.held


def free_pools(numbers: Iterable[int]) -> None:
    """Gives unused blocks of CuPy's pools on some GPUs back to the device, also those of sessions that have ended.
    Within `GATE`; nothing without CuPy."""
    GATE.end_pending()
    for number in numbers if cuda.available() else ():
        with suppress(DeviceError, cuda.cupy().cuda.runtime.CUDARuntimeError):  # of a GPU that is lost
            cuda.empty_cache(f"cuda:{number}")
