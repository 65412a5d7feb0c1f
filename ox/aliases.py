"""Tensors that share memory: views, twins, version counters, and the one way to write in place."""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING, Any

from numpy import ndarray

from ox.errors import ArgumentError, GradientError
from ox.ops import operator
from ox.ops.mode import MODE
from ox.ops.node import Leaf, Node
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

new = object.__new__


class Aliases:
    """Mixed into `ox.Tensor`."""

    data: Any
    node: Node | Leaf | None
    port: int
    _version: list[Any] | None
    _base: Any
    _viewed: Any
    _recorded: Any

    @property
    def version(self) -> int:
        """How often its memory was written in place."""
        return 0 if self._version is None else self._version[0]

    def _shared_version(self) -> list[Any]:
        if self._version is None:
            self._version = [0, ""]
        return self._version

    def last_write(self) -> str:
        """The operation and line that last wrote in place."""
        return self._version[1] if self._version else "nobody"

    def alias_of(self, base: Tensor) -> None:
        """Called on the output of a view operator: share the version of the memory if it is the same memory."""
        own, other = self.data, base.data
        if own is not other and own.base is not other and (own.base is None or own.base is not other.base):
            return
        root = base if base._base is None else base._base
        self._base = root
        if root._viewed is None:
            root._viewed = []
        self._viewed = root._viewed
        self._version = root._shared_version()

    def twin(self) -> Tensor:
        """The same value and memory without its history: what a node keeps of its own output, lest it hold itself."""
        other = new(operator.tensor_class)
        other.data = self.data
        version = self._version
        if version is None:
            version = self._version = [0, ""]
        other._version = version
        if self._recorded is not None:
            other._recorded = self._recorded
        return other

    def attached(self, node: Node, port: int) -> Tensor:
        """A twin with its history back, for a differentiable backward."""
        other = self.twin()
        other.node, other.port = node, port
        return other

    def detach(self: Any) -> Tensor:
        """The same memory, outside the graph."""
        other: Tensor = self.twin()
        other._base = self if self._base is None else self._base
        return other

    def assign(self: Any, result: Tensor, operation: str) -> Tensor:
        """Make this tensor hold `result`: the one way in which anything is written in place.

        Memory is written, so views and shared NumPy arrays see it, and the version counts up, so a backward that
        needed the old value is an error, and so is reading a view from before in a recording. Where a gradient
        follows, the name is rebound to the result, which a view cannot be.

        Raises:
            GradientError: a leaf that requires a gradient, or a view that a gradient follows.
        """
        mode = MODE.get()
        followed = mode.grad and (self.node is not None or result.node is not None)
        if result.data.shape != self.data.shape:
            raise ArgumentError(
                f"{operation} cannot change a shape in place",
                where=users_line(2),
                expected=str(list(self.data.shape)),
                got=str(list(result.data.shape)),
                hint="the out-of-place form",
            )
        if result.data.dtype != self.data.dtype:
            result = result.to(self.data.dtype)
        if followed and isinstance(self.node, Leaf):
            raise GradientError(
                f"{operation} writes in place to a leaf that requires a gradient",
                where=users_line(2),
                hint="with ox.no_grad(): ..., or the out-of-place form",
            )
        if followed and self._is_seen_elsewhere():
            raise GradientError(
                f"{operation} writes in place to memory that other tensors are views of, which a graph cannot follow",
                where=users_line(2),
                hint="the out-of-place form (for a part, x[i] = x[i] + y), or .clone() before the write",
            )
        if followed and isinstance(result.node, Node):
            self._keep_old(result.node)
        self.own_memory()
        self.data[...] = result.data
        self.wrote(operation)
        if mode.recording is not None:
            mode.recording.alias(self, result)
        if followed:
            self.node, self.port = result.node, result.port
        return self  # type: ignore[no-any-return]

    def _is_seen_elsewhere(self) -> bool:
        """Whether a tensor that is still alive is a view of this memory, or this one is a view of such a tensor."""
        if self._viewed is None:
            return self._base is not None  # detached
        # the call itself holds one reference
        if self._base is None:
            return getrefcount(self._viewed) > 2
        return getrefcount(self._viewed) > 3 or getrefcount(self._base) > 2

    def _keep_old(self, node: Node) -> None:
        """Before `node`, which was computed from this tensor, overwrites it: a copy of what its gradient needs."""
        for saved in [node.saved, *(kept for kept in node.saved if type(kept) is list)]:
            for i, kept in enumerate(saved):
                if type(kept) is tuple and kept and kept[0] is self:
                    old = self.twin()
                    old.data, old._version, old.node, old.port = self.data.copy(), None, self.node, self.port
                    saved[i] = (old, 0)

    def own_memory(self) -> None:
        """Before a write: where the memory is read-only (an expanded view, say) take a copy that no one else sees."""
        if isinstance(self.data, ndarray) and not self.data.flags.writeable:
            self.data, self._version = self.data.copy(), [self.version, ""]
            self._base = self._viewed = None

    def wrote(self, operation: str) -> None:
        """After a write: count it, and remember who it was."""
        version = self._shared_version()
        version[0] += 1
        version[1] = f"{operation}, {users_line(2)}"
