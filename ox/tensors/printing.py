"""How a tensor prints."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.devices import cpu
from ox.dtypes import bfloat16, bool_, get_default_dtype, int64
from ox.tensors.settings import PRINTING

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


def format_tensor(t: Tensor) -> str:
    """``tensor([1., 2.], requires_grad=True)``; the type only where a literal would not give it."""
    array = cpu(t.array)
    if array.dtype == bfloat16:
        array = array.astype(np.float32)
    text = np.array2string(array, separator=", ", prefix="tensor(", **_numpy_options(array))
    marks = [text]
    if not array.size and array.ndim != 1:
        marks.append(f"size={array.shape}")
    if t.dtype not in (get_default_dtype(), int64, bool_) or (t.dtype == int64 and not array.size):
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
        "threshold": sys.maxsize if threshold == float("inf") else int(threshold),
        "edgeitems": PRINTING["edgeitems"],
        "max_line_width": PRINTING["linewidth"],
    }
    if array.dtype.kind == "f":
        options["formatter"] = {"float_kind": _format_of(array.astype(np.float64))}
    return options


def _format_of(array: np.ndarray[Any, Any]) -> Callable[[float], str]:
    """How PyTorch prints the floats of one tensor: whole ones as ``1.``, others with as many digits each, and powers of
    ten for a wide range. NaN, infinities and zeros are ignored."""
    digits, powers = PRINTING["precision"], PRINTING["sci_mode"]
    finite = array[np.isfinite(array)]
    whole = bool((finite == np.ceil(finite)).all())
    sizes = np.abs(finite[finite != 0])
    least, most = (float(sizes.min()), float(sizes.max())) if sizes.size else (1.0, 1.0)
    if powers is None:
        powers = most / least > 1000 or most > 1e8 or (not whole and least < 1e-4)

    def bare(x: float) -> str:
        if powers:
            return f"{x:.{digits}e}"
        return f"{x:.0f}." if whole and math.isfinite(x) else f"{x:.{digits}f}"

    ends = [float(end(finite)) for end in (np.min, np.max)] if sizes.size else []
    width = max((len(bare(end)) for end in ends), default=0)
    return lambda x: bare(x).rjust(width)
