"""Recording at two sizes. What differs between the two is a leak, and becomes an error with the user's line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ox.dtypes import is_floating
from ox.errors import ExportError, OxError, RecordError
from ox.export.example_inputs import BATCH, Example, Sizes, recording_sizes
from ox.graph.compare import Leak, find_fixed_reshape, find_leak
from ox.graph.ir import Array, Graph, Node
from ox.graph.passes.inferred_reshape import infer_reshape_sizes
from ox.graph.record.recording import Recording, record
from ox.tensors.tensor import Tensor


@dataclass(frozen=True)
class Subject:
    """What is recorded: a function of the inputs, the tensors it owns, the names of what it returns, and what else it
    writes, to be put back."""

    model: Callable[..., Any]
    example: Example
    owned: Mapping[str, Tensor]
    outputs: Sequence[str] | None
    written: Sequence[Tensor] = ()

    def record(self, sizes: Sizes, *, other_values: bool = False, into: Recording | None = None) -> Graph:
        """One recording at these sizes."""
        arrays = self.example.cut(sizes, start=2 if other_values else 0)
        if other_values:
            # half of everything: a number that was computed from the input by other means than operators shows
            arrays = {k: x * x.dtype.type(0.5) if is_floating(x.dtype) else x for k, x in arrays.items()}
        return record(
            lambda *tensors: self.example.call(self.model, tensors),
            self.example.tensors(arrays),
            dims=self.example.dims,
            constants=self.owned,
            outputs=self.outputs,
            restore=_distinct([*self.owned.values(), *self.written]),
            recording=into,
        )


def _distinct(tensors: Iterable[Tensor]) -> list[Tensor]:
    return list({id(t): t for t in tensors}.values())


def record_twice(subject: Subject) -> Graph:
    """The graph that both recordings agree on.

    Raises:
        ExportError: the code cannot be recorded, or a size or a value of the example leaked into it.
    """
    first, second = recording_sizes(subject.example)
    try:
        a = subject.record(first)
    except RecordError as error:
        raise as_export_error(error) from error
    recording = Recording()
    try:
        b = subject.record(second, other_values=True, into=recording)
    except Exception as error:
        leak = _leak(_first_nodes(a, recording.graph), recording.graph, subject) or find_fixed_reshape(
            a, recording.graph
        )
        raise _explain(subject, a, leak, first, second, recording.graph, error) from (
            None if isinstance(error, OxError) else error
        )
    leak = _leak(a, b, subject)
    if leak is not None:
        raise _explain(subject, a, leak, first, second, b)
    return a


def _leak(a: Graph, b: Graph, subject: Subject) -> Leak | None:
    infer_reshape_sizes(a, b, several=_has_other_sizes(subject))
    return find_fixed_reshape(a, b) or find_leak(a, b)


def _has_other_sizes(subject: Subject) -> bool:
    """Whether more sizes than the batch may vary."""
    return not set(subject.example.sizes) <= {subject.example.batch}


def _first_nodes(a: Graph, b: Graph) -> Graph:
    """As much of `a` as `b` got done."""
    return Graph(a.inputs, [], a.nodes[: len(b.nodes)], a.constants, a.owned)


def _explain(
    subject: Subject,
    a: Graph,
    leak: Leak | None,
    first: Sizes,
    second: Sizes,
    b: Graph,
    error: Exception | None = None,
) -> ExportError:
    """Say what leaked: the values of the example, or which of its sizes."""
    if error is None and _depends_on_values(subject, a, first):
        assert leak is not None
        return ExportError(
            "values of the example are baked into the model",
            where=_place(leak.node) or None,
            got=f"{leak.what} was {leak.first}, then {leak.second} for another input",
            hint="ox operators on the tensor itself, in place of NumPy or Python numbers made from its data",
        )
    dim = _leaking_size(subject, first, second) if len(first) > 1 else next(iter(first), BATCH)
    sizes = f"{dim}: recorded {first.get(dim)}, then {second.get(dim)}; "
    size = "the batch size" if dim == subject.example.batch else f"the size '{dim}'"
    what, hint = f"{size} is baked into the model", ""
    if leak is None:
        node = a.nodes[len(b.nodes)] if len(b.nodes) < len(a.nodes) else None
        said = error.what if isinstance(error, OxError) else f"{type(error).__name__}: {error}"
        place = (error.where if isinstance(error, OxError) else None) or _place(node)
        where, told = place, f"the code ran at the first and stopped at the second: {said}"
        hint = "sizes from x.shape, in place of numbers"
    elif leak.node is not None and leak.what in ("Reshape", "Expand"):
        where, told = _place(leak.node), f"{leak.what} received the constant {leak.first} both times"
        hint = "x.reshape(x.shape[0], -1) or x.flatten(1)" if leak.what == "Reshape" else "x.expand(y.shape[0], ...)"
    elif leak.what == "the code's path":
        what = f"the model takes another path at another {size.removeprefix('the ')}"
        where, told = _place(leak.node), f"the code ran {leak.first}, then {leak.second}"
        hint = "the same operators at every size: no `if` or loop over a size; ox.where(condition, a, b) chooses values"
    else:
        verb = "received the constant" if leak.what.startswith("a constant that") else "had"
        subject_of = leak.what.removeprefix("a constant that ").removesuffix(" received")
        where, told = _place(leak.node), f"{subject_of} {verb} {leak.first}, then {leak.second}"
    return ExportError(what, where=where or None, hint=hint or _hint_for_line(where or ""), extra={"dim": sizes + told})


_LINE_HINTS = (  # by what stands in the line, the first that does
    (r"\bint\([^()]*(\([^()]*\)[^()]*)*/", "a // b, or math.floor(a / b), in place of int(a / b)"),
    (r"\bint\(", "x.shape[0] itself, without int()"),
    (r"\blen\(", "x.shape[0] itself, in place of len(x)"),
    (r"\bnp\.|numpy", "x.shape[0] itself with math.prod and Python's arithmetic on sizes, in place of NumPy"),
    (
        r"sqrt|\*\*|log\(|\b(tensor|full|float)\(",
        "ox.zeros(()) + x.shape[1], a tensor that keeps the size, and its sqrt()",
    ),
    (r"\bround\(", "math.floor or math.ceil in place of round"),
)


def _hint_for_line(line: str) -> str:
    found = (hint for pattern, hint in _LINE_HINTS if re.search(pattern, line))
    return next(found, "x.shape[0] itself; int(), len(), float arithmetic and NumPy lose it")


def _place(node: Node | None) -> str:
    """Module and line; where the line is the model's own, its forward is named: ``Head.forward, model.py:57``."""
    if node is None:
        return ""
    return node.place if " (" in node.module or not node.module else f"{node.module}.forward, {node.where}"


