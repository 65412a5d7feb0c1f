"""Compiled kernels: one source (CUDA C++ with a few macros) for CPUs and GPUs.

`source/cpu.h` and `source/cuda.h` give the macros their two meanings; `compiler` makes a library for this processor,
`library` loads and calls it. Nothing depends on it being there: `kernels()` is None without a compiler.
"""

from ox.kernels.library import Library, address, kernels, reason

__all__ = ["Library", "address", "kernels", "reason"]
