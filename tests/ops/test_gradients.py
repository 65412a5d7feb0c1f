"""Gradients of every operator that has one: finite differences of first and second order in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from node_cases import operators
from rows import rows
from samples import Sample, samples

from ox.autograd import grad, gradcheck
from ox.core.operator import OPS
from ox.dtypes import float32, float64, is_floating
from ox.errors import GradientError
from ox.tensors.tensor import Tensor, make_tensor

DIFFERENTIABLE = [name for name in operators() if OPS[name].rules]
ELEMENTS = 12  # of each input, in all samples together; one wrong rule is wrong nearly everywhere


def followed(name: str, sample: Sample) -> list[int]:
    """The inputs that a gradient rule serves and that are float64 here."""
    rules, last = OPS[name].rules, len(OPS[name].schema.inputs) - 1
    covered = {p for rule in rules for p in rule.positions}
    if any(rule.variadic for rule in rules):
        covered.update(range(last, len(sample.inputs)))
    given = [i for i in sorted(covered) if i < len(sample.inputs) and sample.inputs[i] is not None]
    return [i for i in given if sample.inputs[i].dtype == float64]


def tensors(name: str, sample: Sample, dtype: Any = float64) -> list[Any]:
    wanted = followed(name, sample)
    return [
        x
        if x is None
        else make_tensor(x.astype(dtype)).requires_grad_()
        if i in wanted
        else make_tensor(x.astype(dtype) if x.dtype == float64 else x)
        for i, x in enumerate(sample.inputs)
    ]


def disagreements(name: str, order: int) -> list[str]:
    bad, all_samples = [], samples(name)
    for k, sample in enumerate(all_samples):
        inputs = tensors(name, sample)
        if not any(x is not None and x.requires_grad for x in inputs):
            continue

        def call(*xs: Any, sample: Sample = sample) -> Any:
            return OPS[name](*xs, outputs=sample.outputs, **sample.attributes)

        first = call(*inputs)
        if not (first if isinstance(first, tuple) else (first,))[0].requires_grad:
            continue
        try:
            gradcheck(call, inputs, order=order, elements=max(3, ELEMENTS // len(all_samples)), seed=k)
        except GradientError as error:
            shapes = [None if x is None else list(x.shape) for x in inputs]
            bad.append(f"{sample.name} {shapes} {sample.attributes}: {error.one_line()}")
    return bad


# an error says that no gradient passes; PyTorch has none for these either
WITHOUT_GRADIENT = {
    "BitCast": {"input"},
    "DequantizeLinear": {"x_scale"},
    "Dropout": {"ratio"},
    "DynamicQuantizeLinear": {"x"},  # its scale depends on x: no gradient at all would be a wrong one
    "NegativeLogLikelihoodLoss": {"weight"},
    "OptionalGetElement": {"input"},
    "Range": {"start", "delta"},
    "Resize": {"roi", "scales"},
    "RoiAlign": {"rois"},
    "SoftmaxCrossEntropyLoss": {"weights"},
    "Unique": {"X"},
    "Upsample": {"X", "scales"},  # files that hold it are read as Resize
    "ox.SoftCrossEntropy": {"weight"},
    "ox.WeightedCrossEntropy": {"weight"},
    "ox.NextAfter": {"Y"},
}


@rows("name", operators())
def test_every_floating_input_has_a_rule_or_is_a_constant(name: str) -> None:
    """And with all of them followed, backward gives a gradient to those that have a rule and None to the constants."""
    op = OPS["ScatterElements" if name == "Scatter" else name]
    schema, last = op.schema, len(op.schema.inputs) - 1
    floating = any(is_floating(dtype) for kind in schema.output_types for dtype in schema.allowed(kind))
    if not floating or (op.composite and not op.rules):  # a gradient then follows the operators of its body
        return
    served = {position for rule in op.rules for position in rule.positions}
    served |= {last} if any(rule.variadic for rule in op.rules) else set()
    open_inputs = {
        given.name
        for i, given in enumerate(schema.inputs)
        if any(is_floating(dtype) for dtype in schema.allowed(given.type))
        and i not in served
        and given.name not in op.nondifferentiable
    }
    assert open_inputs == WITHOUT_GRADIENT.get(name, set())
    if open_inputs:
        return
    for sample in samples(name)[:4]:
        inputs: list[Any] = [None if x is None else make_tensor(x) for x in sample.inputs]
        followed = [x for x in inputs if x is not None and x.dtype in (float32, float64)]
        for x in followed:
            x.requires_grad_()
        result = op(*inputs, outputs=sample.outputs, **sample.attributes)
        outputs = [y for y in (result if isinstance(result, tuple) else (result,)) if y.requires_grad]
        if not outputs:
            continue
        grads = grad(outputs, followed, [y.detach() for y in outputs], allow_unused=True)
        constants = {id(x) for i, x in enumerate(inputs) if schema.input_at(i).name in op.nondifferentiable}
        assert all(g is None for x, g in zip(followed, grads, strict=True) if id(x) in constants)


SOME = np.random.default_rng(0).uniform(0.5, 2, 4)
CUT: dict[str, tuple[list[Any], int, dict[str, Any]]] = {
    "DequantizeLinear": ([np.ones((2, 4), np.int8), SOME.astype(np.float32)], 1, {}),
    "NegativeLogLikelihoodLoss": ([np.eye(3, 4), np.array([0, 2, 1]), SOME], 2, {}),
    "Range": ([np.array(0.5), np.array(3.0), np.array(0.7)], 2, {}),
    "Resize": (
        [SOME.reshape(1, 4), np.array([0, 0.1, 1, 0.8]), np.array([1, 2], np.float32)],
        1,
        {"mode": "linear", "coordinate_transformation_mode": "tf_crop_and_resize"},
    ),
    "RoiAlign": ([SOME.reshape(1, 1, 2, 2), np.array([[0.1, 0.2, 1.3, 1.7]]), np.array([0])], 1, {}),
    "SoftmaxCrossEntropyLoss": ([np.eye(3, 4), np.array([0, 2, 1]), SOME], 2, {}),
}


@rows("name", CUT)
def test_a_gradient_that_no_rule_gives_is_an_error(name: str) -> None:
    """The output changes with these inputs: without a word their gradient would be missing."""
    arrays, place, attributes = CUT[name]
    inputs = [make_tensor(array) for array in arrays]
    followed = make_tensor(arrays[place]).requires_grad_()
    inputs[place] = followed * 1
    result = OPS[name](*inputs, **attributes)
    with pytest.raises(GradientError, match=f"{name} has no gradient for input"):
        result.sum().backward()


HEAVY = {"Attention", "GRU", "GridSample", "LSTM"}  # five seconds and more each


@rows(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in HEAVY)) for name in DIFFERENTIABLE],
    items=20,
)
def test_finite_differences(name: str) -> None:
    bad = disagreements(name, order=2)
    assert not bad, "\n".join(bad)


@rows("name", DIFFERENTIABLE)
def test_rules_have_names(name: str) -> None:
    """A traceback shows ``Tanh_backward``, and ``Mul_backward_A`` of a rule that serves one of several inputs."""
    op = OPS["ScatterElements" if name == "Scatter" else name]  # which is called by its older name
    for rule in op.rules:
        shown = rule.function.__code__.co_name
        assert shown.startswith(f"{op.name}_backward") and rule.function.__name__ == shown
        assert len(rule.positions) > 1 or len(op.schema.inputs) > 1 or shown == f"{op.name}_backward"


@rows("name", DIFFERENTIABLE)
def test_there_are_samples(name: str) -> None:
    schema = OPS[name].schema
    served = {schema.input_at(p).type for rule in OPS[name].rules for p in rule.positions}
    if not any(float64 in schema.allowed(kind) for kind in served):
        pytest.skip(f"{name} does not take float64; tests/ops/test_single_precision.py checks its gradient")
    assert any(followed(name, s) for s in samples(name)), f"write samples for {name} in tests/ops/samples.py"


@rows("name", operators())
def test_only_floating_outputs_require_a_gradient(name: str) -> None:
    """Whatever the inputs ask for, an integer or bool output never does, and nothing does under no_grad."""
    from ox.autograd import no_grad

    for sample in samples(name)[:4]:
        inputs = tensors(name, sample)
        for x in inputs:
            if x is not None and x.dtype == float64:
                x.requires_grad_()
        result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
        for y in result if isinstance(result, tuple) else (result,):
            assert not y.requires_grad or is_floating(y.dtype)
        with no_grad():
            result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
        for y in result if isinstance(result, tuple) else (result,):
            assert not y.requires_grad


@rows("name", DIFFERENTIABLE, items=2)
def test_gradients_keep_the_type(name: str) -> None:
    """float32 in, float32 cotangents out, of the input's own shape."""
    for sample in samples(name):
        inputs = tensors(name, sample, float32)
        result = OPS[name](*inputs, outputs=sample.outputs, **sample.attributes)
        outputs = [y for y in (result if isinstance(result, tuple) else (result,)) if y.requires_grad]
        for y in outputs[:1]:
            y.backward(make_tensor(np.ones(y.shape, y.dtype)))
        for x in inputs:
            if x is not None and x.requires_grad and x.grad is not None:
                assert x.grad.dtype == float32
                assert x.grad.array.shape == x.array.shape


