"""Padding as modules, in every mode and rank: ONNX Pad."""

from __future__ import annotations

from collections.abc import Sequence

from ox.errors import ShapeError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.functional.arguments import several
from ox.tensors.tensor import Tensor

__all__ = [
    "CircularPad1d", "CircularPad2d", "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d",
    "ReflectionPad1d", "ReflectionPad2d", "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d",
    "ReplicationPad3d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d",
]  # fmt: skip


class _Pad(Module):
    """Amounts for each end of the last `rank` dimensions, innermost first, or one for all."""

    rank: int
    mode: str

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding = several(padding, 2 * self.rank, "padding")

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self.mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPadNd):
    """[N, C, L] with a constant around it, by one amount or 2. `torch.nn.ConstantPad1d`."""

    rank = 1


class ConstantPad2d(_ConstantPadNd):
    """[N, C, H, W] with a constant around it, by one amount or 4. `torch.nn.ConstantPad2d`."""

    rank = 2


class ConstantPad3d(_ConstantPadNd):
    """[N, C, D, H, W] with a constant around it, by one amount or 6. `torch.nn.ConstantPad3d`."""

    rank = 3


class ZeroPad1d(_ZeroPad, ConstantPad1d):
    """[N, C, L] with zeros around it, by one amount or 2. `torch.nn.ZeroPad1d`."""

    rank = 1


class ZeroPad2d(_ZeroPad, ConstantPad2d):
    """[N, C, H, W] with zeros around it, by one amount or 4. `torch.nn.ZeroPad2d`."""

    rank = 2


class ZeroPad3d(_ZeroPad, ConstantPad3d):
    """[N, C, D, H, W] with zeros around it, by one amount or 6. `torch.nn.ZeroPad3d`."""

    rank = 3


class _ReflectionPadNd(_Pad):
    mode = "reflect"


class ReflectionPad1d(_ReflectionPadNd):
    """[N, C, L] padded with its reflection, by one amount or 2. `torch.nn.ReflectionPad1d`."""

    rank = 1


class ReflectionPad2d(_ReflectionPadNd):
    """[N, C, H, W] padded with its reflection, by one amount or 4. `torch.nn.ReflectionPad2d`."""

    rank = 2


class ReflectionPad3d(_ReflectionPadNd):
    """[N, C, D, H, W] padded with its reflection, by one amount or 6. `torch.nn.ReflectionPad3d`."""

    rank = 3


class _ReplicationPadNd(_Pad):
    mode = "replicate"


class ReplicationPad1d(_ReplicationPadNd):
    """[N, C, L] with copies of the border around it, by one amount or 2. `torch.nn.ReplicationPad1d`."""

    rank = 1


class ReplicationPad2d(_ReplicationPadNd):
    """[N, C, H, W] with copies of the border around it, by one amount or 4. `torch.nn.ReplicationPad2d`."""

    rank = 2


class ReplicationPad3d(_ReplicationPadNd):
    """[N, C, D, H, W] with copies of the border around it, by one amount or 6. `torch.nn.ReplicationPad3d`."""

    rank = 3


class _CircularPadNd(_Pad):
    mode = "circular"

    def _check_input_dim(self, input: Tensor) -> None:
        """Raise ShapeError for an input of other dimensions than the layer takes."""
        if input.array.ndim not in (self.rank + 1, self.rank + 2):
            raise ShapeError(
                f"{type(self).__name__} does not take {input.array.ndim} dimensions",
                expected=f"{self.rank + 2}, or {self.rank + 1} without a batch",
                got=f"input {list(input.static_shape)}",
            )

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return super().forward(input)


class CircularPad1d(_CircularPadNd):
    """[N, C, L] padded with values from the opposite side, by one amount or 2. `torch.nn.CircularPad1d`."""

    rank = 1


class CircularPad2d(_CircularPadNd):
    """[N, C, H, W] padded with values from the opposite side, by one amount or 4. `torch.nn.CircularPad2d`."""

    rank = 2


class CircularPad3d(_CircularPadNd):
    """[N, C, D, H, W] padded with values from the opposite side, by one amount or 6. `torch.nn.CircularPad3d`."""

    rank = 3
