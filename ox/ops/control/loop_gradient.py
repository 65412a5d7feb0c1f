"""The gradient of a loop: a loop backwards over the states that each step began with."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.constants import axes_tensor, zeros
from ox.core.operator import OPS
from ox.core.tensor import TensorBase
from ox.core.vjp import with_sizes
from ox.dtypes import is_floating
from ox.errors import ShapeError


class Sliced:
    """A tensor whose slices along an axis are what each step takes or gives; backwards with direction 1."""

    def __init__(self, tensor: Any, axis: int = 0, direction: int = 0) -> None:
        if tensor is not None and not -tensor.array.ndim <= axis < tensor.array.ndim:
            raise ShapeError(f"there is no axis {axis} to slice along", got=str(list(tensor.static_shape)))
        self.tensor, self.axis, self.direction = tensor, axis, direction

    @property
    def length(self) -> int:
        return int(self.tensor.static_shape[self.axis])

    def slices(self) -> list[Any]:
        """One tensor a step, in the order of the steps."""
        if not self.length:
            return []
        ones = operator.as_input(np.ones(self.length, np.int64))
        place = axes_tensor([self.axis])
        parts = OPS["Split"](self.tensor, ones, axis=self.axis, outputs=self.length)
        made = [OPS["Squeeze"](part, place) for part in parts]
        return made[::-1] if self.direction else made

    def example(self) -> Any:
        """An array like that of the first step; zeros where there is no step."""
        array, axis = self.tensor.array, self.axis % self.tensor.array.ndim
        if array.shape[axis]:
            return array[(slice(None),) * axis + (-1 if self.direction else 0,)]
        return np.zeros(array.shape[:axis] + array.shape[axis + 1 :], array.dtype)

    def or_one_row(self) -> "Sliced":
        """Where there is no step in this run, as if there were one."""
        shape = list(self.tensor.static_shape)
        if shape[self.axis]:
            return self
        shape[self.axis] = 1
        return Sliced(with_sizes(self.tensor, tuple(shape)), self.axis, self.direction)

    def blank(self) -> Any:
        return operator.make_tensor(self.example())


def reverse(
    back: Callable[[list[Any], list[Any], list[Any], list[bool], list[Any]], list[Any]],
    history: Sequence[TensorBase],
    sliced: Sequence[Sliced],
    captured: Sequence[TensorBase],
    finals: Sequence[TensorBase],
    from_finals: Sequence[TensorBase | None],
    from_outputs: Sequence[Sliced],
    counted: bool = False,
) -> tuple[list[TensorBase | None], list[TensorBase | None]]:
    """Cotangents of the first states and of what is captured, then of the sliced inputs; None where none is wanted.

    Args:
        back: one step backwards: (states, slices, captured, which of them are wanted, the cotangents of the next states
            and of what is stacked) → the cotangents of the wanted ones.
        history: the states at the beginning of each step, stacked.
        sliced: the inputs that are sliced.
        finals: the last states.
        from_finals: their cotangents.
        from_outputs: the cotangents of the stacks (tensor None where there is none), with their axes and directions.
        counted: as a Loop in place of a Scan, which ONNX Runtime cannot run without a single step.
    """
    carried = [is_floating(h.array.dtype) for h in history]
    slices_wanted = [is_floating(s.tensor.array.dtype) and s.tensor.node is not None for s in sliced]
    captured_wanted = [is_floating(x.array.dtype) and x.node is not None for x in captured]
    first = [zeros(y.shape, y) if g is None else g for y, g, c in zip(finals, from_finals, carried, strict=True) if c]
    sums = [zeros(x.shape, x) for x, want in zip(captured, captured_wanted, strict=True) if want]
    arriving = [s for s in from_outputs if s.tensor is not None]
    scanned = [*(Sliced(h) for h in history), *sliced, *arriving]
    wanted = [*carried, *slices_wanted, *captured_wanted]

    def backward(*given: Any) -> Any:
        now, totals = given[: len(first)], given[len(first) : len(first) + len(sums)]
        states = list(given[len(first) + len(sums) :][: len(history)])
        slices = list(given[len(first) + len(sums) + len(history) :][: len(sliced)])
        came = iter(given[len(given) - len(arriving) :] if arriving else ())
        ready = iter(now)
        cotangents = [next(ready) if c else None for c in carried]
        cotangents += [None if s.tensor is None else next(came) for s in from_outputs]

        found = back(states, slices, list(captured), wanted, cotangents)
        a, b = len(first), len(first) + sum(slices_wanted)
        new_sums = [OPS["Add"](total, g) for total, g in zip(totals, found[b:], strict=True)]
        return (*found[:a], *new_sums, *found[a:b])

    if counted:
        last = OPS["Size"](sliced[0].tensor) - 1

        def numbered(i: Any, go: Any, *given: Any) -> Any:
            t = last - i
            return (go, *backward(*given, *(OPS["Gather"](s.or_one_row().tensor, t, axis=s.axis) for s in scanned)))

        results = OPS["Loop"](last + 1, None, *first, *sums, body=numbered)
        ready = iter(results)
        return [next(ready) if want else None for want in [*carried, *captured_wanted]], [None] * len(sliced)
    results = OPS["Scan"](
        *first,
        *sums,
        *(s.tensor for s in scanned),
        body=backward,
        num_scan_inputs=len(scanned),
        scan_input_axes=[s.axis for s in scanned],
        scan_input_directions=[1 - s.direction for s in scanned],
        scan_output_axes=[s.axis for s, want in zip(sliced, slices_wanted, strict=True) if want],
        scan_output_directions=[1 - s.direction for s, want in zip(sliced, slices_wanted, strict=True) if want],
    )
    ready = iter(results)
    ends = [next(ready) if want else None for want in [*carried, *captured_wanted]]
    return ends, [next(ready) if want else None for want in slices_wanted]
