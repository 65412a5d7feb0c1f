"""Which files may keep a single operator busy without end: they are tried in a separate process, which can be killed.

Everything else can be stopped between two operators. What an operator costs follows from shapes, and shapes
from the file, but for operators that take a size from a value. Such a size is trusted where it comes from other shapes
and small constants alone, as in what PyTorch exports.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import onnx
from onnx import numpy_helper

from ox.serve.operator_kinds import KINDS, SIZED_BY
from ox.serve.runtime.constant_folding import inlined
from ox.serve.runtime.shape_data import is_small_shape_data

LARGE = 1 << 22  # elements of a tensor in a small file
MAX_WINDOW = 1 << 14  # elements of the window of a pooling
MAX_VALUES = 64  # of a constant that is looked at
SHAPED = {"RandomNormal", "RandomUniform"}  # by an attribute
UNBOUNDED = {"Loop", "Scan", "SequenceMap"}  # what they run may grow from turn to turn
# Operators through which a size goes without becoming much larger -> the inputs that it comes from. Not what repeats
# values, because the product of a shape grows with each.
THROUGH: dict[str, tuple[int, ...]] = {
    "Add": (0, 1), "Sub": (0, 1), "Mul": (0, 1), "Div": (0, 1), "Mod": (0, 1), "Min": (0, 1), "Max": (0, 1),
    "Where": (1, 2), "Cast": (0,), "Ceil": (0,), "Floor": (0,), "Neg": (0,), "Abs": (0,), "Identity": (0,),
    "Gather": (0,), "Slice": (0,), "Squeeze": (0,), "Unsqueeze": (0,), "Reshape": (0,), "Flatten": (0,),
    "ReduceProd": (0,), "ReduceSum": (0,), "Equal": (), "Transpose": (0,),
}  # fmt: skip


def suspect(model: onnx.ModelProto, nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether an operator's size comes from what a client sends, or from nothing but a large number.

    Args:
        model: its graph, whose constants are looked up.
        nodes: all nodes, those of subgraphs and functions too.
    """
    nodes = list(nodes)
    if any(
        math.prod(entry.ints) > MAX_WINDOW for node in nodes for entry in node.attribute if entry.name == "kernel_shape"
    ):
        return True
    sizes_of_rows = _sizes(model)
    if sizes_of_rows is None or any(size > LARGE for size in sizes_of_rows):
        return True
    special = [node for node in nodes if node.op_type in SIZED_BY or node.op_type in SHAPED | UNBOUNDED]
    if not special:
        return False
    sizes = _Sizes(model, nodes)
    return any(
        node.op_type in UNBOUNDED
        or any(math.prod(entry.ints) > LARGE for entry in node.attribute if entry.name == "shape")
        or sizes.may_be_unbounded([node.input[at] for at in SIZED_BY.get(node.op_type, ()) if at < len(node.input)])
        for node in special
    )


class _Sizes:
    def __init__(self, model: onnx.ModelProto, nodes: list[onnx.NodeProto]) -> None:
        self._constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers: dict[str, onnx.NodeProto] = {}
        self._twice: set[str] = set()  # names that mean one thing here and another there
        for node in nodes:
            for name in node.output:
                if name and (name in self._makers or name in self._constants):
                    self._twice.add(name)
                self._makers[name] = node

    def may_be_unbounded(self, names: list[str]) -> bool:
        """Whether these may hold a large number: all constants that they come from are multiplied."""
        product, seen, waiting = 1.0, set[str](), [name for name in names if name]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            maker = self._makers.get(name)
            constant = self._constant(name, maker)
            if name in self._twice:
                return True
            if constant is not None:
                product *= _largest(constant)
                if product > LARGE:
                    return True
            elif maker is None:  # an input, or something of an outer graph
                return True
            elif maker.op_type == "Concat":
                waiting += maker.input
            elif maker.op_type == "ConstantOfShape":  # filled with one value
                product *= max([1.0, *(_largest(entry.t) for entry in maker.attribute)])
            elif maker.op_type in THROUGH:
                waiting += [maker.input[at] for at in THROUGH[maker.op_type] if at < len(maker.input)]
            elif maker.op_type not in KINDS["size"]:
                return True
        return product > LARGE

    def _constant(self, name: str, maker: onnx.NodeProto | None) -> onnx.TensorProto | None:
        if maker is None or maker.op_type != "Constant":
            return self._constants.get(name)
        value = onnx.helper.get_attribute_value(maker.attribute[0])
        return value if isinstance(value, onnx.TensorProto) else numpy_helper.from_array(np.array(value))


def _largest(constant: onnx.TensorProto) -> float:
    """The product of its values but for zeros and signs; infinite if unknown."""
    if math.prod(constant.dims) > MAX_VALUES or constant.data_location == onnx.TensorProto.EXTERNAL:
        return math.inf
    values = numpy_helper.to_array(constant)
    if values.dtype.kind not in "iufb":
        return math.inf
    return math.prod(max(1.0, abs(float(value))) for value in values.ravel())


def _sizes(model: onnx.ModelProto) -> list[int] | None:
    """The elements of one row of every tensor of the main graph but the weights, as far as shapes are known.

    None where onnx's shape inference itself would take much memory.
    """
    if model.functions:
        model = inlined(model)
    bare = _bare(model)
    if not is_small_shape_data(bare.graph):
        return None
    weights = {tensor.name for tensor in model.graph.initializer}
    try:
        inferred = onnx.shape_inference.infer_shapes(bare, data_prop=not model.functions).graph
    except Exception:  # a wrong file: the runtime reports the error
        return [_elements(value) for value in model.graph.input if value.name not in weights]
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    return [_elements(value) for value in values if value.name not in weights]


def _bare(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with shapes in place of its larger weights."""
    bare = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    graph = bare.graph
    graph.name = model.graph.name
    graph.input.extend(model.graph.input)
    given = {value.name for value in graph.input}
    for tensor in model.graph.initializer:  # their shapes are enough, and values would be copied
        if tensor.name in given:
            continue
        if math.prod(tensor.dims) <= MAX_VALUES:
            graph.initializer.append(tensor)
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
            given.add(tensor.name)
    graph.node.extend(model.graph.node)
    graph.output.extend(model.graph.output)
    return bare


def _elements(value: onnx.ValueInfoProto) -> int:
    return math.prod(max(1, dim.dim_value) for dim in value.type.tensor_type.shape.dim)
