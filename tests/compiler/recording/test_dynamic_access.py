"""Attributes whose name stands in no instruction of the code that reads them: owners, ways to read, ways to change and
programs, each compiled beside eager code. A call follows the change, by a guard or because it stays eager."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
import json
import operator
import pickle
import re
import string
import subprocess
import sys
import types
import weakref
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn
from ox.compiler.recording.dynamic_access import dynamic_access, used_whole

ONE = ox.ones(1)


class Plain:
    def __init__(self) -> None:
        self.scale, self.names = 2.0, ["scale"]


@dataclasses.dataclass
class Config:
    scale: float = 2.0


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    scale: float = 2.0


class Slots:
    __slots__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale, self.linear = 2.0, nn.Linear(1, 1)


class Matched:
    __match_args__ = ("scale",)

    def __init__(self) -> None:
        self.scale = 2.0


class Meta(type):
    pass


OWNERS: dict[str, Callable[[], Any]] = {
    "an object": Plain,
    "a dataclass": Config,
    "a frozen dataclass": Frozen,
    "slots": Slots,
    "a module": Layer,
    "match_args": Matched,
    "a namespace": lambda: types.SimpleNamespace(scale=2.0),
    "a class": lambda: Meta("Made", (), {"scale": 2.0}),
}


def match_class(owner: Any) -> Any:
    match owner:
        case Matched(scale):
            return scale
        case types.SimpleNamespace(scale=scale) | Config(scale=scale) | Plain(scale=scale) | Layer(scale=scale):
            return scale
    raise TypeError


def names_in_a_tuple(owner: Any) -> Any:
    product = 1.0
    for name in ("scale",):
        product *= getattr(owner, name)
    return product


def number_in(text: str) -> float:
    return float(re.findall(r"scale=([\d.]+)", text)[0])


GETTER, BUILTIN = operator.attrgetter("scale"), getattr
READS: dict[str, Callable[[Any], Any]] = {
    "names in a tuple": names_in_a_tuple,
    "names in a list": lambda owner: sum(getattr(owner, name) for name in owner.names),
    "a formatted name": lambda owner: getattr(owner, f"sc{'ale'}"),
    "vars": lambda owner: vars(owner)["scale"],
    "__dict__": lambda owner: owner.__dict__["scale"],
    "keywords": lambda owner: (lambda **held: held["scale"])(**vars(owner)),
    "attrgetter": lambda owner: operator.attrgetter("scale")(owner),
    "a global attrgetter": lambda owner: GETTER(owner),
    "map of an attrgetter": lambda owner: next(iter([*map(GETTER, [owner])])),
    "methodcaller": lambda owner: operator.methodcaller("__getattribute__", "scale")(owner),
    "map of getattr": lambda owner: next(iter([*map(getattr, [owner], ["scale"])])),
    "reduce": lambda owner: functools.reduce(getattr, ["scale"], owner),
    "partial": lambda owner: functools.partial(getattr, owner)("scale"),
    "another name of getattr": lambda owner: BUILTIN(owner, "scale"),
    "getattr_static": lambda owner: 1.0 * inspect.getattr_static(owner, "scale"),
    "object.__getattribute__": lambda owner: object.__getattribute__(owner, "".join(["sca", "le"])),
    "__getattribute__": lambda owner: owner.__getattribute__("scale"),
    "format": lambda owner: float("{owner.scale}".format(owner=owner)),  # noqa: UP032
    "format_map": lambda owner: float("{owner.scale}".format_map({"owner": owner})),
    "Formatter": lambda owner: float(string.Formatter().format("{0.scale}", owner)),
    "getmembers": lambda owner: dict(inspect.getmembers(owner))["scale"],
    "json": lambda owner: json.loads(json.dumps({"held": vars(owner)["scale"]}))["held"],
    "match": match_class,
    "dir": lambda owner: sum(getattr(owner, name) for name in dir(owner) if name == "scale"),
    "asdict": lambda owner: dataclasses.asdict(owner)["scale"],
    "astuple": lambda owner: dataclasses.astuple(owner)[0],
    "replace": lambda owner: dataclasses.replace(owner).scale,
    "fields": lambda owner: getattr(owner, dataclasses.fields(owner)[0].name),
    "repr": lambda owner: number_in(repr(owner)),
    "an f-string": lambda owner: number_in(f"{owner}"),
    "%": lambda owner: number_in("%s" % owner),  # noqa: UP031
    "==": lambda owner: 2.0 if owner == types.SimpleNamespace(scale=2.0) else 5.0,
    "copy": lambda owner: vars(copy.copy(owner))["scale"],
    "deepcopy": lambda owner: copy.deepcopy(owner).scale,
    "pickle": lambda owner: pickle.loads(pickle.dumps(owner)).scale,
    "__reduce_ex__": lambda owner: owner.__reduce_ex__(2)[2]["scale"],
    "a weak reference": lambda owner: weakref.ref(owner)().scale,
    "a weak proxy": lambda owner: weakref.proxy(owner).scale,
    "hasattr": lambda owner: 2.0 + hasattr(owner, "".join(["ot", "her"])),
    "ChainMap": lambda owner: ChainMap(vars(owner))["scale"],
    "a class's dict": lambda owner: 1.0 * type(owner).__dict__["scale"],
}
CHANGES: dict[str, Callable[[Any], Any]] = {
    "set": lambda owner: setattr(owner, "scale", 5.0),
    "written into its dict": lambda owner: vars(owner).update(scale=5.0),
    "set by object": lambda owner: object.__setattr__(owner, "scale", 5.0),
    "another attribute": lambda owner: setattr(owner, "other", 1.0),
}


def in_a_function(read: Any, owner: Any) -> Any:
    return lambda x: x * read(owner)


def in_a_module(read: Any, owner: Any) -> Any:
    class Reading(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.held = {"first": [owner]}

        def forward(self, x: Any) -> Any:
            return x * read(self.held["first"][0])

    return Reading()


def in_an_argument(read: Any, owner: Any) -> Any:
    return lambda x, given=owner: x * read(given)


def in_a_training_step(read: Any, owner: Any) -> Any:
    p = nn.Parameter(ox.ones(1))
    optimizer = ox.optim.SGD([p], lr=0.0)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = (p * x * read(owner)).sum()  # a weight of the loss
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


PROGRAMS = [in_a_function, in_a_module, in_an_argument, in_a_training_step]


def works(read: Callable[[Any], Any], make: Callable[[], Any], change: Callable[[Any], Any]) -> bool:
    """Whether a way to read fits an owner, and a way to change it."""
    with contextlib.suppress(Exception):
        owner = make()
        if read(owner) == 2.0:
            change(owner)
            return bool(owner)
    return False


def follows(function: Any, change: Callable[[], Any], what: str = "") -> None:
    """A compiled function gives what the eager one gives, before and after a change, and says where it stays eager."""
    compiled = ox.compile(function)
    for number in range(5):
        if number == 3:
            change()
        assert compiled(ONE).tolist() == function(ONE).tolist(), what
    assert recordings(compiled) or reasons(compiled), what


def cases() -> Iterator[tuple[str, str, str]]:
    """What fits together: an owner, a way to read, a way to change."""
    for owner, make in OWNERS.items():
        for read in READS:
            for change in CHANGES:
                if works(READS[read], make, CHANGES[change]):
                    yield owner, read, change


def run(cases: Iterable[tuple[str, str, str]]) -> int:
    """Each case in one program after the other."""
    count = 0
    for owner, read, change in cases:
        held, program = OWNERS[owner](), PROGRAMS[count % len(PROGRAMS)]
        what = f"{program.__name__}: {read} of {owner}, {change}"
        follows(program(READS[read], held), functools.partial(CHANGES[change], held), what)
        count += 1
    return count


def test_each_way_to_read() -> None:
    """With the first owner and change that it fits."""
    first = {read: (owner, read, change) for owner, read, change in reversed([*cases()])}
    assert first.keys() == READS.keys() and run(first.values()) == len(READS)


@pytest.mark.slow
def test_all_programs() -> None:
    """In a process of its own: a recording looks at all objects of the process, which are millions beside all tests."""
    code = "import sys; sys.path.append('..'); import test_dynamic_access as t; print(t.run(t.cases()))"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 20 * len(OWNERS)


def test_what_is_recorded_says_why_everything_is_compared() -> None:
    owner = Plain()
    compiled = ox.compile(lambda x: x * getattr(owner, owner.names[0]))
    constant = ox.compile(lambda x: x * getattr(owner, "scale", 1.0) * hasattr(owner, "names"))
    for each in (compiled, constant):
        each(ONE)
    assert "all attributes that the code can reach are guarded: getattr() is called with a computed name (test_dyn" in (
        str(compiled.explain())
    )
    assert "all attributes" not in str(constant.explain())


def test_a_constant_name_leaves_other_attributes_free() -> None:
    owner = Plain()
    compiled = ox.compile(lambda x: x * getattr(owner, "scale", 1.0))
    dynamic = ox.compile(lambda x: x * getattr(owner, f"{'scale'}"))
    for number in range(4):
        owner.calls = number  # type: ignore[attr-defined]
        assert compiled(ONE).item() == dynamic(ONE).item() == 2.0
    assert len(recordings(compiled)) == 1 and len(recordings(dynamic)) == 4


def computed(owner: Any, name: str, names: Any) -> Any:
    yield lambda: getattr(owner, name)
    yield lambda: getattr(owner, "a" + name)
    yield lambda: getattr(owner, "a" if names else "b")
    yield lambda: getattr(owner, *names)
    yield lambda: [getattr(owner, each) for each in names]
    yield lambda: setattr(owner, name, "a")
    yield lambda: [getattr][0](owner, "a")
    yield lambda: owner.__setattr__(name, "a")
    yield lambda: super(Plain, owner).__getattribute__(name)
    yield lambda: map(getattr, names, names)
    yield lambda: getattr(owner, "a" if names else name)
    yield lambda: getattr(owner, name or "a")
    yield lambda: getattr(owner, "a" + (name if names else "b"))
    yield lambda: setattr(owner, "a" and name, 1)


def constant(owner: Any, name: str, names: Any) -> Any:
    yield lambda: getattr(owner, "a")  # noqa: B009
    yield lambda: getattr(owner, "a", name + "b")
    yield lambda: getattr(names["a"].of(owner), "a", None)
    yield lambda: hasattr(names[f"{name}"], "a")
    yield lambda: setattr(owner, "a", [*names, name])
    yield lambda: object.__setattr__(owner, "a", name)
    yield lambda: object.__getattribute__(owner, "a")
    yield lambda: owner.a.b[name](f"{names}")
    yield lambda: setattr(owner, "a", name if names else owner)
    yield lambda: getattr(owner, "a", name or owner)


def inner(code: types.CodeType) -> types.CodeType:
    return next((each for each in code.co_consts if isinstance(each, types.CodeType)), code)


def test_computed_and_constant_names() -> None:
    for function in computed(Plain(), "a", {}):
        assert dynamic_access(function.__code__) or dynamic_access(inner(function.__code__)), inspect.getsource(
            function
        )
    for function in constant(Plain(), "a", {}):
        assert not dynamic_access(function.__code__), inspect.getsource(function)


def test_values_that_are_used_otherwise_than_by_an_attribute() -> None:
    def function(x: Any) -> Any:
        number = re.escape
        return sys.path, vars(types), copy, string.digits, json.__dict__, number.__name__, x

    assert used_whole(function.__code__) >= {"types", "copy", "json", "x"}
    assert used_whole(function.__code__).isdisjoint({"re", "sys", "string", "number"})


def helper(module: Any, name: str) -> Any:
    return getattr(module, name)


def test_a_module_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "numbers_of_a_test.py").write_text("scale = 2.0\nunread = 0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    import numbers_of_a_test as numbers  # type: ignore[import-not-found]

    class Holding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.numbers = numbers

        def forward(self, x: Any) -> Any:
            return x * self.numbers.scale

    def imported(x: Any) -> Any:
        from numbers_of_a_test import scale

        return x * scale

    reading: list[Any] = [
        lambda x: x * helper(numbers, "scale"),
        lambda x: x * vars(numbers)["scale"],
        lambda x: x * numbers.__dict__["scale"],
        lambda x: x * sys.modules["numbers_of_a_test"].scale,
        lambda x: x * __import__("numbers_of_a_test").scale,
        Holding(),
        imported,
    ]
    for number, function in enumerate(reading):
        follows(function, functools.partial(setattr, numbers, "scale", number + 3.0), str(number))
    compiled = ox.compile(lambda x: x * numbers.scale)
    for _ in range(3):
        compiled(ONE)
        numbers.unread += 1
    assert len(recordings(compiled)) == 1
