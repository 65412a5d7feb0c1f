"""An ONNX model as a graph."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import onnx
from onnx import defs

from ox.core.operator import OPS
from ox.errors import LoadError
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.reader import version_converter
from ox.graph.reader.arrays import array_of, attribute_value, constant_of, dense, value_of
from ox.graph.reader.foreign_body import foreign_body
from ox.graph.reader.function_bodies import Functions, count_inlined, functions_of, key_of, opset_of, standard_body
from ox.graph.reader.inferred_types import inferred_types
from ox.graph.reader.model_file import MAX_SUBGRAPH_DEPTH
from ox.graph.reader.model_file import opset_of as opset_of_model
from ox.graph.reader.order import in_order
from ox.graph.reader.scope import Scope
from ox.graph.reader.validation import check_attributes, check_call, check_names, texts
from ox.graph.reader.weights import constants_to_weights

MOST_NODES = 250_000
NEWEST = defs.onnx_opset_version()


def from_model(model: onnx.ModelProto, weights: Mapping[str, Array] = MappingProxyType({})) -> Graph:
    """Read a model whose operators ox has, or for which it or ONNX has a body. Initializers, and constants that are
    weights, are what the graph owns; doc strings come back as places.

    Args:
        weights: initializers of the model's graph that were read apart, by name; the graph takes these very arrays.

    Raises:
        LoadError: an operator, attribute or element type that ox has not, a value that is read before it is computed
            (a cycle, too), or one that is made twice.
    """
    return Reader(model, weights).graph()


class Reader:
    """Reads one model."""

    def __init__(self, model: onnx.ModelProto, weights: Mapping[str, Array]) -> None:
        self.model, self.weights = model, weights
        self.functions: Functions = functions_of(model)
        self.inferred = False
        ends = frozenset(info.name for info in model.graph.output)
        self.top = Scope(Graph(name=model.graph.name), opset_of_model(model) or NEWEST, output_names=ends)

    def graph(self) -> Graph:
        proto, scope = self.model.graph, self.top
        if count_inlined(proto.node, self.functions, {}) > MOST_NODES:
            raise LoadError(f"the model has more than {MOST_NODES:,} nodes when its functions are written out")
        self._initializers(proto, scope)
        scope.graph.declared_inputs = tuple(info.name for info in proto.input)
        for info in proto.input:
            known = scope.values.get(info.name)
            if known is not None and known in scope.graph.owned:
                # before IR 4 initializers were listed as inputs too; from then on those may be given
                if self.model.ir_version >= 4:
                    scope.graph.overridable.append(known)
                continue
            self._input(info, scope)
        for n in in_order(proto.node):
            self.node(n, scope)
        self._outputs(proto, scope)
        if self.model.producer_name != "ox":
            constants_to_weights(scope.graph)
        return scope.graph

    def _initializers(self, proto: onnx.GraphProto, scope: Scope) -> None:
        texts("the initializers", *(t.name for t in proto.initializer))
        texts("the initializers", *(s.values.name for s in proto.sparse_initializer))
        for tensor in proto.initializer:
            apart = self.weights.get(tensor.name) if scope is self.top else None
            value = scope.add_weight(tensor.name, array_of(tensor) if apart is None else apart)
            if scope is not self.top:
                scope.values[tensor.name] = value
        for sparse in proto.sparse_initializer:
            value = scope.add_weight(sparse.values.name, dense(sparse))
            if scope is not self.top:
                scope.values[sparse.values.name] = value

    def _input(self, info: onnx.ValueInfoProto, scope: Scope) -> None:
        texts("the inputs", info.name)
        declared = value_of(info)
        value = scope.new(info.name, "input")
        value.dtype, value.dims = declared.dtype, declared.dims
        scope.graph.inputs.append(value)

    def _outputs(self, proto: onnx.GraphProto, scope: Scope) -> None:
        ends = {*scope.graph.inputs, *scope.graph.captures, *scope.graph.constants}
        for info in proto.output:
            texts("the outputs", info.name)
            made, declared = scope.lookup(info.name), value_of(info)
            if made is None:
                raise LoadError(f"output '{info.name}' is made by no node")
            if scope is self.top and made in scope.graph.outputs:
                raise LoadError(f"output '{info.name}' is listed twice")
            if scope is not self.top and (made in ends or made in scope.graph.captures or made in scope.graph.outputs):
                made = Value(f"{info.name}/out", made.dtype, made.dims, made.shape)
                scope.graph.nodes.append(Node("Identity", "", [scope.lookup(info.name)], [made]))
            made.dtype, made.dims = made.dtype or declared.dtype, made.dims or declared.dims
            scope.graph.outputs.append(made)

    def node(self, n: onnx.NodeProto, scope: Scope) -> None:
        """Read one node into the scope's graph."""
        check_names(n)
        function = self.functions.get(key_of(n))
        if function is not None:
            version = opset_of(function, scope.version)
            if not 0 < version <= NEWEST:
                raise LoadError(
                    f"the function {function.name} is written in opset {version}", expected=f"1 to {NEWEST}"
                )
            self._inline(function, version, n, scope)
            return
        if n.domain in ("", "ai.onnx"):
            for newer in version_converter.upgrade(
                n, scope.version, lambda name: self._type_of(name, scope), scope.constant
            ):
                self._read_operator(newer, scope, NEWEST if newer is not n else scope.version)
        else:
            self._read_operator(n, scope, scope.version)

    def _read_operator(self, n: onnx.NodeProto, scope: Scope, version: int) -> None:
        place = n.doc_string or n.name or None
        domain = "" if n.domain == "ai.onnx" else n.domain
        attributes = _resolved(n, scope)
        if n.op_type == "Constant" and not domain:
            check_attributes(OPS["Constant"], attributes, place)
            array = constant_of(n, attributes)
            if len(n.output) != 1:
                raise LoadError("a Constant makes one value", where=place, got=str(list(n.output)))
            value = scope.new(n.output[0], "Constant")
            value.dtype, value.dims, value.shape = array.dtype, array.shape, array.shape
            scope.graph.constants[value] = array
            return
        if n.op_type == "Identity" and not domain and self._alias(n, scope):
            return
        module, _, _ = n.name.rpartition("/")
        node = Node(n.op_type, domain, [], [], {}, n.name)
        op = OPS.get(node.key)
        if op is None:
            own = _own_attributes(n, attributes)
            body = foreign_body(own, lambda x: self._type_of(x, scope))
            if body is None and not domain:
                body = standard_body(own, version, lambda x: self._type_of(x, scope))
            if body is None:
                raise _unknown(node.key, domain, place)
            self._inline(body, opset_of(body, version), n, scope)
            return
        check_attributes(op, attributes, place)
        node.inputs = self._inputs(n, scope)
        node.module, node.where = _split(n.doc_string, module)
        subgraphs = {}
        for name, a in sorted(attributes.items()):
            if a.type == onnx.AttributeProto.GRAPH:
                subgraphs[name] = self._subgraph(a.g, scope)
            else:
                node.attributes[name] = attribute_value(a)
        if subgraphs:
            outside = list(dict.fromkeys(v for _, inner in sorted(subgraphs.items()) for v in inner.captured))
            for name, inner in subgraphs.items():
                inner.graph.share([(v,) for v in inner.captured], [(v,) for v in outside])
                node.attributes[name] = inner.graph
            # what is captured follows the inputs, those that are left out too
            least = sum(not given.variadic for given in op.schema.inputs) if outside else 0
            node.inputs += [None] * (least - len(node.inputs))
            node.inputs += outside
        node.outputs = [scope.new(name, f"{n.op_type} {n.name}") if name else Value("") for name in n.output]
        while len(node.outputs) > 1 and not node.outputs[-1].name:
            node.outputs.pop()
        if not node.outputs:
            raise LoadError(f"{n.op_type} makes nothing", where=place)
        check_call(op, node, place)
        scope.graph.nodes.append(node)

    def _alias(self, n: onnx.NodeProto, scope: Scope) -> bool:
        """Whether an Identity is another name of a constant: exporters tie weights so."""
        source = scope.lookup(n.input[0]) if len(n.input) == 1 == len(n.output) else None
        ends = (scope.graph.constants, scope.graph.captures)
        if source is None or n.output[0] in scope.output_names or not any(source in each for each in ends):
            return False
        if n.output[0] in scope.values:
            scope.new(n.output[0], "Identity")  # which raises
        scope.values[n.output[0]] = source
        return True

    def _inputs(self, n: onnx.NodeProto, scope: Scope) -> list[Value | None]:
        inputs: list[Value | None] = []
        for name in n.input:
            value = scope.lookup(name) if name else None
            if name and value is None and not scope.is_absent(name):
                raise LoadError(
                    f"{n.op_type} reads '{name}', which nothing before it makes", where=n.doc_string or n.name or None
                )
            inputs.append(value)
        while inputs and inputs[-1] is None:
            inputs.pop()
        return inputs

    def _subgraph(self, proto: onnx.GraphProto, around: Scope) -> Scope:
        scope = Scope(
            Graph(name=proto.name),
            around.version,
            around,
            attributes=around.attributes,
            output_names=frozenset(info.name for info in proto.output),
            active=around.active,
        )
        if scope.depth > MAX_SUBGRAPH_DEPTH:
            raise LoadError("subgraphs nested too deeply", where=proto.name, expected=f"at most {MAX_SUBGRAPH_DEPTH}")
        for info in proto.input:
            self._input(info, scope)
        self._initializers(proto, scope)
        for n in in_order(proto.node):
            self.node(n, scope)
        self._outputs(proto, scope)
        return scope

    def _inline(self, function: onnx.FunctionProto, version: int, call: onnx.NodeProto, scope: Scope) -> None:
        """A function's body in place of the call."""
        key = (function.domain, function.name, function.overload)
        place = call.doc_string or call.name or None
        if key in scope.active:
            raise LoadError(f"the function {function.name} calls itself", where=place)
        given = _resolved(call, scope)
        attributes = {a.name: a for a in function.attribute_proto} | given
        inputs = self._inputs(call, scope)
        known = {name: v for name, v in zip(function.input, inputs, strict=False) if v is not None}
        inside = Scope(
            scope.graph, version, caller=scope, attributes=attributes, absent=frozenset(function.input) - set(known),
            output_names=frozenset(function.output), active=scope.active | {key}, values=known,
        )  # fmt: skip
        inside.argument_names = dict(zip(function.input, call.input, strict=False))
        graph, first, constants = scope.graph, len(scope.graph.nodes), set(scope.graph.constants)
        ends = {*graph.inputs, *graph.captures, *constants, *(v for v in inputs if v is not None)}
        for n in in_order(function.node):
            self.node(n, inside)
        made_here = {v for node in graph.nodes[first:] for v in node.outputs} | (set(graph.constants) - constants)
        renamed: dict[Value, Value] = {}
        copies: list[Node] = []
        for name, output in zip(function.output, call.output, strict=False):
            if not output:
                continue
            made = inside.values.get(name)
            if made is None:
                raise LoadError(f"the function {function.name} never makes '{name}'", where=place)
            value = scope.new(output, call.op_type)
            value.dtype, value.dims, value.shape = made.dtype, made.dims, made.shape
            if made in ends or made in graph.constants or made in renamed or made not in made_here:
                copies.append(Node("Identity", "", [renamed.get(made, made)], [value]))
            else:
                renamed[made] = value
        where = _split(call.doc_string, call.name.rpartition("/")[0])
        for node in graph.nodes[first:]:
            node.inputs = [renamed.get(v, v) if v is not None else None for v in node.inputs]
            node.outputs = [renamed.get(v, v) for v in node.outputs]
            node.module, node.where = where
        graph.nodes.extend(copies)
        stem = next((name for name in call.output if name), function.name)
        for value in made_here:
            if value not in renamed and value not in graph.owned and value.name:
                value.name = f"{stem}/{value.name}"

    def _type_of(self, name: str, scope: Scope) -> onnx.TypeProto | None:
        """The type of a name: declared, inferred, or what is known of its value."""
        if not self.inferred:
            self.inferred = True
            self.top.types = inferred_types(self.model)
        if not name or scope.is_absent(name):
            return onnx.TypeProto()  # marks a missing input for a body that depends on types
        at: Scope | None = scope
        while at is not None:
            if name in at.types:
                return at.types[name]
            if at.caller is not None and name in at.argument_names:
                return self._type_of(at.argument_names[name], at.caller)
            at = at.outer
        value = scope.lookup(name)
        if value is None or value.dtype is None:
            return None
        dims = None if value.dims is None else [None if d == "?" else d for d in value.dims]
        return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(value.dtype), dims)


