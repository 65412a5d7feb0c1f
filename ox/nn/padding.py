"""Padding as modules, in every mode and rank: ONNX Pad."""

from __future__ import annotations

from collections.abc import Sequence

from ox.nn import functional as F
from ox.nn.functional.common import several
from ox.nn.module import Module
from ox.tensor import Tensor


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


class _ConstantPad(_Pad):
    mode = "constant"

    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ZeroPad(_ConstantPad):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class ConstantPad1d(_ConstantPad):
    """[N, C, L] with a constant around it, by one amount or 2. `torch.nn.ConstantPad1d`."""

    rank = 1


class ConstantPad2d(_ConstantPad):
    """[N, C, H, W] with a constant around it, by one amount or 4. `torch.nn.ConstantPad2d`."""

    rank = 2


class ConstantPad3d(_ConstantPad):
    """[N, C, D, H, W] with a constant around it, by one amount or 6. `torch.nn.ConstantPad3d`."""

    rank = 3


class ZeroPad1d(_ZeroPad):
    """[N, C, L] with zeros around it, by one amount or 2. `torch.nn.ZeroPad1d`."""

    rank = 1


class ZeroPad2d(_ZeroPad):
    """[N, C, H, W] with zeros around it, by one amount or 4. `torch.nn.ZeroPad2d`."""

    rank = 2


class ZeroPad3d(_ZeroPad):
    """[N, C, D, H, W] with zeros around it, by one amount or 6. `torch.nn.ZeroPad3d`."""

    rank = 3


class ReflectionPad1d(_Pad):
    """[N, C, L] with what lies inside, mirrored around it, by one amount or 2. `torch.nn.ReflectionPad1d`."""

    rank = 1
    mode = "reflect"


class ReflectionPad2d(_Pad):
    """[N, C, H, W] with what lies inside, mirrored around it, by one amount or 4. `torch.nn.ReflectionPad2d`."""

    rank = 2
    mode = "reflect"


class ReflectionPad3d(_Pad):
    """[N, C, D, H, W] with what lies inside, mirrored around it, by one amount or 6. `torch.nn.ReflectionPad3d`."""

    rank = 3
    mode = "reflect"


class ReplicationPad1d(_Pad):
    """[N, C, L] with copies of the border around it, by one amount or 2. `torch.nn.ReplicationPad1d`."""

    rank = 1
    mode = "replicate"


class ReplicationPad2d(_Pad):
    """[N, C, H, W] with copies of the border around it, by one amount or 4. `torch.nn.ReplicationPad2d`."""

    rank = 2
    mode = "replicate"


class ReplicationPad3d(_Pad):
    """[N, C, D, H, W] with copies of the border around it, by one amount or 6. `torch.nn.ReplicationPad3d`."""

    rank = 3
    mode = "replicate"


class CircularPad1d(_Pad):
    """[N, C, L] with what lies at the other end around it, by one amount or 2. `torch.nn.CircularPad1d`."""

    rank = 1
    mode = "circular"


class CircularPad2d(_Pad):
    """[N, C, H, W] with what lies at the other end around it, by one amount or 4. `torch.nn.CircularPad2d`."""

    rank = 2
    mode = "circular"


class CircularPad3d(_Pad):
    """[N, C, D, H, W] with what lies at the other end around it, by one amount or 6. `torch.nn.CircularPad3d`."""

    rank = 3
    mode = "circular"
