"""Optimizers against PyTorch over twenty steps: parameters, state, groups; a state of either goes into the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from optimizer_cases import CASES, MUON, Case, gradients, ids, run, same, start

import ox
from ox import optim

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")


def theirs_run(name: str, options: dict[str, Any], dtype: Any = np.float32) -> tuple[list[Any], Any]:
    params = [torch.tensor(a, requires_grad=True) for a in start(dtype, name)]
    optimizer = getattr(torch.optim, name)(params, **options)
    for grads in gradients(dtype, name):
        for p, g in zip(params, grads, strict=True):
            p.grad = torch.tensor(g)
        optimizer.step()
    return params, optimizer


@pytest.mark.parametrize("case", CASES, ids=ids)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_twenty_steps(case: Case, dtype: Any) -> None:
    name, options = case
    got, optimizer = run(name, options, dtype)
    params, theirs = theirs_run(name, options, dtype)
    for a, p in zip(got, params, strict=True):
        same(a, p.detach())
    ours, state = optimizer.state_dict(), theirs.state_dict()
    for number, entries in state["state"].items():
        kept = {key: value for key, value in entries.items() if value is not None}
        assert ours["state"][number].keys() == kept.keys() or name == "SGD"
        for key, value in kept.items():
            same(ours["state"][number][key].array, value)
    (group,) = state["param_groups"]
    assert ours["param_groups"] == [group]


@pytest.mark.parametrize("case", MUON, ids=ids)
def test_muon(case: Case) -> None:
    """PyTorch's products are in bfloat16."""
    name, options = case
    got, optimizer = run(name, options)
    params, theirs = theirs_run(name, options)
    for a, p, first in zip(got, params, start(name=name), strict=True):
        moved = np.abs(a - first).max()
        assert np.abs(a - p.detach().numpy()).max() < 0.05 * moved
    assert optimizer.state_dict()["param_groups"] == theirs.state_dict()["param_groups"]
    for number, entries in theirs.state_dict()["state"].items():
        same(optimizer.state_dict()["state"][number]["momentum_buffer"].array, entries["momentum_buffer"])


@pytest.mark.parametrize("case", [c for c in CASES if len(c[1]) > 1], ids=ids)
def test_a_state_goes_on_in_the_other(case: Case) -> None:
    """Ten steps here and ten there are twenty."""
    name, options = case
    expected, _ = theirs_run(name, options)
    ours = [ox.nn.Parameter(a) for a in start()]
    here = getattr(optim, name)(ours, **options)
    every = gradients()
    for grads in every[:10]:
        for p, g in zip(ours, grads, strict=True):
            p.grad = ox.tensor(g)
        here.step()
    given = here.state_dict()
    params = [torch.tensor(p.array.copy(), requires_grad=True) for p in ours]
    there = getattr(torch.optim, name)(params, **options)
    state = {
        n: {k: torch.tensor(v.array.copy()) if isinstance(v, ox.Tensor) else v for k, v in entries.items()}
        for n, entries in given["state"].items()
    }
    there.load_state_dict({"state": state, "param_groups": given["param_groups"]})
    for grads in every[10:15]:
        for p, g in zip(params, grads, strict=True):
            p.grad = torch.tensor(g)
        there.step()
    ours = [ox.nn.Parameter(p.detach().numpy().copy()) for p in params]
    here = getattr(optim, name)(ours, **options)
    back = there.state_dict()
    state = {
        n: {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in entries.items()}
        for n, entries in back["state"].items()
    }
    here.load_state_dict({"state": state, "param_groups": back["param_groups"]})
    for grads in every[15:]:
        for p, g in zip(ours, grads, strict=True):
            p.grad = ox.tensor(g)
        here.step()
    for p, q in zip(ours, expected, strict=True):
        same(p.array, q.detach())


