"""A graph as an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox._version import __version__
from ox.dtypes import onnx_type
from ox.graph.ir import Graph, Node, Value
from ox.graph.writer import opset as opsets
from ox.graph.writer.older_opsets import in_older_words
from ox.graph.writer.workarounds import shielded, with_columns, with_truths_chosen

Names = Mapping[Value, str]
# defaults that are written all the same: onnx (1.23) infers twice the bins of an STFT that does not say it
SPELLED_OUT: dict[str, dict[str, Any]] = {"STFT": {"onesided": 1}}
IR = 10  # what opset 21 came with; every runtime that reads opset 21 reads it


def to_model(
    graph: Graph, *, opset: int | None = None, metadata: Mapping[str, str] | None = None, weights: bool = True
) -> onnx.ModelProto:
    """Write a graph as a model. What the graph owns becomes initializers, its other constants Constant nodes, operators
    of the domain ``ox`` and those that only a newer opset has model-local functions.

    Args:
        opset: the `ai.onnx` opset; None takes the lowest from 21 that the graph needs.
        metadata: `metadata_props` of the model.
        weights: False lists what the graph owns as inputs instead: a small model of the same types and shapes.

    Raises:
        ExportError: the opset is out of range or cannot express a node.
    """
    from ox.graph.writer.functions import functions_of

    graph = in_older_words(graph, opset)
    chosen = opsets.select_opset(graph, opset)
    functions, calls = functions_of(graph, chosen)
    chosen = max([chosen, *(opsets.select_opset(body, opset) for body in functions.values())])
    graph = with_truths_chosen(with_columns(replace(graph, nodes=shielded(graph))))
    name_nodes(graph.nodes)
    owned = [(v, a) for v, a in graph.constants.items() if v in graph.owned]
    inside = name_values(graph)
    proto = helper.make_graph(
        [*constant_nodes(graph), *(node_proto(n, chosen, calls, inside) for n in graph.nodes)],
        graph.name,
        [value_info(v) for v in _inputs(graph, graph.overridable if weights else [v for v, _ in owned])],
        [value_info(v) for v in graph.outputs],
        [tensor_proto(array, v.name) for v, array in owned if weights],
    )
    imports = [helper.make_operatorsetid("", chosen)]
    if functions:
        imports.append(helper.make_operatorsetid("ox", 1))
    model = helper.make_model(
        proto,
        opset_imports=imports,
        ir_version=max(IR, helper.find_min_ir_version_for(imports, ignore_unknown=True)),
        producer_name="ox",
        producer_version=__version__,
        functions=[function_proto(name, body, chosen) for name, body in functions.items()],
    )
    helper.set_model_props(model, dict(metadata or {}))
    return model


def _inputs(graph: Graph, further: Sequence[Value]) -> list[Value]:
    """What a file lists as its inputs, in the order of the file that the graph was read from."""
    place = {name: i for i, name in enumerate(graph.declared_inputs)}
    return sorted([*graph.inputs, *further], key=lambda v: place.get(v.name, len(place)))


def constant_nodes(graph: Graph, names: Names | None = None) -> list[onnx.NodeProto]:
    """Constant nodes for what the graph does not own."""
    found = [((names or {}).get(v, v.name), a) for v, a in graph.constants.items() if v not in graph.owned]
    return [
        helper.make_node("Constant", [], [name], name=f"Constant/{name}", value=tensor_proto(array, name))
        for name, array in found
    ]


def name_nodes(nodes: Iterable[Node], used: set[str] | None = None) -> None:
    """Unique names made of module path and operator, ``LeNet.conv1/Conv``, for nodes of subgraphs too."""
    used = set() if used is None else used
    for node in nodes:
        stem = f"{node.module.split(' ')[0]}/{node.op_type}" if node.module else node.op_type
        name, k = stem, 1
        while name in used:
            name, k = f"{stem}_{k}", k + 1
        used.add(name)
        node.name = name
        for _, graph in node.subgraphs():
            name_nodes(graph.nodes, used)


def node_proto(node: Node, opset: int, calls: Mapping[Node, str], names: Names | None = None) -> onnx.NodeProto:
    """One node as the target opset spells it, attributes at their default left out; or a call of a local function.

    Args:
        calls: which local function a node calls.
        names: of values inside subgraphs, where they differ from the values' own.
    """
    schema = opsets.schema_of(node.op_type, opset) if not node.domain else None
    function, known = calls.get(node), names or {}
    listed = node.inputs[: len(node.inputs) - node.captured]
    if function:  # a body has inputs only for those that are given
        listed = [v for v in listed if v is not None]
    proto = helper.make_node(
        function or node.op_type,
        ["" if v is None else known.get(v, v.name) for v in listed],
        [known.get(v, v.name) for v in node.outputs],
        name=node.name,
        domain="ox" if function else node.domain,
        doc_string=node.place,
    )
    outside = [known.get(v, v.name) for v in node.inputs[len(listed) :] if v is not None]
    spelled_out = SPELLED_OUT.get(node.op_type, {})
    for name, value in () if function else {**spelled_out, **node.attributes}.items():
        if value is None or (schema is not None and name not in schema.defaults):
            continue
        if isinstance(value, Graph):
            inside = graph_proto(value, name, opset, calls, dict(zip(value.captures, outside, strict=True)), known)
            proto.attribute.append(helper.make_attribute(name, inside))
            continue
        if schema is not None and name not in spelled_out:
            default = schema.defaults[name]
            stated = (node.op_type, name) == ("Resize", "mode")  # OpenCV and pnnx want it; MNN has another default
            if default is not None and opsets.same_default(value, default) and not stated:
                continue
        proto.attribute.append(attribute_proto(name, value))
    return proto


def graph_proto(
    graph: Graph, role: str, opset: int, calls: Mapping[Node, str], captures: Names, known: Names
) -> onnx.GraphProto:
    """A subgraph, which names the values around it that it reads.

    Args:
        role: the attribute that holds it, for its name.
        captures: what its captures are called outside.
        known: the names of all values in subgraphs, made by `name_values`.
    """
    names = {**known, **captures}
    return helper.make_graph(
        [*constant_nodes(graph, names), *(node_proto(n, opset, calls, names) for n in graph.nodes)],
        role,
        [value_info(v, names) for v in graph.inputs],
        [value_info(v, names) for v in graph.outputs],
    )


def name_values(graph: Graph) -> dict[Value, str]:
    """Names for the values of subgraphs, at any depth, that nothing else in the file has.

    A subgraph of a file sees the outer names and must not reuse them.
    """
    names: dict[Value, str] = {}
    used = {v.name for v in graph.values()}

    def visit(nodes: Iterable[Node]) -> None:
        for node in nodes:
            for role, inside in node.subgraphs():
                stem = f"{names.get(node.outputs[0], node.outputs[0].name)}/{role}"
                captures = set(inside.captures)
                for v in inside.values():
                    if v in captures or not v.name:
                        continue
                    name, k = v.name, 0
                    while name in used:
                        name, k = f"{stem}/{v.name}" + (f"_{k}" if k else ""), k + 1
                    used.add(name)
                    names[v] = name
                visit(inside.nodes)

    visit(graph.nodes)
    return names


def attribute_proto(name: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, np.ndarray):
        return helper.make_attribute(name, tensor_proto(value, ""))
    if isinstance(value, (list, tuple)):
        if value and isinstance(value[0], str):
            return helper.make_attribute(name, list(value))
        kind = onnx.AttributeProto.FLOATS if value and isinstance(value[0], float) else onnx.AttributeProto.INTS
        return helper.make_attribute(
            name, [float(v) if kind == onnx.AttributeProto.FLOATS else int(v) for v in value], attr_type=kind
        )
    return helper.make_attribute(name, int(value) if isinstance(value, (int, np.integer)) else value)


def tensor_proto(array: np.ndarray[Any, Any], name: str) -> onnx.TensorProto:
    """An array as a TensorProto in raw bytes."""
    return numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)


def value_info(value: Value, names: Names | None = None) -> onnx.ValueInfoProto:
    """Name, type and sizes; what is not known (in a subgraph that a file had so) is left open."""
    name = (names or {}).get(value, value.name)
    if value.dtype is None:
        return onnx.ValueInfoProto(name=name)
    dims = value.dims
    if dims is None and value.shape is not None:
        dims = (None,) * len(value.shape)  # type: ignore[assignment]
    sizes = None if dims is None else [None if d == "?" else d for d in dims]
    return helper.make_tensor_value_info(name, onnx_type(value.dtype), sizes)


def function_proto(name: str, body: Graph, opset: int) -> onnx.FunctionProto:
    """A model-local function of the domain ``ox``; constants of its body become Constant nodes."""
    body = with_truths_chosen(with_columns(replace(body, nodes=shielded(body))))
    name_nodes(body.nodes)
    names = name_values(body)
    return helper.make_function(
        "ox",
        name,
        [v.name for v in body.inputs],
        [v.name for v in body.outputs],
        [*constant_nodes(body), *(node_proto(n, opset, {}, names) for n in body.nodes)],
        [helper.make_operatorsetid("", opset)],
    )
