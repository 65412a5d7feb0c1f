"""Conv1d, Conv2d, Conv3d."""

from __future__ import annotations

from typing import Any

from ox.dtypes import DType
from ox.errors import ArgumentError, OxError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.functional.common import one_of, several
from ox.nn.functional.conv import Size, conv_attributes, run_conv
from ox.nn.linear import empty, explain_types
from ox.nn.module import Module
from ox.nn.parameter import Parameter
from ox.nn.uninitialized import is_lazy
from ox.tensor import Tensor

_SPATIAL = {1: "length", 2: "height, width", 3: "depth, height, width"}


class Convolution(Module):
    """What the convolutions and their transposes share: arguments, parameters, explanations, repr."""

    rank: int
    transposed = False
    weight: Parameter
    bias: Parameter | None

    def _set(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size,
        padding: Size | str,
        dilation: Size,
        groups: int,
        bias: bool,
        padding_mode: str,
        output_padding: Size,
        dtype: DType | None,
    ) -> None:
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                "groups must divide in_channels and out_channels", got=f"{in_channels}, {out_channels}, groups={groups}"
            )
        rank = self.rank
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size = several(kernel_size, rank, "kernel_size", 1)
        self.stride, self.dilation = several(stride, rank, "stride", 1), several(dilation, rank, "dilation", 1)
        self.padding = padding if isinstance(padding, str) else several(padding, rank, "padding", 0)
        self.output_padding = several(output_padding, rank, "output_padding", 0)
        self.padding_mode = one_of(padding_mode, "padding_mode", ("zeros", "reflect", "replicate", "circular"))
        self.weight = empty(*self._weight_shape(), dtype=dtype)
        self.register_parameter("bias", empty(out_channels, dtype=dtype) if bias else None)
        self.reset_parameters()

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
        shape = x.array.shape
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


class _Conv(Convolution):
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
        super().__init__()
        self._set(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, padding_mode, 0, dtype
        )
        self._attributes = conv_attributes(self.stride, self.padding, self.dilation, groups, self.kernel_size)
        pads = self._attributes.get("pads")
        self._pads: tuple[int, ...] | None = None
        if pads and padding_mode != "zeros":
            ends = zip(reversed(pads[: self.rank]), reversed(pads[self.rank :]), strict=True)
            self._pads = tuple(p for both in ends for p in both)
            del self._attributes["pads"]

    def forward(self, input: Tensor) -> Tensor:
        if self._pads is not None:
            input = F.pad(input, self._pads, self.padding_mode)
        return run_conv(input, self.weight, self.bias, self._attributes)


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
