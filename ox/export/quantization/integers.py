"""int8: weights quantized with ONNX Runtime's tools, activations while the model runs, or by calibration."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_dynamic, quantize_static

from ox.errors import ArgumentError
from ox.export.quantization.schemes import scheme_of
from ox.export.quantization.source_model import quietly, tool_errors

# What has integer kernels and keeps its accuracy: products with weights, tables, what moves values, sums. Softmax,
# normalizations and products of two activations stay in float.
CALIBRATED = (
    *scheme_of("int8").layers, "Add", "Relu", "Clip", "MaxPool", "AveragePool", "GlobalAveragePool", "Concat",
    "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze", "Pad", "Resize", "Split",
)  # fmt: skip


def to_dynamic_int8(model: onnx.ModelProto, in_float: Collection[str]) -> onnx.ModelProto:
    """int8 weights; each activation is quantized when it is known, by the range of the whole batch."""
    with TemporaryDirectory(prefix="ox-quantize-") as folder, tool_errors(), quietly():
        path = Path(folder) / "dynamic.onnx"
        quantize_dynamic(
            _copy(model),
            path,
            op_types_to_quantize=list(scheme_of("int8-dynamic").layers),
            per_channel=True,
            weight_type=QuantType.QInt8,
            nodes_to_exclude=list(in_float),
        )
        return onnx.load(path)


def to_static_int8(
    model: onnx.ModelProto,
    in_float: Collection[str],
    method: CalibrationMethod,
    ranges: Path,
) -> onnx.ModelProto:
    """int8 weights by channel and uint8 activations, between QuantizeLinear and DequantizeLinear.

    Args:
        ranges: the file with the ranges that calibration found.

    Raises:
        ArgumentError: a range is not finite.
    """
    with TemporaryDirectory(prefix="ox-quantize-") as folder, tool_errors(), quietly():
        path = Path(folder) / "static.onnx"
        try:
            quantize_static(
                _copy(model),
                path,
                per_channel=True,
                activation_type=QuantType.QUInt8,
                weight_type=QuantType.QInt8,
                calibrate_method=method,
                op_types_to_quantize=list(CALIBRATED),
                nodes_to_exclude=[*in_float, *_scores(model)],
                calibration_cache_path=ranges,
                extra_options={"MatMulConstBOnly": True},
            )
        except AssertionError as error:  # of a scale that is NaN
            raise not_finite(str(error)) from error
        return onnx.load(path)


def not_finite(what: str) -> ArgumentError:
    """The error for activations that overflow."""
    return ArgumentError(
        "an activation is not finite for these calibration data",
        expected="finite activations",
        got=what,
        hint="smaller inputs, or int8-dynamic",
    )


def _scores(model: onnx.ModelProto) -> list[str]:
    """The sums right before a Softmax: a mask in them is the lowest float, and would take the whole range."""
    read = {node.input[0] for node in model.graph.node if node.op_type == "Softmax"}
    return [node.name for node in model.graph.node if node.op_type == "Add" and node.output[0] in read]


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """The tools change the model that they are given."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
