"""The keywords that PyTorch's functions take besides the names of their parameters: NumPy's names, `out=`, sizes by
name, and `layout=`, `pin_memory=` and the like, which change nothing here.

A function with them is called by its own positions and names as before; only what else comes by name is looked at.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache, wraps
from types import TracebackType
from typing import Any, TypeVar

from ox.core.argument_errors import not_tensor_error
from ox.core.memory_format import check_ignored_format
from ox.errors import ArgumentError, CallError, OxError, PairsError
from ox.functions.out_argument import write

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
    "split_sizes": ("split_size_or_sections",),
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

    A call by the function's own positions and names goes through at the cost of one more Python call.

    Args:
        out: whether `out=` is one: a tensor, or a tuple of them for a tuple, into which the result goes.
        without_effect: whether `layout=`, `pin_memory=` and `memory_format=` are.

    Raises (when it is called):
        CallError: a keyword that it does not have, one that is given twice, or a missing argument.
        DTypeError: an array or list where it takes tensors.
    """
    form = _form(function, out, without_effect)
    made = _of_sizes(form) if form.star is not None else _of_places(form)
    wraps(function)(made)
    made.call_form = form
    return made


def factory(function: F) -> F:
    """`keywords` of a function that makes a tensor, which takes ``layout=`` and the like."""
    return keywords(function, without_effect=True)


def factory_without_out(function: F) -> F:
    """The same, without ``out=``."""
    return keywords(function, out=False, without_effect=True)


def method(function: F) -> F:
    """`keywords` of a method, which has no ``out=``."""
    return keywords(function, out=False)


@dataclass(frozen=True)
class _Form:
    """A function, and how it is called."""

    function: Any
    signature: inspect.Signature
    places: tuple[inspect.Parameter, ...]  # by position, those that must be given first
    star: str | None  # the name of the parameter that takes all further positions
    out: bool
    without_effect: bool

    @property
    def name(self) -> str:
        return self.function.__name__


