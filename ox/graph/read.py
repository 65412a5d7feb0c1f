"""An ONNX model as a graph."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox.dtypes import FROM_ONNX
from ox.errors import LoadError
from ox.graph.form import Array, Graph, Node, Value
from ox.ops.operator import OPS

MOST_NODES = 1_000_000


def from_model(model: onnx.ModelProto) -> Graph:
    """Read a model whose operators ox has. Initializers are what the graph owns; doc strings come back as places.

    Raises:
        LoadError: an operator, attribute or element type that ox has not, a value that nobody makes before it is read
            (a cycle, too), or one that is made twice.
    """
    proto = model.graph
    graph = Graph(name=proto.name)
    known: dict[str, Value] = {}
    if proto.sparse_initializer:
        raise LoadError("sparse initializers", where=proto.sparse_initializer[0].values.name, expected="dense ones")
    for tensor in proto.initializer:
        array = array_of(tensor)
        value = _new(known, tensor.name, "initializer")
        value.dtype, value.dims, value.shape = array.dtype, array.shape, array.shape
        graph.constants[value] = array
        graph.owned.add(value)
    for info in proto.input:
        if info.name in known and known[info.name] in graph.owned:
            continue  # before IR 4 initializers were listed as inputs too
        value = _new(known, info.name, "input")
        declared = value_of(info)
        value.dtype, value.dims = declared.dtype, declared.dims
        graph.inputs.append(value)
    functions = {(f.domain, f.name): f for f in model.functions}
    if _written_out(proto.node, functions, {}) > MOST_NODES:
        raise LoadError(f"the model has more than {MOST_NODES:,} nodes when its functions are written out")
    for n in proto.node:
        _add_node(graph, known, n, functions)
    for info in proto.output:
        if info.name not in known:
            raise LoadError(f"output '{info.name}' is made by no node")
        made, declared = known[info.name], value_of(info)
        if made in graph.outputs:
            raise LoadError(f"output '{info.name}' is listed twice")
        made.dtype, made.dims = made.dtype or declared.dtype, made.dims or declared.dims
        graph.outputs.append(made)
    return graph


def _written_out(
    nodes: Iterable[onnx.NodeProto], functions: dict[Any, onnx.FunctionProto], known: dict[Any, int]
) -> int:
    """How many nodes these are when every function stands in place of its calls; a call of itself counts as one."""
    total = 0
    for n in nodes:
        key = (n.domain, n.op_type)
        if key in functions and key not in known:
            known[key] = 1
            known[key] = _written_out(functions[key].node, functions, known)
        total += known.get(key, 1)
    return total


def _new(known: dict[str, Value], name: str, role: str) -> Value:
    if name in known:
        raise LoadError(f"the value '{name}' is made twice", where=f"{role} '{name}'")
    known[name] = Value(name)
    return known[name]


def array_of(tensor: onnx.TensorProto) -> Array:
    """A TensorProto as an array. Raises LoadError for element types that ox does not compute with, and for damage."""
    if tensor.data_type not in FROM_ONNX:
        raise LoadError(
            "a tensor of an element type that ox does not compute with",
            where=f"tensor '{tensor.name}'",
            expected=", ".join(map(str, FROM_ONNX.values())),
            got=_type_name(tensor.data_type),
        )
    try:
        # a copy: what a file gives is read-only memory, and parameters are written
        return numpy_helper.to_array(tensor).astype(FROM_ONNX[tensor.data_type])
    except (ValueError, TypeError) as error:
        raise LoadError(f"the data of tensor '{tensor.name}' is damaged", got=str(error)) from error


def _type_name(number: int) -> str:
    names = onnx.TensorProto.DataType
    return str(names.Name(number)) if number in names.values() else str(number)


def value_of(info: onnx.ValueInfoProto) -> Value:
    """Name, type and sizes of a declared input or output. Raises LoadError for what is no tensor of ox's types."""
    tensor = info.type.tensor_type
    if tensor.elem_type not in FROM_ONNX:
        kind = info.type.WhichOneof("value")
        got = _type_name(tensor.elem_type) if kind == "tensor_type" else str(kind)
        raise LoadError(f"'{info.name}' is no tensor that ox computes with", got=got)
    dims = None
    if tensor.HasField("shape"):
        dims = tuple(d.dim_value if d.HasField("dim_value") else d.dim_param or "?" for d in tensor.shape.dim)
    return Value(info.name, FROM_ONNX[tensor.elem_type], dims)


