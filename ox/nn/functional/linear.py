"""Products with weights: linear, bilinear forms are left to MatMul; embedding."""

from __future__ import annotations

import numpy as np

from ox import ops
from ox.errors import DTypeError, ShapeError
from ox.nn.functional.common import ints, number, shaped
from ox.ops.explain import place
from ox.ops.mode import MODE
from ox.tensor import Tensor


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input [..., in] times weight [out, in] transposed, plus bias [out]: [..., out]. `torch.nn.functional.linear`,
    ONNX Gemm (on [rows, in]: one product whatever the leading dimensions, here and in the gradient)."""
    x = input.data
    if x.shape[-1:] != weight.data.shape[1:] or x.ndim < 1:
        out, features = weight.data.shape
        raise ShapeError(
            f"Gemm cannot multiply {list(x.shape)} by {[features, out]}",
            where=place(),
            expected=f"input [..., {features}]",
            got=f"input {list(x.shape)}",
        )
    if x.ndim == 2:
        return ops.Gemm(input, weight, bias, transB=1)
    out, features = weight.data.shape
    rows = ops.Reshape(input, ints(-1, features)) if input.data.size else shaped(input, [0, features])
    return shaped(ops.Gemm(rows, weight, bias, transB=1), [*input.shape[:-1], out])


def embedding(input: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
    """Rows of weight [entries, features] at the int64 or int32 indices of input [...]: [..., features].
    `torch.nn.functional.embedding`, ONNX Gather.

    Args:
        padding_idx: this row gets no gradient.

    Raises:
        ShapeError: an index outside 0 .. entries - 1.
        DTypeError: indices that are no integers.
    """
    indices, entries = input.data, weight.data.shape[0]
    if indices.dtype.kind != "i" or indices.dtype.itemsize < 4:
        raise DTypeError(
            f"embedding does not take {indices.dtype} indices",
            where=place(),
            expected="int64 or int32",
            hint="x.long()",
        )
    if MODE.get().recording is None and indices.size and isinstance(indices, np.ndarray):
        low, high = indices.min(), indices.max()
        if low < 0 or high >= entries:
            raise ShapeError(
                "an embedding index is out of range",
                where=place(),
                expected=f"0 to {entries - 1}",
                got=str(low if low < 0 else high),
                hint=f"nn.Embedding({int(high) + 1}, {weight.data.shape[1]})" if low >= 0 else "indices of 0 or more",
            )
    rows = ops.Gather(weight, input, axis=0)
    if padding_idx is None or rows.node is None:
        return rows
    padding = ops.Equal(input, number(padding_idx % entries, input))
    return ops.Where(ops.Unsqueeze(padding, ints(-1)), rows.detach(), rows)
