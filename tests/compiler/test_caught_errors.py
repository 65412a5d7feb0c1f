"""Errors for the values of tensors that the compiled code catches itself."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from beside_eager import reasons, recordings
from rows import rows

import ox
import ox.nn.functional as F
from ox import nn
from ox.errors import OxError


def by_except(x: Any, t: Any) -> Any:
    try:
        return F.cross_entropy(x, t)
    except Exception:
        return x.sum()


def by_a_helper(x: Any, t: Any) -> Any:
    def helper() -> Any:
        return by_except(x, t)

    with ox.no_grad():
        return helper() + 1


def by_a_context(x: Any, t: Any) -> Any:
    y = x.sum()
    with suppress(OxError):
        y = F.cross_entropy(x, t)
    return y


@rows("classes", [(0, 1, 5, 2, 7), (5, 0, 1, 5)])
@rows("call", [by_except, by_a_helper, by_a_context])
def test_an_error_that_the_code_catches(call: Callable[..., Any], classes: tuple[int, ...]) -> None:
    compiled = ox.compile(call)
    x = ox.ones(1, 3)
    for t in classes:
        assert compiled(x, ox.tensor([t])).item() == pytest.approx(call(x, ox.tensor([t])).item())
    assert bool(recordings(compiled)) == (classes[0] == 0)
    if classes[0] == 5:
        assert "an error is caught, which another call may not raise (test_caught_errors.py" in reasons(compiled)


def test_state_is_as_before_the_error() -> None:
    def steps(compiled: bool) -> list[float]:
        model, table = nn.Linear(2, 1, bias=False), ox.ones(3, 2)
        nn.init.ones_(model.weight)
        optimizer = ox.optim.SGD(model.parameters(), lr=0.1)

        def step(x: Any, i: Any) -> Any:
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()
            try:
                return F.embedding(i, table).sum() + model(x).sum().detach()
            except OxError:
                return x.sum() + model.weight.grad.sum()

        run = ox.compile(step) if compiled else step
        found = []
        for i in (0, 1, 2, 7, 1, -9, 0):
            found += [run(ox.ones(1, 2) * (i + 10), ox.tensor([i])).item(), model.weight.sum().item()]
        if compiled:
            assert recordings(run), reasons(run)
        return found

    assert steps(True) == pytest.approx(steps(False))
