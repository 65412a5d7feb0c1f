"""Records one call while it runs, and makes of it what later calls run; or says why they stay eager."""

from __future__ import annotations

import gc
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from math import inf
from types import FunctionType, MethodType
from typing import Any

import numpy as np

from ox.amp.autocasting import own_cache
from ox.autograd.backward_pass import walk
from ox.compiler.module_call import ForwardCall, ModuleCall
from ox.compiler.recording.call_watch import CallWatch
from ox.compiler.recording.capture import NEW_STATE, Capture, Reason
from ox.compiler.recording.escaped_tensors import alive, graph_of, holder_of, saved_in
from ox.compiler.recording.gradients import Gradient, gradients_of
from ox.compiler.recording.guard_source import Place, attributes_of, same
from ox.compiler.recording.guards import PythonState
from ox.compiler.recording.results import differentiable_of, results_of
from ox.compiler.recording.returned_constants import containers_in, fresh_results
from ox.compiler.recording.shape_guards import places_of_unread
from ox.compiler.recording.side_effects import (
    check_memory,
    check_mode,
    check_python,
    check_sizes,
    check_views,
    contents_of,
    parts_of,
)
from ox.compiler.recording.states import State, states_of, updates_of
from ox.compiler.recording.undo import restore_all, undo_all
from ox.compiler.signature import Rebuild, Unusual, take_apart
from ox.compiler.tensor_facts import ATTRIBUTES, facts_of
from ox.core import heap
from ox.core.generator import Generator, default_generator
from ox.core.mode import MODE, switch_mode, while_recording
from ox.core.node import Leaf, sequence
from ox.core.operator import make_tensor
from ox.errors import CompileError, OxError
from ox.graph.ir import Graph, Value
from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor

ASKING = ("getattr", "hasattr", "vars", "__dict__")  # for attributes that there may not be


@dataclass(eq=False)
class Trace:
    """What was recorded of a call.

    `results` says for each tensor of the result what it is: ("output", value, whether a gradient follows it),
    ("freed", value), ("argument", number), ("state", number), ("grad", number of `grads`).
    """

    capture: Capture
    graph: Graph
    forward: int  # how many nodes come before those of the backward
    arguments: list[Value]
    states: list[State]
    rebuild: Rebuild
    results: list[tuple[Any, ...]]
    updates: list[tuple[Value, Value]]  # new value, and the input whose memory gets it
    grads: list[Gradient]
    grads_none: list[tuple[Tensor, bool]]  # tensors whose gradient was there at the beginning, or was not
    counters: list[tuple[Generator, Value]]
    cotangents: list[Value]
    gradients: list[tuple[Value, Value, set[int]]]  # the value of a source, its gradient, the results that it is in
    places: list[Place]
    settings: list[tuple[Any, str]]  # parameter groups
    known: list[Any]  # tensors that the code reads by a name of its own: an argument may be the same one
    facts: list[tuple[Tensor, Any]]  # what the code asks tensors from outside, and arguments
    grads_before: list[tuple[Tensor, Any]]
    catches: bool  # whether the code may catch an error for the values of tensors
    devices: list[str]  # of the results
    modules: list[Module]  # whose attributes the code may read
    dynamic: str  # what reads attributes by computed names, so that all are compared

    def argument_of(self, tensor: Tensor) -> int | None:
        """The number of the argument that this tensor was."""
        return next((i for i, e in enumerate(self.capture.arguments) if e.tensors[0] is tensor), None)

    def restore(self) -> None:
        """Undo the recorded call: memory that it wrote, gradients, generators. What it never read is left as it is, for
        nothing depends on that. The recording was told to keep what it needs."""
        restore_all(self.capture, {old for _, old in self.updates}, self.grads_before)

    def release(self) -> None:
        """Let go of the tensors of the recorded call. It can no longer be undone."""
        self.grads, self.grads_none, self.grads_before, self.facts = [], [], [], []
        self.capture.release()


