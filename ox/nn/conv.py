"""Conv2d and the pools."""

from __future__ import annotations

from typing import Any

from ox.dtypes import DType
from ox.errors import ArgumentError, OxError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.functional.common import one_of, pair
from ox.nn.functional.conv import Size as Pair
from ox.nn.functional.conv import conv_attributes, run_conv
from ox.nn.linear import empty, explain_types
from ox.nn.module import Module
from ox.nn.parameter import Parameter
from ox.tensor import Tensor


class Conv2d(Module):
    """[N, in_channels, H, W] to [N, out_channels, H', W']. `torch.nn.Conv2d`, ONNX Conv.

    weight [out_channels, in_channels/groups, kh, kw], bias [out_channels], both from U(±1/sqrt(fan_in)).

    Args:
        padding: elements on each side, or "same" or "valid".
        padding_mode: "zeros", "reflect", "replicate" or "circular".
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ArgumentError(
                "groups must divide in_channels and out_channels", got=f"{in_channels}, {out_channels}, groups={groups}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.kernel_size, self.stride, self.dilation = pair(kernel_size), pair(stride), pair(dilation)
        self.padding = padding if isinstance(padding, str) else pair(padding)
        self.padding_mode = one_of(padding_mode, "padding_mode", ("zeros", "reflect", "replicate", "circular"))
        kh, kw = self.kernel_size
        self.weight = empty(out_channels, in_channels // groups, kh, kw, dtype=dtype)
        self.register_parameter("bias", empty(out_channels, dtype=dtype) if bias else None)
        self._attributes = conv_attributes(self.stride, self.padding, self.dilation, groups, self.kernel_size)
        pads = self._attributes.get("pads")
        self._pads = None
        if pads and padding_mode != "zeros":
            self._pads = (pads[1], pads[3], pads[0], pads[2])
            del self._attributes["pads"]
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.linear_defaults_(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        if self._pads is not None:
            input = F.pad(input, self._pads, self.padding_mode)
        return run_conv(input, self.weight, self.bias, self._attributes)

    def explain(self, error: OxError, *args: Any) -> None:
        (x,) = args
        shape = x.data.shape
        if explain_types(error, x, self.weight):
            return
        if x.data.ndim not in (3, 4) or shape[-3] != self.in_channels:
            error.expected = f"input [batch, {self.in_channels}, height, width]"
            error.got = f"input {list(shape)}"
            if x.data.ndim == 4 and shape[-1] == self.in_channels:
                error.hint = "x.permute(0, 3, 1, 2): channels come before height and width"
            elif x.data.ndim in (3, 4):
                error.hint = f"nn.Conv2d({shape[-3]}, {self.out_channels}, ...), or check what comes before it"

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0, 0):
            text += f", padding={self.padding}"
        if self.dilation != (1, 1):
            text += f", dilation={self.dilation}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        return text if self.padding_mode == "zeros" else f"{text}, padding_mode={self.padding_mode}"


class MaxPool2d(Module):
    """Largest of each window. `torch.nn.MaxPool2d`, ONNX MaxPool."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        dilation: Pair = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride = kernel_size, kernel_size if stride is None else stride
        self.padding, self.dilation, self.ceil_mode = padding, dilation, ceil_mode
        self.return_indices = return_indices

    def forward(self, input: Tensor) -> Any:
        return F.max_pool2d(
            input, self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode, self.return_indices
        )

    def extra_repr(self) -> str:
        return (
            f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}, "
            f"dilation={self.dilation}, ceil_mode={self.ceil_mode}"
        )


class AvgPool2d(Module):
    """Mean of each window; padding counts unless `count_include_pad` is False. `torch.nn.AvgPool2d`,
    ONNX AveragePool."""

    def __init__(
        self,
        kernel_size: Pair,
        stride: Pair | None = None,
        padding: Pair = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, kernel_size if stride is None else stride, padding
        self.ceil_mode, self.count_include_pad, self.divisor_override = ceil_mode, count_include_pad, divisor_override

    def forward(self, input: Tensor) -> Tensor:
        return F.avg_pool2d(
            input,
            self.kernel_size,
            self.stride,
            self.padding,
            self.ceil_mode,
            self.count_include_pad,
            self.divisor_override,
        )

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class AdaptiveAvgPool2d(Module):
    """Means over windows such that the output is [N, C, *output_size]; None keeps a size.
    `torch.nn.AdaptiveAvgPool2d`, ONNX GlobalAveragePool for 1."""

    def __init__(self, output_size: int | tuple[int | None, int | None] | None) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return F.adaptive_avg_pool2d(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"
