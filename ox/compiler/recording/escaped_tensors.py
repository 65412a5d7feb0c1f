"""What a recorded call left behind in Python: tensors that it made and somebody still holds."""

from __future__ import annotations

import gc
from collections.abc import Container, Iterable, Sequence
from types import FrameType
from typing import Any

from ox.compiler.recording.guard_source import Place, cell_contents
from ox.core import heap
from ox.core.node import Node
from ox.core.tensor import TensorBase


def graph_of(results: Iterable[Any], start: int) -> list[Node]:
    """The autograd nodes behind these tensors that were made from number `start` on."""
    found: dict[int, Node] = {}
    stack = [y.node for y in results]
    while stack:
        node = stack.pop()
        if isinstance(node, Node) and node.sequence >= start and node.sequence not in found:
            found[node.sequence] = node
            stack.extend(node.inputs)
    return list(found.values())


def is_freed(result: Any, start: int) -> bool:
    """Whether a backward has gone through the history of a result, so that no other one can."""
    return any(node.saved is None for node in graph_of([result], start))


def saved_in(nodes: Iterable[Any]) -> set[int]:
    """The ids of the tensors that autograd nodes keep."""
    found: set[int] = set()

    def look(value: Any, depth: int = 0) -> None:
        if isinstance(value, TensorBase):
            found.add(id(value))
            if value._base is not None:
                found.add(id(value._base))
        elif isinstance(value, (list, tuple)) and depth < 4:
            for each in value:
                look(each, depth + 1)

    for node in nodes:
        look(node.saved)
        for value in vars(node).values():
            look(value)
    return found


def alive(references: Iterable[Any], allowed: set[int]) -> list[Any]:
    """The tensors of weak references that still live and are not allowed to."""
    found = {id(t): t for t in (reference() for reference in references) if t is not None and id(t) not in allowed}
    return list(found.values())


def holder_of(tensor: Any) -> str:
    """Who holds a tensor, in words."""
    found = "somebody"
    for holder in _referrers(tensor):
        if isinstance(holder, dict):
            name = _key_of(holder, tensor)
            owners = [o for o in _referrers(holder) if getattr(o, "__dict__", None) is holder]
            if owners:
                return f"attribute '{name}' of {type(owners[0]).__name__}"
            return f"the global variable '{name}'" if "__builtins__" in holder else f"a dict, under {name!r}"
        if isinstance(holder, (list, set)):
            found = f"a {type(holder).__name__} of {len(holder)}"
        elif hasattr(holder, "cell_contents"):
            found = "a variable of the function around"
        elif isinstance(own := getattr(holder, "__dict__", None), dict) and not isinstance(holder, TensorBase):
            return f"attribute '{_key_of(own, tensor)}' of {type(holder).__name__}"
    return found


def _referrers(*objects: Any) -> list[Any]:
    with heap.whole():
        return gc.get_referrers(*objects)


def _key_of(held: dict[Any, Any], tensor: Any) -> Any:
    for key, value in held.items():
        if value is tensor:
            return key
    return "?"


def places_of(tensors: Sequence[Any], ignored: Container[int] = ()) -> dict[int, Place]:
    """Where tensors stand that the walk did not find, by their id: entries of dicts and lists, cells, attributes.

    Args:
        ignored: ids of holders that do not count.
    """
    wanted = {id(t): t for t in tensors}
    found: dict[int, Place] = {}
    for holder in _referrers(*wanted.values()):
        if holder is wanted or holder is tensors or isinstance(holder, (FrameType, tuple)) or id(holder) in ignored:
            continue
        if isinstance(holder, dict):
            pairs: Any = list(holder.items())
            get: Any = holder.__getitem__
        elif isinstance(holder, list):
            pairs, get = list(enumerate(holder)), holder.__getitem__
        elif hasattr(holder, "cell_contents"):
            value = holder.cell_contents
            if id(value) in wanted:
                found[id(value)] = Place(cell_contents, holder, "a variable of the function around", "", False, value)
            continue
        else:
            own = getattr(holder, "__dict__", None)
            if not isinstance(own, dict) or isinstance(holder, (TensorBase, Node)):
                continue
            pairs, get = list(own.items()), own.__getitem__
        for key, value in pairs:
            if id(value) in wanted and not isinstance(key, int):
                found[id(value)] = Place(get, key, f"{key!r}", "", False, value)
            elif id(value) in wanted and isinstance(holder, list):
                found.setdefault(id(value), Place(get, key, "a list", "", False, value))
    return found
