"""vmap: one run for all examples gives what one run an example gives."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, ShapeError
from ox.func import grad, jacrev, vmap
from ox.func.batching_rules import NotBatchable
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.nn import functional as F

MODULE = sys.modules["ox.func.vectorize"]


def numbers(*shape: int, seed: int = 0) -> Any:
    return ox.tensor(np.random.default_rng(seed).normal(size=shape))


X, W, V, I = numbers(6, 3, 4), numbers(4, 5, seed=1), numbers(4, seed=2), ox.tensor([2, -1, 1, 1, 0, 2])  # noqa: E741

TOGETHER = [
    lambda x: x.exp() * 2 + V,
    lambda x: V - x.T[:, 0].sum(),
    lambda x: x @ W,
    lambda x: W.T @ x[0],
    lambda x: x[1] @ W,
    lambda x: x @ V,
    lambda x: x[0] @ x[1],
    lambda x: x @ x.T,
    lambda x: ox.matmul(W.T, x.T),
    lambda x: F.linear(x, W.T, numbers(5)),
    lambda x: x.sum() + x.mean(0) + x.amax(-1).sum(),
    lambda x: x.softmax(0).log_softmax(-1),
    lambda x: x.cumsum(1).flip(0),
    lambda x: x.reshape(2, 6).transpose(0, 1).flatten(),
    lambda x: x.unsqueeze(1).expand(3, 2, 4).squeeze(0),
    lambda x: x[1:, ::2].repeat(2, 1),
    lambda x: ox.cat([x, W.T[:, :4]], 0),
    lambda x: ox.stack(x.unbind(0), 1),
    lambda x: x.split([1, 2])[1],
    lambda x: x[[0, 2]],
    lambda x: x[:, [3, 1]],
    lambda x: W[x.argmax(-1)],
    lambda x: W.T[:, x.argmax(-1)],
    lambda x: x[x.argmax(0) % 3],
    lambda x: x[:, x.argmax(1)],
    lambda x: x.gather(1, x.argmin(1, keepdim=True)),
    lambda x: x.scatter_add(1, ox.zeros(3, 4, dtype=ox.int64), x),
    lambda x: ox.where(x > 0, x, V),
    lambda x: x.clamp(-1, 1).abs().sqrt().float(),
    lambda x: x.var(1) + x.norm(dim=1),
    lambda x: F.pad(x, (1, 0, 2, 1)),
    lambda x: x.tril(),
    lambda x: F.layer_norm(x, (4,)),
    lambda x: F.conv2d(x.reshape(1, 1, 3, 4), numbers(2, 1, 2, 2)),
    lambda x: F.max_pool2d(x.reshape(1, 1, 3, 4), 2, return_indices=False),
    lambda x: F.relu(x) + F.gelu(x) + F.elu(x),
    lambda x: ox.log1p(x.abs()) + ox.expm1(x) + ox.special.erfinv(x.tanh()) + ox.special.erfc(x),
    lambda x: ox.lgamma(x) + ox.digamma(x.abs() + 1) + ox.polygamma(2, x.abs() + 1),
    lambda x: ox.hypot(x, V) + ox.atan2(V, x),
    lambda x: ox.signbit(x) | ox.signbit(V),
    lambda x: F.silu(x) + V,
    lambda x: ox.gcd(x.long(), V.long()),
    lambda x: (x.long() << 2) | 1,
    lambda x: (x, {"a": x.sum(), "b": [x * 0]})[1],
    lambda x: ox.zeros(2, dtype=ox.float64) + V[0],
    lambda x: grad(lambda u: (u.tanh() @ W).square().sum())(x),
    lambda x: grad(lambda w: (x.tanh() @ w).square().sum())(W),
    lambda x: jacrev(lambda u: u[0] * u[1])(x),
    lambda x: vmap(lambda row: row.softmax(0) * V)(x),
    lambda x: vmap(lambda column: column.sum(), in_dims=1)(x),
]


def one_by_one(function: Any, x: Any) -> Any:
    from ox.autograd.pytree import flatten

    rows = [flatten(function(x[i]))[0] for i in range(len(x))]
    return flatten(function(x[0]))[1]([ox.stack(list(column)) for column in zip(*rows, strict=True)])


def assert_equal(got: Any, expected: Any) -> None:
    from ox.autograd.pytree import leaves_of

    for a, b in zip(leaves_of(got), leaves_of(expected), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype)
        np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-9, atol=1e-12)


@rows("function", TOGETHER)
def test_together_is_one_by_one(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MODULE, "FEW", 0)
    monkeypatch.setattr(MODULE, "_each", lambda *_: pytest.fail("ran one by one"))
    assert_equal(vmap(function)(X), one_by_one(function, X))


@rows(
    "function",
    [
        lambda x: x.sort(1)[0],
        lambda x: x * 2 if x.sum().item() > 0 else x * 3,  # a branch on values
        lambda x: ox.tensor(float(x[0, 0])),
        lambda x: ox.from_numpy(np.sin(x.numpy())),
    ],
)
def test_what_runs_one_by_one(function: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    before = MODULE.run_batched

    def run_batched(*args: Any) -> Any:
        try:
            return before(*args)
        except NotBatchable:
            tried.append(1)
            raise

    monkeypatch.setattr(MODULE, "run_batched", run_batched)
    assert_equal(vmap(function)(X), one_by_one(function, X))
    assert tried


def test_gradients_follow_what_is_mapped_and_what_is_captured() -> None:
    x, w, v = X.clone().requires_grad_(), W.clone().requires_grad_(), V.clone().requires_grad_()

    def function(x: Any, w: Any) -> Any:
        return (x * v).tanh() @ w

    run_batched = ox.autograd.grad(vmap(function, in_dims=(0, None))(x, w).square().sum(), [x, w, v])
    apart = ox.autograd.grad(one_by_one(lambda x: function(x, w), x).square().sum(), [x, w, v])
    for a, b in zip(run_batched, apart, strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy())


class Straight(ox.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        return x.round()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g * 7


def watched(x: Any) -> Any:
    layer = ox.nn.Identity()
    layer.register_full_backward_hook(lambda module, given, arrived: (given[0] * 3,))
    return layer(x) * x


def hooked(x: Any) -> Any:
    y = x * 2
    y.register_hook(lambda g: g * 5)
    return y


@rows(
    "function",
    [
        lambda x: x * x.detach(),
        lambda x: x.detach() * 2 + x.sum(),
        lambda x: (x * 2, x.detach().exp())[1] + 0 * x,
        lambda x: x * ox.no_grad()(lambda: x.exp())(),
        lambda x: ox.no_grad()(lambda: x.exp() * x)(),
        Straight.apply,
        hooked,
        lambda x: grad(lambda u: (u * x.detach() + u.detach() * x).sum())(x) * x,
        lambda x: ox.autograd.grad(((v := x.detach().requires_grad_()) ** 3).sum(), v, create_graph=True)[0] * x,
        watched,
    ],
)
def test_where_a_history_ends(function: Any) -> None:
    x = X.clone().requires_grad_()
    together, apart = vmap(function)(x), one_by_one(function, x)
    assert together.requires_grad == apart.requires_grad
    if together.requires_grad:
        a, b = (ox.autograd.grad((y * V).sum(), x)[0] for y in (together, apart))
        np.testing.assert_allclose(a.numpy(), b.numpy())


def test_one_value_around_with_two_histories() -> None:
    w = ox.full(X.shape[1:], 0.5).requires_grad_()
    other = Straight.apply(w)
    for function in (
        lambda x: x * w.detach() + x * w,
        lambda x: x * w + x * w.detach(),
        lambda x: x * w * other,
        lambda x: (x * w.detach(), w.detach(), w, other),
    ):
        found = []
        for run in (vmap(function), lambda x, f=function: one_by_one(f, x)):
            y = run(X)
            y = sum(y) if isinstance(y, tuple) else y
            found.append(ox.autograd.grad((y * y).sum(), w, retain_graph=True)[0])
        np.testing.assert_allclose(*(g.numpy() for g in found), rtol=1e-4)


def test_dimensions_in_and_out() -> None:
    assert_equal(vmap(lambda a, b: a * b, in_dims=(1, -1), out_dims=-1)(X, X.transpose(1, 2)), X.transpose(1, 2) ** 2)
    assert_equal(vmap(lambda a: (a, a.sum()), out_dims=(1, 0))(X)[0], X.transpose(0, 1))
    assert vmap(lambda a: V, out_dims=None)(X).tolist() == V.tolist()
    with pytest.raises(ArgumentError, match="differs from example to example"):
        vmap(lambda a: a, out_dims=None)(X)
    few = vmap(lambda a: (a * 2, a.sum()), in_dims=1, out_dims=(1, 0))(X[0, :, :2])
    assert_equal(few[0], X[0, :, :2] * 2)


def test_what_is_refused() -> None:
    for call, error in (
        (lambda: vmap(lambda a: a)(ox.ones(0, 2)), ShapeError),
        (lambda: vmap(lambda a, b: a)(X, X[:2]), ShapeError),
        (lambda: vmap(lambda a: a, in_dims=3)(X), ShapeError),
        (lambda: vmap(lambda a: a, in_dims=None)(X), ArgumentError),
        (lambda: vmap(lambda a, b: a)(X, 2), ArgumentError),
        (lambda: vmap(lambda a: 2)(X), ArgumentError),
        (lambda: vmap(lambda a: a, randomness="any"), ArgumentError),
        (lambda: vmap(lambda a: ox.rand(2))(X), ArgumentError),
    ):
        with pytest.raises(error) as caught:
            call()
        assert "test_vectorize.py" in caught.value.where


def test_random_numbers() -> None:
    for x in (X, X[:2]):
        ox.manual_seed(0)
        same = vmap(lambda a: ox.rand(2), randomness="same")(x)
        other = vmap(lambda a: ox.rand(2), randomness="different")(x)
        assert (same == same[0]).all().item()
        assert len({tuple(row) for row in other.tolist()}) == len(x)


def test_writes() -> None:
    def inside(x: Any) -> Any:
        y = x * 2
        y[0] = V
        y[1].add_(1)
        return y

    assert_equal(vmap(inside)(X), one_by_one(inside, X))
    x = X.clone()
    vmap(lambda a: a.mul_(2))(x)  # to the examples themselves
    assert_equal(x, X * 2)


def test_it_is_recorded_for_any_number() -> None:
    def per_example(x: Any) -> Any:
        w = ox.ones(4, dtype=ox.float32)
        return vmap(grad(lambda row: (row * w).tanh().square().sum()))(x)

    def batch(rows: int) -> Any:
        return ox.from_numpy(np.random.default_rng(rows).random((rows, 4), dtype=np.float32))

    graph = record(per_example, {"x": batch(5)}, dims={"x": ["batch", 4]})
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 4, 9):
        (got,) = session.run(None, {"x": batch(count).numpy()})
        np.testing.assert_allclose(got, per_example(batch(count)).numpy(), rtol=1e-5, atol=1e-6)
