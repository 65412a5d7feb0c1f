"""float16 and bfloat16 on the CPU: in float32, as fast as that runs, and rounded once.

NumPy computes them number by number, and ONNX Runtime's CPU has hardly a bfloat16 kernel. So a call that no compiled
kernel of bfloat16 takes goes the way that its float32 version would go, between two conversions. Below the size at
which that goes to ONNX Runtime, the kernels do the same themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox.devices import dispatch
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.devices.onnxruntime import node_session
from ox.devices.operator import Operator
from ox.dtypes import HALF_TYPES, DType, bfloat16, float32

if TYPE_CHECKING:
    from ox.devices.dispatch import Accelerated

# what only moves values, or picks the largest, rounds nothing; a Cast is the conversion itself
EXACT = frozenset(("Cast", "Gather", "MaxPool", "ReduceMax", "ReduceMin"))
ELEMENTS = 4_000  # from so many on ONNX Runtime converts float16 faster than NumPy, and the compiled kernel bfloat16


def converted(array: Any, dtype: DType) -> Any:
    """The array in another type, with its elements in the same order in memory; what does not fit is infinite."""
    if array.size >= ELEMENTS and bfloat16 in (array.dtype, dtype):
        library = compiled.library()
        if library is not None and (made := compiled.bfloat16_cast(library, array, dtype)) is not None:
            return made
    elif array.size >= ELEMENTS and not node_session.forked:
        session = node_session.cast_session(array.dtype, dtype)
        if array.flags.c_contiguous:
            return session([array])
        if array.ndim > 1 and (turned := array.swapaxes(-1, -2)).flags.c_contiguous:
            return session([turned]).swapaxes(-1, -2)
    with np.errstate(all="ignore"):
        return array.astype(dtype)


class Widened:
    """The float32 executor of an operator, for its half-width calls; see `ox.devices.dispatch.Accelerated`."""

    def __init__(self, inner: Accelerated, types: tuple[DType | None, ...]) -> None:
        self._inner, self._types = inner, types

    def worthwhile(self, arrays: list[Any]) -> bool:
        return self._inner.worthwhile(arrays)  # checked for each call: in a forked child it is never

    def run(self, op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        wide = [converted(a, float32) if a is not None and a.dtype in HALF_TYPES else a for a in arrays]
        result = self._inner.run(op, wide, attributes)
        several = result if type(result) is tuple else (result,)
        made = [y if dtype is None else converted(y, dtype) for y, dtype in zip(several, self._types, strict=False)]
        return made[0] if len(made) == 1 else tuple(made)


def offer(op: Operator, arrays: list[Any]) -> Widened | None:
    """For `ox.devices.accelerators`: what the others offer for float32."""
    halves = {a.dtype for a in arrays if a is not None and a.dtype in HALF_TYPES}
    if len(halves) != 1 or op.name in EXACT or any(not isinstance(a, np.ndarray) for a in arrays if a is not None):
        return None
    wide = [np.empty(0, float32) if a is not None and a.dtype in halves else a for a in arrays]
    for other in dispatch.accelerators:
        if other is not offer and (inner := other(op, wide)) is not None:
            return Widened(inner, tuple(_narrow(op, kind, arrays) for kind in op.schema.output_types))
    return None


def _narrow(op: Operator, kind: str, arrays: list[Any]) -> DType | None:
    """The half-width type of an output, where it has one: that of the inputs that share its type variable."""
    for i, a in enumerate(arrays):
        if a is not None and op.schema.input_at(i).type == kind:
            return a.dtype if a.dtype in HALF_TYPES else None
    return None
