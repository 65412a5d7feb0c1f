"""What a recorded branch or loop lets no gradient pass through, or gives a gradient of its own: as in eager code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from controlled import W, check, number, once, twice, x

import ox
from ox import nn
from ox.autograd import Function, grad
from ox.errors import GradientError, RecordError
from ox.graph.record.recording import record
from ox.utils.checkpoint import checkpoint

Body = Callable[[Any], Any]


class Rounded(Function):
    """Forward is a staircase, backward the cosine of what came in."""

    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        ctx.save_for_backward(a)
        return (a * 4).round() / 4

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (a,) = ctx.saved_tensors
        return g * a.cos()


class Aside(Function):
    """Keeps tensors as attributes, does not read its second argument, and gives it a gradient."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.a, ctx.double = a, a * 2
        return a * 1

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * ctx.double * ctx.a, g * 3


class HandedOn(Function):
    """Hands its argument on as it is, with another gradient."""

    @staticmethod
    def forward(ctx: Any, a: Any) -> Any:
        return a

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 0.3


def without(function: Body) -> Body:
    return ox.no_grad(function)  # type: ignore[no-any-return]


def hooked(value: Any, hook: Body) -> Any:
    value = value * 1
    value.register_hook(hook)
    return value


def watched(h: Any) -> Any:
    layer = nn.Identity()
    layer.register_full_backward_hook(lambda module, given, arrived: (given[0] * 0.5,))
    return layer(h) * h @ W


def inner_gradient(h: Any) -> Any:
    v = h.detach().requires_grad_()
    return grad((v * v * v * W[0]).sum(), v, create_graph=True)[0] * h


BODIES: dict[str, Body] = {
    "detach": lambda h: h.detach() * h + W[0],
    "both ways": lambda h: (h @ W).tanh().detach() * h + h * W.detach()[0] * W[1],
    "no_grad": lambda h: without(lambda a: (a @ W).tanh())(h) * h + W[0],
    "a Function": lambda h: Rounded.apply(h @ W) * h,
    "a Function of what comes in": lambda h: Rounded.apply(h) + W[0],
    "a Function with attributes": lambda h: Aside.apply(h @ W, h).sin(),
    "handed on": lambda h: HandedOn.apply(h) * h @ W,
    "a module's hook": watched,
    "checkpoint": lambda h: checkpoint(lambda a: (a @ W).tanh().sin(), h) * h,
    "a gradient inside": inner_gradient,
    "in place": lambda h: (h @ W).sin().mul_(h).add_(1),
}
HOOKS: dict[str, Body] = {
    "clamps": lambda h: hooked(h @ W, lambda g: g.clamp(-0.1, 0.2)) * h,
    "reads": lambda h: (lambda mask: hooked(h @ W, lambda g: g * mask))(h.tanh()) * h,
}


def _scan(f: Body, x: Any) -> Any:
    last, ys = ox.scan(lambda h, a: (f(h).tanh() * 0.5 + a, f(a.unsqueeze(0)) * h), x[:1] * 0.3, x)
    return ox.cat([last, ys.squeeze(1)])


def _scan_of_cond(f: Body, x: Any) -> Any:
    def step(h: Any, a: Any) -> Any:
        h = ox.cond(a.sum() > 0, lambda: f(h) * 0.2 + a, lambda: f(a.unsqueeze(0)) * h * 0.3)
        return h, h

    return ox.scan(step, x[:1] * 0.3, x)[1].squeeze(1)


def _while(f: Body, x: Any) -> Any:
    return ox.while_loop(lambda i, h: i < 3, lambda i, h: (i + 1, f(h) * 0.3), (0, x))[1]


PLACES: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {
    "cond": (lambda f, x: ox.cond(x.sum() > 0, lambda: f(x), lambda: f(x * 2)), [(x(2),), (x(3),), (-x(3),)]),
    "cond of operands": (
        lambda f, x: ox.cond(x.sum() > 0, lambda a: f(a), lambda a: a.sin() * f(a), (x * 1.5,)),
        [(x(2),), (-x(3),)],
    ),
    "while_loop": (_while, [(x(2),), (x(3),)]),
    "Loop": (
        lambda f, x, n: ox.ops.Loop(n, None, x, body=lambda i, go, h: (go, f(h) * 0.3))[0],
        [(x(2), number(2)), (x(3), number(1))],
    ),
    "scan": (_scan, [(x(3),), (x(2),)]),
    "cond in scan": (_scan_of_cond, [(x(3),), (x(2),)]),
    "loops in cond": (
        lambda f, x: ox.cond(x.sum() > 0, lambda: _scan_of_cond(f, x), lambda: _while(f, x)),
        [(x(3),), (-x(2),)],
    ),
}


