"""Tensors that share memory: views, shallow copies, version counters, and in-place writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from numpy import ndarray

from ox.call_site import line_at, users_place
from ox.core import operator, views
from ox.core.copy_on_write import before_write
from ox.core.memory_format import layout
from ox.core.mode import MODE, cannot_record
from ox.core.node import Leaf, Node
from ox.core.tensor import TensorBase
from ox.devices import cpu, cuda, cuda_state
from ox.errors import ArgumentError, GradientError
from ox.tensors.slice_assignment import written_through

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

new = object.__new__

# origins of views that must not be written under autograd, and the error texts
_REFUSED = {
    "no_grad": "a view that was made under no_grad, and so without a history",
    "several": "a view that was made as one of several (split, chunk, unbind), which share one history",
    "function": "what a custom Function or a hooked module passed through, of which the input is still in use",
}


class Aliases(TensorBase):
    """Mixed into `ox.Tensor`."""

    @property
    def version(self) -> int:
        """How often its memory was written in place."""
        return 0 if self._writes is None else self._writes[0]

    @property
    def _version(self) -> int:
        """PyTorch's name for `version`."""
        return self.version

    def _shared_version(self) -> list[Any]:
        if self._writes is None:
            self._writes = [0, ""]
        return self._writes

    def last_write(self) -> str:
        """The operation and line that last wrote in place."""
        if not self._writes:
            return "nobody"
        by = self._writes[1]
        return by if type(by) is str else f"{by[0]}, {line_at(by[1])}"

    def alias_of(self, base: Tensor) -> None:
        """Called on the output of a view operator: registers it as a view of the root, if it shares its memory."""
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
            root._viewed = [views.FIRST_PRUNE, ref(self)]
        else:
            viewed.append(ref(self))
            if len(viewed) > viewed[0]:
                views.prune(viewed)
        version = root._writes
        if version is None:
            version = root._writes = [0, ""]
        self._writes = version

    def shallow_copy(self) -> Tensor:
        """The same value and memory without its history. A node saves its output so, to avoid a reference cycle."""
        other = new(operator.tensor_class)
        other.array = self.array
        version = self._writes
        if version is None:
            version = self._writes = [0, ""]
        other._writes = version
        recorded = self._recorded
        if recorded is not None:
            other._recorded = recorded
            recorded.recording.on_copy(other)
        return other

    def with_history(self, node: Node, port: int) -> Tensor:
        """A shallow copy with a history, for a differentiable backward."""
        other = self.shallow_copy()
        other.node, other.port = node, port
        return other

    def detach(self: Any) -> Tensor:
        """The same memory, outside the graph: a write is seen both ways, and no gradient follows it back."""
        return self.shallow_copy()

    def assign(self: Any, result: Tensor, operation: str) -> Tensor:
        """Make this tensor hold `result`; every in-place operation goes through here.

        Memory is written, so views and shared NumPy arrays see it, and the version counts up, so a backward that
        needed the old value is an error. Where a gradient or a recording follows, this tensor, the one whose view it
        is, and all other views of that memory get the history of their new values.

        Raises:
            GradientError: a leaf that requires a gradient or a view of one; a view made under no_grad or as one of
                several.
            ArgumentError: another shape, or an expanded tensor.
        """
        mode = MODE.get()
        followed = mode.grad and (self.node is not None or result.node is not None or self._views_differentiable())
        if result.static_shape != self.static_shape:
            raise ArgumentError(
                f"{operation} cannot change a shape in place",
                expected=str(list(self.static_shape)),
                got=str(list(result.static_shape)),
                hint="the out-of-place form",
            )
        if result.array.dtype != self.array.dtype:
            result = result.to(self.array.dtype)
        if followed:
            self._refuse_write(operation)
            if isinstance(result.node, Node):
                self._copy_saved_before_write(result.node)
        self.ensure_writable(operation)
        fresh = None
        if mode.recording is not None and (self._base is not None or views.living_views(self)):
            root = self if self._base is None else self._base
            fresh = result if root is self else self._recorded_write(root, result)  # None: it cannot be recorded
        array = result.array
        if isinstance(array, ndarray) is not isinstance(self.array, ndarray) or (
            cuda_state.several and self.device != result.device
        ):  # from one device to the other
            array = cpu(array) if isinstance(self.array, ndarray) else cuda.to_device(array, self.device)
        with cuda_state.at(self.array):
            self.array[...] = array
        self.count_write(operation)
        if fresh is not None:
            views.update_recording(root, fresh, mode.recording, followed)
        elif mode.recording is not None:
            mode.recording.alias(self, result)
        if followed and fresh is None:
            if self._base is None and self._viewed is None and result.node is not None and not self._retain:
                self.node, self.port = result.node, result.port
            else:
                views.update_history(self, result)
        return self

    def _recorded_write(self: Any, root: Tensor, result: Tensor) -> Tensor | None:
        """In a recording: the root with `result` at the places that this view shows."""
        fresh = written_through(self, root, result)
        if fresh is not None:
            return fresh
        places = views.recompute_view(self, root, views.element_numbers(root))
        if places is None:
            cannot_record(views.unknown_view_error())
            return None
        return views.write_elements(root, places, result)

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
        raise GradientError(f"{operation} writes in place to {what}", hint=hint)

    def _views_differentiable(self) -> bool:
        """Whether this is a view of a tensor with a history, even if it has no history itself."""
        return self._base is not None and self._base.node is not None

    def _copy_saved_before_write(self, node: Node) -> None:
        """Before the result of `node` overwrites this tensor: copy what the gradient of `node` saved of it."""
        if type(node.saved) is not list:
            return
        for saved in [node.saved, *(kept for kept in node.saved if type(kept) is list)]:
            for i, kept in enumerate(saved):
                if type(kept) is not tuple or not kept:
                    continue
                if hasattr(kept[0], "copy_before_write"):
                    kept[0].copy_before_write(self)
                elif kept[0] is self:
                    old = self.shallow_copy()
                    old.array, old._writes, old.node, old.port = (
                        cuda_state.copy(self.array),
                        None,
                        self.node,
                        self.port,
                    )
                    saved[i] = (old, 0)

    def ensure_writable(self: Any, operation: str) -> None:
        """Before a write: refuse memory that several elements share, and where it is read-only take a copy that no
        one else sees. Raises ArgumentError for an expanded view."""
        array = self.array
        if isinstance(array, ndarray) and array.flags.writeable:
            return
        if self._base is not None and layout(array).overlaps():
            raise ArgumentError(
                f"{operation} writes in place to an expanded tensor, of which several elements share one memory",
                hint=".clone() before the write",
            )
        if isinstance(array, ndarray) and not before_write(array):
            self.array, self._writes = cuda_state.copy(array), [self.version, ""]
            self._base = self._viewed = self._origin = None

    def count_write(self, operation: str) -> None:
        """After a write: increase the version counter, and note the operation and the line for errors."""
        version = self._shared_version()
        version[0] += 1
        version[1] = operation, users_place()  # the text of the line is read on demand
