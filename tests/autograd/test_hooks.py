"""Hooks on gradients, and retain_grad."""

from __future__ import annotations

import weakref

import pytest

import ox
from ox.errors import ArgumentError, DTypeError, GradientError, ShapeError


def test_a_hook_sees_and_replaces() -> None:
    x = ox.ones(2, requires_grad=True)
    seen = []
    h = x * 3
    h.register_hook(lambda g: seen.append(g.tolist()))
    h.register_hook(lambda g: g * 10)
    h.register_hook(lambda g: seen.append(g.tolist()))
    (h * 2).sum().backward()
    assert seen == [[2, 2], [20, 20]]
    assert x.grad.tolist() == [60, 60]


def test_a_leafs_hook_sees_the_whole_gradient_once() -> None:
    x = ox.ones(1, requires_grad=True)
    seen = []
    x.register_hook(lambda g: seen.append(g.item()))
    handle = x.register_hook(lambda g: -g)
    (x * 2 + x * 3).backward()
    assert seen == [5.0]
    assert x.grad.item() == -5.0
    handle.remove()
    handle.remove()
    (x * 2).backward()
    assert x.grad.item() == -3.0


def test_hooks_of_other_outputs_stay_apart() -> None:
    x = ox.ones(4, requires_grad=True)
    a, b = x.split(2)
    b.register_hook(lambda g: g * 100)
    (a + b).sum().backward()
    assert x.grad.tolist() == [1, 1, 100, 100]


def test_hooks_of_leaves_that_were_not_asked_for_stay_silent() -> None:
    x, y = (ox.ones(1, requires_grad=True) for _ in range(2))
    y.register_hook(lambda g: pytest.fail("not asked for"))
    assert ox.autograd.grad(x * y, x)[0].item() == 1


def test_a_hook_needs_a_gradient() -> None:
    with pytest.raises(GradientError, match="hook needs"):
        ox.ones(1).register_hook(print)


def test_retain_grad_keeps_what_the_hooks_made_and_adds_up() -> None:
    x = ox.ones(2, requires_grad=True)
    y = x * 2
    y.retain_grad()
    y.retain_grad()
    y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    assert y.grad.tolist() == [10, 10]
    y.sum().backward()
    assert y.grad.tolist() == [20, 20]
    y.grad.zero_()
    assert x.grad.tolist() == [40, 40]


def test_retain_grad_of_a_leaf_changes_nothing() -> None:
    x = ox.ones(1, requires_grad=True)
    x.retain_grad()
    (x * 2).backward()
    assert x.grad.item() == 2


