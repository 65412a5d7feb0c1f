"""Groups, state, errors."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import ox
from ox import nn, optim
from ox.errors import ArgumentError, GradientError, LoadError


def quadratic(p: ox.Tensor) -> ox.Tensor:
    return (p * p).sum()


def trained(optimizer: Any, params: list[Any], steps: int, scheduler: Any = None) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        loss = quadratic(params[0])
        for p in params[1:]:
            loss = loss + quadratic(p) * 3.0
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(np.arange(6, dtype=np.float32).reshape(2, 3)), nn.Parameter(np.ones(4, np.float32))]


def test_groups_have_settings_of_their_own() -> None:
    a, b = parameters()
    optimizer = optim.SGD([{"params": [a], "lr": 0.0}, {"params": b}], lr=0.1)
    trained(optimizer, [a, b], 1)
    assert (a.array == np.arange(6).reshape(2, 3)).all()
    assert np.allclose(b.array, 0.4)
    assert [g["lr"] for g in optimizer.param_groups] == [0.0, 0.1]


def test_named_parameters_are_taken() -> None:
    model = nn.Linear(3, 2)
    assert len(optim.Adam(model.named_parameters()).param_groups[0]["params"]) == 2


@pytest.mark.parametrize("make", [lambda p: optim.SGD(p, 0.1, 0.9), lambda p: optim.AdamW(p, 0.1, amsgrad=True)])
def test_resumed_is_the_same_bit_for_bit(make: Any) -> None:
    params = parameters()
    optimizer = make(params)
    scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    trained(optimizer, params, 3, scheduler)
    kept = [p.array.copy() for p in params]
    state, plan = optimizer.state_dict(), scheduler.state_dict()
    again = [nn.Parameter(a) for a in kept]
    other = make(again)
    other_plan = optim.lr_scheduler.CosineAnnealingLR(other, 10)
    other.load_state_dict(state)
    other_plan.load_state_dict(plan)
    trained(optimizer, params, 4, scheduler)
    trained(other, again, 4, other_plan)
    for p, q in zip(params, again, strict=True):
        assert (p.array == q.array).all()
    assert other.param_groups[0].tensor("lr").item() == optimizer.param_groups[0]["lr"]


def test_state_of_another_model() -> None:
    state = optim.Adam(parameters()).state_dict()
    with pytest.raises(LoadError, match="does not fit Adam") as caught:
        optim.Adam(parameters()[:1]).load_state_dict(state)
    assert "groups of [1]" in str(caught.value)
    params = parameters()
    optimizer = optim.Adam(params)
    trained(optimizer, params, 1)
    other = optim.Adam([nn.Parameter(np.ones(2, np.float32)), nn.Parameter(np.ones(2, np.float32))])
    with pytest.raises(LoadError, match="'exp_avg' does not fit parameter 0"):
        other.load_state_dict(optimizer.state_dict())
    assert not other.state


def test_a_parameter_that_no_gradient_reached_stays() -> None:
    a, b = parameters()
    optimizer = optim.AdamW([a, b])
    quadratic(a).backward()
    optimizer.step()
    assert (b.array == 1).all()
    assert b not in optimizer.state


def test_zero_grad() -> None:
    a, b = parameters()
    optimizer = optim.SGD([a, b])
    quadratic(a).backward()
    optimizer.zero_grad(set_to_none=False)
    assert a.grad is not None and (a.grad.array == 0).all() and b.grad is None
    optimizer.zero_grad()
    assert a.grad is None


def test_closure() -> None:
    (a, _) = parameters()
    optimizer = optim.SGD([a], lr=0.5)

    def closure() -> ox.Tensor:
        optimizer.zero_grad()
        loss = quadratic(a)
        loss.backward()
        return loss

    with ox.no_grad():
        assert optimizer.step(closure).item() == 55
    assert (a.array == 0).all()


def test_a_step_between_forward_and_backward_is_noticed() -> None:
    (a, _) = parameters()
    optimizer = optim.Adam([a])
    quadratic(a).backward()
    loss = quadratic(a)
    optimizer.step()
    with pytest.raises(GradientError, match="in-place") as caught:
        loss.backward()
    assert "Adam.step" in str(caught.value)


def test_memory_that_cannot_be_written_is_replaced() -> None:
    array = np.broadcast_to(np.float32(2), (3, 2))
    p = nn.Parameter(array)
    optimizer = optim.SGD([p], lr=0.25)
    quadratic(p).backward()
    optimizer.step()
    assert (p.array == 1).all() and (array == 2).all()


def test_gradients_of_other_strides() -> None:
    p = nn.Parameter(np.ones((2, 3), np.float32))
    p.grad = ox.tensor(np.arange(6, dtype=np.float32).reshape(3, 2).T)
    optim.SGD([p], lr=1.0).step()
    assert (p.array == 1 - np.arange(6).reshape(3, 2).T).all()


REFUSALS: list[tuple[Callable[[], object], str]] = [
    (lambda: optim.SGD([]), "got no parameters"),
    (lambda: optim.SGD(nn.Parameter(np.ones(1, np.float32))), "an iterable of tensors"),
    (lambda: optim.SGD([1.0]), "takes tensors"),
    (lambda: optim.SGD([nn.Parameter(np.ones(1, np.float32)) * 2.0]), "needs leaf tensors"),
    (lambda: optim.Adam(parameters(), lr=-1), "lr must not be negative"),
    (lambda: optim.Adam(parameters(), betas=(1.0, 0.9)), "betas lie in"),
    (lambda: optim.SGD(parameters(), nesterov=True), "Nesterov needs a momentum"),
    (lambda: optim.SGD([{"params": (p := parameters())}, {"params": p[:1]}]), "in two groups"),
    (lambda: optim.Adadelta(parameters(), rho=1.5), "rho must be in"),
    (lambda: optim.Adafactor(parameters(), d=0.5), "Adafactor"),
    (lambda: optim.Adafactor(parameters(), eps=(None, -1.0)), "Adafactor"),
    (lambda: optim.Muon(parameters(), adjust_lr_fn="other"), "no adjust_lr_fn 'other'"),
    (lambda: optim.Muon(parameters(), ns_steps=100), "fewer than 100 times"),
    (lambda: optim.Muon(parameters(), ns_coefficients=(1.0, 2.0)), "three coefficients"),  # type: ignore[arg-type]
    (lambda: optim.Rprop(parameters(), etas=(1.0, 1.2)), "a factor below 1 and one above"),
    (lambda: optim.Rprop(parameters(), etas=(0.5, 1.0)), "a factor below 1 and one above"),
    (lambda: optim.SparseAdam(parameters(), lr=0.0), "SparseAdam are positive"),
    (lambda: optim.SparseAdam(parameters(), eps=0.0), "SparseAdam are positive"),
    (lambda: optim.swa_utils.get_ema_avg_fn(1.1), "decay must be in"),
    (lambda: optim.swa_utils.get_ema_multi_avg_fn(-0.1), "decay must be in"),
    (lambda: optim.swa_utils.SWALR(optim.SGD(parameters()), 0.1, anneal_strategy="other"), "anneal_strategy"),
    (lambda: optim.swa_utils.SWALR(optim.SGD(parameters()), 0.1, anneal_epochs=-1), "anneal_epochs"),
]


def test_what_it_refuses(subtests: pytest.Subtests) -> None:
    for number, (make, message) in enumerate(REFUSALS):
        with subtests.test(f"{number}: {message}"), pytest.raises(ArgumentError, match=message):
            make()


def test_one_cycle_says_when_it_ends() -> None:
    optimizer = optim.SGD(parameters(), 0.1, momentum=0.9)
    plan = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=3)
    with pytest.raises(ArgumentError, match="created for 3 steps"):
        for _ in range(4):
            plan.step()
    with pytest.raises(ArgumentError, match="has none"):
        optim.lr_scheduler.OneCycleLR(optim.Adagrad(parameters(), 0.1), 1.0, total_steps=3)


def test_repr() -> None:
    assert "AdamW (\nParameter Group 0\n    amsgrad: False" in repr(optim.AdamW(parameters()))


def test_a_group_number_given_as_a_tensor() -> None:
    optimizer = optim.SGD(parameters(), lr=ox.tensor(0.5))
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_hooks_around_a_step() -> None:
    (a, _) = parameters()
    optimizer = optim.SGD([a], lr=1.0)
    told: list[Any] = []
    before = optimizer.register_step_pre_hook(lambda o, args, kwargs: told.append(("before", args, kwargs)))
    optimizer.register_step_post_hook(lambda o, args, kwargs: told.append("after"))
    quadratic(a).backward()
    optimizer.step()
    assert told == [("before", (), {}), "after"]
    before.remove()
    optimizer.step(closure=None)
    assert told[2:] == ["after"]
    # a hook may change what the step is given
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((lambda: 7.0,), {}))
    assert optimizer.step() == 7.0


def test_hooks_around_state() -> None:
    a, b = parameters()
    optimizer = optim.SGD([a, b], lr=1.0, momentum=0.9)
    told: list[Any] = []
    optimizer.register_state_dict_pre_hook(lambda o: told.append("asked"))
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    optimizer.register_load_state_dict_pre_hook(lambda o, state: {k: v for k, v in state.items() if k != "more"})
    optimizer.register_load_state_dict_post_hook(lambda o: told.append("loaded"))
    state = optimizer.state_dict()
    assert state["more"] == 1
    optimizer.load_state_dict(state)
    assert told == ["asked", "loaded"]


def test_an_optimizer_of_ones_own() -> None:
    """Written as PyTorch's are: a step over groups, with state under the parameter."""

    class Signs(optim.Optimizer):
        def __init__(self, params: Any, lr: float = 0.1) -> None:
            super().__init__(params, {"lr": lr})

        @ox.no_grad()
        def step(self, closure: Any = None) -> None:
            for group in self.param_groups:
                for p in group["params"]:
                    state = self.state[p]
                    if len(state) == 0:
                        state["count"] = 0
                    state["count"] += 1
                    p.add_(p.grad.sign() * -group["lr"])

    (_, b) = parameters()
    optimizer = Signs([b])
    seen: list[Any] = []
    optimizer.register_step_post_hook(lambda *_: seen.append(1))
    for _ in range(3):
        quadratic(b).backward()
        optimizer.step()
    assert np.allclose(b.array, 0.7) and optimizer.state[b]["count"] == 3 and len(seen) == 3
    assert optimizer.state_dict()["state"][0] == {"count": 3}


