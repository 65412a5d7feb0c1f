"""float16 and bfloat16."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox.dtypes import bfloat16
from ox.export.quantization.source_model import quietly, weights_of

SCATTERS = ("ScatterElements", "ScatterND")


def to_float16(model: onnx.ModelProto, in_float: Collection[str]) -> onnx.ModelProto:
    """Weights and operators in float16; inputs and outputs stay float32. `in_float` are names of nodes to leave."""
    # ONNX Runtime's CPU adds float16 to no places
    adding = [
        n.name for n in model.graph.node if n.op_type in SCATTERS and any(a.name == "reduction" for a in n.attribute)
    ]
    from onnxruntime.quantization.onnx_model import ONNXModel
    from onnxruntime.transformers.float16 import convert_float_to_float16

    with quietly():
        converted = convert_float_to_float16(model, keep_io_types=True, node_block_list=[*in_float, *adding])
        graph = ONNXModel(converted)  # the Casts of the ends were put last
        graph.topological_sort()
    result: onnx.ModelProto = graph.model
    return result


def to_bfloat16(model: onnx.ModelProto, in_float: Collection[str]) -> onnx.ModelProto:
    """Weights in bfloat16, with a Cast to float32 behind each: ONNX Runtime's CPU has no kernels that compute in
    bfloat16, and so the file runs everywhere. `in_float` are names of nodes whose weights are left."""
    kept = {name for node in model.graph.node if node.name in in_float for name in node.input}
    casts = []
    for name, tensor in weights_of(model).items():
        if name in kept or len(tensor.dims) < 2:  # biases are small, and sums with them are exact in float32
            continue
        array = numpy_helper.to_array(tensor).astype(bfloat16)
        tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array), f"{name}.bfloat16"))
        casts.append(helper.make_node("Cast", [tensor.name], [name], name=f"{name}/Cast", to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return model
