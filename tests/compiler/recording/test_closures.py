"""What a recording looks at all objects of the process for: free variables of the user's functions, once a module."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import ox
from ox import nn


class Passes:
    """Counts what looks at all objects."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        for name in ("get_referrers", "get_objects", "collect"):
            monkeypatch.setattr(gc, name, self._counted(name, getattr(gc, name)))

    def _counted(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any) -> Any:
            if (name, args) != ("collect", (1,)):  # of young objects only
                self.made.append(name)
            return function(*args)

        return counted


def scaled(factor: float) -> Callable[[ox.Tensor], ox.Tensor]:
    def inner(x: ox.Tensor) -> ox.Tensor:
        return x * factor

    def outer(x: ox.Tensor) -> ox.Tensor:
        return inner(x) + factor

    return outer


def test_a_module_without_closures_needs_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    model = ox.compile(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Dropout(0.5)))
    passes = Passes(monkeypatch)
    model(ox.randn(3, 4)).sum().backward()
    assert passes.made == []


def test_the_functions_of_a_module_take_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, x = ox.compile(lambda x: scaled_twice(x)), ox.randn(3)
    scaled_twice = scaled(2.0)
    passes = Passes(monkeypatch)
    assert compiled(x).tolist() == pytest.approx((x * 2 + 2).tolist())
    assert passes.made == ["get_referrers"]


def test_a_free_variable_that_changes() -> None:
    factor = 2.0

    def inner(x: ox.Tensor) -> ox.Tensor:
        return x * factor

    compiled, x = ox.compile(lambda x: inner(x) + 1), ox.ones(2)
    assert compiled(x).tolist() == [3, 3]
    factor = 4.0
    assert compiled(x).tolist() == [5, 5]


def test_a_function_made_in_the_call() -> None:
    factors = [2.0]
    compiled, x = ox.compile(lambda x: scaled(factors[0])(x)), ox.ones(2)
    assert compiled(x).tolist() == [4, 4]
    factors[0] = 3.0
    assert compiled(x).tolist() == [6, 6]
