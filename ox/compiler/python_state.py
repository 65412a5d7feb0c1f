"""What Python code that is recorded may depend on besides its arguments: attributes of modules and objects, closures,
globals, settings of optimizers, and where its tensors stand.

`PythonState` walks them before the recorded call, and again at each function that the call enters. Afterwards it tells
which of them changed, and what a later call has to compare.
"""

from __future__ import annotations

import builtins
import enum
import random as python_random
import sys
from array import array
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from ctypes import c_byte
from dataclasses import Field, is_dataclass
from functools import cache, partial
from gc import get_referents
from itertools import islice
from threading import local
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import Any
from weakref import CallableProxyType, ProxyType, ReferenceType

import numpy as np

from ox.compiler.closures import Closures
from ox.compiler.dynamic_access import calls_by_name, used_whole
from ox.compiler.optimizer_places import visit_optimizer
from ox.compiler.place import (
    MISSING,
    SIMPLE,
    Place,
    attributes_of,
    attributes_set_by,
    cached_results,
    calls_of,
    contents_or_missing,
    context_value,
    count,
    entries_of,
    getter,
    has,
    has_state_of_its_own,
    hooks_of,
    is_alive,
    is_defined_by_the_call,
    is_empty,
    is_machinery,
    is_users_class,
    is_users_module,
    noted,
    or_missing,
    random_state,
    referent,
    set_contents,
    slot_or_missing,
)
from ox.core.generator import Generator
from ox.core.tensor import TensorBase
from ox.nn.base.module import Module

Where = tuple[Callable[[Any], Any], Any, str, str, bool]  # the first fields of a Place
BOUND = (MethodType, BuiltinFunctionType, MethodWrapperType)
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
DEEPEST = 6
LARGEST = 4096  # entries of a list, dict or set, and bytes of an array, that are compared at each call
# what Python code of libraries keeps is its own affair
OPAQUE = {"ox", "builtins", "dataclasses", "numpy", "logging", "_thread", "io", "_io"}
PLAIN = (bool, int, float, str, NoneType, FunctionType)
VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))
CACHED = type(cache(id))
PROXIES = (ProxyType, CallableProxyType)
# what Python itself keeps in modules and classes
MACHINERY = frozenset(("__builtins__", "__loader__", "__spec__", "__dict__", "__weakref__", "_abc_impl"))
MEMORY = (bytearray, array, memoryview, c_byte.__mro__[-2])  # the last one is the base of all classes of ctypes