def test_hooks_of_a_node() -> None:
    x = ox.ones(2, requires_grad=True)
    h = x * 3
    seen: list[object] = []
    before = h.grad_fn.register_prehook(lambda gs: (gs[0] * 2,))
    after = h.grad_fn.register_hook(lambda gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    h.grad_fn.register_hook(lambda gi, go: gi[0] * 10)
    h.sum().backward(retain_graph=True)
    assert seen == [([6, 6], [2, 2])]
    assert x.grad.tolist() == [60, 60]
    before.remove()
    with after:
        pass
    h.sum().backward(retain_graph=True)
    assert len(seen) == 1
    assert x.grad.tolist() == [90, 90]
    h.grad_fn.register_hook(lambda gi, go: (None, None))
    with pytest.raises(GradientError, match="another number of gradients"):
        h.sum().backward()


def test_hooks_after_accumulation() -> None:
    x = ox.ones(2, requires_grad=True)
    seen: list[object] = []
    handle = x.register_post_accumulate_grad_hook(lambda t: seen.append((t is x, t.grad.tolist())))
    x.node.register_hook(lambda gi, go: seen.append((gi, go[0].tolist())))
    (x * 2).sum().backward()
    assert seen == [(True, [2, 2]), ((), [2, 2])]
    handle.remove()
    assert ox.autograd.grad((x * 2).sum(), x)[0].tolist() == [2, 2]
    assert len(seen) == 2
    for wrong in (x * 1, ox.ones(1)):
        with pytest.raises(GradientError, match="post-accumulate"):
            wrong.register_post_accumulate_grad_hook(print)


def test_hooks_of_accumulation_run_while_the_walk_goes_on() -> None:
    x, w, v = (ox.ones(2, requires_grad=True) for _ in range(3))
    seen: list[str] = []
    w.register_post_accumulate_grad_hook(lambda t: seen.append("w"))
    v.register_post_accumulate_grad_hook(lambda t: seen.append("v"))
    first = x * w
    first.grad_fn.register_prehook(lambda gs: seen.append("first"))
    ((first * v).exp() + w).sum().backward()  # w is needed again at the end: its gradient is whole only there
    assert seen == ["v", "first", "w"]
    seen.clear()
    (x * w).sum().backward(inputs=[w])
    assert seen == ["w"]


def test_a_gradient_that_is_handed_over_early_has_memory_of_its_own() -> None:
    """An Add hands one gradient to both its inputs; what a hook writes must not reach the other."""
    x, w = ox.ones(2, requires_grad=True), ox.ones(2, requires_grad=True)
    w.register_post_accumulate_grad_hook(lambda t: t.grad.zero_())
    ((x * 3) + w).sum().backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([3, 3], [0, 0])
    given = ox.ones(2)
    (w + 0).backward(given)
    w.backward(given)
    assert (given.tolist(), w.grad.tolist()) == ([1, 1], [0, 0])


def test_followers_learn_of_every_backward() -> None:
    from ox.autograd.grad_ready import add_observer

    class Log:
        def __init__(self) -> None:
            self.seen: list[object] = []

        def on_start(self, leaves, nodes, create_graph: bool) -> None:  # type: ignore[no-untyped-def]
            self.seen.append(len(leaves))

        def on_end(self, failed: bool) -> None:
            self.seen.append(failed)

    x, w = ox.ones(1, requires_grad=True), ox.ones(1, requires_grad=True)
    w.register_post_accumulate_grad_hook(lambda t: None)
    log = Log()
    add_observer(log)
    (x * w).backward()
    (x * 2).backward()
    y = x * w
    y.register_hook(lambda g: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        y.backward()
    (x * w).backward(inputs=[w])
    ox.autograd.grad(x * w, w)  # fills no .grad
    seen = log.seen
    del log
    (x * w).backward()
    assert seen == [1, False, 0, False, 1, True, 1, False]


def test_every_follower_learns_of_the_end_in_order() -> None:
    from ox.autograd.grad_ready import add_observer

    told: list[int] = []

    class Ends:
        def __init__(self, number: int) -> None:
            self.number = number

        def on_start(self, leaves: object, nodes: object, create_graph: bool) -> None:
            pass

        def on_end(self, failed: bool) -> None:
            if len(told) < 20:
                told.append(self.number)
                raise KeyError(self.number)

    several = [Ends(number) for number in range(20)]
    for each in several:
        add_observer(each)
    with pytest.raises(KeyError, match="0"):
        ox.ones(1, requires_grad=True).backward()
    assert told == list(range(20))  # in the order in which they came, for ranks must agree about it


def test_a_hook_may_run_a_backward() -> None:
    x, y = ox.ones(1, requires_grad=True), ox.ones(1, requires_grad=True)
    x.register_post_accumulate_grad_hook(ox.enable_grad()(lambda t: (y * 3).backward()))
    (x * 2).backward()
    assert (x.grad.item(), y.grad.item()) == (2, 3)


def test_gradients_that_are_set() -> None:
    x = ox.ones(2, requires_grad=True)
    x.grad = ox.ones(2)
    del x.grad
    assert x.grad is None
    for wrong, error in (
        (ox.ones(3), ShapeError),
        (ox.ones(2, dtype=ox.float64), DTypeError),
        (1.0, DTypeError),
        (x, ArgumentError),
    ):
        with pytest.raises(error, match="gradient"):
            x.grad = wrong
    assert x.grad is None


def test_backward_into_some_and_several_at_once() -> None:
    x, w = ox.ones(2, requires_grad=True), ox.full((2,), 3.0, requires_grad=True)
    h = x * w
    h.sum().backward(inputs=[x, h], retain_graph=True)
    assert (x.grad.tolist(), w.grad, h.grad.tolist()) == ([3, 3], None, [1, 1])
    with pytest.raises(ArgumentError, match="`inputs` of backward is empty"):
        h.sum().backward(inputs=[])
    with pytest.raises(ArgumentError, match="number of cotangents"):
        ox.autograd.backward([h.sum()], [None, None])
    rows = ox.autograd.grad(h, [x, w], ox.eye(2), is_grads_batched=True, retain_graph=True)
    assert [r.tolist() for r in rows] == [[[3, 0], [0, 3]], [[1, 0], [0, 1]]]
    other = ox.ones(1, requires_grad=True)
    assert ox.autograd.grad(h.sum(), [x, other], materialize_grads=True)[1].tolist() == [0]


def test_gradients_are_handed_over_only_where_someone_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.autograd import backward_pass, grad_ready

    monkeypatch.setattr(grad_ready, "leaves_with_hooks", weakref.WeakSet())
    monkeypatch.setattr(grad_ready, "_observers", weakref.WeakValueDictionary())
    made = []
    kind = grad_ready.ReadyGradients
    monkeypatch.setattr(backward_pass, "ReadyGradients", lambda *args: made.append(args) or kind(*args))
    x = ox.ones(1, requires_grad=True)
    (x * 2).backward()
    assert not made

    class Observer:
        def on_start(self, leaves: object, nodes: object, create_graph: bool) -> None:
            pass

        def on_end(self, failed: bool) -> None:
            pass

    observer = Observer()
    grad_ready.add_observer(observer)
    (x * 2).backward()
    assert len(made) == 1
    del observer
    (x * 2).backward()
    assert len(made) == 1
    grad_ready.leaves_with_hooks.add(x.node)
    (x * 2).backward()
    assert len(made) == 2
    assert x.grad.item() == 8
