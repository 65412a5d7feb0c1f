"""A loop over the first axis of tensors, written in operators: unrolled when it runs, a Scan where it is recorded."""

from collections.abc import Callable, Sequence
from typing import Any

from ox.core.constants import axes_tensor
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.tensor import TensorBase

Step = Callable[[list[Any], list[Any]], tuple[list[Any], list[Any]]]


def over_time(
    step: Step, states: Sequence[TensorBase], sequences: Sequence[TensorBase], reverse: bool, results: int = 1
) -> tuple[list[Any], list[Any]]:
    """Call ``step(states, slices) -> (states, results)`` for each index of the sequences' first axis, from the last one
    where `reverse`. Returns the last states and the results (so many) stacked, each at the index of its step."""
    if MODE.get().recording is not None:
        return _scanned(step, list(states), list(sequences), reverse, results)
    steps = sequences[0].static_shape[0]
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
    step: Step, states: list[TensorBase], sequences: list[TensorBase], reverse: bool, results: int
) -> tuple[list[Any], list[Any]]:
    count = len(states)

    def body(*given: TensorBase) -> list[TensorBase]:
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
