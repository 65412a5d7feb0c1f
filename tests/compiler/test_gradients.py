"""Gradients through compiled calls: of arguments and parameters, twice, of gradients, and where they must fail."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from beside_eager import close, recordings

import ox
import ox.nn.functional as F
from ox import nn
from ox.compiler.execution import backward_node
from ox.errors import GradientError


def test_a_compiled_part_of_a_larger_graph() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh())
    compiled = ox.compile(net)
    w = (ox.randn(2, 3) / 4).requires_grad_()  # a saturated tanh has a gradient of nothing but rounding
    for _ in range(3):
        found = []
        for part in (net, compiled):
            net.zero_grad()
            w.grad = None
            h = (w * 2).exp()
            (part(h).sum(1) * h[:, 0]).sum().backward()
            assert w.grad is not None
            found.append([w.grad.numpy().copy(), *[p.grad.numpy().copy() for p in net.parameters()]])
        for a, b in zip(*found, strict=True):
            close(b, a, "gradient")
    assert len(recordings(compiled)) == 1


def test_several_results_and_unused_ones() -> None:
    def f(x: ox.Tensor, w: ox.Tensor) -> Any:
        return {"a": x * w, "n": 3, "b": [x.sum(), w.detach() * 2], "i": x.argmax()}

    compiled = ox.compile(f)
    x, w = ox.randn(4, requires_grad=True), ox.randn(4, requires_grad=True)
    for i in range(4):
        grads = []
        for part in (f, compiled):
            y = part(x, w)
            assert y["n"] == 3 and not y["b"][1].requires_grad and not y["i"].requires_grad
            loss = y["a"].sum() if i % 2 else y["b"][0]
            grads.append(ox.autograd.grad(loss, [x, w], allow_unused=True))
        for a, b in zip(*grads, strict=True):
            if a is None:
                assert b is None or not b.numpy().any()
            else:
                close(b.numpy(), a.numpy(), "gradient")


def test_gradients_of_gradients() -> None:
    net = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))
    compiled = ox.compile(net)
    x = ox.randn(4, 3, requires_grad=True)
    for _ in range(3):
        found = []
        for part in (net, compiled):
            net.zero_grad()
            (slope,) = ox.autograd.grad(part(x).sum(), x, create_graph=True)
            slope.square().sum().backward()
            found.append(
                [slope.detach().numpy(), *[p.grad.numpy().copy() for p in net.parameters() if p.grad is not None]]
            )
        for a, b in zip(*found, strict=True):
            close(b, a, "second gradient")


def test_what_is_detached_stays_detached_in_gradients_of_gradients() -> None:
    def f(x: ox.Tensor) -> ox.Tensor:
        return x.exp().detach() * x * x

    compiled = ox.compile(f)
    x = ox.tensor([1.0, 2.0], requires_grad=True)
    for _ in range(3):
        seconds = []
        for part in (f, compiled):
            (g,) = ox.autograd.grad(part(x).sum(), x, create_graph=True)
            seconds.append(ox.autograd.grad(g.sum(), x)[0])
        assert ox.allclose(*seconds)


def test_the_same_random_numbers_in_gradients_of_gradients() -> None:
    def f(x: ox.Tensor) -> ox.Tensor:
        return F.dropout(x, 0.5).pow(3)

    compiled = ox.compile(f)
    x = ox.randn(50, requires_grad=True)
    for _ in range(3):
        seconds = []
        for part in (f, compiled):
            ox.manual_seed(0)
            (g,) = ox.autograd.grad(part(x).sum(), x, create_graph=True)
            seconds.append(ox.autograd.grad(g.sum(), x)[0])
        assert ox.allclose(*seconds)


def test_a_second_backward_needs_retain_graph() -> None:
    compiled = ox.compile(lambda x: x * x)
    for _ in range(3):
        x = ox.ones(2, requires_grad=True)
        y = compiled(x).sum()
        y.backward(retain_graph=True)
        y.backward()
        assert x.grad is not None and x.grad.tolist() == [4, 4]
        with pytest.raises(GradientError, match="a second time"):
            y.backward()


def test_a_result_whose_backward_ran_inside() -> None:
    p = nn.Parameter(ox.ones(2))

    def step() -> ox.Tensor:
        p.grad = None
        loss = (p * p).sum()
        loss.backward()
        return loss

    compiled = ox.compile(step)
    for _ in range(4):
        loss = compiled()
        assert loss.requires_grad and loss.item() == 2
        with pytest.raises(GradientError, match="a second time"):
            loss.backward()


def test_state_that_was_written_between_forward_and_backward() -> None:
    net = nn.Linear(2, 2)
    compiled, x = ox.compile(net), ox.ones(1, 2, requires_grad=True)
    for _ in range(3):
        y = compiled(x).sum()
        with ox.no_grad():
            net.weight.mul_(2)
        with pytest.raises(GradientError, match="modified by an in-place operation"):
            y.backward()


def test_a_compiled_step_makes_stale_backwards_fail() -> None:
    p = nn.Parameter(ox.ones(2))

    @ox.compile
    def double() -> None:
        with ox.no_grad():
            p.mul_(2)

    double(), double()
    for _ in range(2):
        y = (p * p).sum()
        double()
        with pytest.raises(GradientError, match="modified by an in-place operation"):
            y.backward()


def test_two_forwards_before_their_backwards() -> None:
    net = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    compiled = ox.compile(net)
    a, b = ox.randn(4, 3), ox.randn(4, 3)
    compiled(a).sum().backward()
    for _ in range(2):
        grads = []
        for part in (net, compiled):
            net.zero_grad()
            y, z = part(a).square().sum(), part(b).pow(3).sum()
            z.backward()
            y.backward()
            grads.append([p.grad.numpy().copy() for p in net.parameters() if p.grad is not None])
        for one, two in zip(*grads, strict=True):
            close(two, one, "gradient")


def test_writes_to_arguments() -> None:
    def f(x: ox.Tensor, y: ox.Tensor) -> ox.Tensor:
        x.add_(y)
        x[0] = 7
        return x

    compiled = ox.compile(f)
    for _ in range(3):
        x, y = ox.ones(3), ox.ones(3) * 2
        version = x.version
        z = compiled(x, y)
        assert z is x and x.tolist() == [7, 3, 3] and x.version > version
        base = ox.ones(2, 3)
        assert compiled(base[1], y).tolist() == [7, 3, 3] and base.tolist() == [[1, 1, 1], [7, 3, 3]]
        assert compiled(x, x.detach()).tolist() == [7, 6, 6]


def test_writes_to_views_of_state() -> None:
    table = ox.zeros(4, 2)

    def f(i: int, x: ox.Tensor) -> ox.Tensor:
        table[i] = x
        return table.sum()

    compiled = ox.compile(f)
    for i in range(4):
        for n in range(3):
            assert compiled(i, ox.ones(2) * (n + 1)).item() == 6 * i + 2 * (n + 1)
    assert table.tolist() == [[3, 3]] * 4


def test_threads() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    compiled = ox.compile(net)
    wrong: list[Any] = []

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for n in range(20):
            x = ox.tensor(random.normal(size=(1 + n % 3, 8)).astype(np.float32))
            if not ox.allclose(compiled(x), net(x), atol=1e-5):
                wrong.append((seed, n))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and len(recordings(compiled)) == 3


def test_under_func_transforms() -> None:
    compiled = ox.compile(lambda x: (x * x).sum())
    x = ox.tensor([1.0, 2.0])
    for _ in range(2):
        assert ox.func.grad(compiled)(x).tolist() == [2, 4]
        assert ox.func.vmap(compiled)(x.reshape(2, 1)).tolist() == [1, 4]
        assert ox.func.hessian(compiled)(x).tolist() == [[2, 0], [0, 2]]


def test_requires_grad_of_results() -> None:
    net = nn.Linear(2, 2)
    compiled = ox.compile(net)
    for _ in range(3):
        y = compiled(ox.ones(1, 2))
        assert y.requires_grad and not y.is_leaf and y.grad_fn is not None
        y.retain_grad()
        y.sum().backward()
        assert y.grad is not None and y.grad.tolist() == [[1, 1]]
    net.requires_grad_(False)
    for _ in range(2):
        assert not compiled(ox.ones(1, 2)).requires_grad


def test_a_backward_inside_gives_its_gradients_to_the_arguments_of_the_call() -> None:
    compiled = ox.compile(lambda x: (x**2).sum().backward())
    first = ox.ones(2, requires_grad=True)
    for n in range(4):
        compiled(first)
        assert first.grad is not None and first.grad.tolist() == [2 * n + 2] * 2
    for grad in (None, ox.zeros(2)):
        for n in range(3):
            other = ox.ones(2, requires_grad=True)
            other.grad = None if grad is None else grad.clone()
            compiled(other)
            assert other.grad is not None and other.grad.tolist() == [2, 2], n
    assert first.grad is not None and first.grad.tolist() == [8, 8]
    assert len(recordings(compiled)) == 1


def test_a_backward_inside_and_an_argument_that_is_no_leaf_or_has_hooks() -> None:
    compiled = ox.compile(lambda x: (x.exp() ** 2).sum().backward())
    leaf = ox.zeros(2, requires_grad=True)
    for n in range(2):
        leaf.grad = None
        compiled(leaf)
        assert leaf.grad is not None and leaf.grad.tolist() == [2, 2], n
    w = ox.zeros(2, requires_grad=True)
    for n in range(3):
        w.grad = None
        compiled(w * (n + 1))
        assert w.grad is not None and w.grad.tolist() == [2 * (n + 1)] * 2
    hooked = ox.zeros(2, requires_grad=True)
    hooked.register_hook(lambda g: g * 5)
    compiled(hooked)
    assert hooked.grad is not None and hooked.grad.tolist() == [10, 10]


def test_a_step_on_a_loss_from_outside() -> None:
    """The history before the argument is that of another forward each time."""
    found = []
    for wrap in (lambda step: step, ox.compile):
        ox.manual_seed(0)
        net = nn.Sequential(nn.Linear(3, 4), nn.Sigmoid(), nn.Linear(4, 1))
        optimizer = ox.optim.SGD(net.parameters(), lr=0.1)

        def step(y: ox.Tensor, optimizer: Any = optimizer) -> None:
            optimizer.zero_grad()
            (y.exp() ** 2).sum().backward()
            optimizer.step()

        run = wrap(step)
        for _ in range(5):
            run(net(ox.randn(2, 3)))
        found.append([p.detach().numpy() for p in net.parameters()])
    for eager, other in zip(*found, strict=True):
        close(other, eager, "weight")


def test_what_only_unused_results_depend_on_gets_no_gradient() -> None:
    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.one, self.other = nn.Linear(2, 3), nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x: ox.Tensor) -> tuple[ox.Tensor, ox.Tensor]:
            h = self.body(x).tanh()
            return self.one(h), self.other(h)

    net = Heads()
    optimizer = ox.optim.AdamW(net.parameters(), lr=0.1, weight_decay=1.0)
    before = net.other.weight.detach().clone()
    compiled = ox.compile(net)
    for _ in range(3):
        optimizer.zero_grad()
        compiled(ox.ones(1, 2))[0].sum().backward()
        assert net.other.weight.grad is None and net.one.weight.grad is not None and net.body.weight.grad is not None
        optimizer.step()
    assert ox.equal(net.other.weight, before)
    optimizer.zero_grad()
    compiled(ox.ones(1, 2))[1].sum().backward()
    assert net.one.weight.grad is None and net.other.weight.grad is not None
    assert len(recordings(compiled)) == 1


def test_one_tensor_that_is_several_arguments() -> None:
    def f(x: ox.Tensor, y: ox.Tensor, z: list[ox.Tensor]) -> ox.Tensor:
        return (x * y + z[0]).sum()

    compiled = ox.compile(f, fullgraph=True)
    for n in range(1, 4):
        x = ox.full((2,), float(n), requires_grad=True)
        other = ox.full((2,), 3.0, requires_grad=True)
        loss = compiled(x, x, [other])
        assert loss.item() == 2 * (n * n + 3)
        loss.backward()
        assert x.grad is not None and x.grad.tolist() == [2 * n] * 2
        assert other.grad is not None and other.grad.tolist() == [1, 1]
        assert compiled(x, other, [x]).item() == 8 * n
    assert len(recordings(compiled)) == 2

    def write(x: ox.Tensor, y: ox.Tensor) -> ox.Tensor:
        x.add_(1)
        return y * 2

    written = ox.compile(write, fullgraph=True)
    for _ in range(3):
        x = ox.ones(2)
        assert written(x, x).tolist() == [4, 4] and x.tolist() == [2, 2]


def test_a_gradient_inside_and_hooks_of_an_argument() -> None:
    plain, hooked = ox.ones(2, requires_grad=True), ox.ones(2, requires_grad=True)
    hooked.register_hook(lambda g: g * 5)
    for order in ([plain, hooked, plain, hooked], [hooked, plain, hooked, plain]):
        for deeper in (False, True):  # leaves, or tensors with a history
            compiled = ox.compile(lambda x: ox.autograd.grad((x * x).sum(), x)[0])
            for leaf in order:
                x = leaf
                if deeper:
                    x = plain * 1
                    if leaf is hooked:
                        x.register_hook(lambda g: g * 5)
                for _ in range(2):
                    assert compiled(x).tolist() == [10 if leaf is hooked else 2] * 2


def test_a_backward_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its engine has buffers of its own: two threads that go backward through one call at a time would mix them."""
    compiled = ox.compile(lambda x: (x * x).sum())
    x = ox.randn(3, requires_grad=True)
    compiled(x).backward()
    y = compiled(x)
    plan = y.node.plan
    locked = []

    def run(*arguments: Any) -> Any:
        locked.append(plan._lock.locked())
        return backward_node_run(*arguments)

    backward_node_run = backward_node.run
    monkeypatch.setattr(backward_node, "run", run)
    y.backward()
    assert locked == [True] and not plan._lock.locked()
