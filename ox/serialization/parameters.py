"""Parameters in files: `ox.nn` is imported when a file holds one."""

from __future__ import annotations

import sys
from typing import Any

from ox.dtypes import is_floating
from ox.tensors.tensor import Tensor


def is_parameter(tensor: Any) -> bool:
    """Whether a tensor is a Parameter; without `ox.nn` there is none."""
    module = sys.modules.get("ox.nn.parameter")
    return module is not None and isinstance(tensor, module.Parameter)


def parameter(tensor: Tensor, requires_grad: bool) -> Tensor:
    """A Parameter in the memory of a tensor."""
    from ox.nn.parameter import Parameter

    return Parameter(tensor, requires_grad and is_floating(tensor.array.dtype))
