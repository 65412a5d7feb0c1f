"""Operators whose attributes are graphs: what If, Loop and Scan share.

An attribute is a Python function of tensors, or a recorded `ox.graph.ir.Graph`. In eager code the operators inside
simply run, so the tape and every executor see them. Under a recording a function becomes a graph; what it reads from
outside (tensors of the recording, parameters) becomes further inputs of the call, so that the tape and every pass see
them; and the call is one node whose gradient rule makes an If or a Scan again.
"""

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ox.core import explain, operator
from ox.core.gradient import with_name
from ox.core.mode import MODE, switch_mode
from ox.core.operator import OPS, Operator
from ox.core.symbolic import Dim, size_tensor
from ox.core.tensor import is_tensor
from ox.dtypes import DType
from ox.errors import ArgumentError, RecordError


class RecordedCall(NamedTuple):
    """A call that is ready for a recording."""

    inputs: list[Any]  # the captured ones behind
    attributes: dict[str, Any]  # its functions are graphs
    wanted: int  # how many outputs the caller sees
    grown: set[int]  # outputs whose sizes may change though those of no input do
    loose: set[int]  # outputs that no gradient follows


class Control(Operator):
    """A callable operator over graphs. Returns a tuple, however many outputs there are.

    `close`, set by `recorder`, makes a call ready for a recording: (recording, inputs, attributes, tracked) → Closed.
    """

    kind = "control"
    amp = "keep"  # what goes in goes through
    batching = "each"
    close: Callable[..., RecordedCall]

    def __init__(self, body: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]]) -> None:
        self.body = body
        super().__init__(as_kernel(body), outputs, types, view=False)

    def recorder(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.close = with_name(function, f"{self.name}_recorder")
        return function

    def __call__(self, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        given: list[Any] = [x if x is None or isinstance(x, list) else _as_input(x) for x in inputs]
        mode = MODE.get()
        if mode.recording is None or mode.recording.over:
            return tuple(self.body(*given, **attributes))
        if any(isinstance(x, list) for x in given):
            raise RecordError(f"a sequence that goes through {self.name} cannot be recorded")
        followed = mode.grad and any(x is not None and x.node is not None for x in given)
        try:
            closed = self.close(mode.recording, given, attributes, followed)
        except RecordError as error:
            mode.recording.refuse(error)  # raises it, save where the call goes on without being recorded
            return tuple(self.body(*given, **attributes))
        if mode.recording.over:
            return tuple(self.body(*given, **attributes))
        given, attributes, wanted, grown, loose = closed
        arrays = [None if x is None else x.array for x in given]
        with switch_mode(recording=None, grad=False):
            made = tuple(map(operator.make_tensor, self.kernel(np, *arrays, **attributes)))
        mode.recording.add(self, tuple(given), attributes, made)
        for i in grown:
            mode.recording.mark_dynamic(made[i])
        tracked = 0
        for i, x in enumerate(given):
            tracked |= (x is not None and x.node is not None) << i
        if tracked and mode.grad:
            node = self._add_node(given, attributes, made, tracked)
            mode.recording.on_control(node)
            if mode.observer is not None:
                mode.observer.on_node(node)
            for i in loose:
                made[i].node, made[i].port = None, 0
        return made[:wanted]


def _as_input(x: Any) -> Any:
    """A tensor; a size of a recording, such as a trip count, stays computed."""
    return OPS["Reshape"](x.tensor, size_tensor(())) if isinstance(x, Dim) else operator.as_input(x)


def as_kernel(body: Callable[..., Any]) -> Callable[..., Any]:
    """Arrays in, arrays out, with the signature that the schema is read from."""

    def kernel(xp: Any, *arrays: Any, **attributes: Any) -> Any:
        results = body(*(a if a is None else operator.make_tensor(a) for a in arrays), **attributes)
        return tuple(t.array for t in results)  # of If, Loop and Scan; nothing else calls it

    signature = inspect.signature(body)
    xp = inspect.Parameter("xp", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    kernel.__signature__ = signature.replace(parameters=[xp, *signature.parameters.values()])  # type: ignore[attr-defined]
    kernel.__name__, kernel.__doc__, kernel.__module__ = body.__name__, body.__doc__, body.__module__
    return kernel


def control(outputs: str, **types: tuple[DType, ...]) -> Callable[[Callable[..., Any]], Control]:
    """Define an operator over graphs from what it does with tensors."""

    def define(body: Callable[..., Any]) -> Control:
        made = Control(body, outputs, types)
        OPS[made.name] = made
        return made

    return define


def is_graph(function: Any) -> bool:
    """Whether an attribute is a recorded graph, and not a Python function."""
    return hasattr(function, "captures")


def call(function: Any, inputs: Sequence[Any]) -> list[Any]:
    """What a branch or body gives for these inputs (of a graph: then its captures), as a list."""
    if is_graph(function):
        return list(function.run(inputs))
    result = function(*inputs)
    found = list(result) if isinstance(result, (list, tuple)) else [result]
    for y in found:
        if not is_tensor(y):
            raise ArgumentError(
                "a branch or a loop's body returned what is no tensor",
                expected="a tensor, or a tuple of them",
                got=type(y).__name__,
            )
    return found


def condition_value(name: str, cond: Any) -> bool:
    """The value of a condition. Raises ArgumentError for what is no single bool."""
    if cond.array.dtype != np.bool_ or cond.array.size != 1:
        raise ArgumentError(
            f"the condition of {name} is no single bool",
            expected="bool []",
            got=explain.describe(cond),
            hint="x.any(), x.all() or x > 0",
        )
    return bool(cond.array.reshape(()))


def check_same_types(what: str, names: tuple[str, str], first: Sequence[Any], second: Sequence[Any]) -> None:
    """Raise RecordError unless two lists of tensors or values agree in number, element types and ranks."""

    def show(values: Sequence[Any]) -> str:
        return ", ".join(f"{v.dtype} {list(v.shape)}" for v in values) or "nothing"

    same = len(first) == len(second) and all(
        None in (v.dtype, w.dtype, v.shape, w.shape) or (v.dtype == w.dtype and len(v.shape) == len(w.shape))
        for v, w in zip(first, second, strict=True)
    )
    if not same:
        raise RecordError(
            what,
            got=f"{names[0]} {show(first)}; {names[1]} {show(second)}",
            expected="as many tensors from both, of the same element types and ranks",
        )
