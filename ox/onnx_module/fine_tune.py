"""A loaded file on its way to another task: which layers learn, a head for other classes, scores for the loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ox.autograd import no_grad
from ox.core.kind import QUANTIZED, Kind
from ox.core.operator import OPS, kind_of, make_tensor
from ox.devices import cpu
from ox.dtypes import is_floating
from ox.errors import ArgumentError, LoadError, OxError
from ox.graph.ir import Graph, Node, Value
from ox.graph.reader.weights import trainable_weights
from ox.graph.replay import call, replay
from ox.nn.base.module import Module
from ox.nn.parameter import Parameter
from ox.onnx_module.float32_parameters import has_float16_parameters, to_float32
from ox.onnx_module.loaded import Loaded
from ox.tensors.tensor import Tensor

LAYERS = ("all", "head")
PASSING: tuple[Kind, ...] = ("identity", "conversion", "reshape", "permutation")  # may follow a Softmax
SIZES = ("Shape", "Size")  # what leads to them are sizes of a value, not the value


@dataclass(frozen=True)
class Head:
    """The last layer with weights: what makes the scores of a file's first output.

    `weight` is stored [in, out], or [out, in] where `transposed`; `bias` has its scores in the last dimension.
    """

    weight: Value
    bias: Value | None
    transposed: bool
    scores: int
    width: int  # of what it reads

    @property
    def names(self) -> tuple[str, ...]:
        """Of its parameters."""
        return tuple(value.name for value in (self.weight, self.bias) if value is not None)


def find_head(net: Loaded) -> Head:
    """The head of a loaded file.

    Raises:
        LoadError: on the way back from the first output, the first layer with weights is no MatMul or Gemm.
    """
    makers, waiting, seen = net.graph.producers(), [net.graph.outputs[0]], set()
    got = "no layer with weights"
    while waiting:
        node = makers.get(waiting.pop(0))
        if node is None or id(node) in seen or node.op_type in SIZES:
            continue
        seen.add(id(node))
        sources = [None if v is None else _before_casts(v, makers) for v in node.inputs]
        trained = [v for v in sources if v is not None and isinstance(net.state.get(v.name), Parameter)]
        if node.key in ("MatMul", "Gemm"):
            weight = sources[1]
            assert weight is not None
            if weight in trained and net.state[weight.name].ndim == 2:
                return _head(net, node, weight, makers)
            rounded = makers.get(weight)
            if rounded is not None and kind_of(rounded.key) in QUANTIZED and rounded.inputs[0] in net.graph.constants:
                stored = rounded.inputs[0]
                raise LoadError(
                    "the head of the file is quantized",
                    expected="a MatMul or Gemm with floating weights before its first output",
                    got=f"'{stored.name}' in {stored.dtype}",
                    hint="the float32 file; or layers 'all' with the file's own classes, of which those in float learn",
                )
        if trained and not _is_formula(node):
            got = f"{node.op_type} with '{trained[0].name}'"
            break
        waiting += [v for v in node.inputs if v is not None]
    raise LoadError("the file has no head", expected="a MatMul or Gemm with weights before its first output", got=got)


def _is_formula(node: Node) -> bool:
    """Whether what a node reads may be a number of a formula: one that works on elements, and has no weights."""
    op = OPS.get(node.key)
    return op is not None and op.kind == "pointwise" and not op.weights


def _before_casts(value: Value, makers: Mapping[Value, Node]) -> Value:
    """What a value was before its type changed: weights in bfloat16 are cast to the type that the layer computes in."""
    while (node := makers.get(value)) is not None and node.key in ("Cast", "Identity") and node.inputs[0] is not None:
        value = node.inputs[0]
    return value


def _head(net: Loaded, node: Node, weight: Value, makers: Mapping[Value, Node]) -> Head:
    transposed = node.op_type == "Gemm" and bool(node.attributes.get("transB"))
    shape = net.state[weight.name].shape
    scores, width = int(shape[0 if transposed else 1]), int(shape[1 if transposed else 0])
    adding = [other for other in net.graph.nodes if other.op_type == "Add" and node.outputs[0] in other.inputs]
    offered = [*node.inputs[2:3], *(v for other in adding for v in other.inputs)]
    fitting = [
        v for v in (_before_casts(v, makers) for v in offered if v is not None)
        if isinstance(net.state.get(v.name), Parameter) and net.state[v.name].shape[-1:] == (scores,)
    ]  # fmt: skip
    return Head(weight, fitting[0] if fitting else None, transposed, scores, width)


class FineTuned(Module):
    """A loaded file in training. Gives the scores that a loss wants: where the file ends in probabilities, their
    logarithm or what comes before their Softmax. What is exported is the file with its new weights, its ends as they
    were.

    Parameters of one element learn only as the weight or bias of a layer: others may be numbers of a formula.

    A file with float16 weights learns in float32, and is float32 from then on, but for its ends.

    Args:
        net: what `ox.export.load` gave.
        layers: ``all``, or ``head``: only the last layer learns, and all before it stays in eval mode.
        classes: a new head for so many, its weights drawn anew; None keeps the file's own.
        example: inputs in the file's order, on which it is tried.

    Raises:
        ArgumentError, ShapeError, DTypeError: other layers, or inputs that the file does not take.
        LoadError: no head, or a file that cannot give other scores.
    """

    def __init__(self, net: Loaded, layers: str, classes: int | None, example: Sequence[Any]) -> None:
        super().__init__()
        if layers not in LAYERS:
            raise ArgumentError(f"there are no layers '{layers}'", expected=" or ".join(LAYERS))
        self.net, self.layers, self.classes = net, layers, classes
        self.widened = has_float16_parameters(net)
        if self.widened:
            to_float32(net)
        results = _run(net, example)
        if not is_floating(results[0].dtype):
            raise LoadError(
                f"the file's first output, '{net.graph.outputs[0].name}', cannot learn",
                expected="scores or probabilities", got=str(results[0].dtype),
            )  # fmt: skip
        head = _head_if_needed(net, layers == "head" or classes is not None)
        if head is not None and classes is not None:
            new_head(net, head, classes)
            results = _try(net, head, example)
        named = head.names if head is not None else ()
        of_layers = {value.name for value in trainable_weights(net.graph)}
        for name, parameter in net.named_parameters():
            learns = layers == "all" and (parameter.numel() > 1 or name in of_layers)
            parameter.requires_grad = learns or name in named
        if net.quantized and not any(p.requires_grad for p in net.parameters()):
            raise LoadError(
                "nothing in this quantized file can learn",
                expected="floating weights behind the last operator that rounds to integers",
                got=", ".join(f"{count:,} weights in {kind}" for kind, count in net.quantized.items()),
                hint="train the float32 file, then ox quantize; or a model with ox.ao.quantization",
            )
        self.shape = results[0].shape  # of the example's scores
        self._scores, self._logarithm = _scores(net, example, results[0])
        self.train()

    def train(self, mode: bool = True) -> FineTuned:
        super().train(mode)
        if self.layers == "head":
            self.net.eval()
        return self

    def forward(self, *inputs: Tensor) -> Tensor:
        """Scores of the file's first output, inputs in its order."""
        if self._scores is None:
            result = self.net(*inputs)
            first: Tensor = result[0] if isinstance(result, tuple) else result
        else:
            (first,) = replay(self._scores, [*inputs], self.net.state, self.net.run)
        return first.clamp(min=1e-12).log() if self._logarithm else first

    def exported(self) -> Loaded:
        """What a file of it holds."""
        return self.net


