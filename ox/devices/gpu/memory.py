"""What CuPy's pools may take of a GPU, and the error when there is no more."""

from __future__ import annotations

from functools import cache
from typing import Any

from ox.devices.gpu import nvml
from ox.errors import OutOfMemoryError

UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def size_text(count: float) -> str:
    """``1.50 GiB``, ``512 bytes``."""
    unit = 0
    while count >= 1024 and unit + 1 < len(UNITS):
        count, unit = count / 1024, unit + 1
    return f"{count:.2f} {UNITS[unit]}" if unit else f"{int(count)} bytes"


def explain_errors(module: Any) -> None:
    """Let memory that CuPy cannot allocate raise an error of ox, whoever asks for it. A user's own allocator stays."""
    pool = module.get_default_memory_pool()
    if module.cuda.get_allocator() == pool.malloc:
        allocate, too_much = pool.malloc, module.cuda.memory.OutOfMemoryError

        def malloc(size: int) -> Any:
            try:
                return allocate(size)
            except too_much as error:
                raise out_of_memory(module, size, error) from None

        module.cuda.set_allocator(malloc)


def out_of_memory(module: Any, size: int, error: Exception) -> OutOfMemoryError:
    """The error for an allocation on the current device that CuPy has refused.

    Args:
        module: CuPy.
        size: the bytes that were asked for.
    """
    pool, device = module.get_default_memory_pool(), module.cuda.Device().id
    free, total = module.cuda.runtime.memGetInfo()
    limit = pool.get_limit()
    facts = {
        "CuPy's pool": f"{size_text(pool.used_bytes())} in use of {size_text(pool.total_bytes())} that it holds"
        + (f", at most {size_text(limit)}" if limit else ""),
        f"cuda:{device}": f"{size_text(free)} free of {size_text(total)}",
    }
    if others := nvml.others(device):
        facts[nvml.OTHERS] = others
    hint = "a smaller batch, ox.autocast('cuda'), or ox.cuda.empty_cache(); other programs on the device: nvidia-smi"
    if limit and limit < total:
        hint = "ox.cuda.set_per_process_memory_fraction() with a higher limit, " + hint
    kind: Any = type(error)
    return _class(kind)(f"cuda:{device} has no memory for {size_text(size)} more", extra=facts, hint=hint)


@cache
def _class(theirs: Any) -> type[OutOfMemoryError]:
    """Also CuPy's own class, which its code, and others', may catch."""

    class CupyOutOfMemoryError(OutOfMemoryError, theirs):  # type: ignore[misc]
        """Memory of a GPU that CuPy's pool could not get."""

        def __reduce__(self) -> Any:
            return OutOfMemoryError, (self.what,), self.__dict__

    return CupyOutOfMemoryError
