"""Types and sizes of the values in subgraphs, which files need not state: older opsets write some operators by rank."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import onnx
from onnx import helper, shape_inference

from ox.dtypes import FROM_ONNX, bool_, int64, onnx_type
from ox.errors import ExportError
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.writer.write import to_model

LARGEST_READ = 64  # numbers of a constant from which inference may compute sizes


def note_types(graph: Graph, around: Mapping[Value, Array] = MappingProxyType({})) -> None:
    """Note type, rank and the sizes in the recorded run of the values in subgraphs, where inference knows them.

    Args:
        around: the captures of a subgraph that are constants outside, with their numbers.
    """
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            numbers = graph.captured_constants(node, inside, around)
            for v, like in _given(node, inside):
                v.dtype = v.dtype or like.dtype
                v.shape = like.shape if v.shape is None else v.shape
                v.dims = like.dims if v.dims is None else v.dims
            if any(v.dtype is None or v.shape is None for made in inside.nodes for v in made.outputs if v.name):
                _infer(inside, numbers)
            note_types(inside, numbers)


def _given(node: Node, inside: Graph) -> Iterator[tuple[Value, Value]]:
    """What a subgraph takes, each with a value of the same type and sizes."""
    pairs = [*zip(inside.captures, node.inputs[len(node.inputs) - len(inside.captures) :], strict=True)]
    if node.key == "Loop":
        yield inside.inputs[0], Value("", int64, (), ())
        yield inside.inputs[1], Value("", bool_, (), ())
        pairs += zip(inside.inputs[2:], node.inputs[2 : len(inside.inputs)], strict=True)
    elif node.key == "Scan":
        count = node.attributes["num_scan_inputs"]
        states = len(inside.inputs) - count
        pairs += zip(inside.inputs[:states], node.inputs[:states], strict=True)
        axes = node.attributes.get("scan_input_axes") or [0] * count
        sequences = zip(inside.inputs[states:], node.inputs[states : states + count], axes, strict=True)
        for v, source, axis in sequences:
            if source is not None:
                yield v, Value("", source.dtype, _without(source.dims, axis), _without(source.shape, axis))
    yield from ((v, source) for v, source in pairs if source is not None)


def _without(sizes: tuple[Any, ...] | None, axis: int) -> tuple[Any, ...] | None:
    if not sizes:
        return None
    axis %= len(sizes)
    return (*sizes[:axis], *sizes[axis + 1 :])


def _infer(graph: Graph, numbers: Mapping[Value, Array]) -> None:
    known = {v: array for v, array in numbers.items() if array.size <= LARGEST_READ}
    ends = [v for v in [*graph.captures, *graph.inputs] if v not in known]
    if any(v.dtype is None for v in ends):
        return
    names = [(v, v.name) for v in graph.captures]
    for i, (v, _) in enumerate(names):
        v.name = f"captured_{i}"  # captures of several graphs may have one name until they are written
    try:
        model = to_model(Graph(ends, graph.outputs, graph.nodes, {**graph.constants, **known}))
        for info, v in zip(model.graph.input, ends, strict=True):
            if v.dtype is not None and v.shape is not None:  # the sizes of the run in place of open ones
                info.CopyFrom(helper.make_tensor_value_info(info.name, onnx_type(v.dtype), v.shape))
        inferred = shape_inference.infer_shapes(model, data_prop=True).graph
    except (shape_inference.InferenceError, ExportError):
        return
    finally:
        for v, name in names:
            v.name = name
    found = {i.name: i.type.tensor_type for i in [*inferred.value_info, *inferred.output]}
    for node in graph.nodes:
        for v in node.outputs:
            if v.name in found:
                _note(v, found[v.name])


def _note(value: Value, found: onnx.TypeProto.Tensor) -> None:
    value.dtype = value.dtype or FROM_ONNX.get(found.elem_type)
    if value.shape is not None or not found.HasField("shape"):
        return
    sizes = [d.dim_value if d.HasField("dim_value") else None for d in found.shape.dim]
    if all(size is not None for size in sizes):
        value.shape = tuple(size for size in sizes if size is not None)
    elif value.dims is None:
        value.dims = ("?",) * len(sizes)
