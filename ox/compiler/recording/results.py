"""What each tensor of a result is to the recording: an output of the graph, an argument, a gradient, or state."""

from __future__ import annotations

from typing import Any

from ox.compiler.recording.capture import Capture, External
from ox.compiler.recording.escaped_tensors import is_freed
from ox.compiler.recording.gradients import Gradient
from ox.compiler.recording.guard_source import attributes_of
from ox.core.node import Leaf, Node


def differentiable_of(capture: Capture, leaves: list[Any], start: int) -> list[bool]:
    """Which results are differentiated through the recording: made inside, with a history that is not freed."""
    found = []
    # the walk that records the gradient would add to what it retains, beside the user's own backward
    if any(t is not None and t._retain and _is_own(t, start) for t in (made() for made in capture.made)):
        capture.give_up("retain_grad() is called inside", "")
    for y in leaves:
        if capture.is_made(y) and not _is_known(capture, y) and attributes_of(y):
            capture.give_up(f"the attribute '{next(iter(attributes_of(y)))}' of a result is set", "")
        own = _is_own(y, start)
        if capture.is_made(y) and isinstance(y.node, Leaf) and not _is_known(capture, y):
            capture.give_up("a leaf that requires a gradient is made inside", "")
        found.append(own and capture.is_made(y) and not _is_known(capture, y) and not is_freed(y, start))
    return found


def _is_own(tensor: Any, start: int) -> bool:
    """Whether the recorded call gave a tensor its history."""
    return isinstance(tensor.node, Node) and tensor.node.sequence >= start


def _is_known(capture: Capture, y: Any) -> bool:
    """Whether a result is an argument or a tensor from outside, itself."""
    return any(y is t for external in (*capture.arguments, *capture.externals.values()) for t in external.tensors)


def results_of(
    capture: Capture,
    leaves: list[Any],
    differentiable: list[bool],
    start: int,
    grads: list[Gradient],
    fresh: dict[int, External],
) -> list[tuple[Any, ...]]:
    """`Trace.results`. Gives up for what no graph can give."""
    found: list[tuple[Any, ...]] = []
    arguments = [external.tensors[0] for external in capture.arguments]
    roots: list[Any] = []
    for y, wanted in zip(leaves, differentiable, strict=True):
        number = next((i for i, t in enumerate(arguments) if t is y), None)
        if number is not None:
            found.append(("argument", number))
            continue
        number = next((i for i, g in enumerate(grads) if g.tensor._grad is y), None) if y.node is None else None
        if number is not None:
            found.append(("grad", number))
            continue
        if id(y) in fresh:
            found.append(("output", fresh[id(y)].value, False))
            continue
        known = next((e for e in capture.externals.values() if any(t is y for t in e.tensors)), None)
        if known is not None or not capture.is_made(y):
            found.append(("external", (known or capture.external(y, read=True)).value))
            continue
        if y._base is not None and (not capture.is_made(y._base) or _is_known(capture, y._base)):
            capture.give_up("a result is a view of a tensor that the call did not make", "")
        if y._base is not None:
            if any(y._base is root for root in roots):
                capture.give_up("two results share memory", "")
            roots.append(y._base)
        value = capture.value(y)
        known = next((e for e in (*capture.arguments, *capture.externals.values()) if e.array is y.array), None)
        if known is not None and known.tensors:
            capture.give_up("a result shares the memory of a tensor that the call did not make", "")
        freed = isinstance(y.node, Node) and not wanted
        found.append(("freed", value) if freed else ("output", value, wanted))
    if any(any(y is root for root in roots) for y in leaves):
        capture.give_up("two results share memory", "")
    return found
