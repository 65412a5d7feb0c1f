"""ox.func and ox.autograd.functional beside PyTorch's: equal values, structures, gradients of the results, errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ox
import ox.autograd.functional
import ox.func

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")
# of PyTorch's own decompositions, where its jvp loads them
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")

_random = np.random.default_rng(3)
X, W, V = _random.normal(size=(5, 3)), _random.normal(size=(3, 4)), _random.normal(size=(3,))


def names(T: Any, tracked: bool = False) -> dict[str, Any]:
    made = {"x": T.tensor(X), "w": T.tensor(W), "v": T.tensor(V), "i": T.tensor(np.array([2, 0, 1, 1, 0]))}
    if tracked:
        for k in "xwv":
            made[k].requires_grad_()
    return {"T": T, "F": T.func, "A": T.autograd.functional, **made}


# F is func, A is autograd.functional; x [5, 3], w [3, 4], v [3] float64, i [5] int64
TRANSFORMS = """
F.grad(lambda v: (v ** 3).sum())(v)
F.grad(lambda v: v.sum() * 0)(v)
F.grad(lambda x, w: (x @ w).tanh().sum(), argnums=1)(x, w)
F.grad(lambda x, w: (x @ w).tanh().sum(), argnums=(0, 1))(x, w)
F.grad(lambda x, w: (x @ w).tanh().sum(), argnums=-1)(x, w)
F.grad(lambda p: (p["a"] * p["b"][0]).sum())({"a": v, "b": [v.exp()]})
F.grad(lambda v, s: (v * s).sum())(v, s=2.0)
F.grad(lambda v: ((v * v).sum(), {"aux": v * 2}), has_aux=True)(v)
F.grad_and_value(lambda v: (v * v).sum())(v)
F.grad_and_value(lambda v: ((v * v).sum(), v * 2), has_aux=True)(v)
F.grad(lambda v: F.grad(lambda u: (u ** 3).sum())(v).sum())(v)
F.grad(lambda v: F.grad(lambda u: (u ** 2 * v).sum())(v * 2).sum())(v)
F.grad(F.grad(F.grad(lambda s: s ** 5)))(v[0])
F.vjp(lambda v: v.sin(), v)[0]
F.vjp(lambda v: v.sin(), v)[1](v)
F.vjp(lambda x, w: (x @ w, x.sum()), x, w)[1]((x @ w, v[0]))
F.vjp(lambda x, w: x @ w, x, w)[1](x @ w)
F.vjp(lambda v: (v.sin(), v * 3), v, has_aux=True)[2]
F.vjp(lambda v: {"a": v.sin(), "b": v * 2}, v)[1]({"a": v, "b": v})
F.jvp(lambda v: v.sin(), (v,), (v + 1,))
F.jvp(lambda x, w: (x @ w).exp(), (x, w), (x * 2, w - 1))
F.jvp(lambda x, w: (x @ w, x.sum(0)), (x, w), (x * 2, w - 1))
F.jvp(lambda v: (v * v, v + 1), (v,), (v,), has_aux=True)
F.jvp(lambda v: F.jvp(lambda u: u ** 3, (v,), (v,))[1], (v,), (v * 2,))
F.jvp(F.grad(lambda v: (v ** 4).sum()), (v,), (v,))
F.jacrev(lambda v: v ** 2)(v)
F.jacrev(lambda v: v.sum())(v)
F.jacrev(lambda x, w: (x @ w)[0], argnums=1)(x, w)
F.jacrev(lambda x, w: (x @ w)[0], argnums=(0, 1))(x, w)
F.jacrev(lambda v: (v ** 2, {"a": v.sum()}))(v)
F.jacrev(lambda v: (v ** 2, v), has_aux=True)(v)
F.jacrev(lambda p: p["a"] * p["b"])({"a": v, "b": v * 2})
F.jacfwd(lambda v: v ** 2)(v)
F.jacfwd(lambda v: v.sum())(v)
F.jacfwd(lambda x, w: (x @ w)[0], argnums=(0, 1))(x, w)
F.jacfwd(lambda v: (v ** 2, v * 3))(v)
F.jacfwd(lambda v: (v ** 2, v), has_aux=True)(v)
F.hessian(lambda v: (v ** 3).sum())(v)
F.hessian(lambda v: v.prod() if hasattr(v, "prod") else v.sum())(v)
F.hessian(lambda x, w: (x @ w).tanh().sum(), argnums=1)(x[:2], w)
F.jacrev(F.jacfwd(lambda v: v.exp()))(v)
F.jacfwd(F.jacfwd(lambda v: v.exp() * v[0]))(v)
F.vmap(lambda u: u * 2)(x)
F.vmap(lambda u: u.sum())(x)
F.vmap(T.dot, in_dims=(0, None))(x, v)
F.vmap(lambda a, b: a @ b)(x, x + 1)
F.vmap(lambda a, b: a @ b, in_dims=(0, None))(x, w)
F.vmap(lambda a, b: a @ b, in_dims=(None, 0))(w.T, x)
F.vmap(lambda a, b: a @ b, in_dims=(None, 1))(x, w)
F.vmap(lambda u: u.softmax(0))(x)
F.vmap(lambda u: u.softmax(-1), in_dims=1, out_dims=1)(x)
F.vmap(lambda u: (u.exp(), u.sum()), out_dims=(1, 0))(x)
F.vmap(lambda u: {"a": u.mean(), "b": u.cumsum(0)})(x)
F.vmap(lambda p: p["a"] * p["b"], in_dims=({"a": 0, "b": None},))({"a": x, "b": v})
F.vmap(lambda u, *, k: u + k)(x, k=v * 2)
F.vmap(F.vmap(lambda a, b: a * b, in_dims=(0, None)), in_dims=(None, 0))(v, x)
F.vmap(F.vmap(lambda a: a.exp()))(x)
F.vmap(F.grad(lambda u: (u ** 3).sum()))(x)
F.vmap(F.grad(lambda w, u: (u @ w).tanh().sum()), in_dims=(None, 0))(w, x)
F.vmap(F.jacrev(lambda u: u.sin() * u[0]))(x)
F.vmap(F.hessian(lambda u: (u ** 3).sum() * u[1]))(x)
F.vmap(lambda u: F.jvp(lambda a: a.sin(), (u,), (u * 2,))[1])(x)
F.jacrev(lambda x: F.vmap(lambda u: (u * u).sum())(x))(x)
F.grad(lambda x: F.vmap(lambda u: u.prod() if hasattr(u, "prod") else u.sum())(x).sum())(x)
F.vmap(lambda u: u.reshape(3, 1).T.flatten())(x)
F.vmap(lambda u: u[1:] - u[:-1])(x)
F.vmap(lambda u: u[[0, 2]])(x)
F.vmap(lambda k: v[k])(i[:5] % 3)
F.vmap(lambda u, k: u[k], in_dims=(0, 0))(x, i)
F.vmap(lambda u, k: u.gather(0, k.reshape(1)))(x, i)
F.vmap(lambda u: T.where(u > 0, u, -u))(x)
F.vmap(lambda u: T.cat([u, u * 2]))(x)
F.vmap(lambda u: T.stack([u, v]))(x)
F.vmap(lambda u: u.max(0)[0])(x)
F.vmap(lambda u: u.argmax())(x)
F.vmap(lambda u: u.var())(x)
F.vmap(lambda u: u.norm())(x)
F.vmap(lambda u: u.unsqueeze(0).expand(2, 3))(x)
F.vmap(lambda u: u.clamp(-0.5, 0.5).abs().sqrt())(x)
F.vmap(lambda u: v * 2)(x)
F.vmap(lambda u: u.sort()[0])(x)
F.vmap(lambda u: u.flip(0).cumsum(0))(x)
F.vmap(lambda u: T.nn.functional.pad(u, (1, 2)))(x)
F.vmap(lambda a: a.sum(0), in_dims=2)(x.reshape(5, 3, 1).expand(5, 3, 4))
F.vmap(lambda a, b: a @ b)(x.unsqueeze(1), w.expand(5, 3, 4))
F.vmap(lambda a: a @ a.T)(x.unsqueeze(1).expand(5, 2, 3))
F.vmap(lambda a: T.nn.functional.linear(a, w.T))(x)
F.vmap(lambda a: T.nn.functional.layer_norm(a, (3,)))(x)
F.vmap(lambda a: T.nn.functional.conv1d(a.reshape(1, 1, 3), v.reshape(1, 1, 3), padding=1))(x)
F.vmap(lambda a, b: T.nn.functional.mse_loss(a, b))(x, x * 2)
F.vmap(lambda a, k: T.nn.functional.cross_entropy(a.unsqueeze(0), k.unsqueeze(0)))(x, i)
A.jacobian(lambda v: v ** 2, v)
A.jacobian(lambda x, w: x @ w, (x, w))
A.jacobian(lambda v: (v ** 2, v.sum()), v)
A.jacobian(lambda v: (v ** 2, v.sum()), (v,))
A.jacobian(lambda v: v ** 2, v, vectorize=True, strategy="forward-mode")
A.jacobian(lambda a, b: a * 2, (v, v))
A.hessian(lambda v: (v ** 3).sum(), v)
A.hessian(lambda a, b: (a * b ** 2).sum(), (v, v + 1))
A.hessian(lambda a, b: (a ** 2).sum(), (v, v + 1))
A.vjp(lambda x: x.sum(1), x, x[:, 0])
A.vjp(lambda v: v.sum(), v)
A.vjp(lambda a, b: a * 2 + b.sum(), (v, v), v)
A.jvp(lambda x: x.sum(1), x, x)
A.jvp(lambda a, b: (a * b, a.sum()), (v, v + 1), (v, v))
A.vhp(lambda v: (v ** 3).sum(), v, v)
A.hvp(lambda v: (v ** 3).sum(), v, v)
A.hvp(lambda a, b: (a * b ** 2).sum(), (v, v + 1), (v, v))
A.vhp(lambda a, b: (a * b ** 2).sum(), (v, v + 1), (v, v))
A.hvp(lambda v: v.sum(), v, v)
""".strip()

ERRORS = """
F.grad(lambda v: v * 2)(v)
F.grad(lambda v: (v * 2).sum())(i)
F.grad(lambda v: 3.0)(v)
F.grad(lambda v: v.sum(), argnums=1)(v)
F.grad(lambda v: v.sum(), has_aux=True)(v)
F.grad(lambda v: v.sum())("a")
F.vjp(lambda v: v * 2, v)[1](v, v)
F.vjp(lambda v: 3, v)
F.jvp(lambda v: v * 2, v, v)
F.jvp(lambda v: v * 2, (v,), (v, v))
F.jvp(lambda v: v * 2, (v,), (v[:2],))
F.jvp(lambda v: v * 2, (v,), (2.0,))
F.vmap(lambda u: u * 2)(v[0])
F.vmap(lambda a, b: a * b)(x, w)
F.vmap(lambda a: a * 2, in_dims=None)(x)
F.vmap(lambda a: a * 2, in_dims=2)(x)
F.vmap(lambda a: a * 2, in_dims=(0, 0))(x)
F.vmap(lambda a: 3.0)(x)
F.vmap(lambda a: a * 2, out_dims=(0, 0))(x)
F.vmap(lambda a: a * 2, out_dims=None)(x)
F.vmap(lambda a, b: a * b)(x, 2.0)
F.vmap(lambda a: a * T.rand(3))(x)
F.vmap(lambda a: a, randomness="some")(x)
A.jacobian(lambda v: 3, v)
A.jacobian(lambda v: v, 3)
A.hessian(lambda v: v * 2, v)
A.vjp(lambda v: v * 2, v)
A.vjp(lambda v: v * 2, v, v[:2])
A.jvp(lambda v: v * 2, v)
A.jacobian(lambda a, b: a * 2, (v, v), strict=True)
A.jacobian(lambda a: v * 2, v, strict=True)
A.vhp(lambda v: v * 2, v, v)
""".strip()


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, ox.Tensor)
        assert tuple(got.shape) == tuple(expected.shape)
        assert str(got.dtype) == str(expected.dtype).split(".")[1]
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-10)
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for k in expected:
            assert_same(got[k], expected[k])
    elif isinstance(expected, (tuple, list)):
        assert type(got) is type(expected)
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
    else:
        assert got == expected


def leaves(T: Any, tree: Any) -> list[Any]:
    if isinstance(tree, T.Tensor):
        return [tree]
    branches = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (tuple, list)) else []
    return [leaf for branch in branches for leaf in leaves(T, branch)]


@pytest.mark.parametrize("expression", TRANSFORMS.splitlines())
def test_value(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = eval(expression, names(torch))
    got = eval(expression, names(ox))
    assert_same(got, expected)
    assert not any(y.requires_grad for y in leaves(ox, got))


@pytest.mark.parametrize("expression", [e for e in TRANSFORMS.splitlines() if e.startswith("F.")])
def test_gradients_of_results(expression: str) -> None:
    """Around a transform the ordinary tape goes on: results follow the tensors that it was given, or that it found."""
    found = []
    for T in (torch, ox):
        given = names(T, tracked=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = [y for y in leaves(T, eval(expression, given)) if y.requires_grad]
        inputs = [given[k] for k in "xwv"]
        total = sum(((y * y.detach().cos()).sum() for y in result), T.zeros((), dtype=T.float64))
        grads = T.autograd.grad(total, inputs, allow_unused=True) if total.requires_grad else [None] * 3
        found.append([T.zeros_like(x) if g is None else g for g, x in zip(grads, inputs, strict=True)])
    for expected, got in zip(*found, strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("expression", ERRORS.splitlines())
def test_error(expression: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception):  # noqa: B017 (whatever PyTorch raises)
            eval(expression, names(torch))
    with pytest.raises(ox.OxError):
        eval(expression, names(ox))


def models(T: Any, count: int) -> list[Any]:
    made = []
    for k in range(count):
        m = T.nn.Sequential(T.nn.Linear(3, 4), T.nn.Tanh(), T.nn.Linear(4, 2))
        random = np.random.default_rng(k)
        state = {name: random.normal(size=tuple(p.shape)).astype(np.float32) for name, p in m.named_parameters()}
        m.load_state_dict({name: T.tensor(a) for name, a in state.items()})
        made.append(m)
    return made


def test_modules_as_functions() -> None:
    """An ensemble, and the gradient of each example, as in PyTorch's tutorials."""
    found = []
    for T in (torch, ox):
        several = models(T, 5)
        params, buffers = T.func.stack_module_state(several)
        x = T.tensor(X.astype(np.float32))
        base = several[0]

        def predict(p: Any, b: Any, x: Any, T: Any = T, base: Any = base) -> Any:
            return T.func.functional_call(base, (p, b), (x,))

        def loss(p: Any, x: Any, T: Any = T, base: Any = base) -> Any:
            return T.func.functional_call(base, p, (x.unsqueeze(0),)).square().sum()

        one = {name: p.detach() for name, p in base.named_parameters()}
        found.append(
            [
                T.func.vmap(predict, in_dims=(0, 0, None))(params, buffers, x),
                T.func.vmap(T.func.grad(loss), in_dims=(None, 0))(one, x),
                T.func.functional_call(base, {"0.weight": T.zeros(4, 3)}, x),
                T.func.hessian(loss)({"2.bias": one["2.bias"]}, x[0])["2.bias"],
            ]
        )
        assert all(p.grad is None for p in base.parameters())
    for expected, got in zip(*found, strict=True):
        for a, b in zip(leaves(ox, got), leaves(torch, expected), strict=True):
            np.testing.assert_allclose(a.detach().numpy(), b.detach().numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_random_numbers(randomness: str) -> None:
    for T in (torch, ox):
        y = T.func.vmap(lambda a, T=T: a * 0 + T.rand(3), randomness=randomness)(T.zeros(6, 3))
        assert bool((y[0] == y[1]).all()) == (randomness == "same")
