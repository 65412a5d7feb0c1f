"""Branches and loops (`ox.cond`, `ox.while_loop`) in the history of what a recorded call returned."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from ox.core.mode import MODE, switch_mode
from ox.core.node import Node
from ox.graph.record.recording import Recording


class Again(Recording):
    """Of one gradient of a branch or loop."""

    def on_control(self, node: Any) -> None:
        node.__class__ = Resumed  # for a gradient of this one


class Resumed(Node):
    """The node of a branch or loop whose call is over. Its gradient is a branch or loop again, which only a recording
    makes: it has one of its own."""

    def gradients(self, cotangents: list[Any], differentiable: bool) -> list[Any]:
        if MODE.get().recording is not None:
            return super().gradients(cotangents, differentiable)
        with switch_mode(recording=Again()):
            found = super().gradients(cotangents, differentiable)
        for g in found:
            if g is not None:
                g._recorded = None
        return found


def keep_branches(controls: Iterable[Any], inside: list[Any]) -> bool:
    """Let the recordings `inside` of branches and loops live on as long as their nodes, of which `controls` are weak
    references: a backward of the user's may go through them. False where no node is left."""
    nodes = [node for node in (reference() for reference in controls) if node is not None]
    for recording in inside if nodes else ():
        recording.outer = Recording()  # what the call itself recorded is not kept
    left = set(map(id, nodes))
    for node in nodes:
        node.__class__ = Resumed
        weakref.finalize(node, _forget, left, id(node), inside).atexit = False
    return bool(nodes)


def _forget(left: set[int], number: int, inside: list[Any]) -> None:
    left.discard(number)
    if not left:
        for recording in inside:
            recording.forget()