FEW = ("both ways", "a Function with attributes", "checkpoint")
PAIRS = [(b, p) for b in BODIES for p in PLACES if b in FEW or p in ("cond", "Loop")]


@pytest.mark.parametrize(("body", "place"), PAIRS)
def test_as_in_eager_code(body: str, place: str) -> None:
    run, calls = PLACES[place]
    check(twice(lambda *given: run(BODIES[body], *given)), *calls)


@pytest.mark.parametrize("place", ("cond", "Loop", "cond in scan"))
@pytest.mark.parametrize("body", HOOKS)
def test_hooks(body: str, place: str) -> None:
    run, calls = PLACES[place]
    check(once(lambda *given: run(HOOKS[body], *given)), *calls)
    with pytest.raises(RecordError, match="second order goes through a hook"):
        record(twice(lambda *given: run(HOOKS[body], *given)), {f"in{i}": v for i, v in enumerate(calls[0])})


def test_one_value_with_two_histories() -> None:
    """Both read from outside: each has its own gradient, whichever is read first."""

    def step(x: Any) -> Any:
        fixed, other = x.detach(), HandedOn.apply(x)
        y = ox.cond(x.sum() > 0, lambda: fixed * x * other, lambda: other * fixed)
        return ox.scan(lambda h, a: (h * a * fixed[0] * x[0] + W[0] * W.detach()[0] * other[0], a), y[0], y)[0]

    check(twice(step), (x(2),), (x(3),), (-x(3),))


def test_what_follows_from_what_is_read_too() -> None:
    def step(x: Any) -> Any:
        h = (x @ W).tanh()
        return ox.cond(x.sum() > 0, lambda: h * x, lambda: h + x)

    check(twice(step), (x(2),), (-x(3),))


def test_a_parameter_that_nobody_declared() -> None:
    hidden = ox.full((4,), 0.5).requires_grad_()

    def step(x: Any) -> Any:
        y = ox.cond(x.sum() > 0, lambda: x * hidden, lambda: x + hidden)
        return y, *grad((y * y).sum(), [hidden])

    check(step, (x(2),), (-x(3),))


def test_branches_of_different_sizes_have_gradients() -> None:
    def step(x: Any) -> Any:
        y = ox.cond(x.sum() > 0, lambda: (x @ W).tanh(), lambda: (x[:1] * W[:1]).sin())
        return y * y.shape[0]

    check(twice(step), (x(2),), (-x(3),), (x(4),))


def test_no_gradient_at_all() -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y, z = ox.cond(x.sum() > 0, lambda: (x.detach() * 2, x * 1), lambda: (x.detach(), x * 2))
        _, ys = ox.scan(lambda h, a: (h + a.detach(), a.detach() * 3), x[0].detach(), x)
        assert [t.requires_grad for t in (y, z, ys)] == [False, True, False]
        return y, *grad((y * z).sum(), [x])

    check(step, (x(2),), (-x(3),))


def test_after_no_step() -> None:
    def step(x: Any, n: Any) -> Any:
        x = x.detach().requires_grad_()
        body = lambda i, go, h: (go, hooked(h @ W, lambda g: g * 2).detach() * h, h.detach())  # noqa: E731
        y, _ = ox.ops.Loop(n, None, x, body=body)
        return y, *grad((y * y).sum(), [x])

    check(step, (x(2), number(0)), (x(3), number(2)))
    check(step, (x(2), number(2)), (x(3), number(0)))


@pytest.mark.parametrize("body", ["a Function", "both ways", "checkpoint"])
def test_a_checkpoint_around(body: str) -> None:
    for place in ("cond", "cond in scan"):
        run, calls = PLACES[place]
        check(twice(lambda x, run=run: checkpoint(lambda x: run(BODIES[body], x), x)), *calls)


