"""The backward pass: visits nodes from the results to the leaves, newest first."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.autograd.accumulate_grad import accumulate, accumulating, added, owner, run_hooks_of_accumulation
from ox.autograd.grad_ready import ReadyGradients, someone_waits
from ox.core import operator, vjp
from ox.core.constants import zeros
from ox.core.mode import MODE, switch_mode
from ox.core.node import AFTER, BEFORE, Leaf, Node
from ox.core.operator import OPS
from ox.core.promotion import cast
from ox.core.tensor import TensorBase, is_tensor
from ox.devices import cuda, cuda_state
from ox.errors import ArgumentError, DeviceError, GradientError, RecordError, ShapeError

if TYPE_CHECKING:
    from ox.core.vjp import Tape

# Where a cotangent waits: a Node or Leaf for its first output, (node, port) for the others
Edge = Any
Spans = Sequence[tuple[float, float]]


def _edge(node: Any, port: int) -> Edge:
    return (node, port) if port else node


def backward(
    tensors: TensorBase | Sequence[TensorBase],
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: TensorBase | Sequence[TensorBase] | None = None,
) -> None:
    """Add gradients to `.grad` of every leaf, or of `inputs` only. `torch.autograd.backward`.

    Args:
        tensors: what is differentiated, one tensor or several.
        grad_tensors: a cotangent for each; may be left out, or None, for a tensor of a single element.
        retain_graph: keep what was saved, so that backward can run again; default `create_graph`.
        create_graph: make the gradients differentiable themselves.
        inputs: the tensors whose `.grad` is filled; by default all leaves.

    Raises:
        GradientError: nothing requires a gradient, the graph was freed, or a saved tensor changed in place.
        ArgumentError: another number of cotangents than of tensors, or no inputs.
    """
    tensors = as_list(tensors)
    cotangents = cotangents_of(len(tensors), grad_tensors)
    user_memory = {id(owner(g.array)) for g in cotangents if g is not None and is_tensor(g)}
    if not someone_waits():
        _fill(tensors, cotangents, retain_graph, create_graph, inputs, user_memory, None)
    else:
        with (arrivals := ReadyGradients(user_memory, create_graph)):
            _fill(tensors, cotangents, retain_graph, create_graph, inputs, user_memory, arrivals)


def _fill(
    tensors: Sequence[TensorBase],
    cotangents: Sequence[TensorBase | None],
    retain_graph: bool | None,
    create_graph: bool,
    inputs: TensorBase | Sequence[TensorBase] | None,
    taken: set[int],
    arrivals: ReadyGradients | None,
) -> None:
    """The walk, and the accumulation of what it found, in memory that is not `taken`."""
    if inputs is None:
        found = walk(
            tensors, cotangents, retain_graph=retain_graph, create_graph=create_graph, into=None, arrivals=arrivals
        )
        named = [(leaf.tensor(), g) for leaf, g in found.items()]
    else:
        chosen = as_list(inputs)
        if not chosen:
            raise ArgumentError("`inputs` of backward is empty", hint="inputs=None for all leaves")
        edges = [_edge(x.node, x.port) for x in _tracked(chosen)]
        if arrivals is not None:
            leaves = {x.node for x in chosen if isinstance(x.node, Leaf) and x.node.after}
            arrivals.on_start(leaves, _order([t.node for t in tensors if t.node is not None], edges, None))
        found = walk(tensors, cotangents, retain_graph=retain_graph, create_graph=create_graph, into=edges)
        named = [(x, found[edge]) for x, edge in zip(chosen, edges, strict=True) if edge in found]
    with switch_mode(grad=create_graph):
        with accumulating:
            for tensor, g in named:
                if tensor is not None:
                    accumulate(tensor, g, taken)
        for tensor, g in named:
            if tensor is not None and isinstance(leaf := tensor.node, Leaf) and (leaf.after or leaf.hooks):
                run_hooks_of_accumulation(tensor, leaf, g)


def as_list(tensors: Any) -> list[TensorBase]:
    return [tensors] if is_tensor(tensors) else list(tensors)


def cotangents_of(count: int, given: Any) -> list[TensorBase | None]:
    cotangents = [None] * count if given is None else [given] if is_tensor(given) else list(given)
    if len(cotangents) != count:
        raise ArgumentError(
            "another number of cotangents than of tensors", expected=str(count), got=str(len(cotangents))
        )
    return cotangents


def _tracked(inputs: Sequence[TensorBase]) -> Sequence[TensorBase]:
    for i, x in enumerate(inputs):
        if x.node is None:
            raise GradientError(f"input {i} does not require a gradient", hint="x.requires_grad_()")
    return inputs


def grad(
    outputs: TensorBase | Sequence[TensorBase],
    inputs: TensorBase | Sequence[TensorBase],
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[TensorBase, ...]:
    """The gradients of `outputs` with respect to `inputs`, without touching `.grad`. `torch.autograd.grad`.

    Args:
        only_inputs: of an older PyTorch; `.grad` is never touched.
        allow_unused: None for inputs that the outputs do not depend on, instead of an error.
        is_grads_batched: `grad_outputs` have a leading dimension, of which each entry is one backward; so have the
            results.
        materialize_grads: zeros for inputs that the outputs do not depend on.

    Raises:
        GradientError: an input does not require a gradient, or was not used and `allow_unused` is False.
    """
    if is_grads_batched:
        from ox.autograd.batched import grad_batched

        return grad_batched(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused, materialize_grads)
    wanted = as_list(inputs)
    edges = [_edge(x.node, x.port) for x in _tracked(wanted)]
    outputs = as_list(outputs)
    cotangents = cotangents_of(len(outputs), grad_outputs)
    found = walk(outputs, cotangents, retain_graph=retain_graph, create_graph=create_graph, into=edges)
    result = [found.get(edge) for edge in edges]
    if materialize_grads:
        result = [zeros(x._stored_shape, x) if g is None else g for x, g in zip(wanted, result, strict=True)]
    elif not allow_unused and None in [r if r is None else 0 for r in result]:
        raise GradientError(
            f"input {[r is None for r in result].index(True)} was not used to compute the outputs",
            hint="allow_unused=True gives None for it",
        )
    return tuple([None if g is None else g.contiguous() for g in result])  # type: ignore[misc]


def walk(
    tensors: Sequence[TensorBase],
    cotangents: Sequence[TensorBase | None],
    *,
    retain_graph: bool | None,
    create_graph: bool,
    into: list[Edge] | None,
    spans: Spans | None = None,
    arrivals: ReadyGradients | None = None,
) -> dict[Edge, TensorBase]:
    """Gradients by edge: of every leaf reached, or with `into` of those edges only; with `spans`, through the nodes of
    these numbers only, of every edge where such a node is left. Leaves that `arrivals` hands over are not in it."""
    if retain_graph is None:
        retain_graph = create_graph
    pending: dict[Edge, TensorBase] = {}
    wanted = None if into is None else set(into)
    mode = MODE.get()
    watch, recording = mode.observer, mode.recording
    direct = wanted is None and watch is None
    # each gradient in the type of its forward; an infinite one is for the user to judge
    with (
        switch_mode(grad=create_graph, autocast=None),
        np.errstate(all="ignore"),
        cuda_state.taking_host_arrays_along(),
    ):
        for t, g in zip(tensors, cotangents, strict=True):
            if t.node is None:
                raise GradientError(
                    "this tensor does not depend on anything that requires a gradient",
                    hint="x.requires_grad_() before the forward, and no ox.no_grad() around it",
                )
            edge, g = _edge(t.node, t.port), _start(t, g)
            pending[edge] = OPS["Add"](pending[edge], g) if edge in pending else g
        order = _order([t.node for t in tensors], into, spans)
        if recording is not None and spans is None:
            recording.on_walk(order)
        if arrivals is not None:
            order = arrivals.insert_leaves(order)
        for node in order:
            if node.sequence < 0:
                g = pending.pop(node, None)
                if g is not None and arrivals is not None:
                    arrivals.deliver(node, _run_leaf_hooks(node.hooks, g), pending.values())
                continue
            if direct and node.hooks is None and node.op.single_output:
                g = pending.pop(node, None)
                if g is None:
                    continue
                found = node.gradients([g], create_graph)
            else:
                arrived = _collect(node, pending, wanted)
                if arrived is None:
                    continue
                found = (node.gradients if watch is None else partial(watch.gradients, node))(arrived, create_graph)
                if node.hooks is not None:
                    found = _run_hooks_after(node.hooks, found, arrived)
            ports = node.ports
            for i, g in enumerate(found):
                if g is not None:
                    source = node.inputs[i]
                    edge = (source, ports[i]) if ports[i] else source
                    before = pending.get(edge)
                    pending[edge] = g if before is None else added(before, g)
            if not retain_graph:
                node.saved = None
        if spans is not None:
            return pending
        if wanted is None:
            pending = {edge: g for edge, g in pending.items() if isinstance(edge, Leaf)}
        for edge, g in pending.items():
            if isinstance(edge, Leaf) and edge.hooks and (wanted is None or edge in wanted):
                pending[edge] = _run_leaf_hooks(edge.hooks, g)
        if wanted is not None:
            _run_hooks_of_ends(pending, wanted, set(order))
    return pending if wanted is None else {edge: g for edge, g in pending.items() if edge in wanted}


def _collect(node: Any, pending: dict[Edge, TensorBase], wanted: set[Edge] | None) -> list[TensorBase | None] | None:
    """The cotangents of a node's outputs, taken from those that wait; None when none arrived."""
    arrived: list[TensorBase | None] = []
    for port in range(node.count_outputs()):
        edge = _edge(node, port)
        g = pending.get(edge)
        if g is not None:
            if node.hooks:
                g = pending[edge] = _run_hooks(node.hooks, port, g)
            if wanted is None or edge not in wanted:
                del pending[edge]
        arrived.append(g)
    if not any(g is not None for g in arrived):
        return None
    if node.hooks is not None:
        for kind, hook in list(node.hooks):
            if kind == BEFORE:
                arrived = _hook_result(hook(tuple(arrived)), arrived)
    return arrived


