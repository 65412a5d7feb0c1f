"""Writes through views: what a gradient and a recording follow when memory that several tensors show is written.

A tensor and its views form a family under one root (`Tensor._base`), which knows those that are alive. After a followed
write every one of them is made anew from the root: in eager code by a node that knows the places of the view in the
root's memory, in a recording by the view operators that once made it, applied to the root's new value.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.errors import RecordError
from ox.memory import Part, part_of
from ox.ops import operator
from ox.ops.broadcast import beside, reshape_to, zeros
from ox.ops.dim import Dim, size_tensor
from ox.ops.mode import MODE
from ox.ops.node import HandMade, Leaf
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor

MANY = 100  # so many views are noted before the dead ones are looked for
_pruning = Lock()


def prune(viewed: list[Any]) -> None:
    """Drop the references to views that are gone; the first entry says at which length to look again."""
    with _pruning:
        count = len(viewed)  # another thread may add one meanwhile
        viewed[1:count] = [reference for reference in viewed[1:count] if reference() is not None]
        viewed[0] = 2 * len(viewed) + MANY


def alive(root: Tensor) -> list[Tensor]:
    """The views of a root that are still alive."""
    viewed = root._viewed
    if viewed is None:
        return []
    found = [reference() for reference in viewed[1:]]
    return [view for view in found if view is not None and view._base is root]


def show(made: Tensor, array: Any, base: Tensor, compute: Callable[[Tensor], Tensor]) -> None:
    """Let `made`, which `compute(base)` gave as a copy, show memory of `base` instead, where its values are too."""
    if isinstance(array, np.ndarray):
        array.flags.writeable = base.array.flags.writeable
    made.array = array
    made.alias_of(base)
    if not MODE.get().grad:
        made._origin = made._origin or "no_grad"
    if made._recorded is not None and made._recorded.active():
        made._recorded.version = made.version
        made._recorded.how = (lambda source, outputs: compute(source)), (base,), {}, 1, 0


def apart(made: Tensor, x: Tensor) -> Tensor:
    """`made`, computed from `x`, in memory of its own: for what PyTorch gives as a copy and an operator as a view, or
    as `x` itself."""
    if made is x:
        return x.clone()
    if made._base is not None:
        made.array = made.array.copy()
        made._base, made._origin, made._version = None, None, [made.version, ""]
    return made


# -- in eager code: nodes that know places ---------------------------------------------------------------------------


class CopySlices(HandMade):
    """The root after a write to part of it: the root before, with `value` at some places."""

    op = SimpleNamespace(name="CopySlices", single_output=False)

    def __init__(self, root: Tensor, part: Part | np.ndarray[Any, Any], value: Any) -> None:
        self.shape, self.part, self.value_shape = root._stored_shape, part, value.shape
        self.tracked = root.node is not None, value.node is not None
        self.connect([x for x in (root, value) if x.node is not None])

    def name(self) -> str:
        return "CopySlices"

    def rule(self, g: Tensor) -> list[Tensor]:
        places, flat = _flat_places(self.part, g), reshape_to(g, [-1])
        found = []
        if self.tracked[0]:
            kept = OPS["ScatterElements"](flat, places, zeros(places.array.shape, g), axis=0)
            found.append(reshape_to(kept, self.shape))
        if self.tracked[1]:
            found.append(reshape_to(OPS["GatherElements"](flat, places, axis=0), self.value_shape))
        return found


class AsStrided(HandMade):
    """A view, made anew from its root after a write."""

    op = SimpleNamespace(name="AsStrided", single_output=False)

    def __init__(self, root: Tensor, part: Part) -> None:
        self.shape, self.part = root._stored_shape, part
        self.connect([root])

    def rule(self, g: Tensor) -> list[Tensor]:
        count: Any = 1
        for size in self.shape:
            count = count * size
        places = _flat_places(self.part, g)
        spread = OPS["ScatterElements"](zeros([count], g), places, reshape_to(g, [-1]), axis=0, reduction="add")
        return [reshape_to(spread, self.shape)]


class Overwritten(HandMade):
    """A tensor that was filled with values which nothing is differentiated by: its past has a gradient of zeros."""

    op = SimpleNamespace(name="Overwritten", single_output=False)

    def __init__(self, before: Tensor) -> None:
        self.connect([before])

    def rule(self, g: Tensor) -> list[Tensor]:
        return [zeros(g.shape, g)]


def _flat_places(part: Part | np.ndarray[Any, Any], like: Tensor) -> Tensor:
    places = part.places() if isinstance(part, Part) else part
    return beside(operator.as_input(places.reshape(-1)), like)


def follow(target: Tensor, value: Any, places: np.ndarray[Any, Any] | None = None) -> None:
    """After a write that a gradient follows: `target`, or its root's elements `places`, now are `value`.

    `value` needs a node, a port and a shape only.
    """
    root = target if target._base is None else target._base
    part: Any = places
    if part is None and root is not target:
        part = part_of(target.array, root.array)
        if part is None:  # it has memory of its own by now
            target._base, target._origin, root = None, None, target
    if part is None:
        _rebind(target, value if value.node is not None else _of(Overwritten(target)))
    else:
        _rebind(root, _of(CopySlices(root, part, value)))
    for view in alive(root):
        if not isinstance(view.node, Leaf) and view._origin != "no_grad":
            own = part_of(view.array, root.array)
            if own is None:
                view._base = view._origin = None
            else:
                _rebind(view, _of(AsStrided(root, own)))


def passed_on(x: Tensor, node: HandMade, port: int) -> Tensor:
    """`x` behind a node that only hands it on: the same memory, to which a followed write is refused."""
    other = x.attached(node, port)
    other._base, other._origin = x if x._base is None else x._base, "function"
    return other


def _of(node: HandMade) -> Any:
    return SimpleNamespace(node=node, port=0)


def _rebind(tensor: Tensor, made: Any) -> None:
    """The tensor's history is another one now; if it keeps its gradient, it keeps that of the new value."""
    before = tensor.node
    tensor.node, tensor.port = made.node, made.port
    if tensor._retain:
        from ox.autograd.hooks import move_retained

        move_retained(tensor, before)


