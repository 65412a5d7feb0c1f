"""Functions with a gradient of their own: what forward leaves, what backward may return, writes, recordings."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox.autograd import Function, gradcheck
from ox.autograd.function import once_differentiable
from ox.errors import ArgumentError, DTypeError, GradientError, ShapeError
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model


class Power(Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any, exponent: int = 2) -> Any:
        ctx.exponent = exponent
        ctx.save_for_backward(x, w)
        return w * x**exponent

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, w = ctx.saved_tensors
        k = ctx.exponent
        return g * w * k * x ** (k - 1), g * x**k, None


class Exp(Function):
    """Saves its output, by setup_context."""

    @staticmethod
    def forward(x: Any) -> Any:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (y,) = ctx.saved_tensors
        return g * y


def leaf(*values: float) -> Any:
    return ox.tensor(list(values), dtype=ox.float64, requires_grad=True)


def function(backward: Any, forward: Any = None) -> type[Function]:
    body = {
        "forward": staticmethod(forward or (lambda ctx, *xs: xs[0] * 1)),
        "backward": staticmethod(backward),
    }
    return type("Odd", (Function,), body)


def test_gradients_of_any_order() -> None:
    x, w = leaf(1.0, -2.0, 0.5), leaf(2.0, 3.0, 1.0)
    assert gradcheck(lambda x, w: Power.apply(x, w, 3), [x, w], order=2)
    assert gradcheck(Exp.apply, [x], order=2)
    y = Exp.apply(x)
    for _ in range(4):
        (y,) = ox.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(y.tolist(), np.exp(x.tolist()))


def test_the_node_is_the_context() -> None:
    x = leaf(1.0, 2.0)
    y = Power.apply(x, ox.ones(2, dtype=ox.float64))
    assert y.grad_fn.name() == repr(y.grad_fn)[1:-1] == "PowerBackward"
    assert y.grad_fn.needs_input_grad == (True, False)
    assert y.grad_fn.exponent == 2
    assert y.grad_fn.saved_tensors[0] is x
    assert y.grad_fn.next_functions == ((x.node, 0),)
    y.sum().backward()
    with pytest.raises(GradientError, match="second time through Power"):
        y.sum().backward()


def test_nothing_is_kept_where_no_gradient_follows() -> None:
    seen = []

    def forward(ctx: Any, x: Any) -> Any:
        seen.append((ctx.needs_input_grad, ox.is_grad_enabled()))
        return x * 2

    odd = function(lambda ctx, g: g, forward)
    with ox.no_grad():
        assert not odd.apply(leaf(1.0)).requires_grad
    assert not odd.apply(ox.ones(2)).requires_grad
    assert seen == [((True,), False), ((False,), False)]


def test_several_outputs_and_what_backward_gets() -> None:
    seen: list[Any] = []

    class Split(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, keep: bool) -> Any:
            ctx.set_materialize_grads(keep)
            places = x.argmax()
            ctx.mark_non_differentiable(places)
            return x * 2, x * 3, places, "text"

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any, places: Any, text: Any) -> Any:
            seen.append([g if g is None else (g.tolist(), str(g.dtype)) for g in (a, b, places)])
            assert text is None
            return (2 * a if a is not None else 0) + (3 * b if b is not None else 0), None

    x = leaf(1.0, 2.0)
    a, _, places, text = Split.apply(x, True)
    assert text == "text"
    assert not places.requires_grad
    a.sum().backward()
    assert seen.pop() == [([1, 1], "float64"), ([0, 0], "float64"), (0, "int64")]
    _, b, *_ = Split.apply(x, False)
    b.sum().backward()
    assert seen.pop() == [None, ([1, 1], "float64"), None]
    assert x.grad.tolist() == [5, 5]


@rows(
    "result, error, text",
    [
        ((), GradientError, "another number of gradients"),
        (("g", None, None), None, ""),
        (("g", None, "g"), GradientError, "another number of gradients"),
        (("g", "g"), GradientError, "argument 1, which was no tensor"),
        (("g.sum(0)", None), ShapeError, "wrong shape for argument 0"),
        (("g[:1]", None), ShapeError, "wrong shape for argument 0"),
        (("g[None]", None), None, ""),  # summed, as broadcasting is undone
        (("g.float()", None), None, ""),
        ((1.0, None), DTypeError, "no tensor as gradient 0"),
        ((None, None), None, ""),
    ],
)
def test_what_backward_may_return(result: Any, error: Any, text: str) -> None:
    def backward(ctx: Any, g: Any) -> Any:
        return tuple(eval(r, {"g": g}) if isinstance(r, str) else r for r in result)

    x = leaf(1.0, 2.0, 3.0)
    y = function(backward).apply(x, 5)
    if error is None:
        y.sum().backward()
        assert x.grad is None or (x.grad.dtype == ox.float64 and x.grad.tolist() == [1, 1, 1])
        return
    with pytest.raises(error, match=text) as caught:
        y.sum().backward()
    assert "Odd.backward" in str(caught.value)
    assert "test_function.py" in caught.value.where
    assert "def backward(ctx" in caught.value.where


def test_what_is_missing() -> None:
    class Nothing(Function):
        pass

    class Forth(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

    with pytest.raises(ArgumentError, match="no forward"):
        Nothing.apply(leaf(1.0))
    with pytest.raises(GradientError, match="Forth has no backward"):
        Forth.apply(leaf(1.0)).backward()
    with pytest.raises(ArgumentError, match=r"apply"):
        Forth()
    with pytest.raises(ArgumentError, match="argument 0 is no tensor"):
        function(None, lambda ctx, x: ctx.save_for_backward(3)).apply(leaf(1.0))


def test_a_saved_tensor_that_was_written() -> None:
    x = leaf(1.0, 2.0)
    h = x * 1
    y = Power.apply(h, ox.ones(2, dtype=ox.float64))
    h.add_(1)
    with pytest.raises(GradientError, match="Power needs for its gradient was modified"):
        y.sum().backward()


def test_inputs_that_are_handed_on_and_inputs_that_are_written() -> None:
    same = function(lambda ctx, g: g * 10, lambda ctx, x: x)
    x = leaf(1.0, 2.0)
    y = same.apply(x)
    assert y is not x
    with pytest.raises(GradientError, match="custom Function"):
        y.add_(1)
    y.sum().backward()
    assert x.grad.tolist() == [10, 10]

    def double(ctx: Any, x: Any) -> Any:
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    written = function(lambda ctx, g: g * 2, double)
    x.grad = None
    h = x * 1
    part = h[0]
    assert written.apply(h) is h
    assert h.grad_fn.name() == "OddBackward"
    assert part.item() == 2
    (part * 3 + h.sum()).backward()
    assert x.grad.tolist() == [8, 2]
    whole = x * 1
    row = whole[1:]
    written.apply(row)
    assert whole.tolist() == [1, 4]
    (x.grad,) = ox.autograd.grad(whole.sum(), x)
    assert x.grad.tolist() == [1, 2]
    with pytest.raises(GradientError, match="leaf"):
        written.apply(x)
    with pytest.raises(GradientError, match="does not return"):
        function(None, lambda ctx, x: (ctx.mark_dirty(x), x * 1)[1]).apply(x * 1)


VIEWS = {
    "the input itself": lambda ctx, x: x,
    "a slice": lambda ctx, x: x[:2],
    "another shape": lambda ctx, x: x.view(2, 2),
    "several": lambda ctx, x: (x[:2], x[2:]),
}


@rows("name", VIEWS)
@rows("write", [lambda x: x.mul_(-1), lambda x: x[1:3].mul_(-1), lambda x: x.view(4).neg_()])
def test_views_of_inputs_that_are_written_later(name: str, write: Any) -> None:
    passing = function(lambda ctx, *g: ox.cat([part.reshape(-1) for part in g]) * 10, VIEWS[name])
    x = ox.ones(4, requires_grad=True)
    for row in (False, True):  # the output, and a view of it
        z = x * 1
        y = passing.apply(z)
        y = y[0] if isinstance(y, tuple) else y
        y = y[:1] if row else y
        write(z)
        with pytest.raises(GradientError, match="written in place") as caught:
            y.sum().backward()
        assert "OddBackward" in str(caught.value) or "SliceBackward" in str(caught.value)
        assert "test_function.py" in str(caught.value)
    z = x * 1
    y = passing.apply(z)
    write(z)
    z.sum().backward()  # a gradient that does not go through the function
    assert x.grad.numpy().min() == -1


def test_what_a_hooked_module_passed_through_is_written_later() -> None:
    module = ox.nn.Identity()
    module.register_full_backward_hook(lambda module, given, got: (given[0] * 10,))
    x = ox.ones(2, requires_grad=True)
    z = x * 1
    y = module(z)
    z.mul_(-1)
    with pytest.raises(GradientError, match="written in place"):
        y.sum().backward()


def test_a_written_input_in_a_compiled_call() -> None:
    passing = function(lambda ctx, g: g * 10, lambda ctx, x: x[:2])

    def step(x: Any) -> Any:
        z = x * 1
        y = passing.apply(z)
        z.mul_(-1)
        y.sum().backward()
        return x.grad

    for call in (step, ox.compile(step)):
        with pytest.raises(GradientError, match="written in place"):
            call(ox.ones(4, requires_grad=True))


def test_once_differentiable() -> None:
    class Sin(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return ox.from_numpy(np.sin(x.numpy()))

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return g * ox.from_numpy(np.cos(ctx.saved_tensors[0].numpy()))

    x = leaf(0.5)
    assert gradcheck(Sin.apply, [x])
    v = leaf(1.0)
    (g,) = ox.autograd.grad(Sin.apply(x), x, v, create_graph=True)
    with pytest.raises(GradientError, match="a second time"):
        g.backward()


def test_a_call_leaves_no_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        y = Exp.apply(leaf(1.0))
        node = weakref.ref(y.grad_fn)
        del y
        assert node() is None
    finally:
        gc.enable()


def test_forward_and_backward_are_recorded() -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = Power.apply(Exp.apply(x), ox.tensor(2.0), 3)
        (g,) = ox.autograd.grad(y.sum(), x, create_graph=True)
        return ox.autograd.grad((g * g).sum(), x)[0]

    def batch(rows: int) -> Any:
        return ox.from_numpy(np.random.default_rng(rows).random((rows, 3), dtype=np.float32))

    model = to_model(record(step, {"x": batch(2)}, dims={"x": ["batch", 3]}))
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 2, 5):
        (got,) = session.run(None, {"x": batch(count).numpy()})
        np.testing.assert_allclose(got, step(batch(count)).numpy(), rtol=1e-5)
