"""Graphs inside nodes: whichever way they go, and however often, every batch goes the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ox.serve.operator_kinds import KINDS
from ox.serve.runtime.row_independence.node import Node, axis_of, rule
from ox.serve.runtime.row_independence.size import Polynomial, Size, has_batch, is_exact, is_size
from ox.serve.runtime.row_independence.state import UNKNOWN, Mixed, Mixes, State, Tensor, join, same

MAX_ITERATIONS = 12  # until what is known of a loop's states does not change any more
CONDITION = "its condition depends on the rows"
CONTROL = KINDS["control"]
JUDGED = (*CONTROL, "Dropout")  # by their rules also where no input depends on the rows


@rule("If", counts=True)
def if_(node: Node) -> Sequence[State]:
    condition = node[0]
    if condition.varies:
        raise Mixes(CONDITION)
    known = None if condition.integers is None else condition.integers.ravel().tolist()
    graphs = [node.subgraph(name) for name in ("then_branch", "else_branch")]
    if known and isinstance(known[0], int):
        return node.walker.graph(graphs[0 if known[0] else 1], [], node.scope)
    then, other = (node.walker.graph(graph, [], node.scope) for graph in graphs)
    key = ("if", node.symbols.fresh())
    return [join(one, two, node.symbols, (key, at)) for at, (one, two) in enumerate(zip(then, other, strict=True))]


@rule("Loop", counts=True)
def loop(node: Node) -> Sequence[State]:
    node.fixed(0)
    if (condition := node.get(1)) is not None and condition.varies:
        raise Mixes(CONDITION)
    body = node.subgraph("body")
    states: list[State] = [UNKNOWN if state is None else state for state in node.inputs[2:]]
    key = ("loop", node.symbols.fresh())

    def turn(states: Sequence[State]) -> Sequence[State]:
        outputs = node.walker.graph(body, [Tensor(()), Tensor(()), *states], node.scope)
        if isinstance(outputs[0], Mixed) or outputs[0].varies:
            raise Mixes(CONDITION)
        return outputs[1:]

    states, outputs = _settled(node, turn, states, key)
    turns = _is_certain(node.get(0)) and _is_certain(condition)
    stacked = [_stacked(node, output, 0, turns) for output in outputs[len(states) :]]
    return [*states, *stacked]


def _is_certain(trips: Tensor | None) -> bool:
    """Whether a number of turns, or a condition, lets a loop begin."""
    if trips is None:
        return True
    return trips.integers is not None and all(is_size(each) and is_exact(each) for each in trips.integers.flat)


@rule("Scan", counts=True)
def scan(node: Node) -> Sequence[State]:
    if node.version < 9:
        raise Mixes("is followed from opset 9 on")
    count, body = node.integer("num_scan_inputs", 0), node.subgraph("body")
    if not 0 < count <= len(node.inputs):
        raise Mixes("it has no inputs to go over")
    fixed = len(node.inputs) - count
    axes = node.ints("scan_input_axes") or [0] * count
    elements: list[State] = []
    turns = True
    for place, axis in enumerate(axes):
        tensor = node[fixed + place]
        if tensor.dims is None:
            if tensor.varies:
                raise Mixes("goes over a tensor whose number of dimensions is not known")
            elements.append(UNKNOWN)
            turns = False
            continue
        axis = axis_of(axis, tensor.rank)
        turns = turns and is_size(tensor.sizes[axis])
        if axis == tensor.axis or tensor.counts:
            raise Mixes("goes over the batch axis")
        dims = [*tensor.sizes[:axis], *tensor.sizes[axis + 1 :]]
        elements.append(tensor.with_dims(dims, -1 if tensor.axis is not None and axis < tensor.axis else 0))
    states: list[State] = [UNKNOWN if state is None else state for state in node.inputs[:fixed]]

    def turn(states: Sequence[State]) -> Sequence[State]:
        return node.walker.graph(body, [*states, *elements], node.scope)

    states, outputs = _settled(node, turn, states, ("scan", node.symbols.fresh()))
    results = outputs[fixed:]
    where = node.ints("scan_output_axes") or [0] * len(results)
    return [*states, *(_stacked(node, output, axis, turns) for output, axis in zip(results, where, strict=True))]


def _settled(node: Node, turn: object, states: list[State], key: object) -> tuple[list[State], list[State]]:
    """What holds for the states after any number of turns, and the outputs of one."""
    assert callable(turn)
    for _ in range(MAX_ITERATIONS):
        outputs: list[State] = turn(states)
        joined = [
            join(before, after, node.symbols, (key, at))
            for at, (before, after) in enumerate(zip(states, outputs, strict=False))
        ]
        if len(joined) < len(states):
            raise Mixes("its body gives fewer states than it takes")
        if all(map(same, joined, states)):
            # A size that changes from turn to turn is another one after the last.
            count = len(outputs[0:]) if joined else 0
            local = {node.symbols.of(((key, at), axis)) for at in range(count) for axis in range(_rank(joined, at))}
            return [_after(node, state, local) for state in joined], [_after(node, state, local) for state in outputs]
        states = joined
    raise Mixes("what its states are does not settle")


def _rank(states: Sequence[State], at: int) -> int:
    state = states[at] if at < len(states) else None
    return 0 if state is None or isinstance(state, Mixed) or state.dims is None else len(state.dims)


def _after(node: Node, state: State, local: set[Polynomial]) -> State:
    if isinstance(state, Mixed):
        return state
    symbols = {polynomial.terms[0][0][0] for polynomial in local}

    def changes(size: Size) -> bool:
        return isinstance(size, Polynomial) and any(symbols & set(monomial) for monomial, _ in size.terms)

    integers = state.integers
    if integers is not None and any(map(changes, integers.flat)):
        if state.counts:
            return Mixed("the number of rows becomes data")
        integers = None
    dims = state.dims
    if dims is not None:
        if any(changes(size) and has_batch(size) for size in dims):
            return Mixed("the rows cannot be followed through its turns")
        dims = tuple(node.symbols.fresh() if changes(size) else size for size in dims)
    return replace(state, dims=dims, integers=integers)


def _stacked(node: Node, state: State, axis: int, turns: bool) -> State:
    """What every turn gives, on a new axis. Unless there certainly is a turn, runtimes may make up the sizes."""
    if isinstance(state, Mixed):
        return state
    if state.counts or state.place or state.column:
        return Mixed("the number of rows becomes data")
    if not turns and state.axis is not None:
        return Mixed("collects rows in turns, of which there may be none")
    if state.dims is None or not turns:
        return UNKNOWN
    axis = axis_of(axis, state.rank + 1)
    dims = (*state.sizes[:axis], node.symbols.fresh(), *state.sizes[axis:])
    return Tensor(dims, None if state.axis is None else state.axis + (axis <= state.axis), state.outer)
