"""The walk from results back to leaves, newest node first."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.errors import GradientError, ShapeError
from ox.operands import cast
from ox.ops import operator
from ox.ops.gradient import gradients
from ox.ops.mode import switched
from ox.ops.node import Leaf, Node
from ox.ops.operator import OPS
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

# Where a cotangent waits: a Node or Leaf for its first output, (node, port) for the others
Edge = Any


def _edge(node: Any, port: int) -> Edge:
    return (node, port) if port else node


_accumulating = Lock()  # threads that run backward into one leaf take turns at its `.grad`


def backward(
    tensors: Sequence[Tensor], cotangents: Sequence[Tensor | None], *, retain_graph: bool | None, create_graph: bool
) -> None:
    """Add gradients to `.grad` of every leaf. `torch.autograd.backward`."""
    found = walk(tensors, cotangents, retain_graph=retain_graph, create_graph=create_graph, into=None)
    taken = {id(_owner(g.data)) for g in cotangents if g is not None and hasattr(g, "node")}
    with switched(grad=create_graph), _accumulating:
        for leaf, g in found.items():
            tensor = leaf.tensor()
            if tensor is None:
                continue
            if tensor.grad is not None:
                tensor.grad = OPS["Add"](tensor.grad, g)
                continue
            # an Add hands one gradient to both its inputs, but each leaf must be able to write to its own
            memory = id(_owner(g.data))
            tensor.grad = g.clone() if memory in taken or not _writable(g.data) else g
            taken.add(memory)


def _writable(array: Any) -> bool:
    """Whether each element has memory of its own that may be written; an expanded array's has not."""
    return not isinstance(array, np.ndarray) or array.flags.writeable


def _owner(array: Any) -> Any:
    """The array whose memory this one looks at."""
    while isinstance(array.base, type(array)):
        array = array.base
    return array


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    allow_unused: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching `.grad`. `torch.autograd.grad`.

    Raises:
        GradientError: an input does not require a gradient, or was not used and `allow_unused` is False.
    """
    outputs = [outputs] if hasattr(outputs, "node") else list(outputs)  # type: ignore[list-item]
    inputs = [inputs] if hasattr(inputs, "node") else list(inputs)  # type: ignore[list-item]
    if grad_outputs is None:
        grad_outputs = [None] * len(outputs)
    elif hasattr(grad_outputs, "node"):
        grad_outputs = [grad_outputs]  # type: ignore[list-item]
    for i, x in enumerate(inputs):
        if x.node is None:
            raise GradientError(
                f"input {i} does not require a gradient", where=users_line(2), hint="x.requires_grad_()"
            )
    edges = [_edge(x.node, x.port) for x in inputs]
    found = walk(outputs, list(grad_outputs), retain_graph=retain_graph, create_graph=create_graph, into=edges)
    result = [found.get(edge) for edge in edges]
    if not allow_unused and None in [r if r is None else 0 for r in result]:
        raise GradientError(
            f"input {[r is None for r in result].index(True)} was not used to compute the outputs",
            where=users_line(2),
            hint="allow_unused=True gives None for it",
        )
    return tuple(result)  # type: ignore[arg-type]


def walk(
    tensors: Sequence[Tensor],
    cotangents: Sequence[Tensor | None],
    *,
    retain_graph: bool | None,
    create_graph: bool,
    into: list[Edge] | None,
) -> dict[Edge, Tensor]:
    """Gradients by edge: of every leaf reached, or with `into` of those edges only."""
    if retain_graph is None:
        retain_graph = create_graph
    pending: dict[Edge, Tensor] = {}
    wanted = None if into is None else set(into)
    with switched(grad=create_graph), np.errstate(all="ignore"):  # an infinite gradient is for the user to judge
        for t, g in zip(tensors, cotangents, strict=True):
            if t.node is None:
                raise GradientError(
                    "this tensor does not depend on anything that requires a gradient",
                    where=users_line(3),
                    hint="x.requires_grad_() before the forward, and no ox.no_grad() around it",
                )
            edge, g = _edge(t.node, t.port), _start(t, g)
            pending[edge] = OPS["Add"](pending[edge], g) if edge in pending else g
        for node in _order([t.node for t in tensors], into):
            if wanted is None and node.hooks is None and node.op.single_output:
                g = pending.pop(node, None)
                arrived: list[Tensor | None] | None = None if g is None else [g]
            else:
                arrived = _collect(node, pending, wanted)
            if arrived is None:
                continue
            ports = node.ports
            for i, g in enumerate(gradients(node, arrived, create_graph)):
                if g is not None:
                    source = node.inputs[i]
                    edge = (source, ports[i]) if ports[i] else source
                    before = pending.get(edge)
                    pending[edge] = g if before is None else OPS["Add"](before, g)
            if not retain_graph:
                node.saved = None
        if wanted is None:
            pending = {edge: g for edge, g in pending.items() if isinstance(edge, Leaf)}
        for edge, g in pending.items():
            if isinstance(edge, Leaf) and edge.hooks and (wanted is None or edge in wanted):
                pending[edge] = _run_hooks(edge.hooks, 0, g)
    return pending if wanted is None else {edge: g for edge, g in pending.items() if edge in wanted}


def _collect(node: Any, pending: dict[Edge, Tensor], wanted: set[Edge] | None) -> list[Tensor | None] | None:
    """The cotangents of a node's outputs, taken from those that wait; None when none arrived."""
    schema = node.op.schema
    ports = node.outputs if schema.variadic_output else len(schema.outputs)
    arrived: list[Tensor | None] = []
    for port in range(ports):
        edge = _edge(node, port)
        g = pending.get(edge)
        if g is not None:
            if node.hooks:
                g = pending[edge] = _run_hooks(node.hooks, port, g)
            if wanted is None or edge not in wanted:
                del pending[edge]
        arrived.append(g)
    return arrived if any(g is not None for g in arrived) else None


def _start(t: Tensor, g: Tensor | None) -> Tensor:
    if g is None:
        if t.data.size != 1:
            raise GradientError(
                "backward needs a gradient for a tensor of more than one element",
                where=users_line(4),
                got=f"shape {list(t.data.shape)}",
                hint="loss.mean().backward(), or backward(gradient)",
            )
        return operator.make_tensor(
            np.ones(t.data.shape, t.data.dtype) if isinstance(t.data, np.ndarray) else t.data * 0 + 1
        )
    g = cast(operator.as_input(g), t.data.dtype)
    if g.data.shape != t.data.shape:
        raise ShapeError(
            "the gradient given to backward has another shape than the tensor",
            where=users_line(4),
            expected=str(list(t.data.shape)),
            got=str(list(g.data.shape)),
        )
    return g


def _order(roots: Sequence[Any], into: list[Edge] | None) -> list[Any]:
    """Every node that can be reached, newest first; with `into`, only those on a path to it."""
    found: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        number = node.sequence
        if number >= 0 and number not in found:  # a leaf has no number
            found[number] = node
            stack.extend(node.inputs)
    order = [found[number] for number in sorted(found, reverse=True)]
    if into is None:
        return order
    targets = {edge[0] if isinstance(edge, tuple) else edge for edge in into}
    useful: set[Any] = set()
    for node in reversed(order):  # oldest first, so what a node depends on is decided before it
        if any(source in targets or source in useful for source in node.inputs):
            useful.add(node)
    return [node for node in order if node in useful]


def _run_hooks(hooks: list[Any], port: int, g: Tensor) -> Tensor:
    for hook_port, hook in list(hooks):
        if hook_port == port:
            replaced = hook(g)
            g = g if replaced is None else replaced
    return g
