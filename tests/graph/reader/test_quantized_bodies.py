"""Operators on numbers of 8 bits, and fused operators, as ONNX Runtime's tools write them, beside its kernels."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from one_call import check, written
from onnx import TensorProto
from rows import rows

import ox
from ox.errors import LoadError

R = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return R.normal(size=shape).astype(np.float32)


def number(value: float) -> Any:
    return np.array(value, np.float32)


def bits(dtype: Any, *shape: int, small: bool = False) -> Any:
    """`small`: of 7 bits, for processors whose products of 8 bits saturate in ONNX Runtime."""
    info = np.iinfo(dtype)
    low, high = (info.min // 2, info.max // 2) if small else (info.min, info.max)
    return R.integers(low, high + 1, shape).astype(dtype)


def side(first: int, turned: int) -> Any:
    """Two matrices [3, 4], or [4, 3] where they are turned; with `first`, the batch is between their dimensions."""
    rows, columns = (4, 3) if turned else (3, 4)
    return floats(*((rows, 2, columns) if first else (2, rows, columns)))


X, W, B, Z = floats(2, 4, 9, 9), floats(6, 2, 3, 3), floats(6), floats(2, 6, 5, 5)
CONV = {"group": 2, "strides": [2, 2], "pads": [1, 1, 1, 1], "kernel_shape": [3, 3], "dilations": [1, 1]}
FUSED: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    **{
        f"conv, {name}": ("FusedConv", [X, W, B], CONV | {"activation": name})
        for name in ("Relu", "Tanh", "Sigmoid", "HardSwish")
    },
    **{
        f"conv, {name}": ("FusedConv", [X, W, B], CONV | {"activation": name, "activation_params": numbers})
        for name, numbers in {"LeakyRelu": [0.2], "Clip": [-0.3, 0.4], "HardSigmoid": [0.3, 0.6]}.items()
    },
    **{
        f"matmul, batches turned {a}{b}{c}{d}": (
            "FusedMatMul", [side(a, b), side(c, 1 - d)],
            {"transBatchA": a, "transA": b, "transBatchB": c, "transB": d, "alpha": 0.5},
        )
        for a, b, c, d in product((0, 1), repeat=4)
    },
    **{
        f"matmul, {name} {a}{b}": ("FusedMatMul", [left, right], {"transA": a, "transB": b})
        for name, left, right, a, b in (
            ("two vectors", floats(4), floats(4), 1, 1),
            ("a vector", floats(4), floats(2, 4, 3), 1, 0),
            ("a vector", floats(4), floats(2, 3, 4), 1, 1),
            ("by a vector", floats(3, 4), floats(4), 0, 1),
        )
    },
    "conv, a sum": ("FusedConv", [X, W, B, Z], CONV | {"activation": "Relu"}),
    "conv, a sum and no bias": ("FusedConv", [X, W, None, Z], CONV | {"activation": "Relu"}),
    "gemm": ("FusedGemm", [floats(3, 4), floats(4, 5), floats(5)], {"activation": "Relu"}),
    "gemm, turned": (
        "FusedGemm", [floats(4, 3), floats(5, 4), floats(3, 1)],
        {"activation": "LeakyRelu", "activation_alpha": 0.2, "transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    "gemm, HardSigmoid": (
        "FusedGemm", [floats(3, 4), floats(4, 5)],
        {"activation": "HardSigmoid", "activation_alpha": 0.3, "activation_beta": 0.6},
    ),
    **{
        f"gemm, {name}": ("FusedGemm", [floats(3, 4), floats(4, 5), floats(5)], {"activation": name})
        for name in ("Sigmoid", "Tanh", "Softplus", "Softsign")
    },
    **{
        f"gemm, {name}": ("FusedGemm", [floats(3, 4), floats(4, 5)], {"activation": name, **numbers})
        for name, numbers in {
            "Celu": {"activation_alpha": 0.5},
            "Selu": {"activation_alpha": 1.5, "activation_gamma": 1.1},
        }.items()
    },
}  # fmt: skip


@rows("name", FUSED)
def test_fused(tmp_path: Path, name: str) -> None:
    op, inputs, attributes = FUSED[name]
    check(tmp_path, op, inputs, **attributes)


def scaled(dtype: Any, *shape: int) -> list[Any]:
    """Numbers of 8 bits, their scale and their zero."""
    return [bits(dtype, *shape), number(0.04), np.array(3, dtype)]


def quantized(dtype: Any) -> dict[str, tuple[str, list[Any], dict[str, Any]]]:
    image, target = scaled(dtype, 2, 4, 6, 6), [number(0.05), np.array(5, dtype)]
    pool = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
    return {
        "add": ("QLinearAdd", [*image, *scaled(dtype, 4, 1, 6), *target], {}),
        "mul": ("QLinearMul", [*image, *scaled(dtype, 2, 4, 6, 6), *target], {}),
        "sigmoid": ("QLinearSigmoid", [*image, number(1 / 256), np.array(0, dtype)], {}),
        "leaky relu": ("QLinearLeakyRelu", [*image, *target], {"alpha": 0.3}),
        "average pool": ("QLinearAveragePool", [*image, *target], pool),
        "average pool, padded": ("QLinearAveragePool", [*image, *target], pool | {"count_include_pad": 1}),
        "global pool": ("QLinearGlobalAveragePool", [*image, *target], {}),
        "concat": ("QLinearConcat", [*target, *image, *scaled(dtype, 2, 3, 6, 6)], {"axis": 1}),
        "softmax": ("QLinearSoftmax", [*image, number(1 / 256), np.array(0, dtype)], {"axis": 1, "opset": 13}),
        **{
            f"old softmax, {axis}": (
                "QLinearSoftmax", [*image, number(1 / 256), np.array(0, dtype)], {"opset": 12} | axis,
            )
            for axis in ({}, {"axis": 1}, {"axis": -1}, {"axis": -2})
        },
    }  # fmt: skip


QUANTIZED = {f"{name}, {np.dtype(t)}": (t, case) for t in (np.uint8, np.int8) for name, case in quantized(t).items()}


@rows("name", QUANTIZED)
def test_numbers_of_8_bits(tmp_path: Path, name: str) -> None:
    dtype, (op, inputs, attributes) = QUANTIZED[name]
    kind = TensorProto.UINT8 if dtype is np.uint8 else TensorProto.INT8
    check(tmp_path, op, inputs, kinds=[kind], steps=1, **attributes)


A, BITS = floats(2, 3, 16), bits(np.int8, 16, 5, small=True)
COLUMNS = [R.random(5).astype(np.float32) / 100, bits(np.int8, 5, small=True)]
PRODUCTS: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "dynamic": ("DynamicQuantizeMatMul", [A, BITS, number(0.02)], {}),
    "dynamic, a zero": ("DynamicQuantizeMatMul", [A, BITS, number(0.02), np.array(4, np.int8), floats(5)], {}),
    "dynamic, of columns": ("DynamicQuantizeMatMul", [A, BITS, *COLUMNS], {}),
    "dynamic, unsigned": (
        "DynamicQuantizeMatMul", [A, bits(np.uint8, 16, 5, small=True), number(0.02), np.array(60, np.uint8)], {},
    ),
    "integers": ("MatMulIntegerToFloat", [bits(np.uint8, 3, 16), BITS, number(0.02), number(0.03)], {}),
    "integers, zeros and a bias": (
        "MatMulIntegerToFloat",
        [bits(np.uint8, 3, 16), BITS, number(0.02), COLUMNS[0], np.array(120, np.uint8), COLUMNS[1], floats(5)],
        {},
    ),
    "gemm, of columns": (
        "QGemm",
        [bits(np.uint8, 3, 16), number(0.02), np.array(9, np.uint8), bits(np.int8, 5, 16, small=True), COLUMNS[0],
         np.zeros(5, np.int8), R.integers(-900, 900, 5).astype(np.int32)],
        {"transB": 1, "alpha": 1.0},
    ),
    "gemm": (
        "QGemm",
        [bits(np.uint8, 3, 16), number(0.02), np.array(9, np.uint8), bits(np.int8, 5, 16, small=True), number(0.03),
         np.array(0, np.int8), R.integers(-900, 900, 5).astype(np.int32)],
        {"transB": 1, "alpha": 1.0},
    ),
}  # fmt: skip


@rows("name", PRODUCTS)
def test_products_of_8_bits(tmp_path: Path, name: str) -> None:
    op, inputs, attributes = PRODUCTS[name]
    check(tmp_path, op, inputs, atol=1e-4, trained=not op.startswith("Dynamic"), **attributes)


@rows("direction", ["forward", "reverse", "bidirectional"])
@rows("columns", [False, True])
def test_a_recurrence_of_8_bits(tmp_path: Path, direction: str, columns: bool) -> None:
    """The state stays a float in ox, so it is nearer to the layer before its quantization."""
    n = 2 if direction == "bidirectional" else 1
    shape = (n, 16) if columns else (n,)
    weights = [bits(np.int8, n, 3, 16, small=True), bits(np.int8, n, 4, 16, small=True)]
    factors = [(R.random(shape) / 200 + 0.002).astype(np.float32) for _ in range(2)]
    zeros = [np.zeros(shape, np.int8)] * 2
    x, bias = floats(7, 2, 3), floats(n, 32)
    inputs = [x, *weights, bias, None, None, None, None, factors[0], zeros[0], factors[1], zeros[1]]
    constants = {"hidden_size": 4, "direction": direction}
    path = written(
        tmp_path / "m.onnx", "DynamicQuantizeLSTM", inputs, [(0, 1), (1, 1), (2, 1)], "com.microsoft", **constants
    )
    feed = {f"x{i}": each for i, each in enumerate(inputs) if each is not None}
    as_weights(path, feed)
    expected = ort.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x0": x})
    net = ox.export.load(path)
    with ox.no_grad():
        got = [y.numpy() for y in net(ox.from_numpy(x))]
    whole = [w * f.reshape(n, 1, -1) for w, f in zip(weights, factors, strict=True)]
    layer = ox.ops.LSTM(
        *map(ox.from_numpy, [x, *(w.transpose(0, 2, 1).astype(np.float32) for w in whole), bias]),
        hidden_size=4, direction=direction, outputs=3,
    )  # fmt: skip
    for a, b, c in zip(got, expected, layer, strict=True):
        np.testing.assert_allclose(a, b, atol=0.03)
        np.testing.assert_allclose(a, c.numpy(), atol=1e-5)
    ox.export.save(net, tmp_path / "again.onnx", x, dims={"x0": [7, 2, 3]}, golden=None)


def as_weights(path: Path, feed: dict[str, Any]) -> None:
    """All inputs but the first as initializers."""
    model = onnx.load(path)
    del model.graph.input[1:]
    model.graph.initializer.extend(onnx.numpy_helper.from_array(x, name) for name, x in feed.items() if name != "x0")
    onnx.save(model, path)


REFUSED: dict[str, tuple[str, list[Any], dict[str, Any], str]] = {
    "numbers of an activation": (
        "FusedConv", [X, W, B], CONV | {"activation": "Relu", "activation_params": [1.0]}, "with number 1 for Relu",
    ),
    "another activation": (
        "FusedGemm", [floats(3, 4), floats(4, 5)], {"activation": "Elu", "activation_gamma": 1.0}, "with gamma for Elu",
    ),
    "an activation": ("FusedConv", [X, W, B], CONV | {"activation": "Mish"}, "with the activation Mish"),
    "channels last": (
        "QLinearGlobalAveragePool", QUANTIZED["global pool, uint8"][1][1], {"channels_last": 1}, "the channels last",
    ),
}  # fmt: skip


@rows("name", REFUSED)
def test_what_no_body_covers(tmp_path: Path, name: str) -> None:
    op, inputs, attributes, says = REFUSED[name]
    path = written(tmp_path / "m.onnx", op, inputs, [(0, 1)], "com.microsoft", **attributes)
    with pytest.raises(LoadError, match=says):
        ox.export.load(path)
