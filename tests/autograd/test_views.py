"""Writes through views: the gradient is that of the same program without writes, and what is refused says so."""

from __future__ import annotations

import gc
import math
import weakref
from typing import Any

import numpy as np
import pytest
from rows import rows

import ox
from ox.core.memory_format import layout, part_of, same_place
from ox.errors import ArgumentError, GradientError, PairsError, ShapeError

X, W = np.random.default_rng(5).normal(size=(3, 4)), np.random.default_rng(6).uniform(0.5, 2, size=4)


def inputs() -> tuple[Any, Any]:
    return ox.tensor(X, requires_grad=True), ox.tensor(W, requires_grad=True)


def stacked(a: Any, *changed: tuple[int, Any]) -> Any:
    parts = list(a.unbind(0))
    for i, row in changed:
        parts[i] = row
    return ox.stack(parts)


# a program that writes into a (x * w; it may return another tensor too), and what it comes to
PROGRAMS: dict[str, tuple[Any, Any]] = {
    "a row in place": (lambda a, x, w: a[1].mul_(w), lambda a, x, w: stacked(a, (1, a[1] * w))),
    "x[i] += v": (lambda a, x, w: a.__setitem__(0, a[0].add_(w)), lambda a, x, w: stacked(a, (0, a[0] + w))),
    "transposed": (lambda a, x, w: a.T[1].add_(x[:, 0]), lambda a, x, w: ox.cat(
        [a[:, :1], (a[:, 1] + x[:, 0]).unsqueeze(1), a[:, 2:]], 1)),
    "a part of a part": (lambda a, x, w: a[1:][0][2:].fill_(7.0), lambda a, x, w: stacked(
        a, (1, ox.cat([a[1, :2], ox.full((2,), 7.0, dtype=ox.float64)])))),
    "flat": (lambda a, x, w: a.view(-1)[4:8].copy_(w), lambda a, x, w: stacked(a, (1, w * 1))),
    "steps": (lambda a, x, w: a[::2].mul_(2), lambda a, x, w: stacked(a, (0, a[0] * 2), (2, a[2] * 2))),
    "expanded by one": (lambda a, x, w: a.unsqueeze(0)[0, 2].sub_(w), lambda a, x, w: stacked(a, (2, a[2] - w))),
    "by a list": (lambda a, x, w: a.__setitem__([0, 2], x[1:]), lambda a, x, w: stacked(a, (0, x[1]), (2, x[2]))),
    "by a mask": (lambda a, x, w: a.__setitem__(a > 0, 1.0), lambda a, x, w: ox.where(a > 0, 1.0, a)),
    "by a mask, many": (
        lambda a, x, w: a.__setitem__(ox.tensor(X > 0), (a * 3)[ox.tensor(X > 0)]),
        lambda a, x, w: ox.where(ox.tensor(X > 0), a * 3, a),
    ),
    "twice": (
        lambda a, x, w: (a[0].mul_(w), a.mul_(2), a[0].add_(a[1])),
        lambda a, x, w: stacked(a * 2, (0, a[0] * w * 2 + a[1] * 2)),
    ),
    "the diagonal": (
        lambda a, x, w: a[:, :3].diagonal().mul_(w[:3]),
        lambda a, x, w: ox.cat([ox.where(ox.eye(3, dtype=ox.bool), a[:, :3] * w[:3], a[:, :3]), a[:, 3:]], 1),
    ),
    "filled and written": (lambda a, x, w: (a.zero_(), a[1].copy_(w)), lambda a, x, w: stacked(a * 0, (1, w * 1))),
}  # fmt: skip