def _resolved(n: onnx.NodeProto, scope: Scope) -> dict[str, onnx.AttributeProto]:
    """A node's attributes by name, those that refer to an attribute of the function around it filled in."""
    found: dict[str, onnx.AttributeProto] = {}
    for a in n.attribute:
        if not a.ref_attr_name:
            found[a.name] = a
        elif a.ref_attr_name in scope.attributes:
            filled = onnx.AttributeProto()
            filled.CopyFrom(scope.attributes[a.ref_attr_name])
            filled.name = a.name
            found[a.name] = filled
    return found


def _own_attributes(n: onnx.NodeProto, attributes: dict[str, onnx.AttributeProto]) -> onnx.NodeProto:
    """The node with its attributes filled in."""
    if not any(a.ref_attr_name for a in n.attribute):
        return n
    filled = onnx.NodeProto()
    filled.CopyFrom(n)
    del filled.attribute[:]
    filled.attribute.extend(attributes.values())
    return filled


def _unknown(key: str, domain: str, place: str | None) -> LoadError:
    known = [name for name in OPS if "." not in name]
    near = get_close_matches(key.rpartition(".")[2], known, 1)
    if domain:
        hint = "export it without the optimizations of one runtime" if domain.startswith("com.microsoft") else None
        hint = hint or f"a model-local function '{key.rpartition('.')[2]}' of domain '{domain}', which ox would read"
    else:
        hint = f"the nearest name is {near[0]}" if near else "an operator of ai.onnx that ox.ops lists"
    return LoadError(f"ox has no operator {key}", where=place, got="no function body either", hint=hint)


def _split(doc: str | bytes, module: str) -> tuple[str, str]:
    """Module path and line again, from the doc string that writing made of them."""
    if isinstance(doc, bytes):  # what protobuf gives for a string that is none
        raise LoadError("the file is damaged: a doc string is no text", got=repr(doc[:40]))
    first, _, rest = doc.partition(", ")
    return (first, rest) if module and first.split(" ")[0] == module else ("", doc)


__all__: list[Any] = ["from_model"]
