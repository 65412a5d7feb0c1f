"""What a recorded call did that a graph does not repeat: the checks after the call, each of which is a reason to stay
eager."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from ox.compiler.call_watch import CallWatch
from ox.compiler.capture import Capture
from ox.compiler.place import Place, attributes_of, same
from ox.compiler.python_state import PythonState
from ox.compiler.signature import Unusual, describe
from ox.core.mode import MODE, Mode
from ox.core.operator import OPS
from ox.core.subgraph import Control
from ox.ops.control.sequence import OfSequences
from ox.tensors.tensor import OWN, Tensor

SETTERS = frozenset(("setattr", "delattr", "__setattr__", "__delattr__", "__dict__", "vars"))


def check_python(capture: Capture, state: PythonState, watch: CallWatch, tensors: list[Tensor]) -> None:
    """Give up for what Python code did that a graph does not repeat."""
    for path in state.hooked:
        capture.give_up(f"{path} has hooks", "")
    if watch.effect is not None:
        capture.give_up(watch.effect[0], watch.effect[1])
    if "globals" in watch.own_names:  # which entries are meant stands in no code
        capture.give_up("globals() is called, whose entries are not compared at each call", "")
    paths = {id(group): path for group, path in state.settings}
    for group, name, value in capture.read_settings.values():
        path = f"{paths.get(id(group), 'a parameter group')}[{name!r}]"
        state.places.append(Place(partial(dict.get, group), name, path, "", False, value))
    state.settle(watch.names)
    every = not watch.own_names.isdisjoint(SETTERS)  # a computed name stands in no code
    for place in (place for places in state.tensors.values() for place in places):
        now = place.now() if every or state.is_read(place) else place.value
        # Found here, and not only by `_check_leftovers`: a result, a gradient and what a backward needs may live on.
        if now is not place.value and capture.is_made(now):
            capture.give_up(f"a tensor that the call made is kept by {place.holder()}", "")
        elif now is not place.value:
            capture.give_up(f"{place.path} is changed by the call", "", again=True)
        attributes, none = state.attributes[id(place.value)]
        if none is not (place.value.node is None) and not capture.is_written(place.value):
            capture.give_up(f"requires_grad of {place.path} is changed by the call", "", again=True)
        if not same(attributes, attributes_of(place.value)):
            capture.give_up(f"an attribute of {place.path} is changed by the call", "", again=True)
    for place in state.places if every else state.relevant():
        if place.changed():
            capture.give_up(f"{place.path} is changed by the call", "", again=True)
    for place in state.iterators:
        if place.name in watch.names:
            capture.give_up(f"{place.path} is an iterator", "")
    own = state.reached(watch.own_names)
    for number, what in state.unknown.items():
        # an array that is the memory of a tensor is read at each call
        if number in own and number not in capture.externals:
            capture.give_up(f"{what}, which is not compared at each call", "")
    for tensor in tensors:
        added = [name for name in vars(tensor).keys() - OWN if name in watch.own_names]
        if added:
            capture.give_up(f"the attribute '{added[0]}' of an argument is read", "")
        if id(tensor) in state.tensors:
            capture.give_up(f"an argument is also {state.tensors[id(tensor)][0].path}", "")
    for generator, key, counter in state.generators.values():
        began = capture.random.get(id(generator))
        if generator.key is not key or (began is not None and began[2] is not counter):
            capture.give_up("a generator is seeded inside", "")
        elif generator.counter is not counter and began is None:
            capture.give_up("random numbers are drawn that a recording does not see", "")
    if not capture.random.keys() <= state.generators.keys():
        capture.give_up("a generator is made inside", "")


def check_mode(capture: Capture, before: Mode) -> None:
    """A statement like ``set_grad_enabled(False)`` outlives the call."""
    now = MODE.get()
    if (now.grad, now.inference) != (before.grad, before.inference):
        capture.give_up("the gradient mode is another one after the call", "")
    if now.autocast is not before.autocast:
        capture.give_up("autocast is set for what comes after the call", "")


def check_views(capture: Capture, tensors: list[Tensor]) -> None:
    """A view among the arguments is written through its root, which another call has not got."""
    for tensor in tensors:
        if tensor._base is not None and capture.is_written(tensor._base):
            capture.give_up("an argument that is a view is written in place", "")


def check_sizes(capture: Capture) -> None:
    """Give up where a size was computed from values: whatever comes behind was recorded for this size alone."""
    graph = capture.graph
    known = set(graph.constants)
    for node in graph.nodes:
        if node.key in ("Shape", "Size") or all(v is None or v in known for v in node.inputs):
            known.update(node.outputs)
            continue
        op = OPS[node.key]
        if isinstance(op, (Control, OfSequences)):
            continue
        if any(v is not None and v not in known and op.schema.input_at(i).host for i, v in enumerate(node.inputs)):
            capture.give_up(f"the size of what {op.name} gives depends on values", node.where)


def ids_in(*values: Any) -> set[int]:
    """The ids of these values and of all that their lists, dicts and dataclasses hold."""
    found: set[int] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if id(value) in found:
            continue
        found.add(id(value))
        if isinstance(value, (list, tuple)):
            todo.extend(value)
        elif isinstance(value, dict):
            todo.extend(value.values())
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            todo.extend(getattr(value, field.name) for field in dataclasses.fields(value))
    return found


def contents_of(args: Any, kwargs: Any) -> Any:
    """What lists, dicts and dataclasses among the arguments hold; None for something that no recording takes."""
    tensors: list[Tensor] = []
    objects: list[Any] = []
    try:
        parts = [describe(each, tensors, objects) for each in (args, kwargs)]
    except (Unusual, RecursionError):
        return None
    return parts, [id(t) for t in tensors]
