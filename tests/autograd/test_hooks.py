"""Hooks on gradients, and retain_grad."""

from __future__ import annotations

import pytest

import ox
from ox.errors import GradientError


def test_a_hook_sees_and_replaces() -> None:
    x = ox.ones(2, requires_grad=True)
    seen = []
    h = x * 3
    h.register_hook(lambda g: seen.append(g.tolist()))
    h.register_hook(lambda g: g * 10)
    h.register_hook(lambda g: seen.append(g.tolist()))
    (h * 2).sum().backward()
    assert seen == [[2, 2], [20, 20]]
    assert x.grad.tolist() == [60, 60]


def test_a_leafs_hook_sees_the_whole_gradient_once() -> None:
    x = ox.ones(1, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.item()))
    handle = x.register_hook(lambda g: -g)
    (x * 2 + x * 3).backward()
    assert seen == [5.0]
    assert x.grad.item() == -5.0
    handle.remove()
    handle.remove()
    (x * 2).backward()
    assert x.grad.item() == -3.0


def test_hooks_of_other_outputs_stay_apart() -> None:
    x = ox.ones(4, requires_grad=True)
    a, b = x.split(2)
    b.register_hook(lambda g: g * 100)
    (a + b).sum().backward()
    assert x.grad.tolist() == [1, 1, 100, 100]


def test_hooks_of_leaves_that_were_not_asked_for_stay_silent() -> None:
    x, y = (ox.ones(1, requires_grad=True) for _ in range(2))
    y.register_hook(lambda g: pytest.fail("not asked for"))
    assert ox.autograd.grad(x * y, x)[0].item() == 1


def test_a_hook_needs_a_gradient() -> None:
    with pytest.raises(GradientError, match="hook needs"):
        ox.ones(1).register_hook(print)


def test_retain_grad_keeps_what_the_hooks_made_and_adds_up() -> None:
    x = ox.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert y.grad.tolist() == [10, 10]
    y.sum().backward()
    assert y.grad.tolist() == [20, 20]
    y.grad.zero_()
    assert x.grad.tolist() == [40, 40]


def test_retain_grad_of_a_leaf_changes_nothing() -> None:
    x = ox.ones(1, requires_grad=True)
    x.retain_grad()
    (x * 2).backward()
    assert x.grad.item() == 2