@rows("name", PROGRAMS)
def test_a_write_is_what_it_comes_to(name: str) -> None:
    """Values, first and second gradients; a view from before and the root from its view agree."""
    written, plain = PROGRAMS[name]
    found = []
    for writes in (True, False):
        x, w = inputs()
        a = x * w
        if writes:
            before = a.view(2, 6)
            written(a, x, w)
            np.testing.assert_array_equal(before.detach().numpy().ravel(), a.detach().numpy().ravel())
        else:
            a = plain(a, x, w)
            before = a.reshape(2, 6)
        loss = (a * a).sum() + (before[1] ** 3).sum()
        grads = ox.autograd.grad(loss, [x, w], create_graph=True)
        second = ox.autograd.grad(sum((g * g).sum() for g in grads), [x, w], allow_unused=True)
        found.append([a, *grads, *second])
    for got, expected in zip(*found, strict=True):
        if got is None or expected is None:
            known = expected if got is None else got
            assert known is None or not known.numpy().any()
        else:
            np.testing.assert_allclose(got.detach().numpy(), expected.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_zeros_that_are_filled() -> None:
    x, w = inputs()
    out = ox.zeros(3, 4, dtype=ox.float64)
    last = out[2]
    for i in range(3):
        out[i] = x[i] * w if i == 0 else out[i - 1].clone() * w
    last.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.stack([W**3, 0 * W, 0 * W]))
    np.testing.assert_allclose(w.grad.numpy(), 3 * X[0] * W**2)


@rows(
    "write, text",
    [
        (lambda x, a: x[0].mul_(2), "a view of a leaf"),
        (lambda x, a: x.T.add_(1), "a view of a leaf"),
        (lambda x, a: x.__setitem__(0, 1.0), "a leaf that"),
        (lambda x, a: x.view(-1).__setitem__(0, 1.0), "a view of a leaf"),
        (lambda x, a: a.unbind(0)[0].mul_(2), "one of several"),
        (lambda x, a: a.chunk(2)[1][0].zero_(), "one of several"),
        (lambda x, a: a.split([1, 2])[1].__setitem__(0, 1.0), "one of several"),
        (lambda x, a: ox.no_grad()(lambda: a[0])().mul_(2), "under no_grad"),
        (lambda x, a: ox.no_grad()(lambda: ox.zeros(3, dtype=ox.float64)[1:])().mul_(a[0, 0]), "under no_grad"),
    ],
)
def test_what_is_refused(write: Any, text: str) -> None:
    x, w = inputs()
    a = x * w
    with pytest.raises(GradientError, match=text) as caught:
        write(x, a)
    assert "test_views.py" in caught.value.where
    assert caught.value.hint
    assert (x.tolist(), a.tolist()) == (X.tolist(), (X * W).tolist())


def test_what_is_free() -> None:
    """No gradient follows writes under no_grad, to detached memory, or to what needs none; versions still count."""
    x, w = inputs()
    a = x * w
    with ox.no_grad():
        a[0].mul_(2)
    a.detach()[1] = 0.0
    assert not a[1].detach().numpy().any()
    assert a.version == 2
    a.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.tile(W, (3, 1)))
    y = x * w
    with ox.no_grad():
        x.view(-1).add_(1)
    with pytest.raises(GradientError, match="in-place"):
        y.sum().backward()


def test_hooks_and_kept_gradients_after_a_write() -> None:
    x, w = inputs()
    h = x * w
    h.retain_grad()
    seen: list[Any] = []
    h.register_hook(lambda g: seen.append(g.tolist()))
    h[0].mul_(3)
    h.sum().backward()
    assert h.grad.tolist() == np.ones((3, 4)).tolist()  # of the value that it has now
    assert seen == [[[3.0] * 4, [1.0] * 4, [1.0] * 4]]  # of the one that it had then


def test_families_are_freed() -> None:
    gc.collect()
    gc.disable()
    try:
        x, w = inputs()
        a = x * w
        views = [a[0], a.T, a.view(-1)]
        views[0].mul_(2)
        kept = [weakref.ref(t) for t in (a, *views, a.grad_fn)]
        del a, views
        assert [r() for r in kept] == [None] * 5
        root = ox.zeros(4)
        for _ in range(1000):
            root[0]
        assert len(root._viewed) < 300
    finally:
        gc.enable()