def test_names_of_parameters() -> None:
    model = nn.Linear(3, 2)
    optimizer = optim.Adam(model.named_parameters())
    assert optimizer.param_groups[0]["param_names"] == ["weight", "bias"]
    assert "param_names" not in repr(optimizer)
    with pytest.raises(ArgumentError, match="have names or none"):
        optimizer.add_param_group({"params": parameters()})


def test_settings_about_the_how() -> None:
    optimizer = optim.Adam(parameters(), foreach=True, capturable=True)
    assert optimizer.param_groups[0]["foreach"] is True and optimizer.param_groups[0]["fused"] is None
    for wrong in ({"differentiable": True}, {"foreach": True, "fused": True}):
        with pytest.raises(ArgumentError):
            optim.Adam(parameters(), **wrong)
    with pytest.raises(ArgumentError, match="must be ordered"):
        optim.SGD(set(parameters()))


def test_a_group_that_comes_later() -> None:
    a, b = parameters()
    optimizer = optim.NAdam([a], lr=0.1)
    quadratic(a).backward()
    optimizer.step()
    optimizer.add_param_group({"params": b, "lr": 0.5})
    quadratic(b).backward()
    optimizer.step()
    assert optimizer.state[a]["step"].item() == 2 and optimizer.state[b]["step"].item() == 1


