"""Turn whatever a kernel raised into an `OxError` that says which call it was, on which line of the user."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox.errors import ArgumentError, BoundsError, DeviceError, OxError, ShapeError
from ox.ops.mode import MODE
from ox.where import module_path, users_line

if TYPE_CHECKING:
    from ox.ops.operator import Operator


def describe(x: Any) -> str:
    """``float32 [64, 512]``."""
    return f"{x.array.dtype} {list(x.array.shape)}"


def place() -> str | None:
    """``LeNet.fc1 (Linear), train.py:31   x = self.fc1(x)``, as much of it as there is."""
    return ", ".join(part for part in (module_path(MODE.get().modules), users_line(3)) if part) or None


def call(op: Operator, inputs: tuple[Any, ...], attributes: dict[str, Any], error: Exception) -> OxError:
    """The error to raise for a call that failed."""
    if isinstance(error, OxError):
        error.where = error.where or place()
        return error
    given = [
        f"{op.schema.input_at(i).name} {describe(x)}"
        for i, x in enumerate(inputs)
        if x is not None and op.schema.inputs
    ]
    given += [f"{name}={value!r}" for name, value in attributes.items() if name != "outputs"]
    got = ", ".join(given) or "no inputs"
    if isinstance(error, TypeError) and "argument" in str(error):
        return ArgumentError(f"{op.name}: {error}", where=place(), expected=_signature(op), got=got)
    if isinstance(error, MemoryError):
        return DeviceError(f"{op.name} ran out of memory: {error}", where=place(), got=got)
    if isinstance(error, IndexError) and not isinstance(error, ValueError):  # NumPy's AxisError is both
        return BoundsError(f"{op.name}: {error}", where=place(), got=got)
    if isinstance(error, (ValueError, IndexError)):
        return ShapeError(f"{op.name} cannot combine these shapes: {error}", where=place(), got=got)
    return OxError(f"{op.name} failed: {error or type(error).__name__}", where=place(), got=got)


def _signature(op: Operator) -> str:
    inputs = [("*" if p.variadic else "") + p.name + ("=None" if p.optional else "") for p in op.schema.inputs]
    attributes = [
        f"{k}={v!r}" if isinstance(v, (int, float, str, list)) or v is None else k
        for k, v in op.schema.attributes.items()
    ]
    return f"{op.name}({', '.join(inputs)}{', *, ' + ', '.join(attributes) if attributes else ''})"
