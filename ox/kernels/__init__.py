"""Compiled kernels: one source in CUDA C++ with a few macros for CPUs (`library`, from the wheel by `prebuilt_library`
or made by `compiler`) and GPUs. Imports ox.cache_folder, ox.call_site and ox.file_lock only; nothing depends on it
being there: `kernels()` is None without a library and a compiler.
"""

from ox.kernels.library import Library, address, kernels, reason

__all__ = ["Library", "address", "kernels", "reason"]
