"""Linear, Bilinear, Identity, Flatten, Unflatten."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any

import numpy as np

from ox.dtypes import DType, get_default_dtype
from ox.errors import ArgumentError, OxError
from ox.functions import flatten, unflatten
from ox.nn import functional as F
from ox.nn import init
from ox.nn.base.module import Module
from ox.nn.base.uninitialized import UninitializedParameter
from ox.nn.layers.lazy import LazyModuleMixin
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

__all__ = ["Bilinear", "Flatten", "Identity", "LazyLinear", "Linear", "Unflatten"]


def empty(*shape: int, dtype: DType | None = None) -> Parameter:
    """A parameter to be initialised."""
    return Parameter(np.zeros(shape, dtype or get_default_dtype()))


def explain_types(error: OxError, input: Any, weight: Tensor) -> bool:
    """Say so when an input's element type is not the weight's."""
    have, want = input.array.dtype, weight.array.dtype
    if have == want:
        return False
    error.expected, error.got = f"input {want}", f"input {have} {list(input.static_shape)}"
    error.hint = f"x.to(ox.{want}), or model.to(ox.{have})" if have.kind in "fV" else f"x.to(ox.{want})"
    return True


class Linear(Module):
    """[..., in_features] to [..., out_features]: x·Wᵀ + b. `torch.nn.Linear`, ONNX Gemm.

    weight [out_features, in_features], bias [out_features], both from U(±1/sqrt(in_features)).
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True, *, dtype: DType | None = None) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = empty(out_features, in_features, dtype=dtype)
        self.register_parameter("bias", empty(out_features, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.linear_defaults_(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def explain(self, error: OxError, *args: Any) -> None:
        (x,) = args
        features = x.static_shape[-1] if x.array.ndim else 1
        if explain_types(error, x, self.weight) or features == self.in_features:
            return
        error.expected, error.got = f"input [..., {self.in_features}]", f"input {list(x.static_shape)}"
        error.hint = f"nn.Linear({features}, {self.out_features}), or check what comes before it"
        if x.array.ndim == 4:
            error.hint = "nn.Flatten() before it: a Linear works on the last dimension alone"
        elif x.array.ndim == 2:
            error.hint = f"nn.Linear({features}, {self.out_features}), or check the pooling before it"

    def extra_repr(self) -> str:
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"


class NonDynamicallyQuantizableLinear(Linear):
    """A subclass of Linear: `out_proj` of MultiheadAttention, which scripts that test `type(m) is nn.Linear`
    pass by. `torch.nn.modules.linear.NonDynamicallyQuantizableLinear`."""


class LazyLinear(LazyModuleMixin, Linear):
    """A Linear whose `in_features` the first input decides. `torch.nn.LazyLinear`."""

    cls_to_become = Linear

    def __init__(self, out_features: int, bias: bool = True, *, dtype: DType | None = None) -> None:
        super().__init__(0, 0, False)
        self.out_features = out_features
        self.weight = UninitializedParameter(dtype=dtype)
        if bias:
            self.bias = UninitializedParameter(dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new initial values, once there are shapes."""
        if self.in_features and not self.has_uninitialized_params():
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if self.has_uninitialized_params():
            self.in_features = int(input.static_shape[-1])
            self.weight.materialize((self.out_features, self.in_features))  # type: ignore[attr-defined]
            if self.bias is not None:
                self.bias.materialize((self.out_features,))  # type: ignore[attr-defined]
            self.reset_parameters()
        self.in_features = int(self.weight.shape[1])  # a loaded state gave the shapes


class Bilinear(Module):
    """[..., in1] and [..., in2] to [..., out]: x₁ᵀ A x₂ + b. `torch.nn.Bilinear`, ONNX Einsum.

    weight [out, in1, in2], bias [out], both from U(±1/sqrt(in1)).
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if in1_features < 1:
            raise ArgumentError("Bilinear needs features", expected="in1_features above 0", got=str(in1_features))
        self.in1_features, self.in2_features, self.out_features = in1_features, in2_features, out_features
        self.weight = empty(out_features, in1_features, in2_features, dtype=dtype)
        self.register_parameter("bias", empty(out_features, dtype=dtype) if bias else None)
        self.reset_parameters()
        if device is not None:
            self.to(device)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / sqrt(self.in1_features)
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                init.uniform_(parameter, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features},"
            f" out_features={self.out_features}, bias={self.bias is not None}"
        )


class Identity(Module):
    """The input itself. `torch.nn.Identity`; takes and ignores any arguments."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Tensor) -> Tensor:
        return input


class Flatten(Module):
    """Dimensions `start_dim` to `end_dim` as one. `torch.nn.Flatten`, ONNX Flatten or Reshape."""

    def __init__(self, start_dim: int = 1, end_dim: int = -1) -> None:
        super().__init__()
        self.start_dim, self.end_dim = start_dim, end_dim

    def forward(self, input: Tensor) -> Tensor:
        return flatten(input, self.start_dim, self.end_dim)

    def extra_repr(self) -> str:
        return f"start_dim={self.start_dim}, end_dim={self.end_dim}"


class Unflatten(Module):
    """One dimension as several. `torch.nn.Unflatten`, ONNX Reshape."""

    def __init__(self, dim: int, unflattened_size: Sequence[int]) -> None:
        super().__init__()
        self.dim, self.unflattened_size = dim, unflattened_size

    def forward(self, input: Tensor) -> Tensor:
        return unflatten(input, self.dim, self.unflattened_size)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, unflattened_size={self.unflattened_size}"
