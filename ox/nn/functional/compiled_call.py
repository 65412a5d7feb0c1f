"""Which calls of the functional API are one call of a compiled kernel (`ox.devices.cpu_kernels.kernel_table`)."""

from __future__ import annotations

from collections.abc import Container

import numpy as np

from ox.core.mode import MODE
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.devices.gpu.multi_tensor import is_on_device
from ox.dtypes import DType, float32
from ox.tensors.tensor import Tensor


def runs_compiled(tensor: Tensor, types: Container[DType] = (float32,)) -> bool:
    """Whether compiled kernels may take this input: of these types, on the CPU. A recording for a file has the plain
    operators."""
    mode, array = MODE.get(), tensor.array
    return (
        (mode.recording is None or mode.recording.keeps_fused)
        and mode.executor is None
        and type(array) is np.ndarray
        and array.dtype in types
        and array.size > 0
        and compiled.library() is not None
    )


def runs_on_device(tensor: Tensor, types: Container[DType] = (float32,), recorded: bool = False) -> bool:
    """The same of a GPU and its kernels (`ox.devices.gpu.kernel_table`); a recording has the plain operators, but with
    `recorded` those that keep functions."""
    mode, array = MODE.get(), tensor.array
    return (
        (mode.recording is None or (recorded and mode.recording.keeps_fused))
        and mode.executor is None
        and is_on_device(array)
        and array.dtype in types
        and array.size > 0
    )
