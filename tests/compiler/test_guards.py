"""What a recording is guarded on: a call that differs in it is recorded again, and is right."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from beside_eager import close, recordings
from rows import rows

import ox
import ox.nn.functional as F
from ox import nn

FACTOR = 2.0
TABLE = {"shift": 1.0}


def history(compiled: Any) -> list[str]:
    return getattr(compiled, "_compiled", compiled).history


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)
        self.scale, self.options = 1.0, {"power": 2}
        self.register_buffer("mask", ox.ones(2))

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        y = self.last(F.dropout(self.norm(self.first(x)), 0.0, self.training))
        return y * self.scale * self.mask + self.options["power"]


def set_scale(net: Net) -> None:
    net.scale = 3.0


def set_option(net: Net) -> None:
    net.options["power"] = 5


def replace_parameter(net: Net) -> None:
    net.first.weight = nn.Parameter(ox.ones(4, 3))


def replace_in_dict(net: Net) -> None:
    net.first._parameters["weight"] = nn.Parameter(ox.ones(4, 3))


def replace_module(net: Net) -> None:
    net.last = nn.Linear(4, 2)


def replace_buffer(net: Net) -> None:
    net.mask = ox.tensor([0.0, 2.0])


def freeze(net: Net) -> None:
    net.first.requires_grad_(False)


def other_memory(net: Net) -> None:
    net.first.weight.data = ox.zeros(4, 3)


def written(net: Net) -> None:
    with ox.no_grad():
        net.first.weight.mul_(2)


def loaded(net: Net) -> None:
    net.load_state_dict({name: value * 2 for name, value in net.state_dict().items()})


def loaded_by_assignment(net: Net) -> None:
    net.load_state_dict({name: value * 2 for name, value in net.state_dict().items()}, assign=True)


def no_bias(net: Net) -> None:
    net.last.bias = None


CHANGES: dict[str, tuple[Callable[[Net], Any], bool]] = {
    "eval": (lambda net: net.eval(), True),
    "one layer in eval mode": (lambda net: net.norm.eval(), True),
    "a number": (set_scale, True),
    "an entry of a dict": (set_option, True),
    "a parameter": (replace_parameter, True),
    "a parameter behind the module's back": (replace_in_dict, True),
    "a module": (replace_module, True),
    "a buffer": (replace_buffer, True),
    "requires_grad": (freeze, True),
    "other memory": (other_memory, False),
    "values": (written, False),
    "a state": (loaded, False),
    "a state by assignment": (loaded_by_assignment, True),
    "no bias": (no_bias, True),
}


@rows("change", CHANGES)
def test_a_change_of_the_module(change: str) -> None:
    apply, again = CHANGES[change]
    ox.manual_seed(0)
    eager = Net()
    other = Net()
    other.load_state_dict(eager.state_dict())
    compiled = ox.compile(other)
    x = ox.randn(5, 3)
    for part in range(2):
        for _ in range(2):
            y, z = eager(x), compiled(x)
            close(z.detach().numpy(), y.detach().numpy(), change)
            for net, loss in ((eager, y), (other, z)):
                net.zero_grad()
                loss.square().sum().backward()
            for p, q in zip(eager.parameters(), other.parameters(), strict=True):
                assert (p.grad is None) == (q.grad is None)
                if p.grad is not None and q.grad is not None:
                    close(q.grad.numpy(), p.grad.numpy(), change)
        for name, value in eager.state_dict().items():
            close(other.state_dict()[name].numpy(), value.numpy(), name)
        if not part:
            ox.manual_seed(1)
            apply(eager)
            ox.manual_seed(1)
            apply(other)
    assert len(history(compiled)) == 1 + again, compiled.explain()


def test_the_same_again_needs_no_third_recording() -> None:
    net = Net()
    compiled, x = ox.compile(net), ox.randn(5, 3)
    for _ in range(3):
        compiled.train()
        compiled(x)
        compiled.eval()
        compiled(x)
    assert len(history(compiled)) == 2


def test_globals_and_closures(monkeypatch: pytest.MonkeyPatch) -> None:
    here = 3.0

    def helper(x: ox.Tensor) -> ox.Tensor:
        return x * here + TABLE["shift"]

    compiled = ox.compile(lambda x: helper(x) * FACTOR)
    x = ox.ones(2)
    for _ in range(2):
        assert compiled(x).tolist() == [8, 8]
    monkeypatch.setitem(globals(), "FACTOR", 1.0)
    assert compiled(x).tolist() == [4, 4]
    here = 4.0
    assert compiled(x).tolist() == [5, 5]
    monkeypatch.setitem(TABLE, "shift", 0.0)
    assert compiled(x).tolist() == [4, 4]
    assert len(history(compiled)) == 4
    assert history(compiled)[1:] == [
        "FACTOR was 2.0 and is 1.0", "here was 3.0 and is 4.0", "TABLE['shift'] was 1.0 and is 0.0",
    ]  # fmt: skip


def test_arguments_by_value_and_structure() -> None:
    @dataclass
    class Pair:
        x: ox.Tensor
        factor: float

    def f(x: Any, n: Any = 1, **more: Any) -> Any:
        if isinstance(x, Pair):
            return x.x * x.factor
        if isinstance(x, dict):
            return {name: each * n for name, each in x.items()}
        return x * n + sum(more.values())

    compiled, one = ox.compile(f), ox.ones(2)
    for _ in range(2):
        assert compiled(one).tolist() == [1, 1]
        assert compiled(one, 3).tolist() == [3, 3]
        assert compiled(one, 3.0).tolist() == [3, 3]
        assert compiled(one, True).tolist() == [1, 1]
        assert compiled(one, k=2).tolist() == [3, 3]
        assert compiled({"a": one, "b": one * 2}, 2)["b"].tolist() == [4, 4]
        assert compiled(Pair(one, 4.0)).tolist() == [4, 4]
    assert len(recordings(compiled)) == 7


def test_zeros_have_a_sign_and_nan_is_one_value() -> None:
    compiled = ox.compile(lambda x, n: x / n)
    one = ox.ones(1)
    assert compiled(one, 0.0).item() == np.inf and compiled(one, -0.0).item() == -np.inf
    assert compiled(one, 0.0).item() == np.inf and compiled(one, -0.0).item() == -np.inf
    for _ in range(3):
        assert np.isnan(compiled(one, float("nan")).item())
    assert len(history(compiled)) == 3


def test_element_types_and_gradients() -> None:
    compiled = ox.compile(lambda x: x * 2)
    for x in (ox.ones(2), ox.ones(2, dtype=ox.float64), ox.ones(2, dtype=ox.int64), ox.ones(2, requires_grad=True)):
        for _ in range(2):
            y = compiled(x)
            assert y.dtype == x.dtype and y.requires_grad == x.requires_grad
    assert len(recordings(compiled)) == 4
    with ox.no_grad():
        assert not compiled(ox.ones(2, requires_grad=True)).requires_grad
    with ox.inference_mode():
        compiled(ox.ones(2))
    assert len(recordings(compiled)) == 6


def test_one_tensor_twice() -> None:
    compiled = ox.compile(lambda x, y: x * 10 + y)
    a, b = ox.ones(1), ox.ones(1) * 2
    assert compiled(a, a).item() == 11 and compiled(a, b).item() == 12 and compiled(b, b).item() == 22
    assert compiled(b, a).item() == 21


def test_autocast_is_in_the_signature() -> None:
    compiled = ox.compile(lambda x: x @ x)
    x = ox.ones(2, 2)
    assert compiled(x).dtype == ox.float32
    with ox.autocast("cpu", dtype=ox.bfloat16):
        assert compiled(x).dtype == ox.bfloat16 and compiled(x).dtype == ox.bfloat16
    assert compiled(x).dtype == ox.float32 and len(history(compiled)) == 2


def test_settings_of_optimizers() -> None:
    p = nn.Parameter(ox.ones(2))
    optimizer = ox.optim.SGD([p], lr=1.0)

    @ox.compile
    def step() -> None:
        optimizer.zero_grad()
        p.sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    assert p.tolist() == [-2, -2]
    optimizer.param_groups[0]["lr"] = 0.5
    step()
    assert p.tolist() == [-2.5, -2.5] and len(recordings(step)) == 1
    optimizer.param_groups[0]["maximize"] = True
    step()
    assert p.tolist() == [-2, -2]
    optimizer.param_groups[0]["weight_decay"] = 0.5
    step()
    assert p.tolist() == [-2.0 + 0.5 * (1 + 1.0), -1.0] or p.tolist() == [-1.0, -1.0]
    assert "a setting of" in " ".join(history(step))


class Plain(ox.optim.Optimizer):
    """An update of one's own, with settings as numbers."""

    def __init__(self, params: Any, lr: float, rate: Callable[[Any], float]) -> None:
        super().__init__(params, {"lr": lr, "decay": 0.5})
        self.rate, self.factor = rate, 1.0

    def step(self, closure: Any = None) -> None:
        with ox.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    p.add_(p.grad, alpha=-self.rate(group) * self.factor)


