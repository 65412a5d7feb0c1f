"""Smooth activations, under PyTorch's names."""

from __future__ import annotations

from ox import functions, ops
from ox.core.constants import scalar_like
from ox.dtypes import float64
from ox.errors import ArgumentError, ShapeError
from ox.functions.dimension_arguments import one_dim
from ox.functions.operand_arguments import floating
from ox.nn.functional.arguments import one_of
from ox.nn.functional.rectifier import result_or_inplace
from ox.tensors.tensor import Tensor

__all__ = [
    "gelu", "glu", "hardsigmoid", "hardswish", "logsigmoid", "mish", "sigmoid", "silu", "softplus", "softsign", "tanh",
    "tanhshrink",
]  # fmt: skip


sigmoid, tanh = functions.sigmoid, functions.tanh


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x); `approximate` "none" or "tanh". `torch.nn.functional.gelu`, ONNX Gelu."""
    return ops.Gelu(input, approximate=one_of(approximate, "approximate", ("none", "tanh")))


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """x·sigmoid(x). `torch.nn.functional.silu`."""
    return result_or_inplace(input, ops.Silu(input), inplace, "silu_")


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """x·tanh(softplus(x)). `torch.nn.functional.mish`, ONNX Mish."""
    return result_or_inplace(input, ops.Mish(input), inplace, "mish_")


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """x·hardsigmoid(x). `torch.nn.functional.hardswish`, ONNX HardSwish."""
    return result_or_inplace(input, ops.HardSwish(input), inplace, "hardswish_")


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """x/6 + 1/2 held between 0 and 1. `torch.nn.functional.hardsigmoid`, ONNX HardSigmoid."""
    return result_or_inplace(input, ops.HardSigmoid(input, alpha=1 / 6), inplace, "hardsigmoid_")


def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """log(1 + exp(beta x)) / beta, without overflow; x itself where beta x is above the threshold.
    `torch.nn.functional.softplus`, ONNX Softplus.

    Raises:
        ArgumentError: beta is 0.
    """
    if beta == 0:
        raise ArgumentError("softplus divides by beta", expected="not 0")
    x = input if beta == 1 else ops.Mul(input, scalar_like(beta, input))
    y = ops.Softplus(x)
    y = y if beta == 1 else ops.Div(y, scalar_like(beta, input))
    if threshold >= 20 and input.array.dtype != float64:  # exp(-20) is nothing beside 20
        return y
    return ops.Where(ops.Greater(x, scalar_like(threshold, input)), input, y)


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow. `torch.nn.functional.logsigmoid`."""
    return ops.Neg(ops.Softplus(ops.Neg(input)))


def softsign(input: Tensor) -> Tensor:
    """x / (1 + |x|). `torch.nn.functional.softsign`, ONNX Softsign."""
    return ops.Softsign(floating(input))


def tanhshrink(input: Tensor) -> Tensor:
    """x - tanh(x). `torch.nn.functional.tanhshrink`."""
    return input - functions.tanh(input)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """The first half along `dim` times the sigmoid of the second. `torch.nn.functional.glu` (Dauphin et al., 2016).

    Raises:
        ShapeError: an odd size, or no dimension.
    """
    rank = input.array.ndim
    if not rank:
        raise ShapeError("glu takes one dimension or more", got="none")
    dim = one_dim(dim, rank)
    if input.static_shape[dim] % 2:
        raise ShapeError("glu needs an even size", got=f"{list(input.static_shape)}, dimension {dim}")
    a, b = ops.Split(input, axis=dim, num_outputs=2, outputs=2)
    return ops.Mul(a, ops.Sigmoid(b))
