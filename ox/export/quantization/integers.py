"""int8: weights quantized with ONNX Runtime's tools, activations while the model runs, or by calibration."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
from onnxruntime.quantization import CalibrationMethod, QuantType, quantize_dynamic, quantize_static

from ox.export.quantization.source_model import quietly


def to_dynamic_int8(model: onnx.ModelProto, in_float: Collection[str]) -> onnx.ModelProto:
    """int8 weights; each activation is quantized when it is known, by the range of the whole batch."""
    with TemporaryDirectory(prefix="ox-quantize-") as folder, quietly():
        path = Path(folder) / "dynamic.onnx"
        quantize_dynamic(
            _copy(model), path, per_channel=True, weight_type=QuantType.QInt8, nodes_to_exclude=list(in_float)
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
    """
    with TemporaryDirectory(prefix="ox-quantize-") as folder, quietly():
        path = Path(folder) / "static.onnx"
        quantize_static(
            _copy(model),
            path,
            per_channel=True,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=method,
            nodes_to_exclude=list(in_float),
            calibration_cache_path=ranges,
        )
        return onnx.load(path)


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    """The tools change the model that they are given."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
