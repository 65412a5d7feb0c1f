"""`out=`: a result written into a tensor, or several into a tuple of them."""

from __future__ import annotations

from typing import Any

from ox.core.mode import MODE
from ox.core.promotion import cast
from ox.core.tensor import is_tensor
from ox.dtypes import bool_, is_floating
from ox.errors import CallError, DeviceError, DTypeError, GradientError, ShapeError


def write(made: Any, out: Any, name: str) -> Any:
    """`out` with what the function `name` made in it; a tensor without elements takes any shape.

    Raises:
        CallError: no tensor, or not as many as the function makes.
        ShapeError: a tensor with elements, of another shape (PyTorch warns that it changes the shape).
        DTypeError: an element type that does not hold the result's kind: floats into integers, numbers into bools.
        DeviceError: a tensor on another device.
        GradientError: the result or `out` requires a gradient.
    """
    if not isinstance(made, tuple):
        return _write(made, out, name)
    if not isinstance(out, (tuple, list)) or len(out) != len(made):
        raise CallError(f"{name}'s out= is a tuple of {len(made)} tensors", got=_described(out))
    for each, place in zip(made, out, strict=True):
        _write(each, place, name)
    return type(made)(*out) if hasattr(made, "_fields") else tuple(out)


def _described(out: Any) -> str:
    return f"{len(out)} of them" if isinstance(out, (tuple, list)) else type(out).__name__


def _write(made: Any, out: Any, name: str) -> Any:
    if not is_tensor(out):
        raise CallError(f"{name}'s out= is a tensor", got=_described(out))
    mode = MODE.get()
    if mode.grad and (made.node is not None or out.node is not None):
        raise GradientError(
            f"no gradient goes through {name}'s out=", hint="leave out= away, or call it under ox.no_grad()"
        )
    have, came = out.array.dtype, made.array.dtype
    if have != came and ((is_floating(came) and not is_floating(have)) or have == bool_):
        raise DTypeError(f"{name}'s result does not go into out=", expected=str(came), got=str(have))
    if out.device != made.device:
        raise DeviceError(f"{name}'s out= is on another device", got=f"{out.device}")
    made = cast(made.detach(), have)
    if out.static_shape == made.static_shape:
        return out.assign(made, f"{name}(out=)")
    if out.array.size:
        raise ShapeError(
            f"{name}'s out= has another shape than its result",
            expected=str(list(made.static_shape)),
            got=str(list(out.static_shape)),
            hint="ox.empty(0), which takes any shape",
        )
    out.data = made.clone()
    if mode.recording is not None:
        mode.recording.alias(out, made)
    return out
