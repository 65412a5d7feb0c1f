"""Modules whose first input decides their shapes."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, LoadError
from ox.nn.base.uninitialized import is_lazy
from ox.nn.layers.lazy import LazyModuleMixin


def test_the_first_input_decides() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.LazyLinear(2, bias=False))
    assert repr(model[0]) == "LazyLinear(in_features=0, out_features=4, bias=True)"
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)
    first = model[0].weight
    model(ox.ones(3, 5)).sum().backward()
    assert type(model[0]) is nn.Linear and model[0].in_features == 5 and model[2].weight.shape == (2, 4)
    assert model[0].weight is first and type(first) is nn.Parameter and (first.array != 0).any()
    optimizer.step()
    with pytest.raises(ox.errors.ShapeError):
        model(ox.ones(3, 6))


def test_before_that_there_is_no_shape() -> None:
    layer = nn.LazyLinear(4)
    assert is_lazy(layer.weight) and layer.has_uninitialized_params()
    with pytest.raises(ArgumentError, match="no shape yet"):
        _ = layer.weight.shape
    assert repr(layer.weight) == "<UninitializedParameter>"


def test_types_and_copies_come_first() -> None:
    layer = nn.LazyLinear(4).double()
    copied = deepcopy(layer)
    assert layer(ox.ones(2, 3, dtype=ox.float64)).dtype == ox.float64
    assert is_lazy(copied.weight) and copied(ox.ones(1, 7, dtype=ox.float64)).shape == (1, 4)


def test_state() -> None:
    lazy, ready = nn.LazyLinear(4), nn.Linear(3, 4)
    lazy.load_state_dict(ready.state_dict())
    assert (lazy.weight.array == ready.weight.array).all()
    assert np.array_equal(lazy(ox.ones(1, 3)).array, ready(ox.ones(1, 3)).array)
    assert lazy.in_features == 3
    waiting = nn.LazyLinear(4).state_dict()
    assert is_lazy(waiting["weight"])
    nn.LazyLinear(4).load_state_dict(waiting)
    with pytest.raises(LoadError):
        nn.Linear(3, 4).load_state_dict(waiting)


def test_a_lazy_module_of_ones_own() -> None:
    class Scale(LazyModuleMixin, nn.Module):
        def __init__(self, forget: bool = False) -> None:
            super().__init__()
            self.forget = forget
            self.by, self.seen = nn.UninitializedParameter(), nn.UninitializedBuffer()

        def initialize_parameters(self, x: ox.Tensor) -> None:
            if not self.forget:
                self.by.materialize(x.shape[1:])
            self.seen.materialize(())

        def forward(self, x: ox.Tensor) -> ox.Tensor:
            return x * self.by

    layer = Scale()
    assert layer(ox.ones(2, 3)).tolist() == [[0, 0, 0]] * 2
    assert type(layer) is Scale and type(layer.seen) is nn.Buffer and not layer.has_uninitialized_params()
    with pytest.raises(ArgumentError, match="left by without a shape"):
        Scale(forget=True)(ox.ones(2, 3))
