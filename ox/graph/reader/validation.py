"""Whether a node of a file is a call that its operator takes: inputs, outputs, attributes and subgraphs."""

from __future__ import annotations

from functools import cache
from typing import Any

import onnx
from onnx import defs

from ox.core.operator import Operator
from ox.core.schema import REQUIRED
from ox.errors import LoadError
from ox.graph.ir import Graph, Node


def texts(where: str, *values: Any) -> None:
    """Raise LoadError where a name is bytes, which is what protobuf gives for a string that is none."""
    for value in values:
        if not isinstance(value, str):
            raise LoadError(f"the file is damaged: a name in {where} is no text", got=repr(value[:40]))


def check_names(n: onnx.NodeProto) -> None:
    """Raise LoadError where a string of the node is none."""
    attributes = [name for a in n.attribute for name in (a.name, a.ref_attr_name)]
    texts("a node", n.op_type, n.domain, n.name, n.doc_string, n.overload, *n.input, *n.output, *attributes)


@cache
def _attribute_types(op: str) -> dict[str, Any]:
    """The type of each attribute by the newest schema."""
    attributes: dict[str, Any] = dict(defs.get_schema(op).attributes)
    return {name: a.type.value for name, a in attributes.items()}


def check_attributes(op: Operator, attributes: dict[str, onnx.AttributeProto], place: str | None) -> None:
    """Raise LoadError for an attribute that ox does not have, or of another type, or one that is missing."""
    for name, a in attributes.items():
        if name not in op.schema.attributes:
            raise LoadError(
                f"{op.name} has no attribute '{name}' in ox",
                where=place,
                expected=", ".join(op.schema.attributes) or "no attributes",
            )
        wanted = _attribute_types(op.name).get(name) if not op.domain else None
        if wanted is not None and a.type != wanted:
            kinds = onnx.AttributeProto.AttributeType
            got = kinds.Name(a.type) if a.type in kinds.values() else str(a.type)
            raise LoadError(
                f"the attribute '{name}' of {op.name} is of another type",
                where=place,
                expected=kinds.Name(wanted),
                got=got,
            )
    missing = [name for name, default in op.schema.attributes.items() if default is REQUIRED and name not in attributes]
    if missing:
        raise LoadError(f"{op.name} needs the attribute '{missing[0]}'", where=place)


def check_call(op: Operator, node: Node, place: str | None) -> None:
    """Raise LoadError for too few or too many inputs or outputs, and for subgraphs that take or give other numbers."""
    schema, given = op.schema, len(node.inputs) - node.captured
    for i, formal in enumerate(schema.inputs):
        if not formal.optional and not formal.variadic and (i >= given or node.inputs[i] is None):
            raise LoadError(f"{op.name} needs its input '{formal.name}'", where=place)
    last = schema.inputs[-1] if schema.inputs else None
    if given > len(schema.inputs) and not (last is not None and last.variadic):
        raise LoadError(
            f"{op.name} has too many inputs", where=place, expected=f"at most {len(schema.inputs)}", got=str(given)
        )
    if len(node.outputs) > len(schema.outputs) and not schema.variadic_output:
        raise LoadError(
            f"{op.name} has too many outputs",
            where=place,
            expected=f"at most {len(schema.outputs)}",
            got=str(len(node.outputs)),
        )
    if last is not None and last.variadic and None in node.inputs[len(schema.inputs) - 1 :]:
        raise LoadError(f"{op.name} leaves out one of its inputs '{last.name}'", where=place)
    for name, inside in node.subgraphs():
        _check_subgraph(op, node, name, inside, given, place)


def _check_subgraph(op: Operator, node: Node, name: str, inside: Graph, given: int, place: str | None) -> None:
    takes, gives = 0, len(node.outputs)
    if op.name == "Loop":
        takes, gives = max(given, 2), gives + 1
    elif op.name == "Scan":
        takes = given
        count = node.attributes.get("num_scan_inputs")
        if not isinstance(count, int) or not 0 < count <= given:
            raise LoadError("Scan has another number of scan inputs than inputs", where=place, got=str(count))
    if (len(inside.inputs), len(inside.outputs)) != (takes, gives):
        raise LoadError(
            f"the {name} of {op.name} does not fit it",
            where=place,
            expected=f"{takes} inputs and {gives} outputs",
            got=f"{len(inside.inputs)} inputs and {len(inside.outputs)} outputs",
        )
