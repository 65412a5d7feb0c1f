"""Loops over a graph: Loop, Scan."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.core import explain, operator
from ox.core.constants import axes_tensor
from ox.core.operator import OPS
from ox.core.subgraph import RecordedCall, call, check_same_types, condition_value, control, is_graph
from ox.core.tensor import TensorBase
from ox.core.types import Bool, HostInt64, V
from ox.core.vjp import subgraph_vjp
from ox.dtypes import ALL
from ox.errors import ArgumentError, OxError, ShapeError
from ox.ops.control.loop_gradient import Sliced, reverse

if TYPE_CHECKING:
    from ox.core.mode import Recorder

__all__ = ["Loop", "Scan"]

SCALAR = (True,)  # a value of no dimensions that changes; see ox.graph.record


@control("*v_final_and_scan_outputs", V=ALL)
def Loop(M: HostInt64 = None, cond: Bool = None, *v_initial: V, body: Any) -> tuple[V]:
    """Run `body(iteration, cond, *carried)` at most `M` times and while `cond` is true; it returns the next cond, the
    next carried values, and values that are stacked along a new first axis.

    Gives the last carried values, then the stacks. `body` is a Python function, or a recorded graph: then what it
    captures follows the carried values. Without `M` there is no limit, without `cond` the first step always runs.
    ONNX Loop.
    """
    count = len(v_initial) - (len(body.captures) if is_graph(body) else 0)
    carried, captured = list(v_initial[:count]), v_initial[count:]
    if M is not None and M.array.size != 1:
        raise ShapeError("the trip count of Loop is no single number", got=explain.describe(M))
    limit = None if M is None else int(M.array.reshape(()))
    go = cond is None or condition_value("Loop", cond)
    steps: list[list[Any]] = []
    i = 0

    def step() -> list[Any]:
        number, state = (operator.make_tensor(np.asarray(v)) for v in (np.int64(i), np.bool_(True)))
        results = call(body, [number, state, *carried, *captured])
        if len(results) < 1 + count:
            raise _too_few("Loop", 1 + count, results)
        return results

    while go and (limit is None or i < limit):
        first, *results = step()
        go = condition_value("Loop", first)
        carried = results[:count]
        steps.append(results[count:])
        i += 1
    stacks = _stacks(steps, lambda: step()[1 + count :], body, 1 + count)
    return (*carried, *stacks)


@control("*final_state_and_scan_outputs", V=ALL)
def Scan(
    *initial_state_and_scan_inputs: V,
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None = None,
    scan_input_directions: Sequence[int] | None = None,
    scan_output_axes: Sequence[int] | None = None,
    scan_output_directions: Sequence[int] | None = None,
) -> tuple[V]:
    """Run `body(*states, *slices)` once for each slice of the last `num_scan_inputs` inputs; it returns the next
    states, and values that are stacked.

    Gives the last states, then the stacks. Directions are 0 for forward and 1 for backward, axes and directions by
    default 0. `body` is a Python function, or a recorded graph: then what it captures follows the inputs. ONNX Scan.

    Raises:
        ShapeError: scan inputs of different lengths.
    """
    given = initial_state_and_scan_inputs
    states, sliced, captured = _parts(given, body, num_scan_inputs, scan_input_axes, scan_input_directions)
    count = len(states)
    lengths = {s.length for s in sliced}
    if len(lengths) != 1:
        raise ShapeError("Scan needs scan inputs of one length", got=", ".join(map(str, lengths)) or "none")
    slices = list(zip(*(s.slices() for s in sliced), strict=True))
    steps: list[list[Any]] = []

    def step(slices: Sequence[Any]) -> list[Any]:
        results = call(body, [*states, *slices, *captured])
        if len(results) < count:
            raise _too_few("Scan", count, results)
        return results

    for each in slices:
        results = step(each)
        states = results[:count]
        steps.append(results[count:])
    stacks = _stacks(
        steps,
        lambda: step([s.blank() for s in sliced])[count:],
        body,
        count,
        scan_output_axes,
        scan_output_directions,
    )
    return (*states, *stacks)


def _parts(
    given: Sequence[Any], body: Any, count: int, axes: Sequence[int] | None, directions: Sequence[int] | None
) -> tuple[list[Any], list[Sliced], list[Any]]:
    """The states, the scan inputs with axis and direction, and the captures of a Scan's inputs."""
    end = len(given) - (len(body.captures) if is_graph(body) else 0)
    scanned = given[end - count : end]
    sliced = [
        Sliced(x, axis, direction)
        for x, axis, direction in zip(scanned, axes or [0] * count, directions or [0] * count, strict=True)
    ]
    return list(given[: end - count]), sliced, list(given[end:])


