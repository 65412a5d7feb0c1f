"""Values through integers and back, with the gradients that training needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.autograd import Function, is_grad_enabled
from ox.dtypes import DType
from ox.ops import DequantizeLinear, QuantizeLinear
from ox.tensors.tensor import Tensor

WHOLE = -1  # the axis of one scale for all


def limits(dtype: DType) -> tuple[int, int]:
    """The smallest and the largest number of an integer type."""
    import ml_dtypes

    info = ml_dtypes.iinfo(dtype)  # type: ignore[no-untyped-call]
    return int(info.min), int(info.max)


def round_trip(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int = WHOLE, share: float = 0.0) -> Tensor:
    """QuantizeLinear and DequantizeLinear. The gradient of x passes straight through where the integers do not end, and
    is 0 beyond (`torch.fake_quantize_per_tensor_affine`); that of the scale is as in Esser et al., "Learned Step Size
    Quantization" (2020).

    Args:
        scale: float32, [] or one for each place along `axis`. zero_point: integers of the same shape; their type is the
            type of the steps.
        share: what the gradient of the scale is multiplied with.
    """
    if is_grad_enabled() and (x.requires_grad or scale.requires_grad):
        result: Tensor = RoundTrip.apply(x, scale, zero_point, axis, share)
        return result
    return _through(x, scale, zero_point, axis)


def _through(x: Tensor, scale: Tensor, zero_point: Tensor, axis: int) -> Tensor:
    along = {} if axis == WHOLE else {"axis": axis}
    result: Tensor = DequantizeLinear(QuantizeLinear(x, scale, zero_point, **along), scale, zero_point, **along)
    return result


class RoundTrip(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, zero_point: Tensor, axis: int, share: float) -> Tensor:
        ctx.save_for_backward(x, scale, zero_point)
        ctx.axis, ctx.share = axis, share
        return _through(x, scale, zero_point, axis)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, zero_point = ctx.saved_tensors
        low, high = limits(zero_point.array.dtype)
        zero = zero_point.to(x.dtype)
        others = tuple(range(x.ndim))
        if ctx.axis != WHOLE:
            shape = [1] * x.ndim
            shape[ctx.axis] = x.shape[ctx.axis]
            scale, zero = scale.reshape(shape), zero.reshape(shape)
            others = tuple(i for i in others if i != ctx.axis % x.ndim)
        steps = x / scale
        whole = steps.round()
        places = whole + zero
        inside = (places >= low) & (places <= high)
        to_x = g * inside.to(x.dtype)
        if not ctx.needs_input_grad[1]:
            return to_x, None, None, None, None
        slope = (whole - steps).where(inside, places.clamp(low, high) - zero)
        to_scale = (g * slope * ctx.share).sum(others) if others else g * slope * ctx.share
        return to_x, to_scale, None, None, None


def learning_share(count: int, dtype: DType) -> float:
    """1 / sqrt(count · largest number): with it, scales and weights learn at one speed (Esser et al.)."""
    return float(1 / np.sqrt(count * max(limits(dtype)[1], 1)))
