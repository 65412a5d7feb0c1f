"""The keywords that PyTorch's functions take besides the names of their parameters: NumPy's names, `out=`, sizes by
name, and `layout=`, `pin_memory=` and the like, which change nothing here.

A call whose keywords are a function's own runs as it is: what Python cannot bind is looked at after the fact.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import cache, wraps
from types import TracebackType
from typing import Any, TypeVar

from ox.errors import ArgumentError, CallError
from ox.functions.out import write
from ox.taken import not_tensors
from ox.where import users_line

F = TypeVar("F", bound=Callable[..., Any])

# What PyTorch calls a parameter elsewhere, and what it may be here; the first one that a function has.
ALIASES: dict[str, tuple[str, ...]] = {
    "axis": ("dim",),
    "keepdims": ("keepdim",),
    **dict.fromkeys(("x", "a", "x1", "A", "self"), ("input", "A")),
    "input": ("A",),
    "x2": ("other",),
    "B": ("b",),
    **dict.fromkeys(("mat2", "vec", "vec2", "tensor"), ("other",)),
    **dict.fromkeys(("sections", "indices", "tensor_indices_or_sections"), ("indices_or_sections",)),
    "element": ("elements",),
    "test_element": ("test_elements",),
    "split_size": ("split_size_or_sections",),
}
# What changes nothing here -> the values that may be given; any, where there are none.
WITHOUT_EFFECT: dict[str, tuple[Any, ...]] = {
    "layout": (None, "strided"),
    "pin_memory": (),
    "memory_format": (),
    "names": (None,),
}


def keywords(function: F, out: bool = True, without_effect: bool = False) -> F:
    """The function with PyTorch's other keywords.

    Args:
        out: whether `out=` is one: a tensor, or a tuple of them for a tuple, into which the result goes.
        without_effect: whether `layout=`, `pin_memory=` and `memory_format=` are.

    Raises (when it is called):
        CallError: a keyword that it does not have, one that is given twice, or a missing argument.
        DTypeError: an array or list where it takes tensors.
    """
    body = getattr(inspect.unwrap(function), "__code__", None)

    @wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            if _entered(error.__traceback__, body):
                raise
            refused = error
        except AttributeError as error:
            told = not_tensors(function.__name__, error)
            if told is None:
                raise
            raise told from None
        return _again(function, args, kwargs, refused, out, without_effect)

    return called  # type: ignore[return-value]


def _entered(trace: TracebackType | None, body: Any) -> bool:
    """Whether the function ran: then the error is about something else than its arguments' names."""
    while trace is not None:
        if trace.tb_frame.f_code is body:
            return True
        trace = trace.tb_next
    return False


def _again(
    function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], refused: TypeError, out: bool, without_effect: bool
) -> Any:
    """The call with the keywords that the function itself has."""
    name, (names, star) = function.__name__, _parameters(function)
    target = kwargs.pop("out", None) if out else None
    renamed = _renamed(name, names, kwargs, without_effect)
    if star is not None and names[star] in renamed:
        if len(args) > star:
            raise _twice(name, names[star], None)
        args = (*args, *[renamed.pop(each) for each in names[len(args) : star + 1] if each in renamed])
    try:
        made = function(*args, **renamed)
    except TypeError as error:
        if _entered(error.__traceback__, inspect.unwrap(function).__code__):
            raise
        raise _wrong_call(function, args, renamed, error, out) from refused
    return made if target is None else write(made, target, name)


@cache
def _parameters(function: Any) -> tuple[list[str], int | None]:
    """The names of a function's parameters, and the place among them of the one that takes all further arguments."""
    parameters = inspect.signature(function).parameters.values()
    star = [i for i, p in enumerate(parameters) if p.kind is p.VAR_POSITIONAL]
    return [p.name for p in parameters], star[0] if star else None


def _renamed(function: str, names: list[str], kwargs: dict[str, Any], without_effect: bool) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for name, value in kwargs.items():
        own = name
        if name not in names:
            if without_effect and name in WITHOUT_EFFECT:
                _refuse_value(function, name, value)
                continue
            own = next((each for each in ALIASES.get(name, ()) if each in names), name)
        if own in renamed or (own != name and own in kwargs):
            raise _twice(function, own, name if own != name else None)
        renamed[own] = value
    return renamed


def _refuse_value(function: str, name: str, value: Any) -> None:
    allowed = WITHOUT_EFFECT[name]
    if allowed and not any(value is each or value == each for each in allowed):
        raise ArgumentError(
            f"{function} takes no {name}={value!r}",
            where=users_line(4),
            expected=" or ".join(map(repr, allowed)),
            hint="x.to_sparse() of the result" if name == "layout" else None,
        )


def _twice(function: str, name: str, alias: str | None) -> CallError:
    also = f", once as {alias!r}" if alias else ""
    return CallError(f"{function} got {name!r} twice{also}", where=users_line(3))


def _wrong_call(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError, out: bool) -> CallError:
    signature = inspect.signature(function)
    parameters = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    if out and "out" not in known:
        known.append("out")
        parameters.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))
    unknown = [name for name in kwargs if name not in known]
    near = get_close_matches(unknown[0], known, 1) if unknown else []
    return CallError(
        str(error),
        where=users_line(4),
        expected=f"{function.__name__}{inspect.Signature(parameters)}",
        got=f"{len(args)} by position{', and ' + ', '.join(kwargs) if kwargs else ''}",
        hint=f"{near[0]}=" if near else None,
    )
