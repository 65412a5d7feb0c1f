"""Watching the gradients of a module's inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ox.ops.mode import MODE
from ox.ops.node import HandMade
from ox.tensor import Tensor
from ox.views import passed_on

if TYPE_CHECKING:
    from ox.nn.hooks import Hooks
    from ox.nn.module import Module

Grads = tuple[Any, ...]


class Watch:
    """One call of a module whose gradients are watched: a node before its inputs and a node after its outputs."""

    def __init__(self, hooks: Hooks, module: Module) -> None:
        self.module = module
        self.before, self.after = hooks.all("backward_pre"), hooks.all("backward")  # those of now, as in PyTorch
        self.grad_output: Grads = ()
        self.inputs_tracked = False
        self.positions: list[int] = []
        self.count = self.results = 0
        self.tracked: list[int] = []

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.count = len(args)
        self.positions = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.node is not None]
        self.inputs_tracked = bool(self.positions)
        return _pass_through(args, self._inputs_done)

    def outputs(self, result: Any) -> Any:
        several = (result,) if isinstance(result, Tensor) else result
        if not isinstance(several, (tuple, list)):
            return result
        self.results = len(several)
        self.tracked = [i for i, x in enumerate(several) if isinstance(x, Tensor) and x.node is not None]
        passed = _pass_through(tuple(several), self._outputs_done)
        return passed[0] if several is not result else type(result)(passed)

    def _outputs_done(self, grads: Grads) -> Grads:
        full: list[Any] = [None] * self.results
        for position, grad in zip(self.tracked, grads, strict=True):
            full[position] = grad
        changed = self._changed(tuple(full))
        return tuple(changed[i] for i in self.tracked)

    def _changed(self, grads: Grads) -> Grads:
        for hook, _ in self.before:
            changed = hook(self.module, grads)
            if changed is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        self.grad_output = grads
        if not self.inputs_tracked:
            self._call((None,) * self.count)
        return grads

    def _inputs_done(self, grads: Grads) -> Grads:
        full: list[Any] = [None] * self.count
        for position, grad in zip(self.positions, grads, strict=True):
            full[position] = grad
        changed = self._call(tuple(full))
        return tuple(changed[i] for i in self.positions)

    def _call(self, grad_input: Grads) -> Grads:
        for hook, _ in self.after:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                grad_input = changed if isinstance(changed, tuple) else (changed,)
        return grad_input


class Passage(HandMade):
    """A node that hands tensors on: backward gives `seen` their gradients, and goes on with what it returns."""

    op = SimpleNamespace(name="ModuleHook", single_output=False)

    def __init__(self, values: list[Tensor], seen: Callable[[Grads], Grads]) -> None:
        self.seen = seen
        recording = MODE.get().recording
        if recording is not None:
            recording.custom()
        self.connect(values, len(values))

    def rule(self, *grads: Any) -> Grads:
        return self.seen(grads)


def _pass_through(values: tuple[Any, ...], seen: Callable[[Grads], Grads]) -> tuple[Any, ...]:
    """The same values, those that are tracked behind one node. No operator runs, so a recording does not notice."""
    tracked = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.node is not None]
    if not tracked:
        return values
    node = Passage([values[i] for i in tracked], seen)
    passed = list(values)
    for port, i in enumerate(tracked):
        passed[i] = passed_on(values[i], node, port)
    return tuple(passed)