def _run_hooks_of_ends(pending: dict[Edge, TensorBase], wanted: set[Edge], visited: set[Any]) -> None:
    """Hooks on requested gradients of nodes that the walk did not need to pass."""
    for edge in wanted:
        node, port = edge if isinstance(edge, tuple) else (edge, 0)
        if edge in pending and node not in visited and not isinstance(node, Leaf) and node.hooks is not None:
            pending[edge] = _run_hooks(node.hooks, port, pending[edge])


def _run_hooks_after(
    hooks: list[Any], found: list[TensorBase | None], arrived: list[TensorBase | None]
) -> list[TensorBase | None]:
    for kind, hook in list(hooks):
        if kind == AFTER:
            found = _hook_result(hook(tuple(found), tuple(arrived)), found)
    return found


def _hook_result(result: Any, before: list[TensorBase | None]) -> list[TensorBase | None]:
    """The gradients that replace those passed to a node's hook."""
    if result is None:
        return before
    several = [result] if is_tensor(result) else list(result)
    if len(several) != len(before):
        raise GradientError(
            "a hook returned another number of gradients than it was given",
            expected=str(len(before)),
            got=str(len(several)),
        )
    return several


def _start(t: TensorBase, g: TensorBase | None) -> TensorBase:
    if g is None:
        if t.array.size != 1:
            raise GradientError(
                "backward needs a gradient for a tensor of more than one element",
                got=f"shape {list(t.static_shape)}",
                hint="loss.mean().backward(), or backward(gradient)",
            )
        if isinstance(t.array, np.ndarray):
            return operator.make_tensor(np.ones(t.static_shape, t.array.dtype))
        return operator.make_tensor(cuda.full(t.static_shape, 1, t.array.dtype, t.device))
    given, g = g, cast(operator.as_input(g), t.array.dtype)
    if g.static_shape != t.static_shape:
        what = "the gradient given to backward has another shape than the tensor"
        raise ShapeError(what, expected=str(list(t.static_shape)), got=str(list(g.static_shape)))
    if is_tensor(given) and g.device != t.device:
        what = "the gradient given to backward is on another device than the tensor"
        raise DeviceError(what, expected=t.device, got=g.device, hint=f'gradient.to("{t.device}")')
    return g


