"""What a recording knows of a tensor, and of the sizes that Python code compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ox.core import operator
from ox.core.declared_size import DeclaredSize
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.size_expression import Expression
from ox.core.symbolic import Dim
from ox.graph.ir import Value

if TYPE_CHECKING:
    from ox.graph.record.recording import Recording
    from ox.tensors.tensor import Tensor


class Recorded:
    """The state of a tensor in a recording: its graph value, and which of its dimensions are dynamic."""

    __slots__ = ("dims", "dynamic", "recording", "value", "version", "view_call")

    def __init__(self, recording: Recording, value: Value, changing: tuple[bool, ...], version: int) -> None:
        self.recording, self.value, self.dynamic, self.version = recording, value, changing, version
        self.dims: tuple[int, ...] | None = None
        self.view_call: tuple[Any, ...] | None = None  # of a view: operator, inputs, attributes, outputs, which of them

    def active(self) -> bool:
        """Whether its recording, or one inside it, is the one that records now."""
        now: Any = MODE.get().recording
        return now is not None and now.is_or_encloses(self.recording)

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        """The tensor's shape, with an `ox.Dim` for every size that may change; plain ints once recording is over."""
        plain: tuple[int, ...] = tensor.static_shape
        if not any(self.dynamic) or not self.active():
            return plain
        if self.dims is None:
            # not of the tensor itself, which would live until the garbage collector runs: of a view, a write would
            # then record more than in another run
            twin = operator.make_tensor(tensor.array)
            twin._recorded = Recorded(self.recording, self.value, self.dynamic, twin.version)
            self.dims = tuple(
                Dim(size, _size_of(twin, axis), expression=self.expression(axis)) if self.dynamic[axis] else size
                for axis, size in enumerate(plain)
            )
        return self.dims

    def expression(self, axis: int) -> Expression:
        """How a size follows from the named ones: its own name, or for what is computed a leaf that
        `ox.export.size_tests` looks into."""
        declared = self.value.dims[axis] if self.value.dims is not None else None
        if isinstance(declared, DeclaredSize):
            return declared.expression
        return declared if isinstance(declared, str) else SizeOf(self.value, axis)


@dataclass(frozen=True)
class SizeOf:
    """The size of a value that is no input."""

    value: Value
    axis: int


@dataclass(frozen=True)
class SizeTest:
    """A comparison of sizes that came out true where the code was recorded; None: of sizes that nothing is known of, or
    none, but a size that became a plain number, which code may compare: `number`."""

    expression: Expression
    where: str
    number: Expression = None


def _size_of(tensor: Tensor, axis: int) -> Callable[[], Tensor]:
    return lambda: OPS["Shape"](tensor, start=axis, end=axis + 1)
