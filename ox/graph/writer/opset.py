"""Which opsets can write a node: an attribute that the target lacks may only be at its default."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any

import onnx
from onnx import defs

from ox.core.operator import OPS
from ox.dtypes import NARROW
from ox.errors import ExportError
from ox.graph.ir import Array, Graph, Node, Value

LOWEST = 21  # by default; the opset argument may select an older one
LOWEST_ALLOWED = 13
NEWEST = defs.onnx_opset_version()
HIGHEST = min(26, NEWEST)  # 26 is where ONNX Runtime 1.31 stops
DOMAINS = ("", "ai.onnx")


@dataclass(frozen=True)
class Schema:
    """What onnx says about an operator at an opset; it copies each part at each question, so ox asks once."""

    since_version: int
    deprecated: bool
    max_inputs: int
    max_outputs: int
    defaults: Mapping[str, Any]  # of every attribute, as Python values; None: no default
    inputs: Sequence[frozenset[str]]  # the types that each takes, as ``tensor(float)``; the last may stand for several
    outputs: Sequence[frozenset[str]]


@cache
def schema_of(op_type: str, opset: int = NEWEST) -> Schema | None:
    """The schema of an operator of ONNX at an opset; None where it does not exist yet."""
    try:
        schema = defs.get_schema(op_type, opset, "")
    except defs.SchemaError:
        return None
    types = {c.type_param_str: frozenset(c.allowed_type_strs) for c in schema.type_constraints}
    inputs, outputs = (
        [types.get(each.type_str, frozenset([each.type_str])) for each in formal]
        for formal in (schema.inputs, schema.outputs)
    )
    defaults = {name: _default(attribute.default_value) for name, attribute in schema.attributes.items()}
    return Schema(
        schema.since_version, schema.deprecated, schema.max_input, schema.max_output, defaults, inputs, outputs
    )


def _default(value: onnx.AttributeProto) -> Any:
    if not value.name:
        return None
    default = onnx.helper.get_attribute_value(value)
    return default.decode() if isinstance(default, bytes) else default


def obstacle(node: Node, opset: int) -> str | None:
    """Why `opset` cannot express the node; None when it can."""
    if node.domain not in DOMAINS:
        return None
    schema, newest = schema_of(node.op_type, opset), schema_of(node.op_type)
    if schema is None or newest is None:
        return f"{node.op_type} does not exist in opset {opset}"
    if schema.deprecated:
        return f"{node.op_type} means something else in opset {opset}"
    if len(node.inputs) - node.captured > schema.max_inputs or len(node.outputs) > schema.max_outputs:
        return f"{node.op_type} takes fewer inputs or outputs in opset {opset}"
    for name, value in node.attributes.items():
        if name not in schema.defaults and not same_default(value, newest.defaults[name]):
            return f"{node.op_type} has no attribute {name} in opset {opset}"
    changed = _changed_meaning(node, schema.since_version)
    if changed is not None:
        return f"{changed} in opset {opset}"
    listed = node.inputs[: len(node.inputs) - node.captured]
    for values, allowed in ((listed, schema.inputs), (node.outputs, schema.outputs)):
        for i, value in enumerate(values):
            types = allowed[min(i, len(allowed) - 1)]
            if value is not None and value.dtype is not None and type_name(value.dtype) not in types:
                return f"{node.op_type} does not take {value.dtype} in opset {opset}"
    return None


def _changed_meaning(node: Node, since: int) -> str | None:
    """What the operator of that version says or does otherwise, although the same attributes could be written."""
    if node.op_type == "GridSample" and since < 20 and node.attributes.get("mode", "linear") in ("linear", "cubic"):
        return "GridSample has other names for its modes"
    half = node.attributes.get("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    if node.op_type == "RoiAlign" and since < 16 and half:
        return "RoiAlign has no coordinate_transformation_mode 'half_pixel'"
    how = node.attributes.get("reduction")
    if node.op_type in ("ScatterElements", "ScatterND") and since < 18 and how in ("max", "min"):
        return f"{node.op_type} has no reduction '{how}'"
    return None


@cache
def type_name(dtype: Any) -> str:
    """``tensor(float)``: an element type as ONNX schemas spell it."""
    name = str(dtype)
    if dtype in NARROW:  # float8_e4m3fn is float8e4m3fn, float4_e2m1fn float4e2m1
        name = name.replace("_", "").replace("float4e2m1fn", "float4e2m1")
    return f"tensor({ {'float32': 'float', 'float64': 'double'}.get(name, name) })"


def same_default(value: Any, default: Any) -> bool:
    """Whether a value is the schema's default; ONNX stores floats in single precision."""
    if isinstance(value, float) and isinstance(default, float):
        return abs(value - default) <= 1e-6 * abs(default)
    return value is None or bool(value == default)


def check_range(wanted: int | None) -> None:
    """Raise ExportError for an opset that ox does not write."""
    if wanted is not None and not (type(wanted) is int and LOWEST_ALLOWED <= wanted <= HIGHEST):
        raise ExportError(
            f"opset {wanted!r} is out of range",
            expected=f"{LOWEST_ALLOWED} to {HIGHEST} (ONNX Runtime runs up to {HIGHEST})",
            hint=f"--opset {LOWEST}, which every live runtime reads",
        )


def expandable(graph: Graph, around: Mapping[Value, Array] = MappingProxyType({})) -> dict[Node, dict[Value, Array]]:
    """The nodes that a function of older operators can stand for, each with those of its inputs that the function
    holds: host inputs, which must be numbers of the graph."""
    found: dict[Node, dict[Value, Array]] = {}
    known = {**graph.constants, **around}
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            found.update(expandable(inside, graph.captured_constants(node, inside, around)))
        op = OPS.get(node.key)
        if op is not None and op.expanded is not None:
            host = [v for i, v in enumerate(node.inputs) if v is not None and op.schema.input_at(i).host]
            if all(v in known for v in host):
                found[node] = {v: known[v] for v in host}
    return found


def select_opset(graph: Graph, wanted: int | None) -> int:
    """The opset to write: the wanted one if every node fits it, else the lowest from 21 that they all fit, or where
    there is none, the lowest that they fit once some stand for functions.

    Raises:
        ExportError: out of range, or a node that the wanted opset cannot express (operator and line are named).
    """
    check_range(wanted)
    candidates = range(LOWEST, HIGHEST + 1) if wanted is None else [wanted]
    free: Container[Node] = ()
    for free in ((), expandable(graph)):
        for opset in candidates:
            first = next((n for n in graph.all_nodes() if n not in free and obstacle(n, opset)), None)
            if first is None:
                return opset
    assert first is not None
    raise ExportError(
        f"{obstacle(first, opset)}",
        where=first.place or None,
        hint="a higher --opset" if wanted is not None else "another element type",
    )
