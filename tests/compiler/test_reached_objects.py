"""What code comes to by ways of its own: weak references, members of enumerations, caches, descriptors, cells, bound
methods of C, arguments that count by value. A compiled call follows a change of each, or stays eager."""

from __future__ import annotations

import collections
import contextvars
import dataclasses
import decimal
import enum
import functools
import logging
import operator
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from beside_eager import reasons, recordings

import ox
import ox.nn.functional as F
from ox import nn

ONE = ox.ones(1)
Case = tuple[Callable[[], Any], Callable[[], Any]]  # reads a number, changes it
CASES: dict[str, Callable[[], Case]] = {}
UNDO: list[Callable[[], Any]] = []  # of what a case changes for the whole process


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


class Holder:
    scale: Any

    def __init__(self, scale: Any = 2.0) -> None:
        self.scale = scale

    def get(self) -> Any:
        return self.scale

    getter = property(operator.attrgetter("scale"))


class List(list[Any]):
    pass


class Dict(dict[Any, Any]):
    pass


class Float(float):
    pass


class Array(np.ndarray[Any, Any]):
    pass


class Point(collections.namedtuple("Point", "x")):
    pass


@case
def dictionary_of_weak_values() -> Case:
    holder = Holder()
    held = weakref.WeakValueDictionary(a=holder)
    return lambda: held["a"].scale, lambda: setattr(holder, "scale", 5.0)


@case
def dictionary_of_weak_keys() -> Case:
    holder = Holder()
    held = weakref.WeakKeyDictionary({holder: 2.0})
    return lambda: held[holder], lambda: held.update({holder: 5.0})


@case
def weak_set() -> Case:
    holder = Holder()
    held = weakref.WeakSet([holder])
    return lambda: sum(each.scale for each in held), lambda: setattr(holder, "scale", 5.0)


@case
def weak_proxy() -> Case:
    holder = Holder()
    proxy = weakref.proxy(holder)
    return lambda: proxy.scale, lambda: setattr(holder, "scale", 5.0)


@case
def weak_method() -> Case:
    holder = Holder()
    method = weakref.WeakMethod(holder.get)
    return lambda: method()(), lambda: setattr(holder, "scale", 5.0)  # type: ignore[misc]


@case
def value_of_a_member() -> Case:
    class Mode(enum.Enum):
        FIRST = {"scale": 2.0}  # noqa: RUF012

    return lambda: Mode.FIRST.value["scale"], lambda: Mode.FIRST.value.update(scale=5.0)


@case
def attribute_of_a_member() -> Case:
    class Mode(enum.Enum):
        FIRST = 1

    Mode.FIRST.scale = 2.0  # type: ignore[attr-defined]
    held = SimpleNamespace(mode=Mode.FIRST)
    return lambda: held.mode.scale, lambda: setattr(Mode.FIRST, "scale", 5.0)


@case
def members_in_a_loop() -> Case:
    class Mode(enum.Enum):
        FIRST = [1.0]  # noqa: RUF012
        SECOND = [1.0, 0.0]  # noqa: RUF012

    return lambda: sum(each.value[0] for each in Mode), lambda: Mode.SECOND.value.insert(0, 4.0)


@case
def attribute_of_an_enumeration() -> Case:
    class Mode(enum.Enum):
        FIRST = 1

    Mode.extra = 2.0  # type: ignore[attr-defined]
    return lambda: Mode.extra, lambda: setattr(Mode, "extra", 5.0)  # type: ignore[attr-defined]


@case
def slot_that_is_filled_later() -> Case:
    class Late:
        __slots__ = ("scale",)

    late = Late()
    return lambda: getattr(late, "scale", 2.0), lambda: setattr(late, "scale", 5.0)


@case
def slot_that_is_emptied() -> Case:
    class Late:
        __slots__ = ("scale",)

    late = Late()
    late.scale = 5.0  # type: ignore[misc]
    return lambda: getattr(late, "scale", 2.0), lambda: delattr(late, "scale")


@case
def private_slot() -> Case:
    class Private:
        __slots__ = ("__scale",)

        def __init__(self) -> None:
            self.set(2.0)

        def set(self, scale: float) -> None:
            self.__scale = scale

        def get(self) -> float:
            return self.__scale

    private = Private()
    return private.get, lambda: private.set(5.0)


