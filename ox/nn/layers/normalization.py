"""Normalization without running statistics: LayerNorm RMSNorm GroupNorm LocalResponseNorm CrossMapLRN2d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.core.mode import switch_mode
from ox.dtypes import DType, get_default_dtype
from ox.errors import ArgumentError, OxError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.layers.linear import explain_types
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

__all__ = ["CrossMapLRN2d", "GroupNorm", "LayerNorm", "LocalResponseNorm", "RMSNorm"]


def _sizes(normalized_shape: int | Sequence[int]) -> tuple[int, ...]:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def _reset(module: Any) -> None:
    with switch_mode(grad=False):
        if module.weight is not None:
            module.weight.fill_(1)
        if getattr(module, "bias", None) is not None:
            module.bias.fill_(0)


class LayerNorm(Module):
    """Normalize over the last dimensions. `torch.nn.LayerNorm`, ONNX LayerNormalization.

    weight (ones) and bias (zeros) of `normalized_shape`, if `elementwise_affine`.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = _sizes(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        kind = dtype or get_default_dtype()
        self.register_parameter("weight", Parameter(np.ones(shape, kind)) if elementwise_affine else None)
        self.register_parameter("bias", Parameter(np.zeros(shape, kind)) if elementwise_affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to weight 1 and bias 0."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def explain(self, error: OxError, *args: Any) -> None:
        if self.weight is not None and explain_types(error, args[0], self.weight):
            return
        tail = list(args[0].static_shape[-len(self.normalized_shape) :])
        if tail != list(self.normalized_shape):
            error.hint = f"nn.LayerNorm({tail[0] if len(tail) == 1 else tail}), or check what comes before it"

    def extra_repr(self) -> str:
        return (
            f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
            f"bias={self.bias is not None}"
        )


class RMSNorm(Module):
    """Divide by the root of the mean square over the last dimensions. `torch.nn.RMSNorm`, ONNX RMSNormalization.

    weight (ones) of `normalized_shape`, if `elementwise_affine`.

    Args:
        eps: added to the mean; default the smallest step at 1 of the element type.
    """

    weight: Parameter | None

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        shape = _sizes(normalized_shape)
        self.normalized_shape, self.eps, self.elementwise_affine = shape, eps, elementwise_affine
        ones = np.ones(shape, dtype or get_default_dtype())
        self.register_parameter("weight", Parameter(ones) if elementwise_affine else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to weight 1."""
        _reset(self)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


class GroupNorm(Module):
    """Normalize each group of channels of each example of [N, C, ...]. `torch.nn.GroupNorm`, ONNX GroupNormalization.

    weight (ones) and bias (zeros) [num_channels], if `affine`.
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        *,
        dtype: DType | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ArgumentError("num_groups must divide num_channels", got=f"{num_groups} and {num_channels}")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        kind = dtype or get_default_dtype()
        self.register_parameter("weight", Parameter(np.ones(num_channels, kind)) if affine else None)
        self.register_parameter("bias", Parameter(np.zeros(num_channels, kind)) if affine and bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Back to weight 1 and bias 0."""
        _reset(self)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def explain(self, error: OxError, *args: Any) -> None:
        if self.weight is not None and explain_types(error, args[0], self.weight):
            return
        shape = args[0].static_shape
        if len(shape) < 2 or shape[1] != self.num_channels:
            error.expected, error.got = f"input [batch, {self.num_channels}, ...]", f"input {list(shape)}"

    def extra_repr(self) -> str:
        shown = f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}"
        return f"{shown}, bias={self.bias is not None}"


class _AcrossChannels(Module):
    def __init__(self, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> None:
        super().__init__()
        self.size, self.alpha, self.beta, self.k = size, alpha, beta, k

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class LocalResponseNorm(_AcrossChannels):
    """Divide by a power of the mean square of the channels around. `torch.nn.LocalResponseNorm`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.local_response_norm(input, self.size, self.alpha, self.beta, self.k)


class CrossMapLRN2d(_AcrossChannels):
    """LocalResponseNorm of [N, C, H, W] with a window of an odd size: an even one reaches as far as the odd one below
    it. `torch.nn.CrossMapLRN2d`, except that PyTorch's never takes the first channel out of a window again."""

    def forward(self, input: Tensor) -> Tensor:
        reach = 2 * ((self.size - 1) // 2) + 1
        return F.local_response_norm(input, reach, self.alpha * reach / self.size, self.beta, self.k)
