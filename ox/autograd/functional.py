"""Jacobians, Hessians and products with them, for functions of tensors. `torch.autograd.functional`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.autograd.backward_pass import grad
from ox.autograd.nested_grad import differentiable_input
from ox.core import operator
from ox.core.constants import zeros
from ox.core.mode import switch_mode
from ox.core.tensor import TensorBase, is_tensor
from ox.devices import cuda
from ox.errors import ArgumentError, GradientError, ShapeError
from ox.functions import reshape, stack

Tensors = Any  # a tensor or a tuple of tensors


def _tuple(given: Any, what: str) -> tuple[Any, ...]:
    several = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    for i, x in enumerate(several):
        if not is_tensor(x):
            raise ArgumentError(f"{what} {i} is no tensor", expected="tensors", got=type(x).__name__)
    return several


class _Call:
    """A function, called on inputs that are tracked apart from everything around."""

    def __init__(self, func: Callable[..., Any], inputs: Tensors, create_graph: bool, strict: bool) -> None:
        self.create, self.strict = create_graph, strict
        self.single = not isinstance(inputs, (tuple, list))
        self.inputs = [
            differentiable_input(x if create_graph else x.detach(), "autograd.functional")
            for x in _tuple(inputs, "input")
        ]
        with switch_mode(grad=True, inference=False):
            result = func(*self.inputs)
        self.single_output = not isinstance(result, (tuple, list))
        self.outputs = _tuple(result, "output")
        if strict and any(y.node is None for y in self.outputs):
            raise GradientError("strict: an output does not depend on the inputs")

    def scalar(self, what: str) -> TensorBase:
        """The only output, of one element. Raises ShapeError for others."""
        if not self.single_output or self.outputs[0].array.size != 1:
            raise ShapeError(
                f"{what} needs a function that returns one tensor of one element",
                got=", ".join(str(list(y.static_shape)) for y in self.outputs),
            )
        return self.outputs[0]

    def grads(self, outputs: Sequence[Any], by: Sequence[Any], weights: Any, create: bool) -> list[Any]:
        """The gradients of the outputs, None where there is no path (an error when strict)."""
        reached = [k for k, y in enumerate(outputs) if y is not None and y.node is not None]
        found: Sequence[Any] = [None] * len(by)
        if reached:
            chosen = None if weights is None else [weights[k] for k in reached]
            found = grad(
                [outputs[k] for k in reached],
                by,
                chosen,
                retain_graph=True,
                create_graph=create,
                allow_unused=True,
            )
        if self.strict and any(g is None for g in found):
            raise GradientError("strict: the outputs do not depend on one of the inputs")
        return list(found)

    def detach_results(self, found: Sequence[Any], like: Sequence[Any]) -> list[Any]:
        made = [zeros(x._stored_shape, x) if g is None else g for g, x in zip(found, like, strict=True)]
        return made if self.create else [g.detach() for g in made]

    def output(self) -> Any:
        several = self.outputs if self.create else tuple(y.detach() for y in self.outputs)
        return several[0] if self.single_output else several

    def vectors(self, v: Any, like: Sequence[Any], what: str) -> list[Any]:
        """`v` as a list. Raises ArgumentError or ShapeError if it does not fit; ones where one number suffices."""
        if v is None:
            if len(like) != 1 or like[0].array.size != 1:
                raise ArgumentError(f"{what} needs v, unless there is one element")
            return [like[0].detach() * 0 + 1]
        several = _tuple(v, "v")
        if [x.static_shape for x in several] != [x.static_shape for x in like]:
            raise ShapeError(
                f"v of {what} has other sizes than what it goes with",
                expected=", ".join(str(list(x.static_shape)) for x in like),
                got=", ".join(str(list(x.static_shape)) for x in several),
            )
        return [x if self.create else x.detach() for x in several]


def _one(found: list[Any], single: bool) -> Any:
    return found[0] if single else tuple(found)


def vjp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """``(output, v times the Jacobian)``; `v` has the sizes of the output. `torch.autograd.functional.vjp`.

    Args:
        inputs: a tensor or a tuple of tensors; so is the product.
        create_graph: make the product differentiable.
        strict: raise GradientError where an output does not depend on an input, instead of giving zeros.
    """
    call = _Call(func, inputs, create_graph, strict)
    weights = call.vectors(v, call.outputs, "vjp")
    found = call.grads(call.outputs, call.inputs, weights, create_graph)
    return call.output(), _one(call.detach_results(found, call.inputs), call.single)


def _jvp_from_vjp(call: _Call, outputs: Sequence[Any], tangents: list[Any]) -> list[Any]:
    """The Jacobian of the outputs times the tangents: the gradient of a vjp by its v."""
    with switch_mode(grad=True, inference=False):
        weights = [(y.detach() * 0).requires_grad_() for y in outputs]
        rows = call.grads(outputs, call.inputs, weights, True)
    kept = [k for k, row in enumerate(rows) if row is not None and row.node is not None]
    found: Sequence[Any] = [None] * len(weights)
    if kept:
        chosen = [tangents[k] for k in kept]
        found = grad([rows[k] for k in kept], weights, chosen, True, call.create, allow_unused=True)
    return call.detach_results(found, outputs)


def jvp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """``(output, the Jacobian times v)``; `v` has the sizes of the inputs. By differentiating a vjp.
    `torch.autograd.functional.jvp`. Arguments as for `vjp`."""
    call = _Call(func, inputs, create_graph, strict)
    tangents = call.vectors(v, call.inputs, "jvp")
    return call.output(), _one(_jvp_from_vjp(call, call.outputs, tangents), call.single_output)


def _slopes(call: _Call, what: str) -> list[Any]:
    with switch_mode(grad=True, inference=False):
        found = call.grads([call.scalar(what)], call.inputs, None, True)
    return [zeros(x._stored_shape, x) if g is None else g for g, x in zip(found, call.inputs, strict=True)]


def vhp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """``(output, v times the Hessian)`` of a function that gives one element. `torch.autograd.functional.vhp`.
    Arguments as for `vjp`; `v` has the sizes of the inputs."""
    call = _Call(func, inputs, create_graph, strict)
    weights = call.vectors(v, call.inputs, "vhp")
    found = call.grads(_slopes(call, "vhp"), call.inputs, weights, create_graph)
    return call.output(), _one(call.detach_results(found, call.inputs), call.single)


def hvp(
    func: Callable[..., Any], inputs: Tensors, v: Any = None, create_graph: bool = False, strict: bool = False
) -> Any:
    """``(output, the Hessian times v)``; `vhp` is the same and cheaper, for a Hessian is symmetric.
    `torch.autograd.functional.hvp`."""
    call = _Call(func, inputs, create_graph, strict)
    tangents = call.vectors(v, call.inputs, "hvp")
    return call.output(), _one(_jvp_from_vjp(call, _slopes(call, "hvp"), tangents), call.single)


def jacobian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    strategy: str = "reverse-mode",
) -> Any:
    """The Jacobian of each output by each input: the output's sizes followed by the input's, in tuples where there are
    several outputs or inputs. `torch.autograd.functional.jacobian`.

    Args:
        vectorize: accepted for PyTorch's scripts; rows are computed one by one.
        strategy: "reverse-mode" goes by elements of the outputs, "forward-mode" by elements of the inputs.

    Raises:
        ArgumentError: another strategy.
    """
    if strategy not in ("reverse-mode", "forward-mode"):
        raise ArgumentError("no such strategy", expected="reverse-mode or forward-mode", got=repr(strategy))
    call = _Call(func, inputs, create_graph, strict)
    blocks: list[list[Any]] = []
    if strategy == "reverse-mode":
        for y in call.outputs:
            rows = [
                call.detach_results(call.grads([y], call.inputs, [u], create_graph), call.inputs) for u in _units(y)
            ]
            blocks.append([_block([row[i] for row in rows], y, x, 0) for i, x in enumerate(call.inputs)])
    else:
        by_input = []
        for i, x in enumerate(call.inputs):
            still = [t.detach() * 0 for t in call.inputs]
            by_input.append([_jvp_from_vjp(call, call.outputs, [*still[:i], u, *still[i + 1 :]]) for u in _units(x)])
        for k, y in enumerate(call.outputs):
            blocks.append(
                [_block([row[k] for row in rows], y, x, -1) for rows, x in zip(by_input, call.inputs, strict=True)]
            )
    return _one([_one(row, call.single) for row in blocks], call.single_output)


def _units(x: Any) -> list[Any]:
    made = []
    for place in np.ndindex(x.static_shape):
        unit = np.zeros(x.static_shape, x.array.dtype)
        unit[place] = 1
        on_host = isinstance(x.array, np.ndarray)
        made.append(operator.make_tensor(unit if on_host else cuda.to_device(unit, x.device)))
    return made


def _block(parts: list[Any], y: Any, x: Any, dim: int) -> Any:
    sizes = [*y.static_shape, *x.static_shape]
    return reshape(stack(parts, dim), sizes) if parts else zeros(sizes, y)


def hessian(
    func: Callable[..., Any],
    inputs: Tensors,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """The Hessian of a function that gives one element: for each pair of inputs their sizes one after the other.
    `torch.autograd.functional.hessian`. Arguments as for `jacobian`."""

    def checked(*xs: Any) -> Any:
        y = func(*xs)
        if not is_tensor(y) or y.array.size != 1:
            raise ShapeError(
                "hessian needs a function that returns one tensor of one element",
                got=str(list(y.static_shape)) if is_tensor(y) else type(y).__name__,
            )
        return reshape(y, [])

    def slope(*xs: Any) -> Any:
        return jacobian(checked, xs if len(xs) > 1 else xs[0], create_graph=True, strict=strict)

    return jacobian(slope, inputs, create_graph, strict, vectorize, outer_jacobian_strategy)


__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]
