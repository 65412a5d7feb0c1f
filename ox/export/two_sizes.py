"""Recording at two sizes. What differs between the two is a leak, and becomes an error with the user's line."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ox.autograd.grad_mode import no_grad
from ox.core.copy_on_write import CopyOnWrite
from ox.core.size_expression import leaves
from ox.errors import ExportError, OxError, RecordError
from ox.export.declared_dims import Sizes
from ox.export.dynamic_shapes import BATCH
from ox.export.example_inputs import Example, recording_sizes, within
from ox.export.example_values import Values
from ox.export.line_hints import hint_for_line
from ox.export.probed_sizes import Outcome, multiples_that_run, probe
from ox.export.size_tests import agreed, in_named_sizes, named, rules_of, unstated
from ox.graph.compare import Leak, find_fixed_reshape, find_leak
from ox.graph.ir import Array, Graph, Node
from ox.graph.passes.inferred_reshape import infer_reshape_sizes
from ox.graph.record.integer_math import math_notes_sizes
from ox.graph.record.outputs import named_outputs
from ox.graph.record.recorded import SizeTest
from ox.graph.record.recording import Recording, record
from ox.graph.record.tensor_lengths import lengths_as_sizes
from ox.graph.replay import replay
from ox.graph.size_rules import SizeRules
from ox.onnx_module.loaded import Loaded
from ox.tensors.tensor import Tensor
from ox.tolerance import compare


@dataclass(frozen=True)
class Subject:
    """What is recorded: a function of the inputs, the tensors it owns, the names of what it returns, what else it
    writes, to be put back, and the lender of the arrays that recordings need not copy."""

    model: Callable[..., Any]
    example: Example
    owned: Mapping[str, Tensor]
    outputs: Sequence[str] | None
    written: Sequence[Tensor] = ()
    lender: CopyOnWrite | None = None

    def record(self, sizes: Sizes, *, values: Values = Values.OWN, into: Recording | None = None) -> Graph:
        """One recording at these sizes."""
        arrays = self.example.cut(sizes, start=0 if values is Values.OWN else 2, values=values)
        with lengths_as_sizes(), math_notes_sizes():
            return record(
                lambda *tensors: self.example.call(self.model, tensors),
                self.example.tensors(arrays),
                dims=self.example.dims,
                constants=self.owned,
                outputs=self.outputs,
                restore=self.tensors,
                recording=into,
                lender=self.lender,
            )

    @property
    def tensors(self) -> list[Tensor]:
        """Each once, what is put back after a run."""
        return list({id(t): t for t in [*self.owned.values(), *self.written]}.values())


@dataclass(frozen=True)
class Recorded:
    """A graph, the sizes at which it is right as far as the code has compared them, the lines of comparisons that could
    not be stated so, and the line that draws random numbers."""

    graph: Graph
    rules: SizeRules
    unstated: tuple[str, ...] = ()
    draws: str = ""


def record_twice(subject: Subject) -> Graph:
    """The graph that recordings at several sizes agree on; see `record_at_sizes`. For files that cannot state for which
    sizes they are right: a warning does."""
    recorded = record_at_sizes(subject)
    limits = [str(recorded.rules)] * bool(recorded.rules) + list(recorded.unstated)
    if limits:
        warnings.warn(f"what was recorded is right only for {', '.join(limits)}", stacklevel=5)
    return recorded.graph


def record_at_sizes(subject: Subject) -> Recorded:
    """The graph that two recordings agree on, and where more sizes than the batch vary, two more far from them: a
    number that a size became step by step (``int(math.log2(n))``) differs there.

    Raises:
        ExportError: the code cannot be recorded, or a size or a value of the example leaked into it.
    """
    example = subject.example
    first, second = recording_sizes(example)
    if type(subject.model) is Loaded:  # a graph holds no code that could take another path
        return _of_file(subject, subject.model, first)
    recording = _first(subject, first)
    a, draws = recording.graph, recording.draws
    tests = in_named_sizes(recording.size_tests, a, example, first)
    del recording  # views of parameters that it made would change the second
    ranges = rules_of(tests, first, example.declared).ranges
    # where only one size is left, the second recording tells a branch from a check of the size against itself
    ranges = {dim: each for dim, each in ranges.items() if each.min != each.max and dim != example.batch}
    second = second | within({dim: second[dim] for dim in ranges}, ranges, [first])
    b = _second(subject, a, first, second)
    tests = agreed(tests, b.tests, (first, second))
    rules = _with_declared(rules_of(tests, first, example.declared), example)
    _check_batch(tests, rules, example)
    for far in far_sizes(example, rules):
        _compare_far(subject, a, first, first | far)
    _compare_opposite(subject, a, first)
    if not example.others:  # else the user has said which sizes there are
        rules = probe(partial(_outcome, subject, a), example, first, rules, unstated(tests), len(a.nodes))
        _check_batch(tests, rules, example)
    return Recorded(a, rules, _lines(tests), draws)


def _of_file(subject: Subject, model: Loaded, sizes: Sizes) -> Recorded:
    """A loaded file: its rules hold under the names that its sizes have now."""
    example = subject.example
    recording = _first(subject, sizes)
    before = [[f"{i.name}_{n}" if d is None else d for n, d in enumerate(i.dims)] for i in model.contract.inputs]
    if before == [list(dims) for dims in example.dims.values()]:
        return Recorded(recording.graph, SizeRules(example.declared, example.conditions))
    tests = in_named_sizes(recording.size_tests, recording.graph, example, sizes)
    rules = _with_declared(rules_of(tests, sizes, example.declared), example)
    return Recorded(recording.graph, rules, _lines(tests))


def _with_declared(rules: SizeRules, example: Example) -> SizeRules:
    return replace(rules, conditions=tuple(dict.fromkeys((*rules.conditions, *example.conditions))))


def _lines(tests: Sequence[SizeTest]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(t.where for t in unstated(tests)))


def _first(subject: Subject, sizes: Sizes) -> Recording:
    recording = Recording()
    try:
        subject.record(sizes, into=recording)
    except RecordError as error:
        raise as_export_error(error) from error
    return recording


def far_sizes(example: Example, rules: SizeRules) -> list[Sizes]:
    """Sizes besides the batch that are far below and far above the example's, as far as they are allowed."""
    others = {dim: size for dim, size in example.sizes.items() if dim != example.batch}
    if not others:
        return []
    if example.others:  # the user has said which sizes there are
        return [{dim: example.sizes_in(each)[dim] for dim in others} for each in example.others[1:]]
    below = {dim: size // 2 + 1 if size > 4 else 2 * size + 1 for dim, size in others.items()}
    above = {dim: 2 * size + 1 if size > 4 else 4 * size + 3 for dim, size in others.items()}
    return [found for each in (below, above) if rules.broken(found := within(each, rules.ranges)) is None]


def _compare_far(subject: Subject, a: Graph, first: Sizes, far: Sizes) -> None:
    """One more recording, which must be the same graph if the model runs at these sizes at all."""
    try:
        c = subject.record(far)
    except Exception:  # too small or too large for the model, and not given by the user
        return
    leak = _leak(a, c)
    if leak is not None and not _gives_the_same(subject, a, far):
        raise _explain(subject, a, leak, first, far, c)


def _compare_opposite(subject: Subject, a: Graph, first: Sizes) -> None:
    """One more recording, of values so different that ``int(x.array.max() > 0)`` differs, if the model takes them."""
    try:
        with np.errstate(all="ignore"):
            c = subject.record(first, values=Values.OPPOSITE)
    except Exception:  # a place that no table has, or the logarithm's domain
        return
    infer_reshape_sizes(a, c)
    leak = find_leak(a, c)
    if leak is not None and _holds_at(subject, a, first):  # else it changes with each call, which the proof says
        raise _baked_values(leak)


def _holds_at(subject: Subject, a: Graph, sizes: Sizes) -> bool | None:
    """Whether the first recording is right at these sizes; None if the model does not run there."""
    try:
        c = subject.record(sizes)
    except Exception:  # of the model's own code: too small or too large for it
        return None
    return _leak(a, c) is None or _gives_the_same(subject, a, sizes)


def _outcome(subject: Subject, a: Graph, sizes: Sizes) -> Outcome:
    """What one more recording says of the first; a size that neither model nor graph takes is no matter."""
    holds = _holds_at(subject, a, sizes)
    if holds is None and _runs_at(subject, a, sizes):
        return Outcome.FAILS
    return Outcome.OTHER if holds is False else Outcome.SAME


def _runs_at(subject: Subject, graph: Graph, sizes: Sizes) -> bool:
    try:
        with no_grad():
            replay(graph, list(subject.example.tensors(subject.example.cut(sizes)).values()))
    except Exception:  # of an operator of the graph
        return False
    return True


def _gives_the_same(subject: Subject, graph: Graph, sizes: Sizes) -> bool:
    """Whether the graph is as good as the model at these sizes, although the model took other operators there: a copy
    less where a dimension is 1."""
    tensors = list(subject.example.tensors(subject.example.cut(sizes)).values())
    names = [v.name for v in graph.outputs]
    try:
        with no_grad():
            result = subject.example.call(subject.model, tensors)
            expected = arrays_of(named_outputs(result, names))
            got = replay(graph, tensors)
    except Exception:  # of an operator of the graph, which then does not hold at these sizes
        return False
    return all(compare(x.array, expected[name]).ok for x, name in zip(got, names, strict=True))


def _check_batch(tests: Sequence[SizeTest], rules: SizeRules, example: Example) -> None:
    """A file takes one sample and a few; code that needs another number of them says so by `ox.Dim`."""
    found = rules.ranges.get(example.batch or "")
    declared = example.declared.get(example.batch or "")
    bad = [n for n in (1, 2, 3, 7) if found is not None and n not in found and (declared is None or n in declared)]
    if bad:
        rows = {str(example.batch): 2}
        made = ((t.where, rules_of([t], rows, {})) for t in named(tests) if set(leaves(t.expression)) == set(rows))
        where = next((place for place, rule in made if rule.broken({str(example.batch): bad[0]})), "")
        raise ExportError(
            "the model takes another path at another batch size",
            where=where or None,
            got=f"what was recorded is right for {example.batch} in {found}",
            hint="the same operators at every size; ox.where(condition, a, b) chooses values; "
            "or dims with ox.Dim('batch', min=...), if the file is for such batches only",
        )


@dataclass(frozen=True)
class _Second:
    graph: Graph
    tests: Sequence[SizeTest]


def _second(subject: Subject, a: Graph, first: Sizes, second: Sizes) -> _Second:
    """The second recording, which must be the same graph as the first. Raises ExportError where it is not."""
    recording = Recording()
    try:
        b = subject.record(second, values=Values.HALVED, into=recording)
    except Exception as error:
        leak = _leak(_first_nodes(a, recording.graph), recording.graph) or find_fixed_reshape(a, recording.graph)
        explained = _explain(subject, a, leak, first, second, recording.graph, error)
        rows = {dim: size for dim, size in second.items() if dim == subject.example.batch}
        if multiples := multiples_that_run(partial(_holds_at, subject, a), subject.example, first | rows):
            dims = ", ".join(f"ox.Dim('{dim}', multiple_of={step})" for dim, step in multiples.items())
            explained.hint = f"{dims} in dims: the model runs at multiples"
        raise explained from (None if isinstance(error, OxError) else error)
    leak = _leak(a, b)
    if leak is not None:
        raise _explain(subject, a, leak, first, second, b)
    return _Second(b, recording.size_tests)


def _leak(a: Graph, b: Graph) -> Leak | None:
    infer_reshape_sizes(a, b)
    return find_fixed_reshape(a, b) or find_leak(a, b)


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
        return _baked_values(leak)
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
    return ExportError(what, where=where or None, hint=hint or hint_for_line(where or ""), extra={"dim": sizes + told})


def _baked_values(leak: Leak) -> ExportError:
    return ExportError(
        "values of the example are baked into the model",
        where=_place(leak.node) or None,
        got=f"{leak.what} was {leak.first}, then {leak.second} for another input",
        hint="ox operators on the tensor itself, in place of NumPy or Python numbers made from its data",
    )


def _place(node: Node | None) -> str:
    """Module and line; where the line is the model's own, its forward is named: ``Head.forward, model.py:57``."""
    if node is None:
        return ""
    return node.place if " (" in node.module or not node.module else f"{node.module}.forward, {node.where}"


def _depends_on_values(subject: Subject, a: Graph, sizes: Sizes) -> bool:
    """Whether the graph changes with the values of the input alone."""
    try:
        other = subject.record(sizes, values=Values.HALVED)
        infer_reshape_sizes(a, other)
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
        if _leak(a, b) is not None:
            return dim
    return next(iter(first))


def as_export_error(error: OxError) -> ExportError:
    """A refusal of the recording is one of the export."""
    return ExportError(
        error.what, where=error.where, expected=error.expected, got=error.got, hint=error.hint, extra=error.extra
    )


def name_sizes(
    runs: Sequence[tuple[Sizes, tuple[int, ...]]],
    known: Sequence[int | str | None] | None,
    stem: str,
    counted: bool = False,
) -> tuple[int | str, ...]:
    """The sizes to declare for an output: as inferred, else as seen.

    Args:
        runs: the output's shape in several runs, and the named sizes of each run.
        known: the result of shape inference; None inside where unknown.
        stem: the output's name, from which a size of its own is named.
        counted: sizes may follow from values, so that an equal number in all runs means nothing.
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
        elif len({n for _, n in seen}) == 1 and not counted:
            result.append(seen[0][1])
        else:
            result.append(same[0] if same else f"{stem}_{axis}")
    return tuple(result)


def arrays_of(result: Any) -> dict[str, Array]:
    """Tensors by name as arrays of their own."""
    return {name: np.array(tensor.detach().cpu().array) for name, tensor in result.items()}
