"""Moving a tensor between devices; the gradient moves back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox.ops import operator
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor


def transfer(x: Tensor, device: str) -> Tensor:
    """`x` on `device` ("cpu", "cuda" or "cuda:1"). Raises DeviceError when it is not there."""
    from ox.devices import cpu, cuda

    moved = operator.make_tensor(cpu(x.data) if device == "cpu" else cuda.to_device(x.data, device))
    if x.node is None:
        return moved
    # Identity of the moved array carries the history: its cotangent is brought to the side it came from
    y = OPS["Identity"](x)
    y.data = moved.data

    def back(g: Any) -> Tensor:
        return transfer(g.detach(), x.device)

    y.register_hook(back)
    return y