def _add_node(
    graph: Graph, known: dict[str, Value], n: onnx.NodeProto, functions: dict[Any, onnx.FunctionProto]
) -> None:
    place = n.doc_string or n.name or None
    missing = [name for name in n.input if name and name not in known]
    if missing:
        raise LoadError(f"{n.op_type} reads '{missing[0]}', which nothing before it makes", where=place)
    inputs = [known[name] if name else None for name in n.input]
    while inputs and inputs[-1] is None:
        inputs.pop()
    outputs = [_new(known, name, f"{n.op_type} {n.name}") if name else Value("") for name in n.output]
    while len(outputs) > 1 and not outputs[-1].name:
        outputs.pop()
    function = functions.get((n.domain, n.op_type))
    if function is not None:
        _inline(graph, function, inputs, outputs, {k: f for k, f in functions.items() if f is not function}, n)
        return
    attributes = {a.name: attribute_value(a) for a in n.attribute}
    domain = "" if n.domain == "ai.onnx" else n.domain
    if n.op_type == "Constant" and not domain:
        array = _constant(attributes, place)
        outputs[0].dtype, outputs[0].dims, outputs[0].shape = array.dtype, array.shape, array.shape
        graph.constants[outputs[0]] = array
        return
    module, _, _ = n.name.rpartition("/")
    node = Node(n.op_type, domain, inputs, outputs, attributes, n.name)
    node.module, node.where = _split(n.doc_string, module)
    op = OPS.get(node.key)
    if op is None:
        raise LoadError(f"ox has no operator {node.key}", where=place, hint="an operator of ai.onnx that ox.ops lists")
    unknown = [name for name in attributes if name not in op.schema.attributes]
    if unknown:
        raise LoadError(f"{n.op_type} has no attribute '{unknown[0]}' in ox", where=place)
    graph.nodes.append(node)


def _split(doc: str | bytes, module: str) -> tuple[str, str]:
    """Module path and line again, from the doc string that writing made of them."""
    if isinstance(doc, bytes):  # what protobuf gives for a string that is none
        raise LoadError("the file is damaged: a doc string is no text", got=repr(doc[:40]))
    first, _, rest = doc.partition(", ")
    return (first, rest) if module and first.split(" ")[0] == module else ("", doc)


def _constant(attributes: dict[str, Any], place: str | None) -> Array:
    kinds = {"value_float": np.float32, "value_floats": np.float32, "value_int": np.int64, "value_ints": np.int64}
    for name, value in attributes.items():
        if name == "value":
            return value  # type: ignore[no-any-return]
        if name in kinds:
            return np.asarray(value, kinds[name])
    raise LoadError("a Constant without a value that ox computes with", where=place, got=", ".join(attributes))


def _inline(
    graph: Graph,
    function: onnx.FunctionProto,
    inputs: list[Value | None],
    outputs: list[Value],
    functions: dict[Any, Any],
    call: onnx.NodeProto,
) -> None:
    """A model-local function's body in place of the call; it does not see itself, so recursion ends as an error."""
    if function.attribute or function.attribute_proto or call.attribute:
        raise LoadError(f"the function {function.name} takes attributes, which ox does not read", where=call.name)
    inside: dict[str, Value] = {name: v for name, v in zip(function.input, inputs, strict=False) if v is not None}
    first, constants = len(graph.nodes), set(graph.constants)
    for n in function.node:
        _add_node(graph, inside, n, functions)
    wanted = dict(zip(function.output, outputs, strict=False))
    for name, value in wanted.items():
        made = inside.get(name)
        if made is None:
            raise LoadError(f"the function {function.name} never makes '{name}'", where=call.name)
        if made in inputs or made in graph.constants:
            graph.nodes.append(Node("Identity", "", [made], [value]))
            continue
        for node in graph.nodes[first:]:
            node.inputs = [value if v is made else v for v in node.inputs]
            node.outputs = [value if v is made else v for v in node.outputs]
    for node in graph.nodes[first:]:
        node.module, node.where = _split(call.doc_string, call.name.rpartition("/")[0])
    made_here = {v for node in graph.nodes[first:] for v in node.outputs} | (set(graph.constants) - constants)
    for value in made_here - set(outputs):
        value.name = f"{outputs[0].name}/{value.name}"


def attribute_value(a: onnx.AttributeProto) -> Any:
    """An attribute as the Python value that an operator takes."""
    value = helper.get_attribute_value(a)
    if isinstance(value, onnx.TensorProto):
        return array_of(value)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return list(value) if a.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS) else value
