"""Converts nodes of old opsets to the newest opset.

Where an operator changed between opset 7 and the newest in more than its element types, an adapter here turns its old
node into new ones of the same meaning: attributes that became inputs, defaults that moved, names that were replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox.dtypes import FROM_ONNX
from ox.errors import LoadError

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "SumSquare")
Adapter = Callable[["NodeAdapter"], list[onnx.NodeProto]]


@dataclass
class NodeAdapter:
    """One node of an old opset, and the new nodes that replace it."""

    node: onnx.NodeProto
    version: int
    type_of: Callable[[str], onnx.TypeProto | None]  # the inferred type of a value
    constant_of: Callable[[str], Any]  # the array of a constant, else None

    def __post_init__(self) -> None:
        self.new_nodes: list[onnx.NodeProto] = []
        self.attributes = {a.name: a for a in self.node.attribute}
        self.inputs, self.outputs = list(self.node.input), list(self.node.output)

    def pop_attribute(self, name: str, default: Any = None) -> Any:
        """An attribute's value; the new node does not have it."""
        a = self.attributes.pop(name, None)
        value = default if a is None else helper.get_attribute_value(a)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def set_attribute(self, name: str, value: Any) -> None:
        self.attributes[name] = helper.make_attribute(name, value)

    def add(self, op: str, inputs: list[str], **attributes: Any) -> str:
        """One more node before the new one; the name of its output."""
        name = f"{self.node.output[0]}/lifted_{len(self.new_nodes)}"
        self.new_nodes.append(
            helper.make_node(
                op, inputs, [name], f"{self.node.name}/{op}", self.node.doc_string, None, None, **attributes
            )
        )
        return name

    def constant(self, values: Any, dtype: Any = np.int64) -> str:
        try:
            array = np.asarray(values, dtype)
        except OverflowError:
            raise LoadError(
                f"{self.node.op_type} '{self.node.name}' has a number that its element type cannot hold",
                expected=f"a number of {np.dtype(dtype)}",
                got=str(values),
            ) from None
        return self.add("Constant", [], value=numpy_helper.from_array(array))

    def input(self, position: int, name: str) -> None:
        """Set an input; those before it that are not there are left out."""
        self.inputs += [""] * (position + 1 - len(self.inputs))
        self.inputs[position] = name

    def attribute_to_input(self, name: str, position: int) -> None:
        """An attribute of integers that became an input."""
        values = self.pop_attribute(name)
        if values is not None:
            self.input(position, self.constant(list(values)))

    def constant_like_input(self, value: float) -> str:
        """A number in the element type of the first input."""
        known = self.type_of(self.inputs[0])
        dtype = None if known is None else FROM_ONNX.get(known.tensor_type.elem_type)
        if dtype is not None:
            return self.constant(value, dtype)
        return self.add("CastLike", [self.constant(value, np.float32), self.inputs[0]])

    def rank(self) -> int | None:
        known = self.type_of(self.inputs[0])
        if known is None or not known.tensor_type.HasField("shape"):
            return None
        return len(known.tensor_type.shape.dim)

    def is_empty(self, name: str) -> bool:
        """Whether a value has no elements at all."""
        array, known = self.constant_of(name), self.type_of(name)
        if array is not None or known is None:
            return array is not None and array.size == 0
        return any(dim.HasField("dim_value") and dim.dim_value == 0 for dim in known.tensor_type.shape.dim)

    def finish(self, op: str | None = None) -> list[onnx.NodeProto]:
        new = onnx.NodeProto(
            op_type=op or self.node.op_type, name=self.node.name, doc_string=self.node.doc_string, input=self.inputs,
            output=self.outputs, attribute=list(self.attributes.values()),
        )  # fmt: skip
        return [*self.new_nodes, new]


def _axes(old: NodeAdapter) -> list[onnx.NodeProto]:
    old.attribute_to_input("axes", 1)
    return old.finish()


def _slice(old: NodeAdapter) -> list[onnx.NodeProto]:
    for position, name in enumerate(("starts", "ends", "axes"), start=1):
        old.attribute_to_input(name, position)
    return old.finish()


def _pad(old: NodeAdapter) -> list[onnx.NodeProto]:
    old.attribute_to_input("pads", 1)
    value = old.pop_attribute("value", 0.0)
    if value:
        old.input(2, old.constant_like_input(value))
    return old.finish()


def _clip(old: NodeAdapter) -> list[onnx.NodeProto]:
    # an infinity becomes the largest float32 where no limit is set, so in ONNX Runtime; 16-bit types end before that
    known = old.type_of(old.inputs[0])
    wide = known is None or known.tensor_type.elem_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)
    largest = float(np.finfo(np.float32).max)
    for position, (name, limit) in enumerate((("min", -largest), ("max", largest)), start=1):
        bound = old.pop_attribute(name, limit if wide else None)
        if bound is not None:
            old.input(position, old.constant_like_input(bound))
    return old.finish()


