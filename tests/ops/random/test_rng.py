"""Operators that draw: moments, seeds, the default generator, and that no pass takes one draw for all."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.core.operator import OPS
from ox.errors import DTypeError, ShapeError
from ox.graph.passes.cleanup import fold_constants
from ox.graph.record.recording import record
from ox.graph.replay import replay

CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any], float, float]] = {
    "RandomNormal": ((), {"shape": [200, 201], "mean": 2.0, "scale": 3.0}, 2, 3),
    "RandomUniform": ((), {"shape": [200, 200], "low": 1.0, "high": 3.0}, 2, 2 / np.sqrt(12)),
    "RandomNormalLike": ((ox.zeros(200, 201),), {"mean": -1.0}, -1, 1),
    "RandomUniformLike": ((ox.zeros(200, 200),), {}, 0.5, 1 / np.sqrt(12)),
    "Bernoulli": ((ox.full((200, 200), 0.25),), {}, 0.25, np.sqrt(0.25 * 0.75)),
    "Multinomial": ((ox.log(ox.tensor([[1.0, 3.0]])),), {"sample_size": 40000}, 0.75, np.sqrt(0.25 * 0.75)),
}


@rows("name", CALLS)
def test_moments(name: str) -> None:
    ox.manual_seed(1)
    inputs, attributes, mean, deviation = CALLS[name]
    for more in ({}, {"seed": 5.0}):
        y = OPS[name](*inputs, **attributes, **more).numpy().astype(np.float64)
        assert abs(y.mean() - mean) < 0.03 * max(1, deviation)
        assert abs(y.std() - deviation) < 0.03 * deviation


@rows("name", CALLS)
def test_seeds(name: str) -> None:
    """A seed of its own makes a call a function; without one the default generator decides."""
    inputs, attributes, _, _ = CALLS[name]

    def draw(**more: Any) -> Any:
        return OPS[name](*inputs, **attributes, **more).numpy()

    assert np.array_equal(draw(seed=3.0), draw(seed=3.0))
    ox.manual_seed(4)
    first, second = draw(), draw()
    ox.manual_seed(4)
    assert np.array_equal(first, draw())
    assert not np.array_equal(first, second)


def test_dropout_follows_the_default_generator() -> None:
    x, on = ox.ones(1000), ox.tensor(True)
    ox.manual_seed(2)
    first, mask = OPS["Dropout"](x, ox.tensor(0.25), on, outputs=2)
    ox.manual_seed(2)
    assert np.array_equal(first.numpy(), OPS["Dropout"](x, ox.tensor(0.25), on).numpy())
    assert np.array_equal(first.numpy() != 0, mask.numpy())
    assert 0.7 < mask.numpy().mean() < 0.8
    assert np.allclose(first.numpy()[mask.numpy()], 1 / 0.75)


def test_a_draw_is_not_folded() -> None:
    graph = record(lambda x: x + OPS["RandomNormal"](shape=[3]), {"x": ox.zeros(3)})
    fold_constants(graph)
    assert "RandomNormal" in [node.op_type for node in graph.nodes]
    one, two = (replay(graph, [ox.zeros(3)])[0].numpy() for _ in range(2))
    assert not np.array_equal(one, two)


def test_refusals() -> None:
    with pytest.raises(DTypeError, match="floats"):
        OPS["RandomNormalLike"](ox.tensor([1, 2]))
    with pytest.raises(ShapeError, match="Multinomial"):
        OPS["Multinomial"](ox.zeros(3))
