"""Places of Python values that a later call looks at, and how they are compared."""

from __future__ import annotations

import enum
import os
import sys
import types
from collections import deque
from collections.abc import Callable, Collection
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from gc import get_referents
from itertools import pairwise
from operator import is_
from types import FunctionType
from typing import Any

import numpy as np

from ox.call_site import is_ox, is_users_file
from ox.nn.base.module import Module
from ox.tensors.tensor import OWN

SIMPLE = (type(None), bool, int, float, complex, str, bytes, np.dtype, np.generic, type, range, slice, enum.Enum)
MISSING: Any = type("missing", (), {"__repr__": lambda self: "nothing"})()


@dataclass(eq=False, slots=True)
class Place:
    """Where a value stands: `get(key)` is it now."""

    get: Callable[[Any], Any]
    key: Any
    path: str
    name: str  # what code must name to read it; empty for an entry of a container
    module: bool  # an attribute of a Module, whose changes are counted
    value: Any  # that of the walk
    owner: int = 0  # the id of what holds it; 0 for what a function reads itself

    def now(self) -> Any:
        """The value now, MISSING when there is none."""
        try:
            return self.get(self.key)
        except (LookupError, AttributeError, ValueError):
            return MISSING

    def holder(self) -> str:
        """Who holds the value, in words."""
        owner, _, name = self.path.rpartition(".")
        return f"attribute '{name}' of {owner}" if owner and name == self.name else f"'{self.path}'"

    def changed(self) -> bool:
        """Whether there is another value by now."""
        return not same(self.value, self.now())


def same(one: Any, other: Any) -> bool:
    """Whether two simple values are the same for Python code: of one type, equal, and with the sign of a zero.

    Entries of tuples and dicts that are not simple have to be the same object.
    """
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, float):
        return bool(one.hex() == other.hex())
    if isinstance(one, np.ndarray):
        kinds = one.shape == other.shape and one.dtype == other.dtype
        return bool(kinds and one.tobytes() == other.tobytes())
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same((*one,), (*other,)) and same((*one.values(),), (*other.values(),))
    if isinstance(one, frozenset):
        return typed(one) == typed(other)
    return isinstance(one, SIMPLE) and bool(one == other)


def typed(entries: Collection[Any]) -> frozenset[Any]:
    """What is in a set, with the types: 1 and True are equal."""
    return frozenset(zip(map(type, entries), entries, strict=True))


def attributes_of(tensor: Any) -> dict[str, Any]:
    """The attributes that a user set on a tensor. Another thread may set some meanwhile: `copy` is one step."""
    return {name: value for name, value in vars(tensor).copy().items() if name not in OWN}


def context_value(variable: ContextVar[Any]) -> Any:
    """What a variable of the context holds, MISSING when nothing."""
    try:
        return variable.get()
    except LookupError:
        return MISSING


def or_missing(held: dict[str, Any], name: str) -> Any:
    """A global variable, MISSING where there is none."""
    return held.get(name, MISSING)


def cell_contents(cell: Any) -> Any:
    """What a closure's cell holds; raises ValueError when it is empty."""
    return cell.cell_contents


def is_defined_by_the_call(frame: Any, function: FunctionType) -> bool:
    """Whether a function that begins now was defined by one around it in the recorded call, whose variables it has:
    these are arguments of the call, or made inside."""
    code, cells = function.__code__, function.__closure__ or ()
    around = frame.f_back
    while around is not None and around.f_code.co_name != "record":
        if code in around.f_code.co_consts:
            known = around.f_locals
            own = [(n, c) for n, c in zip(code.co_freevars, cells, strict=True) if n in around.f_code.co_cellvars]
            if own and all(known.get(name, MISSING) is contents_or_missing(cell) for name, cell in own):
                return True
        around = around.f_back
    return False


def contents_or_missing(cell: Any) -> Any:
    """What a closure's cell holds, MISSING when it is empty."""
    try:
        return cell_contents(cell)
    except ValueError:  # nothing is in it yet
        return MISSING


def slot_or_missing(slot: Any, value: Any, _: Any) -> Any:
    """What an object holds in a slot, MISSING when nothing is in it yet."""
    try:
        return slot.__get__(value)
    except AttributeError:
        return MISSING


def referent(proxy: Any) -> Any:
    """The object that a weak proxy stands for. Raises ReferenceError when it is gone."""
    return proxy.__repr__.__self__


def is_alive(reference: Any, _: Any) -> bool:
    """Whether the object of a weak reference is still there."""
    return reference() is not None


def cached_results(function: Any) -> dict[tuple[int, int], tuple[Any, Any]]:
    """Keys and results that a function with `functools.lru_cache` holds, by their ids. C shows them one after the
    other, with others between, or in a dict."""
    held = get_referents(function)
    pairs = [*pairwise(held), *(pair for each in held if type(each) is dict for pair in each.items())]
    return {(id(one), id(other)): (one, other) for one, other in pairs}


