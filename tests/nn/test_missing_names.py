"""A name that is not there, asked for within forward, is told as what it is."""

from __future__ import annotations

from typing import Any

import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import OxError


class Asks(nn.Module):
    def __init__(self, ask: Any) -> None:
        super().__init__()
        self.ask, self.config = ask, type("Config", (), {})()

    def forward(self, x: Any) -> Any:
        return self.ask(self, x)


@rows(
    "ask, said",
    [
        (lambda m, x: ox.view(x, 2), "module 'ox' has no attribute 'view': a method or attribute of tensors: x.view"),
        (lambda m, x: ox.item(x), "module 'ox' has no attribute 'item'"),
        (lambda m, x: ox.nothing(x), "module 'ox' has no attribute 'nothing'"),
        (lambda m, x: ox.nn.functional.shape(x), "module 'ox.nn.functional' has no attribute 'shape'"),
        (lambda m, x: ox.linalg.nothing(x), "module 'ox.linalg' has no attribute 'nothing'"),
        (lambda m, x: ox.to(ox.float99), "has no attribute"),
        (lambda m, x: x.nothing(), "'Tensor' object has no attribute 'nothing'"),
    ],
)
def test_a_name_that_is_not_there_is_told_as_what_it_is(ask: Any, said: str) -> None:
    with pytest.raises(AttributeError) as caught:
        nn.Sequential(Asks(ask))(ox.ones(2, 2))
    assert not isinstance(caught.value, OxError) and said in str(caught.value)
    where, *hint = caught.value.__notes__
    assert "test_missing_names.py:" in where and "lambda m, x" in where
    assert "x.view" in said or "x." in str(caught.value) or "from-pytorch.md" in hint[0]


def test_a_function_that_a_tensor_has_not_as_a_method() -> None:
    assert not hasattr(ox.Tensor, "stack")
    with pytest.raises(AttributeError) as caught:
        Asks(lambda m, x: x.stack())(ox.ones(2))
    assert caught.value.__notes__[1] == "  try  ox.stack(x)"


@rows("name", ["device", "shape", "dtype", "mean", "nothing"])
@rows(
    "of",
    [lambda m: m, lambda m: m.config, lambda m: None, lambda m: [1], lambda m: Asks],
    ids=["self", "own", "None", "list", "class"],
)
def test_an_attribute_that_the_users_own_object_lacks(name: str, of: Any) -> None:
    """Also where a tensor would have it: `self.device` is no tensor that is missing."""
    with pytest.raises(AttributeError) as caught:
        Asks(lambda m, x: getattr(of(m), name))(ox.ones(2))
    assert not isinstance(caught.value, OxError) and f"has no attribute '{name}'" in str(caught.value)
    assert not hasattr(caught.value, "__notes__")


def test_an_error_of_a_users_property_stays_what_it_is() -> None:
    class Mine:
        @property
        def shape(self) -> Any:
            raise AttributeError("not yet")

    with pytest.raises(AttributeError, match=r"^not yet$"):
        Asks(lambda m, x: ox.broadcast_to(x, *Mine().shape))(ox.ones(2))


def test_an_object_where_an_operator_takes_tensors_is_named() -> None:
    with pytest.raises(ox.errors.DTypeError, match=r"takes tensors.*, got a Config"):
        Asks(lambda m, x: ox.relu(m.config))(ox.ones(2))
    with pytest.raises(ox.errors.DTypeError, match="MatMul takes tensors for input 'B', got a Linear"):
        ox.matmul(ox.ones(2, 2), nn.Linear(2, 2))