@heap.settled()
def record(
    function: Callable[..., Any],
    args: Any,
    kwargs: Any,
    tensors: list[Tensor],
    objects: list[Any],
    fullgraph: bool = False,
    undo: bool = False,
    first: bool = False,
) -> tuple[Any, Trace | Reason]:
    """Call the function and record it. Returns its result beside what was recorded. With `undo` that can be restored.
    The `first` call is not recorded beside an optimizer without state, which it is likely to create.

    Raises:
        CompileError: with `fullgraph`, something cannot be recorded.
    """
    state = PythonState()
    arguments = parts_of(args, kwargs)
    state.passing.update(arguments)
    for value in arguments.values():
        state.visit_argument(value)
    for root in (default_generator, function, *objects):
        _visit_root(state, root)
    state.note_switches()
    if first and not (undo or fullgraph) and any(not keys for _, keys in state.optimizers):
        return function(*args, **kwargs), Reason(NEW_STATE, again=True)
    capture = Capture(fullgraph, undo or fullgraph)
    capture.known = state.tensors
    watch = CallWatch(state, capture)
    start = next(sequence)
    histories, mode = [(t.node, t.port) for t in tensors], MODE.get()
    facts = [(tensor, facts_of(tensor)) for tensor in tensors]
    given, attributes = contents_of(args, kwargs), [*map(attributes_of, tensors)]
    try:
        for tensor in tensors:
            capture.argument(tensor)
        with own_cache(), switch_mode(recording=capture), ExitStack() as told, watch:
            for each in while_recording:
                told.enter_context(each())
            capture.watch = watch
            result = function(*args, **kwargs)
            capture.watch = None
        check_mode(capture, mode)
        check_python(capture, state, watch, tensors, arguments)
        if contents_of(args, kwargs) != given or not all(map(same, attributes, map(attributes_of, tensors))):
            capture.give_up("an argument is changed by the call", "")
        check_views(capture, tensors)
        for tensor, history in zip(tensors, histories, strict=True):
            if (tensor.node, tensor.port) != history:
                capture.give_up("an argument that requires a gradient is written in place")
        if capture.reason is not None:
            return result, capture.reason
        made = _finish(capture, state, watch, result, start, facts)
        return result, made if capture.reason is None and made is not None else _reason(capture)
    except CompileError:
        undo_all(capture, state)
        raise
    finally:
        capture.forget()


def _reason(capture: Capture) -> Reason:
    return capture.reason or Reason("it cannot be recorded")


def _visit_root(state: PythonState, root: Any) -> None:
    if isinstance(root, ForwardCall):
        state.between_hooks = root.module
    if isinstance(root, ModuleCall):
        root = root.module
    if isinstance(root, MethodType):
        state.visit(root.__self__, None)
        root = root.__func__
    if isinstance(root, FunctionType):
        state.visit_closure(root)
    else:
        state.visit(root, None)


def _finish(
    capture: Capture, state: PythonState, watch: CallWatch, result: Any, start: int, facts: list[tuple[Tensor, Any]]
) -> Trace | None:
    leaves: list[Any] = []
    try:
        rebuild = take_apart(result, leaves, state.outlives)
    except Unusual as unusual:
        capture.give_up(f"the result holds {unusual}", "")
        return None
    except RecursionError:
        capture.give_up("the result holds itself", "")
        return None
    forward = capture.count()
    fresh = fresh_results(capture, state, leaves, result, start)
    differentiable = differentiable_of(capture, leaves, start)
    cotangents, found, reached = _vjp(capture, leaves, differentiable, start)
    random = _counters(capture)
    gradients = gradients_of(capture, state, watch)
    grads = gradients.changed
    results = results_of(capture, leaves, differentiable, start, grads, fresh)
    if capture.reason is not None:
        return None
    nodes = graph_of([y for y in leaves if y.node is not None], start)
    saved = saved_in(nodes)
    _check_leftovers(capture, leaves, saved, [g.tensor._grad for g in grads])
    if capture.reason is not None:
        return None
    check_memory(capture, state)
    updates, externals = updates_of(capture), list(capture.externals.values())
    sources = _sources(capture, found, reached)
    states = states_of(capture, state, externals, saved, containers_in(nodes))
    check_sizes(capture)
    if capture.reason is not None or sources is None:
        return None
    numbers = {s.value: i for i, s in enumerate(states)}
    arguments = [external.value for external in capture.arguments]
    updates = [pair for pair in updates if pair[1] in numbers or pair[1] in arguments]
    results = [("state", numbers[r[1]]) if r[0] == "external" and r[1] in numbers else r for r in results]
    for y, r in zip(leaves, results, strict=True):
        own = states[r[1]].tensor if r[0] == "state" else None
        if own is not None and own is not y:  # detach() of it
            capture.give_up("a result shares the memory of a tensor that the call did not make", "")
            return None
    if any(r[0] == "external" for r in results):
        capture.give_up("a result was not made by an operator", "")
        return None
    return Trace(
        capture,
        capture.graph,
        forward,
        arguments,
        states,
        rebuild,
        results,
        updates,
        grads,
        gradients.guarded,
        random,
        cotangents,
        [source for source in sources if source[0] in numbers or source[0] in arguments],
        [
            *(place for place in state.relevant() if place.key is not None or place.path),
            *places_of_unread(state, states, bool(watch.dynamic) or not watch.own_names.isdisjoint(ASKING)),
        ],
        state.settings,
        [
            places[0].value
            for places in state.tensors.values()
            if watch.dynamic or any(p.name in watch.own_names for p in places)
        ],
        _facts(state, watch, facts),
        gradients.before if capture.undo else [],
        watch.catches,
        [y.device for y in leaves],
        state.reached_modules(),
        watch.dynamic,
    )


