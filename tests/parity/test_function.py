"""Custom Functions, checkpoints, saved-tensor hooks and anomalies: one program, run by ox and by PyTorch."""

from __future__ import annotations

import contextlib
import importlib
import io
import warnings
from typing import Any

import numpy as np
import pytest

import ox
import ox.autograd.graph

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

_random = np.random.default_rng(7)
X, W = _random.normal(size=(3, 4)), _random.uniform(0.5, 2, size=(4,))

# what every program may use
PRELUDE = """
Function = T.autograd.Function

class Mul(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b
    @staticmethod
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        log(ctx.needs_input_grad)
        return g * b if ctx.needs_input_grad[0] else None, (g * a).sum(0) if ctx.needs_input_grad[1] else None

class Exp(Function):
    @staticmethod
    def forward(x, scale):
        return (x * scale).exp()
    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.scale = inputs[1]
        ctx.save_for_backward(output)
    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0] * ctx.scale, None

def make(forward, backward=lambda ctx, *g: g):
    return type("Made", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})
"""

PROGRAMS = """
y = Mul.apply(x, w)
y.sum().backward()

y = Mul.apply(x, w.detach())
(y * y).sum().backward()

y = Mul.apply(x.detach(), w)
(y * y).sum().backward()

y = Mul.apply(x.detach(), w.detach())
log(y.requires_grad)

y = Exp.apply(x, 0.5) * Mul.apply(x, w)
y.sum().backward()

g, = T.autograd.grad(Exp.apply(x, 0.5).sum(), x, create_graph=True)
(g * g).sum().backward()

g, = T.autograd.grad(Mul.apply(x, w).pow(2).sum(), x, create_graph=True)
(g * g).sum().backward()

y = Mul.apply(x, w)
log(y.grad_fn.name(), y.is_leaf, y.requires_grad)
y.sum().backward()

with T.no_grad(): y = Mul.apply(x, w)
log(y.requires_grad)

y = make(lambda ctx, a: a, lambda ctx, g: g * 3).apply(x)
log(y is x)
(y * y).sum().backward()

y = make(lambda ctx, a: a.view(-1), lambda ctx, g: g.view(3, 4) * 3).apply(x)
(y * y).sum().backward()

y = make(lambda ctx, a: a, lambda ctx, g: g).apply(x * 1)
y.add_(1)

y = make(lambda ctx, a: a.view(-1), lambda ctx, g: g.view(3, 4)).apply(x * 1)
y.add_(1)

y = make(lambda ctx, a: a.detach() * 2, lambda ctx, g: g * 2).apply(x)
y.add_(1)
y.mul_(y.detach())
y.sum().backward()

a, b = make(lambda ctx, a: (a * 2, a * 3), lambda ctx, p, q: p * 2 + q * 3).apply(x)
(a * b).sum().backward()

a, b = make(lambda ctx, a: (a * 2, a * 3), lambda ctx, p, q: log(p, q) or p).apply(x)
a.sum().backward()

a, b = make(lambda ctx, a: (ctx.set_materialize_grads(False), a * 2, a * 3)[1:], lambda ctx, p, q: log(q) or p).apply(x)
a.sum().backward()

a, b = make(lambda ctx, a: (a * 2, a.argmax(1)), lambda ctx, p, q: log(q) or p).apply(x)
log(b, b.requires_grad)
a.sum().backward()

def f(ctx, a): b = a * 3; ctx.mark_non_differentiable(b); return a * 2, b
a, b = make(f, lambda ctx, p, q: log(q) or p).apply(x)
log(b.requires_grad)
(a * b).sum().backward()

def f(ctx, a): a.mul_(2); ctx.mark_dirty(a); return a
h = x * 1
y = make(f, lambda ctx, g: g * 2).apply(h)
log(y is h)
(y * y).sum().backward()

def f(ctx, a): a.mul_(2); ctx.mark_dirty(a); return a
h = x * 1
r = h[0]
y = make(f, lambda ctx, g: g * 2).apply(h)
(r * r).sum().backward()

def f(ctx, a): a.mul_(2); ctx.mark_dirty(a); return a
h = x * 1
y = make(f, lambda ctx, g: g * 2).apply(h[0])
(h * h).sum().backward()

def f(ctx, a): a.mul_(2); ctx.mark_dirty(a); return a
y = make(f).apply(x)

def f(ctx, a): a.mul_(2); ctx.mark_dirty(a); return a
h = x * 1
k = h.exp()
y = make(f).apply(h)
(k + y).sum().backward()

y = make(lambda ctx, a, *r: a * 2, lambda ctx, g: (g, None, None)).apply(x, 1, "b")
y.sum().backward()

y = make(lambda ctx, a, *r: a * 2, lambda ctx, g: (g, None)).apply(x, 1, "b")
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: (g, None)).apply(x)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: (g, g)).apply(x)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: ()).apply(x)
y.sum().backward()

y = make(lambda ctx, a, b: a * 2, lambda ctx, g: (g, g)).apply(x, 3)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: g.sum()).apply(x)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: g[:2]).apply(x)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: g[None]).apply(x)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: g.float()).apply(x)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: 1.0).apply(x)
y.sum().backward()

y = make(lambda ctx, a: a * 2, lambda ctx, g: None).apply(x)
(y.sum() + x.sum()).backward()

y = make(lambda ctx, a: 3.0).apply(x)

y = type("None_", (Function,), {"forward": staticmethod(lambda ctx, a: a * 2)}).apply(x)
y.sum().backward()

y = type("None_", (Function,), {}).apply(x)

y = make(lambda ctx, a: ctx.save_for_backward(3)).apply(x)

y = Mul.apply(x, w)
y.sum().backward()
y.sum().backward()

h = x * 1
y = Mul.apply(h, w)
h.add_(1)
y.sum().backward()

h = x * 1
y = Exp.apply(h, 2.0)
h.add_(1)
y.sum().backward()

h = x * 1
y = Exp.apply(h, 2.0)
y.add_(1)
y.sum().backward()

y = make(lambda ctx, a: a * 2, T.autograd.function.once_differentiable(lambda ctx, g: g * 2)).apply(x)
(y * y).sum().backward()

y = make(lambda ctx, a: a * 2, T.autograd.function.once_differentiable(lambda ctx, g: g * 2)).apply(x)
g, = T.autograd.grad((y * y).sum(), x, create_graph=True)
log(g)
g.sum().backward()

def f(ctx, a): ctx.k = a * 2; return a.exp()
y = make(f, lambda ctx, g: g * ctx.k).apply(x)
y.sum().backward()

def f(ctx, a): log(T.is_grad_enabled()); return a.exp()
y = make(f, lambda ctx, g: log(T.is_grad_enabled()) or g).apply(x)
y.sum().backward()

y = C.checkpoint(lambda a, b: (a * b).exp().sin(), x, w, use_reentrant=False)
(y * y).sum().backward()

y = C.checkpoint(lambda a, b: (a * b).exp().sin(), x, w, use_reentrant=True)
(y * y).sum().backward()

y = C.checkpoint(lambda d, k: {"y": d["x"].exp() * k, "n": None}, {"x": x}, k=w, use_reentrant=False)["y"]
y.sum().backward()

inner = lambda a: C.checkpoint(lambda b: b.exp().sin(), a, use_reentrant=False).cos()
y = C.checkpoint(inner, x, use_reentrant=False)
y.sum().backward()

y = C.checkpoint(lambda a: a.exp() * w, x, use_reentrant=False)
g, = T.autograd.grad(y.sum(), x, create_graph=True)
(g * g).sum().backward()

n = []
f = lambda a: n.append(1) or a.exp().sin()
y = C.checkpoint(f, x, use_reentrant=False)
log(len(n))
y.sum().backward()
log(len(n))

n = []
f = lambda a: n.append(1) or (a.exp() if len(n) > 1 else a.exp().sin())
y = C.checkpoint(f, x, use_reentrant=False)
y.sum().backward()

n = []
f = lambda a: n.append(1) or (a[:2] if len(n) > 1 else a).exp().sin()
y = C.checkpoint(f, x, use_reentrant=False)
y.sum().backward()

y = C.checkpoint_sequential([T.sin, T.exp, T.cos], 2, x, use_reentrant=False)
y.sum().backward()

y = C.checkpoint_sequential([T.sin, T.exp, T.cos], 5, x, use_reentrant=False)

s = []
G = T.autograd.graph
pack = lambda t: s.append(t) or len(s) - 1
with G.saved_tensors_hooks(pack, lambda k: s[k]): y = x.exp() * w
log(len(s), [tuple(t.shape) for t in s])
y.sum().backward()

G = T.autograd.graph
with G.saved_tensors_hooks(lambda t: t * 2, lambda t: t): y = x.exp()
y.sum().backward()

G = T.autograd.graph
with G.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t): y = (x * 1).exp()

G = T.autograd.graph
with G.saved_tensors_hooks(lambda t: t, lambda t: 3): y = x.exp()
y.sum().backward()

G = T.autograd.graph
with G.disable_saved_tensors_hooks("no"), G.saved_tensors_hooks(lambda t: t, lambda t: t): y = x.exp()

G = T.autograd.graph
with G.save_on_cpu(): y = (x.exp() * w).tanh()
y.sum().backward()

G = T.autograd.graph
with G.saved_tensors_hooks(lambda t: t, lambda t: t): y = x * 1; y.mul_(w)
y.sum().backward()

with T.autograd.detect_anomaly(): y = (x * 0).sqrt() * 0; y.sum().backward()

with T.autograd.detect_anomaly(check_nan=False): y = (x * 0).sqrt() * 0; y.sum().backward()

with T.autograd.set_detect_anomaly(False): y = (x * 0).sqrt() * 0; y.sum().backward()
""".strip().split("\n\n")


def run(T: Any, program: str) -> tuple[bool, list[Any], list[Any]]:
    """Whether it failed, what it logged, and the gradients of x and w."""
    seen: list[Any] = []

    def plain(v: Any) -> Any:
        if hasattr(v, "detach"):
            return np.round(v.detach().double().numpy(), 8).tolist()
        return [plain(p) for p in v] if isinstance(v, (tuple, list)) else v

    checkpoints = importlib.import_module(f"{T.__name__}.utils.checkpoint")
    names: dict[str, Any] = {"T": T, "C": checkpoints, "log": lambda *a: seen.append(plain(a))}
    x, w = T.tensor(X, requires_grad=True), T.tensor(W, requires_grad=True)
    names |= {"x": x, "w": w}
    exec(PRELUDE, names)
    try:
        exec(program, names)
    except Exception:
        return True, [], []
    return False, seen, [x.grad, w.grad]


@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str) -> None:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        failed, logged, grads = run(torch, program)
    error, seen, found = run(ox, program)
    assert error == failed
    assert seen == logged
    for got, expected in zip(found, grads, strict=True):
        if got is None or expected is None:
            known = expected if got is None else got
            assert known is None or not known.detach().numpy().any()
        else:
            np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)
