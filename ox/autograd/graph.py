"""Nodes, and hooks on what they save. `torch.autograd.graph`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from ox.autograd.grad_mode import Switch
from ox.autograd.grad_ready import add_observer
from ox.autograd.saved_tensor_hooks import SavedTensorObserver
from ox.core.mode import MODE
from ox.core.node import Handle, Node
from ox.core.tensor import TensorBase, is_tensor
from ox.errors import GradientError
from ox.functions import to_device

RemovableHandle = Handle


class saved_tensors_hooks(Switch):
    """Inside, what operators save for backward goes through `pack_hook(tensor)`, and comes back through
    `unpack_hook(packed)` when backward needs it. `torch.autograd.graph.saved_tensors_hooks`.

    Raises:
        GradientError: under `disable_saved_tensors_hooks`, or a pack hook that writes its tensor in place.
        ArgumentError: an unpack hook that returns another shape or type.
    """

    def __init__(self, pack_hook: Callable[[Any], Any], unpack_hook: Callable[[Any], Any]) -> None:
        super().__init__()
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def changes(self) -> dict[str, Any]:
        before: Any = MODE.get().observer or SavedTensorObserver()
        if before.disabled is not None:
            raise GradientError(before.disabled)
        return {"observer": replace(before, hooks=(self.pack_hook, self.unpack_hook))}


class save_on_cpu(saved_tensors_hooks):
    """Inside, what is saved for backward waits in host memory. `torch.autograd.graph.save_on_cpu`.

    Args:
        pin_memory: accepted for PyTorch's scripts; host memory is never pinned.
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        def pack(x: TensorBase) -> tuple[str, TensorBase]:
            return x.device, x.clone() if x.device == "cpu" else to_device(x, "cpu")

        def unpack(packed: tuple[str, TensorBase]) -> TensorBase:
            device, x = packed
            return x if device == "cpu" else to_device(x, device)

        super().__init__(pack, unpack)


class disable_saved_tensors_hooks(Switch):
    """Inside, entering `saved_tensors_hooks` raises GradientError with this message.
    `torch.autograd.graph.disable_saved_tensors_hooks`."""

    def __init__(self, error_message: str) -> None:
        super().__init__()
        self._message = error_message

    def changes(self) -> dict[str, Any]:
        before: Any = MODE.get().observer or SavedTensorObserver()
        return {"observer": replace(before, disabled=self._message)}


class GradientEdge(NamedTuple):
    """A node and which of its outputs. `torch.autograd.graph.GradientEdge`."""

    node: Any
    output_nr: int


def get_gradient_edge(tensor: TensorBase) -> GradientEdge:
    """Where the gradient of a tensor arrives. Raises GradientError for one that requires none."""
    if tensor.node is None:
        raise GradientError("a tensor that requires no gradient has no place in a graph")
    return GradientEdge(tensor.node, tensor.port)


def increment_version(tensor: TensorBase | Sequence[TensorBase]) -> None:
    """Count a write in place that a tensor's memory saw from elsewhere. `torch.autograd.graph.increment_version`."""
    several: Any = [tensor] if is_tensor(tensor) else tensor
    for one in several:
        one.count_write("increment_version")


def register_multi_grad_hook(tensors: Sequence[TensorBase], fn: Callable[..., Any], *, mode: str = "all") -> Handle:
    """Call `fn` with the list of the gradients of `tensors` once all that a backward reaches are known, None for the
    others, or (`mode` "any") with the first that is known. `torch.autograd.graph.register_multi_grad_hook`."""
    from ox.autograd.hooks import register

    hook = _MultiGradHook(tensors, fn, mode)
    add_observer(hook)
    return _Several([register(t, hook.arrived(k)) for k, t in enumerate(tensors)])


class _MultiGradHook:
    """Collects the gradients of one backward; alive as long as the hooks of its tensors are."""

    def __init__(self, tensors: Sequence[TensorBase], fn: Callable[..., Any], mode: str) -> None:
        self._nodes = [t.node for t in tensors]
        self._fn, self._mode = fn, mode
        self._gradients: dict[int, Any] = {}
        self._expected: int = len(tensors)

    def on_start(self, leaves: Collection[Any], nodes: Collection[Any], create_graph: bool) -> None:
        reached = {id(node) for node in nodes} | {id(source) for node in nodes for source in node.inputs}
        self._expected = sum(id(node) in reached for node in self._nodes)
        self._gradients.clear()

    def on_end(self, failed: bool) -> None:
        """What was within reach got no gradient."""
        if not failed and self._gradients and self._mode != "any":
            self._call()
        self._gradients.clear()
        self._expected = len(self._nodes)

    def arrived(self, index: int) -> Callable[[TensorBase], None]:
        def hook(g: TensorBase) -> None:
            first = not self._gradients
            self._gradients[index] = g
            if self._mode == "any" and first:
                self._fn(g)
            if len(self._gradients) == self._expected:
                if self._mode == "any":
                    self._gradients.clear()
                else:
                    self._call()

        return hook

    def _call(self) -> None:
        gradients = [self._gradients.get(k) for k in range(len(self._nodes))]
        self._gradients.clear()
        self._fn(gradients)


class _Several(Handle):
    """Takes several hooks away at once."""

    def __init__(self, handles: list[Handle]) -> None:
        super().__init__([], None)
        self._handles = handles

    def remove(self) -> None:
        for handle in self._handles:
            handle.remove()


__all__ = [
    "GradientEdge",
    "Node",
    "RemovableHandle",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]
