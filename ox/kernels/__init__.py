"""Compiled kernels: one source in CUDA C++ with a few macros for CPUs (`library`, made by `compiler`) and GPUs.
Imports nothing of ox but its errors; nothing depends on it being there: `kernels()` is None without a compiler.
"""

from ox.kernels.library import Library, address, kernels, reason

__all__ = ["Library", "address", "kernels", "reason"]