def calls_of(function: Any) -> int:
    """How often a function with `functools.lru_cache` was called."""
    info = function.cache_info()
    return int(info.hits + info.misses)


def is_machinery(name: str, value: Any) -> bool:
    """Whether an attribute of an enumeration is what `enum` keeps for itself, or a member."""
    return name.startswith("_") or isinstance(value, (enum.Enum, enum.property))


def has(value: Any, name: str) -> bool:
    """Whether there is an attribute, without `__getattr__`, which may do anything."""
    return name in getattr(value, "__dict__", ()) or hasattr(type(value), name)


def count(held: Any, _: Any) -> int:
    """How many entries something has; with `partial`, the getter of a Place."""
    return len(held)


def is_empty(value: Any) -> bool:
    """Whether an object holds nothing yet, as when its `__init__` begins."""
    if getattr(value, "__dict__", None) or isinstance(value, (Module, dict, list, set, tuple, deque)):
        return False
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            try:
                object.__getattribute__(value, name)
            except AttributeError:
                continue
            if name not in ("__dict__", "__weakref__"):
                return False
    return True


def getter(owner: Any) -> Callable[[Any], Any]:
    """`getattr` of one object."""
    return lambda name: getattr(owner, name)


def noted(read: Callable[[], Any]) -> tuple[Callable[[Any], Any], Any]:
    """A getter for a Place, and its value: one object as long as what is read stays equal, which C compares."""
    known = read()

    def get(_: Any) -> Any:
        now = read()
        return known if now == known else now

    return get, known


def entries_of(value: Any) -> tuple[Callable[[Any], Any], Any]:
    """The same for the keys of a dict, or its values, by identity: they may be tensors."""
    known = [*value]

    def get(_: Any) -> list[Any]:
        return known if len(value) == len(known) and all(map(is_, value, known)) else [*value]

    return get, known


def set_contents(value: set[Any]) -> tuple[Callable[[Any], Any], Any]:
    """The same for a set, whose entries may be equal and of another type."""
    entries, known = [*value], typed(value)

    def get(_: Any) -> Any:
        if len(value) == len(entries) and all(map(is_, value, entries)):
            return known
        now = typed(value)
        return known if now == known else now

    return get, known


@cache
def is_library(file: str) -> bool:
    """Whether a file is one of an installed library: also CuPy, which may lie in a folder of its own."""
    cupy = getattr(sys.modules.get("cupy"), "__file__", None)
    folder = os.path.dirname(cupy or "")
    if cupy is not None and file.startswith((f"{folder}{os.sep}", f"{folder}x{os.sep}")):
        return True
    return not {"site-packages", "dist-packages"}.isdisjoint(file.split(os.sep))


def is_own_code(file: str) -> bool:
    """Whether code is the user's own, and of no installed library."""
    return is_users_file(file) and not is_library(file)


def has_state_of_its_own(function: FunctionType) -> bool:
    """Whether a function is the user's own, or one of a library around others."""
    file = function.__code__.co_filename
    return is_own_code(file) or (function.__closure__ is not None and not is_ox(file))


def is_users_module(name: str) -> bool:
    """Whether a module of Python is the user's own, and no library."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    if file is None:
        return module is None or name == "__main__"
    return is_own_code(file)


def is_users_class(kind: type) -> bool:
    """Whether a class is the user's own. What `types.new_class` and `make_dataclass` make seems to be of `types`."""
    return is_users_module(kind.__module__) or (kind.__module__ == "types" and not hasattr(types, kind.__name__))


def is_ox_class(kind: type) -> bool:
    """Whether a class is one of ox."""
    return kind.__module__.startswith("ox.")


@cache
def attributes_set_by(kind: Any) -> frozenset[str]:
    """The attributes that methods of a class and of its bases set, or name."""
    methods = [each for base in kind.__mro__ for each in vars(base).values()]
    return frozenset(name for each in methods if isinstance(each, FunctionType) for name in each.__code__.co_names)


def _hook_count(hooks: Any) -> int:
    kinds = ("pre", "post", "backward_pre", "backward", "last_operator")
    return sum(len(getattr(hooks, kind)) for kind in kinds)


def hooks_of(module: Module) -> int:
    """How many hooks a module has."""
    hooks = vars(module).get("_hooks")
    return 0 if hooks is None else _hook_count(hooks)


def step_hooks(optimizer: Any) -> int:
    """How many hooks the steps of an optimizer have."""
    return len(optimizer._hooks("step_pre")) + len(optimizer._hooks("step_post"))


def random_state(value: Any) -> Any:
    """The state of a generator of NumPy or Python, as text."""
    if isinstance(value, np.random.Generator):
        return repr(value.bit_generator.state)
    return repr(value.get_state() if isinstance(value, np.random.RandomState) else value.getstate())
