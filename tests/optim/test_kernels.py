"""The two ways of an update are one: what a recording writes down is what eager training does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optimizer_cases import CASES, MUON, OWN, Case, gradients, ids, run, same
from rows import rows

import ox
from ox import optim


@rows("case", [*CASES, *OWN], ids=ids)
def test_operators_and_kernels_agree(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    name, options = case
    if options.get("dampening"):
        pytest.skip("its first step has no recorded form")
    fast, _ = run(name, options, lr=lambda i: 0.1 / (i + 1))
    monkeypatch.setattr(getattr(optim, name), "_fast", optim.Optimizer._fast)
    slow, _ = run(name, options, lr=lambda i: 0.1 / (i + 1))
    for a, b in zip(fast, slow, strict=True):
        same(a, b)


@rows("dtype", [ox.float16, ox.bfloat16])
@rows("name", ["AdamW", "RMSprop", "Lion", "Adafactor", "Muon"])
def test_halves_are_updated_in_float32(name: str, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, _ = run(name, {"lr": 0.01}, dtype)
    monkeypatch.setattr(getattr(optim, name), "_fast", optim.Optimizer._fast)
    slow, _ = run(name, {"lr": 0.01}, dtype)
    for a, b in zip(fast, slow, strict=True):
        assert a.dtype == dtype
        same(a, b)


@pytest.mark.parametrize("name", ["Adam", "NAdam", "Rprop"])
def test_pieces_make_no_difference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.optim import kernels

    whole, _ = run(name, {})
    monkeypatch.setattr(kernels, "CHUNK", 3)
    pieces, _ = run(name, {})
    for a, b in zip(whole, pieces, strict=True):
        assert (a == b).all()


def one_step(name: str, **options: Any) -> float:
    p = ox.nn.Parameter(np.float64([2.0]))
    p.grad = ox.tensor(np.float64([4.0]))
    getattr(optim, name)([p], **options).step()
    return p.item()


@rows(
    ("name", "options", "expected"),
    [
        ("SGD", {"lr": 0.1}, 1.6),
        ("Adam", {"lr": 0.1, "eps": 0}, 1.9),
        ("AdamW", {"lr": 0.1, "eps": 0, "weight_decay": 0.5}, 1.8),
        ("RMSprop", {"lr": 0.1, "alpha": 0.75, "eps": 0}, 1.8),  # v = 4, g / sqrt(v) = 2
        ("RMSprop", {"lr": 0.1, "alpha": 0.75, "eps": 0, "centered": True}, 2 - 0.4 / np.sqrt(3)),
        ("Adagrad", {"lr": 0.1, "initial_accumulator_value": 9, "eps": 0}, 1.92),
        ("Adadelta", {"rho": 0.75, "eps": 4}, 2 - np.sqrt(4 / 8) * 4),
        ("Adamax", {"lr": 0.1, "eps": 0}, 1.9),
        ("NAdam", {"lr": 0.1, "eps": 0, "betas": (0.5, 0.5), "momentum_decay": 0}, 2 - 0.1 * (1 + 0.25 / 1.875)),
        ("RAdam", {"lr": 0.1}, 1.6),  # the second moment is not known yet
        ("ASGD", {"lr": 0.1, "lambd": 0.5}, 2 * 0.95 - 0.4),
        ("Rprop", {"lr": 0.1}, 1.9),
        ("Lion", {"lr": 0.1, "weight_decay": 1.0}, 1.7),
        ("Adafactor", {"lr": 0.1}, 1.8),  # 0.1 of the parameter's own size, along a gradient of size 1
    ],
)
def test_one_step_by_hand(name: str, options: dict[str, Any], expected: float) -> None:
    assert one_step(name, **options) == pytest.approx(expected, rel=1e-7)


def test_asgd_averages() -> None:
    p = ox.nn.Parameter(np.float64([0.0]))
    optimizer = optim.ASGD([p], lr=1.0, lambd=0.0, t0=0)
    for _ in range(4):
        p.grad = ox.tensor(np.float64([-1.0]))
        optimizer.step()
    assert p.item() == 4
    # mu is 1, 1, 1/2, 1/3: the mean of 2, 3 and 4
    assert optimizer.state[p]["ax"].item() == pytest.approx(3)


def test_muon_brings_singular_values_near_one() -> None:
    for shape in [(6, 4), (4, 6)]:
        p = ox.nn.Parameter(np.zeros(shape, np.float32))
        p.grad = ox.tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
        optim.Muon([p], lr=1.0, momentum=0.0, adjust_lr_fn="original").step()
        values = np.linalg.svd(p.array / np.sqrt(max(1, shape[0] / shape[1])), compute_uv=False)
        assert (values > 0.5).all() and (values < 1.5).all()


def test_muon_takes_matrices() -> None:
    with pytest.raises(ox.errors.ArgumentError, match="matrices only"):
        optim.Muon([ox.nn.Parameter(np.zeros(3, np.float32))])
    _, optimizer = run(*MUON[0])
    with pytest.raises(ox.errors.ArgumentError, match="matrices only"):
        optimizer.add_param_group({"params": [ox.nn.Parameter(np.zeros((2, 2, 2), np.float32))]})
    assert len(optimizer.param_groups) == 1


def test_every_gradient_is_only_read() -> None:
    for name in ("SGD", "Adam", "RMSprop", "Rprop", "Lion", "Adafactor"):
        p = ox.nn.Parameter(np.ones((3, 2), np.float32))
        p.grad = ox.tensor(gradients()[0][0][:3, :2].copy())
        before = p.grad.array.copy()
        getattr(optim, name)([p]).step()
        assert (p.grad.array == before).all(), name