@rows("name", DIFFERENTIABLE)
def test_outputs_that_were_not_used(name: str) -> None:
    """A rule gets None for the cotangent of an output that nothing used, and each output alone has the gradient that
    it has beside the others with a zero cotangent."""
    for sample in samples(name):
        if sample.outputs < 2 and not OPS[name].schema.variadic_output:
            continue
        whole = tensors(name, sample)
        result = OPS[name](*whole, outputs=sample.outputs, **sample.attributes)
        floating = [i for i, y in enumerate(result) if y.requires_grad]
        leaves = [x for x in whole if x is not None and x.requires_grad]
        for i in floating if leaves else []:
            ones = [make_tensor(np.full(result[k].shape, float(k == i), result[k].dtype)) for k in floating]
            alone = grad(result[i], leaves, ones[floating.index(i)], retain_graph=True, allow_unused=True)
            beside = grad([result[k] for k in floating], leaves, ones, retain_graph=True, allow_unused=True)
            for a, b in zip(alone, beside, strict=True):
                left = np.zeros(1) if a is None else a.array
                right = np.zeros(1) if b is None else b.array
                assert np.allclose(left, right, atol=1e-6), f"{name} {sample.name}: output {i} alone"


@rows("name", DIFFERENTIABLE, items=2)
def test_some_inputs_only(name: str) -> None:
    """The gradient of one input is the same whether or not the others want theirs."""
    for sample in samples(name):
        wanted = followed(name, sample)
        if len(wanted) < 2:
            continue
        every = tensors(name, sample)
        first = _first(OPS[name](*every, outputs=sample.outputs, **sample.attributes))
        cotangent = make_tensor(np.random.default_rng(1).standard_normal(first.array.shape))
        expected = grad(first, [every[i] for i in wanted], cotangent, allow_unused=True)
        for i, g in zip(wanted, expected, strict=True):
            alone = [x if x is None else x.detach().requires_grad_(k == i) for k, x in enumerate(every)]
            (found,) = grad(
                _first(OPS[name](*alone, outputs=sample.outputs, **sample.attributes)),
                alone[i],
                cotangent,
                allow_unused=True,
            )
            assert (found is None) == (g is None)
            assert found is None or np.allclose(found.array, g.array, atol=1e-9)


def _first(result: Any) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


@rows("dtype", [float32, float64], ids=str)
@rows("count", [1, 64])
@rows("name", ["Elu", "Selu", "Celu", "HardSwish", "Mish", "Swish", "Gelu", "Softplus"])
def test_where_activations_end(name: str, count: int, dtype: Any) -> None:
    """NaN arrives as NaN, and far above 0 the slope is 1 (Selu's is gamma)."""
    x = make_tensor(np.array([np.nan, 1e30, 30.0] * count, dtype)).requires_grad_()
    (found,) = grad(OPS[name](x).sum(), x)
    slope = 1.0507010221481323 if name == "Selu" else 1
    assert np.isnan(found.numpy()[::3]).all()
    np.testing.assert_allclose(found.numpy().reshape(-1, 3)[:, 1:], slope, rtol=1e-6)
