"""Dimensions and sizes as arguments: counted from the end where negative, checked, and refused with a clear error."""

from __future__ import annotations

import operator as python
from collections.abc import Sequence
from typing import Any

from ox.core.symbolic import Dim
from ox.errors import ArgumentError, BoundsError, CallError, ShapeError

Dims = int | Sequence[int] | None


def one_dim(dim: Any, rank: int) -> int:
    """`dim` as 0 ... rank - 1; a tensor of no dimensions takes 0 and -1, as in PyTorch.

    Raises:
        BoundsError: outside the tensor's dimensions.
        ArgumentError: no whole number.
    """
    try:
        d = python.index(dim)
    except TypeError:
        raise ArgumentError("a dimension is a whole number", expected="an int", got=type(dim).__name__) from None
    least = rank if rank else 1
    if -least <= d < least:
        return d + least if d < 0 else d
    raise BoundsError(
        f"dimension {d} is outside a tensor of {rank} dimensions", expected=f"{-least} to {least - 1}", got=str(d)
    )


def some_dims(dim: Dims, rank: int) -> list[int]:
    """One dimension or several as non-negative ints; all when None or empty.

    Raises:
        BoundsError: one is outside the tensor's dimensions.
        ArgumentError: one comes twice.
    """
    if dim is None:
        return list(range(rank))
    if isinstance(dim, int):
        return [one_dim(dim, rank)]
    chosen = [one_dim(d, rank) for d in dim]
    if len(set(chosen)) != len(chosen):
        raise ArgumentError("a dimension comes twice", got=str(list(dim)))
    return chosen or list(range(rank))


def sizes_of(shape: tuple[Any, ...]) -> list[Any]:
    """The sizes in ``f(2, 3)`` or ``f((2, 3))``. Raises ShapeError for what is no whole number."""
    several = shape[0] if len(shape) == 1 and not hasattr(shape[0], "__index__") else shape
    try:
        return [s if isinstance(s, Dim) else python.index(s) for s in several]
    except TypeError:
        raise ShapeError("sizes are whole numbers", expected="ints, or one tuple of ints", got=repr(several)) from None


def sizes_by_name(function: str, name: str, by_place: tuple[Any, ...], value: Any) -> list[Any]:
    """The sizes in ``f(name=(2, 3))``. Raises CallError where some came by position, too."""
    if by_place:
        raise CallError(f"{function} got {name!r} twice", got=f"{by_place} and {name}={value}")
    return sizes_of((value,))
