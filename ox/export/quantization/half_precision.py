"""bfloat16 weights, and which numbers 16-bit floats can hold."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox.dtypes import bfloat16
from ox.export.quantization.source_model import weights_of
from ox.graph.ir import Array

MAX_FLOAT16 = 65504.0
LOSS = 0.1  # of a constant, as a share of its norm


def beyond_float16(array: Array) -> str | None:
    """What float16 makes of a constant that it cannot hold: numbers beyond its largest, or all of them so small that
    it rounds them away. None for others, with infinities among them."""
    numbers = np.abs(array[np.isfinite(array)]).astype(np.float64)
    largest = float(numbers.max(initial=0.0))
    if largest > MAX_FLOAT16:
        return f"{largest:.4g}, {largest / MAX_FLOAT16:.3g} times the largest number of float16"
    error = np.linalg.norm(numbers.astype(np.float16).astype(np.float64) - numbers)
    if largest and error > LOSS * np.linalg.norm(numbers):
        return f"{largest:.4g}, which float16 rounds to {float(np.float16(largest)):.4g}"
    return None


def to_bfloat16(model: onnx.ModelProto, in_float: Collection[str]) -> tuple[onnx.ModelProto, list[str]]:
    """Weights in bfloat16, with a Cast to float32 behind each: ONNX Runtime's CPU has no kernels that compute in
    bfloat16, and so the file runs everywhere. `in_float` are names of nodes whose weights are left.

    Returns:
        The model, and why weights were left in float32, one line for each.
    """
    kept = {name for node in model.graph.node if node.name in in_float for name in node.input}
    casts, left = [], []
    for name, tensor in weights_of(model).items():
        if name in kept or len(tensor.dims) < 2:  # biases are small, and sums with them are exact in float32
            continue
        array = numpy_helper.to_array(tensor)
        narrow = array.astype(bfloat16)
        if not np.array_equal(np.isfinite(array), np.isfinite(narrow.astype(np.float32))):
            left.append(
                f"{name} holds {np.abs(array[np.isfinite(array)]).max():.4g}, which bfloat16 rounds to infinity"
            )
            continue
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(narrow), f"{name}.bfloat16"))
        casts.append(helper.make_node("Cast", [tensor.name], [name], name=f"{name}/Cast", to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model, left
