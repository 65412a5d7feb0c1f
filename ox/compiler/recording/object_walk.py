"""The walk of `PythonState` over objects: where it notes what it meets, and what containers and other objects hold."""

from __future__ import annotations

import gc
from array import array
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from ctypes import c_byte
from dataclasses import Field
from functools import cache, partial
from gc import get_referents
from itertools import islice
from threading import local
from types import (
    CellType,
    CodeType,
    FrameType,
    FunctionType,
    MappingProxyType,
    MemberDescriptorType,
)
from typing import Any
from weakref import ReferenceType, ref

from ox.compiler.recording.guard_source import (
    SIMPLE,
    Place,
    cached_results,
    calls_of,
    contents_or_missing,
    context_value,
    count,
    entries_of,
    getter,
    is_alive,
    noted,
    set_contents,
    slot_or_missing,
)
from ox.core import heap
from ox.core.generator import Generator
from ox.core.mt19937.switch import torch_compatible
from ox.core.random_stream import stream_version
from ox.nn.base.module import Module

Where = tuple[Callable[[Any], Any], Any, str, str, bool]  # the first fields of a Place
LARGEST = 4096  # entries of a list, dict or set, and bytes of an array, that are compared at each call
VIEWS: Any = (type({}.keys()), type({}.values()), type({}.items()))
CACHED = type(cache(id))
MEMORY = (bytearray, array, memoryview, c_byte.__mro__[-2])  # the last one is the base of all classes of ctypes


class Walk:
    """Notes places. `places` are simple values, `tensors` the places of tensors by their id."""

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

    def note_switches(self) -> None:
        """Note which random numbers are drawn."""
        for switch, name in ((stream_version, "current"), (torch_compatible, "on")):
            path = f"ox.random.{switch.__name__}"
            self.add(Place(getter(switch), name, path, name, False, getattr(switch, name)))

    def _visit(self, value: Any, place: Where | None, owner: int, depth: int) -> None:
        """What `visit` does for a value inside its owner."""
        raise NotImplementedError

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
            text = f"the version of {path or 'a generator'}"
            self.add(Place(getter(value), "version", text, "version", False, value.version))

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


class Closures:
    """Finds the functions that a frame may run. To find one is to look at all objects of the process, so those of a
    module are found together, and what the call makes later is left out: its variables are the call's own."""

    def __init__(self) -> None:
        self._known: dict[CodeType, list[ref[FunctionType]]] = {}
        self._modules: dict[int, dict[str, Any]] = {}

    def of(self, frame: FrameType) -> list[FunctionType]:
        """The functions with the code of a frame, and with free variables."""
        if id(frame.f_globals) not in self._modules:
            self._modules[id(frame.f_globals)] = frame.f_globals
            with heap.whole():
                users = gc.get_referrers(frame.f_globals)
            for each in users:
                if type(each) is FunctionType and each.__closure__:
                    self._known.setdefault(each.__code__, []).append(ref(each))
        found = (reference() for reference in self._known.get(frame.f_code, ()))
        return [function for function in found if function is not None]
