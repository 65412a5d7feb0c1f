"""The generated checks can fail: a wrong kernel, rule or signature, made on purpose, is caught by the check for it.

(No `from __future__ import annotations` here: a definition's annotations are read when it runs.)
"""

from collections.abc import Iterator
from typing import Any

import known
import numpy as np
import pytest
from node_cases import cases, failures
from samples import samples
from test_gradients import disagreements, followed
from test_node_cases import sweep
from test_recording import problems
from test_schema import differences

from ox import devices
from ox.autograd import gradcheck, gradgradcheck
from ox.core.operator import OPS, Operator, operator
from ox.core.types import XP, T
from ox.dtypes import FLOATS, NUMERIC, float32, float64
from ox.errors import ArgumentError, GradientError
from ox.tensors.tensor import Tensor, make_tensor


@pytest.fixture
def stand_in() -> Iterator[None]:
    """Operators defined by a test go away again, and those they stood in for come back."""
    kept = dict(OPS)
    yield
    OPS.clear()
    OPS.update(kept)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.slow
def test_a_wrong_kernel() -> None:
    @operator("output", T=FLOATS)
    def Tanh(xp: XP, input: T) -> T:
        return xp.tanh(input) + (1e-3 * (input > 0)).astype(input.dtype)

    with devices.forced("numpy"):
        bad, ran, _ = failures("Tanh", known.NUMPY)
    assert ran and len(bad) == ran


@pytest.mark.usefixtures("stand_in")
def test_a_kernel_that_is_wrong_in_one_type() -> None:
    @operator("output", T=FLOATS)
    def Tanh(xp: XP, input: T) -> T:
        return xp.tanh(input) if input.dtype in (float32, float64) else (xp.tanh(input) * 2).astype(input.dtype)

    with devices.forced("numpy"):
        assert not failures("Tanh", known.NUMPY)[0], "the node cases do not see it"
        assert any("float16" in line for line in sweep("Tanh"))


@pytest.mark.usefixtures("stand_in")
def test_a_wrong_rule() -> None:
    @operator("output", T=FLOATS)
    def Tanh(xp: XP, input: T) -> T:
        return xp.tanh(input)

    @Tanh.gradient("input")
    def _(g: Tensor, output: Tensor) -> Tensor:
        return g * (1 - output)

    assert disagreements("Tanh", order=1)


@pytest.mark.usefixtures("stand_in")
def test_a_rule_that_is_right_but_not_differentiable() -> None:
    @operator("output", T=FLOATS)
    def Tanh(xp: XP, input: T) -> T:
        return xp.tanh(input)

    @Tanh.gradient("input")
    def _(g: Tensor, output: Tensor) -> Tensor:
        return g * (1 - output * output).detach()

    assert not disagreements("Tanh", order=1)
    found = disagreements("Tanh", order=2)
    assert found and all("second gradient" in line for line in found)


@pytest.mark.usefixtures("stand_in")
def test_a_rule_that_bakes_in_what_only_eager_knows() -> None:
    """A rule that reads values rather than calling operators gives a graph that knows this one input only."""

    @operator("output", T=FLOATS)
    def Tanh(xp: XP, input: T) -> T:
        return xp.tanh(input)

    @Tanh.gradient("input")
    def _(g: Tensor, output: Tensor) -> Tensor:
        return g * make_tensor(g.array * 0 + 1 - output.array**2)

    sample = samples("Tanh")[0]
    with_other_cotangents = problems("Tanh", sample, with_gradient=True)
    # the same input gives the same numbers, so what shows is the graph: the constant is in it
    from ox.autograd import grad
    from ox.graph.record.recording import record

    def step(x: Tensor) -> Tensor:
        (found,) = grad(OPS["Tanh"](x.requires_grad_()), x, make_tensor(np.ones(x.array.shape, x.dtype)))
        return found

    def run(values: Any) -> Any:
        from ox.graph.replay import replay

        graph = record(step, {"x": make_tensor(sample.inputs[0])})
        return replay(graph, [make_tensor(values)])[0].array, step(make_tensor(values)).array

    replayed, eager = run(sample.inputs[0] * 2)
    assert with_other_cotangents or not np.allclose(replayed, eager)


