"""Autograd functions of one's own under autocast: `torch.amp.custom_fwd` and `custom_bwd`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

from ox.amp.autocasting import autocast, get_autocast_dtype, is_autocast_enabled, known_device
from ox.amp.policy import ELIGIBLE
from ox.core.promotion import cast
from ox.core.tensor import is_tensor
from ox.dtypes import DType


def custom_fwd(
    fwd: Callable[..., Any] | None = None, *, device_type: str, cast_inputs: DType | None = None
) -> Callable[..., Any]:
    """Decorate `forward` of an `ox.autograd.Function`. `torch.amp.custom_fwd`.

    Args:
        device_type: "cpu" or "cuda".
        cast_inputs: under autocast, floats (but float64) among the arguments come in this type, and autocast is off
            inside; without it `forward` runs as the region has it.
    """
    device_type = known_device(device_type)
    if fwd is None:
        return partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @wraps(fwd)
    def forward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        ctx._dtype = get_autocast_dtype(device_type)
        ctx._fwd_used_autocast = on = is_autocast_enabled(device_type)
        if cast_inputs is None or not on:
            return fwd(ctx, *args, **kwargs)
        ctx._fwd_used_autocast = False
        with autocast(device_type, ctx._dtype, enabled=False):
            return fwd(ctx, *_fitted(args, device_type, cast_inputs), **_fitted(kwargs, device_type, cast_inputs))

    return forward


def custom_bwd(bwd: Callable[..., Any] | None = None, *, device_type: str) -> Callable[..., Any]:
    """Decorate `backward` of an `ox.autograd.Function` whose `forward` has `custom_fwd`: it runs under autocast if that
    one did. `torch.amp.custom_bwd`."""
    device_type = known_device(device_type)
    if bwd is None:
        return partial(custom_bwd, device_type=device_type)

    @wraps(bwd)
    def backward(ctx: Any, *args: Any, **kwargs: Any) -> Any:
        with autocast(device_type, ctx._dtype, enabled=ctx._fwd_used_autocast):
            return bwd(ctx, *args, **kwargs)

    return backward


def _fitted(value: Any, device_type: str, dtype: DType) -> Any:
    if is_tensor(value):
        fits = value.array.dtype in ELIGIBLE and value.device.type == device_type
        return cast(value, dtype) if fits else value
    if isinstance(value, Mapping):
        return {key: _fitted(v, device_type, dtype) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_fitted(v, device_type, dtype) for v in value)
    return value
