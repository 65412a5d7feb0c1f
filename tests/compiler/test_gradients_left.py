"""Gradients that a compiled call finds in tensors, and those that it leaves there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from beside_eager import recordings
from rows import rows

import ox
import ox.nn.functional as F
from ox import nn
from ox.errors import GradientError, OxError


def backward(p: Any, x: Any) -> Any:
    (p * x).sum().backward()


def twice(p: Any, x: Any) -> Any:
    backward(p, x)
    backward(p, x + 1)


def result(p: Any, x: Any) -> Any:
    backward(p, x)
    return p.grad, p.grad


def removed(p: Any, x: Any) -> Any:
    del p.grad
    return x + 1


def removed_first(p: Any, x: Any) -> Any:
    del p.grad
    backward(p, x)
    return p.grad


def removed_last(p: Any, x: Any) -> Any:
    backward(p, x)
    p.grad = None


def zeroed(p: Any, x: Any) -> Any:
    if p.grad is not None:
        p.grad.zero_()
    return x + 1


def the_old_one(p: Any, x: Any) -> Any:
    before, p.grad = p.grad, None
    backward(p, x)
    return before


def clipped(p: Any, x: Any) -> Any:
    backward(p, x)
    nn.utils.clip_grad_norm_([p], 0.5)


def clipped_first(p: Any, x: Any) -> Any:
    nn.utils.clip_grad_norm_([p], 0.5)
    backward(p, x)


@rows("before", ["none", "given", "none given", "given none", "left", "none left left", "left given"], items=2)
@rows(
    ("call", "most"),
    [(backward, 1), (twice, 1), (result, 2), (removed, 1), (removed_first, 1), (removed_last, 2), (zeroed, 2),
     (the_old_one, 2), (clipped, 2), (clipped_first, 2)],
)  # fmt: skip
def test_gradients_that_are_there_or_not_at_the_beginning(call: Any, most: int, before: str) -> None:
    """Whatever a tensor had: the gradients and results of eager code, among them `p.grad` itself. One recording is
    enough where nobody looks for a gradient; one of a sum is only for calls that find one."""
    told: list[list[Any]] = [[], []]
    for run, seen in zip((call, ox.compile(call)), told, strict=True):
        p = nn.Parameter(ox.ones(2))
        for i, kind in enumerate(before.split() * 4):
            if kind != "left":
                p.grad = None if kind == "none" else ox.full((2,), 2.0 + i)
            found = run(p, ox.ones(2) * (i + 1))
            results = found if isinstance(found, tuple) else (found,)
            seen.append([y is p.grad for y in results])
            seen.append([None if y is None else np.round(y.detach().numpy(), 5).tolist() for y in (p.grad, *results)])
    assert told[0] == told[1]
    assert 1 <= len(recordings(run)) <= most + (before == "given none") and not run.eager


def test_a_step_that_fails_after_del_leaves_no_gradients() -> None:
    model = nn.Linear(4, 3)

    @ox.compile
    def step(x: ox.Tensor, target: ox.Tensor) -> None:
        for p in model.parameters():
            del p.grad
        F.cross_entropy(model(x), target).backward()

    x, good = ox.randn(2, 4), ox.tensor([0, 1])
    for _ in range(3):
        step(x, good)
    with pytest.raises(OxError, match="out of range"):
        step(x, good + 2)
    assert all(p.grad is None for p in model.parameters())


def test_one_backward_for_all_results() -> None:
    """Eager code allows one for each, where they have no operator in common."""
    heads = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])
    compiled = ox.compile(lambda x: [head(x) for head in heads])
    compiled(ox.ones(2, 4))
    a, b = compiled(ox.ones(2, 4))
    a.sum().backward()
    with pytest.raises(GradientError, match=r"a second time through a compiled call[^$]*\(loss_a \+ loss_b\)"):
        b.sum().backward()
    a, b = compiled(ox.ones(2, 4))
    a.sum().backward(retain_graph=True)
    b.sum().backward()


@pytest.mark.parametrize("number", [0, 2])
def test_an_error_for_a_write_in_place_names_the_operator(number: int) -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Bilinear(4, 4, 2))
    compiled = ox.compile(lambda x: net[2](y := net[:2](x), y))
    errors = []
    for call in (compiled.function, compiled, compiled):
        y = call(ox.ones(2, 4, requires_grad=True)).sum()
        with ox.no_grad():
            net[number].weight.add_(1)
        with pytest.raises(GradientError) as caught:
            y.backward()
        errors.append(caught.value.what)
    assert errors[0] == errors[1] == errors[2] and recordings(compiled)
