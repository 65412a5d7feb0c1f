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
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial
from threading import local
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import Any
from weakref import CallableProxyType, ProxyType

import numpy as np

from ox.compiler.recording.dynamic_access import calls_by_name, used_whole
from ox.compiler.recording.guard_source import (
    MISSING,
    SIMPLE,
    Place,
    attributes_of,
    attributes_set_by,
    calls_of,
    contents_or_missing,
    count,
    getter,
    has,
    has_state_of_its_own,
    hooks_of,
    is_defined_by_the_call,
    is_empty,
    is_machinery,
    is_users_class,
    is_users_module,
    or_missing,
    random_state,
    referent,
)
from ox.compiler.recording.object_walk import LARGEST, Walk, Where
from ox.compiler.recording.optimizer_guards import visit_optimizer
from ox.core.tensor import TensorBase
from ox.nn.base.module import Module

BOUND = (MethodType, BuiltinFunctionType, MethodWrapperType)
FUNCTIONS = (FunctionType, BuiltinFunctionType, MethodType)
DEEPEST = 6
# what Python code of these keeps is its own affair, but for objects with settings of ox and NumPy
OPAQUE = {"ox", "builtins", "dataclasses", "numpy", "logging", "_thread", "io", "_io"}
INNER = ("ox.core.", "ox.autograd.", "ox.compiler.", "ox.devices.", "ox.engines.", "ox.graph.", "ox.ops.")
PLAIN = (bool, int, float, str, NoneType, FunctionType)
PROXIES = (ProxyType, CallableProxyType)
# what Python itself keeps in modules and classes
MACHINERY = frozenset(("__builtins__", "__loader__", "__spec__", "__dict__", "__weakref__", "_abc_impl"))


class PythonState(Walk):
    """The walk from functions and objects, and what became of what it noted."""

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
        for name in ("__name__", "__qualname__", "__doc__", "__module__"):
            place = getter(function), name, f"{function.__name__}.{name}", name, False
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
        """Note the attributes of an object; of what a library keeps for itself those that it does not set."""
        kind: Any = type(value)
        held, name = getattr(value, "__dict__", None), path or kind.__name__
        package = kind.__module__.partition(".")[0]
        if package in OPAQUE:
            if package in ("ox", "numpy") and not kind.__module__.startswith(INNER):
                self._visit_attributes(held or {}, name, depth + 1)
                self._visit_slots(value, path, depth)
            elif isinstance(held, dict):
                self._visit_attributes(held, name, depth + 1, attributes_set_by(kind))
                if not kind.__module__.startswith("ox."):  # the level of a logger
                    self._visit_plain(held, name, depth)
            return
        self._visit_class(kind, depth)
        self.add(Place(lambda _: type(value), None, f"the class of {name}", "", False, kind))
        if isinstance(held, dict) and kind is not local:
            every = isinstance(value, SimpleNamespace)  # C compares and prints it
            self._visit_attributes(held, name, depth + 1, every=every)
        self._visit_slots(value, path, depth)

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
