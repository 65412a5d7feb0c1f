"""Parametrizations without another framework: what is a property, what is trained, what comes back."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ShapeError
from ox.graph.record.recording import record
from ox.nn.utils import parametrizations, parametrize


class Twice(nn.Module):
    calls = 0

    def forward(self, x: ox.Tensor) -> ox.Tensor:
        type(self).calls += 1
        return x * 2.0


class Parts(nn.Module):
    def forward(self, a: ox.Tensor, b: ox.Tensor) -> ox.Tensor:
        return a + b

    def right_inverse(self, x: ox.Tensor) -> Any:
        return x * 0.25, x * 0.75


def test_a_parameter_becomes_a_property() -> None:
    layer = nn.Linear(3, 3)
    trained = layer.weight
    parametrize.register_parametrization(layer, "weight", Twice())
    assert isinstance(layer, nn.Linear) and type(layer).__name__ == "ParametrizedLinear"
    assert parametrize.type_before_parametrizations(layer) is nn.Linear
    assert list(dict(layer.named_parameters())) == ["bias", "parametrizations.weight.original"]
    assert layer.parametrizations.weight.original is trained
    assert (layer.weight.array == 2 * trained.array).all()
    layer(ox.ones(1, 3)).sum().backward()
    assert (trained.grad.array == 2).all()
    with pytest.raises(ArgumentError, match="no right_inverse"):
        layer.weight = ox.zeros(3, 3)
    assert parametrize.is_parametrized(layer) and not parametrize.is_parametrized(layer, "bias")
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is nn.Linear and layer.weight is trained and not parametrize.is_parametrized(layer)


def test_two_stack_and_only_one_layer_changes() -> None:
    layer, other = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
    start = layer.weight.array.copy()
    parametrize.register_parametrization(layer, "weight", Twice())
    parametrize.register_parametrization(layer, "weight", Twice())
    assert np.allclose(layer.weight.array, 4 * start)
    assert isinstance(other.weight, nn.Parameter)
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    assert np.array_equal(layer.weight.array, start)


def test_several_tensors() -> None:
    layer = nn.Linear(2, 2, bias=False)
    start = layer.weight.array.copy()
    parametrize.register_parametrization(layer, "weight", Parts())
    assert np.allclose(layer.weight.array, start)
    layer.weight = ox.ones(2, 2)
    held = layer.parametrizations.weight
    assert (held.original0.array == 0.25).all() and (held.original1.array == 0.75).all()
    with pytest.raises(ArgumentError, match="2 tensors"):
        parametrize.remove_parametrizations(layer, "weight", leave_parametrized=False)
    parametrize.remove_parametrizations(layer, "weight")
    assert (layer.weight.array == 1).all() and isinstance(layer.weight, nn.Parameter)


def test_cached() -> None:
    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Twice())
    Twice.calls = 0
    with parametrize.cached():
        assert layer.weight is layer.weight
        with parametrize.cached():
            layer(ox.ones(1, 2))
    assert Twice.calls == 1
    assert layer.weight is not layer.weight


def test_buffers_too() -> None:
    norm = nn.BatchNorm1d(2)
    parametrize.register_parametrization(norm, "running_var", Twice())
    assert (norm.running_var.array == 2).all()
    assert "parametrizations.running_var.original" in dict(norm.named_buffers())


def test_copies_are_apart() -> None:
    layer = nn.Linear(2, 2)
    parametrizations.weight_norm(layer)
    copied = deepcopy(layer)
    parametrize.remove_parametrizations(layer, "weight")
    assert parametrize.is_parametrized(copied, "weight")
    assert np.allclose(copied.weight.array, layer.weight.array)
    fresh = nn.Linear(2, 2)
    parametrize.transfer_parametrizations_and_params(copied, fresh)
    assert np.allclose(fresh.weight.array, copied.weight.array)
    fresh.load_state_dict(copied.state_dict())


def test_what_it_refuses() -> None:
    class Wider(nn.Module):
        def forward(self, x: ox.Tensor) -> ox.Tensor:
            return x[:1]

    layer = nn.Linear(2, 2)
    with pytest.raises(ArgumentError, match="no parameter or buffer 'wait'"):
        parametrize.register_parametrization(layer, "wait", Twice())
    with pytest.raises(ShapeError, match="changes the tensor's shape"):
        parametrize.register_parametrization(layer, "weight", Wider())
    parametrize.register_parametrization(layer, "weight", Wider(), unsafe=True)
    assert layer.weight.shape == (1, 2)
    with pytest.raises(ArgumentError, match="not parametrized"):
        parametrize.remove_parametrizations(layer, "bias")
    with pytest.raises(ArgumentError, match="orthogonal_map"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="givens")


@rows("kind", ["matrix_exp", "cayley", "householder"])
@rows("size", [(4, 4), (5, 2), (2, 5)])
def test_orthogonal_stays_orthogonal(kind: str, size: tuple[int, int]) -> None:
    layer = nn.Linear(*size, bias=False)
    parametrizations.orthogonal(layer, orthogonal_map=kind)
    optimizer = ox.optim.SGD(layer.parameters(), lr=0.3)
    x = ox.randn(8, size[0])
    for _ in range(3):
        optimizer.zero_grad()
        (layer(x) ** 2).sum().backward()
        optimizer.step()
    weight = layer.weight.array if size[0] >= size[1] else layer.weight.array.T
    assert np.allclose(weight @ weight.T, np.eye(len(weight)), atol=1e-5)


@pytest.mark.parametrize("kind", ["weight_norm", "spectral_norm", "orthogonal"])
def test_they_record(kind: str) -> None:
    layer = nn.Linear(4, 3)
    getattr(parametrizations, kind)(layer)
    layer.eval()
    graph = record(layer, {"x": ox.ones(2, 4)}, dims={"x": ("batch", 4)})
    assert {node.domain for node in graph.nodes} == {""}


def test_spectral_norm_finds_the_largest_singular_value() -> None:
    layer = nn.Linear(5, 4, bias=False)
    layer.weight.array[...] = np.random.default_rng(0).standard_normal((4, 5)) * 3
    parametrizations.spectral_norm(layer, n_power_iterations=20)
    layer(ox.ones(1, 5))
    assert np.linalg.svd(layer.weight.array, compute_uv=False)[0] == pytest.approx(1, abs=1e-4)