@pytest.mark.parametrize(
    ("what", "definition"),
    [
        ("inputs", lambda: _define("C", lambda xp, A, X: A)),
        ("outputs", lambda: _define("Y", lambda xp, A, B: A)),
        ("types", lambda: _define("C", lambda xp, A, B: A, FLOATS)),
    ],
)
@pytest.mark.usefixtures("stand_in")
def test_a_signature_that_is_not_the_schema(what: str, definition: Any) -> None:
    found = differences(definition())
    assert any(what in line for line in found), found


def _define(outputs: str, kernel: Any, types: Any = NUMERIC) -> Operator:
    kernel.__name__ = kernel.__qualname__ = "Add"
    kernel.__annotations__ = {**dict.fromkeys(kernel.__code__.co_varnames[1:], T), "return": T}
    return operator(outputs, T=types)(kernel)


@pytest.mark.usefixtures("stand_in")
def test_an_attribute_default_that_is_not_the_schemas() -> None:
    @operator("output", T=FLOATS)
    def Softmax(xp: XP, input: T, *, axis: int = 1) -> T:
        return input

    assert differences(Softmax) == ["attribute axis is 1 by default, not -1"]


def test_the_right_ones_pass() -> None:
    assert not differences(OPS["Tanh"])
    assert not disagreements("Tanh", order=2)
    assert not problems("Tanh", samples("Tanh")[0], with_gradient=True)
    assert len(cases("Tanh")[0]) >= 2
    assert followed("Tanh", samples("Tanh")[0]) == [0]


# gradcheck itself


def double(*shape: int) -> Tensor:
    return make_tensor(np.random.default_rng(5).standard_normal(shape)).requires_grad_()


def test_gradcheck_names_the_worst_element() -> None:
    x = double(3)
    weights = make_tensor(np.array([0.0, 1.0, 0.0]))

    def wrong_at_one(a: Tensor) -> Tensor:
        return a * a + weights * a.detach()

    with pytest.raises(GradientError, match="finite differences") as raised:
        gradcheck(wrong_at_one, [x])
    assert "input 0[1]" in (raised.value.got or "")
    assert "numerical" in (raised.value.expected or "")


def test_gradcheck_touches_nothing() -> None:
    x = double(2, 2)
    before = x.array.copy()
    assert gradcheck(lambda a: a * a, x, order=2)
    assert x.grad is None
    assert np.array_equal(x.array, before)


def test_gradgradcheck_of_a_linear_function() -> None:
    assert gradgradcheck(lambda a, b: a + b, [double(2), double(2)])


def test_gradcheck_asks_for_float64_and_a_gradient() -> None:
    with pytest.raises(ArgumentError, match="float64"):
        gradcheck(lambda a: a, [make_tensor(np.ones(2, float32)).requires_grad_()])
    with pytest.raises(ArgumentError, match="requires a gradient"):
        gradcheck(lambda a: a, [make_tensor(np.ones(2))])


def test_gradcheck_sees_a_missing_path() -> None:
    with pytest.raises(GradientError):
        gradcheck(lambda a, b: a * b.detach(), [double(2), double(2)])


@pytest.mark.usefixtures("stand_in")
def test_a_traceback_names_the_rule() -> None:
    @operator("output", T=FLOATS)
    def Halve(xp: XP, input: T) -> T:
        return input / 2

    @operator("output", T=FLOATS)
    def Third(xp: XP, input: T) -> T:
        return input / 3

    @Halve.gradient("input")
    @Third.gradient("input")
    def _(g: Tensor) -> Tensor:
        raise RuntimeError("not written yet")

    for op, name in ((Halve, "Halve_backward"), (Third, "Third_backward")):
        with pytest.raises(RuntimeError, match="not written yet") as raised:
            op(make_tensor(np.ones(2)).requires_grad_()).sum().backward()
        assert raised.traceback[-1].name == name
