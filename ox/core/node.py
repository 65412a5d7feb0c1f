"""Nodes of the autograd graph: one operator call each, with what backward needs."""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ox.core.changes import CHANGES
from ox.core.gradient import gradients
from ox.core.mode import MODE
from ox.core.tensor import TensorBase
from ox.errors import GradientError

if TYPE_CHECKING:
    from ox.core.gradient import SavePlan

sequence = count()
# hooks of a node itself stand in one list with those of its outputs, under numbers that no output has
BEFORE, AFTER = -1, -2


class Handle:
    """Removes a hook; also a context manager. `torch.utils.hooks.RemovableHandle`."""

    def __init__(self, hooks: list[Any], entry: Any) -> None:
        self._hooks, self._entry = hooks, entry

    @property
    def id(self) -> int:
        """The key of a module's hook in `module._forward_hooks` and its like."""
        number: int = self._entry.id
        return number

    def remove(self) -> None:
        """Take it away; a second time does nothing."""
        CHANGES.count += 1
        self._hooks[:] = [entry for entry in self._hooks if entry is not self._entry]

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


class Hookable:
    """Base of nodes and leaves: hooks that get all gradients of a node at once."""

    __slots__ = ()

    def _hook(self, kind: int, hook: Callable[..., Any]) -> Handle:
        own: Any = self
        CHANGES.count += 1
        recording = MODE.get().recording
        if recording is not None:
            recording.on_hook(own)
        if own.hooks is None:
            own.hooks = []
        entry = (kind, hook)
        own.hooks.append(entry)
        return Handle(own.hooks, entry)

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_outputs)`` before the node runs; a tuple that it returns replaces them.
        `torch.autograd.graph.Node.register_prehook`."""
        return self._hook(BEFORE, hook)

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call ``hook(grad_inputs, grad_outputs)`` after the node ran, with the gradients of the inputs that a
        gradient follows; a tuple that it returns replaces `grad_inputs`. `torch.autograd.graph.Node.register_hook`."""
        return self._hook(AFTER, hook)


class Leaf(Hookable):
    """The end of a path: a tensor whose `requires_grad` was set, and whose `.grad` collects what arrives.

    Holds the tensor weakly, for the tensor holds the leaf. `after` are the hooks that run when `.grad` is there.
    """

    __slots__ = ("__weakref__", "after", "hooks", "sequence", "tensor")

    def __init__(self, tensor: TensorBase) -> None:
        self.tensor = weakref.ref(tensor)
        self.sequence = -1
        self.hooks: list[Any] = []
        self.after: list[Any] | None = None

    def name(self) -> str:
        return "AccumulateGrad"

    @property
    def variable(self) -> TensorBase | None:
        """The tensor, or None once it is gone."""
        return self.tensor()

    @property
    def next_functions(self) -> tuple[()]:
        return ()

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


class Node(Hookable):
    """One call of a differentiable operator; PyTorch's `grad_fn`.

    `inputs` and `ports` are, for each tracked input, the node that computed it and the index of its output.
    `saved` holds what the gradient rules named, with the version that each tensor had then.
    `outputs`, set only for an operator with a variadic output, is how many there are.
    `where`, set only while anomalies are looked for, is the user's line that made it.
    """

    op: Any
    save_plan: SavePlan
    attributes: dict[str, Any]
    inputs: list[Node | Leaf]
    ports: list[int]
    saved: Any  # None once backward has freed it
    sequence: int
    hooks: list[Any] | None = None
    outputs = 1
    where: str | None = None

    gradients = gradients

    def name(self) -> str:
        """``MulBackward``."""
        return f"{self.op.name}Backward"

    @property
    def next_functions(self) -> tuple[tuple[Node | Leaf, int], ...]:
        """The nodes that made the tracked inputs, with output numbers; `torch.autograd.graph.Node.next_functions`."""
        return tuple(zip(self.inputs, self.ports, strict=True))

    def count_outputs(self) -> int:
        schema = self.op.schema
        return self.outputs if schema.variadic_output else len(schema.outputs)

    def __repr__(self) -> str:
        return f"<{self.name()}>"

    def released_error(self) -> GradientError:
        return GradientError(
            f"backward ran a second time through {self.op.name}, whose saved tensors were already freed",
            expected="one backward for each forward",
            got="a second backward through the same graph",
            hint="the first backward(retain_graph=True), or run the forward again",
        )


class CustomNode(Node, ABC):
    """A node that is not an operator call: `rule(*cotangents)` returns the cotangents of its inputs, in operators."""

    op = SimpleNamespace(name="CustomNode", single_output=False)

    def connect(self, sources: list[Any], outputs: int = 1) -> None:
        """Let it follow the tensors `sources`, which all require a gradient, and be the newest node."""
        self.inputs, self.ports = [x.node for x in sources], [x.port for x in sources]
        self.outputs = outputs
        self.saved = getattr(self, "saved", ())
        self.sequence = next(sequence)
        mode = MODE.get()
        if mode.recording is not None:
            mode.recording.on_custom_node(sources)
        if mode.observer is not None:
            mode.observer.on_node(self)

    @abstractmethod
    def rule(self, *cotangents: Any) -> Any:
        """The cotangents of the inputs, None for one that gets none."""

    def gradients(self, cotangents: list[Any], differentiable: bool) -> list[Any]:
        if self.saved is None:
            raise self.released_error()
        return list(self.rule(*cotangents))

    def count_outputs(self) -> int:
        return self.outputs