def _dropout(old: NodeAdapter) -> list[onnx.NodeProto]:
    ratio = old.pop_attribute("ratio", 0.5)
    old.input(1, old.constant(ratio, np.float32))
    if old.version >= 10 or len(old.outputs) < 2 or not old.outputs[1]:
        return old.finish()
    # before opset 10 the mask had the type of the data
    mask, old.outputs[1] = old.outputs[1], f"{old.outputs[0]}/mask"
    return [*old.finish(), helper.make_node("CastLike", [old.outputs[1], old.inputs[0]], [mask])]


def _top_k(old: NodeAdapter) -> list[onnx.NodeProto]:
    old.input(1, old.constant([old.pop_attribute("k", 1)]))
    return old.finish()


def _split(old: NodeAdapter) -> list[onnx.NodeProto]:
    old.attribute_to_input("split", 1)
    if len(old.inputs) < 2 or not old.inputs[1]:
        old.set_attribute("num_outputs", len(old.outputs))
    return old.finish()


def _softmax(old: NodeAdapter) -> list[onnx.NodeProto]:
    """Before opset 13 everything from the axis on was normalized together."""
    axis, rank = int(old.pop_attribute("axis", 1)), old.rank()
    if axis == -1 or (rank is not None and axis == rank - 1):
        old.set_attribute("axis", -1)
        return old.finish()
    source, result = old.inputs[0], old.outputs[0]
    shape, old.inputs[0] = old.add("Shape", [source]), old.add("Flatten", [source], axis=axis)
    old.outputs[0] = f"{result}/flat"
    old.set_attribute("axis", -1)
    return [*old.finish(), helper.make_node("Reshape", [old.outputs[0], shape], [result], old.node.name, allowzero=1)]


def _batch_normalization(old: NodeAdapter) -> list[onnx.NodeProto]:
    if not old.pop_attribute("spatial", 1):
        raise _refused(old, "BatchNormalization with statistics for every position (spatial=0)")
    given = [name for name in old.outputs if name]
    if len(given) > 1:
        old.set_attribute("training_mode", 1)
    del old.outputs[3:]  # saved_mean and saved_var, which were for a gradient
    return old.finish()


def _upsample(old: NodeAdapter) -> list[onnx.NodeProto]:
    scales = old.pop_attribute("scales")
    scales = old.inputs[1] if scales is None else old.constant(scales, np.float32)
    return _resized(old, scales)


def _resize_10(old: NodeAdapter) -> list[onnx.NodeProto]:
    """The nearest value was the one before where an axis grew, the one behind where it shrank, as in ONNX Runtime."""
    scales = old.inputs[1]
    factors = old.constant_of(scales)
    blends = "mode" in old.attributes and old.attributes["mode"].s != b"nearest"
    if blends or (factors is not None and (factors >= 1).all()):
        return _resized(old, scales)
    if factors is not None and (factors <= 1).all():
        return _resized(old, scales, "ceil")
    one = old.constant(1, np.float32)
    grown = old.add(
        "Resize", [old.inputs[0], "", old.add("Max", [scales, one])],
        coordinate_transformation_mode="asymmetric", nearest_mode="floor",
    )  # fmt: skip
    old.inputs[0] = grown
    return _resized(old, old.add("Min", [scales, one]), "ceil")


def _resize_12(old: NodeAdapter) -> list[onnx.NodeProto]:
    mode = "tf_half_pixel_for_nn"
    given = old.attributes.get("coordinate_transformation_mode")
    if given is not None and given.s == mode.encode():
        raise _refused(old, f"Resize with coordinate_transformation_mode {mode}, which opset 13 took away")
    return _without_empty(old)


def _without_empty(old: NodeAdapter) -> list[onnx.NodeProto]:
    """Resize without the inputs that are tensors of no elements: until opset 13 that meant that there are none, and
    exporters still write them."""
    present = [old.inputs[0], *("" if name and old.is_empty(name) else name for name in old.inputs[1:])]
    if present == old.inputs:
        return [old.node]
    old.inputs = present
    return old.finish()


def _stft(old: NodeAdapter) -> list[onnx.NodeProto]:
    """Signals of two dimensions, as runtimes take them: the standard wants real or complex numbers in a third."""
    if old.rank() != 2:
        return [old.node]
    old.inputs[0] = old.add("Unsqueeze", [old.inputs[0], old.constant([-1])])
    return old.finish()


def _resized(old: NodeAdapter, scales: str, nearest: str = "floor") -> list[onnx.NodeProto]:
    old.inputs = [old.inputs[0], "", scales]
    old.set_attribute("coordinate_transformation_mode", "asymmetric")
    old.set_attribute("nearest_mode", nearest)
    old.set_attribute("mode", {"bilinear": "linear"}.get(mode := old.pop_attribute("mode", "nearest"), mode))
    return old.finish("Resize")


def _roi_align(old: NodeAdapter) -> list[onnx.NodeProto]:
    old.set_attribute("coordinate_transformation_mode", "output_half_pixel")
    return old.finish()


def _grid_sample(old: NodeAdapter) -> list[onnx.NodeProto]:
    mode = old.pop_attribute("mode", "bilinear")
    old.set_attribute("mode", {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode))
    return old.finish()


