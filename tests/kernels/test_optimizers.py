"""Optimizers over all tensors at once give what the same formulas give piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox.kernels import Library
from ox.optim import multi_tensor

SETTINGS: list[tuple[Any, dict[str, Any]]] = [
    (ox.optim.Adam, {}),
    (ox.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    (ox.optim.Adam, {"maximize": True, "betas": (0.5, 0.9), "eps": 1e-3}),
    (ox.optim.AdamW, {"weight_decay": 0.1}),
    (ox.optim.SGD, {"lr": 0.1}),
    (ox.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (ox.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "maximize": True}),
]
SHAPES = ((3,), (200, 300), (16_384,), (16_385,), (1,))


def trained(kind: Any, options: dict[str, Any]) -> list[Any]:
    """Parameters and state after five steps; one parameter has no gradient, one is a transposed view."""
    random = np.random.default_rng(0)
    params = [ox.nn.Parameter(ox.tensor(random.standard_normal(shape).astype(np.float32))) for shape in SHAPES]
    params.append(ox.nn.Parameter(ox.tensor(random.standard_normal((40, 30)).astype(np.float32)).T))
    optimizer = kind([*params, ox.nn.Parameter(ox.ones(2))], **options)
    for _ in range(5):
        for p in params:
            p.grad = ox.tensor(random.standard_normal(p.shape).astype(np.float32))
        optimizer.step()
    state = optimizer.state_dict()["state"]
    return [
        *(p.array for p in params),
        *(t.array for _, entries in sorted(state.items()) for _, t in sorted(entries.items())),
    ]


@pytest.mark.parametrize(("kind", "options"), SETTINGS)
def test_all_tensors_at_once(
    kind: Any, options: dict[str, Any], library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = []
    run = multi_tensor.TensorTable.run

    def watched(self: Any, *given: Any) -> None:
        runs.append(given[0])
        run(self, *given)

    monkeypatch.setattr(multi_tensor.TensorTable, "run", watched)
    fast = trained(kind, options)
    assert len(runs) >= 5
    monkeypatch.setattr(multi_tensor, "available", lambda: False)
    slow = trained(kind, options)
    assert len(fast) == len(slow)
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6)


def test_a_read_only_parameter_becomes_a_copy(library: Library) -> None:
    frozen = np.ones(4, np.float32)
    frozen.flags.writeable = False
    p = ox.nn.Parameter(ox.ones(4))
    p.array = frozen
    p.grad = ox.ones(4)
    ox.optim.SGD([p], lr=0.5).step()
    assert p.tolist() == [0.5] * 4 and frozen.tolist() == [1.0] * 4


def test_float64_parameters(library: Library) -> None:
    p = ox.nn.Parameter(ox.ones(4, dtype=ox.float64))
    p.grad = ox.ones(4, dtype=ox.float64)
    ox.optim.Adam([p], lr=0.5).step()
    np.testing.assert_allclose(p.array, 0.5, rtol=1e-6)
