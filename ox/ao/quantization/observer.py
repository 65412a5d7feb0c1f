"""Observers: what range values have, and which scale and zero point fit it. `torch.ao.quantization.observer`."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.ao.quantization.round_trip import WHOLE, limits
from ox.devices import cpu
from ox.dtypes import PACKED, DType, float4_e2m1fn, float32, int8, int16, uint8, uint16
from ox.errors import ArgumentError
from ox.functions.creation import from_numpy
from ox.nn.base.module import Module
from ox.nn.parameter import Buffer
from ox.tensors.tensor import Tensor

TYPES = (uint8, int8, uint16, int16, *(t for t in PACKED if t != float4_e2m1fn))
EPS = float(np.finfo(np.float32).eps)


class MinMaxObserver(Module):
    """The smallest and the largest value so far. `torch.ao.quantization.MinMaxObserver`.

    Args:
        dtype: what values become: uint8, int8, or other integers that QuantizeLinear has.
        symmetric: whether 0 becomes the middle of the type; PyTorch's ``qscheme=torch.per_tensor_symmetric``.
        eps: the smallest scale.

    Raises:
        ArgumentError: a type that QuantizeLinear does not have.
    """

    axis = WHOLE

    def __init__(self, dtype: DType = uint8, symmetric: bool = False, eps: float = EPS) -> None:
        super().__init__()
        self.dtype = np.dtype(dtype)
        if self.dtype not in TYPES:
            raise ArgumentError(
                "values cannot be quantized to this type", expected=", ".join(map(str, TYPES)), got=str(self.dtype)
            )
        self.symmetric, self.eps = symmetric, eps
        self.reset()

    def reset(self, shape: tuple[int, ...] = ()) -> None:
        """Forgets what was seen."""
        self._set(np.full(shape, np.inf), np.full(shape, -np.inf))

    def forward(self, x: Tensor) -> Tensor:
        """Notes the range of x, and returns x."""
        low, high = self._range(cpu(x.detach().array).astype(np.float32))
        self._note(low, high)
        return x

    def _range(self, array: Any) -> tuple[Any, Any]:
        return array.min(), array.max()

    def _note(self, low: Any, high: Any) -> None:
        before = self._seen()
        self._set(np.minimum(before[0], low), np.maximum(before[1], high))

    def _seen(self) -> tuple[Any, Any]:
        """The range so far, on the CPU, where all of this is computed."""
        return cpu(self.min_val.array), cpu(self.max_val.array)

    def _set(self, low: Any, high: Any) -> None:
        self.min_val, self.max_val = (Buffer(np.asarray(x, np.float32)) for x in (low, high))

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point for what was seen.

        Raises:
            ArgumentError: nothing was seen.
        """
        low, high = self._seen()
        if not (np.isfinite(low).all() and np.isfinite(high).all()) or (high < low).any():
            raise ArgumentError("the observer has seen no values", hint="a forward of the prepared model in train mode")
        low, high = np.minimum(low, 0), np.maximum(high, 0)
        first, last = limits(self.dtype)
        if self.symmetric:
            scale = np.maximum(np.maximum(-low, high) / ((last - first) / 2), self.eps)
            zero = np.full(scale.shape, 0 if first < 0 else (last + 1) // 2)
        else:
            scale = np.maximum((high - low) / (last - first), self.eps)
            zero = np.clip(first - np.rint(low / scale), first, last)
        return from_numpy(np.asarray(scale, float32)), from_numpy(np.asarray(zero).astype(self.dtype))

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, symmetric={self.symmetric}"


class MovingAverageMinMaxObserver(MinMaxObserver):
    """Averages of the smallest and largest values of batches. `torch.ao.quantization.MovingAverageMinMaxObserver`.

    Args:
        averaging_constant: the share of a new batch.
    """

    def __init__(
        self, averaging_constant: float = 0.01, dtype: DType = uint8, symmetric: bool = False, eps: float = EPS
    ) -> None:
        super().__init__(dtype, symmetric, eps)
        self.averaging_constant = averaging_constant

    def _note(self, low: Any, high: Any) -> None:
        before = self._seen()
        if np.isfinite(before[0]).all():
            low = before[0] + self.averaging_constant * (low - before[0])
            high = before[1] + self.averaging_constant * (high - before[1])
        self._set(low, high)


class PerChannelMinMaxObserver(MinMaxObserver):
    """The range of each channel, now. `torch.ao.quantization.PerChannelMinMaxObserver`, for weights.

    Args:
        ch_axis: the dimension of the channels.
    """

    def __init__(self, ch_axis: int = 0, dtype: DType = int8, symmetric: bool = True, eps: float = EPS) -> None:
        super().__init__(dtype, symmetric, eps)
        self.axis = ch_axis

    def _range(self, array: Any) -> tuple[Any, Any]:
        others = tuple(i for i in range(array.ndim) if i != self.axis % array.ndim)
        return array.min(others), array.max(others)

    def _note(self, low: Any, high: Any) -> None:
        self._set(low, high)  # a weight moves, and an old range says nothing of it
