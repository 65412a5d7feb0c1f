"""Hooks on tensors, nodes and modules, in ox and in PyTorch: called with the same values, in the same order."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ox
import ox.autograd.graph

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")


def plain(value: Any) -> Any:
    """Values that compare: tensors as nested lists of rounded numbers."""
    if hasattr(value, "detach"):
        return np.round(value.detach().double().numpy(), 6).tolist()
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    return value


# programs that call log(...); x, w are leaves [3]; m is a Sequential of two Linears with known weights
PROGRAMS = {
    "order of tensor hooks": """
h = x * w
h.register_hook(lambda g: log("a", g))
h.register_hook(lambda g: g * 2)
h.register_hook(lambda g: log("b", g))
h.retain_grad()
h.register_hook(lambda g: g + 1)
h.sum().backward()
log(h.grad, x.grad, h.retains_grad, x.retains_grad)
""",
    "leaf hooks": """
x.register_hook(lambda g: log("one", g))
x.register_hook(lambda g: g * 10)
r = x.register_hook(lambda g: log("two", g))
(x * w).sum().backward()
r.remove()
(x * w).sum().backward()
log(x.grad)
""",
    "post accumulate": """
x.register_post_accumulate_grad_hook(lambda t: log("first", t.grad))
r = x.register_post_accumulate_grad_hook(lambda t: log("second", t is x))
(x * w).sum().backward()
r.remove()
(x * w).sum().backward()
log(x.grad)
""",
    "post accumulate in the order of the walk": """
x.register_post_accumulate_grad_hook(lambda t: log("x", t.grad))
w.register_post_accumulate_grad_hook(lambda t: log("w", t.grad))
h = x * 2
h.grad_fn.register_prehook(lambda gs: log("h"))
(h.exp() * w).sum().backward()
log(x.grad, w.grad)
""",
    "an optimizer in the hook": """
def step(p):
    with T.no_grad():
        p.sub_(p.grad * 0.1)
    p.grad = None
x.register_post_accumulate_grad_hook(step)
for k in range(3):
    (x * x * w).sum().backward()
log(x, x.grad)
""",
    "nodes": """
h = x * w
y = h.exp()
h.grad_fn.register_prehook(lambda gs: log("pre", gs))
h.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
h.grad_fn.register_hook(lambda gi, go: log("post", gi, go))
h.grad_fn.register_hook(lambda gi, go: tuple(g * 3 for g in gi))
y.grad_fn.register_hook(lambda gi, go: log("exp", gi, go))
h.register_hook(lambda g: log("tensor", g))
y.sum().backward()
log(x.grad, w.grad)
""",
    "the end of a path": """
h = x * w
edge = h.grad_fn.next_functions
leaf = edge[0][0]
log(leaf.name() if T is ox else leaf.name().split("::")[-1], leaf.variable is x, edge[1][1])
leaf.register_prehook(lambda gs: log("pre", gs))
leaf.register_hook(lambda gi, go: log("after", gi, go, x.grad))
h.sum().backward()
""",
    "several tensors": """
h, k = x * 2, w * 3
G.register_multi_grad_hook((h, k), lambda gs: log("all", gs))
G.register_multi_grad_hook((h, k), lambda g: log("any"), mode="any")
(h * k).sum().backward()
""",
    "grad of what is hooked": """
h = x * w
h.register_hook(lambda g: g * 5)
log(T.autograd.grad(h.sum(), x, retain_graph=True))
log(T.autograd.grad(h.sum(), h, retain_graph=True))
log(T.autograd.grad((h * h).sum(), h, retain_graph=True))
log(T.autograd.grad((h * h).sum(), x))
""",
    "second order": """
h = x * x
h.register_hook(lambda g: g * g)
(g,) = T.autograd.grad((h * w).sum(), x, create_graph=True)
g.sum().backward()
log(x.grad, w.grad)
""",
    "backward into some": """
h = x * w
(h * 2).sum().backward(inputs=[x], retain_graph=True)
log(x.grad, w.grad)
h.retain_grad()
(h * 2).sum().backward(inputs=[w, x])
log(x.grad, w.grad)
T.autograd.backward([x.sum(), (x * w).sum()], inputs=w)
log(w.grad)
T.autograd.backward((x * w), T.ones(3, dtype=T.float64))
log(x.grad)
log(T.autograd.grad([x.sum(), (x * 2).sum()], [x, w], allow_unused=True))
log(T.autograd.grad(x.sum(), [x, w], materialize_grads=True))
log(T.autograd.grad(x * w, x, grad_outputs=T.eye(3, dtype=T.float64), is_grads_batched=True))
""",
    "module backward hooks": """
m.register_full_backward_pre_hook(lambda mod, go: log("pre", type(mod).__name__, go))
m.register_full_backward_hook(lambda mod, gi, go: log("post", gi, go))
m[0].register_full_backward_hook(lambda mod, gi, go: log("first", gi, go))
m[1].register_full_backward_hook(lambda mod, gi, go: (gi[0] * 2,))
r = m[1].register_full_backward_pre_hook(lambda mod, go: (go[0] + 1,))
m(x.float()).sum().backward()
log(x.grad, m[0].weight.grad, m[1].weight.grad)
r.remove()
m(x.float()).sum().backward()
log(x.grad)
""",
    "module hooks without tracked inputs": """
m.register_full_backward_hook(lambda mod, gi, go: log("post", gi, go))
m(x.detach().float()).sum().backward()
log(m[0].bias.grad)
with T.no_grad():
    m(x.float())
""",
    "module of several": """
class Two(T.nn.Module):
    def forward(self, a, k, b):
        return a * b, k, (a + b).detach(), a - b
