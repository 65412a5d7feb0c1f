"""Leaves whose gradient somebody waits for: it is handed over as soon as it is whole, while the walk goes on.

The last node of a walk that leads to such a leaf is known before the walk begins. The leaf takes its place in the order
right behind that node.
"""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from ox.autograd.accumulation import accumulate, accumulating, owner, run_hooks_of_accumulation
from ox.ops.node import Leaf

if TYPE_CHECKING:
    from ox.tensor import Tensor


class Follower(Protocol):
    """What is told of every backward that fills `.grad`."""

    def starts(self, leaves: Collection[Leaf], create_graph: bool) -> None:
        """Before the walk: the leaves with hooks of accumulation that it can reach."""

    def ends(self, failed: bool) -> None:
        """When every gradient is there, or when the backward raised."""


awaited: weakref.WeakSet[Leaf] = weakref.WeakSet()  # leaves that ever had a hook of accumulation
_followers: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
_numbers = count()


def follow(follower: Follower) -> None:
    """Tell `follower` of every backward for as long as it lives. Those who came first are told first, which is the same
    order in every process of a program."""
    _followers[next(_numbers)] = follower


class Arrivals:
    """The leaves of one backward that are handed over early."""

    def __init__(self, cotangents: Iterable[Tensor | None], create_graph: bool) -> None:
        self.create_graph = create_graph
        self.followers = list(_followers.values())
        self.given = {id(owner(g.array)) for g in cotangents if g is not None and hasattr(g, "node")}

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, *_: object) -> None:
        """Tell every follower of the end, whatever one of them raises."""
        raised: BaseException | None = None
        for follower in self.followers:
            try:
                follower.ends(kind is not None)
            except BaseException as error:
                raised = raised or error
        try:
            if raised is not None:
                raise raised
        finally:
            del raised  # or it would hold this frame, and the frame it

    def placed(self, order: list[Any]) -> list[Any]:
        """The order with those leaves in it, each behind the last node that leads to it."""
        last: dict[Any, Any] = {}
        if awaited:
            for node in order:
                for source in node.inputs:
                    if source.sequence < 0 and source.after:
                        last[source] = node
        self.starts(last)
        if not last:
            return order
        behind: dict[Any, list[Any]] = {}
        for leaf, node in last.items():
            behind.setdefault(node, []).append(leaf)
        return [each for node in order for each in (node, *behind.get(node, ()))]

    def starts(self, leaves: Collection[Leaf]) -> None:
        for follower in self.followers:
            follower.starts(leaves, self.create_graph)

    def arrived(self, leaf: Leaf, g: Tensor, pending: Iterable[Tensor]) -> None:
        tensor = leaf.tensor()
        if tensor is None:
            return
        # a gradient that is still on its way elsewhere must not be the memory that hooks may write to
        elsewhere = {id(owner(x.array)) for x in pending if not x.is_sparse}
        with accumulating:
            accumulate(tensor, g, self.given | elsewhere)
        run_hooks_of_accumulation(tensor, leaf, g)
