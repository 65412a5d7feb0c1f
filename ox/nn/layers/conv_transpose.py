"""ConvTranspose1d, ConvTranspose2d, ConvTranspose3d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.dtypes import DType
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.conv import Size, run_conv, transposed_attributes
from ox.nn.layers.conv import _ConvNd
from ox.tensors.tensor import Tensor

__all__ = ["ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"]


class _ConvTransposeNd(_ConvNd):
    def _output_padding(
        self,
        input: Tensor,
        output_size: Sequence[int] | None,
        stride: Sequence[int],
        padding: Sequence[int],
        kernel_size: Sequence[int],
        num_spatial_dims: int,
        dilation: Sequence[int] | None = None,
    ) -> Sequence[int]:
        """How much longer the output is at one side: that of the layer, or what gives `output_size`."""
        if output_size is None:
            return self.output_padding
        rank, sizes = num_spatial_dims, input.static_shape[-num_spatial_dims:]
        wanted = [int(n) for n in output_size]
        if len(wanted) == input.array.ndim:
            wanted = wanted[-rank:]
        least = [
            (n - 1) * s - 2 * p + d * (k - 1) + 1
            for n, s, p, d, k in zip(sizes, stride, padding, dilation or [1] * rank, kernel_size, strict=True)
        ]
        if len(wanted) != rank or not all(0 <= w - low < s for w, low, s in zip(wanted, least, stride, strict=True)):
            most = [low + s - 1 for low, s in zip(least, stride, strict=True)]
            raise ShapeError(
                "output_size is not one that this convolution can make",
                expected=f"{least} to {most}",
                got=str(list(output_size)),
            )
        return tuple(w - low for w, low in zip(wanted, least, strict=True))


class _ConvTranspose(_ConvTransposeNd):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size = 0,
        output_padding: Size = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Size = 1,
        padding_mode: str = "zeros",
        *,
        dtype: DType | None = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ArgumentError(f"a transposed convolution pads with zeros only, not {padding_mode!r}")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, True, output_padding, groups, bias,
            padding_mode, dtype=dtype,
        )  # fmt: skip

    def forward(self, input: Tensor, output_size: Sequence[int] | None = None) -> Tensor:
        """`output_size`: which of the sizes that the stride leaves open comes out."""
        pads: Any = self.padding
        extra = self._output_padding(input, output_size, self.stride, pads, self.kernel_size, self.rank, self.dilation)
        attributes = transposed_attributes(self.stride, pads, extra, self.groups, self.dilation, self.kernel_size)
        return run_conv(input, self.weight, self.bias, attributes, transposed=True)


class ConvTranspose1d(_ConvTranspose):
    """[N, in_channels, L] to [N, out_channels, L']; see ConvTranspose2d. `torch.nn.ConvTranspose1d`,
    ONNX ConvTranspose."""

    rank = 1


class ConvTranspose2d(_ConvTranspose):
    """[N, in_channels, H, W] to [N, out_channels, H', W'], as a Conv2d's gradient goes. `torch.nn.ConvTranspose2d`,
    ONNX ConvTranspose.

    weight [in_channels, out_channels/groups, kh, kw], bias [out_channels], both from U(±1/sqrt(fan_in)). The call takes
    an `output_size` beside the input.

    Args:
        output_padding: how much longer the output is at one side, where a stride leaves that open.
    """

    rank = 2


class ConvTranspose3d(_ConvTranspose):
    """[N, in_channels, D, H, W] to [N, out_channels, D', H', W']; see ConvTranspose2d. `torch.nn.ConvTranspose3d`,
    ONNX ConvTranspose."""

    rank = 3
