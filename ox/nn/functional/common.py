"""What the functions share: small constants, made once."""

from __future__ import annotations

import operator as python
from collections.abc import Callable, Sequence
from functools import lru_cache, wraps
from inspect import signature
from typing import Any

import numpy as np

from ox import ops
from ox.dtypes import DType
from ox.errors import ArgumentError, ShapeError
from ox.operands import scalar
from ox.ops.dim import Dim, size_tensor
from ox.ops.explain import place
from ox.ops.operator import as_input
from ox.tensor import Tensor


@lru_cache(maxsize=1024)
def ints(*values: int) -> Tensor:
    """int64 [n]: axes, a fixed shape. Shared, so read-only."""
    made: Tensor = as_input(np.array(values, np.int64))
    made.array.flags.writeable = False
    return made


def number(value: Any, like: Tensor) -> Tensor:
    """A tensor of no dimensions of the element type of `like`; a size that is an `ox.Dim` stays computed."""
    return scalar(value, like.array.dtype)


@lru_cache(maxsize=256)
def filled(value: float, size: int, dtype: DType) -> Tensor:
    """[size] of one value, where an operator wants a tensor that the caller left out. Shared, so read-only."""
    made: Tensor = as_input(np.full(size, value, dtype))
    made.array.flags.writeable = False
    return made


def pair(value: Any) -> tuple[Any, Any]:
    """One number for both spatial dimensions, or one for each."""
    if isinstance(value, (tuple, list)):
        if len(value) != 2:
            raise ArgumentError("a 2-d layer takes one number or two", got=repr(value), where=place())
        return value[0], value[1]
    return value, value


def several(value: Any, count: int, name: str, least: int | None = None) -> tuple[int, ...]:
    """One whole number for each of `count` spatial dimensions, from one for all or one for each. Raises ArgumentError
    for another count, for what is no whole number, and below `least`."""
    given = tuple(value) if isinstance(value, (tuple, list)) else (value,) * count
    if len(given) == 1:
        given = given * count
    try:
        found = tuple(v if isinstance(v, Dim) else python.index(v) for v in given)
    except TypeError:
        raise ArgumentError(
            f"{name} is a whole number, or one for each dimension", where=place(), got=repr(value)
        ) from None
    if len(found) != count or (least is not None and any(v < least for v in found)):
        raise ArgumentError(
            f"{name} is not {value!r}",
            where=place(),
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
            where=place(),
            expected=f"input [batch, channels, {spatial}], or without the batch",
            got=f"input {list(input.array.shape)}",
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
        raise ArgumentError(f"{name} is not {value!r}", where=place(), expected=" or ".join(map(repr, allowed)))
    return value


def shaped(x: Tensor, sizes: Sequence[int]) -> Tensor:
    """Reshape to sizes that may be `ox.Dim`. A first size that an input decides is left open (-1), which spares a
    recorded graph its computation."""
    if isinstance(sizes[0], Dim) and 0 not in sizes[1:]:
        sizes = [-1, *sizes[1:]]
    return ops.Reshape(x, size_tensor(sizes), allowzero=int(0 in sizes))


def with_indices(pool: Callable[..., Any]) -> Callable[..., Any]:
    """A pooling function that always says where each value stood, whatever its `return_indices` is told."""
    accepted = signature(pool)

    @wraps(pool)
    def always(*args: Any, **kwargs: Any) -> Any:
        given = accepted.bind(*args, **kwargs)
        given.arguments["return_indices"] = True
        return pool(*given.args, **given.kwargs)

    always.__name__ = always.__qualname__ = f"{pool.__name__}_with_indices"
    always.__doc__ = f"`{pool.__name__}` that always says where each value stood."
    return always
