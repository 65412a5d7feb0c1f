"""The sizes that a file is right for: refused for others when it runs, and handed on when a call of it is recorded."""

from __future__ import annotations

from collections.abc import Sequence

from ox.core.mode import MODE
from ox.core.size_expression import Expression, combined, inverse, leaves, substituted, text
from ox.core.symbolic import expression_of
from ox.core.tensor import TensorBase
from ox.errors import ShapeError
from ox.graph.contract import Contract
from ox.graph.size_rules import SizeRules, is_name_of, sizes_by_name

NAMELESS = ("None", "?")  # what exporters write for sizes that they have no name for


def check_sizes(contract: Contract, tensors: Sequence[TensorBase]) -> None:
    """Raise ShapeError for inputs of sizes that the file is not for: a name that has two sizes, a size that its rules
    exclude, and 0 where a file of ox does not declare it."""
    shapes = [x.static_shape for x in tensors]
    seen: dict[str, tuple[int, str]] = {}
    for info, shape in zip(contract.inputs, shapes, strict=True):
        for dim, size in zip(info.dims, shape, strict=False):
            if not isinstance(dim, str) or dim in NAMELESS:
                continue
            first, where = seen.setdefault(dim, (size, info.name))
            if first != size:
                raise ShapeError(
                    f"'{dim}' is {first} in input '{where}' and {size} in input '{info.name}'",
                    expected=f"one size for all dimensions that are called '{dim}'",
                    got=", ".join(f"{i.name} {list(s)}" for i, s in zip(contract.inputs, shapes, strict=True)),
                )
    sizes = sizes_by_name([info.dims for info in contract.inputs], shapes)
    ruled = contract.rules or contract.version is not None  # others say nothing of 0
    broken = contract.rules.broken(sizes) if ruled else None
    if broken is not None:
        raise ShapeError(
            "the file is not for inputs of these sizes",
            expected=broken,
            got=", ".join(f"{name} {size}" for name, size in sizes.items()),
            hint="an export whose example has such sizes, or ox.Dim(name, min=0) where a size is 0",
        )


def note_sizes(contract: Contract, tensors: Sequence[TensorBase]) -> None:
    """Tell the recording in which the file is called, if there is one, what its rules say of the sizes there."""
    recording = MODE.get().recording
    if recording is None:
        return
    known: dict[str, Expression] = {}
    for info, x in zip(contract.inputs, tensors, strict=True):
        for dim, size in zip(info.dims, x.shape, strict=False):
            if dim is None or dim in NAMELESS:
                continue
            own = expression_of(size)
            _note(recording, combined("==", own, known.setdefault(dim, own) if isinstance(dim, str) else dim))
    for test in _tests(contract.rules, known):
        _note(recording, test)


def _tests(rules: SizeRules, known: dict[str, Expression]) -> list[Expression]:
    """The rules as comparisons of the sizes where the file is called; None for one that cannot be said there."""
    for each in filter(is_name_of, rules.conditions):
        missing = {name for name in leaves(each[2]) if name not in known}
        if each[1] in known and len(missing) == 1:
            name = missing.pop()
            of_names = inverse(each[2], name, each[1])
            known[name] = None if of_names is None else substituted(of_names, known)
    conditions = list(rules.conditions)
    for name, each in rules.ranges.items():
        conditions += [(">=", name, each.min)] if each.min > 1 else []
        conditions += [("<=", name, each.max)] if each.max is not None else []
        conditions += [("==", ("%", name, each.multiple_of), each.remainder)] if each.multiple_of > 1 else []
    # that a size which only others tell is 1 at least is no rule of its own
    told = {name for each in filter(is_name_of, rules.conditions) for name in leaves(each[2])}
    conditions += [(">=", name, 1) for name in sorted(told - rules.ranges.keys())]
    of_known = [each for each in conditions if all(name in known for name in leaves(each))]
    return [_in_sizes(each, known) for each in of_known]


def _in_sizes(condition: Expression, known: dict[str, Expression]) -> Expression:
    return None if any(known[name] is None for name in leaves(condition)) else substituted(condition, known)


def _note(recording: object, test: Expression) -> None:
    """A test of numbers alone, or of a size against itself, says nothing."""
    if test is not None and (not list(leaves(test)) or test[1] == test[2] or text(test[1]) == text(test[2])):
        return
    recording.on_size_test(test)  # type: ignore[attr-defined]
