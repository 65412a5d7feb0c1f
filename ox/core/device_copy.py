"""Moving a tensor between devices; the gradient moves back."""

from __future__ import annotations

from typing import Any

from ox.core.operator import OPS
from ox.core.tensor import TensorBase, TensorType


def transfer(x: TensorType, device: str) -> TensorType:
    """`x` on `device` ("cpu", "cuda" or "cuda:1"). Raises DeviceError when it is not there."""
    from ox.devices import cpu, cuda

    # an Identity carries history and recording over to the moved array
    y = OPS["Identity"](x)
    y.array = cpu(x.array) if device == "cpu" else cuda.to_device(x.array, device)
    y._base = y._viewed = y._origin = y._version = None
    if y.node is not None:
        origin = x.device

        def back(g: Any) -> TensorBase:
            """The cotangent is brought to the side it came from."""
            return transfer(g, origin)

        y.register_hook(back)
    return y
