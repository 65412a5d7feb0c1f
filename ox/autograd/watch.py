"""What is told of every remembered call, where somebody asked: finding anomalies, and packing what is saved.

`Mode.watch` is None in the ordinary course, so the rest of the time neither costs anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ox.dtypes import is_floating
from ox.errors import ArgumentError, GradientError, OxError
from ox.ops.gradient import INPUT, OUTPUT
from ox.ops.mode import switched
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor

Pack = tuple[Callable[[Any], Any], Callable[[Any], Any]]


@dataclass(frozen=True)
class Watch:
    """Args:
    lines: remember which line of the user made each node, and name it in errors of backward.
    check_nan: raise where a gradient becomes NaN.
    hooks: (pack, unpack) for tensors that are saved; None leaves them as they are.
    disabled: why no hooks may be set here.
    """

    lines: bool = False
    check_nan: bool = False
    hooks: Pack | None = None
    disabled: str | None = None

    def made(self, node: Any) -> None:
        """A node was made: note its line, pack what it saved."""
        if self.lines:
            node.where = users_line(3)
        if self.hooks is not None and type(node.saved) is list and node.saved:
            kinds = getattr(node, "keep", None)
            if kinds is None:  # a custom Function's: pairs of what is kept and, of an output, its number
                node.saved = [(self.packed(kept), port) for kept, port in node.saved]
                return
            for k, (kind, i, _) in enumerate(kinds.entries):
                if kind in (INPUT, OUTPUT) and not node.op.schema.input_at(i).host:
                    kept = node.saved[k]
                    node.saved[k] = [self.packed(each) for each in kept] if type(kept) is list else self.packed(kept)

    def packed(self, kept: Any) -> Any:
        if kept is None or self.hooks is None:
            return kept
        tensor = kept[0]
        pack, unpack = self.hooks
        with switched(grad=False):
            seen = tensor.twin()
            version = seen.version
            value = pack(seen)
        if seen.version != version:
            raise GradientError(
                "a pack hook of saved_tensors_hooks wrote its tensor in place", where=users_line(), hint="a .clone()"
            )
        return Packed(value, unpack, tensor), 0

    def gradients(self, node: Any, cotangents: list[Any], differentiable: bool) -> list[Any]:
        """A node's gradients; if that fails, or one is NaN, an error that names the line of its forward."""
        if not self.lines:
            return node.gradients(cotangents, differentiable)  # type: ignore[no-any-return]
        line = node.where or "a line before anomalies were looked for"
        try:
            found: list[Any] = node.gradients(cotangents, differentiable)
        except OxError as error:
            error.extra.setdefault("forward", line)
            raise
        except Exception as error:
            error.add_note(f"in {node.name()}, whose forward ran at {line}")
            raise
        for i, g in enumerate(found):
            g = g._values() if g is not None and g.is_sparse else g
            if self.check_nan and g is not None and is_floating(g.array.dtype) and bool((g.array != g.array).any()):
                raise GradientError(
                    f"{node.name()} returned NaN as its gradient {i}",
                    where=users_line() or None,
                    extra={"forward": line},
                    hint="look at what that line computes: 0/0, the root or logarithm of 0, inf - inf",
                )
        return found


class Packed:
    """What a pack hook made of a saved tensor, and its place in the graph."""

    _version = (-1,)  # never the version that was saved, so whoever wants the tensor comes here

    def __init__(self, value: Any, unpack: Callable[[Any], Any], tensor: Tensor) -> None:
        self.value, self.unpack, self.node, self.port = value, unpack, tensor.node, tensor.port
        self.shape, self.dtype = tensor.array.shape, tensor.array.dtype

    def unpacked(self) -> Tensor:
        """The tensor as it was saved. Raises ArgumentError when the unpack hook gives another one."""
        made = self.unpack(self.value)
        if not hasattr(made, "node") or made.array.shape != self.shape or made.array.dtype != self.dtype:
            raise ArgumentError(
                "an unpack hook of saved_tensors_hooks returned something else than was packed",
                where=users_line() or None,
                expected=f"a {self.dtype} tensor {list(self.shape)}",
                got=f"{made.array.dtype} {list(made.array.shape)}" if hasattr(made, "node") else type(made).__name__,
            )
        tensor: Tensor = made.twin()
        tensor.node, tensor.port = self.node, self.port
        return tensor

    def keep_old(self, tensor: Tensor) -> None:
        """The memory of `tensor` is about to be overwritten; if that is what was packed, keep a copy."""
        if hasattr(self.value, "node") and self.value.array is tensor.array:
            self.value.array, self.value._version = tensor.array.copy(), None