def _head_if_needed(net: Loaded, needed: bool) -> Head | None:
    try:
        return find_head(net)
    except LoadError:
        if needed:
            raise
        return None


def new_head(net: Loaded, head: Head, classes: int) -> None:
    """Give the head as many scores as there are classes, drawn as `ox.nn.Linear` draws them."""
    from ox import random

    def draw(value: Value, *shape: int) -> None:
        array = (random.uniform(shape, kind="initial_uniform").array * 2 - 1) / np.sqrt(head.width)
        _replace_parameter(net, value, array.astype(net.state[value.name].dtype))

    draw(head.weight, *((classes, head.width) if head.transposed else (head.width, classes)))
    if head.bias is not None:
        draw(head.bias, *net.state[head.bias.name].shape[:-1], classes)


def _replace_parameter(net: Loaded, value: Value, array: Any) -> None:
    """Other numbers, of another shape, for a parameter."""
    net.state[value.name].array = array
    net.graph.constants[value] = array
    value.dims = value.shape = array.shape


def _try(net: Loaded, head: Head, example: Sequence[Any]) -> list[Any]:
    """Run the file with its new head, and note the sizes that its outputs now have.

    Raises:
        LoadError: something else in the file counts on the old ones.
    """
    try:
        results = _run(net, example)
    except OxError as error:
        raise LoadError(
            f"the file cannot give other than {head.scores} scores", where=error.where, got=error.what
        ) from error
    told = []
    for value, info, array in zip(net.graph.outputs, net.contract.outputs, results, strict=True):
        if value.dims is not None and len(value.dims) == array.ndim:
            value.dims = tuple(n if isinstance(d, int) else d for d, n in zip(value.dims, array.shape, strict=True))
        if len(info.dims) == array.ndim:
            dims = tuple(n if isinstance(d, int) else d for d, n in zip(info.dims, array.shape, strict=True))
            info = replace(info, dims=dims, labels=info.labels if dims == info.dims else None)
        told.append(info)
    net.contract = replace(net.contract, outputs=tuple(told))
    return results


