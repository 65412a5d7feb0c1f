"""Activations and their kin, under PyTorch's names; each is one ONNX operator."""

from __future__ import annotations

from ox import ops
from ox.nn.functional.common import one_of
from ox.tensor import Tensor


def relu(input: Tensor) -> Tensor:
    """max(x, 0). ONNX Relu."""
    return ops.Relu(input)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """x·Φ(x); `approximate` "none" or "tanh". ONNX Gelu."""
    return ops.Gelu(input, approximate=one_of(approximate, "approximate", ("none", "tanh")))


def sigmoid(input: Tensor) -> Tensor:
    """1 / (1 + exp(-x)). ONNX Sigmoid."""
    return ops.Sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent. ONNX Tanh."""
    return ops.Tanh(input)


def silu(input: Tensor) -> Tensor:
    """x·sigmoid(x)."""
    return ops.Mul(input, ops.Sigmoid(input))


def softmax(input: Tensor, dim: int = -1) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`. ONNX Softmax."""
    return ops.Softmax(input, axis=dim)


def log_softmax(input: Tensor, dim: int = -1) -> Tensor:
    """log(softmax(x)) along `dim`. ONNX LogSoftmax."""
    return ops.LogSoftmax(input, axis=dim)


def softplus(input: Tensor) -> Tensor:
    """log(1 + exp(x)), without overflow: (x + |x|)/2 + log(1 + exp(-|x|)), whose slope at 0 is right, too."""
    size = ops.Abs(input)
    return ops.Add((input + size) * 0.5, ops.Log(ops.Exp(ops.Neg(size)) + 1.0))


def logsigmoid(input: Tensor) -> Tensor:
    """log(sigmoid(x)), without overflow."""
    return ops.Neg(softplus(ops.Neg(input)))
