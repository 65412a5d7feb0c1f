"""Results that do not change with an input, almost everywhere, and still belong to its graph, as in PyTorch."""

from __future__ import annotations

from typing import Any

from ox import ops
from ox.core.constants import scalar
from ox.core.mode import MODE
from ox.core.promotion import cast
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, is_floating


def with_zero_gradient(made: Any, *inputs: Any) -> Any:
    """`made`, from which a gradient of zeros flows back to those of `inputs` that are tensors and need one.

    An operator says so (Where, which always takes the other branch), so a recording has it too.
    """
    if not MODE.get().grad or not is_floating(made.array.dtype):
        return made
    for x in inputs:
        if is_tensor(x) and x.node is not None:
            x = x if x.static_shape == made.static_shape else ops.ReduceSum(x, keepdims=0)
            made = ops.Where(scalar(False, bool_), cast(x, made.array.dtype), made)
    return made
