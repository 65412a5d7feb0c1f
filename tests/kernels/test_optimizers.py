"""Optimizers over all tensors at once give what the same formulas give piece by piece."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.core import multi_tensor
from ox.kernels import Library

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


@rows(("kind", "options"), SETTINGS)
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


def gradients() -> list[Any]:
    """Of several sizes, and three that a kernel leaves alone: of float64, two views of one memory, and read-only."""
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(shape).astype(np.float32) for shape in SHAPES]
    shared = np.ones((2, 3), np.float32)
    frozen = np.full(5, 2.0, np.float32)
    frozen.flags.writeable = False
    return [ox.from_numpy(a) for a in (*arrays, np.ones(3), shared[0], shared[1], frozen)]


def test_gradients_are_scaled_in_one_call(library: Library) -> None:
    grads = gradients()
    before = [g.array.copy() for g in grads]
    left, found = multi_tensor.scale_in_place(grads, 0.5, "a test")
    assert [id(t) for t in left] == [id(t) for t in grads[len(SHAPES) :]] and not found
    for k, (grad, old) in enumerate(zip(grads, before, strict=True)):
        np.testing.assert_array_equal(grad.array, old * 0.5 if k < len(SHAPES) else old)
    assert grads[0].version == 1 and grads[-1].version == 0


@rows("value", [np.inf, -np.inf, np.nan])
@rows("place", [(0, 0), (1, 59_999), (3, 16_384), (4, 0)])
def test_scaling_finds_what_is_not_finite(library: Library, value: float, place: tuple[int, int]) -> None:
    grads = gradients()
    grads[place[0]].array.flat[place[1]] = value
    assert multi_tensor.scale_in_place(grads, 0.5, "a test")[1]


def test_scaling_large_numbers_finds_nothing(library: Library) -> None:
    grad = ox.tensor(np.full(20_000, 3e38, np.float32))
    assert not multi_tensor.scale_in_place([grad], 10.0, "a test")[1]
    assert np.isinf(grad.array).all()


def test_the_sum_of_squares_of_many_tensors(library: Library) -> None:
    grads = gradients()[: len(SHAPES)]
    exact = sum(float((g.array.astype(np.float64) ** 2).sum()) for g in grads)
    found = multi_tensor.sum_of_squares(grads)
    assert found == pytest.approx(exact, rel=1e-6)
    assert multi_tensor.sum_of_squares(gradients()) is None


def test_clipping_is_the_same_without_kernels(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    def clipped() -> tuple[float, list[Any]]:
        params = [ox.nn.Parameter(ox.zeros(*g.shape, dtype=g.dtype)) for g in gradients()]
        for p, g in zip(params, gradients(), strict=True):
            p.grad = g
        norm = ox.nn.utils.clip_grad_norm_(params, 1.0)
        return norm.item(), [p.grad.array for p in params if p.grad is not None]

    norm, fast = clipped()
    monkeypatch.setattr(multi_tensor, "available", lambda: False)
    other, slow = clipped()
    assert norm == pytest.approx(other, rel=1e-6) and norm > 1
    for a, b in zip(fast, slow, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5)