class PythonState:
    """The walk. `places` are simple values, `tensors` the places of tensors by their id, `objects` what else is there,
    compared by identity."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.tensors: dict[int, list[Place]] = {}
        self.arrays: dict[int, Place] = {}
        self.grads: dict[int, Any] = {}  # of tensors, by id, when they were first seen
        self.attributes: dict[int, tuple[dict[str, Any], bool]] = {}  # likewise; and whether no gradient follows
        self.modules: dict[int, Module] = {}
        self.generators: dict[int, tuple[Generator, Any, Any]] = {}  # with key and counter
        self.hooked: dict[int, str] = {}  # modules with hooks
        self.between_hooks: Module | None = None  # the one whose forward alone is recorded
        self.iterators: list[Place] = []
        self.optimizers: list[tuple[Any, set[Any]]] = []  # their states, with the keys at the beginning
        self.settings: list[tuple[Any, str]] = []  # parameter groups, whose numbers are tensors
        self.cached: list[tuple[Any, int, Place]] = []  # functions with `lru_cache`, how often they were called
        self.naming: dict[int, str] = {}  # functions that read attributes by a name that they are given
        self.unknown: dict[int, str] = {}  # what is not compared, by id, and why
        self.passing: set[int] = set()  # ids of what may be an argument, or made by the call: another call has others
        self._owners: list[int] = [0]  # of what is visited now; the last one holds it
        self._held: dict[int, list[tuple[int, str]]] = {}  # by owner: what it holds, and the names to read it by
        self._reached: set[int] = set()
        self._names: Container[str] = ()
        self._seen: dict[int, Any] = {}  # the objects are kept, so that an id stays their own
        self._closures = Closures()
        self._made: set[int] = set()  # ids of objects that the call makes, which are no state of anybody's

    # -- the walk ----------------------------------------------------------------------------------------------

    def visit(self, value: Any, place: Where | None, depth: int = 0) -> None:
        """Note a value, where it stands, and what it holds."""
        with self._inside(value, "" if place is None else place[3]) as owner:
            self._visit(value, place, owner, depth)

    @contextmanager
    def _inside(self, value: Any, name: str = "") -> Iterator[int]:
        """What is noted meanwhile belongs to the value, which its present owner holds under the name."""
        owner = self._owners[-1]
        self._held.setdefault(owner, []).append((id(value), name))
        self._owners.append(id(value))
        try:
            yield owner
        finally:
            self._owners.pop()

    @contextmanager
    def _passing(self) -> Iterator[None]:
        """What is met first in this block may have been made by the call."""
        known = len(self._seen)
        yield
        self.passing.update(islice(self._seen, known, None))

    def add(self, place: Place) -> None:
        place.owner = self._owners[-1]
        self.places.append(place)

    def _visit(
        self,
        value: Any,
        place: Where | None,
        owner: int,
        depth: int,
    ) -> None:
        path = "" if place is None else place[2]
        if isinstance(value, TensorBase):
            if place is not None:
                self.tensors.setdefault(id(value), []).append(Place(*place, value, owner))
                if id(value) not in self._seen:
                    self._seen[id(value)], self.grads[id(value)] = value, value._grad
                    held, _ = self.attributes[id(value)] = attributes_of(value), value.node is None
                    for name in held:
                        self.visit(held[name], (getter(value), name, f"{path}.{name}", name, False), depth + 1)
            return
        if isinstance(value, PROXIES):  # these have the class of what they stand for
            if place is not None:
                self.places.append(Place(*place, value, owner))
            with suppress(ReferenceError):
                self.visit(referent(value), None, depth + 1)
            return
        if place is not None:
            kept = value
            if isinstance(value, np.ndarray):
                self.arrays[id(value)] = Place(*place, value)
                place = (*place[:4], False)  # what writes into it is not counted
                if value.nbytes <= LARGEST:
                    kept = value.copy()
                else:
                    self.unknown[id(value)] = f"{path} is an array of NumPy of {value.nbytes:,} bytes"
            elif isinstance(value, (np.random.Generator, np.random.RandomState, python_random.Random)):
                now = random_state(value)
                self.add(Place(lambda _: random_state(value), None, f"the state of {path}", place[3], False, now))
                return
            elif hasattr(type(value), "__next__"):
                self.iterators.append(Place(*place, value))
            self.places.append(Place(*place, kept, owner))
        if isinstance(value, BOUND) and not isinstance(value.__self__, (type, ModuleType)):
            self.visit(value.__self__, None if place is None else (getter(value), "__self__", path, "", False), depth)
        if isinstance(value, type):
            self._visit_class(value, depth)
        if isinstance(value, enum.Enum):
            self._visit_member(value, path, depth)
        if isinstance(value, FunctionType) and has_state_of_its_own(value):
            self.visit_closure(value, depth + 1)
        if calls_by_name(value):
            self.naming[id(value)] = path
        simple = isinstance(value, (*SIMPLE, *FUNCTIONS, np.ndarray))
        if simple and not isinstance(value, (type, enum.Enum, *FUNCTIONS)) and hasattr(value, "__dict__"):
            simple = False  # a class of one's own, whose objects have attributes as well
        if isinstance(value, np.ndarray) and value.dtype.hasobject and value.size <= LARGEST:
            self._visit_held(value.flat, depth)  # which objects these are, its bytes say
        if simple or id(value) in self._seen or (isinstance(value, ModuleType) and not is_users_module(value.__name__)):
            return
        if depth > DEEPEST:
            self.unknown[id(value)] = f"{path} lies more than {DEEPEST} objects deep"
            return
        self._seen[id(value)] = value
        self.unknown.pop(id(value), None)
        if isinstance(value, Module):
            self._visit_module(value, path or type(value).__name__, depth)
        elif isinstance(value, ModuleType):
            self._visit_attributes(vars(value), path, depth + 1, MACHINERY)
        elif has(value, "param_groups") and has(value, "state"):
            visit_optimizer(self, value, path, depth)
        elif has(value, "_own_attributes"):  # of `ox.compile`
            self._visit_attributes(vars(value), path, depth + 1, value._own_attributes)
        elif not getattr(type(value), "_recorded_as_call", False):
            self._visit_contents(value, path, depth)
            self._visit_object(value, path, depth)

    def _visit_contents(self, value: Any, path: str, depth: int) -> None:
        """Note what an object holds besides its attributes."""
        if isinstance(value, partial):
            for name in ("func", "args", "keywords"):
                self.visit(getattr(value, name), (getter(value), name, f"{path}.{name}", "", False), depth + 1)
        elif isinstance(value, (dict, MappingProxyType)):
            self._visit_entries(value, value.__getitem__, list(value), path, depth)
            self._note_keys(value, path)
            self._visit_held(list(value) if len(value) <= LARGEST else (), depth)
        elif isinstance(value, tuple):  # which objects are in it, its own comparison says
            fixed = (number for number, each in enumerate(value) if type(each) not in SIMPLE)
            self._visit_entries(value, value.__getitem__, fixed, path, depth)
        elif isinstance(value, (list, deque)):
            self._visit_entries(value, value.__getitem__, range(len(value)), path, depth)
            self.add(Place(lambda _: len(value), None, f"len({path})", "", False, len(value)))
        elif isinstance(value, (set, frozenset, *MEMORY)):
            self._note_contents(value, path, depth)
        elif isinstance(value, VIEWS):
            self.visit(value.mapping, None, depth + 1)
        elif isinstance(value, ReferenceType):
            self.add(Place(partial(is_alive, value), None, f"the object of {path}", "", False, value() is not None))
            self.visit(value(), None, depth + 1)
        elif isinstance(value, CellType):
            self.visit(contents_or_missing(value), (contents_or_missing, value, path, "", False), depth + 1)
        elif isinstance(value, (property, staticmethod, classmethod)):
            self._visit_held(get_referents(value), depth)
        elif isinstance(value, CACHED):
            self._visit_cached(value, path, depth)
        elif isinstance(value, BaseException):
            self.visit(value.args, (getter(value), "args", f"{path}.args", "", False), depth + 1)
        elif isinstance(value, Field):
            self.visit(value.metadata, None, depth + 1)
        elif isinstance(value, ContextVar):
            self.visit(context_value(value), (context_value, value, f"{path}.get()", "", False), depth + 1)
        elif type(value) is local:
            get, names = noted(lambda: frozenset(vars(value)))  # each thread has a dict of its own
            self.add(Place(get, None, f"the list of attributes of {path}", "", False, names))
            for name in names:
                self.visit(getattr(value, name), (getter(value), name, f"{path}.{name}", name, False), depth + 1)
        elif isinstance(value, Generator):
            self.generators[id(value)] = value, value.key, value.counter

    def visit_function(self, frame: Any, names: Sequence[str]) -> None:
        """Note what a function that begins now can read: these globals, and closures."""
        code, known = frame.f_code, frame.f_globals
        for name in names:
            if name in known:
                self._visit_named(known[name], (known.__getitem__, name, name, name, False), code)
            elif not hasattr(builtins, name):  # the call sets it
                self.add(Place(partial(or_missing, known), name, name, name, False, MISSING))
        for name in code.co_names:  # of an import inside
            self._visit_names(sys.modules.get(name), name, code)
        if code.co_freevars and is_users_module(known.get("__name__", "")):  # `__init__` of a dataclass has no file
            for function in self._closures.of(frame):
                if not is_defined_by_the_call(frame, function):
                    with self._passing():
                        self.visit_closure(function)

    def visit_self(self, frame: Any, library: bool) -> None:
        """Note what the object holds whose method begins now; of a library only modules."""
        code = frame.f_code
        first = code.co_varnames[0] if code.co_argcount else ""
        if first == "cls" and isinstance(frame.f_locals.get("cls"), type):
            self._visit_class(frame.f_locals["cls"], 0)
        value = frame.f_locals.get("self") if first == "self" else None
        if isinstance(value, (TensorBase, *SIMPLE)) or (library and not isinstance(value, Module)):
            return
        if code.co_name == "__init__" and id(value) not in self._seen and is_empty(value):
            self._made.add(id(value))
            self._visit_class(type(value), 0)
        if id(value) not in self._made:
            with self._passing():
                self.visit(value, None)

    def visit_argument(self, value: Any) -> None:
        """Note what an argument holds that counts by value: a class, or a member of an enumeration. Of a dataclass the
        signature has the fields."""
        if isinstance(value, (type, enum.Enum)):
            self.visit(value, None)
        elif is_dataclass(value):
            self._visit_class(type(value), 0)

    def visit_closure(self, function: FunctionType, depth: int = 0) -> None:
        """The code of a function, its free variables, the defaults of its arguments, and its attributes."""
        with self._inside(function):
            if id(function) not in self._seen and depth <= DEEPEST:
                self._visit_function(function, depth)

    def _visit_function(self, function: FunctionType, depth: int) -> None:
        self._seen[id(function)] = function
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            place = getter(function), name, f"{function.__name__}.{name}", "", False
            self.visit(getattr(function, name), place, depth)
        self._visit_attributes(vars(function), function.__name__, depth)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            value = contents_or_missing(cell)
            if value is MISSING:  # perhaps the call sets it
                self.add(Place(contents_or_missing, cell, name, name, False, MISSING))
                continue
            self._visit_named(value, (contents_or_missing, cell, name, name, False), function.__code__, depth)

    def _visit_named(self, value: Any, place: Where, code: CodeType, depth: int = 0, packages: int = 0) -> None:
        """Note what a function reads by a name. Of one of the user's own modules that is what has a name in its code,
        unless it uses the module in another way."""
        if not isinstance(value, ModuleType) or place[3] in used_whole(code):
            self.visit(value, place, depth)
        else:
            self.places.append(Place(*place, value, self._owners[-1]))
            self._visit_names(value, place[2], code, packages)

    def _visit_names(self, module: Any, path: str, code: CodeType, packages: int = 0) -> None:
        """Note what a function may read of a module: of one's own what has a name in its code, of a library the
        functions, numbers, switches and strings among that."""
        if not isinstance(module, ModuleType) or packages > 3:
            return
        held, users = vars(module), is_users_module(module.__name__)
        for name in code.co_names:
            if name in held and users:
                place = held.__getitem__, name, f"{path}.{name}", name, False
                self._visit_named(held[name], place, code, 1, packages + 1)
            elif not users and (name in held or hasattr(type(module), name)):
                value = getattr(module, name, None)
                if type(value) in PLAIN:
                    self.visit(value, (getter(module), name, f"{path}.{name}", name, False))
                self._visit_names(value, f"{path}.{name}", code, packages + 1)

    def _visit_class(self, kind: type, depth: int) -> None:
        """The attributes of a class and of its bases, as far as they are the user's own."""
        for each in (*kind.__mro__, *type.mro(type(kind))):  # its metaclass has attributes, too
            with self._inside(each):
                if id(each) in self._seen:
                    continue
                held = vars(each)
                if not is_users_class(each):
                    if issubclass(each, Module):  # somebody may give it another forward
                        self._seen[id(each)] = each
                        self._visit_plain(held, each.__name__, depth)
                    continue
                self._seen[id(each)] = each
                if isinstance(each, enum.EnumMeta):
                    self._visit_held(each.__members__.values(), depth)
                for name, value in list(held.items()):
                    if name not in MACHINERY and not (isinstance(each, enum.EnumMeta) and is_machinery(name, value)):
                        self.visit(value, (held.__getitem__, name, f"{each.__name__}.{name}", name, False), depth + 1)
                self.add(Place(getter(each), "__bases__", f"{each.__name__}.__bases__", "", False, each.__bases__))
                if not isinstance(each, enum.EnumMeta):
                    number = f"the number of attributes of {each.__name__}"
                    self.add(Place(partial(count, held), None, number, "", False, len(held)))

    def _visit_plain(self, held: Any, path: str, depth: int) -> None:
        """Note the numbers, switches and strings among the attributes of a library's class, and its forward."""
        for name, value in held.items():
            dunder = name.startswith("__") and name.endswith("__")
            if name == "forward" or (type(value) in PLAIN and not dunder and not isinstance(value, FunctionType)):
                self.visit(value, (held.__getitem__, name, f"{path}.{name}", name, False), depth + 1)

    def _visit_entries(self, owner: Any, get: Any, keys: Any, path: str, depth: int) -> None:
        if len(owner) > LARGEST:
            self.unknown[id(owner)] = f"{path} is a {type(owner).__name__} of {len(owner):,} entries"
        else:
            for key in keys:
                self.visit(owner[key], (get, key, f"{path}[{key!r}]", "", False), depth + 1)

    def _note_keys(self, value: Any, path: str) -> None:
        """Note the keys of a dict, in their order. Tensors may be among them, so they are not compared by value."""
        get, keys = entries_of(value)
        self.add(Place(get, None, f"a key of {path}", "", False, keys))

    def _visit_held(self, values: Iterable[Any], depth: int) -> None:
        """Visit what an object holds, where another comparison sees that these are others."""
        for value in values:
            if type(value) not in SIMPLE:
                self.visit(value, None, depth + 1)

    def _note_contents(self, value: Any, path: str, depth: int) -> None:
        """Note what is in a set, or in memory."""
        is_set = isinstance(value, (set, frozenset))
        size, unit = (len(value), "entries") if is_set else (memoryview(value).nbytes, "bytes")
        if size > LARGEST:
            self.unknown[id(value)] = f"{path} is a {type(value).__name__} of {size:,} {unit}"
            return
        get, known = set_contents(value) if is_set else noted(partial(bytes, value))
        self.add(Place(get, None, f"the contents of {path}", "", False, known))
        if is_set:
            self._visit_held(list(value), depth)

    def _visit_cached(self, value: Any, path: str, depth: int) -> None:
        """Note the results that `functools.lru_cache` holds: a call that finds one does not enter the function."""
        self.add(Place(getter(value), "__wrapped__", f"{path}.__wrapped__", "", False, value.__wrapped__))
        self.visit(value.__wrapped__, None, depth + 1)
        if value.cache_info().currsize > LARGEST:
            self.unknown[id(value)] = f"{path} has {value.cache_info().currsize:,} cached results"
            return
        get, known = noted(partial(cached_results, value))
        place = Place(get, None, f"a cached result of {path}", "", False, known, id(value))
        self.cached.append((value, calls_of(value), place))
        self._visit_held([each for pair in known.values() for each in pair if not isinstance(each, dict)], depth)

    def _visit_member(self, value: Any, path: str, depth: int) -> None:
        """Note what a member of an enumeration holds: it is one object, whose value and attributes may change."""
        kind = type(value)
        if id(value) not in self._seen and is_users_class(kind):
            self._seen[id(value)] = value
            self._visit_class(kind, depth)
            for name, held in vars(value).copy().items():
                if name not in ("_name_", "__objclass__", "_sort_order_"):
                    place = vars(value).__getitem__, name, f"{path}.{name}", "", False
                    self.visit(held, place, depth + 1)

    def _visit_object(self, value: Any, path: str, depth: int) -> None:
        """Note the attributes of an object; of what a library made those that the library does not set itself."""
        kind: Any = type(value)
        held, name = getattr(value, "__dict__", None), path or kind.__name__
        if kind.__module__.partition(".")[0] in OPAQUE:
            if isinstance(held, dict):
                self._visit_attributes(held, name, depth + 1, attributes_set_by(kind))
            return
        self._visit_class(kind, depth)
        self.add(Place(lambda _: type(value), None, f"the class of {name}", "", False, kind))
        if isinstance(held, dict) and kind is not local:
            every = isinstance(value, SimpleNamespace)  # C compares and prints it
            self._visit_attributes(held, name, depth + 1, every=every)
        self._visit_slots(value, path, depth)

    def _visit_slots(self, value: Any, path: str, depth: int) -> None:
        for each in type(value).__mro__:
            for name, slot in vars(each).items():
                if isinstance(slot, MemberDescriptorType) and "__slots__" in vars(each):
                    get = partial(slot_or_missing, slot, value)
                    self.visit(get(None), (get, None, f"{path}.{name}", name, False), depth + 1)

    def _visit_attributes(
        self, held: dict[str, Any], path: str, depth: int, ignored: frozenset[str] = frozenset(), every: bool = False
    ) -> None:
        """Note attributes; `every` one, also of those that no code names."""
        self.note_names(held, path)
        for name, value in held.copy().items():  # another thread may set some meanwhile
            if name not in ignored:
                self.visit(value, (held.__getitem__, name, f"{path}.{name}", "" if every else name, False), depth)

    def note_names(self, held: dict[str, Any], path: str) -> None:
        """Note which attributes there are: code may ask for one that is missing, or find it in the class."""
        if not held:  # as with most functions: to count is faster
            self.add(Place(partial(count, held), None, f"the list of attributes of {path}", "", False, 0))
            return
        get, names = noted(lambda: frozenset(held))
        self.add(Place(get, None, f"the list of attributes of {path}", "", False, names))

    def _note_module_names(self, module: Module, path: str) -> None:
        """The same of a module, and which modules are in it, in their order."""
        held = vars(module)
        own = held["_modules"]
        kinds = [held["_parameters"], held["_buffers"], own]
        get, names = noted(lambda: (held.keys() - {"_hooks"}, *map(tuple, kinds)))
        self.add(Place(get, None, f"the list of attributes of {path}", "", True, names))
        for kind in ("_parameters", "_buffers", "_modules"):
            self.add(Place(held.__getitem__, kind, f"{path}.{kind}", "", True, held[kind]))
        if own:  # what writes `_modules` itself is not counted
            get, keys = entries_of(own)
            self.add(Place(get, None, f"a module in {path}", "", False, keys))
            get, modules = entries_of(own.values())
            self.add(Place(get, None, f"a module in {path}", "", False, modules))

    def _visit_module(self, module: Module, path: str, depth: int) -> None:
        self.modules[id(module)] = module
        self._visit_class(type(module), depth)
        self._visit_slots(module, path, depth)
        held = vars(module)
        hooks = hooks_of(module)
        if hooks and module is not self.between_hooks:
            self.hooked[id(module)] = path
        self.add(Place(lambda _: hooks_of(module), None, f"the hooks of {path}", "", True, hooks))
        self.add(Place(lambda _: type(module), None, f"the class of {path}", "", True, type(module)))
        self._note_module_names(module, path)
        for name in list(held):
            if name in ("_parameters", "_buffers", "_modules"):
                own = held[name]
                for key in list(own):
                    place = own.__getitem__, key, f"{path}.{key}", "", name == "_modules"
                    self.visit(own[key], place, depth if name == "_modules" else depth + 1)
            elif name not in ("_hooks", "_non_persistent_buffers_set"):
                self.visit(held[name], (held.__getitem__, name, f"{path}.{name}", name, True), depth + 1)

    # -- what became of it -------------------------------------------------------------------------------------

    def knows(self, value: Any) -> bool:
        """Whether the walk met this object."""
        return id(value) in self._seen

    def outlives(self, value: Any) -> bool:
        """Whether this object was there before the call, and is the same one in every call."""
        return id(value) in self._seen and id(value) not in self.passing

    def reached(self, names: Container[str]) -> set[int]:
        """The ids of what code with these names can have come to."""
        found, todo = {0}, [0]
        while todo:
            for held, name in self._held.get(todo.pop(), ()):
                if held not in found and (not name or name in names):
                    found.add(held)
                    todo.append(held)
        return found

    def settle(self, names: Container[str]) -> None:
        """The call is over, and these names are in the code that ran."""
        self._names, self._reached = names, self.reached(names)
        self.places += [place for function, calls, place in self.cached if calls_of(function) != calls]

    def reached_modules(self) -> list[Module]:
        """The modules that the code which ran can have come to."""
        return [module for number, module in self.modules.items() if number in self._reached]

    def is_read(self, place: Place) -> bool:
        """Whether the code that ran can have read it."""
        return place.owner in self._reached and (not place.name or place.name in self._names)

    def relevant(self) -> Iterator[Place]:
        """The places that the code which ran can have read."""
        return filter(self.is_read, self.places)
