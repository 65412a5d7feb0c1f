"""The same graph in the words of an older opset: attributes that were not there yet, inputs that were attributes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ox.dtypes import int64, onnx_type
from ox.graph.ir import Array, Graph, Node, Value
from ox.graph.writer.opset import LOWEST, obstacle


def in_older_words(graph: Graph, opset: int | None, around: Mapping[Value, Array] = MappingProxyType({})) -> Graph:
    """The graph with each node that `opset` cannot express, and of which an older form is known, in that form. Others
    stay as they are; `ox.graph.writer.opset.select_opset` says what still stands in the way.

    Operators that an opset lacks altogether become functions (`ox.graph.writer.functions`).

    Args:
        around: the captures of a subgraph that are constants outside, with their numbers.
    """
    if opset is None or opset >= LOWEST:
        return graph
    writer = _Writer(graph, opset, around)
    for node in graph.nodes:
        writer.add(node)
    read = {*graph.outputs, *graph.owned, *(v for node in writer.nodes for v in node.inputs)}
    constants = {v: array for v, array in {**graph.constants, **writer.constants}.items() if v in read}
    return replace(graph, nodes=writer.nodes, constants=constants)


class _Writer:
    """Collects the nodes of the new graph."""

    def __init__(self, graph: Graph, opset: int, around: Mapping[Value, Array]) -> None:
        self.graph, self.opset, self.around = graph, opset, around
        self.nodes: list[Node] = []
        self.constants: dict[Value, Array] = {}

    def add(self, node: Node) -> None:
        if node.captured or any(node.subgraphs()):
            node = self._with_subgraphs(node)
        form = FORMS.get(node.op_type) if node.domain == "" else None
        if form is None or obstacle(node, self.opset) is None or not form(self, node):
            self.nodes.append(node)

    def _with_subgraphs(self, node: Node) -> Node:
        """The node with its subgraphs in older words; they capture only what they still read."""
        inside: dict[str, Graph] = {}
        for name, graph in node.subgraphs():
            outside = node.inputs[len(node.inputs) - len(graph.captures) :]
            for capture, value in zip(graph.captures, outside, strict=True):
                if value is not None and capture.shape is None and capture.dims is None:
                    capture.shape, capture.dims = value.shape, value.dims
            known = self.graph.captured_constants(node, graph, self.around)
            inside[name] = in_older_words(graph, self.opset, known)
        own = len(node.inputs) - node.captured
        read = [graph.reads() for graph in inside.values()]
        kept = [
            i for i in range(node.captured)
            if any(counts[graph.captures[i]] for graph, counts in zip(inside.values(), read, strict=True))
        ]  # fmt: skip
        attributes = {
            name: replace(graph, captures=[graph.captures[i] for i in kept]) for name, graph in inside.items()
        }
        inputs = [*node.inputs[:own], *(node.inputs[own + i] for i in kept)]
        return replace(node, inputs=inputs, attributes={**node.attributes, **attributes})

    def array(self, value: Value | None) -> Array | None:
        """The numbers of a constant input."""
        return None if value is None else self.graph.constants.get(value, self.around.get(value))

    def known(self, value: Value | None) -> list[int] | None:
        """The integers of a constant input."""
        array = self.array(value)
        return None if array is None else [int(n) for n in array.ravel()]

    def constant(self, node: Node, name: str, array: Any) -> Value:
        made = np.asarray(array)
        value = Value(f"{_stem(node)}/{name}", made.dtype, made.shape, made.shape)
        self.constants[value] = made
        return value

    def call(self, of: Node, kind: str, inputs: Sequence[Value | None], made: Value | str, **attributes: Any) -> Value:
        """One more node; `made` is its output, or the name of one of int64 [n]."""
        if isinstance(made, str):
            made = Value(f"{_stem(of)}/{made}", int64)
        self.add(Node(kind, "", list(inputs), [made], attributes, where=of.where, module=of.module))
        return made

    def sizes(self, of: Node, source: Value, axes: Sequence[int], name: str) -> Value:
        """Some sizes of a value, int64 [n]."""
        shape = self.call(of, "Shape", [source], f"{name}_shape")
        return self.call(of, "Gather", [shape, self.constant(of, f"{name}_axes", np.array(axes, np.int64))], name)


def _stem(node: Node) -> str:
    """What the names of its new values begin with; an output that nothing reads has no name."""
    return next(value.name for value in node.outputs if value.name)


def _axes_as_attribute(writer: _Writer, node: Node) -> bool:
    """ReduceMean and its relatives took their axes as an attribute until opset 18."""
    axes = node.inputs[1] if len(node.inputs) > 1 else None
    numbers = writer.known(axes)
    if axes is not None and numbers is None:
        return False
    attributes = {k: v for k, v in node.attributes.items() if k != "noop_with_empty_axes"}
    if not numbers and node.attributes.get("noop_with_empty_axes"):
        return _of_each_element(writer, node)
    if numbers:
        attributes["axes"] = numbers
    writer.nodes.append(replace(node, inputs=node.inputs[:1], attributes=attributes))
    return True


def _of_each_element(writer: _Writer, node: Node) -> bool:
    """What a reduction over no axes does: that to one element which it does to several."""
    source, made = node.inputs[0], node.outputs[0]
    each = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceSumSquare": "Mul"}.get(node.op_type)
    if each == "Log" and source is not None and source.dtype is not None and source.dtype.kind in "iu":
        return False
    writer.call(node, each or "Identity", [source] * (2 if each == "Mul" else 1), made)
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
    if count == 1:
        writer.call(node, "Identity", [source], node.outputs[0])
        return True
    axis = node.attributes.get("axis", 0)
    rank = len(source.shape or source.dims or ())
    dim = source.dims[axis] if source.dims is not None else None
    if isinstance(dim, int) and dim % count == 0:
        writer.nodes.append(replace(node, inputs=[source], attributes=attributes))
        return True
    whole = writer.sizes(node, source, [axis % rank if rank else axis], "whole")
    more, parts, fewer = (
        writer.constant(node, name, np.array([n], np.int64))
        for name, n in (("more", count - 1), ("parts", count), ("fewer", 1 - count))
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
    inputs = [*node.inputs, None, None, None][:4]
    if inputs[1] is not None or not rank:
        return False
    places = [axis % rank for axis in axes]
    attributes = {k: v for k, v in node.attributes.items() if k not in plain}
    if inputs[2] is not None:
        factors = writer.array(inputs[2])
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
    if pads is None or places is None or not rank:
        return False
    if numbers is not None:
        full = np.zeros((2, rank), np.int64)
        full[:, [axis % rank for axis in places]] = np.array(numbers).reshape(2, -1)
        every = writer.constant(node, "pads", full.ravel())
    else:  # the sizes of those axes, and none of the others: taken from behind a 0
        taken = np.zeros((2, rank), np.int64)
        taken[:, [axis % rank for axis in places]] = 1 + np.arange(2 * len(places)).reshape(2, -1)
        known = writer.call(
            node, "Concat", [writer.constant(node, "none", np.zeros(1, np.int64)), pads], "known", axis=0
        )
        every = writer.call(node, "Gather", [known, writer.constant(node, "places", taken.ravel())], "pads")
    inputs = [source, every, *([value] if value is not None else [])]
    writer.nodes.append(replace(node, inputs=inputs))
    return True


def _triangle(writer: _Writer, node: Node) -> bool:
    """Trilu came with opset 14: the diagonal of each place tells which side of it the place is on."""
    source, diagonal = [*node.inputs, None][:2]
    rank = len((source.shape or source.dims or ()) if source is not None else ())
    if source is None or source.dtype is None or rank < 2:
        return False
    zero, one = (writer.constant(node, name, np.array(n, np.int64)) for name, n in (("zero", 0), ("one", 1)))
    along = []
    for axis, other, name in ((rank - 2, 1, "row"), (rank - 1, 0, "column")):
        size = writer.call(node, "Squeeze", [writer.sizes(node, source, [axis], f"{name}s")], f"{name}_count")
        numbers = writer.call(node, "Range", [zero, size, one], f"{name}_numbers")
        outside = writer.constant(node, f"{name}_axis", np.array([other], np.int64))
        along.append(writer.call(node, "Unsqueeze", [numbers, outside], name))
    places: Value = writer.call(node, "Sub", [along[1], along[0]], "diagonals")
    if diagonal is not None:
        places = writer.call(node, "Sub", [places, diagonal], "beyond")
    upper = node.attributes.get("upper", 1)
    beyond = writer.constant(node, "limit", np.array(-1 if upper else 1, np.int64))
    kept = Value(f"{node.outputs[0].name}/kept", np.dtype(np.bool_))
    writer.call(node, "Greater" if upper else "Less", [places, beyond], kept)
    if source.dtype == np.bool_:  # for which ONNX Runtime has no Where
        writer.call(node, "And", [source, kept], node.outputs[0])
    else:
        nothing = writer.constant(node, "nothing", np.zeros((), source.dtype))
        writer.call(node, "Where", [kept, source, nothing], node.outputs[0])
    return True


def _affine_grid(writer: _Writer, node: Node) -> bool:
    """AffineGrid came with opset 20: the places of a grid of its own, times the matrices."""
    theta, size = node.inputs
    rank = len((theta.shape or theta.dims or ()) if theta is not None else ()) and _matrix_rank(theta)
    if theta is None or theta.dtype is None or not rank or size is None:
        return False
    kind, corners = theta.dtype, bool(node.attributes.get("align_corners"))

    def number(name: str, value: float) -> Value:
        return writer.constant(node, name, np.array(value, kind))

    def made(name: str) -> Value:
        return Value(f"{node.outputs[0].name}/{name}", kind)

    def axes(name: str, values: Sequence[int]) -> Value:
        return writer.constant(node, name, np.array(values, np.int64))

    shape = writer.call(node, "Slice", [size, axes("from", [2]), axes("to", [2 + rank])], "sizes")
    one, two = number("one", 1), number("two", 2)
    lines = []
    for axis in range(rank):
        own = writer.call(node, "Gather", [shape, axes(f"at_{axis}", [axis])], f"size_{axis}")
        count = writer.call(
            node, "Cast", [writer.call(node, "Squeeze", [own], f"count_{axis}")], made(f"n_{axis}"), to=onnx_type(kind)
        )
        numbers = writer.call(node, "Range", [number(f"start_{axis}", 0), count, one], made(f"numbers_{axis}"))
        if corners:  # from -1 to 1; one place alone is in the middle
            steps = writer.call(node, "Sub", [count, one], made(f"steps_{axis}"))
            step = writer.call(
                node, "Div", [two, writer.call(node, "Max", [steps, one], made(f"most_{axis}"))], made(f"step_{axis}")
            )
            first = writer.call(
                node, "Neg", [writer.call(node, "Min", [steps, one], made(f"least_{axis}"))], made(f"first_{axis}")
            )
        else:
            step = writer.call(node, "Div", [two, count], made(f"step_{axis}"))
            first = writer.call(
                node, "Sub", [writer.call(node, "Div", [one, count], made(f"half_{axis}")), one], made(f"first_{axis}")
            )
        line = writer.call(
            node, "Add", [writer.call(node, "Mul", [numbers, step], made(f"moved_{axis}")), first], made(f"line_{axis}")
        )
        others = [k for k in range(rank + 1) if k != axis]
        lines.append(writer.call(node, "Unsqueeze", [line, axes(f"others_{axis}", others)], made(f"wide_{axis}")))
    last = writer.call(node, "Concat", [shape, axes("last", [1])], "places_shape", axis=0)
    # the last axis comes first
    spread = [writer.call(node, "Expand", [line, last], made(f"grid_{k}")) for k, line in enumerate(reversed(lines))]
    spread.append(writer.call(node, "Expand", [one, last], made("ones")))
    places = writer.call(node, "Concat", spread, made("places"), axis=-1)
    flat = writer.call(node, "Reshape", [places, axes("flat_shape", [-1, rank + 1])], made("flat"))
    turned = writer.call(node, "Transpose", [theta], made("turned"), perm=[0, 2, 1])
    product = writer.call(node, "MatMul", [flat, turned], made("product"))
    whole = writer.call(node, "Concat", [axes("rows", [-1]), shape, axes("rank", [rank])], "shape", axis=0)
    writer.call(node, "Reshape", [product, whole], node.outputs[0])
    return True


def _matrix_rank(theta: Value | None) -> int:
    """2 for images, 3 for volumes."""
    sizes = (theta.dims or theta.shape or ()) if theta is not None else ()
    return int(sizes[1]) if len(sizes) == 3 and isinstance(sizes[1], int) else 0


def _older_modes(writer: _Writer, node: Node) -> bool:
    """GridSample called its modes bilinear and bicubic until opset 20."""
    mode = {"linear": "bilinear", "cubic": "bicubic"}.get(node.attributes.get("mode") or "linear")
    if mode is None:  # nearest was called so already
        return False
    writer.nodes.append(replace(node, attributes={**node.attributes, "mode": mode}))
    return True


def _without_half_pixels(writer: _Writer, node: Node) -> bool:
    """RoiAlign had one coordinate_transformation_mode until opset 16."""
    if node.attributes.get("coordinate_transformation_mode") != "output_half_pixel":
        return False
    writer.nodes.append(replace(node, attributes={**node.attributes, "coordinate_transformation_mode": None}))
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
    "Trilu": _triangle,
    "AffineGrid": _affine_grid,
    "GridSample": _older_modes,
    "RoiAlign": _without_half_pixels,
}
