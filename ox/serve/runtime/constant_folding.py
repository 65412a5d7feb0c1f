"""How much a small file may grow while ONNX Runtime loads it: constants it computes ahead, functions it writes out.

ONNX Runtime computes what depends on constants alone when a session is made, and keeps it: a file of 1 kB can ask for
12 GB. It leaves out results above a size of our choice, so the file is walked first to choose one that keeps all
of them within a budget. What is not computed ahead is computed in each run, where the memory of runs bounds it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import onnx
from onnx import NodeProto, TensorProto, TypeProto, helper

from ox.errors import LoadError
from ox.graph.reader.model_file import nodes_of, subgraphs

MIB = 1 << 20
MIN_LIMIT = 256 * MIB  # that much may any file grow by
FACTOR = 4  # and by so many times its weights, which are often transposed or made wider
MAX_NODES = 1_000_000  # once functions are written out
MAX_TRIES = 5_000  # constant nodes whose sizes are inferred; of more, nothing is known
SMALL = 4096  # bytes of constants whose values matter for sizes: shapes, axes, repeats


def largest_fold(model: onnx.ModelProto, weights: int) -> int:
    """The most bytes that one result computed at load may have, so that all of them together stay within the budget.

    Args:
        model: the file, without its external data.
        weights: bytes of the file and its external data.

    Raises:
        LoadError: what is in the file grows past what any model needs: functions inside functions, or sparse tensors.
    """
    budget = max(MIN_LIMIT, FACTOR * weights)
    _check_sparse(model, budget)
    _check_functions(model, budget)
    if model.functions:
        model = inlined(model)
    nodes = _constant_nodes(model.graph)
    inner = sum(1 for node in model.graph.node for graph in subgraphs(node) for _ in _inside(graph))
    sizes = _sizes(model, nodes) if len(nodes) <= MAX_TRIES else []
    unknown = inner + len(nodes) - len(sizes)
    most = budget
    while most > 1 and sum(size for size in sizes if size <= most) + unknown * most > budget:
        most //= 2
    return most


def _check_sparse(model: onnx.ModelProto, budget: int) -> None:
    dense = [*model.graph.sparse_initializer]
    for node in nodes_of(model):
        dense += [attribute.sparse_tensor for attribute in node.attribute if attribute.HasField("sparse_tensor")]
        for graph in subgraphs(node):
            dense += graph.sparse_initializer
    size = sum(8 * math.prod(max(0, dim) for dim in tensor.dims) for tensor in dense)
    if size > budget:
        expected, got = f"at most {budget // MIB:,} MiB", f"{size // MIB:,} MiB"
        raise LoadError("sparse tensors of the file grow too large once they are dense", expected=expected, got=got)


def _check_functions(model: onnx.ModelProto, budget: int) -> None:
    """Functions that call functions can double with each: their nodes are counted as if they were written out."""
    bodies = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[tuple[str, str], tuple[int, int]] = {}

    def size(nodes: Iterable[NodeProto], above: tuple[tuple[str, str], ...]) -> tuple[int, int]:
        """Nodes, and their bytes."""
        count = bytes_ = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key not in bodies:
                more = 1, node.ByteSize()
            elif key in above or len(above) > 200:
                raise LoadError("functions of the file call themselves, or are nested too deeply", where=node.op_type)
            else:
                if key not in sizes:
                    sizes[key] = size(bodies[key].node, (*above, key))
                more = sizes[key]
            count, bytes_ = count + more[0], bytes_ + more[1]
            for graph in subgraphs(node):
                inner = size(graph.node, above)
                count, bytes_ = count + inner[0], bytes_ + inner[1]
        return count, bytes_

    if not bodies:
        return
    what = "functions of the file grow too many once they are written out"
    count, bytes_ = size(model.graph.node, ())
    if count > MAX_NODES:
        raise LoadError(what, expected=f"at most {MAX_NODES:,} nodes", got=f"{count:,}")
    if bytes_ > budget:
        raise LoadError(what, expected=f"at most {budget // MIB:,} MiB", got=f"{bytes_ // MIB:,} MiB")


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Without functions, and without the bytes of weights; as it was if onnx cannot do that."""
    from onnx import inliner

    light = onnx.ModelProto()
    light.CopyFrom(_without_weights(model))
    try:
        return inliner.inline_local_functions(light)
    except Exception:  # onnx's C++ raises several
        return light


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    graph = helper.make_graph(model.graph.node, "light", model.graph.input, model.graph.output)
    for tensor in model.graph.initializer:
        if _is_small(tensor):
            graph.initializer.append(tensor)
        else:
            graph.initializer.append(TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims))
    return helper.make_model(
        graph, opset_imports=model.opset_import, functions=model.functions, ir_version=model.ir_version
    )


def _is_small(tensor: TensorProto) -> bool:
    return tensor.data_location != TensorProto.EXTERNAL and tensor.ByteSize() <= SMALL


def _constant_nodes(graph: onnx.GraphProto) -> list[NodeProto]:
    """Those that depend on constants alone, but are no mere constants."""
    fed = {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    found = []
    for node in graph.node:
        inner = any(True for _ in subgraphs(node))
        if inner or any(name in fed for name in node.input):
            fed.update(node.output)
        elif node.op_type != "Constant":
            found.append(node)
    return found


def _inside(graph: onnx.GraphProto) -> Iterator[NodeProto]:
    """Nodes of a subgraph that may be constant, without a closer check."""
    fed = {value.name for value in graph.input}
    for node in graph.node:
        if any(name in fed for name in node.input):
            fed.update(node.output)
        elif node.op_type != "Constant":
            yield node
        for inner in subgraphs(node):
            yield from _inside(inner)


def _sizes(model: onnx.ModelProto, nodes: list[NodeProto]) -> list[int]:
    """Bytes of the results of constant nodes, of as many nodes as onnx can infer."""
    if not nodes:
        return []
    needed = {name for node in nodes for name in node.input}
    constants = [node for node in model.graph.node if node.op_type == "Constant" and node.output[0] in needed]
    given = [tensor for tensor in model.graph.initializer if tensor.name in needed]
    graph = helper.make_graph(
        [*(node for node in constants if node.ByteSize() <= SMALL), *nodes],
        "constants",
        [helper.make_tensor_value_info(t.name, t.data_type, t.dims) for t in given if not _is_small(t)],
        [],
        [tensor for tensor in given if _is_small(tensor)],
    )
    for node in constants:
        if node.ByteSize() > SMALL and node.attribute and node.attribute[0].HasField("t"):
            tensor = node.attribute[0].t
            graph.input.append(helper.make_tensor_value_info(node.output[0], tensor.data_type, tensor.dims))
    small = helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
    try:
        inferred = onnx.shape_inference.infer_shapes(small)  # data_prop would compute what is feared
    except Exception:  # onnx's C++ raises several; then nothing is known
        return []
    known = {value.name: _bytes(value.type) for value in inferred.graph.value_info}
    sizes = [[known.get(name) for name in node.output if name] for node in nodes]
    return [sum(size for size in each if size is not None) for each in sizes if None not in each]


def _bytes(kind: TypeProto) -> int | None:
    tensor = kind.tensor_type
    if not tensor.HasField("shape") or not all(dim.HasField("dim_value") for dim in tensor.shape.dim):
        return None
    try:
        width = helper.tensor_dtype_to_np_dtype(tensor.elem_type).itemsize
    except (KeyError, TypeError):
        return None
    return int(width * math.prod(dim.dim_value for dim in tensor.shape.dim))