@pytest.mark.parametrize("search", [None, "strong_wolfe"])
def test_lbfgs_finds_a_minimum(search: Any) -> None:
    p = nn.Parameter(np.float64([-1.2, 1.0]))
    optimizer = optim.LBFGS([p], lr=1.0 if search else 0.5, max_iter=100 if search else 200, line_search_fn=search)

    def closure() -> ox.Tensor:
        optimizer.zero_grad()
        loss = (p[1] - p[0] * p[0]) ** 2 * (100.0 if search else 1.0) + (1 - p[0]) ** 2
        loss.backward()
        return loss

    optimizer.step(closure)
    assert np.allclose(p.array, 1, atol=1e-4)
    again = optim.LBFGS([nn.Parameter(p.array.copy())])
    again.load_state_dict(optimizer.state_dict())
    assert again.state[again.param_groups[0]["params"][0]]["n_iter"] > 1


def test_what_lbfgs_refuses() -> None:
    a, b = parameters()
    with pytest.raises(ArgumentError, match="several times"):
        optim.LBFGS([a]).step()
    with pytest.raises(ArgumentError, match="one group"):
        optim.LBFGS([{"params": [a]}, {"params": [b]}])
    with pytest.raises(ArgumentError, match="no line search"):
        optim.LBFGS([a], line_search_fn="armijo")


