"""Normalization without PyTorch: properties, NumPy formulas, running statistics, recordings."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn import functional as F
from ox.tolerance import compare

R = np.random.default_rng(8)


def tensor(*shape: int, dtype: Any = np.float32) -> Any:
    return ox.tensor(R.normal(size=shape).astype(dtype) * 3 + 1)


def test_mean_zero_and_variance_one() -> None:
    x = tensor(4, 6, 5, 3, dtype=np.float64)
    for y, axes in (
        (F.instance_norm(x), (2, 3)),
        (F.layer_norm(x, (5, 3)), (2, 3)),
        (F.batch_norm(x, None, None, training=True), (0, 2, 3)),
        (F.group_norm(x, 2).reshape(4, 2, -1), (2,)),
    ):
        assert np.allclose(y.array.mean(axes), 0, atol=1e-9)
        assert np.allclose(y.array.var(axes), 1, atol=1e-4)
    assert np.allclose((F.rms_norm(x, (3,)).array ** 2).mean(-1), 1, atol=1e-4)
    assert np.allclose((F.normalize(x).array ** 2).sum(1), 1)
    assert np.allclose(np.abs(F.normalize(x, 1, -1).array).sum(-1), 1)


def test_groups_between_layer_and_instance() -> None:
    x, w, b = tensor(2, 6, 4), tensor(6), tensor(6)
    assert compare(F.group_norm(x, 6, w, b).array, F.instance_norm(x, weight=w, bias=b).array).ok
    whole = F.layer_norm(x, (6, 4))
    assert compare(F.group_norm(x, 1).array, whole.array).ok


@rows("size", [1, 2, 3, 4, 5, 9])
@rows("shape", [(2, 6, 3), (2, 6, 3, 2)])
def test_local_response_by_the_formula(size: int, shape: tuple[int, ...]) -> None:
    x = tensor(*shape)
    expected = np.empty_like(x.array)
    for c in range(6):
        near = x.array[:, max(0, c - size // 2) : c + (size - 1) // 2 + 1]
        expected[:, c] = x.array[:, c] / (2 + 0.5 / size * (near**2).sum(1)) ** 0.6
    assert compare(F.local_response_norm(x, size, 0.5, 0.6, 2.0).array, expected).ok
    if size % 2 and len(shape) == 4:
        assert compare(nn.CrossMapLRN2d(size, 0.5, 0.6, 2.0)(x).array, expected).ok


def test_running_statistics_of_instances() -> None:
    x = tensor(3, 4, 5)
    layer = nn.InstanceNorm1d(4, momentum=0.5, track_running_stats=True)
    layer(x)
    assert compare(layer.running_mean.array, 0.5 * x.array.mean((0, 2))).ok
    assert compare(layer.running_var.array, 0.5 + 0.5 * x.array.var(2, ddof=1).mean(0)).ok
    layer.eval()
    column = (1, 4, 1)
    mean, var = (held.array.reshape(column) for held in (layer.running_mean, layer.running_var))
    assert compare(layer(x).array, (x.array - mean) / np.sqrt(var + 1e-5)).ok


def test_reset() -> None:
    layer = nn.BatchNorm3d(2)
    layer(tensor(2, 2, 2, 2, 2))
    layer.weight.array[...] = 7
    layer.reset_parameters()
    assert layer.weight.tolist() == [1, 1]
    assert layer.running_mean.tolist() == [0, 0]
    assert layer.num_batches_tracked.item() == 0


def test_lazy_ones_become_what_they_stand_for() -> None:
    x = tensor(2, 5, 4, 3)
    layer = nn.LazyBatchNorm2d(momentum=0.2)
    layer(x)
    plain = nn.BatchNorm2d(5, momentum=0.2)
    plain(x)
    assert type(layer) is nn.BatchNorm2d
    for name, value in plain.state_dict().items():
        assert compare(layer.state_dict()[name].numpy(), value.numpy()).ok
    with pytest.raises(ShapeError, match="LazyBatchNorm2d"):
        nn.LazyBatchNorm2d()(tensor(2, 3))


RECORDED = {
    "group": (nn.GroupNorm(2, 4), (4, 3)),
    "instance": (nn.InstanceNorm1d(4, affine=True), (4, 3)),
    "rms": (nn.RMSNorm(3), (4, 3)),
    "layer": (nn.LayerNorm((4, 3)), (4, 3)),
    "local": (nn.LocalResponseNorm(3), (4, 3, 2)),
    "even": (nn.LocalResponseNorm(2), (4, 3)),
    "batch": (nn.BatchNorm1d(4).eval(), (4, 3)),
    "normalize": (lambda x: F.normalize(x, dim=2), (4, 3)),
}


@rows("name", RECORDED)
def test_recorded_with_the_batch_open(name: str) -> None:
    layer, shape = RECORDED[name]
    graph = record(lambda x: layer(x), {"x": tensor(2, *shape)}, dims={"x": ["rows", *shape]})
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    x = tensor(5, *shape)
    (found,) = session.run(None, {"x": x.array})
    assert compare(found, layer(x).array).ok


def test_one_of_two_running_statistics_is_refused() -> None:
    with pytest.raises(ArgumentError, match="or neither"):
        F.batch_norm(tensor(4, 3, 5), tensor(3), None, training=True)


def test_refusals() -> None:
    with pytest.raises(ShapeError, match="more than one value"):
        F.group_norm(tensor(1, 4), 4)
    with pytest.raises(ShapeError, match="more than one value"):
        F.instance_norm(tensor(2, 4, 1))
    with pytest.raises(ArgumentError, match="num_groups"):
        nn.GroupNorm(3, 4)
    with pytest.raises(ArgumentError, match="running_mean"):
        F.batch_norm(tensor(2, 4), None, None)
    with pytest.raises(ShapeError, match="RMSNormalization"):
        F.rms_norm(tensor(2, 4), (3,))
    with pytest.raises(ShapeError, match=r"InstanceNorm2d"):
        nn.InstanceNorm2d(4)(tensor(4, 4))
