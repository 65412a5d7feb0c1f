"""Padding in all its modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import ops
from ox.core.argument_errors import check_tensor_arguments
from ox.core.constants import stored
from ox.core.symbolic import Dim, size_tensor
from ox.core.views import in_own_memory
from ox.errors import ArgumentError, ShapeError
from ox.nn.functional.arguments import one_of
from ox.tensors.tensor import Tensor

__all__ = ["pad"]

MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


@check_tensor_arguments
def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """Pad or, where negative, crop the last dimensions, innermost first: (left, right, top, bottom, ...).
    `torch.nn.functional.pad`, ONNX Pad.

    Args:
        mode: "constant", or for the last one to three of the dimensions behind the channels "reflect" (by less than the
            size), "replicate" or "circular" (by at most the size).
        value: of the constant; 0 when None.
    """
    one_of(mode, "mode", tuple(MODES))
    amounts = [p if isinstance(p, Dim) else int(p) for p in pad]  # a Dim stays computed
    shape, rank, count = input.static_shape, input.array.ndim, len(amounts) // 2
    if len(amounts) % 2 or count > rank:
        raise ArgumentError(
            "pad takes a begin and an end for each dimension, last dimension first",
            expected=f"pairs for at most {rank} dimensions",
            got=str(tuple(pad)),
        )
    if mode != "constant":
        _check(shape, amounts, mode, value)
    begin, end = [0] * rank, [0] * rank
    for i in range(count):
        begin[rank - 1 - i], end[rank - 1 - i] = amounts[2 * i], amounts[2 * i + 1]
    if any(n + b + e < 0 for n, b, e in zip(shape, begin, end, strict=True)):
        raise ShapeError("negative padding removes more than the input has", got=f"pad {tuple(pad)} of {list(shape)}")
    if mode == "constant":
        dtype = input.array.dtype
        if dtype.kind == "u" and type(value) is int:
            value = float(value)  # as PyTorch takes it: a negative one does not count from the end
        made = ops.Pad(input, size_tensor([*begin, *end]), stored(0 if value is None else value, dtype))
        return in_own_memory(made, input)
    if mode == "circular" and any(a < 0 for a in amounts):
        # what is cropped does not come round again
        input = ops.Pad(input, size_tensor([min(a, 0) for a in (*begin, *end)]))
        begin, end = [max(a, 0) for a in begin], [max(a, 0) for a in end]
    return ops.Pad(input, size_tensor([*begin, *end]), mode=MODES[mode])


def _check(shape: Any, amounts: list[int], mode: str, value: float | None) -> None:
    """Check the limits of the modes that copy, as PyTorch does: one to three dimensions, and enough values to copy."""
    count = len(amounts) // 2
    if value is not None and value != 0:
        raise ArgumentError(f"padding by {mode!r} takes no value", got=str(value))
    if not 1 <= count <= 3 or len(shape) not in (count + 1, count + 2):
        raise ShapeError(
            f"padding by {mode!r} is for the last one to three dimensions, of {count + 1} or {count + 2} here",
            got=f"{len(amounts)} amounts for input {list(shape)}",
        )
    for i in range(count):
        n, most = shape[-1 - i], max(amounts[2 * i : 2 * i + 2])
        if (mode == "reflect" and most >= n) or (mode == "circular" and most > n) or (not n and most > 0):
            raise ShapeError(
                f"padding by {mode!r} copies at most {n - 1 if mode == 'reflect' else n} places of {n}",
                got=f"pad {tuple(amounts)} of {list(shape)}",
            )