LBFGS: list[dict[str, Any]] = [
    {},
    {"lr": 0.5, "max_iter": 4, "history_size": 2},
    {"line_search_fn": "strong_wolfe"},
    {"line_search_fn": "strong_wolfe", "max_iter": 6, "max_eval": 9, "history_size": 3, "lr": 0.3},
]


@pytest.mark.parametrize("options", LBFGS, ids=str)
def test_lbfgs(options: dict[str, Any]) -> None:
    a = np.array([-1.2, 1.0, 0.5])
    b = np.array([[0.3, -0.4]])
    ours = [ox.nn.Parameter(a), ox.nn.Parameter(b)]
    theirs = [torch.tensor(a, requires_grad=True), torch.tensor(b, requires_grad=True)]

    def loss(x: Any, y: Any) -> Any:  # Rosenbrock's valley with a bowl beside it
        return ((x[1:] - x[:-1] ** 2) ** 2 * 5).sum() + ((1 - x) ** 2).sum() + (y**4).sum() + (y.sum() - x[0]) ** 2

    optimizers = [optim.LBFGS(ours, **options), torch.optim.LBFGS(theirs, **options)]
    for _ in range(3):
        losses = []
        for optimizer, params in zip(optimizers, (ours, theirs), strict=True):

            def closure(optimizer: Any = optimizer, params: Any = params) -> Any:
                optimizer.zero_grad()
                value = loss(*params)
                value.backward()
                return value

            losses.append(optimizer.step(closure).item())
        assert losses[0] == pytest.approx(losses[1], rel=1e-6, abs=1e-9)
    for p, q in zip(ours, theirs, strict=True):
        assert np.allclose(p.array, q.detach().numpy(), rtol=1e-5, atol=1e-7)
    states = [next(iter(o.state.values())) for o in optimizers]
    for name in ("n_iter", "func_evals"):
        assert states[0][name] == states[1][name], name


REFUSED: list[Case] = [
    ("SGD", {"lr": -1.0}),
    ("Adam", {"betas": (1.0, 0.9)}),
    ("Adam", {"eps": -1.0}),
    ("Adam", {"fused": True, "foreach": True}),
    ("RMSprop", {"alpha": -0.1}),
    ("RMSprop", {"momentum": -0.1}),
    ("Adagrad", {"lr_decay": -0.1}),
    ("Adagrad", {"initial_accumulator_value": -0.1}),
    ("Adadelta", {"rho": 1.1}),
    ("NAdam", {"momentum_decay": -0.1}),
    ("Rprop", {"etas": (1.2, 1.3)}),
    ("Adafactor", {"beta2_decay": 0.1}),
    ("Adafactor", {"d": 0.5}),
    ("Muon", {"adjust_lr_fn": "other"}),
    ("Muon", {"momentum": -1.0}),
]


@pytest.mark.parametrize("case", REFUSED, ids=ids)
def test_both_refuse(case: Case) -> None:
    name, options = case
    with pytest.raises(ValueError):
        getattr(optim, name)([ox.nn.Parameter(np.ones((2, 2), np.float32))], **options)
    with pytest.raises((ValueError, RuntimeError)):
        getattr(torch.optim, name)([torch.ones(2, 2, requires_grad=True)], **options)


@pytest.mark.parametrize("name", [n for n in optim.__all__ if n[0].isupper() and n not in ("Lion", "Optimizer")])
def test_arguments(name: str) -> None:
    """The same names in the same order with the same defaults."""
    import inspect
    import warnings

    source = torch.optim
    if name == "ZeroRedundancyOptimizer":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of what PyTorch itself uses
            import torch.distributed.optim as source
    ours = inspect.signature(getattr(optim, name).__init__).parameters.values()
    theirs = inspect.signature(getattr(source, name).__init__).parameters.values()
    assert [(p.name, p.kind) for p in ours] == [(p.name, p.kind) for p in theirs]
    for mine, yours in zip(ours, theirs, strict=True):
        assert mine.default == yours.default, mine.name