@case
def slot_of_a_module() -> Case:
    class Layer(nn.Module):
        __slots__ = ("scale",)

    layer = Layer()
    slot = Layer.__dict__["scale"]
    slot.__set__(layer, 2.0)
    return lambda: layer.scale, lambda: slot.__set__(layer, 5.0)


def cached_again(cached: Any, holder: Holder) -> Any:
    def change() -> None:
        holder.scale = 5.0
        cached.cache_clear()
        assert [cached(1), cached(1)] == [5.0, 5.0]

    return lambda: cached(1), change


@case
def results_of_lru_cache() -> Case:
    holder = Holder()

    @functools.lru_cache
    def cached(_: Any) -> Any:
        return holder.scale

    return cached_again(cached, holder)


@case
def results_of_cache() -> Case:
    holder = Holder()

    @functools.cache
    def cached(_: Any) -> Any:
        return holder.scale

    return cached_again(cached, holder)


@case
def what_a_cached_result_holds() -> Case:
    @functools.lru_cache
    def cached() -> Any:
        return {"scale": 2.0}

    return lambda: cached()["scale"], lambda: cached().update(scale=5.0)


@case
def cached_property() -> Case:
    class Cached(Holder):
        @functools.cached_property
        def twice(self) -> Any:
            return self.scale * 2

    held = Cached()

    def change() -> None:
        del held.twice
        held.scale = 5.0

    return lambda: held.twice, change


@case
def generic_function() -> Case:
    @functools.singledispatch
    def generic(_: Any) -> float:
        return 2.0

    return lambda: generic(1), lambda: generic.register(int, lambda _: 5.0)


@case
def property_of_c() -> Case:
    holder = Holder()
    return lambda: holder.getter, lambda: setattr(holder, "scale", 5.0)


@case
def attribute_by_getattr() -> Case:
    class Wrapper:
        def __init__(self, inner: Any) -> None:
            self.inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    wrapper = Wrapper(Holder())
    return lambda: wrapper.scale, lambda: setattr(wrapper.inner, "scale", 5.0)


@case
def descriptor_that_keeps_values_itself() -> Case:
    class Kept:
        def __init__(self) -> None:
            self.values: Any = weakref.WeakKeyDictionary()

        def __get__(self, owner: Any, kind: Any = None) -> Any:
            return self.values.get(owner, 2.0)

        def __set__(self, owner: Any, value: Any) -> None:
            self.values[owner] = value

    class Owner:
        scale = Kept()

    owner = Owner()
    return lambda: owner.scale, lambda: setattr(owner, "scale", 5.0)


@case
def cell_of_a_function() -> Case:
    scale = 2.0

    def function() -> float:
        return scale

    cell: Any = function.__closure__[0]  # type: ignore[index]
    return lambda: cell.cell_contents, lambda: setattr(cell, "cell_contents", 5.0)


@case
def bound_method_of_a_dict() -> Case:
    table = {"scale": 2.0}
    get = table.get
    return lambda: get("scale"), lambda: table.update(scale=5.0)


@case
def view_of_a_dict() -> Case:
    table = {"scale": 2.0}
    values = table.values()
    return lambda: sum(values), lambda: table.update(scale=5.0)


@case
def bound_getattribute() -> Case:
    holder = Holder()
    read = holder.__getattribute__
    return lambda: read("scale"), lambda: setattr(holder, "scale", 5.0)


@case
def partial_of_getattr() -> Case:
    holder = Holder()
    read = functools.partial(getattr, holder, "scale")
    return lambda: read(), lambda: setattr(holder, "scale", 5.0)


@case
def entries_of_a_frozenset() -> Case:
    holder = Holder()
    held = frozenset([holder])
    return lambda: sum(each.scale for each in held), lambda: setattr(holder, "scale", 5.0)


@case
def keys_of_a_dict() -> Case:
    holder = Holder()
    held = {holder: 1}
    return lambda: sum(each.scale for each in held), lambda: setattr(holder, "scale", 5.0)


@case
def entries_of_an_array_of_objects() -> Case:
    holder = Holder()
    held = np.array([holder], object)
    return lambda: held[0].scale, lambda: setattr(holder, "scale", 5.0)


