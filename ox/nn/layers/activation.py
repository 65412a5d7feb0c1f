"""Smooth activations as modules."""

from __future__ import annotations

from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.functional.arguments import one_of
from ox.nn.layers.rectifier import OnlyInPlace
from ox.tensors.tensor import Tensor

__all__ = [
    "GELU", "GLU", "Hardsigmoid", "Hardswish", "LogSigmoid", "Mish", "SiLU", "Sigmoid", "Softplus", "Softsign", "Tanh",
    "Tanhshrink",
]  # fmt: skip


class GELU(Module):
    """x·Φ(x), or its tanh approximation. `torch.nn.GELU`, ONNX Gelu."""

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = one_of(approximate, "approximate", ("none", "tanh"))

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class Sigmoid(Module):
    """1 / (1 + exp(-x)). `torch.nn.Sigmoid`, ONNX Sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class Tanh(Module):
    """Hyperbolic tangent. `torch.nn.Tanh`, ONNX Tanh."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class SiLU(OnlyInPlace):
    """x·sigmoid(x). `torch.nn.SiLU`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, self.inplace)


class Mish(OnlyInPlace):
    """x·tanh(softplus(x)). `torch.nn.Mish`, ONNX Mish."""

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, self.inplace)


class Hardswish(OnlyInPlace):
    """x·hardsigmoid(x). `torch.nn.Hardswish`, ONNX HardSwish."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)


class Hardsigmoid(OnlyInPlace):
    """x/6 + 1/2 held between 0 and 1. `torch.nn.Hardsigmoid`, ONNX HardSigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)


class Softplus(Module):
    """log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold. `torch.nn.Softplus`, ONNX Softplus."""

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta, self.threshold = beta, threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class LogSigmoid(Module):
    """log(sigmoid(x)), without overflow. `torch.nn.LogSigmoid`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """x / (1 + |x|). `torch.nn.Softsign`, ONNX Softsign."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """x - tanh(x). `torch.nn.Tanhshrink`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class GLU(Module):
    """The first half along `dim` times the sigmoid of the second. `torch.nn.GLU`."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.glu(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