def _run(net: Loaded, example: Sequence[Any]) -> list[Any]:
    """The outputs for an example, in eval mode."""
    training = net.training
    try:
        with no_grad():
            results = net.eval()(*map(make_tensor, example))
    finally:
        net.train(training)
    return [cpu(x.array) for x in (results if isinstance(results, tuple) else (results,))]


def _scores(net: Loaded, example: Sequence[Any], result: Any) -> tuple[Graph | None, bool]:
    """The graph that gives scores, where it is not the file's own; and whether what runs gives probabilities."""
    graph, makers = net.graph, net.graph.producers()
    node, whole = makers.get(graph.outputs[0]), None
    computed = node.inputs[0] if node is not None and node.key == "Cast" else None
    if computed is not None and computed.dtype == np.float32 and graph.outputs[0].dtype == np.float16:
        graph = whole = _until(graph, computed)  # the loss gets what was computed, not what was rounded
        node = makers.get(computed)
    while node is not None and kind_of(node.key) in PASSING and node.inputs[0] is not None:
        node = makers.get(node.inputs[0])
    if node is not None and node.key == "Softmax":
        soft = replace(node, op_type="LogSoftmax")
        graph = replace(graph, nodes=[soft if n is node else n for n in graph.nodes])
        return _until(graph, graph.outputs[0]), False
    if not _are_probabilities(result):
        return whole, False
    before = _before_division(node, makers)
    if before is not None:
        cut = _until(graph, before)
        with no_grad():
            (scores,) = replay(cut, [*map(make_tensor, example)], net.state, call)
        powers = np.exp(cpu(scores.array).astype(np.float64))
        if powers.shape == result.shape and np.allclose(powers / powers.sum(-1, keepdims=True), result, atol=1e-5):
            return cut, False
    return whole, True


def _are_probabilities(array: Any) -> bool:
    return array.ndim > 1 and bool((array >= 0).all() and np.allclose(array.astype(np.float64).sum(-1), 1, atol=1e-3))


def _before_division(node: Node | None, makers: dict[Value, Node]) -> Value | None:
    """What a Softmax that was written as ``exp(x) / sum(exp(x))`` is taken of."""
    numerator = node.inputs[0] if node is not None and node.key == "Div" else None
    power = makers.get(numerator) if numerator is not None else None
    return power.inputs[0] if power is not None and power.key == "Exp" else None


def _until(graph: Graph, value: Value) -> Graph:
    """The graph that gives `value` only, with the nodes that it depends on."""
    wanted, nodes = {value}, []
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            nodes.append(node)
            wanted.update(v for v in node.inputs if v is not None)
    return replace(graph, outputs=[value], nodes=nodes[::-1])