# -- in a recording: the view operators again ------------------------------------------------------------------------


def numbers(x: Tensor) -> Tensor:
    """For each element its number in row-major order, int64; recorded."""
    count: Any = 1
    for size in x._stored_shape:
        count = count * size
    end = OPS["Reshape"](count.tensor, size_tensor([])) if isinstance(count, Dim) else _whole(count)
    return reshape_to(OPS["Range"](_whole(0), end, _whole(1)), x._stored_shape)


def _whole(value: int) -> Tensor:
    return operator.as_input(np.asarray(value, np.int64))


def again(view: Tensor, root: Tensor, replacement: Tensor) -> Tensor | None:
    """`view` as it would have been made from `replacement`, in place of its root; None when nobody knows how."""
    if view is root:
        return replacement
    how = None if view._recorded is None or not view._recorded.active() else view._recorded.how
    if how is None:
        part = part_of(view.array, root.array)
        if part is None or any(isinstance(size, Dim) for size in root._stored_shape):
            return None
        places = beside(operator.as_input(part.places()), replacement)
        return OPS["Gather"](reshape_to(replacement, [-1]), places, axis=0)
    op, inputs, attributes, outputs, port = how
    source = again(inputs[0], root, replacement)
    if source is None:
        return None
    made = op(source, *inputs[1:], outputs=outputs, **attributes)
    return made[port] if isinstance(made, tuple) else made  # type: ignore[no-any-return]


def written(root: Tensor, places: Tensor, value: Tensor) -> Tensor:
    """The root's new value: `value` at `places`, written by ScatterElements without a reduction."""
    flat = OPS["ScatterElements"](reshape_to(root, [-1]), reshape_to(places, [-1]), reshape_to(value, [-1]), axis=0)
    return reshape_to(flat, root._stored_shape)


def unknown(where: str) -> RecordError:
    return RecordError(
        "a write through a view of which the recording does not know how it was made",
        where=where,
        hint="the out-of-place form",
    )


def remake(root: Tensor, fresh: Tensor, recording: Any, followed: bool) -> None:
    """Once memory is written: the root and its living views are what they are in a graph where the root is `fresh`."""
    views = [(view, again(view, root, fresh)) for view in alive(root)]
    for tensor, made in [(root, fresh), *views]:
        if made is not None:
            recording.alias(tensor, made)
            if followed and not isinstance(tensor.node, Leaf) and tensor._origin != "no_grad":
                _rebind(tensor, made if made.node is not None or tensor.node is None else _of(Overwritten(tensor)))
