"""Accumulates the gradient of a leaf with hooks as soon as it is complete, while backward is still running.

The last node of a walk that leads to such a leaf is known before the walk begins. The leaf takes its place in the order
right behind that node.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable
from itertools import count
from typing import Any, Protocol

from ox.autograd.accumulate_grad import accumulate, accumulating, owner, run_hooks_of_accumulation
from ox.core.node import Leaf
from ox.core.tensor import TensorBase


class BackwardObserver(Protocol):
    """Is notified of every backward that fills `.grad`, such as the reducer of DistributedDataParallel."""

    def on_start(self, leaves: Collection[Leaf], nodes: Collection[Any], create_graph: bool) -> None:
        """Before the walk: the leaves with hooks of accumulation and the nodes that it can reach."""

    def on_end(self, failed: bool) -> None:
        """When every gradient is there, or when the backward raised."""


leaves_with_hooks: weakref.WeakSet[Leaf] = weakref.WeakSet()  # leaves that ever had a hook of accumulation
_observers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = count()


def add_observer(follower: BackwardObserver) -> None:
    """Notify an observer of every backward while it is alive, in the order of registration: the same in every rank."""
    _observers[next(_numbers)] = follower


def someone_waits() -> bool:
    """Whether a backward may have to hand over gradients before it ends, or to notify an observer."""
    return bool(leaves_with_hooks or _observers)


class ReadyGradients:
    """The leaves of one backward whose gradients are accumulated before it ends."""

    def __init__(self, user_memory: set[int], create_graph: bool) -> None:
        self.user_memory, self.create_graph = user_memory, create_graph
        self.followers = list(_observers.values())
        self.started: list[Any] = []  # the followers whose on_start was called

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        """Call every follower that was called at the start, even if one of them raises."""
        raised: BaseException | None = None
        for follower in self.started:
            try:
                follower.on_end(kind is not None)
            except BaseException as error:
                raised = raised or error
        try:
            if raised is not None:
                raise raised
        finally:
            del raised  # or it would hold this frame, and the frame it

    def insert_leaves(self, order: list[Any]) -> list[Any]:
        """The order with those leaves in it, each behind the last node that leads to it."""
        last: dict[Any, Any] = {}
        if leaves_with_hooks:
            for node in order:
                for source in node.inputs:
                    if source.sequence < 0 and source.after:
                        last[source] = node
        self.on_start(last, order)
        if not last:
            return order
        behind: dict[Any, list[Any]] = {}
        for leaf, node in last.items():
            behind.setdefault(node, []).append(leaf)
        return [each for node in order for each in (node, *behind.get(node, ()))]

    def on_start(self, leaves: Collection[Leaf], nodes: Collection[Any]) -> None:
        for follower in self.followers:
            self.started.append(follower)
            follower.on_start(leaves, nodes, self.create_graph)

    def deliver(self, leaf: Leaf, g: TensorBase, pending: Iterable[TensorBase]) -> None:
        tensor = leaf.tensor()
        if tensor is None:
            return
        # a gradient that is still on its way elsewhere must not be the memory that hooks may write to
        elsewhere = {id(owner(x.array)) for x in pending if not x.is_sparse}
        with accumulating:
            accumulate(tensor, g, self.user_memory | elsewhere)
        run_hooks_of_accumulation(tensor, leaf, g)
