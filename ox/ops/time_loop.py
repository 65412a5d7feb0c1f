"""A loop over the first axis of tensors, written in operators: unrolled when it runs, a Scan where it is recorded."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ox.ops.broadcast import axes_tensor
from ox.ops.mode import MODE
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor

Step = Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]


def over_time(
    step: Step, states: Sequence["Tensor"], sequences: Sequence["Tensor"], reverse: bool, results: int = 1
) -> tuple[list["Tensor"], list["Tensor"]]:
    """Call ``step(states, slices) -> (states, results)`` for each index of the sequences' first axis, from the last one
    where `reverse`. Returns the last states and the results (so many) stacked, each at the index of its step."""
    if MODE.get().recording is not None:
        return _scanned(step, list(states), list(sequences), reverse, results)
    steps = sequences[0].array.shape[0]
    axis = axes_tensor([0])
    parts = [OPS["Split"](x, axis=0, num_outputs=steps, outputs=steps) for x in sequences]
    slices = [[OPS["Squeeze"](x, axis) for x in at] for at in zip(*parts, strict=True)]
    now = list(states)
    made: list[Any] = [None] * steps
    for t in range(steps - 1, -1, -1) if reverse else range(steps):
        now, made[t] = step(now, slices[t])
    stacked = [OPS["Concat"](*(OPS["Unsqueeze"](y, axis) for y in ys), axis=0) for ys in zip(*made, strict=True)]
    return now, stacked


def _scanned(
    step: Step, states: list["Tensor"], sequences: list["Tensor"], reverse: bool, results: int
) -> tuple[list["Tensor"], list["Tensor"]]:
    count = len(states)

    def body(*given: "Tensor") -> list["Tensor"]:
        after, made = step(list(given[:count]), list(given[count:]))
        return [*after, *made]

    back = int(reverse)
    found: Any = OPS["Scan"](
        *states,
        *sequences,
        body=body,
        num_scan_inputs=len(sequences),
        scan_input_directions=[back] * len(sequences),
        scan_output_directions=[back] * results,
    )
    return list(found[:count]), list(found[count:])
