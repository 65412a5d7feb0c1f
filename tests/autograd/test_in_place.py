"""Writing in place: versions, views, leaves, and what a gradient needed."""

from __future__ import annotations

import numpy as np
import pytest
from rows import rows

import ox
from ox.errors import ArgumentError, DTypeError, GradientError


def leaf(*values: float) -> ox.Tensor:
    return ox.tensor(list(values), requires_grad=True)


def test_a_write_to_what_a_gradient_needs_names_operator_and_line() -> None:
    x = leaf(1.0, 2.0)
    h = x * 3
    y = h * h
    h.add_(1)  # the write
    with pytest.raises(GradientError) as caught:
        y.sum().backward()
    text = str(caught.value)
    assert "Mul needs for its gradient was modified by an in-place operation" in text
    assert "add_" in text
    assert "h.add_(1)  # the write" in text
    assert "version 1" in text


@rows("write", ["y.mul_(2)", "y.zero_()", "y[0] = 5", "y.copy_(y + 1)", "y.array[0] = 1; y.add_(0)"])
def test_outputs_that_are_kept_are_guarded_too(write: str) -> None:
    y = leaf(1.0, 2.0).exp()
    z = y.sum()
    with ox.no_grad():
        exec(write, {"y": y})
    with pytest.raises(GradientError, match="in-place"):
        z.backward()


def test_a_write_to_what_no_gradient_needs_is_fine() -> None:
    x = leaf(1.0, 2.0)
    y = x + 1
    y.add_(1)
    y.mul_(3)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


@rows("result", ["x / w", "1 / w", "x.clamp(1.5, 4)", "ox.maximum(x, w)", "ox.min(x, w)", "x.fmod(w)"])
def test_a_result_that_pytorch_does_not_keep_may_be_written(result: str) -> None:
    x, w = leaf(1.0, 2.0, 5.0), leaf(2.0, 1.0, 3.0)
    given = {"x": x, "w": w, "ox": ox}
    expected = ox.autograd.grad((eval(result, given) * 3 + 1).sum(), (x, w), allow_unused=True)
    y = eval(result, given)
    y *= 3
    y += 1
    got = ox.autograd.grad(y.sum(), (x, w), allow_unused=True)
    assert [None if g is None else g.tolist() for g in got] == [None if e is None else e.tolist() for e in expected]


def test_a_write_keeps_the_old_value_for_its_own_gradient() -> None:
    x, w = leaf(2.0), leaf(5.0)
    y = x * 1
    y.mul_(w)
    y.pow_(2)
    y.sum().backward()
    assert y.tolist() == [100.0]
    assert x.grad.tolist() == [100.0]
    assert w.grad.tolist() == [40.0]


def test_leaves_are_not_written_in_place() -> None:
    x = leaf(1.0)
    for write in (lambda: x.add_(1), lambda: x.__setitem__(0, 2.0), lambda: x.zero_(), lambda: x.__imul__(2)):
        with pytest.raises(GradientError, match="leaf") as caught:
            write()
        assert "no_grad" in caught.value.hint
    with ox.no_grad():
        x.add_(1)
        x[0] += 1
    assert x.tolist() == [3.0]
    assert x.requires_grad
    assert x.is_leaf


def test_versions_are_shared_by_all_that_share_the_memory() -> None:
    x = ox.zeros(2, 3)
    views = [x[0], x.reshape(6), x.T, x.detach(), x[:, 1:][0]]
    before = x.version
    views[-1].add_(1)
    assert x.version == before + 1
    assert {v.version for v in views} == {x.version}
    assert x.clone().version == x.version  # a number to compare with, but no longer shared
    x.clone().add_(1)
    assert x.version == before + 1


def test_writes_through_views_are_seen_both_ways() -> None:
    x = ox.zeros(2, 3)
    row, flat = x[1], x.view(6)
    row.add_(2)
    x[0, 0] = 7
    flat[5] = -1
    assert x.tolist() == [[7, 0, 0], [2, 2, -1]]
    assert row.tolist() == [2, 2, -1]
    assert flat.tolist() == [7, 0, 0, 2, 2, -1]


def test_tracked_writes_are_followed_through_all_views() -> None:
    x, w = leaf(1.0, 2.0), leaf(5.0)
    y = x * 2
    first, last, both = y[0], y[1:], y.view(1, 2)
    first.mul_(w[0])
    assert (y.tolist(), both.tolist()) == ([10.0, 4.0], [[10.0, 4.0]])
    y[1] = first * 3  # a write of the whole, which a part sees
    assert last.tolist() == [30.0]
    (last.sum() + both.sum()).backward()
    assert x.grad.tolist() == [70.0, 0.0]  # (3 + 1 + 3) * 2 * w
    assert w.grad.tolist() == [14.0]


def test_a_view_of_nothing_that_lives_can_be_written() -> None:
    x = leaf(1.0, 2.0)
    y = (x * 2).reshape(1, 2)
    y.relu_()
    y.add_(1)
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_clone_does_not_make_a_view() -> None:
    x = leaf(1.0)
    y = x * 2
    z = y.clone()
    y.add_(1)
    assert (y.tolist(), z.tolist()) == ([3.0], [2.0])


def test_expanded_memory_is_not_written() -> None:
    x = ox.zeros(3)
    wide = x.expand(2, 3)
    for write in (lambda: wide.add_(1), lambda: wide.__setitem__((0, 0), 5)):
        with pytest.raises(ArgumentError, match="expanded") as caught:
            write()
        assert "clone" in caught.value.hint
    x.expand(1, 3).add_(1)  # nothing is repeated here
    assert x.tolist() == [1, 1, 1]
    assert x.version == 1


def test_a_read_only_array_is_copied_before_a_write() -> None:
    array = np.zeros(3, np.float32)
    array.flags.writeable = False
    t = ox.from_numpy(array)
    t.add_(1)
    assert t.tolist() == [1, 1, 1]
    assert not array.any()


def test_copying_a_tensor_does_not_tie_the_two() -> None:
    x, y = ox.zeros(3), ox.ones(3)
    x.copy_(y)
    y.zero_()
    assert x.tolist() == [1, 1, 1]


def test_shape_and_type_stay() -> None:
    x = ox.zeros(3)
    with pytest.raises(ArgumentError, match="cannot change a shape"):
        x.add_(ox.ones(2, 3))
    with pytest.raises(DTypeError, match="does not go into int64"):
        ox.tensor([1]).add_(0.5)
    with pytest.raises(DTypeError):
        ox.tensor([True]).add_(1)
    h = ox.ones(2, dtype=ox.float16)
    h.add_(ox.ones(2, dtype=ox.float64))
    assert h.dtype == ox.float16
    i = ox.tensor([1, 2])
    i[0] = 2.9  # assignment casts, as in PyTorch
    assert i.tolist() == [2, 2]


def test_in_place_returns_and_keeps_the_object() -> None:
    x = ox.ones(2)
    before = x
    x += 1
    x *= 2
    x -= 1
    x /= 3
    x **= 2
    x //= 0.5
    x %= 1.5
    assert x is before
    assert x.tolist() == [0.5, 0.5]
    i = ox.tensor([6, 3])
    i &= 2
    i |= 8
    i ^= 1
    assert i.tolist() == [11, 11]
    with pytest.raises(TypeError):
        i += "a"


def test_overlapping_parts_are_read_before_they_are_written() -> None:
    x = ox.arange(5)
    x[1:] = x[:-1]
    assert x.tolist() == [0, 0, 1, 2, 3]
