"""How a tensor prints."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.devices import cpu
from ox.dtypes import bfloat16, bool_, float32, int64
from ox.settings import PRINTING

if TYPE_CHECKING:
    from ox.tensor import Tensor


def show(t: Tensor) -> str:
    """``tensor([1., 2.], requires_grad=True)``; the type only where a literal would not give it."""
    array = cpu(t.array)
    if array.dtype == bfloat16:
        array = array.astype(np.float32)
    text = np.array2string(array, separator=", ", prefix="tensor(", **_numpy_options(array))
    marks = [text]
    if not array.size and array.ndim != 1:
        marks.append(f"size={array.shape}")
    if t.dtype not in (float32, int64, bool_):
        marks.append(f"dtype=ox.{t.dtype}")
    if t.device != "cpu":
        marks.append(f"device='{t.device}'")
    if t.grad_fn is not None:
        marks.append(f"grad_fn=<{t.grad_fn.name()}>")
    elif t.requires_grad:
        marks.append("requires_grad=True")
    return f"tensor({', '.join(marks)})"


def _numpy_options(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    """The settings of `ox.set_printoptions` as NumPy spells them."""
    threshold = PRINTING["threshold"]
    options: dict[str, Any] = {
        "precision": PRINTING["precision"],
        "threshold": sys.maxsize if threshold == float("inf") else int(threshold),
        "edgeitems": PRINTING["edgeitems"],
        "max_line_width": PRINTING["linewidth"],
    }
    if PRINTING["sci_mode"] and array.dtype.kind == "f":
        digits = PRINTING["precision"]
        options["formatter"] = {"float_kind": lambda x: f"{x:.{digits}e}"}
    elif PRINTING["sci_mode"] is False:
        options["suppress_small"] = True
    return options
