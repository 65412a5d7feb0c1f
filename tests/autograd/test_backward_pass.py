"""The walk back: accumulation, freed graphs, functional gradients, leaf rules, double backward."""

from __future__ import annotations

import pickle
from copy import copy, deepcopy
from threading import Thread

import numpy as np
import pytest

import ox
from ox.errors import DTypeError, GradientError, ShapeError


def leaf(*values: float) -> ox.Tensor:
    return ox.tensor(list(values), requires_grad=True)


def test_gradients_add_up_over_uses_and_over_backwards() -> None:
    x = leaf(1.0, 2.0)
    (x * x + 3 * x).sum().backward()
    assert x.grad.tolist() == [5.0, 7.0]
    (2 * x).sum().backward()
    assert x.grad.tolist() == [7.0, 9.0]


def test_backward_of_several_elements_needs_a_cotangent() -> None:
    x = leaf(1.0, 2.0)
    y = x * x
    with pytest.raises(GradientError, match="more than one element") as caught:
        y.backward()
    assert "backward(gradient)" in caught.value.hint
    y.backward(ox.tensor([1.0, 10.0]))
    assert x.grad.tolist() == [2.0, 40.0]


def test_a_cotangent_is_cast_and_its_shape_checked() -> None:
    x = leaf(1.0, 2.0)
    (x * x).backward(ox.tensor([1, 2]))
    assert x.grad.tolist() == [2.0, 8.0]
    assert x.grad.dtype == ox.float32
    with pytest.raises(ShapeError, match="another shape"):
        (x * x).backward(ox.ones(3))


def test_a_second_backward_says_so() -> None:
    x = leaf(1.0)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(GradientError) as caught:
        y.backward()
    assert "second time" in str(caught.value)
    assert "retain_graph=True" in caught.value.hint
    assert "test_backward_pass.py" in caught.value.where


def test_retain_graph() -> None:
    x = leaf(3.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [12.0]


def test_grad_leaves_grad_alone_and_takes_cotangents() -> None:
    x, y = leaf(2.0, 3.0), leaf(5.0, 7.0)
    out = x * y
    gx, gy = ox.autograd.grad([out], [x, y], grad_outputs=[ox.tensor([1.0, 10.0])])
    assert gx.tolist() == [5.0, 70.0]
    assert gy.tolist() == [2.0, 30.0]
    assert x.grad is None
    assert y.grad is None


def test_gradients_add_up_in_place() -> None:
    x = leaf(1.0, 2.0)
    (x * 2).sum().backward()
    held = x.grad
    (x * 3).sum().backward()
    ox.nn.utils.clip_grad_value_([x], 4.0)
    assert x.grad is held and held.tolist() == [4.0, 4.0]
    x.grad = ox.ones(1).expand(2)
    (x * 3).sum().backward()
    assert x.grad.tolist() == [4.0, 4.0]


def test_gradients_lie_in_row_major_order() -> None:
    x = ox.ones(1, 1, 4, 4, requires_grad=True)
    w = ox.ones(3, 2, requires_grad=True)
    (slope,) = ox.autograd.grad(ox.nn.functional.pad(x, (1, 1, 1, 1)).square().sum(), x, create_graph=True)
    assert slope.view(-1).shape == (16,) and slope.requires_grad
    (w.t() * ox.arange(6.0).reshape(2, 3)).sum().backward()
    w.grad.view(-1).mul_(2)
    assert w.grad.tolist() == [[0.0, 6.0], [2.0, 8.0], [4.0, 10.0]]


def test_grad_takes_its_arguments_in_pytorchs_order() -> None:
    x = leaf(2.0)
    (slope,) = ox.autograd.grad(x**3, x, ox.ones(1), True, True, True, True)
    (again,) = ox.autograd.grad(outputs=slope, inputs=x, only_inputs=True)
    assert (slope.item(), again.item()) == (12.0, 12.0)


def test_grad_of_what_was_not_used() -> None:
    x, y = leaf(1.0), leaf(2.0)
    with pytest.raises(GradientError, match="input 1 was not used") as caught:
        ox.autograd.grad(x * 2, [x, y])
    assert "allow_unused" in caught.value.hint
    gx, gy = ox.autograd.grad(x * 2, [x, y], allow_unused=True)
    assert gx.tolist() == [2.0]
    assert gy is None


def test_grad_of_an_intermediate_and_of_itself() -> None:
    x = leaf(2.0)
    h = x * x
    y = h * h
    (gh,) = ox.autograd.grad(y, h, retain_graph=True)
    assert gh.tolist() == [8.0]
    (gy,) = ox.autograd.grad(y, y)
    assert gy.tolist() == [1.0]


def test_grad_wants_inputs_that_require_one() -> None:
    with pytest.raises(GradientError, match="input 0 does not require"):
        ox.autograd.grad(leaf(1.0) * 2, ox.ones(1))


def test_backward_of_what_has_no_history() -> None:
    with pytest.raises(GradientError, match="does not depend") as caught:
        ox.ones(1).backward()
    assert "requires_grad_" in caught.value.hint


def test_two_leaves_never_share_a_gradient() -> None:
    """An Add hands one cotangent to both sides; scaling one leaf's gradient must not scale the other's."""
    x, y, z = leaf(1.0, 2.0), leaf(3.0, 4.0), leaf(5.0, 6.0)
    given = ox.ones(2)
    (x + y + z.reshape(1, 2).reshape(2)).backward(given)
    x.grad.mul_(10)
    z.grad.zero_()
    assert (x.grad.tolist(), y.grad.tolist(), z.grad.tolist()) == ([10, 10], [1, 1], [0, 0])
    assert given.tolist() == [1, 1]


def test_a_gradient_that_is_an_expanded_view_can_be_written() -> None:
    x = leaf(1.0, 2.0)
    x.sum().backward()
    x.grad[0] = 5.0
    x.grad.add_(1)
    assert x.grad.tolist() == [6.0, 2.0]


def test_integers_do_not_require_gradients() -> None:
    with pytest.raises(DTypeError, match="type int64 cannot require"):
        ox.tensor([1], requires_grad=True)
    assert not (ox.tensor([1.0], requires_grad=True) > 0).requires_grad
    assert not ox.tensor([1.5], requires_grad=True).long().requires_grad


def test_leaves() -> None:
    x = leaf(1.0)
    y = x * 2
    assert (x.is_leaf, y.is_leaf, ox.ones(1).is_leaf) == (True, False, True)
    assert x.grad_fn is None
    assert y.grad_fn.name() == "MulBackward"
    assert y.grad_fn.next_functions[0][0] is x.node
    with pytest.raises(GradientError, match="only a leaf can stop"):
        y.requires_grad = False
    x.requires_grad_(False)
    assert not x.requires_grad
    assert not (x * 2).requires_grad


def test_detach_stops_a_path_and_shares_memory() -> None:
    x = leaf(2.0)
    d = x.detach()
    assert not d.requires_grad
    (x * d).backward()
    assert x.grad.tolist() == [2.0]
    d.zero_()
    assert x.tolist() == [0.0]


def test_double_backward_of_an_mlp() -> None:
    """Against finite differences of the gradient's norm."""
    ox.manual_seed(0)
    x = ox.randn(5, 3, dtype=ox.float64)
    weights = [ox.randn(3, 4, dtype=ox.float64), ox.randn(4, 1, dtype=ox.float64)]

    def penalty(first: ox.Tensor, second: ox.Tensor) -> ox.Tensor:
        loss = ((x @ first).tanh() @ second).sigmoid().mean()
        return sum((g * g).sum() for g in ox.autograd.grad(loss, [first, second], create_graph=True))

    tracked = [w.clone().requires_grad_() for w in weights]
    penalty(*tracked).backward()
    for k, w in enumerate(tracked):
        for place in np.ndindex(w.shape):
            change = [u.clone() for u in weights]
            values = []
            for sign in (1, -1):
                change[k][place] = weights[k][place] + sign * 1e-5
                values.append(penalty(*[u.clone().requires_grad_() for u in change]).item())
            assert w.grad[place].item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-5, abs=1e-9)


