"""What a recorded call did to tensors, undone."""

from __future__ import annotations

from typing import Any

from ox.compiler.recording.capture import COMPUTED, Capture
from ox.compiler.recording.guards import PythonState
from ox.graph.ir import Value
from ox.tensors.tensor import Tensor


def grads_before(capture: Capture, state: PythonState) -> dict[int, tuple[Tensor, Any]]:
    """The tensors that the call can have given gradients, with those that they had."""
    before = {number: known for number, known in capture.grads.items() if known[1] is not COMPUTED}
    for places in state.tensors.values():
        tensor = places[0].value
        before.setdefault(id(tensor), (tensor, state.grads[id(tensor)]))
    for external in (*capture.arguments, *capture.externals.values()):
        for tensor, grad in zip(external.tensors, external.grads, strict=True):
            before.setdefault(id(tensor), (tensor, grad))
    return before


def restore_all(capture: Capture, written: set[Value], grads: list[tuple[Tensor, Any]]) -> None:
    """Give written memory, generators and gradients what they had."""
    for external in (*capture.arguments, *capture.externals.values()):
        if external.value in written and external.copy is not None:
            external.array[...] = external.copy
    for generator, _, counter in capture.random.values():
        generator.counter = counter
    for tensor, grad in grads:
        tensor._grad = grad


def undo_all(capture: Capture, state: PythonState) -> None:
    """Let a call that fails, for it cannot be recorded, leave tensors, gradients and optimizers as they were."""
    externals = (*capture.arguments, *capture.externals.values())
    written = {e.value for e in externals if capture.current(e) is not e.value}
    restore_all(capture, written, list(grads_before(capture, state).values()))
    for held, keys in state.optimizers:
        for key in held.keys() - keys:
            del held[key]
