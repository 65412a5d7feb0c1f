"""Initial values against PyTorch: the same distributions (moments, quantiles, ranges), fixed values, errors."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import ox
from ox.nn import init

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")
theirs = torch.nn.init

DRAWN: list[tuple[str, dict[str, Any]]] = [
    ("uniform_", {}),
    ("uniform_", {"a": -3.0, "b": 1.0}),
    ("normal_", {"mean": 2.0, "std": 0.5}),
    ("trunc_normal_", {}),
    ("trunc_normal_", {"mean": 1.0, "std": 2.0, "a": 0.0, "b": 2.0}),
    ("xavier_uniform_", {"gain": 2.0}),
    ("xavier_normal_", {}),
    ("kaiming_uniform_", {}),
    ("kaiming_uniform_", {"a": 1.0, "mode": "fan_out"}),
    ("kaiming_normal_", {"nonlinearity": "relu"}),
    ("kaiming_normal_", {"mode": "fan_out", "nonlinearity": "tanh"}),
]


@pytest.mark.parametrize(("name", "options"), DRAWN, ids=str)
@pytest.mark.parametrize("shape", [(300, 200), (40, 50, 5, 6)], ids=str)
def test_distributions(name: str, options: dict[str, Any], shape: tuple[int, ...]) -> None:
    ox.manual_seed(0)
    torch.manual_seed(0)
    here = getattr(init, name)(ox.empty(*shape), **options).array.reshape(-1)
    there = getattr(theirs, name)(torch.empty(shape), **options).numpy().reshape(-1)
    spread = there.std()
    assert abs(here.mean() - there.mean()) < 0.02 * spread
    assert abs(here.std() - spread) < 0.02 * spread
    assert np.allclose(*(np.quantile(x, [0.01, 0.1, 0.5, 0.9, 0.99]) for x in (here, there)), atol=0.05 * spread)
    if "uniform" in name or "trunc" in name:
        assert np.allclose([here.min(), here.max()], [there.min(), there.max()], atol=0.02 * spread)


@pytest.mark.parametrize(
    "name", ["linear", "conv1d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu"]
)
def test_gains(name: str) -> None:
    assert init.calculate_gain(name) == pytest.approx(theirs.calculate_gain(name))
    assert init.calculate_gain("leaky_relu", 0.3) == pytest.approx(theirs.calculate_gain("leaky_relu", 0.3))


@pytest.mark.parametrize(
    ("fill", "shape"),
    [
        (lambda i, t: i.constant_(t, 2.5), (2, 3)),
        (lambda i, t: i.zeros_(t), (2, 3)),
        (lambda i, t: i.ones_(t), (4,)),
        (lambda i, t: i.eye_(t), (3, 5)),
        (lambda i, t: i.dirac_(t), (4, 2, 3)),
        (lambda i, t: i.dirac_(t, 2), (4, 5, 3, 2)),
        (lambda i, t: i.dirac_(t), (2, 3, 1, 2, 3)),
    ],
)
def test_fixed_values(fill: Any, shape: tuple[int, ...]) -> None:
    assert (fill(init, ox.empty(*shape)).array == fill(theirs, torch.empty(shape)).numpy()).all()


@pytest.mark.parametrize("shape", [(5, 5), (3, 7), (7, 3), (4, 2, 3)], ids=str)
def test_orthogonal(shape: tuple[int, ...]) -> None:
    for filled in (init.orthogonal_(ox.empty(*shape), 2.0), theirs.orthogonal_(torch.empty(shape), 2.0)):
        matrix = np.asarray(filled).reshape(shape[0], -1)
        matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
        assert np.allclose(matrix @ matrix.T, 4 * np.eye(len(matrix)), atol=1e-4)


@pytest.mark.parametrize("sparsity", [0.0, 0.25, 0.9])
def test_sparse(sparsity: float) -> None:
    here = init.sparse_(ox.empty(50, 40), sparsity, 0.1).array
    there = theirs.sparse_(torch.empty(50, 40), sparsity, 0.1).numpy()
    assert ((here == 0).sum(0) == (there == 0).sum(0)).all()
    assert here[here != 0].std() == pytest.approx(0.1, rel=0.2)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda i, t: i.xavier_uniform_(t(4)),
        lambda i, t: i.kaiming_normal_(t(4)),
        lambda i, t: i.kaiming_normal_(t(4, 4), mode="fan"),
        lambda i, t: i.orthogonal_(t(4)),
        lambda i, t: i.eye_(t(4)),
        lambda i, t: i.dirac_(t(4, 4)),
        lambda i, t: i.dirac_(t(4, 4, 3), 3),
        lambda i, t: i.sparse_(t(2, 2, 2), 0.1),
        lambda i, t: i.calculate_gain("swash"),
    ],
)
def test_both_refuse(wrong: Any) -> None:
    with pytest.raises(ValueError):
        wrong(init, ox.zeros)
    with pytest.raises(ValueError):
        wrong(theirs, torch.zeros)


NAMES = [n for n in dir(theirs) if n.endswith("_") and not n.startswith("_") and n != "calculate_gain"]


@pytest.mark.parametrize("name", NAMES)
def test_arguments(name: str) -> None:
    ours = [(p.name, p.default) for p in inspect.signature(getattr(init, name)).parameters.values()]
    assert ours == [(p.name, p.default) for p in inspect.signature(getattr(theirs, name)).parameters.values()]
