"""Optimizers on a GPU: two launches for all parameters, with the bits of the loop over them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
from nvrtc import ARCHITECTURES, compiled
from optimizer_cases import CASES, OWN, Case, gradients, ids, same, shapes, start
from rows import rows

import ox
from ox import devices, optim
from ox.devices.gpu.multi_tensor import Tensors
from ox.devices.gpu.skip_flag import skipping_where
from ox.kernels.gpu_source import gpu_source
from ox.optim import device_update
from ox.optim.formula import Formula

FORMULAS = [case for case in [*CASES, *OWN] if issubclass(getattr(optim, case[0]), Formula)]


def optimizer_of(case: Case) -> Any:
    return getattr(optim, case[0])([ox.zeros(2, requires_grad=True)], **case[1])


@rows("case", FORMULAS, ids=ids)
def test_each_formula_is_written_as_a_kernel(case: Case) -> None:
    optimizer = optimizer_of(case)
    group = optimizer.param_groups[0]
    for computed in ("float", "double"):
        found = device_update.source(optimizer, group, group, computed)
        assert found is not None and "store_number<C>(line[0]" in found.text


@rows("architecture", ARCHITECTURES)
@rows("case", [FORMULAS[3], FORMULAS[8], *FORMULAS[12::4]], ids=ids)
def test_the_kernels_compile(case: Case, architecture: str) -> None:
    optimizer = optimizer_of(case)
    found = device_update.source(optimizer, optimizer.param_groups[0], optimizer.param_groups[0], "float")
    assert found is not None
    code = compiled(gpu_source(found.text), architecture)
    assert all(f".entry {name}(" in code for name in device_update.NAMES)


def test_a_formula_that_branches_on_values_is_no_kernel() -> None:
    class Jumping(optim.SGD):
        def _rule(self, xp: Any, p: Any, g: Any, s: Any, n: Any, group: Any) -> Any:
            return p - g * n.lr if (g > 0) else p

    optimizer = Jumping([ox.zeros(2, requires_grad=True)], lr=0.1)
    assert device_update.source(optimizer, optimizer.param_groups[0], optimizer.param_groups[0], "float") is None


def trained(case: Case, dtype: Any, device: str = "cuda", looped: bool = False) -> list[Any]:
    """Parameters and state after three steps, on the GPU by kernels or by the loop over parameters."""
    name, options = case
    params = [ox.tensor(a).to(device).requires_grad_() for a in start(dtype, name)]
    optimizer = getattr(optim, name)(params, **options)
    for i, grads in enumerate(gradients(dtype, name)[:3]):
        optimizer.param_groups[0]["lr"] /= i + 1
        for p, g in zip(params, grads, strict=True):
            p.grad = ox.tensor(g).to(device)
        with devices.forced("numpy") if looped else nullcontext():
            optimizer.step()
    states = [optimizer.state[p] for p in params]
    held = [state[key] for state in states for key in sorted(state)]
    return [t.detach().cpu().array for t in [*params, *held]]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [ox.float32, ox.float64], ids=str)
@pytest.mark.parametrize("case", FORMULAS, ids=ids)
def test_kernels_do_what_the_loop_does(case: Case, dtype: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = trained(case, dtype)
    monkeypatch.setattr(device_update, "update", None)  # the loop has to do without
    for a, b in zip(kernels, trained(case, dtype, looped=True), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-6 if dtype == ox.float32 else 1e-13, atol=1e-30)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [ox.float16, ox.bfloat16], ids=str)
@pytest.mark.parametrize("case", FORMULAS[::3], ids=ids)
def test_halves_are_updated_in_float32(case: Case, dtype: Any) -> None:
    for a, b in zip(trained(case, dtype), trained(case, dtype, device="cpu"), strict=True):
        assert a.dtype == b.dtype
        same(a, b)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["SGD", "AdamW", "NAdam"])
def test_a_step_is_two_launches(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    launch = device_update._launch
    monkeypatch.setattr(device_update, "_launch", lambda *a: (calls.append(len(a[1])), launch(*a)))
    monkeypatch.setattr(Formula, "_fast", None)
    trained((name, {"lr": 0.1}), np.float32)
    assert calls == [len(shapes(name))] * 3


@pytest.mark.gpu
def test_layouts_and_types_that_differ() -> None:
    def step(device: str) -> Any:
        p = ox.tensor(np.arange(6, dtype=np.float32).reshape(2, 3)).to(device).t().requires_grad_()
        q = ox.ones(3, dtype=ox.bfloat16, device=device, requires_grad=True)
        optimizer = optim.Adam([p.detach().requires_grad_(), q], lr=0.5)
        p = optimizer.param_groups[0]["params"][0]
        p.grad = ox.tensor(np.arange(6, dtype=np.float32).reshape(2, 3) - 2).to(device).t()
        q.grad = ox.ones(3, dtype=ox.bfloat16, device=device)
        optimizer.step()
        return p.detach().cpu().array, q.detach().cpu().array

    for a, b in zip(step("cuda"), step("cpu"), strict=True):
        same(a, b)


@pytest.mark.gpu
def test_more_tensors_than_a_grid_has_rows() -> None:
    full = devices.cuda.full
    together, scale, found = full((70_000,), 4, np.float32), full((), 2, np.float32), full((), 0, np.float32)
    Tensors([together[i : i + 1] for i in range(70_000)]).unscale(scale, found)
    assert (together == 2).all() and not found


@pytest.mark.gpu
@pytest.mark.parametrize("skipped", [False, True])
def test_a_flag_on_the_device_skips_the_step_and_its_count(skipped: bool) -> None:
    p = ox.ones(3, device="cuda", requires_grad=True)
    p.grad = ox.ones(3, device="cuda")
    optimizer = optim.AdamW([p], lr=0.1)
    assert optimizer._skips_on_device()
    with skipping_where(devices.cuda.full((), int(skipped), np.float32)):
        optimizer.step()
    assert (p.tolist() == [1.0, 1.0, 1.0]) == skipped
    assert optimizer.state[p]["step"].item() == (0 if skipped else 1)


@pytest.mark.gpu
def test_a_state_goes_on_and_moves_to_the_host() -> None:
    def continued(between: str) -> list[float]:
        p = ox.ones(3, device="cuda", requires_grad=True)
        state: Any = None
        for _ in range(2):
            optimizer = optim.AdamW([p], lr=0.1)
            if state is not None:
                optimizer.load_state_dict(state)
            p.grad = ox.ones(3, device="cuda")
            optimizer.step()
            state = optimizer.state_dict()
            if between == "host":
                state["state"] = {n: {k: t.cpu() for k, t in s.items()} for n, s in state["state"].items()}
        assert optimizer.state[p]["step"].item() == 2
        return list(p.tolist())

    assert continued("host") == continued("device")
