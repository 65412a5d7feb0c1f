"""The dropouts as modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from ox.errors import ArgumentError
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _DropoutNd(Module):
    """What the dropouts share. `torch.nn.modules.dropout._DropoutNd`."""

    function: ClassVar[Callable[..., Tensor]]

    def __init__(self, p: float = 0.5, inplace: bool = False, *, generator: Any = None) -> None:
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError("dropout's p is a probability", expected="0 to 1", got=str(p))
        self.p, self.inplace, self.generator = p, inplace, generator

    def forward(self, input: Tensor) -> Tensor:
        return self.function(input, self.p, self.training, self.inplace, generator=self.generator)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_DropoutNd):
    """Zero elements with probability `p` while training, and scale the others by 1/(1-p). `torch.nn.Dropout`.

    Args:
        inplace: write the result over the input.
        generator: an `ox.Generator`; None for the default one.
    """

    function = staticmethod(F.dropout)


class Dropout1d(_DropoutNd):
    """Dropout of whole channels of [N, C, L]. `torch.nn.Dropout1d`."""

    function = staticmethod(F.dropout1d)


class Dropout2d(_DropoutNd):
    """Dropout of whole channels of [N, C, H, W]. `torch.nn.Dropout2d`."""

    function = staticmethod(F.dropout2d)


class Dropout3d(_DropoutNd):
    """Dropout of whole channels of [N, C, D, H, W]. `torch.nn.Dropout3d`."""

    function = staticmethod(F.dropout3d)


class AlphaDropout(_DropoutNd):
    """Dropout that keeps mean 0 and variance 1 behind a SELU. `torch.nn.AlphaDropout`."""

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_DropoutNd):
    """AlphaDropout of whole channels of [N, C, ...]. `torch.nn.FeatureAlphaDropout`."""

    function = staticmethod(F.feature_alpha_dropout)