def _group_normalization(old: NodeAdapter) -> list[onnx.NodeProto]:
    """Before opset 21 scale and bias had one number a group, now one a channel."""
    groups = helper.get_attribute_value(old.attributes["num_groups"]) if "num_groups" in old.attributes else 1
    channels = old.add("Shape", [old.inputs[0]], start=1, end=2)
    each = old.add("Div", [channels, old.constant([groups])])
    sizes = old.add("Concat", [old.constant([groups]), each], axis=0)
    for i in (1, 2):
        column = old.add("Unsqueeze", [old.inputs[i], old.constant([1])])
        old.inputs[i] = old.add("Reshape", [old.add("Expand", [column, sizes]), old.constant([-1])])
    return old.finish()


def _dft(old: NodeAdapter) -> list[onnx.NodeProto]:
    old.input(2, old.constant(old.pop_attribute("axis", 1)))
    return old.finish()


def _scatter(old: NodeAdapter) -> list[onnx.NodeProto]:
    return old.finish("ScatterElements")


def _scan_8(old: NodeAdapter) -> list[onnx.NodeProto]:
    """Before opset 9 the first axis of everything was a batch: a Scan over it, of the Scan over the sequences."""
    if "scan_input_axes" in old.attributes:
        return old.finish()  # the inner one that is made below
    if old.inputs[0]:
        raise _refused(old, "Scan of opset 8 with sequence lengths")
    count, directions = helper.get_attribute_value(old.attributes["num_scan_inputs"]), old.pop_attribute("directions")
    inputs = [f"{old.outputs[0]}/in_{i}" for i in range(len(old.inputs) - 1)]
    outputs = [f"{old.outputs[0]}/out_{i}" for i in range(len(old.outputs))]
    inner = helper.make_node("Scan", inputs, outputs, scan_input_axes=[0] * count)
    inner.attribute.extend(old.attributes.values())
    if directions is not None:
        inner.attribute.append(helper.make_attribute("scan_input_directions", list(directions)))
    takes, gives = ([onnx.ValueInfoProto(name=name) for name in names] for names in (inputs, outputs))
    old.attributes.clear()
    old.set_attribute("body", helper.make_graph([inner], "batch", takes, gives))
    old.set_attribute("num_scan_inputs", len(inputs))
    old.inputs = old.inputs[1:]
    return old.finish()


def _refused(old: NodeAdapter, what: str) -> LoadError:
    return LoadError(
        f"ox does not read {what}",
        where=old.node.doc_string or old.node.name or None,
        hint="export it again with a newer opset",
    )


# by operator: the first opset that needs no adapter, with the adapter for those before; the oldest first
ADAPTERS: dict[str, list[tuple[int, Adapter]]] = {
    **{f"Reduce{name}": [(18, _axes)] for name in REDUCTIONS},
    "ReduceSum": [(13, _axes)],
    "Squeeze": [(13, _axes)],
    "Unsqueeze": [(13, _axes)],
    "BatchNormalization": [(14, _batch_normalization)],
    "Clip": [(11, _clip)],
    "DFT": [(20, _dft)],
    "Dropout": [(12, _dropout)],
    "GridSample": [(20, _grid_sample)],
    "GroupNormalization": [(21, _group_normalization)],
    "Hardmax": [(13, _softmax)],
    "LogSoftmax": [(13, _softmax)],
    "Pad": [(11, _pad)],
    "Resize": [(11, _resize_10), (13, _resize_12), (1000, _without_empty)],
    "RoiAlign": [(16, _roi_align)],
    "STFT": [(1000, _stft)],
    "Scan": [(9, _scan_8)],
    "Scatter": [(1000, _scatter)],
    "Slice": [(10, _slice)],
    "Softmax": [(13, _softmax)],
    "Split": [(18, _split)],
    "TopK": [(10, _top_k)],
    "Upsample": [(1000, _upsample)],
}


def needs(node: onnx.NodeProto, version: int) -> Adapter | None:
    """The adapter for a node of `ai.onnx` of this opset; None where it reads as it is."""
    return next((adapter for first, adapter in ADAPTERS.get(node.op_type, ()) if version < first), None)


def upgrade(
    node: onnx.NodeProto,
    version: int,
    type_of: Callable[[str], onnx.TypeProto | None],
    constant_of: Callable[[str], Any],
) -> list[onnx.NodeProto]:
    """The node as the newest opset writes it, with what it needs before and behind it.

    Raises:
        LoadError: a form of the operator that no newer one expresses, or a node without what its opset wants.
    """
    adapter = needs(node, version)
    if adapter is None:
        return [node]
    try:
        return adapter(NodeAdapter(node, version, type_of, constant_of))
    except (IndexError, TypeError, ValueError) as error:
        if isinstance(error, LoadError):
            raise
        raise LoadError(
            f"{node.op_type} is not what opset {version} wants it to be",
            where=node.doc_string or node.name or None,
            got=str(error),
        ) from error
