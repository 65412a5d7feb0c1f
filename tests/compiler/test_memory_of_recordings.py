"""What a recording keeps alive: nothing of the call that was recorded."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from typing import Any
from weakref import ref

import pytest
from beside_eager import recordings

import ox
import ox.nn.functional as F
from ox import nn


def whole_step() -> Callable[..., Any]:
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)

    def step(x: ox.Tensor, target: ox.Tensor) -> ox.Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def forward() -> Callable[..., Any]:
    model = nn.Linear(4, 3)
    return lambda x, target: F.cross_entropy(model(x), target)


def in_place() -> Callable[..., Any]:
    return lambda x, target: x.add_(1).sum() + target.sum()


def of_arguments() -> Callable[..., Any]:
    def call(x: ox.Tensor, target: ox.Tensor) -> ox.Tensor:
        if x.grad is not None:
            x.grad.zero_()
        loss = F.cross_entropy(x, target)
        loss.backward()
        return x.grad

    return call


@pytest.mark.parametrize("options", [{}, {"fullgraph": True}, {"backend": "onnxruntime"}], ids=str)
@pytest.mark.parametrize("make", [whole_step, forward, in_place, of_arguments])
@pytest.mark.parametrize("first", [True, False])
def test_the_recorded_batch_is_freed(make: Callable[..., Any], options: dict[str, Any], first: bool) -> None:
    """At once, without the garbage collector, also where a gradient of an argument was there."""
    compiled = ox.compile(make(), **options)
    if make is whole_step:
        compiled(ox.randn(8, 4), ox.randint(0, 3, (8,)))  # which makes the optimizer's state
    x, target = ox.randn(8, 3 if make is of_arguments else 4), ox.randint(0, 3, (8,))
    if make is of_arguments:
        x.requires_grad_()
        x.grad = None if first else ox.ones(8, 3)
    alive = [ref(each) for each in (x, x.array, target, target.array)]
    compiled(x, target)
    assert len(recordings(compiled)) == 1
    del x, target
    assert [each() for each in alive] == [None] * 4


def test_gradients_from_before_the_recording_are_freed() -> None:
    p = nn.Parameter(ox.ones(4))

    @ox.compile
    def step(x: ox.Tensor) -> None:
        p.grad = None
        (p * x).sum().backward()

    p.grad = ox.ones(4)
    before = ref(p.grad)
    step(ox.ones(4))
    assert len(recordings(step)) == 1 and before() is None


def test_a_recording_keeps_no_copy_of_the_parameters() -> None:
    model = nn.Linear(1000, 500)  # 2 MB
    compiled = ox.compile(model, backend="eager")  # others have memory of their own
    x = ox.ones(1, 1000)
    with ox.no_grad():
        model(x)
        tracemalloc.start()
        try:
            compiled(x)
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
    assert len(recordings(compiled)) == 1 and kept < 1_000_000


class Batch:
    def __init__(self, x: ox.Tensor) -> None:
        self.x = x


@pytest.mark.parametrize("kind", ["an object", "a function", "a method"])
def test_objects_that_are_another_one_in_each_call_are_not_kept(kind: str) -> None:
    def argument(n: int) -> Any:
        batch = Batch(ox.ones(2) * n)
        return {"an object": batch, "a function": lambda: batch.x, "a method": batch.x.clone}[kind]

    compiled = ox.compile(lambda batch: (batch.x if isinstance(batch, Batch) else batch()) * 2)
    seen = []
    match = r"argument 0 is another (object \((Batch|function)\)|method, or that of another object)"
    with pytest.warns(UserWarning, match=match):
        for n in range(20):
            given = argument(n)
            seen.append(ref(given.__self__ if kind == "a method" else given))
            assert compiled(given).tolist() == [2 * n] * 2
    del given
    gc.collect()
    assert not any(each() is not None for each in seen)
    assert not recordings(compiled) and "eager, 12 calls: it was recorded 8 times" in str(compiled.explain())


def test_modules_and_objects_that_come_again_are_kept() -> None:
    modules = [nn.Linear(2, 2) for _ in range(9)]
    compiled = ox.compile(lambda module, x: module(x))
    shared = Batch(ox.ones(1, 2))
    held = ox.compile(lambda batch, n: batch.x * n)
    with pytest.warns(UserWarning, match="recorded 8 times"):
        for module in modules:
            compiled(module, ox.ones(1, 2))
        for n in (1, 1, 2, 3, 4, 5, 6, 7, 8, 9):
            held(shared, n)
    assert len(recordings(compiled)) == 8 and len(recordings(held)) == 1
