"""Function bodies: those that a file brings, and those that ONNX gives for operators that ox has not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import onnx
from onnx import defs

from ox.errors import LoadError
from ox.graph.reader.model_file import subgraphs
from ox.graph.reader.validation import texts

Key = tuple[str, str, str]
Functions = dict[Key, onnx.FunctionProto]


def functions_of(model: onnx.ModelProto) -> Functions:
    """The functions of a file by domain, name and overload."""
    for f in model.functions:
        texts("a function", f.domain, f.name, f.overload, *f.input, *f.output, *f.attribute)
    return {(_normalize_domain(f.domain), f.name, f.overload): f for f in model.functions}


def key_of(node: onnx.NodeProto) -> Key:
    return _normalize_domain(node.domain), node.op_type, node.overload


def _normalize_domain(domain: str) -> str:
    return "" if domain == "ai.onnx" else domain


def opset_of(function: onnx.FunctionProto, default: int) -> int:
    """The opset of `ai.onnx` that a function's body is written in."""
    return max((e.version for e in function.opset_import if e.domain in ("", "ai.onnx")), default=default)


def count_inlined(nodes: Iterable[onnx.NodeProto], functions: Functions, known: dict[Key, int]) -> int:
    """How many nodes these are when every function stands in place of its calls; a call of itself counts as one."""
    total = 0
    for n in nodes:
        key = key_of(n)
        if key in functions and key not in known:
            known[key] = 1
            known[key] = count_inlined(functions[key].node, functions, known)
        total += known.get(key, 1)
        for graph in subgraphs(n):
            total += count_inlined(graph.node, functions, known)
    return total


def standard_body(
    node: onnx.NodeProto, version: int, type_of: Callable[[str], onnx.TypeProto | None]
) -> onnx.FunctionProto | None:
    """The body that ONNX itself gives for an operator of `ai.onnx`, or None.

    Raises:
        LoadError: the body depends on element types that cannot be inferred.
    """
    try:
        schema: Any = defs.get_schema(node.op_type, version, "")
    except defs.SchemaError:
        return None
    if schema.deprecated:
        return None
    written = onnx.FunctionProto()
    if schema.has_function:
        written.ParseFromString(schema.get_function_with_opset_version(max(schema.function_opset_versions)))
        return _defaulted(written, schema)
    if not schema.has_context_dependent_function:
        return None
    types = [onnx.TypeProto() if not name else type_of(name) for name in node.input]
    if any(t is None for t in types):
        raise LoadError(
            f"ox has no operator {node.op_type}, and its body depends on element types that the file does not tell",
            where=node.doc_string or node.name or None,
            hint="onnx.shape_inference.infer_shapes(model), and save that",
        )
    try:
        written.ParseFromString(
            schema.get_context_dependent_function_with_opset_version(
                max(schema.context_dependent_function_opset_versions),
                node.SerializeToString(),
                [t.SerializeToString() for t in types if t is not None],
            )
        )
    except (RuntimeError, ValueError) as error:
        raise LoadError(
            f"the body of {node.op_type} cannot be made", where=node.doc_string or node.name or None, got=str(error)
        ) from error
    return _defaulted(written, schema) if written.node else None


def _defaulted(function: onnx.FunctionProto, schema: Any) -> onnx.FunctionProto:
    """The body with the schema's defaults for the attributes that a call leaves out."""
    defaults = [schema.attributes[name].default_value for name in function.attribute if name in schema.attributes]
    function.attribute_proto.extend(default for default in defaults if default.name)
    return function
