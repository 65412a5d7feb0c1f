"""Scans of a written model that read values from outside, for runtimes whose loops read only what they are given."""

from __future__ import annotations

import onnx
from onnx import helper, shape_inference


def carry_captures(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let each Scan carry what its body reads of the graph around it, from step to step and unchanged.

    Scans inside of other subgraphs stay as they are. The model itself is not changed.
    """
    if not any(_captured(node) for node in model.graph.node if node.op_type == "Scan"):
        return model
    made = onnx.ModelProto()
    made.CopyFrom(model)
    inferred = shape_inference.infer_shapes(made).graph
    known = {i.name: i for i in [*inferred.input, *inferred.value_info, *inferred.output]}
    for node in made.graph.node:
        if node.op_type == "Scan":
            for name in _captured(node):
                _carry(node, name, known.get(name))
    return made


def _body(node: onnx.NodeProto) -> onnx.GraphProto:
    body: onnx.GraphProto = next(a.g for a in node.attribute if a.name == "body")
    return body


def _captured(node: onnx.NodeProto) -> list[str]:
    """The outer values that the body reads, each once."""
    body = _body(node)
    own = {i.name for i in body.input} | {y for each in body.node for y in each.output}
    own |= {i.name for i in body.initializer} | {""}
    read = [x for each in body.node for x in each.input] + [y.name for y in body.output]
    return list(dict.fromkeys(x for x in read if x not in own))


def _carry(node: onnx.NodeProto, name: str, info: onnx.ValueInfoProto | None) -> None:
    """One more value that goes from step to step, behind those that are there."""
    body = _body(node)
    states = len(node.input) - next(a.i for a in node.attribute if a.name == "num_scan_inputs")
    inside, following = f"{name}/carried_{node.name}", f"{name}/next_{node.name}"
    kind = info.type if info is not None else onnx.TypeProto()
    node.input.insert(states, name)
    node.output.insert(states, f"{name}/end_{node.name}")
    for each in body.node:
        for i, x in enumerate(each.input):
            if x == name:
                each.input[i] = inside
    body.node.append(helper.make_node("Identity", [inside], [following]))
    for values, made in ((body.input, inside), (body.output, following)):
        entries = list(values)
        entries.insert(states, onnx.ValueInfoProto(name=made, type=kind))
        del values[:]
        values.extend(entries)
