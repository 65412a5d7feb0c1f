"""Files that draw a seed of their own at each run: `ox.export.save(..., seed=True)`."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import onnx
from onnx import helper, numpy_helper

from ox.errors import ExportError
from ox.export.files import Written
from ox.temporary_files import file_beside

BITS = 24  # that a float32 holds; the seed has twice as many
DRAWN = 5  # nodes that draw the seed, the first of the graph


def free_name(taken: Collection[str]) -> str:
    """A name for the seed that no input has."""
    name = "seed"
    while name in taken:
        name += "_"
    return name


def draw_seed(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    """The model with RandomUniform in place of its input `name`, which is one int64."""
    graph = model.graph
    kept = [info for info in graph.input if info.name != name]
    del graph.input[:]
    graph.input.extend(kept)
    prefix = name
    while any(each.startswith(f"{prefix}_") for node in graph.node for each in node.output):
        prefix += "_"
    places = numpy_helper.from_array(np.array([1, 1 << BITS], np.int64))
    nodes = [
        helper.make_node("RandomUniform", [], [f"{prefix}_drawn"], high=float(1 << BITS), low=0.0, shape=[2]),
        helper.make_node("Cast", [f"{prefix}_drawn"], [f"{prefix}_parts"], to=onnx.TensorProto.INT64),
        helper.make_node("Constant", [], [f"{prefix}_places"], value=places),
        helper.make_node("Mul", [f"{prefix}_parts", f"{prefix}_places"], [f"{prefix}_placed"]),
        helper.make_node("ReduceSum", [f"{prefix}_placed"], [name], keepdims=0),
    ]
    for node in nodes:
        node.name = node.output[0]
    rest = list(graph.node)
    del graph.node[:]
    graph.node.extend([*nodes, *rest])
    return model


@contextmanager
def with_seed_given(written: Written, name: str) -> Iterator[Written]:
    """The file as it was before `draw_seed`, for the proof: with an input in place of what draws.

    Raises:
        ExportError: onnx.checker refuses the file that draws.
    """
    try:
        onnx.checker.check_model(written.path)
    except onnx.checker.ValidationError as error:
        raise ExportError("onnx.checker refuses the file", got=str(error).strip()) from error
    outline = onnx.ModelProto()
    outline.CopyFrom(written.outline)
    del outline.graph.node[:DRAWN]
    outline.graph.input.append(helper.make_tensor_value_info(name, onnx.TensorProto.INT64, []))
    with file_beside(written.path) as path:
        onnx.save(outline, path)
        yield replace(written, path=path, outline=outline)
