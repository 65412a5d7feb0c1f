"""Turn an exception of a kernel into an `OxError` that names the operator call and the line of the user."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ox import errors
from ox.call_site import is_ox, module_path, users_line
from ox.core.mode import MODULES
from ox.errors import ArgumentError, BoundsError, DeviceError, OutOfMemoryError, OxError, ShapeError

if TYPE_CHECKING:
    from ox.core.operator import Operator


def describe(x: Any) -> str:
    """``float32 [64, 512]``."""
    return f"{x.array.dtype} {list(x.static_shape)}"


def place() -> str | None:
    """``LeNet.fc1 (Linear), train.py:31   x = self.fc1(x)``, as much of it as there is."""
    return ", ".join(part for part in (module_path(MODULES.get()), users_line()) if part) or None


_ERRORS = OxError.__init__.__code__.co_filename


def _call_site() -> str | None:
    """The place for an error that ox itself is making; None for one that code outside ox makes, which is a traceback's
    last line anyway."""
    frame: Any = sys._getframe(2)  # what called OxError.__init__: a subclass, or the code that raises
    while frame.f_code.co_filename == _ERRORS:
        frame = frame.f_back
    return place() if is_ox(frame.f_code.co_filename) else None


errors.call_site = _call_site


def call(op: Operator, inputs: tuple[Any, ...], attributes: dict[str, Any], error: Exception) -> OxError:
    """The error to raise for a call that failed."""
    if isinstance(error, OxError) and not isinstance(error, OutOfMemoryError):
        error.where = error.where or place()
        return error
    given = [
        f"{op.schema.input_at(i).name} {describe(x)}"
        for i, x in enumerate(inputs)
        if x is not None and op.schema.inputs
    ]
    given += [f"{name}={value!r}" for name, value in attributes.items() if name != "outputs"]
    got = ", ".join(given) or "no inputs"
    if isinstance(error, OutOfMemoryError):
        error.where = error.where or place()
        error.extra.setdefault("operator", f"{op.name} of {got}")
        return error
    if isinstance(error, TypeError) and "argument" in str(error):
        return ArgumentError(f"{op.name}: {error}", expected=_signature(op), got=got)
    if isinstance(error, MemoryError):
        return DeviceError(f"{op.name} ran out of memory: {error}", got=got)
    if isinstance(error, IndexError) and not isinstance(error, ValueError):  # NumPy's AxisError is both
        return BoundsError(f"{op.name}: {error}", got=got)
    if isinstance(error, (ValueError, IndexError)):
        return ShapeError(f"{op.name} cannot combine these shapes: {error}", got=got)
    return OxError(f"{op.name} failed: {error or type(error).__name__}", got=got)


def _signature(op: Operator) -> str:
    inputs = [("*" if p.variadic else "") + p.name + ("=None" if p.optional else "") for p in op.schema.inputs]
    attributes = [
        f"{k}={v!r}" if isinstance(v, (int, float, str, list)) or v is None else k
        for k, v in op.schema.attributes.items()
    ]
    return f"{op.name}({', '.join(inputs)}{', *, ' + ', '.join(attributes) if attributes else ''})"
