"""The element types of the values of a model, and what its operators take and give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, defs, helper, numpy_helper

from ox.export.quantization.sessions import open_session
from ox.graph.ir import Array

FLOAT, FLOAT16 = TensorProto.FLOAT, TensorProto.FLOAT16
STANDARD = ("", "ai.onnx")
TYPE_ATTRIBUTES = ("to", "dtype")


@dataclass
class Scope:
    """A graph's values: their element types (0 where that is not known, -1 for what is no tensor), and what the float32
    ones are called in the new graph, in each of the two types."""

    graph: onnx.GraphProto
    outer: Scope | None = None
    types: dict[str, int] = field(default_factory=dict)
    names: dict[tuple[str, int], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for info in (*self.graph.value_info, *self.graph.input, *self.graph.output):
            tensor = info.type.WhichOneof("value") in (None, "tensor_type")
            self.types[info.name] = info.type.tensor_type.elem_type if tensor else -1
        self.types.update((t.name, t.data_type) for t in self.graph.initializer)

    def type_of(self, name: str) -> int:
        known = self.types.get(name, 0)
        return known if known or self.outer is None else self.outer.type_of(name)

    def find(self, name: str, kind: int) -> str | None:
        known = self.names.get((name, kind))
        return known if known is not None or self.outer is None else self.outer.find(name, kind)

    def holds(self, name: str) -> bool:
        """Whether a name is that of a float32 value of the original."""
        return self.find(name, FLOAT) is not None or self.find(name, FLOAT16) is not None


def complete(model: onnx.ModelProto, scope: Scope) -> None:
    """The types that onnx does not infer, those of operators of ONNX Runtime, from a session."""
    unknown = [name for node in model.graph.node for name in node.output if name and not scope.types.get(name)]
    if not unknown:
        return
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in unknown)
    for info in open_session(copy, "the model").get_outputs():
        if info.name in unknown:
            scope.types[info.name] = FLOAT if info.type == "tensor(float)" else -1


@dataclass
class Types:
    """What the operators of a model take and give."""

    versions: dict[str, int]
    always_float32: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def schema(self, node: onnx.NodeProto) -> Any:
        domain = "" if node.domain in STANDARD else node.domain
        try:
            return defs.get_schema(node.op_type, self.versions.get(domain, 1), domain)
        except defs.SchemaError:  # of another domain
            return None

    def takes_float16(self, node: onnx.NodeProto, position: int, *, output: bool = False) -> bool:
        """Whether an input, or output, may be float16."""
        schema = self.schema(node)
        if schema is None:
            return output or position not in self.always_float32.get(node.op_type, ())
        parameters = schema.outputs if output else schema.inputs
        kind = parameters[min(position, len(parameters) - 1)].type_str
        allowed = next((c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == kind), [kind])
        return any(text.endswith(("(float16)", "(float16))")) for text in allowed)

    def gives_float32(self, node: onnx.NodeProto, position: int, scope: Scope) -> bool:
        """Whether an output of the original node is float32."""
        known = scope.type_of(node.output[position])
        if known:
            return known == FLOAT
        if float32_constant(node) is not None:
            return True
        attribute = next((a.i for a in node.attribute if a.name in TYPE_ATTRIBUTES), None)
        if attribute is not None:
            return bool(attribute == FLOAT)
        schema, floating = self.schema(node), [scope.holds(name) for name in node.input]
        if schema is None:
            return any(floating)
        kind = schema.outputs[min(position, len(schema.outputs) - 1)].type_str
        inputs = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(floating))]
        return kind == "tensor(float)" or any(f for f, own in zip(floating, inputs, strict=True) if own == kind)


def float32_constant(node: onnx.NodeProto) -> Array | None:
    """The float32 numbers that a node holds."""
    if node.op_type not in ("Constant", "ConstantOfShape") or node.domain not in STANDARD:
        return None
    for a in node.attribute:
        if a.name == "value" and a.t.data_type == FLOAT:
            array: Array = numpy_helper.to_array(a.t)
            return array
        if a.name in ("value_float", "value_floats"):
            return np.array(helper.get_attribute_value(a), np.float32)
    no_value = not any(a.name == "value" for a in node.attribute)
    return np.zeros(1, np.float32) if node.op_type == "ConstantOfShape" and no_value else None
