"""Control flow that records: cond, while_loop, scan. In eager code they are an `if`, a `while` and a `for`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ox.call_site import line_of, users_line
from ox.core import operator
from ox.core.constants import scalar
from ox.core.mode import MODE
from ox.core.operator import OPS
from ox.core.symbolic import Dim
from ox.core.tensor import is_tensor
from ox.dtypes import int64
from ox.errors import ArgumentError, RecordError
from ox.functions.creation import tensor

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor

__all__ = ["cond", "scan", "while_loop"]


def cond(pred: Any, true_fn: Callable[..., Any], false_fn: Callable[..., Any], operands: Sequence[Any] = ()) -> Any:
    """`true_fn(*operands)` where `pred` (a bool, or a tensor of one bool) is true, else `false_fn(*operands)`. A
    recording holds both as an If. Results are tensors, or tuples, lists and dicts of them. `torch.cond`.

    Raises:
        RecordError: under a recording, the two give different structures, element types or ranks, or `pred` is a bool
            of Python, which would decide once and for all: a comparison of a size is one.
        ArgumentError: `pred` is no single bool, or a branch no function of the operands.
    """
    if not isinstance(operands, (tuple, list)):
        raise ArgumentError(
            "the operands of cond are a tuple or list",
            got=type(operands).__name__, hint="ox.cond(pred, f, g, (x,))",
        )  # fmt: skip
    _check_callable("true_fn", true_fn, len(operands))
    _check_callable("false_fn", false_fn, len(operands))
    if isinstance(pred, np.ndarray) and pred.dtype == np.bool_ and pred.size == 1:
        pred = bool(pred.reshape(()))
    if isinstance(pred, (bool, np.bool_)):
        recording = MODE.get().recording
        if recording is not None and not recording.guarded:
            raise RecordError(
                f"cond on a bool of Python, here {bool(pred)}: the recording would hold one branch only, for all sizes",
                expected="a tensor of one bool, which decides in every run",
                hint="ox.ops.Shape(x)[0] > 3 for a size; a plain if, where it is to be decided once",
            )
        return true_fn(*operands) if pred else false_fn(*operands)
    if not is_tensor(pred):
        raise ArgumentError(
            "the condition of cond must be a bool", expected="a bool, or a tensor of one bool",
            got=f"{type(pred).__name__} {pred!r:.200}",
            hint="x.any(), x.all() or x > 0",
        )  # fmt: skip
    forms: list[Any] = []

    def branch(function: Callable[..., Any]) -> Callable[[], Any]:
        def run() -> list[Tensor]:
            leaves, form = flatten(function(*operands))
            forms.append(form)
            return leaves

        return run

    results = OPS["If"](pred, then_branch=branch(true_fn), else_branch=branch(false_fn))
    if any(form != forms[0] for form in forms):
        raise RecordError(
            "the two branches return different structures",
            got=f"the true one {_describe(forms[0])}, the false one {_describe(forms[-1])}",
            expected="one structure of tuples, lists and dicts",
        )
    return unflatten(forms[0], results)


def while_loop(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carried_inputs: Sequence[Any]
) -> tuple[Any, ...]:
    """`carried = body_fn(*carried)` as long as `cond_fn(*carried)`, a tensor of one bool, is true; the last ones. A
    recording holds it as a Loop, with a gradient where the carried shapes stay the same. `torch.while_loop`.

    Raises:
        RecordError: under a recording, `body_fn` gives other structures, element types or ranks than it takes.
        ArgumentError: one of the two is no function of what is carried.
    """
    if not isinstance(carried_inputs, (tuple, list)):
        raise ArgumentError(
            "while_loop carries a tuple or list",
            got=type(carried_inputs).__name__,
            hint="ox.while_loop(cond_fn, body_fn, (x,))",
        )  # fmt: skip
    _check_callable("cond_fn", cond_fn, len(carried_inputs))
    _check_callable("body_fn", body_fn, len(carried_inputs))
    start, form = flatten(tuple(carried_inputs))

    def go(flat: Sequence[Any]) -> Tensor:
        found = cond_fn(*unflatten(form, flat))
        return found if is_tensor(found) else operator.make_tensor(np.asarray(bool(found)))

    def step(_: Tensor, __: Tensor, *flat: Tensor) -> list[Tensor]:
        result = body_fn(*unflatten(form, flat))
        if len(form[1]) == 1 and not isinstance(result, (tuple, list)):
            result = (result,)
        after, given = flatten(tuple(result) if isinstance(result, list) else result)
        _same("body_fn", form, given)
        return [go(after), *after]

    return tuple(unflatten(form, OPS["Loop"](None, go(start), *start, body=step)))


def scan(
    combine_fn: Callable[[Any, Any], tuple[Any, Any]], init: Any, xs: Any, *, dim: int = 0, reverse: bool = False
) -> tuple[Any, Any]:
    """`carry, y = combine_fn(carry, x)` for each slice x of `xs` along `dim`: the last carry, and the ys stacked along
    a new first dimension. `init`, `xs` and the ys are tensors, or tuples, lists and dicts of them. A recording holds
    it as a Scan. `torch._higher_order_ops.scan`.

    Args:
        reverse: begin at the end; the ys lie in the order of `xs` all the same.

    Raises:
        RecordError: under a recording, the carry changes its structure, element type or rank.
        ArgumentError: no xs, or a `combine_fn` that does not take and return two things.
    """
    _check_callable("combine_fn", combine_fn, 2)
    states, form = flatten(init)
    slices, slice_form = flatten(xs)
    if not slices:
        raise ArgumentError("scan needs at least one tensor in xs")
    outputs: list[Any] = []

    def step(*flat: Tensor) -> list[Tensor]:
        given = unflatten(form, flat[: len(states)]), unflatten(slice_form, flat[len(states) :])
        result = combine_fn(*given)
        if not isinstance(result, (tuple, list)) or len(result) != 2:
            raise ArgumentError(
                "combine_fn must return two values: the next carry, and the output to stack", got=type(result).__name__
            )
        after, new_form = flatten(result[0])
        _same("combine_fn", form, new_form)
        ys, y_form = flatten(result[1])
        outputs[:] = [y_form]
        return [*after, *ys]

    results = OPS["Scan"](
        *states,
        *slices,
        body=step,
        num_scan_inputs=len(slices),
        scan_input_axes=[dim] * len(slices),
        scan_input_directions=[int(reverse)] * len(slices),
    )
    ys = list(results[len(states) :])
    if reverse:
        end, start, step_back, axis = (operator.as_input(np.array([n])) for n in (-(2**63), -1, -1, 0))
        ys = [OPS["Slice"](y, start, end, axis, step_back) for y in ys]
    return unflatten(form, results[: len(states)]), unflatten(outputs[0], ys)


def flatten(value: Any) -> tuple[list[Any], Any]:
    """The tensors inside tuples, lists and dicts, and the structure without them; numbers become tensors."""
    if isinstance(value, dict):
        names = sorted(value, key=repr)  # independent of the order of insertion
        parts = [flatten(value[name]) for name in names]
        form: Any = ("dict", [(k, f) for k, (_, f) in zip(names, parts, strict=True)])
    elif isinstance(value, (tuple, list)):
        parts = [flatten(v) for v in value]
        form = (type(value).__name__ if isinstance(value, list) else "tuple", [f for _, f in parts])
    elif value is None:
        return [], None
    else:
        if isinstance(value, Dim):
            return [scalar(value, int64)], "tensor"
        return [value if is_tensor(value) else tensor(value)], "tensor"
    return [leaf for leaves, _ in parts for leaf in leaves], form


def unflatten(form: Any, leaves: Iterable[Any]) -> Any:
    """The structure with these tensors in place."""
    left = iter(leaves)
    if form is None:
        return None
    if form == "tensor":
        return next(left)
    kind, parts = form
    if kind == "dict":
        return {k: unflatten(f, left) for k, f in parts}
    made = [unflatten(f, left) for f in parts]
    return made if kind == "list" else tuple(made)


def _check_callable(name: str, function: Any, count: int) -> None:
    """Raise ArgumentError for what cannot be called with so many arguments."""
    if not callable(function):
        raise ArgumentError(
            f"{name} is no function", got=f"{function!r:.200}",
            expected=f"a function of {count} arguments" if count else "a function without arguments",
        )  # fmt: skip
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # some functions of C do not tell
        return
    try:
        signature.bind(*[None] * count)
    except TypeError as error:
        raise ArgumentError(
            f"{name} takes other arguments than it is given", where=line_of(function), expected=f"{count} by position",
            got=f"{signature}: {error}", extra={"called at": users_line()},
        ) from error  # fmt: skip


def _same(name: str, expected: Any, got: Any) -> None:
    if expected != got:
        raise RecordError(
            f"{name} does not return the structure that it takes", expected=_describe(expected), got=_describe(got)
        )


def _describe(form: Any) -> str:
    """``(tensor, {a: tensor})``."""
    if form is None or form == "tensor":
        return str(form)
    kind, parts = form
    if kind == "dict":
        return "{" + ", ".join(f"{k}: {_describe(f)}" for k, f in parts) + "}"
    inner = ", ".join(map(_describe, parts))
    return f"[{inner}]" if kind == "list" else f"({inner})"
