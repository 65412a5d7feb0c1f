"""What operators write down is what their kernels compute: on special numbers, in every type and broadcasting."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from samples import FUNCTIONS, samples

from ox import tolerance
from ox.core.operator import OPS
from ox.engines.engine import Task
from ox.engines.native import Native
from ox.engines.native.symbolic import Argument, trace
from ox.graph.ir import Graph, Node, Value

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, 1e-30, -1e-30, 1e-42, 88.0, -88.0, 300.0, -300.0]
SPECIAL += [np.inf, -np.inf, np.nan, 1e-3, -1e-3, 7.25, 1e30, -1e30]
# Operators with these attributes, besides those of the samples
ATTRIBUTES: dict[str, dict[str, Any]] = {
    "Cast": {"to": 1},
    "Gelu": {"approximate": "tanh"},
    "IsInf": {"detect_negative": 0},
}
# where NumPy's own result depends on its loop or type: which of two zeros is the larger one, and the sign of -0
EITHER_ZERO = {"Max", "Min", "Clip", "Relu", "HardSigmoid", "HardSwish", "ox.BelowZero", "Celu", "Elu", "Selu", "Sign"}
TRACED = {
    "Add", "Sub", "Mul", "Div", "Neg", "Abs", "Sign", "Sqrt", "Reciprocal", "Exp", "Log", "Pow", "Min", "Max", "Sum",
    "Mean", "Clip", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "IsNaN", "IsInf", "Not", "And", "Or",
    "Xor", "Where", "BitwiseNot", "BitwiseOr", "BitwiseAnd", "BitwiseXor", "Relu", "ox.ReluGradient", "Tanh",
    "ox.TanhGradient", "Sigmoid", "ox.SigmoidGradient", "Erf", "Gelu", "ox.GeluGradient", "Floor", "Ceil", "Round",
    "Softplus", "Softsign", "HardSigmoid", "HardSwish", "ox.HardSwishGradient", "Mish", "ox.MishGradient", "Swish",
    "ox.SwishGradient", "ox.Silu", "LeakyRelu", "PRelu", "ThresholdedRelu", "Shrink", "Elu", "Selu", "Celu",
    "ox.BelowZero", "Identity", "Cast", "CastLike", "Sin", "Cos", "Tan", "Atan", "Sinh", "Cosh", "Asinh",
}  # fmt: skip


def arguments(name: str) -> list[list[np.ndarray[Any, Any]]]:
    """Calls of an operator: every pair of special numbers, in each type that it takes."""
    op = OPS[name]
    inputs = [each for each in op.schema.inputs if not each.optional or name == "Clip"]
    if len(inputs) == 1 and inputs[0].variadic:
        inputs = inputs * 2
    calls = []
    for dtype in dict.fromkeys(itertools.chain.from_iterable(op.schema.types.values())):
        columns = _grid(dtype, len(inputs))
        arrays = []
        for each, column in zip(inputs, columns, strict=True):
            allowed = op.schema.allowed(each.type)
            kind = dtype if dtype in allowed else allowed[0]
            arrays.append(column.astype(kind))
        if name == "Clip":
            arrays[1], arrays[2] = arrays[1][:1].reshape(()), arrays[2][-1:].reshape(())
        calls.append(arrays)
    return calls


def _grid(dtype: Any, count: int) -> list[np.ndarray[Any, Any]]:
    if dtype.kind == "b":
        values: list[Any] = [False, True]
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        values = [0, 1, 2, 3, 7, limits.max, *([-1, -2, limits.min] if dtype.kind == "i" else [])]
    else:
        values = SPECIAL
    with np.errstate(all="ignore"):
        base = np.array(values, np.float64).astype(dtype) if dtype.kind not in "iub" else np.array(values, dtype)
        return [each.ravel().astype(dtype) for each in np.meshgrid(*[base] * min(count, 2))] + [
            np.resize(base, len(base) ** 2).astype(dtype)
        ] * (count - 2)


@dataclass
class Case:
    """A call of one operator as a node, what its own kernel gives, and what the engine gives."""

    name: str
    arrays: list[Any]
    node: Node
    expected: list[Any]
    got: list[Any]

    @property
    def is_fused(self) -> bool:
        given = [None if v is None else Argument(v.dtype, v.shape) for v in self.node.inputs]  # type: ignore[arg-type]
        return trace(self.node, given) is not None


def case(name: str, arrays: list[Any], attributes: dict[str, Any]) -> Case:
    op = OPS[name]
    with np.errstate(all="ignore"):
        made = op.kernel(np, *arrays, **attributes)
    expected = [np.asarray(each) for each in (made if isinstance(made, tuple) else (made,))]
    inputs = [None if a is None else Value("in", a.dtype, a.shape, a.shape) for a in arrays]
    outputs = [Value("out", a.dtype, a.shape, a.shape) for a in expected]
    node = Node(op.name, op.domain, list(inputs), outputs, {**op.schema.attributes, **attributes})
    return Case(name, arrays, node, expected, [])


def run(cases: list[Case]) -> list[Case]:
    """All as one graph, which is compiled once."""
    inputs = [v for each in cases for v in each.node.inputs if v is not None]
    outputs = [v for each in cases for v in each.node.outputs]
    executable = Native().build(Task(Graph(inputs, outputs, [each.node for each in cases])))
    assert not any(line.startswith("nothing") for line in executable.explain())
    made = iter(executable([a for each in cases for a in each.arrays if a is not None]))
    for each in cases:
        each.got = [next(made) for _ in each.expected]
    return cases


@cache
def special_cases() -> list[Case]:
    cases: list[Case] = []
    for name in sorted(TRACED):
        for arrays in arguments(name):
            with suppress(Exception):  # a type that the kernel itself refuses
                cases.append(case(name, arrays, ATTRIBUTES.get(name, {})))
    return run([each for each in cases if each.is_fused])


@cache
def sample_cases() -> list[Case]:
    cases: list[Case] = []
    for name in sorted(TRACED):
        for sample in FUNCTIONS[name]() if name in FUNCTIONS else samples(name):
            arrays = [x if x is None else np.asarray(x) for x in sample.inputs]
            arrays = [x if x is None or x.dtype != np.float64 else x.astype(np.float32) for x in arrays]
            cases.append(case(name, arrays, sample.attributes))
    return run(cases)


def assert_equal(name: str, got: Any, expected: Any) -> None:
    assert got.dtype == expected.dtype and got.shape == expected.shape
    if expected.dtype.kind in "biu":
        np.testing.assert_array_equal(got, expected)
        return
    one, other = got.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
    np.testing.assert_array_equal(np.isinf(one) * np.sign(one), np.isinf(other) * np.sign(other))
    finite = np.isfinite(other)
    absolute, relative = tolerance.TABLE[expected.dtype]
    np.testing.assert_allclose(one[finite], other[finite], rtol=relative / 10, atol=absolute * 1e-4)
    if name not in EITHER_ZERO:
        zero = (one == 0) & (other == 0)
        np.testing.assert_array_equal(np.signbit(one[zero]), np.signbit(other[zero]))


@pytest.mark.parametrize("name", sorted(TRACED))
def test_special_numbers(name: str, library: Any) -> None:
    cases = [each for each in special_cases() if each.name == name]
    assert cases, "it writes itself down in no type"
    for each in cases:
        for got, want in zip(each.got, each.expected, strict=True):
            assert_equal(name, got, want)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TRACED))
def test_samples(name: str, library: Any) -> None:
    """Those of the operators' own tests: their attributes and shapes, as float32."""
    for each in [each for each in sample_cases() if each.name == name]:
        for got, want in zip(each.got, each.expected, strict=True):
            difference = tolerance.compare(got, want)
            assert difference.ok, f"{name} {[None if a is None else a.shape for a in each.arrays]}: {difference}"


def test_kernels_that_do_more_are_refused() -> None:
    for name in ("Softmax", "CumSum", "ReduceSum", "MatMul", "Transpose", "TopK", "Hardmax", "ox.Linear", "Gather"):
        op = OPS[name]
        given = [Argument(np.dtype(np.float32), (2, 2))] * sum(not each.optional for each in op.schema.inputs)
        assert trace(Node(op.name, op.domain, [], [Value("y")], dict(op.schema.attributes)), [*given]) is None


def test_casts_that_c_does_otherwise_are_refused(subtests: pytest.Subtests) -> None:
    """NumPy reaches small and unsigned integers through larger ones; C leaves what happens open."""
    for target in (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float64):
        with subtests.test(target.__name__):
            node = Node("Cast", "", [], [Value("y")], {"to": onnx.helper.np_dtype_to_tensor_dtype(np.dtype(target))})
            traced = trace(node, [Argument(np.dtype(np.float32), (2,))])
            assert (traced is not None) == (target in (np.int32, np.int64, np.float64))
