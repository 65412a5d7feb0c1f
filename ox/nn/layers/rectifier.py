"""Rectifiers and related layers."""

from __future__ import annotations

from typing import Any

from ox.dtypes import DType
from ox.errors import ArgumentError
from ox.functions.creation import full
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

__all__ = [
    "CELU", "ELU", "SELU", "Hardshrink", "Hardtanh", "LeakyReLU", "PReLU", "RReLU", "ReLU", "ReLU6", "Softshrink",
    "Threshold",
]  # fmt: skip


def also_in_place(inplace: bool, *described: str) -> str:
    """The part of repr() for `inplace`: shown only if it is set, as in PyTorch."""
    return ", ".join([*described, *(["inplace=True"] if inplace else [])])


class OnlyInPlace(Module):
    """An activation whose one setting is whether it is done in place."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return also_in_place(self.inplace)


class ReLU(OnlyInPlace):
    """max(x, 0). `torch.nn.ReLU`, ONNX Relu."""

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, self.inplace)


class LeakyReLU(Module):
    """x, below 0 times a slope. `torch.nn.LeakyReLU`, ONNX LeakyRelu."""

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope, self.inplace = negative_slope, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return also_in_place(self.inplace, f"negative_slope={self.negative_slope}")


class PReLU(Module):
    """x, below 0 times a learned slope: one for all, or one a channel. `torch.nn.PReLU`, ONNX PRelu.

    Args:
        num_parameters: 1, or the number of channels (dimension 1).
        init: the slopes to start with.
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.num_parameters, self.init = num_parameters, init
        weight = full((num_parameters,), float(init), dtype=dtype)
        self.weight = Parameter(weight if device is None else weight.to(device))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The slopes as at the start."""
        self.weight.array[...] = self.init

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"


class RReLU(Module):
    """x, not above 0 times a slope, drawn for each element while training, else the mean of the two bounds.
    `torch.nn.RReLU`.

    Args:
        generator: an `ox.Generator`; None for the default one.
    """

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False, *, generator: Any = None
    ) -> None:
        super().__init__()
        self.lower, self.upper, self.inplace, self.generator = lower, upper, inplace, generator

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace, generator=self.generator)

    def extra_repr(self) -> str:
        return also_in_place(self.inplace, f"lower={self.lower}, upper={self.upper}")


class Threshold(Module):
    """x where it is above the threshold, else a value. `torch.nn.Threshold`."""

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold, self.value, self.inplace = threshold, value, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return also_in_place(self.inplace, f"threshold={self.threshold}, value={self.value}")


class Hardtanh(Module):
    """x held between two numbers. `torch.nn.Hardtanh`, ONNX Clip.

    Raises:
        ArgumentError: min_val is not below max_val.
    """

    def __init__(self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        if not min_val < max_val:
            raise ArgumentError("Hardtanh's min_val is below max_val", got=f"{min_val} and {max_val}")
        self.min_val, self.max_val, self.inplace = min_val, max_val, inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return also_in_place(self.inplace, f"min_val={self.min_val}, max_val={self.max_val}")


class ReLU6(Hardtanh):
    """x held between 0 and 6. `torch.nn.ReLU6`, ONNX Clip."""

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return also_in_place(self.inplace)


class _WithAlpha(Module):
    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha, self.inplace = alpha, inplace

    def extra_repr(self) -> str:
        return also_in_place(self.inplace, f"alpha={self.alpha}")


class ELU(_WithAlpha):
    """x, below 0 alpha (exp(x) - 1). `torch.nn.ELU`, ONNX Elu."""

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_WithAlpha):
    """x, below 0 alpha (exp(x / alpha) - 1). `torch.nn.CELU`, ONNX Celu."""

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class SELU(OnlyInPlace):
    """Scaled ELU, which keeps mean 0 and variance 1. `torch.nn.SELU`, ONNX Selu."""

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class _Shrink(Module):
    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink):
    """x where it is farther from 0 than lambd, else 0. `torch.nn.Hardshrink`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x nearer to 0 by lambd where it is farther than that, else 0. `torch.nn.Softshrink`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)
