"""A loaded file on its way to another task: which layers learn, a head for other classes, scores for the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ox.errors import ArgumentError, LoadError
from ox.graph.form import Graph, Node, Value
from ox.graph.replay import call, replay
from ox.nn.loaded import Loaded
from ox.nn.module import Module
from ox.nn.parameter import Parameter
from ox.ops.operator import make_tensor
from ox.tensor import Tensor

LAYERS = ("all", "head")
PASSING = ("Identity", "Softmax", "LogSoftmax", "Sigmoid", "Reshape", "Flatten", "Squeeze", "Cast")


@dataclass(frozen=True)
class Head:
    """The last layer with weights: what makes the scores of a file's first output.

    `weight` is stored [in, out], or [out, in] where `transposed`; `bias` has its scores in the last dimension.
    """

    node: Node
    weight: Value
    bias: Value | None
    transposed: bool

    @property
    def names(self) -> tuple[str, ...]:
        """Of its parameters."""
        return tuple(value.name for value in (self.weight, self.bias) if value is not None)


def find_head(net: Loaded) -> Head:
    """The head of a loaded file.

    Raises:
        LoadError: the way back from the first output meets no MatMul or Gemm with trainable weights.
    """
    makers, value = net.graph.producers(), net.graph.outputs[0]
    waiting, seen = [value], set()
    bias = None
    while waiting:
        node = makers.get(waiting.pop(0))
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        trained = [v for v in node.inputs if v is not None and isinstance(net.state.get(v.name), Parameter)]
        if node.op_type in ("MatMul", "Gemm") and trained and net.state[trained[0].name].ndim == 2:
            gemm = node.op_type == "Gemm"
            if gemm and len(trained) > 1:
                bias = trained[1]
            return Head(node, trained[0], bias, gemm and bool(node.attributes.get("transB")))
        if node.op_type == "Add" and trained:
            bias = trained[0]
        waiting += [v for v in node.inputs if v is not None]
    raise LoadError(
        "the file has no head that could learn", expected="a MatMul or Gemm with weights before its first output"
    )


class FineTuned(Module):
    """A loaded file in training. Gives the scores that a loss wants: where the file ends in probabilities, those before
    its Softmax, or else their logarithm. What is exported is the file with its new weights, its ends as they were.

    Args:
        net: what `ox.export.load` gave.
        layers: ``all``, or ``head``: only the last layer learns, and all before it stays in eval mode.
        classes: a new head for so many, its weights drawn anew; None keeps the file's own.
        example: inputs in the file's order, to see whether it ends in probabilities.

    Raises:
        ArgumentError: other layers. LoadError: no head, or a file that cannot give other scores.
    """

    def __init__(
        self, net: Loaded, layers: str = "all", classes: int | None = None, example: Sequence[Any] = ()
    ) -> None:
        super().__init__()
        if layers not in LAYERS:
            raise ArgumentError(f"there are no layers '{layers}'", expected=" or ".join(LAYERS), got=repr(layers))
        self.net, self.layers = net, layers
        head = find_head(net) if classes is not None or layers == "head" else None
        if head is not None and classes is not None:
            new_head(net, head, classes)
        if head is not None and layers == "head":
            for name, parameter in net.named_parameters():
                parameter.requires_grad = name in head.names
        self._scores, self._logarithm = _scores(net, example)

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
            run = self.net.run_training if self.net.training else call
            (first,) = replay(self._scores, [*inputs], self.net.state, run)
        return first.clamp(min=1e-12).log() if self._logarithm else first

    def exported(self) -> Loaded:
        """What a file of it holds."""
        return self.net


def new_head(net: Loaded, head: Head, classes: int) -> None:
    """Give the head as many scores as there are classes, drawn as `ox.nn.Linear` draws them.

    Raises:
        LoadError: the file's scores are made in another way, too.
    """
    weight = net.state[head.weight.name]
    old = weight.shape[0 if head.transposed else 1]
    width = weight.shape[1 if head.transposed else 0]
    from ox import random

    def drawn(*shape: int) -> Any:
        return ((random.uniform(shape).array * 2 - 1) / np.sqrt(width)).astype(weight.dtype)

    shape = (classes, width) if head.transposed else (width, classes)
    _put(net, head.weight, drawn(*shape))
    if head.bias is not None:
        before = net.state[head.bias.name].shape
        if before[-1:] != (old,):
            raise LoadError(
                f"the bias '{head.bias.name}' is no row of scores", expected=f"[{old}]", got=str(list(before))
            )
        _put(net, head.bias, drawn(*before[:-1], classes))
    for value in net.graph.outputs:
        if value.dims and value.dims[-1] == old:
            value.dims = (*value.dims[:-1], classes)
    outputs = tuple(
        replace(info, dims=(*info.dims[:-1], classes), labels=None) if info.dims and info.dims[-1] == old else info
        for info in net.contract.outputs
    )
    net.contract = replace(net.contract, outputs=outputs)


def _put(net: Loaded, value: Value, array: Any) -> None:
    """Other numbers, of another shape, for a parameter."""
    net.state[value.name].array = array
    net.graph.constants[value] = array
    value.dims = value.shape = array.shape


def _scores(net: Loaded, example: Sequence[Any]) -> tuple[Graph | None, bool]:
    """The graph up to a final Softmax, if there is one; and whether what it gives are probabilities all the same."""
    graph, makers = net.graph, net.graph.producers()
    node = makers.get(graph.outputs[0])
    while node is not None and node.op_type in ("Identity", "Cast"):
        assert node.inputs[0] is not None
        node = makers.get(node.inputs[0])
    if node is not None and node.op_type in ("Softmax", "LogSoftmax") and node.inputs[0] is not None:
        before = node.inputs[0]
        return replace(graph, outputs=[before], nodes=_needed(graph, before)), False
    if not len(example):
        return None, False
    training = net.training
    try:
        result = net.eval()(*map(make_tensor, example))
    finally:
        net.train(training)
    array = (result[0] if isinstance(result, tuple) else result).array.astype(np.float64)
    sums = array.sum(-1) if array.ndim > 1 else np.zeros(1)
    return None, bool((array >= 0).all() and np.allclose(sums, 1, atol=1e-3))


def _needed(graph: Graph, value: Value) -> list[Node]:
    """The nodes that `value` depends on, in the graph's order."""
    wanted, nodes = {value}, []
    for node in reversed(graph.nodes):
        if wanted & set(node.outputs):
            nodes.append(node)
            wanted.update(v for v in node.inputs if v is not None)
    return nodes[::-1]
