"""Sequential, ModuleList, ModuleDict."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from ox.core.changes import CHANGES
from ox.errors import ArgumentError, DTypeError
from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


def _module(value: Any, holder: Module) -> Any:
    """`value`, if it is a module, or None where the holder does not call it."""
    if isinstance(value, Module) or (value is None and not isinstance(holder, Sequential)):
        return value
    expected = "a Module" if isinstance(holder, Sequential) else "a Module or None"
    raise ArgumentError(f"{type(holder).__name__} accepts only modules", expected=expected, got=type(value).__name__)


def pairs(holder: Module, entries: Any) -> Iterator[tuple[str, Any]]:
    """The keys and values of a mapping, a ModuleDict or ParameterDict, or pairs. Raises DTypeError for anything else,
    ArgumentError for an element that is not a pair."""
    name = type(holder).__name__
    if isinstance(entries, Mapping) or (isinstance(entries, Module) and hasattr(entries, "items")):
        yield from entries.items()
        return
    if isinstance(entries, Tensor) or not isinstance(entries, Iterable):
        raise DTypeError(f"{name} is updated with a dict or pairs", got=type(entries).__name__)
    for i, entry in enumerate(entries):
        if not isinstance(entry, Iterable):
            raise DTypeError(f"element {i} of what updates {name} is not a pair", got=type(entry).__name__)
        values = tuple(entry)
        if len(values) != 2:
            raise ArgumentError(f"element {i} of what updates {name} is not a pair", got=f"{len(values)} values")
        yield values


class _Numbered(Module):
    """What Sequential and ModuleList share: children named 0, 1, ..."""

    def _children(self) -> list[Any]:
        return list(self._modules.values())

    def _renumber(self, modules: list[Any]) -> None:
        CHANGES.count += 1
        self._modules.clear()
        self._modules.update({str(i): m for i, m in enumerate(modules)})

    def _position(self, index: int) -> str:
        count = len(self)
        if not -count <= index < count:
            raise IndexError(f"{type(self).__name__} of {count} modules has no module {index}")
        return list(self._modules)[index % count]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._children())

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Any: ...

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            chosen = type(self)()
            for name, module in list(self._modules.items())[index]:
                chosen._modules[name if isinstance(self, Sequential) else str(len(chosen._modules))] = module
            return chosen
        return self._modules[self._position(index)]

    def __setitem__(self, index: Any, module: Any) -> None:
        if isinstance(index, slice):
            modules = self._children()
            modules[index] = [_module(m, self) for m in module]
            self._renumber(modules)
            return
        CHANGES.count += 1
        self._modules[self._position(index)] = _module(module, self)

    def __delitem__(self, index: int | slice) -> None:
        modules = self._children()
        del modules[index]
        self._renumber(modules)

    def pop(self, index: Any) -> Any:
        """Take a module out, or those of a slice."""
        taken = self[index]
        del self[index]
        return taken

    def __add__(self, other: Iterable[Module]) -> Any:
        self._other(other)
        made = type(self)()
        made.extend(self)
        return made.extend(other)

    def __iadd__(self, other: Iterable[Module]) -> Any:
        self._other(other)
        return self.extend(list(other))

    def _other(self, other: Any) -> None:
        if isinstance(self, Sequential) and not isinstance(other, Sequential):
            raise DTypeError("only a Sequential can be added to a Sequential", got=type(other).__name__)

    def append(self, module: Module | None) -> Any:
        CHANGES.count += 1
        self._modules[str(len(self))] = _module(module, self)
        return self

    def insert(self, index: int, module: Module | None) -> Any:
        modules = self._children()
        modules.insert(index, _module(module, self))
        self._renumber(modules)
        return self

    def extend(self, modules: Iterable[Module | None]) -> Any:
        for module in modules:
            self.append(module)
        return self


class Sequential(_Numbered):
    """Modules one after the other; takes modules, or one dict of names to modules. `torch.nn.Sequential`."""

    def __init__(self, *modules: Any) -> None:
        super().__init__()
        named: Iterable[tuple[str, Any]]
        if len(modules) == 1 and isinstance(modules[0], Mapping):
            named = modules[0].items()
        else:
            named = ((str(i), m) for i, m in enumerate(modules))
        for name, module in named:
            self.add_module(name, _module(module, self))

    def __mul__(self, times: int) -> Sequential:
        """Itself several times over; the modules are shared."""
        if not isinstance(times, int) or times < 1:
            raise ArgumentError("a Sequential is repeated once or more often", expected="1 or more", got=repr(times))
        return Sequential(*self._children() * times)

    __rmul__ = __mul__

    def __imul__(self, times: int) -> Sequential:
        modules = (self * times)._children()
        return self.extend(modules[len(self) :])

    def forward(self, input: Any) -> Any:
        for module in self._modules.values():
            input = module(input)  # type: ignore[misc]
        return input


class ModuleList(_Numbered):
    """A list of modules, whose parameters count as this module's; None in a place of it. `torch.nn.ModuleList`."""

    def __init__(self, modules: Iterable[Module | None] | None = None) -> None:
        super().__init__()
        self.extend(modules or ())

    def __repr__(self) -> str:
        """Children in a row that look alike in one line: ``(0-3): 4 x Linear(...)``."""
        runs: list[list[Any]] = []
        for place, text in enumerate(map(repr, self._modules.values())):
            if runs and runs[-1][2] == text:
                runs[-1][1] = place
            else:
                runs.append([place, place, text])
        if not runs:
            return f"{self._get_name()}()"
        lines = [
            f"({first}): {text}" if first == last else f"({first}-{last}): {last - first + 1} x {text}"
            for first, last, text in runs
        ]
        return f"{self._get_name()}(\n  " + "\n".join(lines).replace("\n", "\n  ") + "\n)"


class ModuleDict(Module):
    """A dict of modules, whose parameters count as this module's; None as a value. `torch.nn.ModuleDict`."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Set every entry of a mapping or of pairs, in their order."""
        for name, module in pairs(self, modules):
            self[name] = module

    def __getitem__(self, name: str) -> Any:
        return self._modules[name]

    def __setitem__(self, name: str, module: Module) -> None:
        self.add_module(name, _module(module, self))

    def __delitem__(self, name: str) -> None:
        CHANGES.count += 1
        del self._modules[name]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, name: str) -> bool:
        return name in self._modules

    def keys(self) -> Iterable[str]:
        return self._modules.keys()

    def values(self) -> Iterable[Any]:
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Any]]:
        return self._modules.items()

    def pop(self, key: str) -> Any:
        CHANGES.count += 1
        return self._modules.pop(key)

    def clear(self) -> None:
        CHANGES.count += 1
        self._modules.clear()
