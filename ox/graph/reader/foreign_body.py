"""The body of an operator that `ai.onnx` does not have, in operators of `ai.onnx`."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from ox.errors import OxError
from ox.graph.reader import classical_bodies, quantized_bodies, runtime_bodies
from ox.graph.reader.body_writer import BodyWriter

BODIES = {
    "": runtime_bodies.STANDARD,
    "ai.onnx.ml": classical_bodies.BODIES,
    "com.microsoft": runtime_bodies.BODIES | quantized_bodies.BODIES,
}


def foreign_body(
    node: onnx.NodeProto, type_of: Callable[[str], onnx.TypeProto | None] = lambda name: None
) -> onnx.FunctionProto | None:
    """The body of one call; None where ox has none. `type_of` gives the type of a value of the file, as far as known.

    Raises:
        LoadError: a form of the operator that the body does not cover.
    """
    make = BODIES.get("" if node.domain == "ai.onnx" else node.domain, {}).get(node.op_type)
    if make is None:
        return None
    writer = BodyWriter(node, type_of)
    try:
        return writer.function(make(writer))
    except OxError:
        raise
    except (TypeError, ValueError, LookupError, ArithmeticError) as error:  # one that is missing, or of another size
        raise writer.refuse("with such attributes", got=f"{type(error).__name__}: {error}") from error
