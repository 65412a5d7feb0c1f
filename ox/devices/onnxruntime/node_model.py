"""The file of one node: what an operator call looks like to ONNX Runtime. Imports onnx lazily."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ox.devices.operator import Operator
from ox.dtypes import DType, onnx_type

NEWEST = 26  # the newest opset that ONNX Runtime 1.31 runs; newer signatures are written at an older one that fits
OLDEST = 13  # before it, axes were attributes and Softmax meant something else
USUAL = 21
IR_VERSION = 10
VENDOR = "com.microsoft"  # ONNX Runtime's own domain: never written to a user's file

Key = tuple[tuple[str, Any], ...]


class FrozenArray:
    """An array as part of a cache key: equal when type, shape and bytes are."""

    __slots__ = ("array", "key")

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array.copy()
        self.key = (array.dtype.str, array.shape, array.tobytes())

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FrozenArray) and self.key == other.key


def freeze(attributes: dict[str, Any]) -> Key:
    """Attributes as a hashable key; `thaw` gives them back."""
    if not attributes:
        return ()
    items = []
    for name, value in attributes.items():
        kind = type(value)
        if kind is list:
            value = tuple(value)
        elif kind is np.ndarray:
            value = FrozenArray(value)
        items.append((name, value))
    return tuple(items)


def thaw(key: Key) -> dict[str, Any]:
    """The attributes of a key, those that are None (absent) left out."""
    return {k: v.array if type(v) is FrozenArray else v for k, v in key if v is not None}


def output_count(op: Operator, attributes: dict[str, Any], arrays: list[Any]) -> int:
    """The number of outputs of a call: from the kernel's argument, else from its attributes or `split`, else all."""
    if "outputs" in attributes and not op.schema.variadic_output:
        return int(attributes["outputs"])
    if op.schema.variadic_output:
        if attributes.get("num_outputs"):
            return int(attributes["num_outputs"])
        if len(arrays) > 1 and arrays[1] is not None:
            return len(arrays[1])
        return int(attributes.get("outputs", 1))
    return len(op.schema.outputs)


def opsets(name: str, attributes: dict[str, Any], defaults: dict[str, Any], inputs: int, outputs: int) -> Iterator[int]:
    """The opsets at which a call can be written, the usual one first, then from new to old; one for each version."""
    from onnx import defs

    seen = set()
    for opset in (USUAL, *range(min(NEWEST, defs.onnx_opset_version()), OLDEST - 1, -1)):
        try:
            schema = defs.get_schema(name, max_inclusive_version=opset, domain="")
        except defs.SchemaError:
            continue
        if schema.since_version in seen:
            continue
        seen.add(schema.since_version)
        lost = [k for k, v in attributes.items() if k not in schema.attributes and v != defaults.get(k)]
        missing = [k for k, a in schema.attributes.items() if a.required and k not in attributes]
        if not lost and not missing and inputs <= schema.max_input and outputs <= schema.max_output:
            yield opset


def write(
    name: str, types: tuple[DType | None, ...], attributes: dict[str, Any], outputs: int, opset: int, domain: str = ""
) -> bytes:
    """The model file: inputs ``x0 x1 ...`` without rank, outputs ``y0 y1 ...`` whose types ONNX Runtime infers."""
    from onnx import ValueInfoProto, defs, helper, numpy_helper

    known = defs.get_schema(name, max_inclusive_version=opset, domain="").attributes if not domain else {}
    written = []
    for key, value in attributes.items():
        if not domain and key not in known:
            continue  # at its default, or `opsets` would not have offered this one
        if isinstance(value, np.ndarray):
            value = numpy_helper.from_array(value)
        kind = int(known[key].type.value) if key in known else None  # type: ignore[attr-defined]
        written.append(helper.make_attribute(key, value, attr_type=kind))
    names = ["" if dtype is None else f"x{i}" for i, dtype in enumerate(types)]
    node = helper.make_node(name, names, [f"y{i}" for i in range(outputs)], domain=domain)
    node.attribute.extend(written)
    graph = helper.make_graph(
        [node],
        name,
        [helper.make_tensor_value_info(f"x{i}", onnx_type(t), None) for i, t in enumerate(types) if t is not None],
        [ValueInfoProto(name=f"y{i}") for i in range(outputs)],
    )
    imports = [helper.make_opsetid("", opset)] + ([helper.make_opsetid(domain, 1)] if domain else [])
    return bytes(helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION).SerializeToString())