def test_strides_and_addresses() -> None:
    x = ox.arange(24).reshape(2, 3, 4).clone()
    part = x[1, :, 1:]
    assert (x.stride(), x.stride(1), part.stride(), x.T.stride()) == ((12, 4, 1), 4, (4, 1), (1, 4, 12))
    assert (x.storage_offset(), part.storage_offset()) == (0, 13)
    assert part.data_ptr() == x.data_ptr() + 13 * 8
    assert part.is_set_to(x[1][:, 1:])
    assert not part.is_set_to(x[1][:, :3])
    assert part._is_view()
    assert part._base is x
    assert x[1][0]._base is x
    assert x.detach()._base is None
    assert x.detach().is_set_to(x)
    assert (x.is_contiguous(), part.is_contiguous()) == (True, False)
    assert part.contiguous().stride() == (3, 1)
    assert ox.zeros(3).expand(2, 3).stride() == (0, 1)


def test_view_is_never_a_copy() -> None:
    x = ox.zeros(3, 4)
    x.view(-1)[5] = 1
    x.view(2, -1)[0, 0] = 2
    assert (x[1, 1].item(), x[0, 0].item()) == (1, 2)
    for wrong in (lambda: x.T.view(-1), lambda: x[:, 1:].view(9), lambda: x[:, 1:3].view(-1)):
        with pytest.raises(ShapeError, match="without a copy") as caught:
            wrong()
        assert "reshape" in caught.value.hint
        assert "strides" in caught.value.got
    assert x[1:].view(-1).shape == (8,)
    made = x.T + 1  # NumPy keeps the order of its input
    flat = made.view(-1)
    flat[1] = 9
    assert made[0, 1].item() == 9
    with pytest.raises(ArgumentError, match="another element type"):
        x.view(ox.int32)
    with pytest.raises(ShapeError, match="multiply"):
        x.view(5)


def test_data_is_the_memory_without_the_history() -> None:
    x, w = inputs()
    x.data[0] = 1.0
    x.data.view(-1)[4:8].copy_(w)
    assert (x.tolist()[0], x.tolist()[1]) == ([1, 1, 1, 1], w.tolist())
    assert x.requires_grad
    other = ox.zeros(3, 4, dtype=ox.float64)
    row = x.detach()[0]
    x.data = other[:]
    x.data[2] = 5.0
    assert other[2].tolist() == [5, 5, 5, 5]
    assert row.tolist() == [1, 1, 1, 1]
    assert not x._is_view()
    (x * w).sum().backward()
    assert x.grad[0].tolist() == w.tolist()


def test_shapes_change_in_place() -> None:
    x, w = inputs()
    a = x * w
    row = a[0]
    assert a.t_() is a
    assert a.shape == (4, 3)
    a[:, 0] = 1.0
    assert row.tolist() == [1, 1, 1, 1]
    a.unsqueeze_(0).squeeze_(0).transpose_(0, 1).sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), np.stack([0 * W, W, W]))
    with pytest.raises(GradientError, match="leaf"):
        x.t_()
    with pytest.raises(GradientError, match="view"):
        a[0].detach_()
    assert a.detach_().is_leaf


