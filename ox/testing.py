"""`torch.testing`: comparing tensors in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ox import random
from ox.core.operator import as_input
from ox.core.promotion import cast
from ox.dtypes import DType, bfloat16, bool_, float16, float32, float64, is_floating
from ox.errors import ArgumentError
from ox.tensors.tensor import Tensor

# PyTorch's own defaults, by element type: relative, absolute
TOLERANCES = {float16: (1e-3, 1e-5), bfloat16: (1.6e-2, 1e-5), float32: (1.3e-6, 1e-5), float64: (1e-7, 1e-7)}


def assert_close(
    actual: Any,
    expected: Any,
    *,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_dtype: bool = True,
    msg: str | None = None,
) -> None:
    """Fail unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere. `torch.testing.assert_close`.

    Takes tensors, arrays, numbers, and sequences and mappings of them.

    Raises:
        AssertionError: other values, shapes, element types or lengths; says where and by how much.
        ArgumentError: only one of `rtol` and `atol`.
    """
    if (rtol is None) != (atol is None):
        raise ArgumentError("give both rtol and atol, or neither")
    options = {"rtol": rtol, "atol": atol, "equal_nan": equal_nan, "check_dtype": check_dtype}
    problem = _difference(actual, expected, options, "")
    if problem:
        raise AssertionError(msg or problem)


def _difference(actual: Any, expected: Any, options: dict[str, Any], where: str) -> str | None:
    if isinstance(expected, Mapping):
        if not isinstance(actual, Mapping) or set(actual) != set(expected):
            return f"the keys{where} are {sorted(actual)}, not {sorted(expected)}"
        parts: Any = [(key, actual[key], expected[key]) for key in expected]
    elif isinstance(expected, Sequence) and not isinstance(expected, str):
        if not isinstance(actual, Sequence) or len(actual) != len(expected):
            return f"the lengths{where} are not the same"
        parts = list(zip(range(len(expected)), actual, expected, strict=True))
    else:
        return _tensors(as_input(actual), as_input(expected), options, where)
    found = (_difference(a, e, options, f"{where} at {key!r}") for key, a, e in parts)
    return next(filter(None, found), None)


def _tensors(actual: Tensor, expected: Tensor, options: dict[str, Any], where: str) -> str | None:
    a, e = (np.asarray(x.detach().cpu().array) for x in (actual, expected))
    if a.shape != e.shape:
        return f"the shapes{where} are {list(a.shape)} and {list(e.shape)}"
    if options["check_dtype"] and a.dtype != e.dtype:
        return f"the element types{where} are {a.dtype} and {e.dtype}"
    by_type = [TOLERANCES.get(x.dtype, (0.0, 0.0)) for x in (a, e)]
    rtol = max(r for r, _ in by_type) if options["rtol"] is None else options["rtol"]
    atol = max(t for _, t in by_type) if options["atol"] is None else options["atol"]
    wide = np.float64 if is_floating(a.dtype) or is_floating(e.dtype) else np.int64
    if a.dtype == bool_ or not (rtol or atol):
        close = a == e
        if options["equal_nan"] and is_floating(a.dtype):
            close |= np.isnan(a) & np.isnan(e)
    else:
        close = np.isclose(a.astype(wide), e.astype(wide), rtol, atol, options["equal_nan"])
    if close.all():
        return None
    with np.errstate(all="ignore"):
        off = np.abs(a.astype(np.float64) - e.astype(np.float64))
    worst = np.unravel_index(np.where(close, -1, np.nan_to_num(off, nan=np.inf)).argmax(), off.shape)
    return (
        f"{int((~close).sum())} of {close.size} elements{where} are not close: at {list(map(int, worst))} "
        f"{a[worst]} against {e[worst]}, off by {off[worst]:.3g} (rtol {rtol:g}, atol {atol:g})"
    )


def make_tensor(
    *shape: Any, dtype: DType, device: str = "cpu", low: float = -9, high: float = 9, requires_grad: bool = False
) -> Tensor:
    """Uniform numbers in [low, high) of a type. `torch.testing.make_tensor`."""
    sizes = shape[0] if len(shape) == 1 and isinstance(shape[0], Sequence) else shape
    drawn = random.uniform(sizes) * (high - low) + low
    made = cast(drawn if is_floating(dtype) else drawn.floor(), dtype).to(device)
    return made.requires_grad_() if requires_grad else made
