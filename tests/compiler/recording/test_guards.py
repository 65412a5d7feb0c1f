"""What recordings are guarded on in Python: where tensors stand, which attributes there are, and what they hold."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from contextvars import ContextVar
from copy import copy, deepcopy
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn

ONE = ox.ones(1)


def follows(function: Callable[[Any], Any], change: Callable[[], Any], *, recorded: bool = True) -> None:
    """A compiled function gives what the eager one gives, before and after a change."""
    compiled = ox.compile(function)
    with ox.no_grad():
        for _ in range(3):
            assert np.array_equal(compiled(ONE).numpy(), function(ONE).numpy())
        assert bool(recordings(compiled)) == recorded, reasons(compiled)
        change()
        for _ in range(2):
            assert np.array_equal(compiled(ONE).numpy(), function(ONE).numpy())


def losses(compiled: bool, change: Callable[[Any, Any], Any]) -> list[float]:
    """Of a small model whose change comes after four steps; the optimizer's name sorts before the model's."""
    ox.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4))
    adam = ox.optim.SGD(model.parameters(), lr=0.1)
    model[2].bias = model[0].bias
    x = ox.ones(2, 3)

    def step(x: Any) -> Any:
        adam.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        adam.step()
        return loss.detach()

    run = ox.compile(step) if compiled else step
    found = [float(run(x)) for _ in range(4)]
    change(model, adam)
    return found + [float(run(x)) for _ in range(4)]


def replace_weight(model: Any, _: Any) -> None:
    model[0].weight = nn.Parameter(ox.ones(4, 3))


def untie(model: Any, _: Any) -> None:
    model[2].bias = nn.Parameter(ox.ones(4))


def replace_activation(model: Any, _: Any) -> None:
    model[1] = nn.Tanh()


def own_forward(model: Any, _: Any) -> None:
    model[1].forward = lambda x: x * 2


def own_step(_: Any, optimizer: Any) -> None:
    optimizer.step = lambda: None


@pytest.mark.parametrize("change", [replace_weight, untie, replace_activation, own_forward, own_step])
def test_changes_between_steps_of_a_training(change: Callable[[Any, Any], Any]) -> None:
    assert np.allclose(losses(True, change), losses(False, change), rtol=1e-5)


def test_one_tensor_under_two_names() -> None:
    class Pair:
        first: Any
        second: Any

    pair = Pair()
    pair.first = pair.second = ox.full((1,), 2.0)
    follows(lambda x: x * pair.first + pair.second, lambda: setattr(pair, "second", ox.zeros(1)))


def test_one_tensor_in_two_variables() -> None:
    z = ox.ones(2)
    other = z

    def rebind() -> None:
        nonlocal other
        other = ox.zeros(2)

    follows(lambda x: x * z + other, rebind)


class Wrapped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()
        self.seq = nn.Sequential(nn.ReLU(), nn.ReLU())
        self.list = nn.ModuleList([nn.ReLU()])
        self.dict = nn.ModuleDict({"a": nn.ReLU()})
        self.shifts = nn.ParameterList([nn.Parameter(ox.ones(1))])

    def forward(self, x: Any) -> Any:
        y = self.seq(self.act(x))
        for each in (*self.list, *self.dict.values()):
            y = each(y)
        for shift in self.shifts:
            y = y + shift
        return y


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "an entry": lambda m: m.seq.__setitem__(1, nn.Tanh()),
    "append": lambda m: m.seq.append(nn.Tanh()),
    "insert": lambda m: m.seq.insert(0, nn.Tanh()),
    "del": lambda m: m.seq.__delitem__(1),
    "append to a list": lambda m: m.list.append(nn.Tanh()),
    "a new key": lambda m: m.dict.__setitem__("b", nn.Tanh()),
    "pop": lambda m: m.dict.pop("a"),
    "clear": lambda m: m.dict.clear(),
    "behind the module's back": lambda m: m._modules.__setitem__("act", nn.Tanh()),
    "a new key behind its back": lambda m: m.seq._modules.__setitem__("new", nn.Tanh()),
    "a parameter": lambda m: m.shifts.append(nn.Parameter(ox.ones(1))),
}


@pytest.mark.parametrize("change", CONTAINERS)
def test_containers(change: str) -> None:
    module = Wrapped()
    follows(module, lambda: CONTAINERS[change](module))


class Asking(nn.Module):
    gain = 1.0

    def forward(self, x: Any) -> Any:
        y = x * self.gain * getattr(self, "scale", 1.0)
        return y + self.adapter if hasattr(self, "adapter") else y


ABSENT: dict[str, Callable[[Any], Any]] = {
    "a parameter": lambda m: setattr(m, "adapter", nn.Parameter(ox.ones(1))),
    "a number": lambda m: setattr(m, "scale", 3.0),
    "over the class": lambda m: setattr(m, "gain", 2.0),
    "another forward": lambda m: setattr(m, "forward", lambda x: x * 7),
}


@pytest.mark.parametrize("change", ABSENT)
def test_attributes_that_were_missing(change: str) -> None:
    module = Asking()
    follows(module, lambda: ABSENT[change](module))


def test_attributes_that_were_missing_in_an_object() -> None:
    class Plain:
        gain = 1.0

    plain = Plain()
    follows(lambda x: x * plain.gain, lambda: setattr(plain, "gain", 2.0))
    follows(lambda x: x * getattr(plain, "scale", 1.0), lambda: setattr(plain, "scale", 2.0))


def test_a_tuple_or_dict_with_tensors_is_replaced() -> None:
    state: dict[str, Any] = {"h": (ox.zeros(2), ox.zeros(2)), "n": (np.zeros(2), 0.0), "d": {"x": ox.zeros(2)}}

    def function(x: Any) -> Any:
        return x + state["h"][0] + state["n"][1] + state["d"]["x"]

    follows(function, lambda: state.update(h=(ox.ones(2), ox.zeros(2))))
    follows(function, lambda: state.update(n=(np.ones(2), -1.0)))
    follows(function, lambda: state.update(d={"x": ox.ones(2)}))


def test_an_object_whose_getattr_raises_anything() -> None:
    class Config(dict[str, Any]):
        __getattr__ = dict.__getitem__

    config: Any = Config(scale=2.0)
    follows(lambda x: x * config.scale, lambda: config.update(scale=3.0))
    held = {"config": config}
    follows(lambda x: x * held["config"].scale, lambda: config.update(scale=4.0))
    assert float(ox.compile(lambda x, c: x * c.scale)(ONE, config)) == 4.0


class Settings:
    scale = 1.0
    table = {"shift": 0.0}  # noqa: RUF012

    @classmethod
    def scaled(cls, x: Any) -> Any:
        return x * cls.scale


class Special(Settings):
    pass


class Reading(nn.Module):
    k = 1.0

    def forward(self, x: Any) -> Any:
        return self.more(x * self.k)

    def more(self, x: Any) -> Any:
        return x


def test_attributes_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    follows(lambda x: x * Settings.scale, lambda: monkeypatch.setattr(Settings, "scale", 2.0))
    follows(lambda x: x * Special.scale, lambda: monkeypatch.setattr(Settings, "scale", 3.0))
    follows(lambda x: Special.scaled(x), lambda: monkeypatch.setattr(Special, "scale", 4.0, raising=False))
    follows(lambda x: x + Settings.table["shift"], lambda: monkeypatch.setitem(Settings.table, "shift", 1.0))
    module = Reading()
    follows(module, lambda: monkeypatch.setattr(Reading, "k", 2.0))
    follows(module, lambda: monkeypatch.setattr(Reading, "more", lambda self, x: x + 5))
    special = Special()
    follows(lambda x: x * special.scale, lambda: monkeypatch.setattr(Special, "scale", 5.0))


def test_attributes_of_ones_own_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    text = "scale = 1.0\nclass Cfg:\n    def __init__(self): self.k = 1.0\ncfg = Cfg()\n"
    (tmp_path / "iosettings_of_a_test.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    import iosettings_of_a_test as settings  # type: ignore[import-not-found]

    def inside(x: Any) -> Any:
        import iosettings_of_a_test

        return x * iosettings_of_a_test.scale

    follows(lambda x: x * settings.scale, lambda: setattr(settings, "scale", 2.0))
    follows(inside, lambda: setattr(settings, "scale", 3.0))
    follows(lambda x: x * settings.cfg.k, lambda: setattr(settings.cfg, "k", 3.0))
    cfg = settings.cfg
    follows(lambda x: x * cfg.k, lambda: setattr(cfg, "k", 4.0))


def test_arrays_of_numpy_that_are_written() -> None:
    class Table(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()
            self.table = np.ones(size, np.float32)

        def forward(self, x: Any) -> Any:
            return x * ox.tensor(self.table)[:1]

    small, large = Table(2), Table(5000)
    follows(small, lambda: small.table.fill(5))
    follows(large, lambda: large.table.fill(5), recorded=False)
    table = np.ones(5000, np.float32)
    follows(lambda x: x * ox.from_numpy(table)[:1], lambda: table.fill(6))  # its memory is read at each call
    follows(lambda x: x * ox.tensor(table)[:1], lambda: table.fill(7), recorded=False)


def test_what_is_too_large_or_deep_to_compare() -> None:
    numbers = [1.0] * 5000
    follows(lambda x: x * numbers[3], lambda: numbers.__setitem__(3, 2.0), recorded=False)
    deep: Any = {"scale": 1.0}
    inner = deep
    for _ in range(9):
        deep = {"inner": deep}

    def function(x: Any) -> Any:
        found = deep
        while "inner" in found:
            found = found["inner"]
        return x * found["scale"]

    follows(function, lambda: inner.update(scale=2.0), recorded=False)


def test_what_the_code_does_not_name_may_change() -> None:
    class Run:
        def __init__(self) -> None:
            self.scale, self.losses, self.seen, self.last = 2.0, [0.0], deque([0], 1), {"x": {1}}

        def step(self, x: Any) -> Any:
            return x * self.scale

    run = Run()
    compiled = ox.compile(run.step)
    for i in range(5):
        run.losses.append(float(compiled(ONE)))
        run.seen.append(i)
        run.last["x"].add(i)
    assert compiled.recordings == 1, compiled.explain()


def test_one_object_under_two_names() -> None:
    class Run:
        def __init__(self) -> None:
            self.all = [self]
            self.unread = {"inner": {"scale": 1.0}}

    run = Run()
    inner = run.unread["inner"]
    follows(lambda x: x * inner["scale"] * len(run.all), lambda: inner.update(scale=2.0))
    follows(lambda x: x * getattr(run, "unread")["inner"]["scale"], lambda: inner.update(scale=3.0))  # noqa: B009


def test_what_the_code_does_not_name_may_be_large() -> None:
    class Run:
        def __init__(self) -> None:
            self.scale, self.unread = 2.0, {"losses": [0.0] * 5000}

        def step(self, x: Any) -> Any:
            return x * self.scale

    run = Run()
    follows(run.step, lambda: setattr(run, "scale", 3.0))


variable: ContextVar[float] = ContextVar("variable", default=1.0)


def helper(x: Any, options: dict[str, float] = {"scale": 1.0}) -> Any:  # noqa: B006
    return x * options["scale"] * helper.factor  # type: ignore[attr-defined]


helper.factor = 1.0  # type: ignore[attr-defined]


def test_other_holders_of_values(monkeypatch: pytest.MonkeyPatch) -> None:
    names, order, queue, raw = {"a", "b"}, {"x": 1.0, "y": 2.0}, deque([1.0, 2.0], 2), bytearray(b"ab")
    mapping, local = MappingProxyType(order), threading.local()
    local.scale = 1.0
    follows(lambda x: x * ("c" in names), lambda: names.symmetric_difference_update({"a", "c"}))
    follows(lambda x: x * next(iter(order.values())), lambda: order.update(x=order.pop("x")))
    follows(lambda x: x * mapping["x"], lambda: order.update(x=5.0))
    follows(lambda x: x * queue[0], lambda: queue.append(7.0))
    follows(lambda x: x * raw[0], lambda: raw.__setitem__(0, 3))
    follows(lambda x: x * local.scale, lambda: setattr(local, "scale", 2.0))
    follows(lambda x: x * variable.get(), lambda: variable.set(2.0))
    follows(lambda x: helper(x), lambda: helper.__defaults__[0].update(scale=2.0))  # type: ignore[index]
    follows(lambda x: helper(x), lambda: monkeypatch.setattr(helper, "factor", 3.0))


READS: list[Callable[[], Any]] = [
    lambda: os.environ["A_TEST"],
    lambda: os.environ.get("A_TEST"),
    lambda: os.getenv("A_TEST"),
]


@pytest.mark.parametrize("read", READS)
def test_the_environment_is_not_compared(monkeypatch: pytest.MonkeyPatch, read: Callable[[], Any]) -> None:
    monkeypatch.setenv("A_TEST", "1")
    follows(lambda x: x * float(read()), lambda: monkeypatch.setenv("A_TEST", "2"), recorded=False)


def test_what_is_asked_of_an_argument() -> None:
    known = ox.full((2,), 2.0)
    compiled = ox.compile(lambda x: x * 2 if x is known else x * 3)
    x = ox.ones(2)
    assert [compiled(each).tolist() for each in (x, x, known, x)] == [[3, 3], [3, 3], [4, 4], [3, 3]]

    lying = ox.compile(lambda x: x * 2 if x.is_contiguous() else x * 3)
    columns = ox.from_numpy(np.asfortranarray(np.ones((2, 3), np.float32)))
    rows = ox.ones(2, 3)
    assert [float(lying(each)[0, 0]) for each in (rows, rows, columns, columns, rows)] == [2, 2, 3, 3, 2]

    marked = ox.compile(lambda x: x * x.scale)
    for scale in (1.0, 1.0, 2.0, 3.0):
        setattr(x, "scale", scale)  # noqa: B010
        assert marked(x).tolist() == [scale, scale]


BAKED: list[Callable[[Any], Any]] = [
    lambda x: deepcopy(x) * 2,
    lambda x: copy(x) * 2,
    lambda x: x * float(getattr(x, "array")[0]),  # noqa: B009
]


@pytest.mark.parametrize("function", BAKED)
def test_values_of_an_argument_are_not_baked(function: Callable[[Any], Any]) -> None:
    compiled = ox.compile(function)
    for value in (1.0, 1.0, 5.0):
        x = ox.full((1,), value)
        assert compiled(x).tolist() == function(x).tolist()