@pytest.mark.parametrize("name", ["Adam", "RMSprop", "Adagrad", "SGD"])
def test_the_state_of_an_infinite_parameter_starts_finite(name: str) -> None:
    p = nn.Parameter(np.float32([np.inf, 1.0]))
    p.grad = ox.ones(2)
    optimizer = getattr(optim, name)([p], **({"momentum": 0.9} if name == "SGD" else {}))
    optimizer.step()
    assert all(np.isfinite(t.array).all() for t in optimizer.state[p].values())
    assert p.array[0] == np.inf


def test_amsgrad_and_momentum_can_be_switched_on_later() -> None:
    for name, setting, held in (
        ("Adam", {"amsgrad": True}, "max_exp_avg_sq"),
        ("SGD", {"momentum": 0.9}, "momentum_buffer"),
    ):
        p = nn.Parameter(np.float32([2.0]))
        p.grad = ox.ones(1)
        optimizer = getattr(optim, name)([p], lr=0.1)
        optimizer.step()
        optimizer.param_groups[0].update(setting)
        optimizer.step()
        assert optimizer.state[p][held].array > 0


def test_a_state_of_pytorch_without_a_buffer_gets_one() -> None:
    p = nn.Parameter(np.float32([2.0]))
    p.grad = ox.ones(1)
    optimizer = optim.SGD([p], lr=0.1, momentum=0.9)
    saved = optimizer.state_dict()
    optimizer.load_state_dict({**saved, "state": {0: {"momentum_buffer": None}}})
    optimizer.step()
    assert p.item() == pytest.approx(1.9)


def test_a_parameter_that_stands_twice_in_a_list_is_updated_once() -> None:
    """Tied weights: both layers have them."""
    p, q = parameters()[:2]
    with pytest.warns(UserWarning, match="twice"):
        optimizer = optim.SGD([q, p, q], lr=1.0)
    assert [id(each) for each in optimizer.param_groups[0]["params"]] == [id(q), id(p)]
    before = q.detach().clone()
    q.grad = ox.ones_like(q)
    optimizer.step()
    assert (before - q.detach()).numpy().tolist() == ox.ones_like(q).tolist()


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adafactor"])
def test_groups_of_plain_dicts_and_from_a_pickle(name: str) -> None:
    p, q = nn.Parameter(ox.ones(2)), nn.Parameter(ox.ones(2))
    one, other = getattr(optim, name)([p], lr=0.1), getattr(optim, name)([q], lr=0.1)
    other.param_groups[:] = [dict(group) for group in other.param_groups]
    for lr in (0.1, 0.3):
        dict.update(one.param_groups[0], lr=lr)
        other.param_groups[0]["lr"] = lr
        for parameter, optimizer in ((p, one), (q, other)):
            parameter.grad = ox.full((2,), 0.5)
            optimizer.step()
        assert ox.equal(p, q)
    again = pickle.loads(pickle.dumps(one.param_groups[0]))
    assert again["lr"] == 0.3 and again.tensor("lr").item() == 0.3