def test_hessian_vector_product() -> None:
    a = ox.tensor([[2.0, 1.0], [1.0, 3.0]])
    x = leaf(1.0, -1.0)
    (g,) = ox.autograd.grad(x @ a @ x * 0.5, x, create_graph=True)
    (hv,) = ox.autograd.grad(g, x, grad_outputs=ox.tensor([1.0, 2.0]))
    assert hv.tolist() == [4.0, 7.0]


def test_third_order() -> None:
    x = leaf(2.0)
    y = x**4
    for expected in (32.0, 48.0, 48.0):
        (y,) = ox.autograd.grad(y, x, create_graph=True)
        assert y.tolist() == [expected]


def test_gradients_of_create_graph_stay_differentiable() -> None:
    x, y = leaf(2.0), leaf(3.0)
    (x + y).backward(x * y, create_graph=True)
    assert x.grad.requires_grad
    assert y.grad.requires_grad
    assert x.grad is not y.grad


def test_copies_and_pickles_of_leaves() -> None:
    x = leaf(1.0, 2.0)
    (x * x).sum().backward()
    for twin in (deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert twin.is_leaf
        assert twin.requires_grad
        (twin * 3).sum().backward()
        assert x.grad.tolist() == [2.0, 4.0]  # the gradient went to the copy
        assert twin.array is not x.array
    assert copy(x).array is x.array
    with pytest.raises(GradientError, match="only a leaf"):
        deepcopy(x * 2)


def test_norm_has_no_gradient_of_nan_at_zero() -> None:
    x = leaf(0.0, 0.0)
    x.norm().backward()
    assert x.grad.tolist() == [0.0, 0.0]


def test_infinite_gradients_come_without_a_warning() -> None:
    x = leaf(0.0)
    x.sqrt().backward()
    assert x.grad.tolist() == [float("inf")]


def test_a_gradient_can_always_be_written_to() -> None:
    a = ox.ones(3, requires_grad=True)
    a.sum().backward()
    assert a.grad is not None
    a.grad.numpy()[0] = 5
    assert a.grad.tolist() == [5, 1, 1]


def test_threads_that_share_a_leaf_lose_nothing() -> None:
    shared = ox.zeros(1, requires_grad=True)

    def work() -> None:
        for _ in range(200):
            (shared * 1.0).sum().backward()

    threads = [Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert shared.grad is not None
    assert shared.grad.item() == 800
