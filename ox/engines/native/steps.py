"""Steps of an executable: each reads arrays from slots and puts arrays into slots."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ox.engines.native.calls import Array, KernelCall, TensorCall

Slots = list[Array]


class Step(Protocol):
    """One piece of work."""

    def __call__(self, slots: Slots) -> None: ...


class NodeStep:
    """A node through its own kernel."""

    __slots__ = ("call", "over", "reads", "writes")

    def __init__(
        self, call: KernelCall | TensorCall, reads: tuple[int, ...], writes: tuple[int, ...], over: tuple[int, ...]
    ) -> None:
        """
        Args:
            reads, writes: slots of the inputs and outputs.
            over: slots that nothing reads any more.
        """
        self.call, self.reads, self.writes, self.over = call, reads, writes, over

    def __call__(self, slots: Slots) -> None:
        for slot, result in zip(self.writes, self.call.results([slots[i] for i in self.reads]), strict=False):
            slots[slot] = result
        for slot in self.over:
            slots[slot] = None


class CopyStep:
    """A copy of an array that is about to be overwritten."""

    __slots__ = ("source", "target")

    def __init__(self, source: int, target: int) -> None:
        self.source, self.target = source, target

    def __call__(self, slots: Slots) -> None:
        slots[self.target] = slots[self.source].copy()


class WriteStep:
    """The next value of a state, over the old one."""

    __slots__ = ("source", "state")

    def __init__(self, source: int, state: int) -> None:
        self.source, self.state = source, state

    def __call__(self, slots: Slots) -> None:
        if slots[self.source] is not slots[self.state]:
            np.copyto(slots[self.state], slots[self.source], casting="no")
