"""A convolution with as many groups as a size that varies, such as a kernel for each sample of a batch.

The groups of ONNX Conv are an attribute, which a file holds as a number. So the convolution is a product of unfolded
data.
"""

from __future__ import annotations

from math import prod
from typing import Any

from ox import ops
from ox.core.broadcast import reshape_to
from ox.core.constants import axes_tensor
from ox.core.symbolic import Dim
from ox.ops.nn.unpool import unfolded
from ox.ops.nn.window import Window
from ox.tensors.tensor import Tensor


def conv_with_groups(input: Tensor, weight: Tensor, bias: Tensor | None, groups: Dim, window: Window) -> Tensor:
    """input [N, groups·I, *sizes], weight [groups·O, I, *kernel], bias [groups·O]: [N, groups·O, *places]."""
    N, _, *sizes = input.shape
    count = weight.static_shape[1] * prod(window.kernel)
    out = weight.static_shape[0] // int(groups)
    columns = unfolded(reshape_to(input, [N * groups, weight.static_shape[1], *sizes]), window, sizes)
    columns = reshape_to(columns, [N, groups, count, columns.shape[-1]])
    made: Any = ops.MatMul(reshape_to(weight, [groups, out, count]), columns)
    made = reshape_to(made, [N, groups * out, *window.outputs(sizes)])
    if bias is None:
        return made
    return ops.Add(made, ops.Unsqueeze(bias, axes_tensor([*range(1, len(sizes) + 1)])))
