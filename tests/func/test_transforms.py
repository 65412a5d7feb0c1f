"""Gradients, products and Jacobians of functions: against formulas, against each other, and around the tape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox import nn
from ox.autograd import functional, gradcheck
from ox.errors import ArgumentError, GradientError, ShapeError
from ox.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    replace_all_batch_norm_modules_,
    stack_module_state,
    value_and_grad,
    vjp,
)


def numbers(*shape: int, seed: int = 0) -> Any:
    return ox.tensor(np.random.default_rng(seed).normal(size=shape))


def cube(v: Any) -> Any:
    return (v**3).sum()


def test_polynomials() -> None:
    v = ox.tensor([1.0, 2.0, -3.0], dtype=ox.float64)
    assert grad(cube)(v).tolist() == [3, 12, 27]
    assert grad(grad(lambda s: s**5))(v[1]).item() == 160
    assert hessian(cube)(v).tolist() == [[6, 0, 0], [0, 12, 0], [0, 0, -18]]
    assert [y.tolist() for y in jvp(lambda v: v**2, (v,), (v,))] == [[1, 4, 9], [2, 8, 18]]
    slope, value = value_and_grad(cube)(v)
    assert (slope.tolist(), value.item()) == ([3, 12, 27], -18)
    assert value_and_grad is grad_and_value


def test_the_ways_agree() -> None:
    a, x = numbers(4, 3), numbers(3, seed=1)

    def f(x: Any) -> Any:
        return (a @ x).tanh() * x.sum()

    rows, columns = jacrev(f)(x), jacfwd(f)(x)
    np.testing.assert_allclose(rows.numpy(), columns.numpy())
    np.testing.assert_allclose(functional.jacobian(f, x).numpy(), rows.numpy())
    u, t = numbers(4, seed=2), numbers(3, seed=3)
    np.testing.assert_allclose(vjp(f, x)[1](u)[0].numpy(), (u @ rows).numpy())
    np.testing.assert_allclose(jvp(f, (x,), (t,))[1].numpy(), (rows @ t).numpy())
    for eps in (1e-6,):
        numeric = (f(x + t * eps) - f(x - t * eps)) / (2 * eps)
        np.testing.assert_allclose(jvp(f, (x,), (t,))[1].numpy(), numeric.numpy(), rtol=1e-6)
    h = hessian(lambda x: f(x).square().sum())(x)
    np.testing.assert_allclose(h.numpy(), h.T.numpy())
    np.testing.assert_allclose(functional.hessian(lambda x: f(x).square().sum(), x).numpy(), h.numpy())
    np.testing.assert_allclose(functional.hvp(lambda x: f(x).square().sum(), x, t)[1].numpy(), (h @ t).numpy())
    np.testing.assert_allclose(functional.vhp(lambda x: f(x).square().sum(), x, t)[1].numpy(), (t @ h).numpy())


def test_results_belong_to_no_graph_of_their_own() -> None:
    v, w = numbers(3), numbers(3, seed=1)
    assert not grad(cube)(v).requires_grad
    w.requires_grad_()
    assert grad(lambda v: (v * v * w).sum())(v).requires_grad  # what it found around is followed
    with ox.no_grad():
        g = grad(lambda v: (v * v * w).sum())(v)
        np.testing.assert_allclose(g.numpy(), (2 * v * w).numpy())
    assert not g.requires_grad
    assert w.grad is None
    assert gradcheck(grad(lambda w: (w * w.exp()).sum()), [w], order=2)
    assert gradcheck(lambda w: jvp(lambda u: u.sin() * w, (w,), (w * 2,))[1], [w])
    assert gradcheck(jacrev(lambda w: w.exp() * w[0]), [w])


def test_a_leaf_inside_is_not_the_one_outside() -> None:
    v = numbers(3)
    seen: list[Any] = []

    def f(u: Any) -> Any:
        seen.append(u)
        return (u * v).sum()

    assert grad(f)(v).tolist() == v.tolist()  # the v that was captured is a constant
    assert seen[0] is not v
    assert np.shares_memory(seen[0].numpy() if not seen[0].requires_grad else seen[0].detach().numpy(), v.numpy())


@rows(
    "call, error, text",
    [
        (lambda v: grad(lambda v: v)(v), ShapeError, "no dimensions"),
        (lambda v: grad(cube)(v.long()), ArgumentError, "floating"),
        (lambda v: grad(cube, argnums=2)(v), ArgumentError, "no argument 2"),
        (lambda v: grad(cube, has_aux=True)(v), ArgumentError, "a pair"),
        (lambda v: jvp(cube, v, v), ArgumentError, "tuples"),
        (lambda v: jvp(cube, (v,), (v[:1],)), ShapeError, "another shape"),
        (lambda v: vjp(cube, v)[1](v[0], v[0]), ArgumentError, "number of cotangents"),
        (lambda v: jvp(lambda v: ox.ones(1), (v,), (v,), strict=True), ArgumentError, "does not depend"),
        (lambda v: functional.jacobian(lambda v: ox.ones(1), v, strict=True), GradientError, "does not depend"),
        (lambda v: functional.jacobian(cube, v, strategy="sideways"), ArgumentError, "strategy"),
        (lambda v: functional.vjp(lambda v: v, v), ArgumentError, "needs v"),
        (lambda v: functional.hvp(lambda v: v, v, v), ShapeError, "one element"),
    ],
)
def test_errors(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text) as caught:
        call(numbers(3))
    assert "test_transforms.py" in caught.value.where


def test_functional_call() -> None:
    m = nn.Sequential(nn.Linear(2, 2, bias=False), nn.BatchNorm1d(2))
    before = {name: t.numpy().copy() for name, t in m.state_dict().items()}
    w = ox.eye(2).requires_grad_()
    m.eval()
    x = ox.tensor([[1.0, 2.0]])
    y = functional_call(m, {"0.weight": w}, x)
    np.testing.assert_allclose(y.detach().numpy(), [[1, 2]], rtol=1e-4)
    y.sum().backward()
    assert w.grad is not None
    assert m[0].weight.grad is None
    for name, t in m.state_dict().items():
        np.testing.assert_array_equal(t.numpy(), before[name])
    with pytest.raises(ArgumentError, match="other names") as caught:
        functional_call(m, {"0.wait": w}, x)
    assert "0.weight" in caught.value.expected
    with pytest.raises(ArgumentError, match="other names"):
        functional_call(m, {"0.weight": w}, x, strict=True)
    with pytest.raises(ZeroDivisionError):
        functional_call(m, [{"0.weight": w}, {}], (1 / 0,))
    assert m[0].weight is not w


def test_tied_weights() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(ox.ones(1))
            self.b = self.a

        def forward(self, x: Any) -> Any:
            return x * self.a + self.b

    m, two = Tied(), ox.full((1,), 2.0)
    assert functional_call(m, {"a": two}, ox.ones(1)).item() == 4
    assert functional_call(m, {"a": two}, ox.ones(1), tie_weights=False).item() == 3
    with pytest.raises(ArgumentError, match="two tensors"):
        functional_call(m, {"a": two, "b": ox.ones(1)}, ox.ones(1))
    assert m.a is m.b


def test_stacking() -> None:
    several = [nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)) for _ in range(3)]
    params, buffers = stack_module_state(several)
    assert params["0.weight"].shape == (3, 2, 3)
    assert params["0.weight"].is_leaf
    assert params["0.weight"].requires_grad
    assert buffers["1.running_mean"].shape == (3, 2)
    assert not buffers["1.running_mean"].requires_grad
    for wrong in ([], [nn.Linear(1, 1), nn.Tanh()], [nn.Tanh(), nn.Tanh().eval()]):
        with pytest.raises(ArgumentError, match="stack_module_state"):
            stack_module_state(wrong)
    replace_all_batch_norm_modules_(several[0])
    assert several[0][1].running_mean is None
    assert not several[0][1].track_running_stats