RATES: dict[str, Callable[[Any], float]] = {
    "an entry": lambda group: group["lr"],
    "get": lambda group: group.get("lr"),
    "a branch": lambda group: 1.0 if group["lr"] > 0.5 else 0.25,
    "a copy": lambda group: dict(group)["lr"],
    "keywords": lambda group: {**group}["lr"],
    "items": lambda group: next(value for name, value in group.items() if name == "lr"),
    "another number": lambda group: 2 * group["decay"],
}


@rows("rate", RATES)
def test_a_number_that_an_optimizer_of_ones_own_reads(rate: str) -> None:
    p = nn.Parameter(ox.ones(1))
    optimizer = Plain([p], 1.0, RATES[rate])

    @ox.compile
    def step() -> None:
        optimizer.zero_grad()
        (p * 1.0).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    assert p.tolist() == [-2] and len(recordings(step)) == 1
    optimizer.param_groups[0].update(lr=0.25, decay=0.125)
    for _ in range(3):
        step()
    assert p.tolist() == [-2.75] and len(recordings(step)) == 2
    assert "param_groups[0]['" in history(step)[-1] and "and is 0." in history(step)[-1]
    optimizer.factor = 4.0
    step()
    assert p.tolist() == [-3.75]


def test_groups_that_are_plain_dicts_or_added() -> None:
    class Foreign:
        def __init__(self, p: Any) -> None:
            self.param_groups, self.state = [{"params": [p], "lr": 1.0}], {}

    p, q = nn.Parameter(ox.ones(1)), nn.Parameter(ox.ones(1))
    foreign, optimizer = Foreign(p), ox.optim.SGD([p], lr=1.0)
    compiled = ox.compile(lambda x: x * foreign.param_groups[0]["lr"])
    assert [compiled(ox.ones(1)).item() for _ in range(2)] == [1, 1]
    foreign.param_groups[0]["lr"] = 0.5
    assert compiled(ox.ones(1)).item() == 0.5

    @ox.compile
    def step() -> None:
        optimizer.zero_grad()
        (p + q).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    optimizer.add_param_group({"params": [q]})
    step()
    assert q.tolist() == [0]