two = Two()
two.register_full_backward_hook(lambda mod, gi, go: log("post", gi, go))
two.register_full_backward_pre_hook(lambda mod, go: log("pre", go))
p, _, _, q = two(x, 3, w)
(p + q).sum().backward()
log(w.grad)
""",
    "hooks everywhere": """
P = T.nn.modules.module
r = [P.register_module_forward_hook(lambda mod, a, y: log("forward", type(mod).__name__)),
     P.register_module_forward_pre_hook(lambda mod, a: log("before", type(mod).__name__)),
     P.register_module_full_backward_hook(lambda mod, gi, go: log("backward", type(mod).__name__, go)),
     P.register_module_full_backward_pre_hook(lambda mod, go: log("pre", type(mod).__name__, go))]
m[0].register_forward_pre_hook(lambda mod, a: log("own"))
y = m(x.float())
for one in r:
    one.remove()
y.sum().backward()
m(x.float())
""",
    "a write after a hook": """
h = x * w
h.register_hook(lambda g: log("before", g))
h.retain_grad()
h.mul_(2)
h.register_hook(lambda g: log("after", g))
(h * h).sum().backward()
log(h.grad, x.grad)
""",
    "hooks of a module as a mapping": """
def one(m, i, o): log("one", o)
def two(m, i, o): log("two", o)
def pre(m, i): return i[0] * 2
first, second = m[0].register_forward_hook(one), m[0].register_forward_hook(two)
log(list(m[0]._forward_hooks.values()) == [one, two], len(m._forward_hooks), first.id in m[0]._forward_hooks)
m[0]._forward_hooks[first.id] = two
m[0]._forward_hooks.move_to_end(second.id, last=False)
log([m[0]._forward_hooks[h.id] is two for h in (first, second)], list(m[0]._forward_hooks) == [second.id, first.id])
m(x.float())
del m[0]._forward_hooks[second.id]
m.register_forward_pre_hook(pre)
for name, hook in list(m._forward_pre_hooks.items()):
    log(m(x.float()))
    del m._forward_pre_hooks[name]
log(m(x.float()), len(m._forward_pre_hooks))
for module in m.modules():
    module._forward_hooks.clear()
m[1]._forward_hooks[7] = one
m[0]._forward_pre_hooks = __import__("collections").OrderedDict({3: pre})
m(x.float()).sum().backward()
first.remove()
log(len(m[0]._forward_hooks), len(m[1]._forward_hooks), list(m[0]._forward_pre_hooks), len(m[0]._state_dict_hooks))
again = __import__("copy").deepcopy(m)
log(list(again[1]._forward_hooks), list(again[0]._forward_pre_hooks))
again[1]._forward_hooks.clear()
log(len(m[1]._forward_hooks))
""",
    "the older hook on the backward of a module": """
r = T.nn.ReLU()
handle = r.register_backward_hook(lambda m, gi, go: log("relu", gi, go))
guided = T.nn.Tanh()
guided.register_backward_hook(lambda m, gi, go: (gi[0].clamp(min=0.0),))
s = T.nn.Sequential(T.nn.Linear(2, 2), r)
s.register_backward_hook(lambda m, gi, go: log("all", go))
guided(r(x * w)).sum().backward()
log(x.grad)
handle.remove()
s(m[0](x.float())).sum().backward()
""",
    "names": """
h = (x * w).exp()
log(h.grad_fn.name().rstrip("0"), len(h.grad_fn.next_functions), h.is_leaf, x.is_leaf, x.grad_fn, h.requires_grad)
log(x.detach().is_leaf, h.detach().requires_grad, h.data_ptr() == h.detach().data_ptr())
""",
}

ERRORS = """
T.ones(3).register_hook(print)
(x * 1).register_post_accumulate_grad_hook(print)
T.ones(3).register_post_accumulate_grad_hook(print)
(h := x * w).grad_fn.register_hook(lambda gi, go: (gi[0],)); h.sum().backward()
x.grad = 1
x.grad = T.ones(4, dtype=T.float64)
x.grad = T.ones(3)
x.grad = x
T.autograd.backward((x * w).sum(), inputs=[])
T.autograd.backward((x * w).sum(), inputs=[T.ones(3)])
T.autograd.backward(x * w)
T.autograd.backward(x * w, T.ones(4))
T.autograd.grad(x.sum(), w)
T.autograd.grad(x.sum(), T.ones(3))
""".strip()


def names(T: Any, seen: list[Any]) -> dict[str, Any]:
    m = T.nn.Sequential(T.nn.Linear(3, 2), T.nn.Linear(2, 2))
    for k, p in enumerate(m.parameters()):
        with T.no_grad():
            p.copy_(T.tensor(np.cos(np.arange(np.prod(p.shape)) + k).reshape(tuple(p.shape)).astype(np.float32)))
    made = {k: T.tensor(a, requires_grad=True) for k, a in (("x", [1.0, -2.0, 0.5]), ("w", [0.5, 2.0, 3.0]))}
    made = {k: t.detach().double().requires_grad_() for k, t in made.items()}
    return {"T": T, "ox": ox, "G": T.autograd.graph, "m": m, "log": lambda *a: seen.append(plain(a)), **made}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    logs: list[list[Any]] = []
    for T in (torch, ox):
        seen: list[Any] = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(PROGRAMS[name], names(T, seen))
        logs.append(seen)
    assert logs[1] == logs[0]


@pytest.mark.parametrize("program", ERRORS.splitlines())
def test_error(program: str) -> None:
    with pytest.raises(Exception):  # noqa: B017 (whatever PyTorch raises)
        exec(program.replace("; ", "\n"), names(torch, []))
    with pytest.raises(ox.OxError):
        exec(program.replace("; ", "\n"), names(ox, []))
