"""Programs that write through views, in ox and in PyTorch: equal values, gradients, and errors in the same places."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

_random = np.random.default_rng(2)
X, W, V = _random.normal(size=(3, 4)), _random.uniform(0.5, 2, size=(4,)), _random.normal(size=(12,))

# statements on a = x * w (no leaf), z (zeros, untracked), x [3, 4], w [4], v [12] (leaves); then (a * a).sum() and
# every tensor that the program left under a name of one letter are differentiated
PROGRAMS = """
a[0] += w
a[0] *= w; a[1] -= a[0]
a[a > 0] = 0.5
a[a > 0] *= 2
a[[0, 2]] = x[:2]
a[[0, 2], [1, 3]] = w[:2]
a[:, [0, 3]] += 1
a.view(-1)[3] = 1
a.view(-1)[3] = w[0]
y = a[0]; y.mul_(2)
y = a[0]; y.mul_(w); z = a.sum(0)
y = a[0]; y.mul_(w); a.mul_(2); y.add_(1)
y = a[1:]; z = y[0]; z.mul_(w); y.add_(x[1:]); a[:, 1] = 0
y = a[0]; a.mul_(w)
y = a[0]; a.zero_()
y = a[0]; a[0] = w
y = a[0]; a[1] = w
y = a.view(2, 6); z = a.view(-1); z[5:9] = w; y.mul_(2)
y = a.T; y.add_(1)
a.T.add_(w.unsqueeze(1)); a.T.mul_(x.T)
y = a.t(); y[1] = 5.0; z = y.sum(0)
y = a.permute(1, 0); z = y[1:3]; z.copy_(x.T[1:3])
y = a.narrow(1, 1, 2); y.mul_(w[:2]); a.narrow(0, 1, 2).add_(1)
y = a.unsqueeze(1); y.mul_(2); z = y.squeeze(1); z.add_(w)
y = a.flatten(); y[::2] = 0.0
y = a.flatten(); y[::2] *= v[::2]
y = a[:, ::2]; y.mul_(w[::2]); z = a[::2]; z.div_(2)
y = a[..., -1]; y.neg_(); a[-1] = y.sum()
y = a[None]; y.add_(w)
y = a[0]; z = a[0]; y.add_(w); z.mul_(w)
y = a[0][1]; y.mul_(3)
a[0][1] = 3.0
a[0][1:] = w[1:]
a[1].fill_(2.0)
a[1].zero_(); y = a[1]
a.zero_()
a.fill_(1.0); a[0] = w
a.copy_(w); a[0].mul_(x[0])
a[0].copy_(a[1])
a[0] = a[1]; a[1] = a[0]
a[:2] = a[1:].clone()
a.diagonal().mul_(2)
y = a.select(0, 1); y.mul_(w)
y = a.select(1, -1); y.fill_(1.5)
y = a.diagonal(); y.add_(w[:3]); a[0] *= 2
a.detach().mul_(2)
y = a.detach(); a[0] = w
y = a.sum(); a[0] = w
y = a.exp(); a[0] = w
y = (a * a).sum(); a[0] = w
y = a[0] * 2; a[0].add_(1)
y = a[0] * w; a[0].add_(1)
y = a[0].exp(); a[0].add_(1)
y = a[1] * w; a[0].add_(1)
z[0] = w; z[1:] *= x[1:]
z[0] = w; y = z[0]; y.mul_(2); z.add_(x)
y = z[0]; y.copy_(w); z.mul_(2)
y = z[0]; z.copy_(x); y.mul_(w)
y = z.view(-1); y[:4] = w; y[4:] = v[4:]
z.T[0] = x[:, 0]; z.T[1] = z.T[0] * 2
z[:, 0] = x[:, 0]; z[:, 1] = z[:, 0] * 2; z[:, 2] = z[:, 1] * z[:, 0]
for i in range(3): z[i] = x[i] * (z[i - 1] + 1)
for i in range(3): a[i] += a[i - 1].clone() * w
for i in range(4): a[:, i] = a[:, i] * w[i] + i
z.unbind(0)[0].copy_(w)
z.chunk(2)[0].add_(1)
z.chunk(2)[0].add_(w)
a.unbind(0)[0].mul_(2)
a.split(2)[0].mul_(2)
a.chunk(3)[1].zero_()
a.chunk(3)[1][0].zero_()
y, t, u = a.unbind(0); y.mul_(w)
y = a.split([1, 2])[1].sum(); a.mul_(2)
x[0] = 1
x[0] += w
x.add_(1)
x[0].mul_(2)
x.view(-1)[0] = 1
x.T.mul_(2)
y = x[0]; y.zero_()
y = x.detach(); y.mul_(2)
y = x.detach()[0]; y.mul_(w); a.add_(1)
y = a.expand(2, 3, 4); y.mul_(2)
y = w.expand(3, 4); y.add_(1)
y = (w * 2).expand(3, 4).clone(); y[0] = 1
y = (w * 2).expand(1, 4); y[0] = 1
y = a.broadcast_to(3, 4); y.mul_(2)
with T.no_grad(): y = a[0] | y.mul_(2)
with T.no_grad(): y = a[0] | y.mul_(w)
with T.no_grad(): y = z[0] | y.mul_(w)
with T.no_grad(): y = z[0] | y.mul_(2)
with T.no_grad(): y = a.detach()[0] | y.mul_(w)
with T.no_grad(): a.mul_(2)
with T.no_grad(): a[0].mul_(2)
with T.no_grad(): x.mul_(2)
with T.no_grad(): x[0] = 7.0
with T.no_grad(): x.view(-1)[2:5] += 1
y = x[0] | with T.no_grad(): y.mul_(3)
y = a * a | with T.no_grad(): a.mul_(3)
y = a.clone(); y[0] = w; z = a
y = a.contiguous(); y[0] = w
y = a.T.contiguous(); y[0] = 1.0
y = a.reshape(-1); y[0] = 1.0
y = a.T.reshape(-1); y[0] = 1.0
y = a.T.view(-1)
y = a.T.view(4, 3); y.mul_(2)
y = a[:, 1:3].view(-1)
y = a[1:3].view(-1); y.mul_(2)
y = a.T.flatten(); y.mul_(2)
y = a.view(3, 2, 2)[:, 1]; y.mul_(2)
a.mul_(2).add_(w)[0].mul_(3)
a.clamp_(-0.5, 0.5)[0].add_(1)
a[0].masked_fill_(a[0] > 0, 2.0)
a.masked_fill_(x > 0, w[0].item())
a[1].scatter_(0, cols[0], 2.0)
a.scatter_add_(1, cols, x); y = a[0]
a[0].add_(w, alpha=2)
a[3:].mul_(2)
a[0:0] = 1.0
a[...] = w
a[:] = a * 2
y = a[0]; a[:] = x; y.mul_(2)
a[0, 1] += 1; a[-1, -1] *= w[0]
a[0] = a; z = 1
a[5] = 1
a[0] = x
a.add_(T.zeros(2, 3, 4, dtype=T.float64))
a[0].add_(x)
a.mul_(a); a[0].mul_(a[0])
a[0].mul_(a[1])
y = a[1]; a[0].mul_(y)
y = a[1] * 1; a[0].mul_(y)
h = a[0]; h.register_hook(lambda g: g * 10); h.sum().backward(retain_graph=True); a.mul_(2)
h = a * 2; h.retain_grad(); h[0].mul_(w); a = h * 1
h = a * 2; h.retain_grad(); h.mul_(w); a = h * 1
y = a[0]; a = a * 1; y.mul_(2)
y = a[0]; del a; y.mul_(w); a = y._base * 1
y = a[0]; assert y._base is a; assert y._is_view(); y.mul_(2); assert y._base is a
y = a[0][1:]; assert y._base is a
y = a.detach(); assert y._base is None
y = a.clone(); assert y._base is None and not y._is_view()
y = a[0]; y.requires_grad_(); y.mul_(2)
y = z[0]; y.requires_grad_(); y.mul_(2)
y = z[0]; z.requires_grad_(); y.mul_(w)
y = z[0]; z.requires_grad_(); y.mul_(2); z = z * 1
y = z[0]; y.requires_grad_(); z = y * 2
z[0] = w; z.requires_grad_(False)
z[0] = w; z = z.detach(); z.mul_(w)
a.swapaxes(0, 1).mul_(2)
a.unflatten(1, (2, 2))[:, 0].mul_(w[:2])
a.squeeze().mul_(w)
a[1:2].squeeze(0).mul_(w)
a.view_as(x).mul_(w)
a.movedim(0, 1)[0].mul_(2)
y = a.view(-1); y.view(3, 4)[1].mul_(w); y[0] = 0.0
y = a[0]; a.t_(); y.mul_(2); a[1] = 3.0
a.transpose_(0, 1); a.mul_(w.unsqueeze(1)); a[2].add_(x[:, 2])
a.unsqueeze_(0); a[0, 1].mul_(w); a.squeeze_(0)
y = a[0]; y.unsqueeze_(0); y.mul_(w)
a.swapaxes_(0, 1)
x.t_()
with T.no_grad(): x.t_() | x = x * 2
z.t_(); z[0] = x[:, 0]
a.detach_(); a[0] = w
y = a[0]; y.detach_()
y = a[0] * 2; y.detach_(); y.mul_(3)
""".strip()


# PyTorch keeps what an operation saved in the memory that is written, ox in memory of its own: these are refused there
# and right here. Each with a program that says the same without writing.
MORE = {
    "y = a.transpose(0, 1)[2]; y.sub_(3); y.mul_(y)": (
        "y = (a[:, 2] - 3) ** 2; a = T.cat([a[:, :2], y.unsqueeze(1), a[:, 3:]], 1)"
    ),
    "y = z[0]; t = z[1]; y.add_(w); t.add_(y)": "y = z[0] + w; t = z[1] + y; z = T.stack([y, t, z[2]])",
    "y = z.view(-1); y.copy_(v); y.add_(1); z.mul_(z)": "y = (v + 1) ** 2; z = y.view(3, 4)",
    "a[0].relu_(); a[1].sigmoid_(); a[2].exp_()": "a = T.stack([a[0].relu(), a[1].sigmoid(), a[2].exp()])",
}

# A row of an expanded tensor: PyTorch writes it, and all rows with it.
LESS = ["y = (w * 2).expand(3, 4); y[0] = 1"]


def lines(program: str) -> str:
    return program if program.startswith("for ") else program.replace(" | ", "\n").replace("; ", "\n")


def fresh(T: Any) -> dict[str, Any]:
    names: dict[str, Any] = {"T": T, "cols": T.tensor(np.array([[3, 0, 1, 1], [0, 0, 2, 3], [1, 2, 3, 0]]))}
    names |= {k: T.tensor(a.copy(), requires_grad=True) for k, a in (("x", X), ("w", W), ("v", V))}
    return names | {"a": names["x"] * names["w"], "z": T.zeros(3, 4, dtype=T.float64)}


def run(T: Any, program: str) -> tuple[str | None, dict[str, Any]]:
    """The error, if the program or its backward fails; else values and gradients by name."""
    names = fresh(T)
    leaves = {k: names[k] for k in "xwv"}
    try:
        exec(lines(program), names)
        left = [names[k] for k in sorted(names) if len(k) == 1 and k != "T" and isinstance(names[k], T.Tensor)]
        values = {k: names[k].detach().numpy().copy() for k in names if isinstance(names[k], T.Tensor)}
        total = sum(((t * t * 0.5).sum() for t in left), T.zeros((), dtype=T.float64))
        total.backward()
    except (RuntimeError, IndexError, ValueError, ox.OxError) as error:
        return str(error), {}
    grads = {f"{k}.grad": t.grad for k, t in leaves.items()}
    if "h" in names:
        grads["h.grad"] = names["h"].grad
    return None, values | {k: None if g is None else g.detach().numpy() for k, g in grads.items()}


def compare(program: str, other: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused, expected = run(torch, other)
    error, got = run(ox, program)
    assert (error is None) == (refused is None), f"PyTorch: {refused}\nox: {error}"
    assert got.keys() == expected.keys()
    for name, value in expected.items():
        if got[name] is None or value is None:
            known = value if got[name] is None else got[name]
            assert known is None or not known.any(), name  # zeros, or nothing at all
        else:
            np.testing.assert_allclose(got[name], value, rtol=1e-9, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("program", PROGRAMS.splitlines())
def test_program(program: str) -> None:
    compare(program, program)


@pytest.mark.parametrize("program", MORE)
def test_what_only_ox_follows(program: str) -> None:
    with pytest.raises(RuntimeError, match=r"in-?place"):
        exec(lines(program) + "\nsum((t * t).sum() for t in (a, z)).backward()", fresh(torch))
    compare(program, MORE[program])


@pytest.mark.parametrize("program", LESS)
def test_what_only_ox_refuses(program: str) -> None:
    exec(lines(program), fresh(torch))
    with pytest.raises(ox.OxError, match="expanded"):
        exec(lines(program), fresh(ox))
