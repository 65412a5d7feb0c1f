"""Tensors that a call made without an operator, as `ox.zeros` does, and returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from ox.compiler.recording.capture import Capture, External
from ox.compiler.recording.escaped_tensors import graph_of, places_of
from ox.compiler.recording.guards import PythonState


def fresh_results(
    capture: Capture, state: PythonState, leaves: list[Any], result: Any, start: int
) -> dict[int, External]:
    """The results, by id, that are such tensors, as they were made. One that the call wrote is from now on what its
    operators made of a constant. Both are new in every call, though they look like tensors from outside: nobody but the
    result holds them.

    Args:
        leaves: the tensors in `result`.
        start: the sequence number of the call's first node of autograd.
    """
    found: dict[int, External] = {}
    arguments = {id(t) for external in capture.arguments for t in external.tensors}
    for y in leaves:
        if not capture.is_made(y) and id(y) not in arguments:
            capture.external(y, read=True)
    returned = set(map(id, leaves))  # no closure: its cell would count as a holder of the tensors
    unknown = [
        (y, external)
        for external in capture.externals.values()
        for y in external.tensors
        if id(y) not in state.tensors and id(y) in returned
    ]
    if not unknown:
        return found
    ignored = {id(leaves), id(capture._touched), *map(id, _containers(result)), id(unknown)}
    ignored.update(id(external.tensors) for external in capture.externals.values())
    ignored |= containers_in(graph_of([y for y in leaves if y.node is not None], start))
    held = places_of([y for y, _ in unknown], ignored)
    for y, external in unknown:
        if id(y) in held or len({id(t) for t in external.tensors}) > 1 or _is_readable(capture, y):
            continue
        if external.copy is None:
            capture.give_up("a large tensor is made without an operator, and returned", "")
        if capture.current(external) is external.value:
            found[id(y)] = external
        for each in (external.tensors, external.edges, external.grads):  # a constant, which nobody holds
            each.clear()
    return found


def _is_readable(capture: Capture, tensor: Any) -> bool:
    """Whether another call finds the tensor again: as the key or counter of a generator, or as a gradient."""
    generators = (t for _, key, counter in capture.random.values() for t in (key, counter))
    gradients = (g for e in (*capture.arguments, *capture.externals.values()) for g in e.grads)
    return any(tensor is each for each in (*generators, *gradients))


def containers_in(nodes: Iterable[Any]) -> set[int]:
    """The ids of the containers that autograd nodes keep tensors in."""
    return {id(held) for node in nodes for value in vars(node).values() for held in _containers(value)}


def _containers(value: Any, depth: int = 0) -> Iterator[Any]:
    """The lists, dicts and dataclasses in a structure, and the dicts of the latter's attributes."""
    if depth > 4:
        return
    if isinstance(value, (list, tuple)):
        yield value
        for each in value:
            yield from _containers(each, depth + 1)
    elif isinstance(value, dict):
        yield value
        for each in value.values():
            yield from _containers(each, depth + 1)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield value
        yield from _containers(vars(value) if hasattr(value, "__dict__") else [], depth + 1)