def _order(roots: Sequence[Any], into: list[Edge] | None, spans: Spans | None) -> list[Any]:
    """Every node that can be reached, newest first; with `into`, only those on a path to it; with `spans`, only those
    of these numbers, and what they alone lead to."""
    found: dict[int, Node] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        number = node.sequence
        if spans is not None and not any(start <= number < end for start, end in spans):
            continue
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


def _run_hooks(hooks: list[Any], port: int, g: TensorBase) -> TensorBase:
    for hook_port, hook in list(hooks):
        if hook_port == port:
            replaced = hook(g)
            g = g if replaced is None else replaced
    return g


def _run_leaf_hooks(hooks: list[Any], g: TensorBase) -> TensorBase:
    g = _run_hooks(hooks, 0, g)
    for kind, hook in list(hooks):
        if kind == BEFORE and (replaced := _hook_result(hook((g,)), [g])[0]) is not None:
            g = replaced
    return g


def vjp_of_tape(
    tape: Tape,
    results: Sequence[TensorBase],
    cotangents: Sequence[TensorBase],
    ends: Sequence[Any],
    *,
    create_graph: bool,
) -> list[TensorBase | None]:
    """The gradients of a recorded body's results by its `ends`: leaves of its formals, and tensors from outside.

    The walk takes the nodes that the body made, first those of the body that it continues, if any: where that one's
    inputs are, the walk continues from their replacements.
    """
    if tape.bindings:
        _refuse_hooks(results, tape.spans)
    found = walk(results, cotangents, retain_graph=True, create_graph=create_graph, into=None, spans=tape.spans)
    for bound in tape.bindings:
        pairs = [(x, found.pop(leaf)) for leaf, x in bound.items() if leaf in found and x.node is not None]
        if pairs:
            xs, gs = [x for x, _ in pairs], [g for _, g in pairs]
            more = walk(xs, gs, retain_graph=True, create_graph=create_graph, into=None, spans=tape.spans)
            with switch_mode(grad=create_graph, autocast=None):
                for edge, g in more.items():
                    found[edge] = added(found[edge], g) if edge in found else g
    edges = [None if x is None else _edge(x.node, x.port) if is_tensor(x) else x for x in ends]
    for edge in found:
        node = edge[0] if isinstance(edge, tuple) else edge
        if not isinstance(node, Leaf) and edge not in edges:
            raise RecordError(
                "a gradient leaves a recorded branch or loop to a tensor that nothing in it has read", got=node.name()
            )
    return [None if edge is None else found.get(edge) for edge in edges]


def _refuse_hooks(results: Sequence[TensorBase], spans: Spans) -> None:
    """Hooks on what another body made: here and in that body's own gradient each would see a part of what it sees in
    eager code, which is the same only for a hook that is linear."""
    for node in _order([y.node for y in results], None, spans):
        if node.hooks and any(start <= node.sequence < end for start, end in spans[1:]):
            raise RecordError(
                "a gradient of second order goes through a hook inside a recorded branch or loop",
                got=f"a hook on {node.name()}",
                hint="an ox.autograd.Function in place of the hook",
            )


vjp.differentiate = grad
vjp.vjp_of_tape = vjp_of_tape
