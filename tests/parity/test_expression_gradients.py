"""Gradients and writes in place, in ox and in PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

_random = np.random.default_rng(1)
X, Y = _random.normal(size=(3, 4)), _random.uniform(0.5, 2, size=(4,))
COLS = np.array([[3, 0, 1, 1], [0, 0, 2, 3], [1, 2, 3, 0]])

# of x [3, 4] and y [4], both differentiated
GRADIENTS = """
x + y; x - y; x * y; x / y; y / x; x ** 2; x ** 3; y ** x; (x * x + 1) ** y; y ** -1.5; 2 ** x; x % y; x @ y
y @ x.T
x.sum(); x.sum(0); x.sum(1, keepdim=True); x.mean(); x.mean((0, 1)); x.mean(0) * y; x.max(); x.min(); x.amax(0)
x.amin(1, keepdim=True)
x.max(1)[0]; x.min(0)[0]; x.max(0, keepdim=True)[0]; x.var(); x.var(0); x.std(1); x.std(0, correction=0); x.norm()
x.norm(dim=1)
x.norm(1); x.norm(3, 0); x.norm(float("inf"), 1); x.softmax(0); x.softmax(1) * y
x.log_softmax(-1) * y
x.exp(); y.log(); y.sqrt(); y.rsqrt(); y.reciprocal(); x.tanh(); x.sigmoid(); x.relu(); x.erf(); x.sin(); x.cos()
x.abs(); x.square()
x.clamp(-0.5, 0.5); x.clamp(min=0); x.clamp(min=y); x.clamp(max=y); x.maximum(y); x.minimum(y); T.where(x > 0, x, y)
T.where(x > 0, x * y, 0.0)
x.masked_fill(x > 0, 2.0) * y; x.reshape(2, 6)[0]; x.flatten()[::2]; x.T @ x; x.permute(1, 0) * x[:, :3].sum()
x.unsqueeze(1).expand(3, 2, 4) * y
y.expand(3, 4) * x; x.repeat(2, 3); y.repeat(2, 1) * x[:2]; T.cat([x, y.unsqueeze(0)]); T.stack([x[0], y, x[2]], 1)
x.split(2)[1]; x.split([1, 3], 1)[1] * y[1:]
x.chunk(2, 1)[0] * x.chunk(2, 1)[1]; x.unbind(0)[1] * y; x.narrow(1, 1, 2); x.flip(0) * x; x[0]; x[-1, 1:]
x[:, ::2]; x[..., None] * y
x[[0, 2, 2, 0]] * y; x[:, cols[0]] * y; x[[0, 1], [1, 2]]; x[cols[:, :3] % 3]; x[x > 0]; x[:, cols[0] > 0]
x[None, [0, 0], :, None]
x.gather(1, cols) * y; x.gather(0, cols % 3); x.index_select(1, cols[0])
x.scatter(1, cols[:, :2], y.expand(3, 4)[:, :2] * 2); x.scatter(0, cols[:1] % 3, 5.0)
x.scatter_add(1, cols, x * 3); y.scatter_add(0, cols[0], x[1]); x.clone() * x; x.contiguous() * y; x.T.contiguous()
x.detach() * x; (x * 2).detach() + y
x.float().double() * y; (x > 0) * x; x * True; x * 3 - 1; 1 / y - 2; x.logical_not() * y; -x; +x * y; abs(x)
T.add(x, y, alpha=2); x - x; x / x.detach()
x.t(); x.mT @ x; x.unflatten(1, (2, 2))[..., 0]; x.squeeze(); x[:1].squeeze(0) * y
x.dot(x) if x.ndim == 1 else y.dot(y); x.floor() + x; x.ceil() * y; x.sign() * x
""".strip()

# statements on z (a copy of x * y, so no leaf, or of x alone), followed by the gradient of (z * z).sum()
WRITES = """
z.add_(1); z.sub_(y); z.mul_(y); z.div_(2); z.mul_(2).add_(x); z += y; z -= 1; z *= x; z /= y; z.clamp_(0)
z.relu_(); z.neg_(); z.zero_(); z.fill_(3.0)
z.copy_(y); z.copy_(x * 3); z.masked_fill_(x > 0, 1.0); z.scatter_(1, cols[:, :1], 2.0); z.scatter_add_(1, cols, x)
z[0] = 1.0; z[1:] = y; z[:, 0] = x[:, 1]; z[..., ::2] = 0; z[0, 0] = y[0]; z[[0, 2]] = x[:2]
z[[0, 1], [2, 3]] = y[:2]; z[x > 0] = 0.5; z[x > 0] = y[0]
z[cols[:, 0] % 3, 1:] = 7.0; z[:] = x; z[...] = y; z[-1] += y; z[0] *= 2; z[None, 0] = y; z[:, cols[0] > 0] = 1.0
z[1, [0, 2]] = y[:2]; z[0:0] = 1.0
z[:, [0, 3]] = x[:, 1:3]; z[(x > 0).logical_not()] = 3; z[0] = x[0:1]; z[1][...] = 0.0 if z.requires_grad else 1.0
""".strip()


def parts(text: str) -> list[str]:
    return [p.strip() for line in text.splitlines() for p in line.split("; ") if p.strip()]


def sides() -> Any:
    for T in (ox, torch):
        x, y = T.tensor(X, requires_grad=True), T.tensor(Y, requires_grad=True)
        yield {"T": T, "x": x, "y": y, "cols": T.tensor(COLS)}


def assert_same(got: Any, expected: Any) -> None:
    assert (got is None) == (expected is None)
    if got is not None:
        assert str(got.dtype) == str(expected.dtype).split(".")[1]
        np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(force=True), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("expression", parts(GRADIENTS))
def test_gradient(expression: str) -> None:
    """First and, through a weighted sum of the gradients, second order."""
    found = []
    for names in sides():
        x, y, T = names["x"], names["y"], names["T"]
        out = eval(expression, names)
        weights = T.tensor(np.cos(np.arange(int(np.prod(out.shape, dtype=int)))).reshape(tuple(out.shape)))
        if out.requires_grad:
            grads = T.autograd.grad((out * weights).sum(), [x, y], create_graph=True, allow_unused=True)
            total = sum(((g * g * 0.5).sum() for g in grads if g is not None), T.zeros((), dtype=T.float64))
            if total.requires_grad:
                total.backward()
        else:
            grads = (None, None)
        found.append([out, *grads, x.grad, y.grad])
    for i, (got, expected) in enumerate(zip(*found, strict=True)):
        if i < 3 or (got is not None and expected is not None):
            assert_same(got, expected)
        else:  # a second derivative that one side knows to be zero
            known = got if expected is None else expected
            assert known is None or not known.numpy(**({} if got is known else {"force": True})).any()


@pytest.mark.parametrize("statement", parts(WRITES))
@pytest.mark.parametrize("tracked", [True, False])
def test_write_in_place(statement: str, tracked: bool) -> None:
    found = []
    for names in sides():
        x, y, T = names["x"], names["y"], names["T"]
        z = names["z"] = x * y if tracked else T.tensor(X * Y)
        if not tracked:
            names["x"], names["y"] = x.detach(), y.detach()
        exec(statement, names)
        assert names["z"] is z  # the same object was written
        if tracked and z.requires_grad:  # filled with numbers, z depends on nothing: PyTorch sends zeros back
            (z * z).sum().backward()
        found.append([z, x.grad, y.grad])
    for got, expected in zip(*found, strict=True):
        if got is None or expected is None:
            known = got if expected is None else expected
            assert known is None or not known.numpy(**({} if got is known else {"force": True})).any()
        else:
            assert_same(got, expected)
