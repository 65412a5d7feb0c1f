"""Activations and Dropout as modules."""

from __future__ import annotations

from ox.nn import functional as F
from ox.nn.functional.common import one_of
from ox.nn.module import Module
from ox.tensor import Tensor


class ReLU(Module):
    """max(x, 0). `torch.nn.ReLU`, ONNX Relu."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace  # taken for compatibility: the result is always new memory

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input)


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


class SiLU(Module):
    """x·sigmoid(x). `torch.nn.SiLU`."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input)


class Softmax(Module):
    """Softmax along `dim`. `torch.nn.Softmax`, ONNX Softmax."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class LogSoftmax(Module):
    """Logarithm of softmax along `dim`. `torch.nn.LogSoftmax`, ONNX LogSoftmax."""

    def __init__(self, dim: int = -1) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
