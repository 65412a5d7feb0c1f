"""Parameters and buffers whose shape comes later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ox.core.size import Size
from ox.dtypes import DType, get_default_dtype
from ox.errors import ArgumentError
from ox.nn.parameter import Buffer, Parameter

__all__ = ["UninitializedBuffer", "UninitializedParameter"]


class _Uninitialized:
    """What the two below share: an element type and a device, and a shape that comes later."""

    array: Any
    _becomes: type

    @property
    def shape(self) -> Size:
        raise ArgumentError(
            f"an {type(self).__name__} has no shape yet",
            hint="run the module once on an input (or load its state): its first input decides the shape",
        )

    def materialize(self, shape: Sequence[int], device: str | None = None, dtype: DType | None = None) -> None:
        """Take a shape, and with it memory (zeros): the same object is an ordinary one from now on."""
        array: Any = np.zeros([int(size) for size in shape], dtype or self.array.dtype)
        wanted = device or self.device  # type: ignore[attr-defined]
        self.__class__ = self._becomes
        self.array = array
        if wanted != "cpu":
            self.array = self.to(wanted).array  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"


class UninitializedParameter(_Uninitialized, Parameter):
    """A parameter without a shape. `torch.nn.UninitializedParameter`; `materialize(shape)` gives it one."""

    _becomes = Parameter

    def __init__(self, requires_grad: bool = True, device: str | None = None, dtype: DType | None = None) -> None:
        Parameter.__init__(self, np.zeros(0, dtype or get_default_dtype()), requires_grad)
        if device not in (None, "cpu"):
            self.array = self.to(device).array

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedParameter:
        made = memo[id(self)] = type(self)(self.requires_grad, self.device, self.array.dtype)
        return made


class UninitializedBuffer(_Uninitialized, Buffer):
    """A buffer without a shape. `torch.nn.UninitializedBuffer`; `materialize(shape)` gives it one."""

    _becomes = Buffer

    def __init__(
        self,
        requires_grad: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
        persistent: bool = True,
    ) -> None:
        Buffer.__init__(self, np.zeros(0, dtype or get_default_dtype()), persistent=persistent)
        self.requires_grad = requires_grad
        if device not in (None, "cpu"):
            self.array = self.to(device).array

    def __deepcopy__(self, memo: dict[int, Any]) -> UninitializedBuffer:
        made = memo[id(self)] = type(self)(self.requires_grad, self.device, self.array.dtype, self.persistent)
        return made


def is_lazy(value: Any) -> bool:
    """Whether a parameter or buffer still waits for its shape. `torch.nn.parameter.is_lazy`."""
    return isinstance(value, _Uninitialized)
