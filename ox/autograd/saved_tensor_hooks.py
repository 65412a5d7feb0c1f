"""Observer of new autograd nodes, for anomaly detection and saved-tensor hooks.

`Mode.observer` is None by default, so neither costs anything when it is off.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ox.call_site import users_line
from ox.core.gradient import INPUT, OUTPUT
from ox.core.mode import switch_mode
from ox.core.tensor import TensorBase, is_tensor
from ox.devices import cuda_state
from ox.dtypes import is_floating
from ox.errors import ArgumentError, GradientError, OxError

Pack = tuple[Callable[[Any], Any], Callable[[Any], Any]]


@dataclass(frozen=True)
class SavedTensorObserver:
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

    @property
    def passive(self) -> bool:
        """Whether nothing is changed or checked."""
        return self.hooks is None and not self.lines and not self.check_nan

    def on_node(self, node: Any) -> None:
        """A node was made: note its line, pack what it saved."""
        if self.lines:
            node.where = users_line()
        if self.hooks is not None and type(node.saved) is list and node.saved:
            kinds = getattr(node, "save_plan", None)
            if kinds is None:  # a custom Function's: pairs of what is kept and, of an output, its number
                node.saved = [(self.pack_saved(kept), port) for kept, port in node.saved]
                return
            for k, (kind, i, _) in enumerate(kinds.entries):
                if kind in (INPUT, OUTPUT) and not node.op.schema.input_at(i).host:
                    kept = node.saved[k]
                    node.saved[k] = (
                        [self.pack_saved(each) for each in kept] if type(kept) is list else self.pack_saved(kept)
                    )

    def pack_saved(self, kept: Any) -> Any:
        if kept is None or self.hooks is None:
            return kept
        tensor = kept[0]
        pack, unpack = self.hooks
        with switch_mode(grad=False):
            seen = tensor.shallow_copy()
            version = seen.version
            value = pack(seen)
        if seen.version != version:
            raise GradientError("a pack hook of saved_tensors_hooks wrote its tensor in place", hint="a .clone()")
        return Packed(value, unpack, tensor), 0

    def gradients(self, node: Any, cotangents: list[Any], differentiable: bool) -> list[Any]:
        """A node's gradients; if that fails, or one is NaN, an error that names the line of its forward."""
        if not self.lines:
            return node.gradients(cotangents, differentiable)
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
            if self.check_nan and g is not None and is_floating(g.array.dtype) and _has_nan(g.array):
                raise GradientError(
                    f"{node.name()} returned NaN as its gradient {i}",
                    extra={"forward": line},
                    hint="look at what that line computes: 0/0, the root or logarithm of 0, inf - inf",
                )
        return found


def _has_nan(array: Any) -> bool:
    with cuda_state.at(array):
        return bool((array != array).any())


class Packed:
    """The result of a pack hook, with the node and port of the saved tensor."""

    _writes = (-1,)  # never the saved version, so that every access comes here

    def __init__(self, value: Any, unpack: Callable[[Any], Any], tensor: TensorBase) -> None:
        self.value, self.unpack, self.node, self.port = value, unpack, tensor.node, tensor.port
        self.shape, self.dtype = tensor.static_shape, tensor.array.dtype

    def restore(self) -> TensorBase:
        """The tensor as it was saved. Raises ArgumentError when the unpack hook gives another one."""
        made = self.unpack(self.value)
        if not is_tensor(made) or made.static_shape != self.shape or made.array.dtype != self.dtype:
            raise ArgumentError(
                "an unpack hook of saved_tensors_hooks returned something else than was packed",
                expected=f"a tensor of type {self.dtype} and shape {list(self.shape)}",
                got=f"{made.array.dtype} {list(made.static_shape)}" if is_tensor(made) else type(made).__name__,
            )
        tensor: TensorBase = made.shallow_copy()
        tensor.node, tensor.port = self.node, self.port
        return tensor

    def copy_before_write(self, tensor: TensorBase) -> None:
        """The memory of `tensor` is about to be overwritten; if that is what was packed, keep a copy."""
        if is_tensor(self.value) and self.value.array is tensor.array:
            self.value.array, self.value._writes = cuda_state.copy(tensor.array), None
