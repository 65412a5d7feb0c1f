"""Which tensors from outside are state of a recording, and how each call reads them."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ox.compiler.recording.capture import Capture, External
from ox.compiler.recording.escaped_tensors import places_of
from ox.compiler.recording.guard_source import Place
from ox.compiler.recording.guards import PythonState
from ox.graph.ir import Value


@dataclass(eq=False)
class State:
    """A tensor that outlives the call and that the graph takes in.

    Attributes:
        read: the tensor, or for memory that is an array of NumPy the array, at each call; None when it is gone.
        places: everywhere it stands, as far as that is known: another tensor in one of them is a reason to record
            again.
        argument: the number of the argument whose gradient it is, if it is one.
        tensor: the tensor of the recording; None where another one may take its place (counters, gradients).
    """

    value: Value
    read: Callable[[], Any]
    tensor: Any
    places: list[Place]
    argument: int | None = None

    def of(self, tensors: Sequence[Any]) -> Any:
        """What a call with these arguments takes in."""
        return self.read() if self.argument is None else tensors[self.argument]._grad


def updates_of(capture: Capture) -> list[tuple[Value, Value]]:
    """The memory from outside that holds something else at the end."""
    found = []
    written = [e for e in (*capture.arguments, *capture.externals.values()) if capture.current(e) is not e.value]
    roots = {id(t) for e in written for t in e.tensors}
    for external in written:
        if any(t.array is not external.array for t in external.tensors if capture.is_made(t)):
            capture.give_up("a tensor changes its shape in place", "")
        if all(id(t._base) in roots for t in external.tensors):
            continue  # its memory is that of another one
        found.append((capture.current(external), external.value))
    return found


def states_of(
    capture: Capture, state: PythonState, externals: list[External], saved: set[int], containers: set[int]
) -> list[State]:
    """Which tensors from outside outlive the call; the others are constants of the graph.

    Args:
        saved: ids of tensors that the nodes of the results saved for backward.
        containers: ids of the containers that they are in.
    """
    written = {value for _, value in updates_of(capture)}
    states: list[State] = []
    unknown: list[tuple[External, list[Any]]] = []
    for external in externals:
        reader = _reader(capture, state, external)
        if reader is not None:
            states.append(reader)
            continue
        references = [weakref.ref(t) for t in external.tensors]
        external.tensors.clear()
        unknown.append((external, references))
    capture.release_written()
    survivors: list[tuple[External, Any]] = []
    for external, references in unknown:
        tensor = next((t for t in (r() for r in references) if t is not None), None)
        shared = isinstance(external.array, np.ndarray) and not external.array.flags.writeable
        if tensor is not None and not (shared and external.value not in written):
            survivors.append((external, tensor))
            del tensor
            continue
        del tensor
        _keep_constant(capture, external, written)
    if survivors:
        places = places_of([t for _, t in survivors], containers | {id(capture._touched)})
        for external, tensor in survivors:
            place = places.get(id(tensor))
            if place is not None:
                states.append(State(external.value, partial(_itself, tensor), tensor, [place]))
            elif id(tensor) in saved:
                _keep_constant(capture, external, written)
            else:
                states.append(State(external.value, weakref.ref(tensor), None, []))
    return states


def _reader(capture: Capture, state: PythonState, external: External) -> State | None:
    """How the tensor is read at each call, if it is known where it stands."""
    value = external.value
    for tensor in external.tensors:
        for generator, key, counter in capture.random.values():
            if tensor is key or tensor is counter:
                name = "key" if tensor is key else "counter"
                return State(value, partial(getattr, generator, name), None, [])
    known = [tensor for tensor in external.tensors if id(tensor) in state.tensors]
    if not known:  # the call read or wrote it as p.data or p.detach()
        owners = (places[0].value for places in state.tensors.values())
        known = [owner for owner in owners if owner.array is external.array]
    if known:
        places = [place for tensor in known for place in state.tensors[id(tensor)]]
        return State(value, partial(_itself, known[0]), known[0], [*filter(state.is_read, places)] or places)
    for tensor in external.tensors:
        for places in state.tensors.values():
            owner = places[0].value
            if state.grads.get(id(owner)) is tensor:
                return State(value, partial(getattr, owner, "_grad"), None, [])
        for number, argument in enumerate(capture.arguments):
            if argument.grads[0] is tensor:
                return State(value, _nothing, None, [], number)  # each call's own
        for other in capture.externals.values():
            for owner, grad in zip(other.tensors, other.grads, strict=False):
                if grad is tensor:
                    return State(value, partial(getattr, owner, "_grad"), None, [])
    place = state.arrays.get(id(external.array))
    if place is not None:
        return State(value, place.now, None, [])
    return None


def _keep_constant(capture: Capture, external: External, written: set[Value]) -> None:
    if external.copy is None and external.value in written:
        capture.give_up("a large tensor is made and written in place without an operator", "")
        return
    array = external.array if external.copy is None else external.copy
    capture.graph.constants[external.value] = array


def _nothing() -> Any:
    return None


def _itself(tensor: Any) -> Any:
    return tensor