def _form(function: Any, out: bool, without_effect: bool) -> _Form:
    signature = inspect.signature(function)
    parameters = signature.parameters.values()
    star = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    places = tuple(p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    return _Form(function, signature, places, star, out, without_effect)


class _Missing:
    """What stands for an argument that must be given and was not."""


MISSING = _Missing()


def _of_places(form: _Form) -> Any:
    """A function of the form's positions: Python fills in what is given by name."""
    required = sum(p.default is p.empty for p in form.places)
    own = frozenset(p.name for p in form.signature.parameters.values() if p.kind is p.KEYWORD_ONLY).issuperset
    made = _template(len(form.places), required)(
        form, form.function, own, _again, MISSING, not_tensor_error, PairsError, of_pairs
    )
    names = tuple(p.name for p in form.places)
    made.__code__ = made.__code__.replace(co_varnames=(*names, *made.__code__.co_varnames[len(names) :]))
    made.__defaults__ = tuple(MISSING if p.default is p.empty else p.default for p in form.places)
    return made


@cache
def _template(count: int, required: int) -> Any:
    """The maker of a function of so many positions, of which the first ones must be given; their names come later.

    Written as text, as `dataclasses` writes its methods: ``*args, **kwargs`` would cost three times as much.
    """
    places = [f"_{i}" for i in range(count)]
    given = " ".join(f"{p}," for p in places)
    source = f"""
def make(form, function, own, again, MISSING, not_tensors, PairsError, of_pairs):
    def called({", ".join([*(f"{p}=None" for p in places), "**more"])}):
        if {" or ".join(f"{p} is MISSING" for p in places[:required]) or "False"}:
            return again(form, ({given}), more)
        try:
            if not more:
                return function({", ".join(places)})
            if own(more):
                return function({given} **more)
        except AttributeError as error:
            better = not_tensors(function.__name__, error)
            if better is None:
                raise
            raise better from None
        except (PairsError, IndexError) as error:
            return of_pairs(error, function.__name__, ({given}), more)
        return again(form, ({given}), more)
    return called
"""
    made: dict[str, Any] = {}
    exec(compile(source, __file__.replace(".py", "_template"), "exec"), made)  # a name of ours, for errors look there
    return made["make"]


def of_pairs(error: Exception, name: str, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """The call with tensors that stand for complex numbers, if it means the same for these; else the error.

    Only the outermost function: those within it count dimensions that it has counted already."""
    first = args[0] if args else None
    owner: Any = next(iter(first), None) if isinstance(first, (list, tuple)) else first
    functions = getattr(owner, "of_functions", None)
    if functions is None or sys._getframe(2).f_globals.get("__name__", "").startswith("ox."):
        raise error
    function = functions.get(name)
    if function is None:
        raise error if isinstance(error, PairsError) else owner.refused(name) from None
    given = list(args)
    while given and given[-1] is MISSING:
        given.pop()
    return function(*given, **more)


def _of_sizes(form: _Form) -> Any:
    """A function that also takes any number of positions."""

    function, body = form.function, inspect.unwrap(form.function).__code__

    def called(*args: Any, **more: Any) -> Any:
        try:
            return function(*args, **more)
        except (PairsError, IndexError) as error:
            return of_pairs(error, form.name, args, more)
        except TypeError as error:
            if isinstance(error, OxError) or _entered(error.__traceback__, body):
                raise
        except AttributeError as error:
            better = not_tensor_error(form.name, error)
            if better is None:
                raise
            raise better from None
        return _again(form, args, more)

    return called


def _again(form: _Form, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
    """The call with the names that the function itself has."""
    given: dict[str, Any] = {}
    if form.star is None:
        given = {p.name: x for p, x in zip(form.places, args, strict=True) if x is not MISSING and x is not p.default}
        args = ()
    target = more.pop("out", None) if form.out and "out" not in form.signature.parameters else None
    _rename(form, given, more)
    if form.star in given:
        sizes, before = given.pop(form.star), [p.name for p in form.places][len(args) :]
        if len(args) > len(form.places):
            raise _twice(form.name, form.star, None)
        args = (*args, *[given.pop(name) for name in before if name in given], sizes)
    try:
        made = form.function(*args, **given)
    except TypeError as error:
        if isinstance(error, OxError) or _entered(error.__traceback__, inspect.unwrap(form.function).__code__):
            raise
        raise _wrong_call(form, args, given, error) from None
    except AttributeError as error:
        better = not_tensor_error(form.name, error)
        if better is None:
            raise
        raise better from None
    return made if target is None else write(made, target, form.name)


def _entered(trace: TracebackType | None, body: Any) -> bool:
    """Whether the function ran: then the error is about something else than its arguments' names."""
    while trace is not None:
        if trace.tb_frame.f_code is body:
            return True
        trace = trace.tb_next
    return False


def _rename(form: _Form, given: dict[str, Any], more: dict[str, Any]) -> None:
    """Put what came by name under the names of the function."""
    names = form.signature.parameters
    for name, value in more.items():
        own = name
        if name not in names:
            if form.without_effect and name in WITHOUT_EFFECT:
                _refuse_value(form.name, name, value)
                continue
            own = next((each for each in ALIASES.get(name, ()) if each in names), name)
        if own in given or (own != name and own in more):
            raise _twice(form.name, own, name if own != name else None)
        given[own] = value


def _refuse_value(function: str, name: str, value: Any) -> None:
    if name == "memory_format":
        check_ignored_format(value)
    allowed = WITHOUT_EFFECT[name]
    if allowed and not any(value is each or value == each for each in allowed):
        raise ArgumentError(
            f"{function} takes no {name}={value!r}",
            expected=" or ".join(map(repr, allowed)),
            hint="x.to_sparse() of the result" if name == "layout" else None,
        )


def _twice(function: str, name: str, alias: str | None) -> CallError:
    also = f", once as {alias!r}" if alias else ""
    return CallError(f"{function} got {name!r} twice{also}")


def _wrong_call(form: _Form, args: tuple[Any, ...], kwargs: dict[str, Any], error: TypeError) -> CallError:
    parameters = [p.replace(annotation=p.empty) for p in form.signature.parameters.values()]
    known = [p.name for p in parameters if p.kind is not p.VAR_POSITIONAL]
    if form.out and "out" not in known:
        known.append("out")
        parameters.append(inspect.Parameter("out", inspect.Parameter.KEYWORD_ONLY, default=None))
    unknown = [name for name in kwargs if name not in known]
    near = get_close_matches(unknown[0], known, 1) if unknown else []
    return CallError(
        str(error),
        expected=f"{form.name}{inspect.Signature(parameters)}",
        got=", ".join([*(type(x).__name__ for x in args), *(f"{k}={type(v).__name__}" for k, v in kwargs.items())]),
        hint=f"{near[0]}=" if near else None,
    )
