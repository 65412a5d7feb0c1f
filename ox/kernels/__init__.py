"""Compiled kernels: one source in CUDA C++ with a few macros for CPUs (`library`, made by `compiler`) and GPUs.
Imports ox.errors only; nothing depends on it being there: `kernels()` is None without a compiler.
"""

from ox.kernels.library import Library, address, kernels, reason

__all__ = ["Library", "address", "kernels", "reason"]
