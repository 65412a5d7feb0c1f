"""Moving a tensor between devices, where the gradient moves back, and to pinned memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType
from ox.errors import DeviceError


def transfer(x: TensorType, device: str, non_blocking: bool = False) -> TensorType:
    """`x` on `device` ("cpu", "cuda" or "cuda:1"), row by row, or channels last where it is. Raises DeviceError when
    the device is not there.

    Args:
        non_blocking: the host does not wait for a copy from pinned memory to a GPU.
    """
    from ox.devices import cpu
    from ox.devices.channels_last import copied
    from ox.devices.gpu.pinned_memory import to_device

    y = _with_array(x, copied(lambda a: cpu(a) if device == "cpu" else to_device(a, device, non_blocking), x.array))
    if y.node is not None:
        origin = x.device

        def back(g: Any) -> TensorBase:
            """The cotangent is brought to the side it came from."""
            return transfer(g, origin)

        y.register_hook(back)
    return y


def pin(x: TensorType) -> TensorType:
    """`x` in pinned memory of the host. Raises DeviceError for a tensor on a GPU, and without a GPU."""
    from ox.devices.channels_last import copied
    from ox.devices.gpu import pinned_memory

    if not isinstance(x.array, np.ndarray):
        raise DeviceError("only tensors of the host can be pinned", got=f"a tensor on {x.device}", hint="x.cpu()")
    return x if pinned_memory.is_pinned(x.array) else _with_array(x, copied(pinned_memory.pin, x.array))


def _with_array(x: TensorType, array: Any) -> TensorType:
    """`x` with its values in other memory."""
    y = OPS["Identity"](x)  # which carries history and recording over
    y.array = array
    y._base = y._viewed = y._origin = y._writes = None
    return y