def _too_few(name: str, expected: int, results: Sequence[Any]) -> ArgumentError:
    return ArgumentError(
        f"the body of {name} returned too few values",
        expected=f"{expected} or more: what the next step takes, then what is stacked",
        got=str(len(results)),
    )


def _stacks(
    steps: list[list[Any]],
    example: Callable[[], list[Any]],
    body: Any,
    start: int,
    axes: Sequence[int] | None = None,
    directions: Sequence[int] | None = None,
) -> list[Any]:
    """The scan outputs: the values of all steps along a new axis. Without a step, one is run to see their shapes."""
    if not steps:
        made = _shapes(example, body, start)
        empty = [np.zeros(shape, dtype) for shape, dtype in made]
        places = axes or [0] * len(made)
        return [operator.make_tensor(np.expand_dims(x, a).take([], a)) for x, a in zip(empty, places, strict=True)]
    width = len(steps[0])
    stacks = []
    for k, axis, back in zip(range(width), axes or [0] * width, directions or [0] * width, strict=True):
        parts = [step[k] for step in (reversed(steps) if back else steps)]
        if any(p.static_shape != parts[0].static_shape for p in parts):
            raise ShapeError(
                "a loop stacks values of one shape; a carried value whose shape changes has no gradient in a recording",
                got=", ".join(dict.fromkeys(str(list(p.static_shape)) for p in parts)),
            )
        place = axes_tensor([axis])
        stacks.append(OPS["Concat"](*(OPS["Unsqueeze"](p, place) for p in parts), axis=axis))
    return stacks


def _shapes(example: Callable[[], list[Any]], body: Any, start: int) -> list[tuple[tuple[int, ...], Any]]:
    """Shape and type of each scan output of one step."""
    try:
        return [(y.static_shape, y.array.dtype) for y in example()]
    except OxError:
        if not is_graph(body):
            raise
    # a step that cannot run on these values: what the graph declares, 0 for what it leaves open
    declared = body.outputs[start:]
    return [
        (tuple(d if isinstance(d, int) else 0 for d in v.dims or ()), v.dtype or np.dtype(np.float32)) for v in declared
    ]


def _recorded(
    recording: "Recorder",
    body: Any,
    leading: list[Any],
    carried: list[TensorBase],
    slices: list[Any],
    skip: int,
) -> tuple[Any, list[Any], set[int]]:
    """The body as a graph, its captured tensors, and which carried values may change their sizes.

    A size that one step changes may be another in the next, so the body is recorded anew with that size open.

    Args:
        skip: how many outputs stand before the carried ones.
    """
    flags = [recording.dynamic(x) for x in carried]
    while True:
        formals = [(f"carried_{i}", x.array, flags[i], True) for i, x in enumerate(carried)]
        graph, captured, changing = recording.body(body, [*leading, *formals, *slices])
        after = graph.outputs[skip : skip + len(carried)]
        if len(after) < len(carried):
            raise _too_few("a loop", skip + len(carried), graph.outputs)
        check_same_types("the body does not return what it is given next", ("given", "returned"), carried, after)
        grown = [
            i
            for i, (x, y, to) in enumerate(zip(carried, after, changing[skip:], strict=False))
            if not any(flags[i]) and (any(to) or x.static_shape != y.shape)
        ]
        if not grown:
            return graph, captured, {i for i, f in enumerate(flags) if any(f)}
        for i in grown:
            flags[i] = (True,) * carried[i].array.ndim or SCALAR


@Loop.recorder
def _(recording: "Recorder", inputs: list[Any], attributes: dict[str, Any], followed: bool) -> RecordedCall:
    (M, cond), rest, body = [*inputs, None, None][:2], inputs[2:], attributes["body"]
    captured: list[Any] = []
    if is_graph(body):
        graph = body.copy()
        count = len(rest) - len(graph.captures)
        grown = set(range(count))
    else:
        number, state = (np.asarray(v) for v in (np.int64(0), np.bool_(True)))
        leading = [("iteration", number, SCALAR, False), ("cond", state, SCALAR, False)]
        graph, captured, grown = _recorded(recording, body, leading, rest, [], 1)
        count = len(rest)
    wanted = len(graph.outputs) - 1
    grown |= set(range(count, wanted))
    if followed or any(x.node is not None for x in captured):
        graph.emit([graph.inputs[0], *graph.inputs[2:]])
    grown |= set(range(wanted, len(graph.outputs) - 1))
    loose = _loose(rest[:count], {i - 1 for i in graph.loose()})
    return RecordedCall([M, cond, *rest, *captured], {"body": graph}, wanted, grown, loose)