def _depends_on_values(subject: Subject, a: Graph, sizes: Sizes) -> bool:
    """Whether the graph changes with the values of the input alone."""
    try:
        other = subject.record(sizes, other_values=True)
        infer_reshape_sizes(a, other, several=_has_other_sizes(subject))
        return find_leak(a, other) is not None
    except Exception:
        return False


def _leaking_size(subject: Subject, first: Sizes, second: Sizes) -> str:
    """The first size which, changed alone, changes the graph."""
    a = subject.record(first)
    for dim in first:
        recording = Recording()
        try:
            b = subject.record(first | {dim: second[dim]}, into=recording)
        except Exception:
            return dim
        if _leak(a, b, subject) is not None:
            return dim
    return next(iter(first))


def as_export_error(error: OxError) -> ExportError:
    """A refusal of the recording is one of the export."""
    return ExportError(
        error.what, where=error.where, expected=error.expected, got=error.got, hint=error.hint, extra=error.extra
    )


def name_sizes(
    runs: Sequence[tuple[Sizes, tuple[int, ...]]], known: Sequence[int | str | None] | None, stem: str
) -> tuple[int | str, ...]:
    """The sizes to declare for an output: as inferred, else as seen.

    Args:
        runs: the output's shape in several runs, and the named sizes of each run.
        known: the result of shape inference; None inside where unknown.
        stem: the output's name, from which a size of its own is named.
    """
    result: list[int | str] = []
    for axis in range(len(runs[0][1])):
        inferred = known[axis] if known is not None and len(known) == len(runs[0][1]) else None
        seen = [(sizes, shape[axis]) for sizes, shape in runs]
        if isinstance(inferred, int) and any(n != inferred for _, n in seen):
            inferred = f"{stem}_{axis}"  # onnx is wrong, and its checker would refuse the number that is right
        same = [name for name in runs[0][0] if all(sizes[name] == n for sizes, n in seen)]
        if inferred is not None:
            result.append(inferred)
        elif len({n for _, n in seen}) == 1:
            result.append(seen[0][1])
        else:
            result.append(same[0] if same else f"{stem}_{axis}")
    return tuple(result)


def arrays_of(result: Any) -> dict[str, Array]:
    """Tensors by name as arrays of their own."""
    return {name: np.array(tensor.detach().cpu().array) for name, tensor in result.items()}