def test_what_a_closure_reads_may_be_bound_anew() -> None:
    def step(x: Any) -> Any:
        for i in range(3):
            x = ox.cond(x.sum() > 0, lambda: (x @ W).tanh() * (i + 1), lambda: x * 0.5 * (W[0] + i))  # noqa: B023
        return x

    check(twice(step), (x(2),), (-x(3),))


def test_gradients_of_each_other() -> None:
    """A gradient inside of what is outside, of a gradient inside, and by what lies between."""

    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        h = (x @ W).tanh()
        y = ox.cond(x.sum() > 0, lambda: Rounded.apply(h) * x.detach(), lambda: h.detach() * x + h)
        between = grad((y * y).sum(), [h, x], create_graph=True)
        inside = ox.cond(
            h.sum() > 0,
            lambda: grad((y * y).sum(), [x, W], create_graph=True),
            lambda: grad(y.sum(), [x, W], create_graph=True),
        )
        return (*between, *grad(sum((g * g).sum() for g in (*between, *inside)), [x, W]))

    check(step, (x(2),), (x(3),), (-x(3),))


def test_learning_inside_a_loop() -> None:
    def step(x: Any) -> Any:
        def followed(i: Any, w: Any) -> Any:
            return i + 1, w - 0.1 * grad(((x @ w).tanh() ** 2).sum(), [w], create_graph=True)[0]

        def cut(i: Any, w: Any) -> Any:
            w = w.detach().requires_grad_()
            return i + 1, (w - 0.1 * grad(((x @ w).tanh() ** 2).sum(), [w])[0]).detach()

        first, second = (ox.while_loop(lambda i, w: i < 2, f, (0, W * 1))[1] for f in (followed, cut))
        return x @ first + x @ second

    check(twice(step), (x(2),), (x(3),))


def test_truncated_backpropagation() -> None:
    def step(x: Any) -> Any:
        return ox.scan(lambda h, a: (((h.detach() + a) @ W).tanh(), h * a), x[0] * 0, x)[1]

    check(twice(step), (x(3),), (x(5),))


def test_a_hook_inside_on_what_is_outside_is_refused() -> None:
    def on_input(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return ox.cond(x.sum() > 0, lambda: (x.register_hook(lambda g: g * 2), x)[1], lambda: x)

    def on_node(x: Any) -> Any:
        y = x.detach().requires_grad_() * 2
        return ox.cond(x.sum() > 0, lambda: (y.grad_fn.register_prehook(lambda g: g), y)[1], lambda: y)

    def afterwards(x: Any) -> Any:
        def branch() -> Any:
            W.register_post_accumulate_grad_hook(lambda w: None)
            return x @ W

        return ox.cond(x.sum() > 0, branch, lambda: x)

    for function in (on_input, on_node, afterwards):
        with pytest.raises(RecordError, match="a hook is set inside") as caught:
            record(function, {"x": x(3)})
        assert "test_control_gradients.py" in (caught.value.where or "")


def test_when_the_recording_is_over() -> None:
    kept: list[Any] = []

    def leaks(x: Any) -> Any:
        kept.append(ox.cond(x.sum() > 0, lambda: x @ W, lambda: x * W[0]))
        return kept[-1]

    record(leaks, {"x": x(3)})
    with pytest.raises(GradientError, match="recording is over"):
        kept[0].sum().backward()


def test_a_loop_that_writes_what_it_is_given_is_refused() -> None:
    with pytest.raises(RecordError, match="writes in place to a value that it is given"):
        record(lambda x: ox.scan(lambda h, a: (h.add_(a), a), x[0] * 1, x)[0], {"x": x(3)})


def test_what_one_branch_made_is_not_read_in_another() -> None:
    kept: list[Any] = []
    with pytest.raises(RecordError, match="used outside"):
        record(
            lambda x: ox.cond(x.sum() > 0, lambda: kept.append(x * 2) or x, lambda: x + kept[-1]),  # type: ignore[func-returns-value]
            {"x": x(3)},
        )


def test_numbers_as_carried_values() -> None:
    def step(x: Any) -> Any:
        n, scale, y = ox.while_loop(lambda n, s, y: n < 3, lambda n, s, y: (n + 1, s * 0.5, y * s), (0, 1.5, x))
        assert (n.dtype, scale.dtype) == (np.int64, np.float32)
        return n, scale, y

    check(step, (x(2),), (x(3),))
