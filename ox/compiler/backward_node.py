"""The node of autograd behind the results of a compiled call."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ox.autograd.backward_pass import grad
from ox.compiler.second_order import replayed
from ox.core.constants import zeros
from ox.core.gradient import unpack_saved
from ox.core.mode import MODE, switch_mode
from ox.core.node import CustomNode
from ox.core.operator import make_tensor
from ox.core.tensor import is_tensor
from ox.engines.watched import run

if TYPE_CHECKING:
    from ox.compiler.plan import Plan
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
        given += [unpack_saved(self, pair).array for pair in self.saved]
        plan = self.plan
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
