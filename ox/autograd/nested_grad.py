"""Gradients inside a function (ox.func): its inputs are tracked separately from the outer graph; nests to any depth."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from ox.autograd.backward_pass import grad
from ox.core.constants import zeros
from ox.core.mode import MODE, switch_mode
from ox.core.node import CustomNode, Leaf
from ox.core.tensor import TensorBase, is_tensor
from ox.core.views import pass_through
from ox.dtypes import is_floating
from ox.errors import ArgumentError

INSIDE = "inside"  # the origin of a leaf that is one inside a function only


class _Entry(CustomNode):
    """Identity node: the boundary between the outer graph and the graph inside the function."""

    op = SimpleNamespace(name="Entry", single_output=False)

    def rule(self, g: TensorBase) -> list[TensorBase]:
        return [g]


def differentiable_input(x: Any, what: str) -> Any:
    """The tensor as an input to differentiate by: the same memory, and a history that begins here or is known to.

    Raises:
        ArgumentError: no tensor, or one of whole numbers.
    """
    if not is_tensor(x) or not is_floating(x.array.dtype):
        raise ArgumentError(
            f"{what} differentiates by tensors of floating types",
            got=f"{x.array.dtype} {list(x.static_shape)}" if is_tensor(x) else type(x).__name__,
        )
    with switch_mode(grad=True, inference=False):
        if x.node is None:
            made: TensorBase = x.shallow_copy().requires_grad_()
            made._origin = INSIDE
            return made
        node = _Entry()
        node.connect([x])
        return pass_through(x, node, 0)


def tracked_copy(x: TensorBase) -> TensorBase:
    """A shallow copy of `x` that requires a gradient and is not a leaf."""
    node = _Entry()
    node.connect([x.shallow_copy().requires_grad_()])
    return x.with_history(node, 0)


def depends_on_others(outputs: list[Any], inputs: Sequence[TensorBase]) -> bool:
    """Whether the outputs depend on anything tracked besides these inputs."""
    own = {id(x.node) for x in inputs if isinstance(x.node, Leaf)}
    seen: set[int] = set()
    stack = [y.node for y in outputs if getattr(y, "node", None) is not None]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, Leaf):
            if id(node) not in own:
                return True
        else:
            stack.extend(node.inputs)
    return False


def detach_outside_results(tree_leaves: list[Any], inputs: Sequence[TensorBase]) -> list[Any]:
    """Detaches the results that depend only on the inputs: outside the function they need no history."""
    return [
        y.detach() if getattr(y, "node", None) is not None and not depends_on_others([y], inputs) else y
        for y in tree_leaves
    ]


def vjp_or_zeros(
    outputs: Sequence[TensorBase],
    inputs: Sequence[TensorBase],
    cotangents: list[Any] | None,
    *,
    create: bool,
    retain: bool,
) -> list[TensorBase]:
    """The gradients of the outputs by the inputs, zeros where there is no path."""
    reached = [k for k, y in enumerate(outputs) if y.node is not None]
    if not reached:
        return [zeros(x.shape, x) for x in inputs]
    chosen = None if cotangents is None else [cotangents[k] for k in reached]
    found = grad(
        [outputs[k] for k in reached],
        inputs,
        chosen,
        retain_graph=retain or create,
        create_graph=create,
        allow_unused=True,
    )
    return [zeros(x.shape, x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def needs_higher_order(outputs: list[Any], inputs: Sequence[TensorBase]) -> bool:
    """Whether gradients must be differentiable themselves: something around follows them."""
    return MODE.get().grad and depends_on_others(outputs, inputs)