def attribute_of(held: Any) -> Case:
    held.scale = 2.0
    return lambda: held.scale, lambda: setattr(held, "scale", 5.0)


for kind, value in {
    "list": List([1]),
    "dict": Dict(a=1),
    "float": Float(3.0),
    "array": np.ones(2).view(Array),
    "error": KeyError(),
    "optimizer": ox.optim.SGD([nn.Parameter(ox.ones(1))], lr=1.0),
    "dataset": ox.utils.data.TensorDataset(ONE),
    "class of types": types.new_class("Made"),
}.items():
    CASES[f"attribute_of_a_{kind}"] = functools.partial(attribute_of, value)


@case
def arguments_of_an_error() -> Case:
    error = ValueError("text", {"scale": 2.0})
    return lambda: error.args[1]["scale"], lambda: error.args[1].update(scale=5.0)


@case
def metadata_of_a_field() -> Case:
    holder = Holder()

    @dataclasses.dataclass
    class Config:
        size: int = dataclasses.field(default=1, metadata={"held": holder})

    return lambda: dataclasses.fields(Config)[0].metadata["held"].scale, lambda: setattr(holder, "scale", 5.0)


@case
def attribute_of_a_metaclass() -> Case:
    class Meta(type):
        scale = 2.0

    class Made(metaclass=Meta):
        pass

    return lambda: Made.scale, lambda: setattr(Meta, "scale", 5.0)


@case
def attribute_with_underscores() -> Case:
    class Made:
        __scale__ = 2.0

    return lambda: Made.__scale__, lambda: setattr(Made, "__scale__", 5.0)


@case
def bases_of_a_class() -> Case:
    class First:
        scale = 2.0

    class Second:
        scale = 5.0

    class Made(First):
        pass

    return lambda: Made().scale, lambda: setattr(Made, "__bases__", (Second,))


@case
def subclasses_of_a_class() -> Case:
    class Base:
        pass

    class Made(Base):
        scale = 2.0

    return lambda: sum(each.scale for each in Base.__subclasses__()), lambda: setattr(Made, "scale", 5.0)  # type: ignore[attr-defined]


@case
def copy_of_the_context() -> Case:
    variable = contextvars.ContextVar("variable", default=2.0)
    return lambda: contextvars.copy_context().get(variable, 2.0), lambda: variable.set(5.0)


@case
def names_in_the_environment() -> Case:
    UNDO.append(lambda: os.environ.pop("A_TEST_OF_OX", None))
    return lambda: len([*os.environ]), lambda: os.environ.update(A_TEST_OF_OX="1")


@case
def frame_of_the_caller() -> Case:
    holder = Holder()

    def caller_s_scale() -> Any:
        return sys._getframe(1).f_locals["scale"]

    def read() -> Any:
        scale = holder.get()  # noqa: F841
        return caller_s_scale()

    return read, lambda: setattr(holder, "scale", 5.0)


@case
def module_above() -> Case:
    class Inner(nn.Module):
        def __init__(self, outer: nn.Module) -> None:
            super().__init__()
            self.outer = weakref.ref(outer)

        def forward(self) -> Any:
            return self.outer().scale  # type: ignore[union-attr]

    outer = nn.Module()
    outer.scale, outer.inner = 2.0, Inner(outer)
    return outer.inner, lambda: setattr(outer, "scale", 5.0)


@case
def submodule_by_a_path() -> Case:
    outer = nn.Sequential(nn.Sequential(nn.ReLU()))
    outer[0][0].scale = 2.0
    return lambda: outer.get_submodule("0.0").scale, lambda: setattr(outer[0][0], "scale", 5.0)


@case
def switch_of_ox() -> Case:
    before = ox.backends.cudnn.benchmark
    UNDO.append(lambda: setattr(ox.backends.cudnn, "benchmark", before))
    return lambda: 1 + ox.backends.cudnn.benchmark, lambda: setattr(ox.backends.cudnn, "benchmark", not before)


@case
def function_of_ox_that_is_replaced() -> Case:
    before = F.softsign
    UNDO.append(lambda: setattr(F, "softsign", before))
    return lambda: F.softsign(ONE), lambda: setattr(F, "softsign", lambda x: x * 7)


