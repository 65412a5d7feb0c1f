"""What the functions share: arguments checked and brought to one form."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Sequence
from functools import wraps
from inspect import signature
from typing import Any

from ox import ops
from ox.core.constants import ints
from ox.core.symbolic import Dim, size_tensor
from ox.errors import ArgumentError, ShapeError
from ox.tensors.tensor import Tensor


def several(value: Any, count: int, name: str, least: int | None = None) -> tuple[int, ...]:
    """One whole number for each of `count` spatial dimensions, from one for all or one for each. Raises ArgumentError
    for another count, for what is no whole number, and below `least`."""
    if type(value) is int and (least is None or value >= least):
        return (value,) * count
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(given) == 1:
        given = given * count
    try:
        found = tuple(v if isinstance(v, Dim) else python.index(v) for v in given)
    except TypeError:
        raise ArgumentError(f"{name} is a whole number, or one for each dimension", got=repr(value)) from None
    if len(found) != count or (least is not None and any(v < least for v in found)):
        raise ArgumentError(
            f"{name} is not {value!r}",
            expected=f"{'one number or ' if count > 1 else ''}{count}"
            + ("" if least is None else f", of {least} or more"),
        )
    return found


def batched(input: Tensor, name: str, rank: int) -> Tensor | None:
    """None for an input [N, C, ...] with `rank` spatial dimensions; with a batch of one for one without a batch.

    Raises:
        ShapeError: another number of dimensions.
    """
    given = input.array.ndim
    if given == rank + 2:
        return None
    if given != rank + 1:
        spatial = {1: "length", 2: "height, width", 3: "depth, height, width"}[rank]
        raise ShapeError(
            f"{name} does not take {given} dimensions",
            expected=f"input [batch, channels, {spatial}], or without the batch",
            got=f"input {list(input.static_shape)}",
        )
    return ops.Unsqueeze(input, ints(0))


def product(sizes: Sequence[int]) -> int:
    """The product; an `ox.Dim` when one of the sizes is."""
    total: int = 1
    for size in sizes:
        total = total * size
    return total


def one_of(value: str, name: str, allowed: Sequence[str]) -> str:
    """`value` if it is allowed. Raises ArgumentError."""
    if value not in allowed:
        raise ArgumentError(f"{name} is not {value!r}", expected=" or ".join(map(repr, allowed)))
    return value


def shaped(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Reshape to sizes that may be `ox.Dim`. A first size that an input decides is left open (-1), which spares a
    recorded graph its computation."""
    if isinstance(sizes[0], Dim) and 0 not in sizes[1:]:
        sizes = [-1, *sizes[1:]]
    return ops.Reshape(x, size_tensor(sizes), allowzero=int(0 in sizes))


def with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """A pooling function that always returns indices, whatever `return_indices` is."""
    accepted = signature(pool)

    @wraps(pool)
    def always(*args: Any, **kwargs: Any) -> Any:
        given = accepted.bind(*args, **kwargs)
        given.arguments["return_indices"] = True
        return pool(*given.args, **given.kwargs)

    always.__name__ = always.__qualname__ = f"{pool.__name__}_with_indices"
    always.__doc__ = f"`{pool.__name__}` that always returns indices."
    return always
