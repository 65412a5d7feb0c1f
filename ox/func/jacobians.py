"""Jacobians and Hessians of functions of structures."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from ox.autograd.nested_grad import detach_outside_results, needs_higher_order, vjp_or_zeros
from ox.autograd.pytree import flatten
from ox.core.constants import zeros
from ox.core.mode import switch_mode
from ox.func.transforms import Argnums, DifferentiableInputs, argument_positions, jvp_of, split_aux, tensors_of
from ox.functions import reshape, stack
from ox.functions.creation import eye


def _units(x: Any) -> list[Any]:
    """The tensors of this shape that are 1 at one place and 0 elsewhere."""
    count = x.array.size
    rows = eye(count, dtype=x.array.dtype, device=x.device)
    return [rows[k].reshape(x.static_shape) for k in range(count)]


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
        chunk_size: accepted for PyTorch's scripts; rows are computed one by one.

    Returns:
        For each output, for each argument, a tensor of the output's sizes followed by the argument's.
    """

    @wraps(func)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        inside = DifferentiableInputs(args, argument_positions(args, argnums, "jacrev"), "jacrev")
        with switch_mode(grad=True, inference=False):
            output, aux = split_aux(func(*inside.args, **kwargs), has_aux, "jacrev")
        outputs = tensors_of(output, "jacrev")
        create = needs_higher_order(outputs, inside.inputs)
        found = []
        for y in outputs:
            rows = [vjp_or_zeros([y], inside.inputs, [unit], create=create, retain=True) for unit in _units(y)]
            columns = list(zip(*rows, strict=True)) or [()] * len(inside.inputs)
            blocks = [_stacked(c, y, x, 0) for c, x in zip(columns, inside.inputs, strict=True)]
            found.append(inside.shaped(detach_outside_results(blocks, inside.inputs), argnums))
        result = flatten(output)[1](found)
        if not has_aux:
            return result
        leaves, rebuild = flatten(aux)
        return result, rebuild(detach_outside_results(leaves, inside.inputs))

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
        inside = DifferentiableInputs(args, argument_positions(args, argnums, "jacfwd"), "jacfwd")
        with switch_mode(grad=True, inference=False):
            output, aux = split_aux(func(*inside.args, **kwargs), has_aux, "jacfwd")
        outputs = tensors_of(output, "jacfwd")
        product = jvp_of(outputs, inside.inputs)
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
        return result, rebuild(detach_outside_results(leaves, inside.inputs))

    return wrapper


def _stacked(parts: Any, y: Any, x: Any, dim: int) -> Any:
    """Rows or columns as one block of the output's sizes followed by the input's."""
    sizes = [*y.static_shape, *x.static_shape]
    if not parts:
        return zeros(sizes, y)
    return reshape(stack(list(parts), dim), sizes)


def hessian(func: Callable[..., Any], argnums: Argnums = 0) -> Callable[..., Any]:
    """The Jacobian of the Jacobian: `jacfwd` of `jacrev`. `torch.func.hessian`."""
    return jacfwd(jacrev(func, argnums), argnums)
