"""Graphs are freed by reference counts alone, whatever their depth."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

import ox
from ox.core.node import Node


@pytest.fixture
def no_collector() -> Iterator[None]:
    gc.collect()
    gc.freeze()  # what hundreds of tests before have left is neither walked nor counted
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def count() -> int:
    # by type, for some libraries' objects mind being asked for their class
    return sum(issubclass(type(o), (ox.Tensor, Node)) for o in gc.get_objects())


def model(x: Any, w: Any) -> Any:
    h = (x @ w).tanh().reshape(2, 6)
    a, b = h.split(3, 1)
    h = ox.cat([a.exp(), b.softmax(1).max(1, keepdim=True)[0].expand(2, 3)], 1)
    h = h[:, [0, 2, 4]].log_softmax(-1).transpose(0, 1) * (h.var() + 1)
    h[0] = 0.5
    return ox.where(h > 0, h, h.sigmoid()).norm()


@pytest.mark.parametrize("mode", ["backward", "forward only", "create_graph", "hooks", "error"])
def test_nothing_is_left_behind(no_collector: None, mode: str) -> None:
    x, w = ox.randn(3, 5), ox.randn(5, 4, requires_grad=True)

    def step() -> None:
        y = model(x, w)
        if mode == "backward":
            y.backward()
        elif mode == "create_graph":
            (g,) = ox.autograd.grad(y, w, create_graph=True)
            (g * g).sum().backward()
        elif mode == "hooks":
            h = w * 2
            h.retain_grad()
            h.register_hook(lambda g: g * 2)
            h.sum().backward()
        elif mode == "error":
            y.backward()
            with pytest.raises(ox.errors.GradientError) as caught:
                y.backward()
            del caught
        w.grad = None

    for _ in range(3):
        step()
    before = count()
    for _ in range(20):
        step()
    assert count() <= before + (60 if mode == "error" else 0)  # an error's traceback is a cycle of Python's own


def test_a_graph_dies_with_its_last_tensor(no_collector: None) -> None:
    x = ox.ones(3, requires_grad=True)
    y = x.exp()
    node, kept = weakref.ref(y.grad_fn), weakref.ref(y.grad_fn.saved[0][0])
    z = y.sum()
    del y
    assert node() is not None
    del z
    assert node() is None
    assert kept() is None


def test_backward_lets_go_of_what_was_saved(no_collector: None) -> None:
    x = ox.ones(3, requires_grad=True)
    h = x * 2
    y = (h * h).sum()
    kept = weakref.ref(h)
    del h
    assert kept() is not None
    y.backward()
    assert kept() is None


def test_memory_is_flat_over_steps(no_collector: None) -> None:
    """Each array is 16 kB: one left behind a step would make 3 MB. Python keeps some freed tuples for itself."""
    x, w = ox.randn(64, 32), ox.randn(32, 64, requires_grad=True)

    def steps(n: int) -> None:
        for _ in range(n):
            w.grad = None
            h = (x @ w).tanh()
            (h[:, :32].softmax(1).sum(0) * (h.T @ h).var()).log().mean().backward()
            with ox.no_grad():
                w.sub_(w.grad * 1e-4)

    steps(20)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        steps(200)
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 200_000


def test_deep_graphs() -> None:
    depth = 50_000
    x = ox.ones(1, requires_grad=True)
    y = x
    for _ in range(depth):
        y = y + 1
    y.backward()
    assert x.grad.item() == 1
    del y
    y = x
    for _ in range(depth):
        y = y * 1.0
    del y  # never walked


def test_wide_graphs() -> None:
    x = ox.ones(1, requires_grad=True)
    sum((x * float(k) for k in range(5_000)), ox.zeros(1)).backward()
    assert x.grad.item() == pytest.approx(5_000 * 4_999 / 2, rel=1e-5)


def test_a_diamond_is_walked_once_a_node() -> None:
    """Doubling forty times has 2^40 paths."""
    x = ox.ones(1, dtype=ox.float64, requires_grad=True)
    y = x
    for _ in range(40):
        y = y + y
    y.backward()
    assert x.grad.item() == 2.0**40
