"""Choosing an executor by hand: `with ox.devices.forced("numpy")` or `forced("onnxruntime")`.

Without it a call picks by device, element type and size; see `ox.devices.dispatch` and
`ox.devices.onnxruntime.dispatch_table`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.devices import cuda_state
from ox.devices.dispatch import namespace, take_scalars_along
from ox.devices.gpu import kernel_table as cuda_operators
from ox.devices.onnxruntime import node_session
from ox.devices.onnxruntime.node_session import NoKernelError as NoKernelError
from ox.devices.operator import Operator
from ox.dtypes import bfloat16
from ox.errors import ArgumentError, DeviceError, first_line

if TYPE_CHECKING:
    from ox.devices.dispatch import Accelerated

# ox.core.mode, on a higher floor, registers its switch here
_switches: list[Callable[..., AbstractContextManager[Any]]] = []


def dispatch(op: Operator, arrays: list[Any], attributes: dict[str, Any], accelerated: Accelerated | None) -> Any:
    """The executor of a call when none is forced, by device and size: the NumPy or CuPy kernel, or a faster one.

    Executors have one form: operator, arrays, attributes, and what `ox.devices.accelerated` offers for these types.
    """
    if cuda_state.in_use:
        xp, numbers = namespace(op, arrays)
        if xp is not np:
            if cuda_state.several:
                with cuda_state.at(*arrays):
                    return _on_gpu(op, xp, arrays, attributes, numbers)
            return _on_gpu(op, xp, arrays, attributes, numbers)
    if accelerated is not None and accelerated.worthwhile(arrays):
        return accelerated.run(op, arrays, attributes)
    return op.kernel(np, *arrays, **attributes)


def _on_gpu(op: Operator, xp: Any, arrays: list[Any], attributes: dict[str, Any], numbers: list[int]) -> Any:
    """On the current device: a kernel of ours, or what CuPy does."""
    made = cuda_operators.run(op, xp, arrays, attributes, numbers)
    if made is not None:
        return made
    take_scalars_along(arrays, numbers)
    return _in_bfloat16(op, arrays, op.kernel(xp, *arrays, **attributes))


def _in_bfloat16(op: Operator, arrays: list[Any], made: Any) -> Any:
    """Results in the type of the inputs that they share a type with: CuPy's `where` and `clip` make float32 of
    bfloat16."""
    for a in arrays:
        if a is not None and a.dtype == bfloat16:
            break
    else:
        return made
    schema = op.schema
    halves = {schema.input_at(i).type for i, a in enumerate(arrays) if a is not None and a.dtype == bfloat16}
    results = made if isinstance(made, tuple) else (made,)
    types = schema.output_types * len(results) if schema.variadic_output else schema.output_types
    cast = tuple(
        y.astype(bfloat16) if y is not None and kind in halves and y.dtype == np.float32 else y
        for y, kind in zip(results, types, strict=False)
    )
    return cast if isinstance(made, tuple) else cast[0]


def on_numpy(op: Operator, arrays: list[Any], attributes: dict[str, Any], accelerated: Accelerated | None) -> Any:
    """The reference kernel, for every size."""
    _check_host(op, arrays)
    return op.kernel(np, *arrays, **attributes)


def on_onnxruntime(op: Operator, arrays: list[Any], attributes: dict[str, Any], accelerated: Accelerated | None) -> Any:
    """A one-node ONNX Runtime session on the CPU, in any element type that has a kernel there.

    Raises:
        NoKernelError: ONNX Runtime has no kernel for it.
        DeviceError: ONNX Runtime is not installed.
    """
    _check_host(op, arrays)
    found = node_session.call(op, arrays, attributes)
    if not isinstance(found, str):
        try:
            return found.any_type(arrays)
        except node_session.runtime().binding.NotImplemented as error:
            found = first_line(error)
    types = ", ".join(sorted({str(a.dtype) for a in arrays if a is not None}))
    raise NoKernelError(
        f"ONNX Runtime has no CPU kernel for {op.name}" + (f" in {types}" if types else ""),
        got=found,
        hint='ox.devices.forced("numpy"), which has every operator in every element type',
    )


EXECUTORS = {"numpy": on_numpy, "onnxruntime": on_onnxruntime}


def forced(name: str) -> AbstractContextManager[Any]:
    """Run every operator of a block on one executor, ``"numpy"`` or ``"onnxruntime"``; None picks again by itself.

    For tests, for measurements, and for bit-equal results on machines of different size. Holds for this context
    (thread or task) only. Under ``"onnxruntime"`` a call for which it has no kernel raises `NoKernelError`.

    Raises:
        ArgumentError: no such executor.
    """
    if name is not None and name not in EXECUTORS:
        raise ArgumentError(f"there is no executor '{name}'", expected=" or ".join(EXECUTORS), got=repr(name))
    return _switches[0](executor=None if name is None else EXECUTORS[name])


def _check_host(op: Operator, arrays: list[Any]) -> None:
    if any(a is not None and not isinstance(a, np.ndarray) for a in arrays):
        raise DeviceError(f"{op.name} got a tensor on cuda while a CPU executor is forced", hint="x.cpu()")
