"""What a recorded call did that a graph does not repeat: the checks after the call, each of which is a reason to stay
eager."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Container, Iterable, Iterator
from functools import partial
from itertools import chain, permutations
from types import FunctionType
from typing import Any

from ox.autograd.accumulate_grad import owner
from ox.compiler.recording.call_watch import CallWatch
from ox.compiler.recording.capture import Capture, External
from ox.compiler.recording.guard_source import SIMPLE, Place, attributes_of, is_ox_class, same
from ox.compiler.recording.guards import PythonState
from ox.compiler.signature import Unusual, describe
from ox.core.memory_format import byte_range
from ox.core.mode import MODE, Mode
from ox.core.node import Node
from ox.core.operator import OPS
from ox.core.subgraph import Control
from ox.core.tensor import TensorBase
from ox.nn.base.module import Module
from ox.ops.control.sequence import OfSequences
from ox.tensors.tensor import OWN, Tensor


class _EveryName:
    """In place of the names that code reads by, when it may read by any."""

    def __contains__(self, _: object) -> bool:
        return True


EVERY_NAME = _EveryName()


def check_python(
    capture: Capture, state: PythonState, watch: CallWatch, tensors: list[Tensor], arguments: dict[int, Any]
) -> None:
    """Give up for what Python code did that a graph does not repeat.

    Args:
        arguments: what `parts_of` gave for the arguments of the call.
    """
    if watch.effect is not None:
        capture.give_up(watch.effect[0], watch.effect[1])
    if "globals" in watch.own_names:  # which entries are meant stands in no code
        capture.give_up("globals() is called, whose entries are not compared at each call", "")
    paths = {id(group): path for group, path in state.settings}
    for group, name, value in capture.read_settings.values():
        path = f"{paths.get(id(group), 'a parameter group')}[{name!r}]"
        state.places.append(Place(partial(dict.get, group), name, path, "", False, value))
    names: Container[str] = watch.names
    own_names: Container[str] = watch.own_names
    if not watch.dynamic:
        naming = state.reached(own_names) & state.naming.keys()
        watch.dynamic = next((f"{state.naming[number]} is read" for number in naming), "")
    if watch.dynamic:
        names = own_names = EVERY_NAME
    state.settle(names)
    for number in state.hooked.keys() & state.reached(names):
        capture.give_up(f"{state.hooked[number]} has hooks", "")
    for place in (place for places in state.tensors.values() for place in places):
        now = place.now() if state.is_read(place) else place.value
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
    for place in state.relevant():
        if place.changed():
            capture.give_up(f"{place.path} is changed by the call", "", again=True)
    for place in state.iterators:
        if place.name in names:
            capture.give_up(f"{place.path} is an iterator", "")
    own = state.reached(own_names)
    for number, what in state.unknown.items():
        # an array that is the memory of a tensor is read at each call
        if number in own and number not in capture.externals:
            capture.give_up(f"{what}, which is not compared at each call", "")
    for value, added_names in beside_signature(arguments.values()):
        for name in added_names:
            if name in own_names:
                capture.give_up(f"the attribute '{name}' of an argument ({type(value).__name__}) is read", "")
    for tensor in tensors:
        if "grad_fn" in watch.facts and isinstance(tensor.node, Node):
            capture.give_up("the history of an argument is read", "")
        added = [name for name in vars(tensor).keys() - OWN if name in own_names]
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


def check_memory(capture: Capture, state: PythonState) -> None:
    """A write to memory from outside reaches what shows it as the same array, and the views of one root. A part of it
    that was made by `detach` is neither: a graph would have its value from before the write."""
    shared: dict[int, list[tuple[External, tuple[int, int]]]] = {}
    for each in (*capture.arguments, *capture.externals.values()):
        shared.setdefault(id(owner(each.array)), []).append((each, byte_range(each.array)))
    for (one, (begin, end)), (other, (start, stop)) in chain(*(permutations(each, 2) for each in shared.values())):
        if not (start < end and begin < stop) or capture.current(one) is one.value:
            continue
        if one.argument is not None or other.argument is not None:  # those of another call may lie elsewhere
            if one.tensors[0] is not other.tensors[0]:
                capture.give_up("an argument shares memory with another tensor, and the call writes it", "", again=True)
        elif not _is_reached(capture, one, other):
            capture.give_up("memory is written through one tensor and read through one that shows a part of it", "")
    held: list[Any] = [places[0].value for places in state.tensors.values()]
    held += [grad for grad in state.grads.values() if grad is not None and not grad.is_sparse]
    held += [each for _, key, counter in state.generators.values() for each in (key, counter)]
    outside = {id(owner(each.array)) for each in held}
    for array, what, where in capture.read_values:
        if id(owner(array)) in outside:
            capture.give_up(f"{what} needs the value of a tensor, which a recording does not have", where)
    outside |= {id(owner(each.array)) for each in capture.externals.values()}
    if any(id(owner(array)) in outside for array in capture.written_inside):
        capture.give_up("a branch or a loop's body writes in place to a tensor from outside of it", "")


def _is_reached(capture: Capture, written: External, other: External) -> bool:
    """Whether all writes to one tensor's memory went through a root that has the other one as a view, or is it."""
    roots = {id(t if t._base is None else t._base) for t in other.tensors}
    writers = [t for t in written.tensors if capture.is_made(t) and t._recorded.value is not written.value]
    return all(id(t if t._base is None else t._base) in roots for t in writers)


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


def parts_of(*values: Any) -> dict[int, Any]:
    """These values and all that their lists, dicts and dataclasses hold, by their ids."""
    found: dict[int, Any] = {}
    todo = list(values)
    while todo:
        value = todo.pop()
        if id(value) in found:
            continue
        found[id(value)] = value
        if isinstance(value, (list, tuple)):
            todo.extend(value)
        elif isinstance(value, dict):
            todo.extend(value.values())
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            todo.extend(getattr(value, field.name) for field in dataclasses.fields(value))
    return found


def beside_signature(values: Iterable[Any]) -> Iterator[tuple[Any, set[str]]]:
    """The attributes of arguments that count by value, or by what their fields hold, which no signature has."""
    for value in values:
        if isinstance(value, (TensorBase, Module, type, enum.Enum, FunctionType)) or is_ox_class(type(value)):
            continue
        fields = getattr(value, "__dataclass_fields__", None)
        if fields is not None or isinstance(value, (tuple, *SIMPLE)):
            added = getattr(value, "__dict__", {}).keys() - (fields or {}).keys()
            if added:
                yield value, added


def contents_of(args: Any, kwargs: Any) -> Any:
    """What lists, dicts and dataclasses among the arguments hold; None for something that no recording takes."""
    tensors: list[Tensor] = []
    objects: list[Any] = []
    try:
        parts = [describe(each, tensors, objects) for each in (args, kwargs)]
    except (Unusual, RecursionError):
        return None
    return parts, [id(t) for t in tensors]
