"""What code asks of tensors besides their values, and the code of functions: a recording is guarded on both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from beside_eager import reasons, recordings

import ox
from ox import nn

ONE = ox.ones(1)


class Holder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight, self.other = nn.Parameter(ox.ones(2)), nn.Parameter(ox.ones(1))
        self.register_buffer("cache", ox.zeros(2, 3))


def set_attribute(m: Any) -> None:
    m.weight.scale = 3.0


def set_bonus(m: Any) -> None:
    m.weight.bonus = 4


def replace(m: Any) -> None:
    m.weight = nn.Parameter(ox.ones(7))


def set_data(m: Any) -> None:
    m.weight.data = ox.ones(5)


CALLS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[Any], Any]]] = {
    "requires_grad": (lambda m, x: x * 2 if m.weight.requires_grad else x, lambda m: m.requires_grad_(False)),
    "any requires_grad": (
        lambda m, x: x * any(p.requires_grad for p in m.parameters()),
        lambda m: m.requires_grad_(False),
    ),
    "shape of another": (lambda m, x: x * m.weight.shape[0], replace),
    "shape of other data": (lambda m, x: x * m.weight.shape[0], set_data),
    "dtype": (lambda m, x: x.to(m.cache.dtype) / 3, lambda m: m.double()),
    "numel of all": (lambda m, x: x * sum(p.numel() for p in m.parameters()), replace),
    "the same": (lambda m, x: x * 2 if m.other is m.cache else x, lambda m: setattr(m, "cache", m.other)),
    "attribute": (lambda m, x: x * m.other * m.weight.scale, set_attribute),
    "perhaps an attribute": (lambda m, x: x * m.other * getattr(m.weight, "bonus", 1), set_bonus),
    "an attribute's entry": (lambda m, x: x * m.other * m.weight.more["a"], lambda m: m.weight.more.update(a=9)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_what_is_asked_of_tensors_is_guarded(name: str) -> None:
    call, change = CALLS[name]
    m = Holder()
    m.weight.scale, m.weight.more = 2.0, {"a": 1}
    compiled = ox.compile(lambda x: call(m, x))
    with ox.no_grad():
        for _ in range(3):
            np.testing.assert_array_equal(compiled(ONE).numpy(), call(m, ONE).numpy())
        assert recordings(compiled), reasons(compiled)
        change(m)
        for _ in range(3):
            np.testing.assert_array_equal(compiled(ONE).numpy(), call(m, ONE).numpy())


def helper(x: Any) -> Any:
    return x + 1


class Method(nn.Module):
    def forward(self, x: Any) -> Any:
        return self.inner(x)

    def inner(self, x: Any) -> Any:
        return helper(x) * 2


@pytest.mark.parametrize("changed", [helper, Method.inner, Method.forward, "itself"])
def test_other_code_of_a_function_is_noticed(changed: Any) -> None:
    module = Method()

    def call(x: Any) -> Any:
        return module(x)

    compiled = ox.compile(call)
    before = [compiled(ONE).item() for _ in range(2)]
    assert len(recordings(compiled)) == 1 and before == [4.0, 4.0]
    function = call if changed == "itself" else changed
    module_of_call, code = module, function.__code__
    try:
        if changed == "itself":
            function.__code__ = (lambda x: module_of_call(x) + 10).__code__
            expected = 14.0
        elif changed is helper:
            function.__code__, expected = (lambda x: x + 10).__code__, 22.0
        else:
            function.__code__, expected = (lambda self, x: x + 10).__code__, 11.0
        assert [compiled(ONE).item() for _ in range(2)] == [expected] * 2
    finally:
        function.__code__ = code
