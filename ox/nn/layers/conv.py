"""Conv1d, Conv2d, Conv3d."""

from __future__ import annotations

from typing import Any

from ox.dtypes import DType
from ox.errors import ArgumentError, OxError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.base.module import Module
from ox.nn.base.uninitialized import is_lazy
from ox.nn.functional.arguments import one_of, several
from ox.nn.functional.conv import Size, conv_attributes, run_conv
from ox.nn.layers.linear import empty, explain_types
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

__all__ = ["Conv1d", "Conv2d", "Conv3d"]

_SPATIAL = {1: "length", 2: "height, width", 3: "depth, height, width"}


class _ConvNd(Module):
    """What the convolutions and their transposes share: arguments, parameters, explanations, repr. For layers of one's
    own: `torch.nn.modules.conv._ConvNd`; the rank is that of the class, or that of `kernel_size`."""

    rank: int = 0
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        transposed: bool,
        output_padding: Size,
        groups: int,
        bias: bool,
        padding_mode: str = "zeros",
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                "groups must divide in_channels and out_channels", got=f"{in_channels}, {out_channels}, groups={groups}"
            )
        if not self.rank:
            self.rank = 1 if isinstance(kernel_size, int) else len(kernel_size)
        rank = self.rank
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = several(kernel_size, rank, "kernel_size", 1)
        self.stride, self.dilation = several(stride, rank, "stride", 1), several(dilation, rank, "dilation", 1)
        self.padding = padding if isinstance(padding, str) else several(padding, rank, "padding", 0)
        self.transposed = transposed
        self.output_padding = several(output_padding, rank, "output_padding", 0)
        self.padding_mode = one_of(padding_mode, "padding_mode", ("zeros", "reflect", "replicate", "circular"))
        self._reversed_padding_repeated_twice = self._pads()
        self.weight = empty(*self._weight_shape(), dtype=dtype)
        self.register_parameter("bias", empty(out_channels, dtype=dtype) if bias else None)
        self.reset_parameters()

    def _pads(self) -> list[int]:
        """The padding as `F.pad` takes it: the last dimension first, both ends of each."""
        pads = conv_attributes(self.stride, self.padding, self.dilation, self.groups, self.kernel_size).get("pads")
        pads = pads or [0] * (2 * self.rank)
        ends = zip(reversed(pads[: self.rank]), reversed(pads[self.rank :]), strict=True)
        return [p for both in ends for p in both]

    def _weight_shape(self) -> tuple[int, ...]:
        first, second = self.out_channels, self.in_channels // self.groups
        if self.transposed:
            first, second = self.in_channels, self.out_channels // self.groups
        return (first, second, *self.kernel_size)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        if is_lazy(self.weight) or not self.in_channels:
            return  # a lazy one, before its first input
        init.linear_defaults_(self.weight, self.bias)

    def explain(self, error: OxError, *args: Any) -> None:
        x, rank, name = args[0], self.rank, type(self).__name__
        shape = x.static_shape
        if explain_types(error, x, self.weight):
            return
        if x.array.ndim not in (rank + 1, rank + 2) or shape[-rank - 1] != self.in_channels:
            error.expected = f"input [batch, {self.in_channels}, {_SPATIAL[rank]}]"
            error.got = f"input {list(shape)}"
            if x.array.ndim == rank + 2 and shape[-1] == self.in_channels:
                order = ", ".join(map(str, (0, rank + 1, *range(1, rank + 1))))
                error.hint = f"x.permute({order}): channels come before {_SPATIAL[rank].replace(', ', ' and ')}"
            elif x.array.ndim in (rank + 1, rank + 2):
                error.hint = f"nn.{name}({shape[-rank - 1]}, {self.out_channels}, ...), or check what comes before it"

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * self.rank:
            text += f", padding={self.padding}"
        if self.dilation != (1,) * self.rank:
            text += f", dilation={self.dilation}"
        if any(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class _Conv(_ConvNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, False, 0, groups, bias, padding_mode,
            dtype=dtype,
        )  # fmt: skip

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The convolution of this layer with a weight and a bias that need not be its own."""
        padding: Any = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, tuple(self._reversed_padding_repeated_twice), self.padding_mode)
            padding = 0
        key = (self.stride, padding, self.dilation, self.groups, weight.static_shape)
        # attributes of the operator, computed again if the layer's have changed
        if self.__dict__.get("_attributes_key") != key:
            attributes = conv_attributes(*key[:4], weight.static_shape[2:])
            self.__dict__.update(_attributes_key=key, _attributes=attributes)
        return run_conv(input, weight, bias, self.__dict__["_attributes"])

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)


class Conv1d(_Conv):
    """[N, in_channels, L] to [N, out_channels, L']; see Conv2d. `torch.nn.Conv1d`, ONNX Conv."""

    rank = 1


class Conv2d(_Conv):
    """[N, in_channels, H, W] to [N, out_channels, H', W']. `torch.nn.Conv2d`, ONNX Conv.

    weight [out_channels, in_channels/groups, kh, kw], bias [out_channels], both from U(±1/sqrt(fan_in)).

    Args:
        padding: elements on each side, or "same" or "valid".
        padding_mode: "zeros", "reflect", "replicate" or "circular".
    """

    rank = 2


class Conv3d(_Conv):
    """[N, in_channels, D, H, W] to [N, out_channels, D', H', W']; see Conv2d. `torch.nn.Conv3d`, ONNX Conv."""

    rank = 3
