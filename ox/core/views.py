"""In-place writes to views: how the history and the recording of the base and of its other views are updated.

Views refer to their root (`Tensor._base`), which has weak references to its views. After a write that needs a gradient,
the history of each view is computed from the root again: in eager code by an `AsStrided` node with the positions of the
view in the root's memory, in a recording by the recorded view operators, applied to the root's new value.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from types import SimpleNamespace
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.broadcast import reshape_to
from ox.core.constants import integer, on_device_of, zeros
from ox.core.memory_format import Part, part_of
from ox.core.mode import MODE
from ox.core.node import CustomNode, Leaf
from ox.core.operator import OPS
from ox.core.symbolic import Dim, size_tensor
from ox.core.tensor import TensorBase, TensorType
from ox.devices import cuda_state
from ox.errors import GradientError, RecordError

# ox.autograd.hooks, on a higher floor, registers here what moves a retained gradient from the old node to the new one
move_retained: list[Callable[[Any, Any], None]] = []

FIRST_PRUNE = 100  # so many views are noted before the dead ones are looked for
_pruning = Lock()


def prune(viewed: list[Any]) -> None:
    """Drop the references to freed views; the first entry is the length at which to prune again."""
    with _pruning:
        count = len(viewed)  # another thread may add one meanwhile
        viewed[1:count] = [reference for reference in viewed[1:count] if reference() is not None]
        viewed[0] = 2 * len(viewed) + FIRST_PRUNE


def living_views(root: TensorBase) -> list[TensorBase]:
    """The views of a root that are still alive."""
    viewed = root._viewed
    if viewed is None:
        return []
    found = [reference() for reference in viewed[1:]]
    return [view for view in found if view is not None and view._base is root]


def share_memory(made: TensorBase, array: Any, base: TensorBase, compute: Callable[[TensorBase], TensorBase]) -> None:
    """Let `made`, which `compute(base)` gave as a copy, show memory of `base` instead, where its values are too."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = base.array.flags.writeable
    made.array = array
    made.alias_of(base)
    if not MODE.get().grad:
        made._origin = made._origin or "no_grad"
    if made._recorded is not None and made._recorded.active():
        made._recorded.version = made.version
        made._recorded.view_call = (lambda source, outputs: compute(source)), (base,), {}, 1, 0


def in_own_memory(made: TensorType, x: TensorBase) -> TensorType:
    """`made`, computed from `x`, in memory of its own: for what PyTorch gives as a copy and an operator as a view, or
    as `x` itself."""
    if made is x:
        return x.clone()
    if made._base is not None:
        made.array = cuda_state.copy(made.array)
        made._base, made._origin, made._writes = None, None, [made.version, ""]
    return made


# -- in eager code: nodes with positions in memory -------------------------------------------------------------------


class CopySlices(CustomNode):
    """The root after a write to part of it: the root before, with `value` at some places."""

    op = SimpleNamespace(name="CopySlices", single_output=False)

    def __init__(self, root: TensorBase, part: Part | np.ndarray[Any, Any], value: Any) -> None:
        self.shape, self.part, self.value_shape = root._stored_shape, part, value.shape
        self.tracked = root.node is not None, value.node is not None
        self.connect([x for x in (root, value) if x.node is not None])

    def name(self) -> str:
        return "CopySlices"

    def rule(self, g: TensorBase) -> list[TensorBase]:
        places, flat = _flat_places(self.part, g), reshape_to(g, [-1])
        found = []
        if self.tracked[0]:
            kept = OPS["ScatterElements"](flat, places, zeros(places.static_shape, g), axis=0)
            found.append(reshape_to(kept, self.shape))
        if self.tracked[1]:
            found.append(reshape_to(OPS["GatherElements"](flat, places, axis=0), self.value_shape))
        return found


class AsStrided(CustomNode):
    """A view, computed from its root again after a write."""

    op = SimpleNamespace(name="AsStrided", single_output=False)

    def __init__(self, root: TensorBase, part: Part) -> None:
        self.shape, self.part = root._stored_shape, part
        self.connect([root])

    def rule(self, g: TensorBase) -> list[TensorBase]:
        count: Any = 1
        for size in self.shape:
            count = count * size
        places = _flat_places(self.part, g)
        spread = OPS["ScatterElements"](zeros([count], g), places, reshape_to(g, [-1]), axis=0, reduction="add")
        return [reshape_to(spread, self.shape)]


class Overwritten(CustomNode):
    """A tensor overwritten with values that need no gradient: the gradient of the old value is zero."""

    op = SimpleNamespace(name="Overwritten", single_output=False)

    def __init__(self, before: TensorBase) -> None:
        self.connect([before])

    def rule(self, g: TensorBase) -> list[TensorBase]:
        return [zeros(g.shape, g)]


