"""Whether autocast makes a CPU faster: said once where it does not."""

from __future__ import annotations

from functools import cache

from ox.core.warn_once import once
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.dtypes import DType, bfloat16


def gains(dtype: DType) -> bool:
    """Whether this processor multiplies matrices of a lower type faster than those of float32, with kernels of ox."""
    library = compiled.library()
    return dtype == bfloat16 and library is not None and library.multiplies_bfloat16


@cache
def warn_without_gain(dtype: DType) -> None:
    """A warning where `autocast` on the CPU rounds numbers and is not faster for it."""
    if gains(dtype):
        return
    if dtype != bfloat16:
        why = f"it computes {dtype} in float32"
    elif compiled.library() is None:
        why = "without compiled kernels, bfloat16 is computed in float32 (`ox doctor` says what they lack)"
    else:
        why = "it has no instructions for bfloat16 (AVX512-BF16)"
    once(f"autocast {dtype}", f"autocast to {dtype} does not make this CPU faster: {why}")
