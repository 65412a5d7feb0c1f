"""Jacobians and Hessians of functions of structures."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ox.autograd.inside import left, pulled_back, wanted_outside
from ox.autograd.tree import flatten
from ox.creation import eye
from ox.func.transforms import Argnums, Entered, chosen, parted, pushed_forward, tensors_of
from ox.functions import reshape, stack
from ox.ops.broadcast import zeros
from ox.ops.mode import switched


def _units(x: Any) -> list[Any]:
    """The tensors of this shape that are 1 at one place and 0 elsewhere."""
    count = x.array.size
    rows = eye(count, dtype=x.array.dtype)
    return [rows[k].reshape(x.array.shape) for k in range(count)]


def jacrev(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    *,
    has_aux: bool = False,
    chunk_size: int | None = None,
    _preallocate_and_copy: bool = False,
) -> Callable[..., Any]:
    """A function that gives the Jacobian of `func`, one backward for each element of the outputs. `torch.func.jacrev`.

    Args:
        func: gives a tensor or a structure of tensors.
        argnums: by which arguments, each a tensor or a structure of tensors.
        chunk_size: taken for PyTorch's sake; rows are computed one by one.

    Returns:
        For each output, for each argument, a tensor of the output's sizes followed by the argument's.
    """

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inside = Entered(args, chosen(args, argnums, "jacrev"), "jacrev")
        with switched(grad=True, inference=False):
            output, aux = parted(func(*inside.args, **kwargs), has_aux, "jacrev")
        outputs = tensors_of(output, "jacrev")
        create = wanted_outside(outputs, inside.inputs)
        found = []
        for y in outputs:
            rows = [pulled_back([y], inside.inputs, [unit], create=create, retain=True) for unit in _units(y)]
            columns = list(zip(*rows, strict=True)) or [()] * len(inside.inputs)
            blocks = [_stacked(c, y, x, 0) for c, x in zip(columns, inside.inputs, strict=True)]
            found.append(inside.shaped(left(blocks, inside.inputs), argnums))
        result = flatten(output)[1](found)
        if not has_aux:
            return result
        leaves, rebuild = flatten(aux)
        return result, rebuild(left(leaves, inside.inputs))

    return wrapper


def jacfwd(
    func: Callable[..., Any],
    argnums: Argnums = 0,
    has_aux: bool = False,
    *,
    randomness: str = "error",
) -> Callable[..., Any]:
    """`jacrev`, with one product for each element of the arguments: better where there are fewer of those.
    `torch.func.jacfwd`."""

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inside = Entered(args, chosen(args, argnums, "jacfwd"), "jacfwd")
        with switched(grad=True, inference=False):
            output, aux = parted(func(*inside.args, **kwargs), has_aux, "jacfwd")
        outputs = tensors_of(output, "jacfwd")
        product = pushed_forward(outputs, inside.inputs)
        still = [x.detach() * 0 for x in inside.inputs]
        blocks: list[list[Any]] = [[] for _ in outputs]
        for i, x in enumerate(inside.inputs):
            rows = [product([*still[:i], unit, *still[i + 1 :]]) for unit in _units(x)]
            columns = list(zip(*rows, strict=True)) or [()] * len(outputs)
            for k, (column, y) in enumerate(zip(columns, outputs, strict=True)):
                blocks[k].append(_stacked(column, y, x, -1))
        result = flatten(output)[1]([inside.shaped(b, argnums) for b in blocks])
        if not has_aux:
            return result
        leaves, rebuild = flatten(aux)
        return result, rebuild(left(leaves, inside.inputs))

    return wrapper


def _stacked(parts: Any, y: Any, x: Any, dim: int) -> Any:
    """Rows or columns as one block of the output's sizes followed by the input's."""
    sizes = [*y.array.shape, *x.array.shape]
    if not parts:
        return zeros(sizes, y)
    return reshape(stack(list(parts), dim), sizes)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The Jacobian of the Jacobian: `jacfwd` of `jacrev`. `torch.func.hessian`."""
    return jacfwd(jacrev(func, argnums), argnums)
