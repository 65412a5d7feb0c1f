"""Tensors that share memory: views, twins, version counters, and the one way to write in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from numpy import ndarray

from ox import views
from ox.errors import ArgumentError, GradientError
from ox.memory import layout
from ox.ops import operator
from ox.ops.mode import MODE
from ox.ops.node import Leaf, Node
from ox.where import line_at, users_line, users_place

if TYPE_CHECKING:
    from ox.tensor import Tensor

new = object.__new__

# how a view came about that must not be written where a gradient follows, and what to say of it
_REFUSED = {
    "no_grad": "a view that was made under no_grad, and so without a history",
    "several": "a view that was made as one of several (split, chunk, unbind), which share one history",
    "function": "what a custom Function or a hooked module passed through, of which the input is still in use",
}


class Aliases:
    """Mixed into `ox.Tensor`."""

    array: Any
    node: Node | Leaf | None
    port: int
    _version: list[Any] | None
    _base: Any
    _viewed: list[Any] | None
    _origin: str | None
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
        if not self._version:
            return "nobody"
        by = self._version[1]
        return by if type(by) is str else f"{by[0]}, {line_at(by[1])}"

    def alias_of(self, base: Tensor) -> None:
        """Called on the output of a view operator: if it is the same memory, join the family of its root."""
        own, other = self.array, base.array
        if own is not other and own.base is not other and (own.base is None or own.base is not other.base):
            return
        root = base._base
        if root is None:
            root = base
        elif base._origin is not None:
            self._origin = base._origin
        self._base = root
        viewed = root._viewed
        if viewed is None:
            root._viewed = [views.MANY, ref(self)]
        else:
            viewed.append(ref(self))
            if len(viewed) > viewed[0]:
                views.prune(viewed)
        version = root._version
        if version is None:
            version = root._version = [0, ""]
        self._version = version

    def twin(self) -> Tensor:
        """The same value and memory without its history: what a node keeps of its own output, lest it hold itself."""
        other = new(operator.tensor_class)
        other.array = self.array
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
        """The same memory, outside the graph: a write is seen both ways, and no gradient follows it back."""
        return self.twin()  # type: ignore[no-any-return]

    def assign(self: Any, result: Tensor, operation: str) -> Tensor:
        """Make this tensor hold `result`: the one way in which anything is written in place.

        Memory is written, so views and shared NumPy arrays see it, and the version counts up, so a backward that
        needed the old value is an error. Where a gradient or a recording follows, this tensor, the one whose view it
        is, and all other views of that memory get the history of their new values.

        Raises:
            GradientError: a leaf that requires a gradient or a view of one; a view made under no_grad or as one of
                several.
            ArgumentError: another shape, or an expanded tensor.
        """
        mode = MODE.get()
        followed = mode.grad and (self.node is not None or result.node is not None or self._shows_followed())
        if result.array.shape != self.array.shape:
            raise ArgumentError(
                f"{operation} cannot change a shape in place",
                where=users_line(2),
                expected=str(list(self.array.shape)),
                got=str(list(result.array.shape)),
                hint="the out-of-place form",
            )
        if result.array.dtype != self.array.dtype:
            result = result.to(self.array.dtype)
        if followed:
            self._refuse_write(operation)
            if isinstance(result.node, Node):
                self._keep_old(result.node)
        self.own_memory(operation)
        fresh = None
        if mode.recording is not None and (self._base is not None or views.alive(self)):
            root = self if self._base is None else self._base
            fresh = result if root is self else self._written_root(root, result)
        self.array[...] = result.array
        self.wrote(operation)
        if fresh is not None:
            views.remake(root, fresh, mode.recording, followed)
        elif mode.recording is not None:
            mode.recording.alias(self, result)
        if followed and fresh is None:
            if self._base is None and self._viewed is None and result.node is not None and not self._retain:
                self.node, self.port = result.node, result.port
            else:
                views.follow(self, result)
        return self  # type: ignore[no-any-return]

    def _written_root(self: Any, root: Tensor, result: Tensor) -> Tensor:
        """In a recording: the root with `result` at the places that this view shows."""
        places = views.again(self, root, views.numbers(root))
        if places is None:
            raise views.unknown(users_line(3))
        return views.written(root, places, result)

    def _refuse_write(self: Any, operation: str) -> None:
        """Raise GradientError if a gradient cannot follow a write here."""
        hint = "with ox.no_grad(): ..., or the out-of-place form"
        if isinstance(self.node, Leaf):
            what = "a leaf that requires a gradient"
        elif self._origin is not None and self._base is not None:
            what, hint = _REFUSED[self._origin], "the out-of-place form, or a .clone() before the write"
        elif self._base is not None and isinstance(self._base.node, Leaf):
            what = "a view of a leaf that requires a gradient"
        else:
            return
        raise GradientError(f"{operation} writes in place to {what}", where=users_line(3), hint=hint)

    def _shows_followed(self) -> bool:
        """Whether this is a view of what a gradient follows, though it may have no history of its own."""
        return self._base is not None and self._base.node is not None

    def _keep_old(self, node: Node) -> None:
        """Before `node`, which was computed from this tensor, overwrites it: a copy of what its gradient needs."""
        if type(node.saved) is not list:
            return
        for saved in [node.saved, *(kept for kept in node.saved if type(kept) is list)]:
            for i, kept in enumerate(saved):
                if type(kept) is not tuple or not kept:
                    continue
                if hasattr(kept[0], "keep_old"):
                    kept[0].keep_old(self)
                elif kept[0] is self:
                    old = self.twin()
                    old.array, old._version, old.node, old.port = self.array.copy(), None, self.node, self.port
                    saved[i] = (old, 0)

    def own_memory(self: Any, operation: str) -> None:
        """Before a write: refuse memory that several elements share, and where it is read-only take a copy that no
        one else sees. Raises ArgumentError for an expanded view."""
        array = self.array
        if isinstance(array, ndarray) and array.flags.writeable:
            return
        if self._base is not None and layout(array).overlaps():
            raise ArgumentError(
                f"{operation} writes in place to an expanded tensor, of which several elements share one memory",
                where=users_line(3),
                hint=".clone() before the write",
            )
        if isinstance(array, ndarray):
            self.array, self._version = array.copy(), [self.version, ""]
            self._base = self._viewed = self._origin = None

    def wrote(self, operation: str) -> None:
        """After a write: count it, and remember who it was."""
        version = self._shared_version()
        version[0] += 1
        version[1] = operation, users_place(2)  # the text of the line is read when somebody asks
