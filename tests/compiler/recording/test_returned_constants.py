"""Tensors that a call makes without an operator, and writes or returns: each call has its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from beside_eager import arrays_of, reasons, recordings
from rows import rows

import ox


def added(y: Any, x: Any) -> Any:
    y += x
    return y


def marked(y: Any, x: Any) -> Any:
    y[x > 1] = 2.0
    return y


def read(y: Any, x: Any) -> Any:
    y += x
    return (y * y).sum(), y


TABLE = ox.arange(3.0)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "zeros": lambda x: added(ox.zeros(3), x),
    "ones": lambda x: ox.ones(3).mul_(x),
    "full": lambda x: added(ox.full((3,), 2.0), x),
    "arange": lambda x: added(ox.arange(3.0), x),
    "tensor": lambda x: added(ox.tensor(0.0), x.sum()),
    "new_tensor": lambda x: added(x.new_tensor([1.0, 2.0, 3.0]), x),
    "in a list": lambda x: [added(ox.zeros(3), x), x * 2],
    "in a dict": lambda x: {"sum": added(ox.zeros(3), x)},
    "scatter": lambda x: ox.zeros(3).scatter_add_(0, ox.tensor([0, 1, 0]), x),
    "a mask": lambda x: marked(ox.zeros(3), x),
    "read again": lambda x: read(ox.zeros(3), x),
    "read alone": lambda x: added(ox.zeros(3), x) * 2,
    "scattered and read alone": lambda x: ox.zeros(3).scatter_add_(0, ox.tensor([0, 1, 0]), x) + 1,
    "kept for a gradient": lambda x: (added(ox.zeros(3), x) * x).sum(),
    "not written": lambda x: (x + 1, ox.zeros(3)),
    "beside one from outside": lambda x: (added(ox.zeros(3), x), TABLE * x),
}


@rows("gradient", [False, True])
@rows("name", FUNCTIONS)
def test_each_call_has_its_own(name: str, gradient: bool) -> None:
    function = FUNCTIONS[name]
    compiled = ox.compile(function)
    for i in range(4):
        x, beside = (ox.full((3,), i + 1.0, requires_grad=gradient) for _ in range(2))
        got, wanted = compiled(x), function(beside)
        for one, other in zip(arrays_of(got), arrays_of(wanted), strict=True):
            np.testing.assert_array_equal(one, other)
            one[...] = 77  # of no concern to later calls
    assert len(recordings(compiled)) == 1 and not reasons(compiled)


def test_a_gradient_goes_through_the_writes() -> None:
    compiled = ox.compile(lambda x: added(ox.zeros(3), x * x))
    for i in range(3):
        x = ox.full((3,), i + 1.0, requires_grad=True)
        compiled(x).sum().backward()
        assert x.grad.tolist() == [2 * (i + 1.0)] * 3


def test_a_running_loss() -> None:
    model = ox.nn.Linear(2, 1)
    optimizer = ox.optim.SGD(model.parameters(), lr=0.0)

    @ox.compile(fullgraph=True)
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        total = ox.tensor(0.0)
        for part in x.chunk(2):
            loss = model(part).square().mean()
            loss.backward()
            total += loss.detach()
        optimizer.step()
        return total

    x = ox.randn(4, 2)
    losses = {round(step(x).item(), 5) for _ in range(5)}
    assert len(losses) == 1
