"""The types of a file's values, as ONNX infers them, also behind operators of ONNX Runtime that it does not know."""

from __future__ import annotations

import math
from typing import Any

import onnx
from onnx import TensorProto, checker, helper, shape_inference

MOST_NUMBERS = 1024  # of a tensor whose values inference may need, as it needs those of shapes
LIKE_FIRST = frozenset(
    {
        "BiasGelu", "FastGelu", "Gelu", "QuickGelu", "RotaryEmbedding", "SimplifiedLayerNormalization",
        "SkipLayerNormalization", "SkipSimplifiedLayerNormalization",
    }
)  # fmt: skip
OTHER_WIDTH = frozenset({"Attention", "GroupQueryAttention"})
FUSED = {"FusedConv": "Conv", "FusedGemm": "Gemm"}


def inferred_types(model: onnx.ModelProto) -> dict[str, onnx.TypeProto]:
    """Of the values of the main graph, by name; only those that the file declares if inference fails."""
    try:
        graph = shape_inference.infer_shapes(_without_weights(model)).graph
    except (shape_inference.InferenceError, checker.ValidationError, RuntimeError, ValueError, TypeError, LookupError):
        graph = model.graph  # the last three where a call lacks what its operator needs, which its reading tells
    every = [*graph.value_info, *graph.input, *graph.output]
    return {info.name: info.type for info in every if info.type.WhichOneof("value")}


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A model with the same types: weights are inputs, and operators of ONNX Runtime have become ones of ONNX."""
    source = model.graph
    declared = {info.name for info in source.input}
    inputs, kept, nodes = list(source.input), [], []
    for tensor in source.initializer:
        if math.prod(tensor.dims) <= MOST_NUMBERS and tensor.data_location != TensorProto.EXTERNAL:
            kept.append(tensor)
        elif tensor.name not in declared:
            inputs.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    for node in source.node:
        nodes += _alike(node, inputs) or [node]
    graph = helper.make_graph(
        nodes, source.name, inputs, list(source.output), kept, value_info=list(source.value_info),
        sparse_initializer=list(source.sparse_initializer),
    )  # fmt: skip
    imports, functions = list(model.opset_import), list(model.functions)
    return helper.make_model(graph, ir_version=model.ir_version, opset_imports=imports, functions=functions)


def _alike(node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto]) -> list[onnx.NodeProto]:
    """Nodes of `ai.onnx` that give the types of this one, as far as they do not depend on more than its first inputs;
    `inputs` gets those that they need. Nothing for an operator that is not listed here."""
    op, given, made = node.op_type, list(node.input), list(node.output)
    if node.domain != "com.microsoft" and (op, node.domain) != ("SimplifiedLayerNormalization", ""):
        return []

    def one(name: str, *sources: str, outputs: tuple[int, ...] = (0,), **attributes: Any) -> list[onnx.NodeProto]:
        ends = [made[i] for i in outputs if i < len(made) and made[i]]
        return [helper.make_node(name, list(sources), [end], **attributes) for end in ends]

    def another(*sizes: int | None) -> str:
        inputs.append(helper.make_tensor_value_info(f"{made[0]}/{op}", TensorProto.FLOAT, sizes))
        return inputs[-1].name

    attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    if op in LIKE_FIRST:
        return one("Identity", given[0], outputs=(0, 3))
    if op in OTHER_WIDTH or (op == "MultiHeadAttention" and len(given) > 2 and given[2]):
        return one("Concat", given[0], another(None, None, None), axis=2)  # [samples, steps, another width]
    if op == "EmbedLayerNormalization":
        return one("Gather", given[2], given[0], outputs=(0, 2))
    if op == "MatMulNBits":
        return one("MatMul", given[0], another(attributes.get("K"), attributes.get("N")))
    if op == "FusedMatMul" and not any(attributes.get(f"trans{side}") for side in ("A", "B", "BatchA", "BatchB")):
        return one("MatMul", *given)
    if op in FUSED:
        known = onnx.defs.get_schema(FUSED[op]).attributes
        return one(FUSED[op], *given[:3], **{name: value for name, value in attributes.items() if name in known})
    return []
