"""ParameterList, ParameterDict."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ox.core.changes import CHANGES
from ox.errors import ArgumentError, DTypeError
from ox.nn.base.module import Module
from ox.nn.layers.containers import pairs
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

__all__ = ["ParameterDict", "ParameterList"]


class _ParameterContainer(Module):
    """What the two share: tensors become parameters and modules submodules; anything else is only stored."""

    _values: dict[str, Any]

    def __init__(self) -> None:
        super().__init__()
        self._values = {}

    def _set(self, name: str, value: Any) -> None:
        CHANGES.count += 1
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        holder: dict[str, Any] = (
            self._parameters
            if isinstance(value, Parameter) or (value is None and name in self._parameters)
            else self._modules
            if isinstance(value, Module)
            else self._values
        )
        for other in (self._parameters, self._modules, self._values):
            if other is not holder:
                other.pop(name, None)
        holder[name] = value

    def _get(self, name: str) -> Any:
        holders: tuple[dict[str, Any], ...] = (self._parameters, self._modules, self._values)
        return next(holder for holder in holders if name in holder)[name]

    def _drop(self, name: str) -> None:
        CHANGES.count += 1
        for holder in (self._parameters, self._modules, self._values):
            holder.pop(name, None)

    def _line(self, name: str) -> str:
        value = self._get(name)
        if not isinstance(value, Tensor):
            return f"({name}): Object of type: {type(value).__name__}"
        return f"({name}): Parameter containing: [{value.dtype} of size {'x'.join(map(str, value.static_shape))}]"

    def __repr__(self) -> str:
        lines = self.extra_repr().replace("\n", "\n    ")
        return f"{type(self).__name__}(\n    {lines}\n)" if lines else f"{type(self).__name__}()"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise ArgumentError(f"a {type(self).__name__} holds parameters and cannot be called")


class ParameterList(_ParameterContainer):
    """A list whose tensors are parameters of this module. `torch.nn.ParameterList`."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        self.extend(values or ())

    def _position(self, index: int) -> str:
        if not -self._size <= index < self._size:
            raise IndexError(f"ParameterList of {self._size} has no {index}")
        return str(index % self._size)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return type(self)([self._get(str(i)) for i in range(self._size)[index]])
        return self._get(self._position(index))

    def __setitem__(self, index: int, value: Any) -> None:
        self._set(self._position(index), value)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return (self._get(str(i)) for i in range(self._size))

    def __iadd__(self, values: Iterable[Any]) -> ParameterList:
        return self.extend(list(values))

    def append(self, value: Any) -> ParameterList:
        self._set(str(self._size), value)
        self._size += 1
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        if isinstance(values, Tensor) or not isinstance(values, Iterable):
            raise DTypeError("ParameterList extends by a list of values", got=type(values).__name__)
        for value in values:
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(self._line(str(i)) for i in range(self._size))


class ParameterDict(_ParameterContainer):
    """A dict whose tensors are parameters of this module. `torch.nn.ParameterDict`.

    The order is that of insertion; what comes from a mapping other than an OrderedDict or ParameterDict is inserted in
    the order of its sorted keys, as in PyTorch: an optimizer's state goes by the position of a parameter.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._names: dict[str, None] = {}
        self.update({} if parameters is None else parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._names:
            raise KeyError(key)
        return self._get(key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str) or not key or "." in key:
            raise DTypeError(f"{key!r} cannot name a parameter", expected="a string without dots")
        self._names[key] = None
        self._set(key, value)

    def __delitem__(self, key: str) -> None:
        del self._names[key]
        self._drop(key)

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __reversed__(self) -> Iterator[str]:
        return reversed(list(self._names))

    def __contains__(self, key: object) -> bool:
        return key in self._names

    def keys(self) -> Iterable[str]:
        return self._names.keys()

    def values(self) -> Iterable[Any]:
        return [self._get(key) for key in self._names]

    def items(self) -> Iterable[tuple[str, Any]]:
        return [(key, self._get(key)) for key in self._names]

    def get(self, key: str, default: Any = None) -> Any:
        return self._get(key) if key in self._names else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """The pair that came last."""
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return type(self)(self)

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        return type(self)((key, default) for key in keys)

    def update(self, parameters: Mapping[str, Any] | ParameterDict | Iterable[tuple[str, Any]]) -> None:
        """Set every entry of a mapping, in the order of its sorted keys, or of an OrderedDict, a ParameterDict or
        pairs, in their order. Raises DTypeError for anything else, ArgumentError for what is not a pair."""
        in_order = not isinstance(parameters, Mapping) or isinstance(parameters, OrderedDict)
        entries = list(pairs(self, parameters))
        for key, value in entries if in_order else sorted(entries, key=lambda entry: entry[0]):
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> ParameterDict:
        made = type(self)(other)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(self._line(key) for key in self._names)