@Scan.recorder
def _(recording: "Recorder", inputs: list[Any], attributes: dict[str, Any], followed: bool) -> RecordedCall:
    body, count = attributes["body"], attributes["num_scan_inputs"]
    states, sliced, captured = _parts(
        inputs, body, count, attributes.get("scan_input_axes"), attributes.get("scan_input_directions")
    )
    grown: set[int] = set()
    if is_graph(body):
        graph, captured = body.copy(), []
    else:
        slices = [
            (f"slice_{i}", s.example(), _without(recording.dynamic(s.tensor), s.axis), s.tensor.node is not None)
            for i, s in enumerate(sliced)
        ]
        graph, captured, grown = _recorded(recording, body, [], states, slices, 0)
    wanted = len(graph.outputs)
    attributes = {**attributes, "body": graph}
    if followed or any(x.node is not None for x in captured):
        graph.emit(graph.inputs[: len(states)])
        for name in ("scan_output_axes", "scan_output_directions"):
            if attributes.get(name) is not None:
                attributes[name] = [*attributes[name], *[0] * len(states)]
    return RecordedCall([*inputs, *captured], attributes, wanted, grown, _loose(states, graph.loose()))


def _loose(carried: Sequence[TensorBase], loose: set[int]) -> set[int]:
    """Of the outputs that no gradient follows in the body, those that none follows after no step either."""
    return {i for i in loose if i >= 0 and (i >= len(carried) or carried[i].node is None)}


def _without(changing: tuple[bool, ...], axis: int) -> tuple[bool, ...]:
    left = tuple(c for i, c in enumerate(changing) if i != axis % len(changing))
    return left if left or not any(changing) else SCALAR


@Loop.gradient("v_initial")
def _(
    v_initial: list[TensorBase], v_final_and_scan_outputs: list[TensorBase], body: Any, *cotangents: TensorBase | None
) -> list[TensorBase | None]:
    """A Loop backwards over the carried values of every step, which the recorded Loop stacked behind its outputs."""
    count = len(body.inputs) - 2
    outputs = v_final_and_scan_outputs
    numbers, *history = outputs[len(outputs) - count - 1 :]

    def back(states: list[Any], slices: list[Any], captured: list[Any], wanted: list[bool], gs: list[Any]) -> list[Any]:
        go = operator.make_tensor(np.asarray(True))
        given = [slices[0], go, *states, *captured]  # the one slice is the number of the step
        return subgraph_vjp(body, given, [False, False, *wanted[:count], *wanted[count + 1 :]], [None, *gs])

    return reverse(
        back,
        history,
        [Sliced(numbers)],
        v_initial[count:],
        outputs[:count],
        cotangents[:count],
        [Sliced(g) for g in cotangents[count:]],
        counted=True,
    )[0]


@Scan.gradient("initial_state_and_scan_inputs")
def _(
    initial_state_and_scan_inputs: list[TensorBase],
    final_state_and_scan_outputs: list[TensorBase],
    body: Any,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] | None,
    scan_input_directions: Sequence[int] | None,
    scan_output_axes: Sequence[int] | None,
    scan_output_directions: Sequence[int] | None,
    *cotangents: TensorBase | None,
) -> list[TensorBase | None]:
    """A Scan backwards over the states of every step, which the recorded Scan stacked behind its outputs."""
    states, sliced, captured = _parts(
        initial_state_and_scan_inputs, body, num_scan_inputs, scan_input_axes, scan_input_directions
    )
    count, outputs = len(states), final_state_and_scan_outputs
    width = len(outputs) - count
    axes, directions = scan_output_axes or [0] * width, scan_output_directions or [0] * width

    def back(states: list[Any], slices: list[Any], captured: list[Any], wanted: list[bool], gs: list[Any]) -> list[Any]:
        return subgraph_vjp(body, [*states, *slices, *captured], wanted, gs)

    ends, xs = reverse(
        back,
        outputs[len(outputs) - count :],
        sliced,
        captured,
        outputs[:count],
        cotangents[:count],
        [Sliced(g, a, d) for g, a, d in zip(cotangents[count:], axes, directions, strict=True)],
    )
    return [*ends[:count], *xs, *ends[count:]]
