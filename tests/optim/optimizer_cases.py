"""Optimizers with options, and the parameters and gradients that they are run on."""

from __future__ import annotations

from typing import Any

import numpy as np

import ox
from ox import optim
from ox.tolerance import compare

SHAPES = [(5, 4), (7,), (), (3, 2, 2)]
Case = tuple[str, dict[str, Any]]

CASES: list[Case] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "momentum": 0.9}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    ("SGD", {"lr": 0.1, "momentum": 0.5, "maximize": True, "weight_decay": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True, "weight_decay": 0.1, "foreach": False}),
    ("Adam", {}),
    ("Adam", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-3, "weight_decay": 0.1}),
    ("Adam", {"amsgrad": True, "lr": 0.05, "foreach": True}),
    ("Adam", {"maximize": True, "lr": 0.05, "weight_decay": 0.1}),
    ("Adam", {"weight_decay": 0.2, "lr": 0.05, "decoupled_weight_decay": True}),
    ("AdamW", {}),
    ("AdamW", {"lr": 0.05, "weight_decay": 0.2, "amsgrad": True}),
    ("AdamW", {"lr": 0.05, "maximize": True, "fused": False}),
    ("RMSprop", {}),
    ("RMSprop", {"lr": 0.05, "alpha": 0.9, "eps": 1e-3, "momentum": 0.8, "weight_decay": 0.1}),
    ("RMSprop", {"lr": 0.05, "alpha": 0.5, "centered": True, "eps": 1e-2, "maximize": True}),
    ("Adagrad", {"lr": 0.1}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5, "weight_decay": 0.1, "maximize": True}),
    ("Adadelta", {}),
    ("Adadelta", {"lr": 0.5, "rho": 0.8, "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    ("Adamax", {}),
    ("Adamax", {"lr": 0.05, "betas": (0.8, 0.9), "eps": 1e-4, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {}),
    ("NAdam", {"lr": 0.05, "momentum_decay": 0.1, "weight_decay": 0.1, "maximize": True}),
    ("NAdam", {"lr": 0.05, "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("RAdam", {"lr": 0.05}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.9), "weight_decay": 0.1, "maximize": True}),
    ("RAdam", {"lr": 0.05, "betas": (0.8, 0.6), "weight_decay": 0.1, "decoupled_weight_decay": True}),
    ("ASGD", {"lr": 0.1, "lambd": 0.01, "t0": 5}),
    ("ASGD", {"weight_decay": 0.1, "maximize": True, "alpha": 0.5}),
    ("Rprop", {}),
    ("Rprop", {"lr": 0.1, "etas": (0.4, 1.5), "step_sizes": (1e-2, 0.2), "maximize": True}),
    ("Adafactor", {}),
    ("Adafactor", {"lr": 0.1, "eps": (1e-2, 1e-1), "d": 2.0, "weight_decay": 0.1, "maximize": True}),
]
# in ox alone, or in another precision there
OWN: list[Case] = [
    ("Lion", {"lr": 0.05}),
    ("Lion", {"lr": 0.05, "betas": (0.5, 0.8), "weight_decay": 0.1, "maximize": True}),
]
MUON: list[Case] = [
    ("Muon", {"lr": 0.05}),
    ("Muon", {"lr": 0.05, "nesterov": False, "momentum": 0.5, "adjust_lr_fn": "match_rms_adamw", "weight_decay": 0.3}),
]


def ids(case: Case) -> str:
    return case[0] + "".join(f"-{k}={v}" for k, v in case[1].items())


def shapes(name: str) -> list[tuple[int, ...]]:
    return [(5, 4), (3, 6)] if name == "Muon" else SHAPES


def start(dtype: Any = np.float32, name: str = "") -> list[Any]:
    rng = np.random.default_rng(0)
    return [np.asarray(rng.standard_normal(s), dtype) for s in shapes(name)]


def gradients(dtype: Any = np.float32, name: str = "") -> list[list[Any]]:
    rng = np.random.default_rng(1)
    scale = rng.random(len(SHAPES))
    return [
        [np.asarray(rng.standard_normal(s) * f, dtype) for s, f in zip(shapes(name), scale, strict=False)]
        for _ in range(20)
    ]


def same(got: Any, expected: Any) -> None:
    difference = compare(np.asarray(got), np.asarray(expected))
    assert difference.ok, difference


def run(name: str, options: dict[str, Any], dtype: Any = np.float32, lr: Any = None) -> tuple[list[Any], Any]:
    """Twenty steps; `lr(step)` sets the rate before each."""
    params = [ox.nn.Parameter(a) for a in start(dtype, name)]
    optimizer = getattr(optim, name)(params, **options)
    for i, grads in enumerate(gradients(dtype, name)):
        for p, g in zip(params, grads, strict=True):
            p.grad = ox.tensor(g)
        if lr is not None:
            optimizer.param_groups[0]["lr"] = lr(i)
        optimizer.step()
    return [p.array for p in params], optimizer
