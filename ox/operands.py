"""Where Python numbers and mixed types meet operators: constants and promotions, each promotion a recorded Cast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox.dtypes import DType, get_default_dtype, int64, is_floating, onnx_type, promote
from ox.ops import operator
from ox.ops.dim import Dim
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor

_scalars: dict[tuple[Any, DType], Tensor] = {}


def scalar(value: Any, dtype: DType) -> Tensor:
    """A tensor of no dimensions, made once for each value and type."""
    if isinstance(value, Dim):
        # a size stays computed: its own operators, cast and stripped of its one axis
        flat = OPS["Squeeze"](value.tensor, operator.as_input(np.zeros(1, np.int64)))
        return flat if dtype == int64 else OPS["Cast"](flat, to=onnx_type(dtype))
    try:
        return _scalars[value, dtype]
    except KeyError:
        made = operator.make_tensor(np.asarray(value, dtype))
        if value == value and value != 0 and len(_scalars) < 4096:  # -0.0 == 0.0, and NaN finds nothing
            made.data.flags.writeable = False
            _scalars[value, dtype] = made
        return made


def scalar_type(value: Any, dtype: DType) -> DType:
    """The type in which a tensor of `dtype` meets a Python number: only a higher kind (bool < int < float) promotes."""
    if isinstance(value, (bool, np.bool_)) or is_floating(dtype):
        return dtype
    if isinstance(value, (int, np.integer)):
        return int64 if dtype == np.bool_ else dtype
    return get_default_dtype()


def meet(a: Tensor, b: Any) -> tuple[Tensor, Tensor]:
    """Two operands of one element type. Raises TypeError for what is no number, array or tensor."""
    if isinstance(b, (bool, int, float, np.generic)):
        target = scalar_type(b, a.data.dtype)
        return cast(a, target), scalar(
            b if isinstance(b, Dim) else b if not isinstance(b, np.generic) else b.item(), target
        )
    if isinstance(b, np.ndarray):
        b = operator.as_input(b)
    if not hasattr(b, "node"):
        raise TypeError(f"a Tensor does not combine with {type(b).__name__}")
    target = a.data.dtype
    if target != b.data.dtype:
        # a tensor of no dimensions promotes only across kinds, as in PyTorch
        if b.data.ndim == 0 and a.data.ndim and is_floating(target) >= is_floating(b.data.dtype) and target != np.bool_:
            pass
        elif (
            a.data.ndim == 0
            and b.data.ndim
            and is_floating(b.data.dtype) >= is_floating(target)
            and b.data.dtype != np.bool_
        ):
            target = b.data.dtype
        else:
            target = promote(target, b.data.dtype)
    return cast(a, target), cast(b, target)


def cast(x: Tensor, dtype: DType) -> Tensor:
    """`x` in another element type; `x` itself when it has it."""
    return x if x.data.dtype == dtype else OPS["Cast"](x, to=onnx_type(dtype))
