"""Subnormal numbers of float32 on a GPU (below 1.2e-38): kernels flush them to zero, or compute with them.

CuPy compiles all kernels with ``-ftz=true``, its own and those that it is given, and has no option for it. NVRTC's own
default is ``-ftz=false``, as is nvcc's, by which PyTorch's kernels are compiled. Source: CUDA, "NVRTC", Supported
Compile Options; CuPy's ``cupy/cuda/compiler.py``.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from ox.errors import ArgumentError, DeviceError

SWITCH = "OX_CUDA_FLUSH_DENORMALS"
FLUSHES, KEEPS = "-ftz=true", "-ftz=false"


class _Options(tuple[str, ...]):
    """Compiler options to which CuPy adds that of flushing in vain."""

    def __add__(self, more: Iterable[str]) -> _Options:  # type: ignore[override]
        return _Options((*self, *(KEEPS if option == FLUSHES else option for option in more)))


def follow_switch(cupy: Any) -> None:
    """Let kernels that are compiled from now on keep subnormal numbers if OX_CUDA_FLUSH_DENORMALS is 0. To be called
    before the first kernel: CuPy compiles each once. Its caches on disk tell the options apart.

    Raises:
        ArgumentError: the variable is neither 0 nor 1. DeviceError: not with this CuPy.
    """
    value = os.environ.get(SWITCH, "1")
    if value not in ("0", "1"):
        hint = "0: kernels compute with subnormal numbers; 1, the default: they take them for 0"
        raise ArgumentError(f"{SWITCH} is a switch", where="", expected="0 or 1", got=repr(value)[:80], hint=hint)
    if value == "1":
        return
    compiler = cupy.cuda.compiler
    compile_ = getattr(compiler, "_compile_with_cache_cuda", None)
    if compile_ is None:
        got = f"CuPy {cupy.__version__}"
        raise DeviceError(f"{SWITCH}=0 needs another CuPy", expected="CuPy 14", got=got, hint="without that variable")

    def compile_exactly(source: str, options: tuple[str, ...] = (), *more: Any, **named: Any) -> Any:
        return compile_(source, _Options(options), *more, **named)

    compiler._compile_with_cache_cuda = compile_exactly
