"""The node of autograd behind the results of a compiled call."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ox.autograd.backward_pass import grad
from ox.compiler.recording.trace import Trace
from ox.core.constants import zeros
from ox.core.gradient import INPUT, OUTPUT, unpack_saved
from ox.core.mode import MODE, switch_mode
from ox.core.node import CustomNode
from ox.core.operator import OPS, make_tensor
from ox.core.tensor import is_tensor
from ox.engines.watched import run
from ox.errors import GradientError
from ox.graph.ir import Value
from ox.graph.replay import call

if TYPE_CHECKING:
    from ox.compiler.execution.plan import Plan
    from ox.tensors.tensor import Tensor


class CompiledBackward(CustomNode):
    """Runs the recorded backward; for gradients that are differentiated again, the eager one.

    Args:
        arrays: what the forward was given; `outputs` what it returned.
        made: the tensors of the result, of which those that are differentiated follow this node from now on.
    """

    op = SimpleNamespace(name="Compiled", single_output=False)

    def __init__(
        self, plan: Plan, tensors: list[Tensor], arrays: list[Any], outputs: list[Any], made: list[Any]
    ) -> None:
        trace, layout = plan.trace, plan.layout
        self.plan = plan
        given = [*tensors, *[state.of(tensors) for state in trace.states]]
        values = [*trace.arguments, *[state.value for state in trace.states]]
        places = {value: i for i, value in enumerate(values)}
        sources = [(k, given[places[v]]) for k, (v, _, _) in enumerate(trace.gradients)]
        self.sources = [(k, x) for k, x in sources if is_tensor(x) and x.node is not None]
        results = {number: y for y, number in zip(made, layout.results, strict=True) if number >= 0}
        saved = []
        for kind, number in layout.saved:
            tensor: Any = given[number] if kind == "input" else results.get(number)
            array = arrays[number] if kind == "input" else outputs[number]
            if not is_tensor(tensor) or tensor.array is not array:  # a counter, which is replaced and never written
                tensor = make_tensor(array)
            elif kind == "output":
                tensor = tensor.shallow_copy()
            saved.append((tensor, tensor._shared_version()[0]))
        self.saved: Any = saved
        self.entry = [(x, x.version if is_tensor(x) else 0, a) for x, a in zip(given, arrays, strict=True)]
        kinds = zip(made, trace.results, strict=True)
        followed = [y for y, result in kinds if result[0] == "output" and result[2]]
        self.forms = [(y.static_shape, y.array.dtype) for y in followed]
        self.connect([x for _, x in self.sources], len(followed))
        for port, y in enumerate(followed):
            y.node, y.port = self, port

    def rule(self, *cotangents: Any) -> list[Any]:
        if MODE.get().grad:
            return self._differentiable(cotangents)
        given = []
        for g, (shape, dtype) in zip(cotangents, self.forms, strict=True):
            given.append(_zeros(shape, dtype) if g is None else g.array)
        plan = self.plan
        for number, pair in enumerate(self.saved, len(given)):
            try:
                given.append(unpack_saved(self, pair).array)
            except GradientError:
                unpack_saved(_needs(plan, number), pair)  # the same error, with the operator that eager code names
                raise
        assert plan.backward is not None
        with plan._lock:
            found = run(plan.engine.name, plan.backward, given)
        used = {i for i, g in enumerate(cotangents) if g is not None}
        if len(used) == len(cotangents):
            return [make_tensor(found[k]) for k, _ in self.sources]
        # as in eager code, what only unused results depend on has no gradient: an optimizer would take zeros for one
        reached = [plan.trace.gradients[k][2] for k, _ in self.sources]
        return [
            None if used.isdisjoint(results) else make_tensor(found[k])
            for (k, _), results in zip(self.sources, reached, strict=True)
        ]

    def released_error(self) -> GradientError:
        return GradientError(
            "backward ran a second time through a compiled call, whose saved tensors were already freed",
            expected="one backward for all results of a call",
            got="a second backward through the same call, perhaps from another of its results",
            hint="(loss_a + loss_b).backward(), the first backward(retain_graph=True), or the forward again",
        )

    def _differentiable(self, cotangents: tuple[Any, ...]) -> list[Any]:
        """The eager forward once more, from its recorded operators, and the gradients of that."""
        plan = self.plan
        given = []
        for x, version, array in self.entry:
            given.append(unpack_saved(self, (x, version)) if is_tensor(x) and x.array is array else make_tensor(array))
        ys = replayed(plan.trace, given)
        pairs = [(y, g) for y, g in zip(ys, cotangents, strict=True) if g is not None and y.node is not None]
        xs = [x for _, x in self.sources]
        with switch_mode(grad=True):
            found = grad([y for y, _ in pairs], xs, [g for _, g in pairs], create_graph=True, allow_unused=True)
        return list(found)


def _needs(plan: Plan, number: int) -> Any:
    """Like a node: what has in `op` the operator that needs this input of the backward for its gradient, the last one
    of the forward, whose gradient comes first."""
    assert plan.layout.backward is not None
    value = plan.layout.backward.graph.inputs[number]
    for node in reversed(plan.trace.graph.nodes[: plan.trace.forward]):
        op = OPS[node.key]
        saved = {kind_and_place for rule in op.rules for kind_and_place in rule.arguments}
        last = len(op.schema.inputs) - 1  # of a variadic operator for all further ones
        values = [(INPUT, min(i, last), v) for i, v in enumerate(node.inputs)]
        values += [(OUTPUT, i, v) for i, v in enumerate(node.outputs)]
        if any(v is value and (kind, i) in saved for kind, i, v in values):
            return SimpleNamespace(op=op)
    return SimpleNamespace(op=CompiledBackward.op)


def _zeros(shape: tuple[int, ...], dtype: Any) -> Any:
    import numpy as np

    return zeros(shape, make_tensor(np.empty(0, dtype))).array


class Freed(CustomNode):
    """Behind a result whose backward ran inside the compiled call: a second one is the same error as in eager code."""

    op = SimpleNamespace(name="Compiled", single_output=False)

    def __init__(self, outputs: int) -> None:
        self.connect([], outputs)
        self.saved: Any = None

    def rule(self, *_: Any) -> Any:
        return []


def replayed(trace: Trace, given: Sequence[Any]) -> list[Any]:
    """The differentiated results of the forward once more, as eager code with a history: for gradients of gradients.

    Each operator follows the gradient of those inputs that it followed in the recording: what the code detached stays
    detached, though the graph has no operator for that.

    Args:
        given: a tensor for each argument and each state.
    """
    values = [*trace.arguments, *[state.value for state in trace.states]]
    known: dict[Value, Any] = dict(zip(values, given, strict=True))
    known.update({value: make_tensor(array) for value, array in trace.graph.constants.items()})
    with switch_mode(grad=True, autocast=None):
        for node, followed in zip(trace.graph.nodes[: trace.forward], trace.capture.followed, strict=False):
            inputs = [None if v is None else known[v] for v in node.inputs]
            kept = [
                x if x is None or (i < len(followed) and followed[i]) or x.node is None else x.detach()
                for i, x in enumerate(inputs)
            ]
            known.update(zip(node.outputs, call(node, kept), strict=False))
    return [known[result[1]] for result in trace.results if result[0] == "output" and result[2]]