def _facts(state: PythonState, watch: CallWatch, arguments: list[tuple[Tensor, Any]]) -> list[tuple[Tensor, Any]]:
    """What tensors were asked, if they were: of `arguments` as they began."""
    if not watch.facts and watch.own_names.isdisjoint(ATTRIBUTES):
        return []
    reached = (place.value for places in state.tensors.values() for place in places if state.is_read(place))
    return [*arguments, *[(tensor, facts_of(tensor)) for tensor in {id(t): t for t in reached}.values()]]


def _vjp(
    capture: Capture, leaves: list[Any], differentiable: list[bool], start: int
) -> tuple[list[Value], dict[Any, Value], dict[Any, set[int]]]:
    """Record the gradient of the results. Returns the inputs that stand for their cotangents, and by edge the gradients
    and the numbers of the results whose history it is in."""
    ys = [y for y, wanted in zip(leaves, differentiable, strict=True) if wanted]
    if not ys or capture.reason is not None:
        return [], {}, {}
    reached: dict[Any, set[int]] = {}
    for i, y in enumerate(ys):
        for node in graph_of([y], start):
            for edge in zip(node.inputs, node.ports, strict=True):
                reached.setdefault(edge if edge[1] else edge[0], set()).add(i)
    cotangents = [make_tensor(np.ones_like(y.array)) for y in ys]
    values = []
    with switch_mode(recording=capture):
        for i, g in enumerate(cotangents):
            values.append(capture.input(f"cotangent_{i}", g))
        try:
            found = walk(
                ys, cotangents, retain_graph=True, create_graph=False, into=None, spans=((start, inf),)
            )  # fmt: skip
        except OxError as error:
            capture.refuse(error)
            return [], {}, {}
        gradients = {}
        for edge, g in found.items():
            if g.is_sparse:
                capture.give_up("a gradient is sparse", "")
            else:
                gradients[edge] = capture.value(g)  # type: ignore[arg-type]
    return values, gradients, reached


def _sources(
    capture: Capture, found: dict[Any, Value], reached: dict[Any, set[int]]
) -> list[tuple[Value, Value, set[int]]] | None:
    """Gradients with the value of the tensor that they belong to, and with the results whose history that is in."""
    edges: dict[Any, Value] = {}
    for external in (*capture.externals.values(), *capture.arguments):
        for node, port in external.edges:
            if node is not None:
                edges.setdefault((node, port) if port else node, external.value)
    pairs = []
    for edge, g in found.items():
        if edge in edges:
            pairs.append((edges[edge], g, reached[edge]))
        elif not (isinstance(edge, Leaf) and edge.tensor() is None):
            capture.give_up("a gradient goes to a tensor that the call did not read", "")
            return None
    return pairs


def _counters(capture: Capture) -> list[tuple[Generator, Value]]:
    """The generators that moved on, with their counters."""
    found = []
    for generator, _, counter in capture.random.values():
        if generator.counter is not counter and capture.is_made(generator.counter):
            found.append((generator, capture.value(generator.counter)))
        elif generator.counter is not counter:
            capture.give_up("a generator is set inside", "")
    return found


def _check_leftovers(capture: Capture, leaves: list[Any], saved: set[int], grads: list[Any]) -> None:
    """Give up for what the call made and somebody holds, who would not get it from a graph."""
    for reference in capture.made:
        tensor = reference()
        if tensor is not None and tensor._recorded is not None:
            tensor._recorded.view_call = None
    allowed = set(saved)
    for y in (*leaves, *grads):
        if y is not None:
            allowed |= {id(y), id(y._base)}
    for generator, *_ in capture.random.values():
        allowed.add(id(generator.counter))
    for external in (*capture.arguments, *capture.externals.values()):
        allowed |= {id(t) for t in (*external.tensors, *external.grads)}
    if not alive(capture.made, allowed):
        return
    gc.collect(1)  # what the call left in cycles is young, and to look at everything may take a second
    if alive(capture.made, allowed):
        gc.collect()
    left = alive(capture.made, allowed)
    if left:
        tensor = left.pop()
        left.clear()
        capture.give_up(f"a tensor that the call made is kept by {holder_of(tensor)}", "")
