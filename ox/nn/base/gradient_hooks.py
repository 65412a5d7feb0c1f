"""Full backward hooks of modules: identity nodes around the inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ox.core.mode import MODE
from ox.core.node import CustomNode
from ox.core.views import pass_through
from ox.tensors.tensor import Tensor

if TYPE_CHECKING:
    from ox.nn.base.hooks import Hooks
    from ox.nn.base.module import Module

Grads = tuple[Any, ...]


class BackwardHooks:
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
        return _pass_through(args, self._on_input_gradients)

    def outputs(self, result: Any) -> Any:
        several = (result,) if isinstance(result, Tensor) else result
        if not isinstance(several, (tuple, list)):
            return result
        self.results = len(several)
        self.tracked = [i for i, x in enumerate(several) if isinstance(x, Tensor) and x.node is not None]
        passed = _pass_through(tuple(several), self._on_output_gradients)
        return passed[0] if several is not result else type(result)(passed)

    def _on_output_gradients(self, grads: Grads) -> Grads:
        full: list[Any] = [None] * self.results
        for position, grad in zip(self.tracked, grads, strict=True):
            full[position] = grad
        changed = self._run_pre_hooks(tuple(full))
        return tuple(changed[i] for i in self.tracked)

    def _run_pre_hooks(self, grads: Grads) -> Grads:
        for hook, _ in self.before:
            changed = hook(self.module, grads)
            if changed is not None:
                grads = changed if isinstance(changed, tuple) else (changed,)
        self.grad_output = grads
        if not self.inputs_tracked:
            self._run_hooks((None,) * self.count)
        return grads

    def _on_input_gradients(self, grads: Grads) -> Grads:
        full: list[Any] = [None] * self.count
        for position, grad in zip(self.positions, grads, strict=True):
            full[position] = grad
        changed = self._run_hooks(tuple(full))
        return tuple(changed[i] for i in self.positions)

    def _run_hooks(self, grad_input: Grads) -> Grads:
        for hook, _ in self.after:
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                grad_input = changed if isinstance(changed, tuple) else (changed,)
        return grad_input


class BackwardHookNode(CustomNode):
    """An identity node: backward passes its gradients to `call_hooks`, and continues with what that returns."""

    op = SimpleNamespace(name="ModuleHook", single_output=False)

    def __init__(self, values: list[Tensor], call_hooks: Callable[[Grads], Grads]) -> None:
        self.call_hooks = call_hooks
        self.connect(values, len(values))
        recording = MODE.get().recording
        if recording is not None:
            recording.on_hook(self)

    def rule(self, *grads: Any) -> Grads:
        return self.call_hooks(grads)


def _pass_through(values: tuple[Any, ...], call_hooks: Callable[[Grads], Grads]) -> tuple[Any, ...]:
    """The same values, those that are tracked behind one node. No operator runs, so a recording does not notice."""
    tracked = [i for i, x in enumerate(values) if isinstance(x, Tensor) and x.node is not None]
    if not tracked:
        return values
    node = BackwardHookNode([values[i] for i in tracked], call_hooks)
    passed = list(values)
    for port, i in enumerate(tracked):
        passed[i] = pass_through(values[i], node, port)
    return tuple(passed)
