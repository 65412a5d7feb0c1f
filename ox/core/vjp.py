"""The gradient of a recorded body: of the branch of an If, of one step of a Loop or Scan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.constants import zeros
from ox.core.mode import MODE, switch_mode
from ox.core.node import Node
from ox.core.operator import OPS
from ox.core.tensor import TensorBase
from ox.dtypes import is_floating
from ox.errors import GradientError

# ox.autograd, on a higher floor, registers `grad` and `vjp_of_tape` here
differentiate: Any = None
vjp_of_tape: Any = None


@dataclass(eq=False)
class Tape:
    """The autograd nodes of a body that was recorded from Python code.

    The operators alone do not tell where the code let no gradient pass (`detach`, `no_grad`), nor what has a gradient
    of its own (Functions, hooks, checkpoints). So the body's gradient writes its operators down once more, and goes
    back through the nodes that its first recording left.

    Attributes:
        recording: the one that the tensors of these nodes belong to.
        formals: what stood for the body's inputs.
        results: what the body returned.
        spans: the numbers of the nodes that the body made, from and to; all others are outside.
        bound: where it continues another body, by the leaf of each formal of that one: its value here.
    """

    recording: Any
    formals: list[TensorBase] = field(default_factory=list)
    results: list[TensorBase] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)
    bindings: list[dict[Any, TensorBase]] = field(default_factory=list)

    def resume(self, other: Tape, inputs: Sequence[TensorBase]) -> None:
        """The body continues another one, with these inputs."""
        pairs = zip(other.formals, inputs, strict=True)
        leaves: dict[Any, TensorBase] = {
            formal.node.inputs[0]: x for formal, x in pairs if isinstance(formal.node, Node)
        }
        self.spans += other.spans
        self.bindings += [*other.bindings, leaves]

    def end(self) -> None:
        """The recording is over: nothing can go back here any more."""
        self.recording = None
        self.formals, self.results, self.bindings = [], [], []

    def is_outside(self, node: Any) -> bool:
        """Whether a node or leaf is none that the body made."""
        return not any(start <= node.sequence < end for start, end in self.spans)


def subgraph_vjp(graph: Any, inputs: Sequence[Any], wanted: Sequence[bool], cotangents: Sequence[Any]) -> list[Any]:
    """The cotangents of the wanted inputs of `graph`, zeros where nothing reaches them.

    Args:
        inputs: one for each input of the graph, then one for each capture.
        cotangents: one for each output, None where there is none.

    Raises:
        GradientError: the recording that the graph belongs to is over.
    """
    chosen = [x for x, want in zip(inputs, wanted, strict=True) if want]
    found = (_replayed_vjp if graph.tape is None else _recorded_vjp)(graph, inputs, wanted, cotangents)
    return [zeros(x.shape, x) if g is None else g for x, g in zip(chosen, found, strict=True)]


def _recorded_vjp(graph: Any, inputs: Sequence[Any], wanted: Sequence[bool], cotangents: Sequence[Any]) -> list[Any]:
    tape, mode = graph.tape, MODE.get()
    if mode.recording is None or tape.recording is None:
        raise GradientError(
            "a gradient goes back through a branch or loop whose recording is over",
            hint="the gradient inside the function that is recorded, or the function called without a recording",
        )
    count = len(tape.formals)
    mode.recording.resume(tape, inputs[:count])
    ys, gs = _pairs(tape.results, cotangents)
    ends = [formal.node and formal.node.inputs[0] for formal in tape.formals]
    found = vjp_of_tape(tape, ys, gs, [*ends, *inputs[count:]], create_graph=mode.grad) if ys else [None] * len(inputs)
    return [g for g, want in zip(found, wanted, strict=True) if want]


def _replayed_vjp(
    graph: Any, inputs: Sequence[Any], wanted: Sequence[bool], cotangents: Sequence[Any]
) -> Sequence[Any]:
    """Of a graph that came from a file: the gradients of its operators."""
    twice = MODE.get().grad
    with switch_mode(grad=True):
        # an Identity keeps what these were computed from, and each other, out of this function's gradient
        own = [OPS["Identity"](x) if want else x for x, want in zip(inputs, wanted, strict=True)]
        leaves = [x for x, want in zip(own, wanted, strict=True) if want]
        for x in leaves:
            if x.node is None:
                x.requires_grad_()
        ys, gs = _pairs(graph.run(own), cotangents)
        if not ys or not leaves:
            return [None] * len(leaves)
        return differentiate(ys, leaves, gs, create_graph=twice, allow_unused=True)


def _pairs(results: Sequence[Any], cotangents: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The results that a gradient follows and that have a cotangent, with it."""
    ys, gs = [], []
    for y, g in zip(results, cotangents, strict=True):
        if g is not None and is_floating(y.array.dtype) and y.node is not None:
            ys.append(y)
            # the branch that is not taken in this run may give other sizes
            gs.append(g if g.static_shape == y.static_shape else with_sizes(g, y.static_shape))
    return ys, gs


def with_sizes(x: Any, shape: tuple[int, ...]) -> Any:
    """A recorded tensor as if it had other sizes in this run, to record what does not happen in it; any numbers do."""
    recording: Any = MODE.get().recording
    made = operator.make_tensor(np.zeros(shape, x.array.dtype))
    made.node, made.port = x.node, x.port
    recording.set_value(made, x)
    return made
