"""A file in bfloat16, computed in float32: ONNX Runtime has next to no operator of bfloat16 on the CPU."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from ox.graph.contract import Array

TYPES = ("to", "dtype", "output_dtype")  # attributes that name an element type


def takes_bfloat16(model: onnx.ModelProto) -> bool:
    """Whether an input is in bfloat16, as the cache of a decoder in bfloat16."""
    return any(info.type.tensor_type.elem_type == TensorProto.BFLOAT16 for info in model.graph.input)


def widen(model: onnx.ModelProto) -> None:
    """Makes float32 of all that is bfloat16: weights keep their values, and are cast when the model is loaded.

    Args:
        model: is changed; external data stays where it is.
    """
    _widen_graph(model.graph)
    for function in model.functions:
        _widen_nodes(function.node)


def cast_weights(data: bytes, folder: Path, larger_than: int) -> tuple[bytes, dict[str, Array]]:
    """Casts weights that `widen` left to ONNX Runtime, which casts in each run what is above its limit of constants.

    Args:
        data: the widened model.
        folder: of the file's external data.
        larger_than: bytes in float32.

    Returns:
        The model, in which these weights are float32 without values, and the values by name for
        `SessionOptions.add_external_initializers`.
    """
    model = onnx.ModelProto.FromString(data)
    large = {
        tensor.name: tensor
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.BFLOAT16 and 4 * math.prod(tensor.dims) > larger_than
    }
    casts = [node for node in model.graph.node if node.op_type == "Cast" and node.input[0] in large]
    values: dict[str, Array] = {}
    for cast in casts:
        tensor, name = large[cast.input[0]], cast.output[0]
        values[name] = numpy_helper.to_array(tensor, str(folder)).astype(np.float32)
        outside = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=tensor.dims)
        outside.data_location = TensorProto.EXTERNAL
        outside.external_data.add(key="location", value="values")  # which no file has
        tensor.CopyFrom(outside)
        model.graph.node.remove(cast)
    return (model.SerializeToString(), values) if values else (data, {})


def _widen_graph(graph: onnx.GraphProto) -> None:
    casts = []
    for tensor in graph.initializer:
        if tensor.data_type == TensorProto.BFLOAT16:
            name, tensor.name = tensor.name, f"{tensor.name}.bfloat16"
            casts.append(_cast(tensor.name, name))
    weights = {cast.output[0] for cast in casts}
    inputs = [info for info in graph.input if info.name not in weights]  # files of IR 3 list weights, too
    del graph.input[:]
    graph.input.extend(inputs)
    for info in (*graph.input, *graph.output, *graph.value_info):
        if info.type.tensor_type.elem_type == TensorProto.BFLOAT16:
            info.type.tensor_type.elem_type = TensorProto.FLOAT
    _widen_nodes(graph.node)
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def _widen_nodes(nodes: Iterable[NodeProto]) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _widen_graph(attribute.g)
            for graph in attribute.graphs:
                _widen_graph(graph)
            if attribute.name in TYPES and attribute.i == TensorProto.BFLOAT16:
                attribute.i = TensorProto.FLOAT
            if attribute.type == AttributeProto.TENSOR and attribute.t.data_type == TensorProto.BFLOAT16:
                values = numpy_helper.to_array(attribute.t).astype(np.float32)
                attribute.t.CopyFrom(numpy_helper.from_array(values, attribute.t.name))


def _cast(source: str, target: str) -> NodeProto:
    return helper.make_node("Cast", [source], [target], f"{source}.cast", to=TensorProto.FLOAT)
