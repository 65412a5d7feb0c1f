"""Hooks on a module's forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ox.ops.mode import MODE
from ox.ops.node import Handle, HandMade
from ox.tensor import Tensor
from ox.views import passed_on

if TYPE_CHECKING:
    from ox.nn.module import Module


class Hooks:
    """The hooks of one module, by kind; each entry is (hook, with_kwargs)."""

    def __init__(self) -> None:
        self.pre: list[Any] = []
        self.post: list[Any] = []
        self.backward_pre: list[Any] = []
        self.backward: list[Any] = []

    def add(self, kind: str, hook: Callable[..., Any], with_kwargs: bool = False, prepend: bool = False) -> Handle:
        entries: list[Any] = getattr(self, kind)
        entry = (hook, with_kwargs)
        entries.insert(0 if prepend else len(entries), entry)
        return Handle(entries, entry)

    def run(self, module: Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's forward between its hooks."""
        for hook, with_kwargs in list(self.pre):
            changed = hook(module, args, kwargs) if with_kwargs else hook(module, args)
            if changed is not None and with_kwargs:
                args, kwargs = changed
            elif changed is not None:
                args = changed if isinstance(changed, tuple) else (changed,)
        watched = bool(self.backward or self.backward_pre) and MODE.get().grad
        watch = Watch(self, module) if watched else None
        if watch is not None:
            args = watch.inputs(args)
        result = module.forward(*args, **kwargs)
        for hook, with_kwargs in list(self.post):
            changed = hook(module, args, kwargs, result) if with_kwargs else hook(module, args, result)
            result = result if changed is None else changed
        return result if watch is None else watch.outputs(result)


Grads = tuple[Any, ...]


class Watch:
    """One call of a module whose gradients are watched: a node before its inputs and a node after its outputs."""

    def __init__(self, hooks: Hooks, module: Module) -> None:
        self.hooks, self.module = hooks, module
        self.grad_output: Grads = ()
        self.inputs_tracked = False
        self.positions: list[int] = []
        self.count = 0

    def inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        self.count = len(args)
        self.positions = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.node is not None]
        self.inputs_tracked = bool(self.positions)
        return _pass_through(args, self._inputs_done)

    def outputs(self, result: Any) -> Any:
        if isinstance(result, Tensor):
            return _pass_through((result,), self._outputs_done)[0]
        if isinstance(result, (tuple, list)):
            return type(result)(_pass_through(tuple(result), self._outputs_done))
        return result

    def _outputs_done(self, grads: Grads) -> Grads:
        for hook, _ in list(self.hooks.backward_pre):
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
        for hook, _ in list(self.hooks.backward):
            changed = hook(self.module, grad_input, self.grad_output)
            if changed is not None:
                grad_input = changed if isinstance(changed, tuple) else (changed,)
        return grad_input


class Passage(HandMade):
    """A node that hands tensors on: backward gives `seen` their gradients, and goes on with what it returns."""

    op = SimpleNamespace(name="ModuleHook", single_output=False)

    def __init__(self, values: list[Tensor], seen: Callable[[Grads], Grads]) -> None:
        self.seen = seen
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
