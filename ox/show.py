"""How a tensor prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ox.devices import cpu
from ox.dtypes import bfloat16, bool_, float32, int64

if TYPE_CHECKING:
    from ox.tensor import Tensor


def show(t: Tensor) -> str:
    """``tensor([1., 2.], requires_grad=True)``; the type only where a literal would not give it."""
    array = cpu(t.data)
    if array.dtype == bfloat16:
        array = array.astype(np.float32)
    text = np.array2string(array, precision=4, separator=", ", threshold=1000, edgeitems=3, prefix="tensor(")
    marks = [text]
    if not array.size and array.ndim != 1:
        marks.append(f"size={array.shape}")
    if t.dtype not in (float32, int64, bool_):
        marks.append(f"dtype=ox.{t.dtype}")
    if t.device != "cpu":
        marks.append(f"device='{t.device}'")
    if t.grad_fn is not None:
        marks.append(f"grad_fn=<{t.grad_fn.name}>")
    elif t.requires_grad:
        marks.append("requires_grad=True")
    return f"tensor({', '.join(marks)})"
