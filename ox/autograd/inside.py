"""Differentiating inside a function: inputs that are tracked apart from everything around, as deep as one likes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ox.autograd.backward import grad
from ox.dtypes import is_floating
from ox.errors import ArgumentError
from ox.ops.broadcast import zeros
from ox.ops.mode import MODE, switched
from ox.ops.node import HandMade, Leaf
from ox.views import passed_on
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


INSIDE = "inside"  # the origin of a leaf that is one inside a function only


class _Entry(HandMade):
    """Where a tensor that is already followed enters a function that is differentiated by it."""

    op = SimpleNamespace(name="Entry", single_output=False)

    def rule(self, g: Tensor) -> list[Tensor]:
        return [g]


def entered(x: Any, what: str) -> Tensor:
    """The tensor as an input to differentiate by: the same memory, and a history that begins here or is known to.

    Raises:
        ArgumentError: no tensor, or one of whole numbers.
    """
    if not hasattr(x, "node") or not is_floating(x.array.dtype):
        raise ArgumentError(
            f"{what} differentiates by tensors of floating types",
            where=users_line(3),
            got=f"{x.array.dtype} {list(x.array.shape)}" if hasattr(x, "node") else type(x).__name__,
        )
    with switched(grad=True, inference=False):
        if x.node is None:
            made: Tensor = x.twin().requires_grad_()
            made._origin = INSIDE
            return made
        node = _Entry()
        node.connect([x])
        return passed_on(x, node, 0)


def followed(x: Tensor) -> Tensor:
    """A twin of `x` that a gradient follows, and that is no leaf."""
    node = _Entry()
    node.connect([x.twin().requires_grad_()])
    return x.attached(node, 0)


def follows_others(outputs: list[Any], inputs: list[Tensor]) -> bool:
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


def left(tree_leaves: list[Any], inputs: list[Tensor]) -> list[Any]:
    """Results as they leave the function: what depends on nothing but the inputs has no history outside."""
    return [
        y.detach() if getattr(y, "node", None) is not None and not follows_others([y], inputs) else y
        for y in tree_leaves
    ]


def pulled_back(
    outputs: list[Tensor], inputs: list[Tensor], cotangents: list[Any] | None, *, create: bool, retain: bool
) -> list[Tensor]:
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


def wanted_outside(outputs: list[Any], inputs: list[Tensor]) -> bool:
    """Whether gradients must be differentiable themselves: something around follows them."""
    return MODE.get().grad and follows_others(outputs, inputs)
