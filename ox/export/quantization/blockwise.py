"""int4 weights, block by block: DequantizeLinear with a block size, which ONNX Runtime fuses to MatMulNBits."""

from __future__ import annotations

from collections.abc import Collection

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox.errors import ArgumentError
from ox.export.quantization.source_model import tool_errors, weights_of
from ox.graph.ir import Array

SMALLEST_BLOCK = 16  # of ONNX Runtime's kernel


def to_int4(model: onnx.ModelProto, in_float: Collection[str], block_size: int) -> tuple[onnx.ModelProto, list[str]]:
    """int4 weights of MatMul and Gemm, with a scale for each block along the summed dimension.

    Returns:
        The model, and why weights were left in float, one line for each.

    Raises:
        ArgumentError: the block size is none that runtimes have.
    """
    from onnxruntime.quantization.onnx_model import ONNXModel

    if block_size < SMALLEST_BLOCK or block_size & (block_size - 1):
        raise ArgumentError("no such block size", expected="a power of two from 16 on", got=str(block_size))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    graph = ONNXModel(copy)
    with tool_errors():
        graph.replace_gemm_with_matmul()
    weights, left = weights_of(graph.model), []
    uses: dict[str, list[onnx.NodeProto]] = {}
    for node in graph.model.graph.node:
        for name in node.input:
            uses.setdefault(name, []).append(node)
    made = []
    for name, tensor in weights.items():
        products = [node for node in uses.get(name, []) if node.op_type == "MatMul" and node.input[1] == name]
        if not products or len(tensor.dims) != 2:
            continue
        if any(node.name.removesuffix("_MatMul") in in_float for node in products):  # of a Gemm, or its own
            continue
        if len(products) != len(uses[name]):
            other = next(node.op_type for node in uses[name] if node not in products)
            left.append(f"{name} is shared with {other}")
            continue
        if tensor.dims[0] < block_size:
            left.append(f"{name} has {tensor.dims[0]} rows, a block {block_size}")
            continue
        values, scales = quantize_blocks(numpy_helper.to_array(tensor), block_size)
        tensor.CopyFrom(numpy_helper.from_array(values, f"{name}.int4"))
        scale = numpy_helper.from_array(scales, f"{name}.scale")
        made.append((name, scale))
    nodes = [
        helper.make_node(
            "DequantizeLinear", [f"{name}.int4", scale.name], [name], f"{name}/DequantizeLinear",
            axis=0, block_size=block_size,
        )
        for name, scale in made
    ]  # fmt: skip
    nodes += graph.model.graph.node
    del graph.model.graph.node[:]
    graph.model.graph.node.extend(nodes)
    graph.model.graph.initializer.extend(scale for _, scale in made)
    graph.clean_initializers()  # of the Gemms
    return graph.model, left


def quantize_blocks(weight: Array, block_size: int) -> tuple[Array, Array]:
    """A matrix [k, n] as int4 [k, n] and a scale for each block of `block_size` along k.

    The largest magnitude of a block becomes -8 and not 7, because int4 has one more number there (ONNX Runtime's
    MatMulNBitsQuantizer does the same).
    """
    rows, columns = weight.shape
    blocks = -(-rows // block_size)
    padded = np.zeros((blocks * block_size, columns), np.float32)
    padded[:rows] = weight
    cut = padded.reshape(blocks, block_size, columns)
    place = np.abs(cut).argmax(1)[:, None]
    scale = np.take_along_axis(cut, place, 1) / np.float32(-8)
    steps = np.divide(cut, scale, out=np.zeros_like(cut), where=scale != 0)
    values = np.clip(np.rint(steps), -8, 7).reshape(padded.shape)[:rows]
    return values.astype(ml_dtypes.int4), scale[:, 0]
