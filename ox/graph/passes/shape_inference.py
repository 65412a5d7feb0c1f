"""Sizes by ONNX's own shape inference, and the clean-up that needs them."""

from __future__ import annotations

import onnx
from onnx import shape_inference

from ox.dtypes import FROM_ONNX
from ox.errors import ExportError
from ox.graph.ir import Graph
from ox.graph.passes import cleanup
from ox.graph.passes.fold_if import fold_constant_ifs
from ox.graph.passes.reshape_targets import simplify_reshape_targets
from ox.graph.passes.shape_arithmetic import shorten_shape_arithmetic
from ox.graph.passes.subgraph_types import note_types
from ox.graph.reader.model_file import nodes_of
from ox.graph.writer.write import to_model

Dims = dict[str, tuple[int | str | None, ...]]
ROUNDS = 16  # a bound for what does not only remove; three or four do


def infer(model: onnx.ModelProto) -> Dims:
    """Sizes of every value by name: a number, the name of a size, or None where inference does not know.

    Raises:
        ExportError: a node whose types or shapes contradict each other.
    """
    try:
        inferred = shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        if not (any(node.op_type == "If" for node in nodes_of(model)) or _fits_without_data(model)):
            raise ExportError("strict shape inference refuses the graph", got=str(error).strip()) from error
        # the branch that these sizes never take may contradict them; or they are right, and onnx went wrong where it
        # carried numbers along, as for the product of a column and a row, which it takes for two lists of sizes
        inferred = shape_inference.infer_shapes(model, data_prop=True)
    return _sizes(inferred.graph)


def _fits_without_data(model: onnx.ModelProto) -> bool:
    """Whether types and shapes agree, as long as no numbers are carried along."""
    try:
        shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
    except shape_inference.InferenceError:
        return False
    return True


def _sizes(graph: onnx.GraphProto) -> Dims:
    # names that inference itself made up mean no more than None
    own = {d.dim_param for info in graph.input for d in info.type.tensor_type.shape.dim if d.HasField("dim_param")}
    dims: Dims = {}
    for info in [*graph.value_info, *graph.output, *graph.input]:
        tensor = info.type.tensor_type
        if tensor.HasField("shape"):
            dims[info.name] = tuple(
                d.dim_value if d.HasField("dim_value") else d.dim_param if d.dim_param in own else None
                for d in tensor.shape.dim
            )
    return dims


def simplify(graph: Graph, opset: int | None = None) -> Dims:
    """Remove what is dead, fold what is known, compute sizes in few operators, until nothing changes. Returns the
    inferred sizes of what is left, also those that are wrong: a file must not contradict them."""
    note_types(graph)
    rounds = 0
    while True:
        cleanup.remove_dead(graph)
        cleanup.remove_identities(graph)
        cleanup.fold_constants(graph)
        if fold_constant_ifs(graph):
            continue
        cleanup.remove_dead(graph)
        dims = infer(to_model(graph, opset=opset, weights=False))
        right = without_wrong_sizes(graph, dims)
        changed = fold_shapes_in_subgraphs(graph, right)
        changed |= cleanup.fold_shapes(graph, right)
        if rounds < ROUNDS:
            changed |= simplify_reshape_targets(graph, right)
            changed |= shorten_shape_arithmetic(graph, right)
            rounds += 1
        if not changed:
            cleanup.merge_constants(graph)
            return dims


def inferred_sizes(graph: Graph, opset: int | None = None) -> Dims:
    """Sizes of the graph's values by name, as onnx infers them, without those that the recorded run had otherwise."""
    return without_wrong_sizes(graph, infer(to_model(graph, opset=opset, weights=False)))


def without_wrong_sizes(graph: Graph, dims: Dims) -> Dims:
    """None in place of sizes that the recorded run had otherwise: inference knows some operators wrongly. onnx 1.23
    gives STFT as many bins as its frames are long, though only half of them are kept."""
    right = dict(dims)
    for v in graph.values():
        known = dims.get(v.name)
        if known is not None and v.shape is not None and len(known) == len(v.shape):
            pairs = zip(known, v.shape, strict=True)
            right[v.name] = tuple(None if isinstance(size, int) and size != n else size for size, n in pairs)
    return right


def fold_shapes_in_subgraphs(graph: Graph, dims: Dims) -> bool:
    """Fold the sizes that are known inside subgraphs, where the inference of the whole names no value. Whether any was.

    Exporters choose a branch by sizes; once these are known, so is the branch, and the one that they contradict goes.
    """
    folded = False
    for node in graph.nodes:
        for _, inside in node.subgraphs():
            outside = node.inputs[len(node.inputs) - len(inside.captures) :]
            for capture, v in zip(inside.captures, outside, strict=True):
                if v is not None:
                    known = v.dims if v in graph.constants else dims.get(v.name)
                    capture.dtype, capture.dims = capture.dtype or v.dtype, known or capture.dims  # type: ignore[assignment]
            found = _infer_subgraph(inside)
            if found is not None:
                folded = cleanup.fold_shapes(inside, found) or folded
                folded = fold_shapes_in_subgraphs(inside, found) or folded
    return folded


def _infer_subgraph(graph: Graph) -> Dims | None:
    """The sizes of a subgraph's values, whose types are noted; None where too little is known of what it reads."""
    ends = [*graph.captures, *graph.inputs]
    if any(v.dtype is None for v in ends):
        return None
    alone = Graph(ends, graph.outputs, graph.nodes, graph.constants)
    try:
        inferred = shape_inference.infer_shapes(to_model(alone), data_prop=True).graph
    except (shape_inference.InferenceError, ExportError):
        return None
    kinds = {
        i.name: i.type.tensor_type for i in [*inferred.value_info, *inferred.output] if i.type.HasField("tensor_type")
    }
    for node in graph.nodes:
        for v in node.outputs:
            if v.dtype is None and v.name in kinds:
                v.dtype = FROM_ONNX.get(kinds[v.name].elem_type)
    return _sizes(inferred)
