"""Products with weights: linear, bilinear."""

from __future__ import annotations

from ox import ops
from ox.amp.policy import by_policy
from ox.core.argument_errors import not_tensor_error
from ox.core.constants import ints
from ox.core.mode import MODE
from ox.dtypes import float32
from ox.errors import ShapeError
from ox.functions import matmul
from ox.nn.functional.arguments import product, shaped
from ox.nn.functional.compiled_call import runs_compiled
from ox.ops.linalg.linear import Linear
from ox.tensors.tensor import Tensor

__all__ = ["bilinear", "linear"]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input [..., in] times weight [out, in] transposed, plus bias [out]: [..., out]. `torch.nn.functional.linear`,
    ONNX Gemm (on [rows, in]: one product whatever the leading dimensions, here and in the gradient)."""
    try:
        x = input.array
    except AttributeError as error:
        raise not_tensor_error("linear", error) or error from None
    if x.shape[-1:] != weight.static_shape[1:] or x.ndim < 1:
        out, features = weight.static_shape
        raise ShapeError(
            f"Gemm cannot multiply {list(x.shape)} by {[features, out]}",
            expected=f"input [..., {features}]",
            got=f"input {list(x.shape)}",
        )
    if x.dtype.kind in "iu":
        y = matmul(input, ops.Transpose(weight))
        return y if bias is None else ops.Add(y, bias)
    if x.ndim > 1 and _in_one_call(input, weight, bias):
        made: Tensor = Linear(input, weight, bias)
        return made
    if x.ndim == 2:
        return ops.Gemm(input, weight, bias, transB=1)
    out, features = weight.static_shape
    # without elements -1 could be any number
    rows = (
        ops.Reshape(input, ints(-1, features))
        if input.array.size
        else shaped(input, [product(input.shape[:-1]), features])
    )
    return shaped(ops.Gemm(rows, weight, bias, transB=1), [*input.shape[:-1], out])


def _in_one_call(input: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    """Whether the compiled kernels take the layer as a whole, without operators for the shapes of its rows."""
    if MODE.get().autocast is not None or not runs_compiled(input) or weight.array.dtype != float32:
        return False
    return bias is None or (bias.array.dtype == float32 and bias.array.shape == weight.array.shape[:1])


@by_policy
def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x₁ᵀ A x₂ + b for each matrix A of weight [out, in1, in2]: [..., in1] and [..., in2] to [..., out].
    `torch.nn.functional.bilinear`, ONNX Einsum."""
    first, second = input1.static_shape, input2.static_shape
    if not first or first[:-1] != second[:-1] or (first[-1], second[-1]) != weight.static_shape[1:]:
        raise ShapeError(
            f"bilinear cannot combine {list(first)} and {list(second)} by {list(weight.static_shape)}",
            expected="inputs [..., in1] and [..., in2], and weight [out, in1, in2]",
        )
    lead = input1.shape[:-1]
    rows = [
        shaped(x, [-1, n]) if len(lead) != 1 else x for x, n in zip((input1, input2), weight.shape[1:], strict=True)
    ]
    made = ops.Einsum(rows[0], weight, rows[1], equation="ni,oij,nj->no")
    made = made if bias is None else ops.Add(made, bias)
    return made if len(lead) == 1 else shaped(made, [*lead, weight.shape[0]])
