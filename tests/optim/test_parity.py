"""Optimizers and schedulers against PyTorch over twenty steps, and recorded updates against eager ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import optim
from ox.tolerance import compare

SHAPES = [(5, 4), (7,), (), (3, 2, 2)]

CASES: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True, "weight_decay": 0.1}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "lr": 0.05}),
    ("Adam", {"maximize": True, "lr": 0.05, "weight_decay": 0.1}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "maximize": True}),
]


def ids(case: tuple[str, dict[str, Any]]) -> str:
    return case[0] + "".join(f"-{k}={v}" for k, v in case[1].items())


def start(dtype: Any = np.float32) -> list[Any]:
    rng = np.random.default_rng(0)
    return [np.asarray(rng.standard_normal(s), dtype) for s in SHAPES]


def gradients(dtype: Any = np.float32) -> list[list[Any]]:
    rng = np.random.default_rng(1)
    scale = rng.random(len(SHAPES))
    return [
        [np.asarray(rng.standard_normal(s) * f, dtype) for s, f in zip(SHAPES, scale, strict=True)] for _ in range(20)
    ]


def same(got: Any, expected: Any) -> None:
    difference = compare(np.asarray(got), np.asarray(expected))
    assert difference.ok, difference


def run(name: str, options: dict[str, Any], dtype: Any = np.float32, lr: Any = None) -> tuple[list[Any], Any]:
    params = [ox.nn.Parameter(a) for a in start(dtype)]
    optimizer = getattr(optim, name)(params, **options)
    for i, grads in enumerate(gradients(dtype)):
        for p, g in zip(params, grads, strict=True):
            p.grad = ox.tensor(g)
        if lr is not None:
            optimizer.param_groups[0]["lr"] = lr(i)
        optimizer.step()
    return [p.data for p in params], optimizer


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_twenty_steps(case: tuple[str, dict[str, Any]], dtype: Any) -> None:
    torch = pytest.importorskip("torch")
    name, options = case
    got, optimizer = run(name, options, dtype)
    params = [torch.tensor(a, requires_grad=True) for a in start(dtype)]
    theirs = getattr(torch.optim, name)(params, **options)
    for grads in gradients(dtype):
        for p, g in zip(params, grads, strict=True):
            p.grad = torch.tensor(g)
        theirs.step()
    for a, p in zip(got, params, strict=True):
        same(a, p.detach())
    ours, state = optimizer.state_dict(), theirs.state_dict()
    for number, entries in state["state"].items():
        for key, value in entries.items():
            if value is not None:
                same(ours["state"][number][key].data, value)
    known = {k: v for k, v in state["param_groups"][0].items() if k in ours["param_groups"][0]}
    assert {k: ours["param_groups"][0][k] for k in known} == known


@pytest.mark.parametrize("case", CASES, ids=ids)
def test_operators_and_kernels_agree(case: tuple[str, dict[str, Any]], monkeypatch: pytest.MonkeyPatch) -> None:
    """What a recording writes down is what eager training does."""
    name, options = case
    if options.get("dampening"):
        pytest.skip("its first step has no recorded form")
    fast, _ = run(name, options, lr=lambda i: 0.1 / (i + 1))
    monkeypatch.setattr(getattr(optim, name), "_fast", optim.Optimizer._fast)
    slow, _ = run(name, options, lr=lambda i: 0.1 / (i + 1))
    for a, b in zip(fast, slow, strict=True):
        same(a, b)


@pytest.mark.parametrize("dtype", [ox.float16, ox.bfloat16])
def test_halves_are_updated_in_float32(dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    fast, _ = run("AdamW", {"lr": 0.01}, dtype)
    monkeypatch.setattr(optim.AdamW, "_fast", optim.Optimizer._fast)
    slow, _ = run("AdamW", {"lr": 0.01}, dtype)
    for a, b in zip(fast, slow, strict=True):
        same(a, b)


def test_pieces_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.optim import kernels

    whole, _ = run("Adam", {})
    monkeypatch.setattr(kernels, "CHUNK", 3)
    pieces, _ = run("Adam", {})
    for a, b in zip(whole, pieces, strict=True):
        assert (a == b).all()


SCHEDULES: list[tuple[str, dict[str, Any]]] = [
    ("StepLR", {"step_size": 3, "gamma": 0.5}),
    ("CosineAnnealingLR", {"T_max": 8, "eta_min": 0.001}),
    ("CosineAnnealingLR", {"T_max": 30}),
    ("LinearLR", {"start_factor": 0.2, "total_iters": 6}),
    ("LambdaLR", {"lr_lambda": lambda n: 0.9**n}),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 21}),
    (
        "OneCycleLR",
        {"max_lr": 0.3, "epochs": 3, "steps_per_epoch": 7, "three_phase": True, "anneal_strategy": "linear"},
    ),
    ("OneCycleLR", {"max_lr": 0.3, "total_steps": 21, "cycle_momentum": False, "pct_start": 0.5}),
]


@pytest.mark.parametrize("name", ["SGD", "Adam"])
@pytest.mark.parametrize("schedule", SCHEDULES, ids=ids)
def test_schedules(schedule: tuple[str, dict[str, Any]], name: str) -> None:
    torch = pytest.importorskip("torch")
    options = {"lr": 0.2, **({"momentum": 0.9} if name == "SGD" else {})}
    params, theirs = [ox.nn.Parameter(np.ones(2, np.float32))], [torch.ones(2, requires_grad=True)]
    ours_o, theirs_o = getattr(optim, name)(params, **options), getattr(torch.optim, name)(theirs, **options)
    ours = getattr(optim.lr_scheduler, schedule[0])(ours_o, **schedule[1])
    plan = getattr(torch.optim.lr_scheduler, schedule[0])(theirs_o, **schedule[1])
    for _ in range(20):
        for key in ("lr", "momentum", "betas"):
            if key in theirs_o.param_groups[0]:
                got, expected = ours_o.param_groups[0][key], theirs_o.param_groups[0][key]
                assert np.allclose(got, expected, rtol=1e-9, atol=1e-15), key
        assert ours_o.param_groups[0].tensor("lr").item() == ours_o.param_groups[0]["lr"]
        theirs_o.step()
        ours.step()
        plan.step()
        assert ours.get_last_lr() == pytest.approx(plan.get_last_lr())
