"""A parameter group: settings as numbers, and the same as tensors."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from operator import is_
from typing import Any

import numpy as np

from ox.call_site import is_ox
from ox.core.mode import MODE
from ox.core.operator import make_tensor
from ox.core.promotion import cast
from ox.dtypes import DType
from ox.tensors.tensor import Tensor


class Group(dict[str, Any]):
    """A parameter group: a dict whose numbers are also float64 tensors of no dimensions.

    A recorded update takes the tensor in, so `group["lr"] = 0.01` reaches a captured step, too. The numbers of a tuple
    have names of their own: `betas` gives `beta1` and `beta2`.

    A recording hears of every number that other code than ox's reads: it knows the tensors only.
    """

    def __init__(self, entries: Mapping[str, Any]) -> None:
        super().__init__()
        self.tensors: dict[str, Tensor] = {}
        self._known: list[Any] = []  # the values, as of the last write that the tensors got
        self._lists: dict[str, tuple[Any, ...]] = {}  # what lists of numbers held then
        self.update(entries)

    def __reduce__(self) -> Any:
        return Group, (dict(self),)

    def __setitem__(self, name: str, value: Any) -> None:
        if isinstance(value, Tensor) and value.array.size == 1:
            value = value.item()
        super().__setitem__(name, value)
        if _is_number(value):
            self._set(name, value)
        elif isinstance(value, tuple | list):
            one = name if name == "eps" else name.removesuffix("s")
            for i, each in enumerate(value, start=1):
                if _is_number(each):
                    self._set(f"{one}{i}", each)
                    if isinstance(value, list):
                        self._lists[name] = tuple(value)
        self._known = [*dict.values(self)]

    def _set(self, name: str, value: float) -> None:
        if name in self.tensors:
            recording = MODE.get().recording
            if recording is not None:
                recording.on_number(self.tensors[name])
            self.tensors[name].array[...] = value
        else:
            self.tensors[name] = make_tensor(np.asarray(value, np.float64))

    def update(self, *entries: Any, **named: Any) -> None:
        for name, value in dict(*entries, **named).items():
            self[name] = value

    def __ior__(self, entries: Any) -> Group:  # type: ignore[override, misc]
        self.update(entries)
        return self

    def settle(self) -> None:
        """Let the tensors have what was written past this class: `dict.update(group, lr=0)`."""
        now = dict.values(self)
        same = len(now) == len(self._known) and all(map(is_, now, self._known))
        if not same or any(tuple(dict.__getitem__(self, name)) != entries for name, entries in self._lists.items()):
            self.update(dict.items(self))

    def setdefault(self, name: str, default: Any = None) -> Any:
        if name not in self:
            self[name] = default
        return self[name]

    def __getitem__(self, name: str) -> Any:
        recording = MODE.get().recording
        if recording is not None and not is_ox(sys._getframe(1).f_code.co_filename):
            recording.on_setting(self, (name,))
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        recording = MODE.get().recording
        if recording is not None and not is_ox(sys._getframe(1).f_code.co_filename):
            recording.on_setting(self, (name,))
        return super().get(name, default)

    def _note_all(self) -> None:
        recording = MODE.get().recording
        if recording is not None:
            recording.on_setting(self, tuple(dict.keys(self)))

    def __iter__(self) -> Iterator[str]:  # by which `dict(group)` and `{**group}` read it, too
        self._note_all()
        return super().__iter__()

    def keys(self) -> Any:
        self._note_all()
        return super().keys()

    def items(self) -> Any:
        self._note_all()
        return super().items()

    def values(self) -> Any:
        self._note_all()
        return super().values()

    def copy(self) -> dict[str, Any]:
        self._note_all()
        return super().copy()

    def tensor(self, name: str) -> Tensor:
        """A number of the group as a float64 tensor; always the same object."""
        return self.tensors[name]

    def cast(self, name: str, dtype: DType) -> Tensor:
        """The same in another type."""
        return cast(self.tensors[name], dtype)


def _is_number(value: Any) -> bool:
    return isinstance(value, float | int | np.number) and not isinstance(value, bool)
