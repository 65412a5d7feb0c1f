"""The gradients that a recorded call left in its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ox.compiler.recording.call_watch import CallWatch
from ox.compiler.recording.capture import COMPUTED, Capture
from ox.compiler.recording.guards import PythonState
from ox.compiler.recording.undo import grads_before
from ox.core.node import Leaf
from ox.graph.ir import Value
from ox.tensors.tensor import Tensor


@dataclass(eq=False)
class Gradient:
    """What a call sets the gradient of a tensor to.

    Attributes:
        value: None where it is removed.
        adds: whether it is added to a gradient that is there at the beginning of a later call.
    """

    tensor: Tensor
    value: Value | None
    adds: bool


@dataclass(eq=False)
class Gradients:
    """The gradients that a call set.

    Attributes:
        before: what each tensor had.
        guarded: the tensors of which the call depends on whether they have a gradient at the beginning: that they have
            none, or have one.
    """

    changed: list[Gradient]
    before: list[tuple[Tensor, Any]]
    guarded: list[tuple[Tensor, bool]]


def gradients_of(capture: Capture, state: PythonState, watch: CallWatch) -> Gradients:
    """What the recorded call did to gradients; gives up for what no graph repeats.

    Where nobody looked for a gradient before the call set it, none has to be there, or be missing: it is forgotten if
    the code set another one, and added to if only a backward did.
    """
    found = Gradients([], [], [])
    for tensor, grad in grads_before(capture, state).values():
        now, seen, first_set = tensor._grad, id(tensor) in watch.gradients_read, capture.grads.get(id(tensor))
        overwritten = not seen and first_set is not None and first_set[1] is not COMPUTED
        adds = not seen and first_set is None and grad is None and now is not grad
        if not (overwritten or adds) and (seen or first_set is not None or now is not grad):
            found.guarded.append((tensor, grad is None))
        if now is grad and not (overwritten and now is None):
            continue
        leaf = tensor.node
        if isinstance(leaf, Leaf) and (leaf.hooks or leaf.after):
            capture.give_up("a tensor whose gradient is computed inside has hooks", "")
        if now is not None and not capture.is_made(now):
            capture.give_up("a gradient is set to a tensor that no operator made", "")
            continue
        found.before.append((tensor, grad))
        found.changed.append(Gradient(tensor, None if now is None else capture.value(now), adds))
    return found
