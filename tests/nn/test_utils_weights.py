"""Hooks that compute weights, vectors, fusion, pruning, functional calls, skipped initial values."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, ShapeError
from ox.nn import utils


def test_weight_norm_splits_length_and_direction() -> None:
    layer = nn.Linear(2, 1, bias=False)
    layer.weight.array[...] = [[3, 4]]
    utils.weight_norm(layer)
    assert set(layer.state_dict()) == {"weight_g", "weight_v"} and layer.weight_g.item() == 5
    layer.weight_v.array *= 7  # the direction alone
    assert layer(ox.tensor([[1.0, 1.0]])).item() == pytest.approx(7)
    with pytest.raises(ArgumentError, match="weight_norm already"):
        utils.weight_norm(layer)
    utils.remove_weight_norm(layer)
    assert np.allclose(layer.weight.array, [[3, 4]])
    with pytest.raises(ArgumentError, match="no weight_norm"):
        utils.remove_weight_norm(layer)


def test_spectral_norm() -> None:
    layer = nn.Linear(3, 3, bias=False)
    layer.weight.array[...] = np.diag([4, 2, 1])
    utils.spectral_norm(layer, n_power_iterations=30)
    layer(ox.ones(1, 3))
    assert np.allclose(layer.weight.array, np.diag([1, 0.5, 0.25]), atol=1e-5)
    before = layer.weight_u.array.copy()
    layer.eval()
    layer(ox.ones(1, 3))
    assert (layer.weight_u.array == before).all()
    utils.remove_spectral_norm(layer)
    assert set(layer.state_dict()) == {"weight"}


def test_vectors() -> None:
    a, b = nn.Parameter(np.float32([[1, 2], [3, 4]])), nn.Parameter(np.float32([5]))
    vector = utils.parameters_to_vector([a, b])
    assert vector.tolist() == [1, 2, 3, 4, 5]
    utils.vector_to_parameters(vector.detach() * 2, [a, b])
    assert a.tolist() == [[2, 4], [6, 8]] and b.tolist() == [10]
    with pytest.raises(ShapeError):
        utils.vector_to_parameters(ox.zeros(4), [a, b])
    assert a.tolist() == [[2, 4], [6, 8]]


def test_fusion() -> None:
    rng = np.random.default_rng(0)
    conv, norm = nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)
    for held in (norm.running_mean, norm.running_var, norm.weight, norm.bias):
        held.array[...] = rng.random(3) + 0.5
    x = ox.tensor(rng.standard_normal((2, 2, 5, 5)).astype(np.float32))
    model = nn.Sequential(conv, norm).eval()
    fused = utils.fuse_conv_bn_eval(conv, norm)
    assert np.allclose(fused(x).detach().array, model(x).detach().array, atol=1e-5)
    assert fused is not conv and fused.weight is not conv.weight
    with pytest.raises(ArgumentError, match="eval mode"):
        utils.fuse_conv_bn_eval(conv.train(), norm)
    with pytest.raises(ShapeError):
        utils.fuse_linear_bn_eval(nn.Linear(2, 4).eval(), nn.BatchNorm1d(3).eval())


def test_pruning() -> None:
    layer = nn.Linear(4, 1, bias=False)
    layer.weight.array[...] = [[1, -2, 3, -4]]
    utils.prune.l1_unstructured(layer, "weight", 1)
    utils.prune.l1_unstructured(layer, "weight", 0.34)  # of the three that are left
    assert layer.weight_mask.tolist() == [[0, 0, 1, 1]] and layer.weight.tolist() == [[0, 0, 3, -4]]
    assert utils.prune.is_pruned(nn.Sequential(layer))
    layer(ox.ones(1, 4)).sum().backward()
    assert layer.weight_orig.grad.tolist() == [[0, 0, 1, 1]]
    utils.prune.remove(layer, "weight")
    assert layer.weight.tolist() == [[0, 0, 3, -4]] and set(layer.state_dict()) == {"weight"}
    with pytest.raises(ArgumentError, match="no pruning"):
        utils.prune.remove(layer, "weight")
    with pytest.raises(ArgumentError, match="amount is larger than the number"):
        utils.prune.l1_unstructured(layer, "weight", 5)
    for random in (
        lambda m: utils.prune.random_unstructured(m, "weight", 0.5),
        lambda m: utils.prune.random_structured(m, "weight", 2, 1),
    ):
        wide = nn.Linear(4, 3)
        random(wide)
        assert (wide.weight_mask.array == 0).sum() == 6


def test_a_way_of_ones_own_to_prune() -> None:
    class EveryOther(utils.prune.BasePruningMethod):
        def compute_mask(self, t: ox.Tensor, default_mask: ox.Tensor) -> ox.Tensor:
            mask = default_mask.clone()
            mask.reshape(-1)[::2] = 0
            return mask

    layer = nn.Linear(2, 2)
    EveryOther.apply(layer, "weight")
    assert layer.weight_mask.tolist() == [[0, 1], [0, 1]]


def test_functional_call_leaves_the_module_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    own = {k: v.array.copy() for k, v in model.state_dict().items()}
    given = {**{n: ox.zeros(*p.shape) for n, p in model.named_parameters()}, "1.running_mean": ox.ones(2)}
    assert utils.stateless.functional_call(model, given, (ox.ones(3, 2),)).tolist() == [[0, 0]] * 3
    assert (given["1.running_mean"].array == 0.9).all()  # the one that was given follows the batches
    for name in ("0.weight", "0.bias", "1.running_mean"):
        assert (model.state_dict()[name].array == own[name]).all()
    with pytest.raises(ArgumentError, match="other names than the module has"):
        utils.stateless.functional_call(model, {"2.weight": ox.ones(1)}, ox.ones(3, 2))
    with pytest.raises(ArgumentError, match="twice"):
        utils.stateless.functional_call(model, ({"0.bias": ox.ones(2)}, {"0.bias": ox.ones(2)}), ox.ones(3, 2))


def test_functional_call_ties() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    twice = utils.stateless.functional_call(model, {"0.weight": ox.eye(2) * 2.0}, ox.ones(1, 2))
    assert twice.tolist() == [[4, 4]]
    once = utils.stateless.functional_call(model, {"1.weight": ox.eye(2)}, ox.ones(1, 2), tie_weights=False)
    assert np.allclose(once.detach().array, model[0](ox.ones(1, 2)).detach().array)


def test_skipped_initial_values() -> None:
    ox.manual_seed(0)
    before = ox.random.get_state()
    layer = utils.skip_init(nn.Linear, 3, 2, device="cpu")
    assert ox.random.get_state() == before and layer.weight.shape == (2, 3)
    assert (nn.Linear(3, 2).weight.array != 0).any()
