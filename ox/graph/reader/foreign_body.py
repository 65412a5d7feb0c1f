"""The body of an operator of another domain than `ai.onnx`, in operators of `ai.onnx`."""

from __future__ import annotations

import onnx

from ox.graph.reader import classical_bodies, runtime_bodies
from ox.graph.reader.body_writer import BodyWriter

BODIES = {"ai.onnx.ml": classical_bodies.BODIES, "com.microsoft": runtime_bodies.BODIES}


def foreign_body(node: onnx.NodeProto) -> onnx.FunctionProto | None:
    """The body of one call; None where ox has none.

    Raises:
        LoadError: a form of the operator that the body does not cover.
    """
    make = BODIES.get(node.domain, {}).get(node.op_type)
    if make is None:
        return None
    writer = BodyWriter(node)
    return writer.function(make(writer))
