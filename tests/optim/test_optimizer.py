"""Groups, state, errors."""

from __future__ import annotations

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
    assert (a.data == np.arange(6).reshape(2, 3)).all()
    assert np.allclose(b.data, 0.4)
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
    kept = [p.data.copy() for p in params]
    state, plan = optimizer.state_dict(), scheduler.state_dict()
    again = [nn.Parameter(a) for a in kept]
    other = make(again)
    other_plan = optim.lr_scheduler.CosineAnnealingLR(other, 10)
    other.load_state_dict(state)
    other_plan.load_state_dict(plan)
    trained(optimizer, params, 4, scheduler)
    trained(other, again, 4, other_plan)
    for p, q in zip(params, again, strict=True):
        assert (p.data == q.data).all()
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
    assert (b.data == 1).all()
    assert b not in optimizer.state


def test_zero_grad() -> None:
    a, b = parameters()
    optimizer = optim.SGD([a, b])
    quadratic(a).backward()
    optimizer.zero_grad(set_to_none=False)
    assert a.grad is not None and (a.grad.data == 0).all() and b.grad is None
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
    assert (a.data == 0).all()


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
    assert (p.data == 1).all() and (array == 2).all()


def test_gradients_of_other_strides() -> None:
    p = nn.Parameter(np.ones((2, 3), np.float32))
    p.grad = ox.tensor(np.arange(6, dtype=np.float32).reshape(3, 2).T)
    optim.SGD([p], lr=1.0).step()
    assert (p.data == 1 - np.arange(6).reshape(3, 2).T).all()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: optim.SGD([]), "got no parameters"),
        (lambda: optim.SGD(nn.Parameter(np.ones(1, np.float32))), "an iterable of tensors"),
        (lambda: optim.SGD([1.0]), "takes tensors"),
        (lambda: optim.SGD([nn.Parameter(np.ones(1, np.float32)) * 2.0]), "takes leaves"),
        (lambda: optim.Adam(parameters(), lr=-1), "lr must not be negative"),
        (lambda: optim.Adam(parameters(), betas=(1.0, 0.9)), "betas lie in"),
        (lambda: optim.SGD(parameters(), nesterov=True), "Nesterov needs a momentum"),
        (lambda: optim.SGD([{"params": (p := parameters())}, {"params": p[:1]}]), "in two groups"),
    ],
)
def test_what_it_refuses(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


def test_one_cycle_says_when_it_ends() -> None:
    optimizer = optim.SGD(parameters(), 0.1, momentum=0.9)
    plan = optim.lr_scheduler.OneCycleLR(optimizer, 1.0, total_steps=3)
    with pytest.raises(ArgumentError, match="told of 3 steps"):
        for _ in range(4):
            plan.step()
    with pytest.raises(ArgumentError, match="has none"):
        optim.lr_scheduler.OneCycleLR(optim.Adagrad(parameters(), 0.1), 1.0, total_steps=3)


def test_repr() -> None:
    assert "AdamW (\nParameter Group 0\n    amsgrad: False" in repr(optim.AdamW(parameters()))


def test_a_group_number_given_as_a_tensor() -> None:
    optimizer = optim.SGD(parameters(), lr=ox.tensor(0.5))
    assert optimizer.param_groups[0]["lr"] == 0.5
