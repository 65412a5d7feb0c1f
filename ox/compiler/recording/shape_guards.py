"""Tensors that the code can reach and no operator read: it may have asked for their shape, type or gradient, whether
they are something else, or for an attribute that there is not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ox.compiler.recording.guard_source import Place, attributes_of
from ox.compiler.recording.guards import PythonState
from ox.compiler.recording.states import State


def places_of_unread(state: PythonState, states: Sequence[State], dynamic: bool) -> list[Place]:
    """What later calls compare of them.

    Args:
        dynamic: whether the code asks by computed names, or whether there is an attribute.
    """
    read = {id(each.tensor) for each in states if each.tensor is not None}
    reached = [place for places in state.tensors.values() for place in places if state.is_read(place)]
    unread = [place for place in reached if id(place.value) not in read and place.now() is place.value]
    kinds = _Kinds(unread, reached if dynamic else [])
    return [kinds.place] if unread or (dynamic and reached) else []


class _Kinds:
    """The getter of one `place` for all, since there may be many: itself as long as nothing changed. Otherwise the
    place gets the path of what did."""

    def __init__(self, unread: list[Place], asked: list[Place]) -> None:
        self.place = Place(self, None, "a tensor", "", False, self)
        self._unread = [
            [each.get, each.key, each.value, each.value.node is None, each.value.array, each.path] for each in unread
        ]
        tensors = {id(each.value): each for each in asked}.values()
        self._asked = [[p.value, len(vars(p.value)), attributes_of(p.value).keys(), p.path] for p in tensors]

    def __call__(self, _: Any) -> Any:
        for entry in self._unread:
            get, key, tensor, none, array, path = entry
            try:
                now = get(key)
            except (LookupError, ValueError, AttributeError):
                now = None
            if now is not tensor:
                return self._changed(path)
            if (tensor.node is None) is not none:
                return self._changed(f"requires_grad of {path}")
            if tensor.array is not array:
                if (array.shape, array.dtype) != (tensor.array.shape, tensor.array.dtype):
                    return self._changed(f"the kind of {path}")
                entry[4] = tensor.array
        for entry in self._asked:
            tensor, count, names, path = entry
            if len(vars(tensor)) != count:
                if attributes_of(tensor).keys() != names:
                    return self._changed(f"the list of attributes of {path}")
                entry[1] = len(vars(tensor))
        return self

    def _changed(self, path: str) -> Any:
        self.place.path = path
        return _Kinds([], [])
