"""Softmax and related layers."""

from __future__ import annotations

from ox.errors import ShapeError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor

__all__ = ["LogSoftmax", "Softmax", "Softmax2d", "Softmin"]


class _AlongDim(Module):
    def __init__(self, dim: int | None = None) -> None:
        super().__init__()
        self.dim = dim

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_AlongDim):
    """Softmax along `dim`. `torch.nn.Softmax`, ONNX Softmax."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, self.dim, _stacklevel=5)


class Softmin(_AlongDim):
    """Softmax of -x along `dim`. `torch.nn.Softmin`."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmin(input, self.dim, _stacklevel=5)


class LogSoftmax(_AlongDim):
    """Logarithm of softmax along `dim`. `torch.nn.LogSoftmax`, ONNX LogSoftmax."""

    def forward(self, input: Tensor) -> Tensor:
        return F.log_softmax(input, self.dim, _stacklevel=5)


class Softmax2d(Module):
    """Softmax over the channels of [N, C, H, W] or [C, H, W]. `torch.nn.Softmax2d`, ONNX Softmax.

    Raises:
        ShapeError: another rank.
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.array.ndim not in (3, 4):
            raise ShapeError("Softmax2d takes [N, C, H, W] or [C, H, W]", got=f"input {list(input.static_shape)}")
        return F.softmax(input, -3)