@case
def forward_of_ox_that_is_replaced() -> Case:
    before, layer = nn.Tanhshrink.forward, nn.Tanhshrink()
    UNDO.append(lambda: setattr(nn.Tanhshrink, "forward", before))
    return lambda: layer(ONE), lambda: setattr(nn.Tanhshrink, "forward", lambda self, x: x * 7)


@case
def seed_of_ox() -> Case:
    ox.manual_seed(1)
    return lambda: ox.initial_seed() % 7, lambda: ox.manual_seed(3)


@case
def level_of_a_logger() -> Case:
    logger = logging.getLogger("a_test_of_ox")
    logger.setLevel(logging.INFO)
    return lambda: 1 + logger.isEnabledFor(logging.DEBUG), lambda: logger.setLevel(logging.DEBUG)


@case
def context_of_decimals() -> Case:
    context = decimal.getcontext()
    before = context.prec
    UNDO.append(lambda: setattr(context, "prec", before))
    return lambda: float(decimal.getcontext().prec), lambda: setattr(context, "prec", 3)


@pytest.fixture(autouse=True)
def _undo() -> Iterator[None]:
    yield
    while UNDO:
        UNDO.pop()()


def compared(function: Callable[..., Any], change: Callable[[], Any], *args: Any) -> None:
    """Compiled beside eager code, before and after a change."""
    compiled = ox.compile(function)
    for number in range(5):
        if number == 3:
            change()
        assert compiled(ONE, *args).tolist() == function(ONE, *args).tolist()
    assert recordings(compiled) or reasons(compiled)


@pytest.mark.parametrize("name", CASES)
def test_a_change(name: str) -> None:
    read, change = CASES[name]()
    before = read()
    compared(lambda x: x * read(), change)
    assert read() != before


@dataclasses.dataclass
class Settings:
    scale: float = 2.0
    shared: ClassVar[float] = 2.0


class Mode(enum.Enum):
    FIRST = [2.0]  # noqa: RUF012


def with_attribute(value: Any) -> Any:
    value.scale = 2.0
    return value


def partial_getattr() -> Any:
    return functools.partial(getattr, Holder(), "scale")


ARGUMENTS: dict[str, Callable[[], tuple[Any, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "a class": lambda: (type("Made", (), {"scale": 2.0}), lambda a: a.scale, lambda a: setattr(a, "scale", 5.0)),
    "a member": lambda: (Mode.FIRST, lambda a: a.value[0], lambda a: a.value.insert(0, 5.0)),
    "a number": lambda: (with_attribute(Float(1)), lambda a: a.scale, lambda a: setattr(a, "scale", 5.0)),
    "a named tuple": lambda: (with_attribute(Point(1)), lambda a: a.scale, lambda a: setattr(a, "scale", 5.0)),
    "a class variable": lambda: (Settings(), lambda a: a.shared, lambda a: setattr(Settings, "shared", 5.0)),
    "no field": lambda: (with_attribute(Settings()), lambda a: vars(a)["scale"], lambda a: setattr(a, "scale", 5.0)),
    "an object": lambda: (Holder(), lambda a: getattr(a, f"{'scale'}"), lambda a: setattr(a, "scale", 5.0)),
    "a partial": lambda: (partial_getattr(), lambda a: a(), lambda a: setattr(a.args[0], "scale", 5.0)),
    "a weak reference": lambda: (weakref.ref(LIVING), lambda a: a().scale, lambda a: setattr(LIVING, "scale", 5.0)),
}  # fmt: skip
LIVING = Holder()


@pytest.mark.parametrize("kind", ARGUMENTS)
def test_an_argument(kind: str) -> None:
    argument, read, change = ARGUMENTS[kind]()
    compared(lambda x, given: x * read(given), lambda: change(argument), argument)


def test_a_weak_reference_does_not_keep_what_a_later_call_misses() -> None:
    holder = Holder()
    reference = weakref.ref(holder)
    compiled = ox.compile(lambda x: x * (2 if reference() is not None else 3))
    assert [compiled(ONE).item() for _ in range(2)] == [2, 2]
    del holder
    compiled.reset()
    assert reference() is None and compiled(ONE).item() == 3
