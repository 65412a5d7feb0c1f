"""The same graph in the words of an older opset: attributes that were not there yet, inputs that were attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ox.dtypes import int64
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.writer.opset import LOWEST, obstacle


def in_older_words(graph: Graph, opset: int | None) -> Graph:
    """The graph with each node that `opset` cannot express, and of which an older form is known, in that form. Others
    stay as they are; `ox.graph.writer.opset.select_opset` says what still stands in the way.

    Operators that an opset lacks altogether become functions (`ox.graph.writer.functions`).
    """
    if opset is None or opset >= LOWEST:
        return graph
    writer = _Writer(graph, opset)
    for node in graph.nodes:
        writer.add(node)
    return replace(graph, nodes=writer.nodes, constants={**graph.constants, **writer.constants})


class _Writer:
    """Collects the nodes of the new graph."""

    def __init__(self, graph: Graph, opset: int) -> None:
        self.graph, self.opset = graph, opset
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}

    def add(self, node: Node) -> None:
        inside = {name: in_older_words(g, self.opset) for name, g in node.subgraphs()}
        if inside:
            node = replace(node, attributes={**node.attributes, **inside})
        form = FORMS.get(node.op_type) if node.domain == "" else None
        if form is None or obstacle(node, self.opset) is None or not form(self, node):
            self.nodes.append(node)

    def known(self, value: Value | None) -> list[int] | None:
        """The numbers of a constant input."""
        array = None if value is None else self.graph.constants.get(value)
        return None if array is None else [int(n) for n in array.ravel()]

    def constant(self, node: Node, name: str, array: Any) -> Value:
        made = np.asarray(array)
        value = Value(f"{node.outputs[0].name}/{name}", made.dtype, made.shape, made.shape)
        self.constants[value] = made
        return value

    def call(self, of: Node, kind: str, inputs: Sequence[Value | None], made: Value | str, **attributes: Any) -> Value:
        """One more node; `made` is its output, or the name of one of int64 [n]."""
        if isinstance(made, str):
            made = Value(f"{of.outputs[0].name}/{made}", int64)
        self.add(Node(kind, "", list(inputs), [made], attributes, where=of.where, module=of.module))
        return made

    def sizes(self, of: Node, source: Value, axes: Sequence[int], name: str) -> Value:
        """Some sizes of a value, int64 [n]."""
        shape = self.call(of, "Shape", [source], f"{name}_shape")
        return self.call(of, "Gather", [shape, self.constant(of, f"{name}_axes", np.array(axes, np.int64))], name)


def _axes_as_attribute(writer: _Writer, node: Node) -> bool:
    """ReduceMean and its relatives took their axes as an attribute until opset 18."""
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    numbers = writer.known(axes)
    if axes is not None and numbers is None:
        return False
    attributes = {k: v for k, v in node.attributes.items() if k != "noop_with_empty_axes"}
    if not numbers and node.attributes.get("noop_with_empty_axes"):
        return False
    if numbers:
        attributes["axes"] = numbers
    writer.nodes.append(replace(node, inputs=node.inputs[:1], attributes=attributes))
    return True


def _part_of_shape(writer: _Writer, node: Node) -> bool:
    """Shape gave all sizes until opset 15."""
    (source,) = node.inputs
    assert source is not None
    start, end = node.attributes.get("start") or 0, node.attributes.get("end")
    shape = writer.call(node, "Shape", [source], "shape")
    ends = [np.array([start], np.int64), np.array([math.inf if end is None else end]).clip(-(2**62), 2**62)]
    first, last = (
        writer.constant(node, name, a.astype(np.int64)) for name, a in zip(("from", "to"), ends, strict=True)
    )
    writer.call(node, "Slice", [shape, first, last], node.outputs[0])
    return True


def _sizes_of_parts(writer: _Writer, node: Node) -> bool:
    """Split into a number of parts: until opset 18 their sizes were named, or the parts were equal."""
    source, count = node.inputs[0], len(node.outputs)
    attributes = {k: v for k, v in node.attributes.items() if k != "num_outputs"}
    assert source is not None
    axis = node.attributes.get("axis", 0)
    rank = len(source.shape or source.dims or ())
    dim = source.dims[axis] if source.dims is not None else None
    if isinstance(dim, int) and dim % count == 0:
        writer.nodes.append(replace(node, inputs=[source], attributes=attributes))
        return True
    if not rank:
        return False
    whole = writer.sizes(node, source, [axis % rank], "whole")
    more, parts, fewer = (
        writer.constant(node, f"n{n}", np.array([n], np.int64)) for n in (count - 1, count, 1 - count)
    )
    each = writer.call(node, "Div", [writer.call(node, "Add", [whole, more], "raised"), parts], "each")
    last = writer.call(node, "Add", [whole, writer.call(node, "Mul", [each, fewer], "others")], "last")
    split = writer.call(node, "Concat", [*[each] * (count - 1), last], "split", axis=0)
    writer.nodes.append(replace(node, inputs=[source, split], attributes=attributes))
    return True


def _every_axis(writer: _Writer, node: Node) -> bool:
    """Resize took scales or sizes of every dimension until opset 18."""
    source, axes = node.inputs[0], node.attributes.get("axes")
    plain = {"axes", "antialias", "keep_aspect_ratio_policy"}
    changed = (
        node.attributes.get("antialias"),
        node.attributes.get("keep_aspect_ratio_policy") not in (None, "stretch"),
    )
    if source is None or not axes or any(changed):
        return False
    rank = len(source.shape or source.dims or ())
    places = [axis % rank for axis in axes]
    inputs = [*node.inputs, None, None, None][:4]
    if inputs[1] is not None:
        return False
    attributes = {k: v for k, v in node.attributes.items() if k not in plain}
    if inputs[2] is not None:
        factors = writer.graph.constants.get(inputs[2])
        if factors is None:
            return False
        scales = np.ones(rank, factors.dtype)
        scales[places] = factors
        inputs[2] = writer.constant(node, "scales", scales)
    else:
        parts: list[Value] = []
        for axis in range(rank):
            name = f"size_{axis}"
            if axis in places:
                at = writer.constant(node, f"{name}_place", np.array([places.index(axis)], np.int64))
                parts.append(writer.call(node, "Gather", [inputs[3], at], name))
            else:
                parts.append(writer.sizes(node, source, [axis], name))
        inputs[3] = writer.call(node, "Concat", parts, "sizes", axis=0)
    while inputs[-1] is None:
        inputs.pop()
    writer.nodes.append(replace(node, inputs=inputs, attributes=attributes))
    return True


def _pads_of_every_axis(writer: _Writer, node: Node) -> bool:
    """Pad took pads of every dimension until opset 18."""
    source, pads, value, axes = [*node.inputs, None, None, None][:4]
    numbers, places = writer.known(pads), writer.known(axes)
    rank = len((source.shape or source.dims or ()) if source is not None else ())
    if numbers is None or places is None or not rank:
        return False
    full = np.zeros((2, rank), np.int64)
    full[:, [axis % rank for axis in places]] = np.array(numbers).reshape(2, -1)
    inputs = [source, writer.constant(node, "pads", full.ravel()), *([value] if value is not None else [])]
    writer.nodes.append(replace(node, inputs=inputs))
    return True


def _without_zeros(writer: _Writer, node: Node) -> bool:
    """Reshape took a 0 for the size of its input until opset 14; a computed size is 0 only where there is nothing."""
    numbers = writer.known(node.inputs[1])
    if numbers is not None and 0 in numbers:
        return False
    attributes = {k: v for k, v in node.attributes.items() if k != "allowzero"}
    writer.nodes.append(replace(node, attributes=attributes))
    return True


FORMS: dict[str, Callable[[_Writer, Node], bool]] = {
    **{
        f"Reduce{kind}": _axes_as_attribute
        for kind in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod")
    },
    "ReduceSumSquare": _axes_as_attribute,
    "Reshape": _without_zeros,
    "Shape": _part_of_shape,
    "Split": _sizes_of_parts,
    "Resize": _every_axis,
    "Pad": _pads_of_every_axis,
}
