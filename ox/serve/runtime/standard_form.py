"""Decoders of other exporters, as the rest of the server knows them: with the names of files of Optimum, with caches
that hold whole texts, and with one table of rotary embeddings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import onnx
from onnx import AttributeProto, NodeProto, numpy_helper

from ox.errors import LoadError
from ox.graph.reader.model_file import nodes_of

ATTENTION = "GroupQueryAttention"
RING = "sliding_window_cache"  # an attribute: the cache holds the last tokens only
BRANCH = "use_cache_branch"  # an input: whether there are tokens before
TABLES = (7, 8)  # inputs of GroupQueryAttention: cosines and sines


class StandardForm(NamedTuple):
    """What was done to a model: whether it is another than in the file, and for how many tokens it is right (None: for
    as many as the exporter says)."""

    changed: bool
    longest: int | None
    why: str = ""


def standardize(model: onnx.ModelProto, names: Mapping[str, str], window: int | None = None) -> StandardForm:
    """Changes a decoder of another exporter.

    Args:
        model: is changed.
        names: of inputs and outputs, by their standard names; with ``%d`` for the layer.
        window: how many tokens back some layers see by the exporter's settings.

    Raises:
        LoadError: two inputs or outputs would get the same name.
    """
    changed = _rename(model, names)
    changed |= _keep_whole_texts(model)
    longest, why = _one_table(model)
    changed |= longest is not None
    windows = any(_integer(node, "local_window_size", -1) > 0 for node in _attentions(model))
    if window is not None and not windows and (longest is None or window < longest):
        # in a text that is no longer, a window hides nothing
        longest, why = window, f"layers see {window} tokens back, and the graph has no such window"
    return StandardForm(changed, longest, why)


def _rename(model: onnx.ModelProto, names: Mapping[str, str]) -> bool:
    patterns = [
        (re.compile(re.escape(given).replace("%d", r"(\d+)")), standard)
        for standard, given in names.items()
        if given != standard
    ]
    renamed = {}
    for info in (*model.graph.input, *model.graph.output):
        for pattern, standard in patterns:
            if found := pattern.fullmatch(info.name):
                renamed[info.name] = standard.replace("%d", found[1]) if found.groups() else standard
    if not renamed:
        return False
    taken = {info.name for info in (*model.graph.input, *model.graph.output)} - renamed.keys()
    twice = taken & set(renamed.values())
    if twice or len(set(renamed.values())) < len(renamed):
        raise LoadError(
            "the settings give two inputs or outputs of a decoder the same name",
            expected="a name for each",
            got=", ".join(sorted(twice or renamed))[:200],
        )
    for info in (*model.graph.input, *model.graph.output):
        info.name = renamed.get(info.name, info.name)
    for node in nodes_of(model):
        for field in (node.input, node.output):
            field[:] = [renamed.get(name, name) for name in field]
    return True


def _keep_whole_texts(model: onnx.ModelProto) -> bool:
    """Has layers with a window get the cache of a whole text; they look at as much of it as before. In a cache of the
    last tokens alone a text could not begin where another one of the same begin has come to."""
    rings = [node for node in _attentions(model) if _integer(node, RING, 0)]
    for node in rings:
        kept = [each for each in node.attribute if each.name != RING]
        del node.attribute[:]
        node.attribute.extend(kept)
    return bool(rings)


def _one_table(model: onnx.ModelProto) -> tuple[int | None, str]:
    """Takes the table for short texts, where a graph has two (LongRoPE: Ding et al., 2024) and takes that for long ones
    when a batch has grown: one text would change with the length of others, and with its own past."""
    graph = model.graph
    tables = {name for node in _attentions(model) for place in TABLES for name in node.input[place : place + 1]}
    makers = {name: node for node in graph.node for name in node.output}
    for place, node in enumerate(graph.node):
        if node.op_type != "If" or not tables.issuperset(node.output):
            continue
        condition = makers.get(node.input[0])
        if condition is None or condition.op_type != "Greater":
            continue
        limit = _constant(model, condition.input[1])
        short = next(each.g for each in node.attribute if each.name == "else_branch")
        if limit is None or limit < 2 or any(each.op_type != "Constant" for each in short.node):
            continue
        ends = {info.name: name for info, name in zip(short.output, node.output, strict=True)}
        for each in (*short.node, *short.initializer):
            if isinstance(each, NodeProto):
                each.output[:] = [ends.get(name, name) for name in each.output]
            else:
                each.name = ends.get(each.name, each.name)
        nodes = [*graph.node[:place], *short.node, *graph.node[place + 1 :]]
        graph.initializer.extend(short.initializer)
        del graph.node[:]
        graph.node.extend(nodes)
        return limit, f"rotary embeddings are others in texts of more than {limit} tokens"
    return None, ""


def take_branch_with_past(model: onnx.ModelProto) -> None:
    """Takes the branch for tokens that follow others from a graph with two, as Optimum wrote them; it may be right for
    the first tokens, too."""
    graph = model.graph
    if [node.op_type for node in graph.node] != ["If"] or graph.node[0].input[0] != BRANCH:
        return
    (choice,) = graph.node
    branch = next(each.g for each in choice.attribute if each.name == "then_branch")
    ends = {info.name: name for info, name in zip(branch.output, choice.output, strict=True)}
    nodes = list(branch.node)
    for node in nodes:
        for field in (node.input, node.output):
            field[:] = [ends.get(name, name) for name in field]
    graph.initializer.extend(branch.initializer)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.input.remove(next(info for info in graph.input if info.name == BRANCH))


def _attentions(model: onnx.ModelProto) -> Iterator[NodeProto]:
    return (node for node in model.graph.node if node.op_type == ATTENTION)


def _integer(node: NodeProto, name: str, default: int) -> int:
    return next((each.i for each in node.attribute if each.name == name), default)


def _constant(model: onnx.ModelProto, name: str) -> int | None:
    """A whole number that is stored."""
    stored = [tensor for tensor in model.graph.initializer if tensor.name == name]
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            stored += [each.t for each in node.attribute if each.type == AttributeProto.TENSOR]
    if len(stored) != 1 or stored[0].data_location == onnx.TensorProto.EXTERNAL:
        return None
    value = numpy_helper.to_array(stored[0])
    return int(value.reshape(())) if value.size == 1 and value.dtype.kind == "i" else None
