"""Every operator's signature is the ONNX schema of the newest opset of the installed onnx."""

from __future__ import annotations

from typing import Any

import numpy as np
from node_cases import operators
from onnx import defs, helper, numpy_helper
from rows import rows

from ox.core.operator import OPS, Operator
from ox.core.schema import REQUIRED
from ox.dtypes import ALL, FROM_ONNX, NARROW, onnx_type
from ox.graph.writer.opset import type_name

COMPUTED = {type_name(d): d for d in (*ALL, *NARROW)}
CONVERTING = {"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"}  # what takes the types of quantized tensors


def newest(name: str) -> Any:
    return defs.get_schema(name)


def differences(op: Operator) -> list[str]:
    """What the signature says differently than the schema."""
    schema = newest(op.name)
    found = []
    own = [(p.name, "variadic" if p.variadic else "optional" if p.optional else "single") for p in op.schema.inputs]
    if own[-1:] == [("captures", "variadic")]:
        own.pop()  # what branches read from outside, which a file does not list
    theirs = [(p.name, p.option.name.lower()) for p in schema.inputs]
    if own != theirs:
        found.append(f"inputs {own}, not {theirs}")
    own_names, their_names = list(op.schema.outputs), [p.name for p in schema.outputs]
    if own_names != their_names:
        found.append(f"outputs {own_names}, not {their_names}")
    if op.schema.variadic_output != any(p.option.name == "Variadic" for p in schema.outputs):
        found.append("a variadic output on one side only")
    found += _attribute_differences(op, schema)
    found += _type_differences(op, schema)
    return found


def _attribute_differences(op: Operator, schema: Any) -> list[str]:
    own, theirs = op.schema.attributes, dict(schema.attributes)
    found = []
    if sorted(own) != sorted(theirs):
        return [f"attributes {sorted(own)}, not {sorted(theirs)}"]
    for name, attribute in theirs.items():
        if attribute.required != (own[name] is REQUIRED):
            found.append(f"attribute {name} is required on one side only")
            continue
        value = attribute.default_value
        expected = helper.get_attribute_value(value) if value.name else None
        if isinstance(expected, bytes):
            expected = expected.decode()
        if isinstance(expected, list):
            expected = [v.decode() if isinstance(v, bytes) else v for v in expected]
        if attribute.required:
            continue
        if hasattr(expected, "raw_data"):
            expected = numpy_helper.to_array(expected)
        if isinstance(own[name], float) and isinstance(expected, float):
            same = np.float32(own[name]) == np.float32(expected)  # a schema's float is a float32
        elif isinstance(expected, np.ndarray):
            same = isinstance(own[name], np.ndarray) and np.array_equal(own[name], expected)
        else:
            same = own[name] == expected and type(own[name]) is type(expected)
        if not same:
            found.append(f"attribute {name} is {own[name]!r} by default, not {expected!r}")
    return found


def _type_differences(op: Operator, schema: Any) -> list[str]:
    allowed = {c.type_param_str: set(c.allowed_type_strs) for c in schema.type_constraints}
    found = []
    if len(op.schema.output_types) != len(schema.outputs):
        found.append(f"{len(op.schema.output_types)} output types for {len(schema.outputs)} outputs")
    own_inputs = [p.type for p in op.schema.inputs]
    own = list(zip(own_inputs, schema.inputs, strict=False)) + list(
        zip(op.schema.output_types, schema.outputs, strict=False)
    )
    for variable, parameter in own:
        theirs = {COMPUTED[t] for t in allowed.get(parameter.type_str, {parameter.type_str}) if t in COMPUTED}
        ours = set(op.schema.allowed(variable))
        if op.name not in CONVERTING:
            theirs -= set(NARROW)
        if ours != theirs:
            missing, extra = sorted(map(str, theirs - ours)), sorted(map(str, ours - theirs))
            found.append(f"{parameter.name}: types lack {missing}, have {extra} too many")
    # what shares a type variable must be the same parameters here and there
    first: dict[str, str] = {}
    for variable, parameter in own:
        if variable in op.schema.types and first.setdefault(variable, parameter.type_str) != parameter.type_str:
            found.append(f"{parameter.name} shares {variable} with parameters that the schema keeps apart")
    back: dict[str, str] = {}
    for variable, parameter in own:
        if parameter.type_str in allowed and back.setdefault(parameter.type_str, variable) != variable:
            found.append(f"{parameter.name} has {variable}, but shares {parameter.type_str} in the schema")
    return found


@rows("name", operators())
def test_signature_is_the_schema(name: str) -> None:
    assert not differences(OPS[name])


@rows("name", operators())
def test_differentiable_inputs_have_a_rule(name: str) -> None:
    """Where the schema calls an input differentiable, a rule exists."""
    op, schema = OPS[name], newest(name)
    covered = {position for rule in op.rules for position in rule.positions}
    wanted = {
        i
        for i, parameter in enumerate(schema.inputs)
        if parameter.differentiation_category.name == "Differentiable"
        and any(d.kind == "f" for d in op.schema.allowed(op.schema.inputs[i].type))
    }
    lacking = [op.schema.inputs[i].name for i in sorted(wanted - covered)]
    assert not lacking, f"{name} has no gradient for {lacking}"


def test_host_inputs_have_places_of_their_own() -> None:
    """So that a set of numbers says which they are."""
    for op in OPS.values():
        assert not any(each.host and each.variadic for each in op.schema.inputs)
        assert op.schema.host_inputs == {i for i, each in enumerate(op.schema.inputs) if each.host}
    assert OPS["Reshape"].schema.host_inputs == {1} and not OPS["Add"].schema.host_inputs


def test_element_type_numbers_are_onnx() -> None:
    for number, dtype in FROM_ONNX.items():
        assert helper.tensor_dtype_to_np_dtype(number) == dtype
        assert onnx_type(dtype) == number
