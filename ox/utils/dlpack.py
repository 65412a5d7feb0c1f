"""`torch.utils.dlpack`: memory shared with other libraries."""

from __future__ import annotations

from typing import Any

from ox.tensors.dlpack import from_dlpack
from ox.tensors.tensor import Tensor


def to_dlpack(tensor: Tensor) -> Any:
    """The capsule that a library wants which does not take the tensor itself. `torch.utils.dlpack.to_dlpack`."""
    return tensor.__dlpack__()


__all__ = ["from_dlpack", "to_dlpack"]
