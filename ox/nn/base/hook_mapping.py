"""`Module._forward_hooks` and its like: the hooks of a kind as the ordered mapping that PyTorch keeps them in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from itertools import count
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ox.nn.base.hooks import HookRegistry

_ids = count()


class Entry(tuple[Callable[..., Any], bool]):
    """(hook, with_kwargs) under a number, the `id` of its handle."""

    id: int

    def __new__(cls, hook: Callable[..., Any], with_kwargs: bool = False, id: int | None = None) -> Entry:
        self = super().__new__(cls, (hook, with_kwargs))
        self.id = next(_ids) if id is None else id
        return self

    def __getnewargs__(self) -> tuple[Any, ...]:
        return (*self, self.id)


class HookMapping(MutableMapping[int, Callable[..., Any]]):
    """The numbers and hooks of one kind in their order, to read, to remove and to replace."""

    def __init__(self, entries: list[Any]) -> None:
        self._entries = entries

    def _place(self, id: int) -> int:
        for place, entry in enumerate(self._entries):
            if entry.id == id:
                return place
        raise KeyError(id)

    def __getitem__(self, id: int) -> Callable[..., Any]:
        return self._entries[self._place(id)][0]

    def __setitem__(self, id: int, hook: Callable[..., Any]) -> None:
        if id in self:
            place = self._place(id)
            self._entries[place] = Entry(hook, self._entries[place][1], id)
        else:
            self._entries.append(Entry(hook, id=id))

    def __delitem__(self, id: int) -> None:
        del self._entries[self._place(id)]

    def __iter__(self) -> Iterator[int]:
        return iter([entry.id for entry in self._entries])

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return repr(dict(self))

    def move_to_end(self, id: int, last: bool = True) -> None:
        """Make a hook the last, or the first."""
        entry = self._entries.pop(self._place(id))
        self._entries.insert(len(self._entries) if last else 0, entry)


def mapping_of(kind: str) -> property:
    """The property of a module that is its hooks of a kind."""

    def get(self: HookRegistry) -> HookMapping:
        return HookMapping(getattr(self._get_hooks(), kind))

    def replace(self: HookRegistry, hooks: Mapping[int, Callable[..., Any]]) -> None:
        new = [Entry(hook, id=id) for id, hook in hooks.items()]  # `hooks` may be this mapping itself
        getattr(self._get_hooks(), kind)[:] = new

    return property(get, replace)