class Stale(CustomNode):
    """What a custom Function or a hooked module passed through, after its memory was written in another way: the
    gradient of the new value does not go through the function, and that of the old one is not wanted."""

    op = SimpleNamespace(name="Stale", single_output=False)

    def __init__(self, view: Any) -> None:
        self.made_by, self.written = view.node, view.last_write()
        self.connect([view])

    def rule(self, g: TensorBase) -> list[TensorBase]:
        name = self.made_by.name() if self.made_by is not None else "a custom Function"
        raise GradientError(
            f"a gradient reaches an output of {name} that shows the memory of its input, which was written in place",
            where=self.written,
            hint="the out-of-place form of the write, or a .clone() that the function returns",
        )


def _flat_places(part: Part | np.ndarray[Any, Any], like: TensorType) -> TensorType:
    places = part.places() if isinstance(part, Part) else part
    return on_device_of(operator.as_input(places.reshape(-1)), like)


def update_history(target: TensorBase, value: Any, places: np.ndarray[Any, Any] | None = None) -> None:
    """After a write that a gradient follows: `target`, or its root's elements `places`, now are `value`.

    `value` needs a node, a port and a shape only.
    """
    root = target if target._base is None else target._base
    part: Any = places
    if part is None and root is not target:
        part = part_of(target.array, root.array)
        if part is None:  # it has its own memory by now
            target._base, target._origin, root = None, None, target
    if part is None:
        _rebind(target, value if value.node is not None else _new_history(Overwritten(target)))
    else:
        _rebind(root, _new_history(CopySlices(root, part, value)))
    for view in living_views(root):
        if view._origin == "function" and view is not target:
            if view.node is not None and not isinstance(view.node, Leaf):
                _rebind(view, _new_history(Stale(view)))
        elif not isinstance(view.node, Leaf) and view._origin != "no_grad":
            own = part_of(view.array, root.array)
            if own is None:
                view._base = view._origin = None
            else:
                _rebind(view, _new_history(AsStrided(root, own)))


def pass_through(x: TensorType, node: CustomNode, port: int) -> TensorType:
    """`x` as the output of an identity node: the same memory, to which a differentiable in-place write is refused."""
    other = x.with_history(node, port)
    other.alias_of(x)
    other._origin = "function"
    return other


def _new_history(node: CustomNode) -> Any:
    return SimpleNamespace(node=node, port=0)


def _rebind(tensor: TensorBase, made: Any) -> None:
    """The tensor's history is another one now; if it keeps its gradient, it keeps that of the new value."""
    before = tensor.node
    tensor.node, tensor.port = made.node, made.port
    if tensor._retain:
        move_retained[0](tensor, before)


# -- in a recording: the view operators again ------------------------------------------------------------------------


def element_numbers(x: TensorType) -> TensorType:
    """For each element its number in row-major order, int64; recorded."""
    count: Any = 1
    for size in x._stored_shape:
        count = count * size
    end = OPS["Reshape"](count.tensor, size_tensor([])) if isinstance(count, Dim) else integer(count)
    return reshape_to(OPS["Range"](integer(0), end, integer(1)), x._stored_shape)


def recompute_view(view: TensorBase, root: TensorBase, replacement: TensorBase) -> Any:
    """`view` as it would have been made from `replacement`, in place of its root; None if that is not possible."""
    if view is root:
        return replacement
    how = None if view._recorded is None or not view._recorded.active() else view._recorded.view_call
    if how is None:
        part = part_of(view.array, root.array)
        if part is None or any(isinstance(size, Dim) for size in root._stored_shape):
            return None
        places = on_device_of(operator.as_input(part.places()), replacement)
        return OPS["Gather"](reshape_to(replacement, [-1]), places, axis=0)
    op, inputs, attributes, outputs, port = how
    source = recompute_view(inputs[0], root, replacement)
    if source is None:
        return None
    made = op(source, *inputs[1:], outputs=outputs, **attributes)
    return made[port] if isinstance(made, tuple) else made


def write_elements(root: TensorType, places: TensorBase, value: TensorBase) -> TensorType:
    """The root's new value: `value` at `places`, written by ScatterElements without a reduction."""
    places = on_device_of(places, root)
    flat = OPS["ScatterElements"](reshape_to(root, [-1]), reshape_to(places, [-1]), reshape_to(value, [-1]), axis=0)
    return reshape_to(flat, root._stored_shape)


def unknown_view_error() -> RecordError:
    return RecordError(
        "a write through a view of which the recording does not know how it was made",
        hint="the out-of-place form",
    )


def update_recording(root: TensorBase, fresh: TensorBase, recording: Any, followed: bool) -> None:
    """Once memory is written: the root and its living views are what they are in a graph where the root is `fresh`."""
    views = [(view, recompute_view(view, root, fresh)) for view in living_views(root)]
    for tensor, made in [(root, fresh), *views]:
        if made is not None:
            recording.alias(tensor, made)
            if followed and tensor._origin == "function" and tensor is not root:
                _rebind(tensor, _new_history(Stale(tensor)))
            elif followed and not isinstance(tensor.node, Leaf) and tensor._origin != "no_grad":
                _rebind(
                    tensor, made if made.node is not None or tensor.node is None else _new_history(Overwritten(tensor))
                )
