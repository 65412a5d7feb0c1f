"""A gradient that the user takes of a call with `ox.cond` or `ox.while_loop`, also of the call that is recorded."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from beside_eager import recordings
from rows import rows

import ox

WEIGHT = ox.tensor([1.0, 2.0, 3.0], requires_grad=True)


def branch(x: Any) -> Any:
    return ox.cond(x.sum() > 0, lambda t: t * t * WEIGHT, lambda t: t.detach() - t, (x,))


def two(x: Any) -> Any:
    return branch(branch(x) * 0.5) + x


def nested(x: Any) -> Any:
    return ox.cond(x.sum() > 0, lambda t: branch(t) * 2, lambda t: t, (x,))


def loop(x: Any) -> Any:
    return ox.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, h * WEIGHT + x.sin()), (ox.tensor(0), x))[1]


def not_recorded(x: Any) -> Any:
    return branch(x) * float(x.sum())


def not_recorded_from_the_beginning(x: Any) -> Any:
    scale = float(x.sum())
    return branch(x * 2).sin() * scale


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "a branch": branch,
    "two": two,
    "nested": nested,
    "a loop": loop,
    "not recorded": not_recorded,
    "not recorded from the beginning": not_recorded_from_the_beginning,
}


def gradients(function: Callable[[Any], Any], value: float, twice: bool) -> list[Any]:
    x = ox.full((3,), value, requires_grad=True)
    y = function(x)
    found = ox.autograd.grad((y * y).sum(), [x, WEIGHT], create_graph=twice, allow_unused=True)
    if twice:
        total = sum((g * g).sum() for g in found if g is not None)
        found = (*found, *ox.autograd.grad(total, [x, WEIGHT], allow_unused=True))
    return [None if g is None else g.detach().numpy() for g in (y, *found)]


@rows("twice", [False, True])
@rows("name", FUNCTIONS)
def test_the_gradient_of_the_recorded_call(name: str, twice: bool) -> None:
    function = FUNCTIONS[name]
    for first in (-0.5,) if twice else (0.5, -0.5):
        compiled = ox.compile(function)
        for value in (first, -first, first):
            expected = gradients(function, value, twice)
            for e, g in zip(expected, gradients(compiled, value, twice), strict=True):
                if e is None or g is None:
                    assert not np.any(e if g is None else g)  # of the branch that was not taken: none, or zeros
                else:
                    np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-6)


def test_a_second_backward() -> None:
    compiled = ox.compile(branch)
    x = ox.ones(3, requires_grad=True)
    y = compiled(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad is not None and x.grad.tolist() == [4, 8, 12] and x.grad._recorded is None


def test_the_recording_of_a_branch_goes_with_the_history() -> None:
    made: list[Any] = []

    def then(t: Any) -> Any:
        y = t * t
        made.append(weakref.ref(y))
        return y + 1

    compiled = ox.compile(lambda x: ox.cond(x.sum() > 0, then, lambda t: t, (x,)))
    result = compiled(ox.ones(3, requires_grad=True))
    del result
    gc.collect()
    assert made and all(reference() is None for reference in made)


def by_values(i: ox.Tensor, h: ox.Tensor) -> tuple[ox.Tensor, ox.Tensor]:
    return i + 1, h * (2 if h.sum().item() < 7 else 3)


def doubled(i: ox.Tensor, h: ox.Tensor) -> tuple[ox.Tensor, ox.Tensor]:
    return i + 1, h * 2


@rows("body", [by_values, doubled])
@rows("before", [True, False], ids=["behind item()", "alone"])
@rows("branch", [True, False], ids=["cond", "while_loop"])
def test_a_loop_or_branch_beside_what_cannot_be_recorded(body: Any, before: bool, branch: bool) -> None:
    def function(x: ox.Tensor) -> ox.Tensor:
        if before:
            x.sum().item()
        if branch:
            y = ox.cond(x.sum() > 0, lambda x: body(ox.tensor(0), x)[1], lambda x: x, (x,))
        else:
            y = ox.while_loop(lambda i, h: i < 3, body, (ox.tensor(0), x))[1]
        y.sum().backward()
        return y.detach()

    compiled = ox.compile(function)
    for n in range(1, 4):
        x, other = (ox.full((3,), n).float().requires_grad_() for _ in range(2))
        assert compiled(x).tolist() == function(other).tolist()
        assert x.grad is not None and other.grad is not None and x.grad.tolist() == other.grad.tolist()
    assert not (recordings(compiled) and (before or body is by_values))
