"""Writes through `p.data` and `p.detach()` inside a compiled step, and results that are such tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_eager import reasons, recordings
from rows import rows

import ox
from ox import nn

After = Callable[[nn.Module, Any], Any]


def clamped(model: nn.Module, loss: Any) -> Any:
    for p in model.parameters():
        p.data.clamp_(-0.01, 0.01)
    return loss


def halved(model: nn.Module, loss: Any) -> Any:
    model.weight.detach().mul_(0.5)
    return loss


def item_set(model: nn.Module, loss: Any) -> Any:
    model.weight.data[0] = 3.0
    return loss


def copied(model: nn.Module, loss: Any) -> Any:
    model.weight.data.copy_(model.bias.data * 2)
    return loss


def twice(model: nn.Module, loss: Any) -> Any:
    model.weight.data.mul_(0.5)
    model.weight.data.add_(1.0)
    return loss


def replaced(model: nn.Module, loss: Any) -> Any:
    model.weight.data = model.weight.data * 2
    return loss


def gradient_replaced(model: nn.Module, loss: Any) -> Any:
    model.weight.grad.data = model.weight.grad.data * 2
    return loss


def training(after: After) -> tuple[nn.Module, Callable[[Any], Any]]:
    ox.manual_seed(0)
    model = nn.Linear(2, 1)
    optimizer = ox.optim.SGD(model.parameters(), lr=1.0)

    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = -model(x).mean()
        loss.backward()
        optimizer.step()
        return after(model, loss.detach())

    return model, step


@rows("after", [clamped, halved, item_set, copied, twice, replaced, gradient_replaced])
def test_writes_after_the_step(after: After) -> None:
    (eager, step), (model, other) = training(after), training(after)
    compiled = ox.compile(other)
    for _ in range(5):
        assert ox.allclose(compiled(ox.ones(4, 2)), step(ox.ones(4, 2)))
        for p, q in zip(model.parameters(), eager.parameters(), strict=True):
            assert ox.allclose(p, q) and ox.allclose(p.grad, q.grad)
    if after in (clamped, halved, item_set):
        assert recordings(compiled)


@pytest.mark.parametrize("after", [lambda m, _: m.weight.detach(), lambda m, _: m.weight.data])
def test_a_result_is_the_live_weight(after: After) -> None:
    model, step = training(after)
    compiled = ox.compile(step)
    for _ in range(4):
        assert compiled(ox.ones(4, 2)).array is model.weight.array


def test_a_write_alone() -> None:
    p = nn.Parameter(ox.ones(2))

    @ox.compile
    def double(x: Any) -> Any:
        p.data.mul_(2.0)
        return x + 1

    for _ in range(4):
        double(ox.ones(1))
    np.testing.assert_array_equal(p.detach().numpy(), [16, 16])


class Held:
    """Tensors of one memory: itself, a view, a view that knows no root, and what counts its own writes."""

    def __init__(self) -> None:
        self.q = ox.zeros(2)
        self.view = self.q[:]
        self.part = self.q[:1].detach()
        self.data = self.q.data


def answers(step: Callable[[Any, Any], Any], compiled: bool, make: Callable[[], Any] = Held) -> list[Any]:
    held = make()

    def call(x: Any) -> Any:
        with ox.no_grad():
            return step(held, x) + 0

    run = ox.compile(call) if compiled else call
    return [(run(ox.full((2,), float(i))).tolist(), held.q.tolist()) for i in range(1, 6)]


def after(write: Callable[[Any, Any], Any], read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    def step(held: Any, x: Any) -> Any:
        write(held, x)
        return read(held)

    return step


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "data.copy_": lambda h, x: h.q.data.copy_(x),
    "detach().copy_": lambda h, x: h.q.detach().copy_(x * 2),
    "out=": lambda h, x: ox.mul(x, 2.0, out=h.q.data),
    "data, then itself": lambda h, x: (h.q.data.copy_(x), h.q.add_(x)),
    "itself, then data": lambda h, x: (h.q.add_(x), h.q.data.copy_(x)),
    "data from outside": lambda h, x: h.data.copy_(x),
    "twice, then data from outside": lambda h, x: (h.q.add_(x), h.q.add_(x), h.data.copy_(x)),
    "view.detach()": lambda h, x: h.view.detach().copy_(x),
    "view inside": lambda h, x: h.q[0].data.copy_(x[0]),
    "part": lambda h, x: h.part.copy_(x[:1]),
    "read, then part": lambda h, x: (h.q * 2, h.part.copy_(x[:1])),
    "in a branch": lambda h, x: ox.cond(x.sum() > 0, lambda: h.q.data.copy_(x).sum(), lambda: x.sum()),
}
READS: dict[str, Callable[[Any], Any]] = {
    "itself": lambda h: h.q.sum(),
    "view": lambda h: h.view.sum(),
    "part": lambda h: h.part.sum(),
    "nothing": lambda h: ox.ones(()),
}


@rows("read", READS)
@rows("write", WRITES)
def test_a_read_after_a_write_through_another_tensor(write: str, read: str) -> None:
    step = after(WRITES[write], READS[read])
    assert answers(step, True) == answers(step, False)


def test_an_overwritten_tensor_is_recorded() -> None:
    net, target = nn.Linear(2, 1), nn.Linear(2, 1)

    @ox.compile(fullgraph=True)
    def step(x: Any) -> Any:
        with ox.no_grad():
            for p, q in zip(net.parameters(), target.parameters(), strict=True):
                p.add_(1.0)
                q.data.copy_(p.data)
            return target(x)

    for _ in range(4):
        assert ox.equal(step(ox.ones(1, 2)), net(ox.ones(1, 2)).detach())


@pytest.mark.parametrize("read", [lambda h, x: x.sum(), lambda h, x: ox.ones(())])
def test_an_argument_is_overwritten(read: Callable[[Any, Any], Any]) -> None:
    @ox.compile
    def step(x: Any, y: Any) -> Any:
        x.data.copy_(y)
        return read(None, x)

    for i in range(4):
        x = ox.zeros(2)
        step(x, ox.full((2,), float(i)))
        assert x.tolist() == [i, i]


def test_an_argument_of_the_same_memory_is_written() -> None:
    q = ox.zeros(2)

    @ox.compile
    def step(x: Any) -> Any:
        x.copy_(x * 2 + 1)
        return q.sum() + 0

    assert [step(x).item() for x in (q.detach(), ox.ones(2), q.detach(), ox.ones(2))] == [2, 2, 6, 6]


VALUES: dict[str, Callable[[Any], float]] = {
    "item()": lambda q: q[:1].item(),
    "item() of itself": lambda q: q.item(),
    "float": float,
    "bool": lambda q: 1.0 if q else 0.0,
    "data": lambda q: q.data.item(),
    "numpy": lambda q: float(q.numpy()[0]),
    "tolist": lambda q: q.tolist()[0],
    "text": lambda q: float(f"{q.detach():.1f}"),
    "tensor of it": lambda q: ox.tensor([q, q]).sum() / 2,
}


@rows("inside", [True, False])
@rows("name", VALUES)
def test_python_reads_the_value_of_a_tensor_from_outside(name: str, inside: bool) -> None:
    def run(compiled: bool) -> list[float]:
        q = ox.zeros(1)

        def step(x: Any) -> Any:
            y = x * (VALUES[name](q) + 2)
            if inside:
                q.add_(1)
            return y

        call = ox.compile(step) if compiled else step
        found = []
        for _ in range(4):
            found.append(call(ox.ones(1)).item())
            q.add_(1)
        return found

    assert run(True) == run(False)


TOTAL = ox.zeros(1)


def test_the_array_of_a_global() -> None:
    @ox.compile
    def step(x: Any) -> Any:
        return x + float(TOTAL.array[0])

    try:
        for i in range(4):
            assert step(ox.zeros(1)).item() == i
            TOTAL.add_(1)
    finally:
        TOTAL.zero_()


def test_python_reads_a_gradient_or_the_state_of_a_generator() -> None:
    weight, generator = ox.nn.Parameter(ox.ones(1)), ox.Generator().manual_seed(0)
    weight.grad = ox.ones(1)

    def scaled(x: Any) -> Any:
        return x * weight.grad.item()

    def moved(x: Any) -> Any:
        return x * int(generator.counter)

    for function in (scaled, moved):
        compiled = ox.compile(function)
        for _ in range(4):
            weight.grad.add_(1.0)
            ox.rand(4, generator=generator)
            assert compiled(ox.ones(1)).item() == function(ox.ones(1)).item()
        assert "needs the value of a tensor" in reasons(compiled)
