"""An ONNX model as a graph."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import helper, numpy_helper

from ox.dtypes import FROM_ONNX
from ox.errors import LoadError
from ox.graph.form import Graph, Node, Value
from ox.ops.operator import OPS


def from_model(model: onnx.ModelProto) -> Graph:
    """Read a model whose operators ox has; node doc strings come back as places.

    Raises:
        LoadError: an operator or attribute that ox has not, or a graph that names values nobody makes.
    """
    proto = model.graph
    graph = Graph(name=proto.name)
    known: dict[str, Value] = {}
    for tensor in proto.initializer:
        array = numpy_helper.to_array(tensor)
        value = Value(tensor.name, array.dtype, array.shape, array.shape)
        known[tensor.name] = value
        graph.constants[value] = array
    for info in proto.input:
        if info.name not in known:  # before IR 4 initializers were listed as inputs too
            known[info.name] = value_of(info)
            graph.inputs.append(known[info.name])
    functions = {(f.domain, f.name): f for f in model.functions}
    for n in proto.node:
        _add_node(graph, known, n, functions)
    declared = {info.name: value_of(info) for info in proto.output}
    for name, info_value in declared.items():
        if name not in known:
            raise LoadError(f"output '{name}' is made by no node")
        made = known[name]
        made.dtype, made.dims = made.dtype or info_value.dtype, made.dims or info_value.dims
        graph.outputs.append(made)
    return graph


def value_of(info: onnx.ValueInfoProto) -> Value:
    """Name, type and sizes of a declared input or output."""
    tensor = info.type.tensor_type
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
    return Value(info.name, FROM_ONNX.get(tensor.elem_type), dims)


def _add_node(
    graph: Graph, known: dict[str, Value], n: onnx.NodeProto, functions: dict[Any, onnx.FunctionProto]
) -> None:
    attributes = {a.name: attribute_value(a) for a in n.attribute}
    outputs = [known.setdefault(name, Value(name)) if name else Value("") for name in n.output]
    while len(outputs) > 1 and not outputs[-1].name:
        outputs.pop()
    if n.op_type == "Constant" and not n.domain:
        array = attributes.get("value")
        if array is None:
            raise LoadError(f"Constant '{n.output[0]}' has no tensor value", hint="ox reads Constant(value=...)")
        outputs[0].dtype, outputs[0].dims = array.dtype, array.shape
        graph.constants[outputs[0]] = array
        return
    missing = [name for name in n.input if name and name not in known]
    if missing:
        raise LoadError(
            f"{n.op_type} '{n.name}' reads '{missing[0]}', which no earlier node makes", where=n.doc_string or None
        )
    inputs = [known[name] if name else None for name in n.input]
    domain = "" if n.domain == "ai.onnx" else n.domain
    node = Node(n.op_type, domain, inputs, outputs, attributes, n.name, n.doc_string)
    function = functions.get((n.domain, n.op_type))
    if function is not None:
        _inline(graph, function, inputs, outputs, functions)
        return
    op = OPS.get(node.key)
    if op is None:
        raise LoadError(f"ox has no operator {node.key}", where=n.doc_string or n.name or None)
    unknown = [name for name in attributes if name not in op.schema.attributes]
    if unknown:
        raise LoadError(f"{n.op_type} has no attribute '{unknown[0]}' in ox", where=n.doc_string or n.name or None)
    graph.nodes.append(node)


def _inline(
    graph: Graph,
    function: onnx.FunctionProto,
    inputs: list[Value | None],
    outputs: list[Value],
    functions: dict[Any, Any],
) -> None:
    """A model-local function's body in place of the call."""
    inside: dict[str, Value] = {name: v for name, v in zip(function.input, inputs, strict=False) if v is not None}
    inside.update(zip(function.output, outputs, strict=False))
    made = set(function.output)
    for n in function.node:
        for name in n.output:
            if name not in made:
                inside[name] = Value(f"{outputs[0].name}/{name}")
        _add_node(graph, inside, n, functions)


def attribute_value(a: onnx.AttributeProto) -> Any:
    """An attribute as the Python value that an operator takes."""
    value = helper.get_attribute_value(a)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, bytes):
        return value.decode()
    return list(value) if a.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value
