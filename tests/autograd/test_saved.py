"""Hooks on what operators save for backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox.autograd import graph
from ox.errors import ArgumentError, GradientError


def halved(x: Any) -> Any:
    return x.to(ox.float16)


def model(x: Any, w: Any) -> Any:
    h = (x @ w).tanh()
    return (h.softmax(1) * h.sigmoid()).exp().sum()


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    return tuple(ox.tensor(random.normal(size=s), requires_grad=True) for s in ((3, 4), (4, 5)))


def test_what_is_saved_goes_through_the_hooks() -> None:
    x, w = data()
    expected = ox.autograd.grad(model(x, w), [x, w])
    packed: list[Any] = []
    unpacked: list[Any] = []

    def pack(t: Any) -> Any:
        assert not t.requires_grad
        packed.append(t)
        return len(packed) - 1

    def unpack(k: int) -> Any:
        unpacked.append(k)
        return packed[k]

    with graph.saved_tensors_hooks(pack, unpack):
        y = model(x, w)
    assert packed
    assert not unpacked
    for g, e in zip(ox.autograd.grad(y, [x, w]), expected, strict=True):
        np.testing.assert_array_equal(g.numpy(), e.numpy())
    assert set(unpacked) == set(range(len(packed)))
    assert not any(t.dtype == ox.int64 for t in packed)  # axes and shapes are no tensors of the user


@pytest.mark.parametrize("hooks", [graph.save_on_cpu, lambda: graph.saved_tensors_hooks(lambda t: t, lambda t: t)])
def test_second_order_and_writes(hooks: Any) -> None:
    x, w = data()

    def second() -> Any:
        y = model(x, w)
        y = y * y
        y.mul_(w.sum())
        (g,) = ox.autograd.grad(y, x, create_graph=True)
        return ox.autograd.grad((g * g).sum(), w)[0]

    expected = second()
    with hooks():
        got = second()
    np.testing.assert_allclose(got.numpy(), expected.numpy())


def test_lossy_packing_changes_the_gradient() -> None:
    x = ox.tensor([1.0009765, 2.0], requires_grad=True)
    with graph.saved_tensors_hooks(halved, lambda t: t.float()):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2 * float(np.float16(1.0009765)), 4]


def test_inner_hooks_win_and_end() -> None:
    x, seen = ox.ones(2, requires_grad=True), []

    def named(name: str) -> Any:
        return graph.saved_tensors_hooks(lambda t: (seen.append(name), t)[1], lambda t: t)

    with named("outer"):
        x.exp()
        with named("inner"):
            x.exp()
        x.exp()
    x.exp()
    assert seen == ["outer", "inner", "outer"]


def test_a_function_of_ones_own() -> None:
    class Square(ox.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * x
            ctx.save_for_backward(x, None, y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, nothing, y = ctx.saved_tensors
            assert nothing is None
            return g * y / x * 2

    x, seen = ox.tensor([2.0, 3.0], requires_grad=True), []
    with graph.saved_tensors_hooks(lambda t: (seen.append(t), t.numpy())[1], ox.from_numpy):
        y = Square.apply(x)
    y.sum().backward()
    assert x.grad.tolist() == [4, 6]
    assert len(seen) == 2


def test_what_is_refused() -> None:
    x = ox.ones(2, requires_grad=True)
    with (
        graph.disable_saved_tensors_hooks("not here"),
        pytest.raises(GradientError, match="not here"),
        graph.saved_tensors_hooks(halved, halved),
    ):
        pass
    with (
        pytest.raises(GradientError, match="wrote its tensor in place"),
        graph.saved_tensors_hooks(lambda t: t.add_(1), lambda t: t),
    ):
        x.exp()
    for wrong in (lambda t: 1, lambda t: t[:1], lambda t: t.double()):
        with graph.saved_tensors_hooks(lambda t: t, wrong):
            y = x.exp().sum()
        with pytest.raises(ArgumentError, match="something else than was packed"):
            y.backward()
    with graph.saved_tensors_hooks(lambda t: 1 / 0, lambda t: t), pytest.raises(ZeroDivisionError):
        x.exp()


def test_gradient_edges_and_hooks_of_several() -> None:
    x, w = ox.ones(2, requires_grad=True), ox.ones(2, requires_grad=True)
    y = x * w
    edge = graph.get_gradient_edge(y)
    assert (edge.node, edge.output_nr) == (y.grad_fn, 0)
    with pytest.raises(GradientError, match="no place"):
        graph.get_gradient_edge(ox.ones(1))
    seen: list[Any] = []
    handle = graph.register_multi_grad_hook([x, w], lambda grads: seen.append([g.tolist() for g in grads]))
    first = graph.register_multi_grad_hook([x, w], lambda g: seen.append("any"), mode="any")
    (y * 2).sum().backward(retain_graph=True)
    assert sorted(map(str, seen)) == ["[[2.0, 2.0], [2.0, 2.0]]", "any"]
    handle.remove()
    first.remove()
    y.sum().backward()
    assert len(seen) == 2


def test_a_write_from_elsewhere_can_be_counted() -> None:
    x = ox.ones(2, requires_grad=True)
    h = x * 1
    y = (h * h).sum()
    h.detach().numpy()[0] = 5
    graph.increment_version([h])
    with pytest.raises(GradientError, match="increment_version"):
        y.backward()


def test_a_multi_grad_hook_gets_none_for_what_a_backward_does_not_reach() -> None:
    a, b, c = (ox.ones(1, requires_grad=True) for _ in range(3))
    calls: list[Any] = []
    handle = graph.register_multi_grad_hook(
        [a, b, c], lambda gs: calls.append([g if g is None else g.item() for g in gs])
    )
    (a * 2).sum().backward()
    (a * 2 + c * 3).sum().backward()
    (b * 1).sum().backward(inputs=[b])
    (a * b * c).sum().backward()
    ox.ones(1, requires_grad=True).sum().backward()
    ox.autograd.grad((a * b * c).sum(), [a, b, c])
    assert calls == [[2, None, None], [2, None, 3], [None, 1, None], [1, 1, 1], [1, 1, 1]]
    handle.remove()
    (a * 2).sum().backward()
    assert len(calls) == 5