@pytest.mark.parametrize(
    ("wanted", "shape"), [(ox.channels_last, (2, 3, 4, 5)), (ox.channels_last_3d, (2, 3, 4, 5, 6))]
)
def test_tensors_whose_channels_come_last(wanted: Any, shape: tuple[int, ...]) -> None:
    x = ox.arange(math.prod(shape)).reshape(shape).float().requires_grad_()
    order = (0, *range(2, len(shape)), 1)
    assert x.is_contiguous() and not x.is_contiguous(memory_format=wanted)
    for y in (
        x.contiguous(memory_format=wanted), x.clone(memory_format=wanted), x.to(memory_format=wanted),
        x.double().float(memory_format=wanted), x.to("cpu", ox.float32, memory_format=wanted, copy=True),
        x.permute(order).contiguous().permute(0, len(shape) - 1, *range(1, len(shape) - 1)),
    ):  # fmt: skip
        assert y.is_contiguous(memory_format=wanted) and not y.is_contiguous() and y.tolist() == x.tolist()
        assert y.permute(order).is_contiguous() and y.contiguous(memory_format=wanted) is y
        assert y.to(memory_format=wanted) is y and y.contiguous().is_contiguous()
        x.grad = None
        (y * y).sum().backward()
        assert x.grad.tolist() == (2 * x).tolist()
    y = x.detach().contiguous(memory_format=wanted)
    y += 1
    assert not y._is_view() and (x + 1).tolist() == y.tolist()
    assert ox.ones(2, 3).is_contiguous(memory_format=wanted) is False
    for call in ("contiguous", "clone", "to"):
        with pytest.raises(
            ShapeError, match=f"(?s){wanted!r}.*expected {len(shape)} dimensions.*got      2 dimensions"
        ):
            getattr(ox.ones(2, 3), call)(memory_format=wanted)


def test_memory_formats_of_rows() -> None:
    x = ox.ones(1, 2, 3, 3)
    assert x.clone(memory_format=ox.preserve_format).is_contiguous(memory_format=ox.contiguous_format)
    assert x.transpose(2, 3).contiguous(memory_format=ox.contiguous_format).is_contiguous()
    with pytest.raises(ArgumentError, match="memory format"):
        x.contiguous(memory_format="rows")
    y = ox.ones(2, 3, 4, 5).contiguous(memory_format=ox.channels_last)
    for z in (
        y.to(memory_format=ox.contiguous_format), y.to("cpu", memory_format=ox.contiguous_format, copy=True),
        y.float(memory_format=ox.contiguous_format), y.half(memory_format=ox.contiguous_format),
        y.clone(memory_format=ox.contiguous_format),
    ):  # fmt: skip
        assert z.is_contiguous()
    assert y.to(memory_format=ox.preserve_format) is y
    with pytest.raises(ArgumentError, match="memory format"):
        x.to(memory_format="rows")
    assert repr(ox.channels_last) == "ox.channels_last"
    assert x.to("cpu", ox.float32, False, True) is not x
    assert x.to(ox.float32, copy=True) is not x


def test_one_channel_lies_both_ways() -> None:
    x = ox.ones(2, 1, 3, 3)
    assert x.is_contiguous() and x.is_contiguous(memory_format=ox.channels_last)
    assert x.contiguous(memory_format=ox.channels_last) is x


def test_complex_numbers_have_no_channels_last() -> None:
    x = ox.fft.fft(ox.ones(2, 3, 4, 5))
    assert not x.is_contiguous(memory_format=ox.channels_last_3d)
    for call in ("contiguous", "clone", "to"):
        with pytest.raises(PairsError, match=r"ox\.channels_last"):
            getattr(x, call)(memory_format=ox.channels_last)


def test_places_of_a_part_in_a_whole() -> None:
    base = np.arange(60).reshape(3, 4, 5)
    for whole in (base, base.T, base[::-1], base[:, 1:, ::2], base[1:2]):
        numbers = np.arange(whole.size).reshape(whole.shape)
        for index in (0, (slice(None), 1), (..., slice(None, None, -1)), (slice(1), None, 0), (slice(0, 0),)):
            part = part_of(whole[index], whole)
            assert part is not None
            np.testing.assert_array_equal(part.places(), numbers[index])
        assert part_of(np.zeros(3, base.dtype), whole) is None
        assert same_place(whole, whole[...])
    assert part_of(base, base[1]) is None
    assert layout(np.broadcast_to(base[0, 0], (2, 5))).overlaps()
    assert not layout(base).overlaps()