GROUPS: dict[str, Callable[[Any], Any]] = {
    "another dict": lambda o: o.param_groups.__setitem__(0, dict(o.param_groups[0], lr=0.0)),
    "another group": lambda o: o.param_groups.__setitem__(0, type(o.param_groups[0])({**o.param_groups[0], "lr": 0.0})),
    "another list": lambda o: setattr(o, "param_groups", [dict(g, weight_decay=1.0) for g in o.param_groups]),
    "all entries": lambda o: o.param_groups.__setitem__(slice(None), [dict(g, lr=0.0) for g in o.param_groups]),
    "|=": lambda o: o.param_groups[0].__ior__({"lr": 0.0}),
    "dict.update": lambda o: dict.update(o.param_groups[0], lr=0.0),
    "dict.__setitem__": lambda o: dict.__setitem__(o.param_groups[0], "lr", 0.5),
    "pop and setdefault": lambda o: (o.param_groups[0].pop("lr"), o.param_groups[0].setdefault("lr", 0.9)),
    "an entry of a list": lambda o: (
        o.param_groups[0]["betas"].__setitem__(0, 0.1) if o.param_groups[0].get("betas") else 0
    ),
    "the parameters": lambda o: dict.update(o.param_groups[0], params=o.param_groups[0]["params"][:1]),
}


@rows("make", [lambda p: ox.optim.SGD(p, lr=0.1), lambda p: ox.optim.AdamW(p, betas=[0.9, 0.99])])
@rows("change", GROUPS)
def test_a_group_that_is_replaced_or_written_past_its_class(change: str, make: Callable[[Any], Any]) -> None:
    def run(compiled: bool) -> list[Any]:
        p, q = nn.Parameter(ox.ones(1)), nn.Parameter(ox.ones(1))
        optimizer = make([p, q])

        def step(x: Any) -> None:
            optimizer.zero_grad()
            (p * x + q).sum().backward()
            optimizer.step()

        call = ox.compile(step) if compiled else step
        for i in range(10):
            if i == 4:
                GROUPS[change](optimizer)
            if i == 7:
                optimizer.param_groups[0]["lr"] = 0.3
            call(ox.ones(1) * (i + 1))
        return [p.item(), q.item()]

    np.testing.assert_allclose(run(True), run(False), rtol=1e-4)


def test_another_optimizer_state() -> None:
    p = nn.Parameter(ox.ones(2))
    optimizer = ox.optim.Adam([p], lr=0.1)

    @ox.compile
    def step() -> None:
        optimizer.zero_grad()
        (p * p).sum().backward()
        optimizer.step()

    for _ in range(3):
        step()
    kept = {k: (v if k != "state" else {0: {n: t.clone() for n, t in v[0].items()}}) for k, v in
            optimizer.state_dict().items()}  # fmt: skip
    at = p.detach().clone()
    step()
    after = p.detach().clone()
    step()
    optimizer.load_state_dict(kept)
    with ox.no_grad():
        p.copy_(at)
    step()
    assert ox.allclose(p, after) and history(step)[2] == "the state of optimizer was replaced"


def test_reasons_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "ox.compile"):
        compiled = ox.compile(lambda x: x + 1)
        compiled(ox.ones(2))
        compiled(ox.ones(3))
    assert [record.getMessage().split("recorded because ")[1] for record in caplog.records] == [
        "it was called first", "dimension 0 of argument 0 is 3 after 2",
    ]  # fmt: skip


def test_a_lazy_module_is_recorded_once_its_hooks_are_gone() -> None:
    net = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(3))
    compiled = ox.compile(net)
    for _ in range(3):
        x = ox.randn(2, 5)
        assert ox.allclose(compiled(x), net(x), atol=1e-6)
    assert len(recordings(compiled)) == 1 and len(compiled.explain().lines) > 4
    assert sum(compiled._compiled.eager.values()) == 1
