"""Products: matmul vecdot cross multi_dot vander, and diagonals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox import functions
from ox.amp.policy import by_policy
from ox.core.promotion import cast, upcast_half
from ox.dtypes import int64, is_floating
from ox.errors import ArgumentError, ShapeError
from ox.tensors.tensor import Tensor


def matmul(input: Any, other: Any) -> Tensor:
    """`torch.matmul`."""
    return functions.matmul(input, other)


@by_policy
@upcast_half
def vecdot(x: Any, y: Any, *, dim: int = -1) -> Tensor:
    """The sum of products along a dimension. `torch.linalg.vecdot`."""
    return (x * y).sum(dim)


def cross(input: Any, other: Any, *, dim: int = -1) -> Tensor:
    """The cross product along a dimension of size 3. `torch.linalg.cross`."""
    return functions.cross(input, other, dim)


def diagonal(A: Any, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices. `torch.linalg.diagonal`."""
    return functions.diagonal(A, offset, dim1, dim2)


def multi_dot(tensors: Sequence[Any]) -> Tensor:
    """The product of two or more matrices (the first and last may be vectors) in the order that costs least.
    `torch.linalg.multi_dot`."""
    given = list(tensors)
    if len(given) < 2:
        raise ArgumentError("multi_dot takes two tensors or more", got=str(len(given)))
    if any(x.array.ndim != 2 for x in given[1:-1]) or any(x.array.ndim not in (1, 2) for x in (given[0], given[-1])):
        raise ShapeError(
            "multi_dot takes matrices, and vectors at its ends", got=", ".join(str(list(x.static_shape)) for x in given)
        )
    row, column = given[0].array.ndim == 1, given[-1].array.ndim == 1
    if row:
        given[0] = functions.unsqueeze(given[0], 0)
    if column:
        given[-1] = functions.unsqueeze(given[-1], 1)
    sizes = [x.static_shape[0] for x in given] + [given[-1].static_shape[1]]
    made = _product(given, _splits(sizes), 0, len(given) - 1)
    if column:
        made = functions.squeeze(made, 1)
    return functions.squeeze(made, 0) if row else made


def _splits(sizes: list[int]) -> dict[tuple[int, int], int]:
    """Where to split each run of factors, by the number of multiplications."""
    count = len(sizes) - 1
    cost: dict[tuple[int, int], int] = {(i, i): 0 for i in range(count)}
    split = {}
    for width in range(1, count):
        for i in range(count - width):
            j = i + width
            costs = {k: cost[i, k] + cost[k + 1, j] + sizes[i] * sizes[k + 1] * sizes[j + 1] for k in range(i, j)}
            split[i, j] = min(costs, key=costs.__getitem__)
            cost[i, j] = costs[split[i, j]]
    return split


def _product(factors: list[Any], split: dict[tuple[int, int], int], i: int, j: int) -> Any:
    if i == j:
        return factors[i]
    k = split[i, j]
    return matmul(_product(factors, split, i, k), _product(factors, split, k + 1, j))


def vander(x: Any, *, N: int | None = None) -> Tensor:
    """The powers 0 to N - 1 of each element along a new last dimension. `torch.linalg.vander`."""
    x = x if x.array.ndim else functions.reshape(x, 1)
    x = x if is_floating(x.array.dtype) else cast(x, int64)
    count = x.static_shape[-1] if N is None else N
    if count < 1:
        raise ArgumentError("vander takes a vector and one power or more", got=f"N={count}")
    powers = [functions.ones_like(x)]
    for _ in range(count - 1):
        powers.append(powers[-1] * x)
    return functions.stack(powers, -1)
