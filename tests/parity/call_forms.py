"""Every call of PyTorch's sample inputs in all the forms that PyTorch takes it: by position, by name, with the defaults
left out or given, with NumPy's names, with `out=`; and what ox makes of each."""

from __future__ import annotations

import ast
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import opinfo
import torch
from opinfo_sides import Ours, OutsideError, Theirs, difference, flat
from overloads import KEYWORD, NONE, PLAIN, Overload, overloads
from torch.testing._internal.opinfo.core import OpInfo

import ox

SAMPLES = 4  # of each operation and type
NUMPY = {"input": "x1", "other": "x2", "dim": "axis", "keepdim": "keepdims"}
# What the database has no operation for, called as here.
MORE: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "torch.zeros": (((2, 3),), {"dtype": torch.int64}),
    "torch.ones": (((2, 3),), {}),
    "torch.empty": (((2, 3),), {}),
    "torch.full": (((2, 3), 4.0), {"dtype": torch.float64}),
    "torch.eye": ((3, 4), {"dtype": torch.float64}),
    "torch.arange": ((1, 7, 2), {"dtype": torch.float32}),
    "torch.linspace": ((0.0, 1.0, 5), {}),
    "torch.logspace": ((0.0, 1.0, 5, 2.0), {}),
    "torch.rand": (((2, 3),), {}),
    "torch.randn": (((2, 3),), {}),
    "torch.randint": ((0, 5, (2, 3)), {}),
    "torch.randperm": ((4,), {}),
    "torch.hann_window": ((5, False), {}),
    "torch.hamming_window": ((5, True, 0.5, 0.4), {}),
    "torch.blackman_window": ((5, True), {}),
    "torch.bartlett_window": ((5, True), {"dtype": torch.float64}),
    "torch.kaiser_window": ((5, True, 10.0), {}),
    "torch.tril_indices": ((3, 4, 1), {}),
    "torch.triu_indices": ((3, 4, 1), {}),
    "torch.fft.fftfreq": ((5, 0.5), {}),
    "torch.fft.rfftfreq": ((5, 0.5), {}),
    "torch.chain_matmul": ((torch.ones(2, 3), torch.ones(3, 2)), {}),
    "torch.pinverse": ((torch.arange(6.0).reshape(2, 3),), {}),
    "torch.det": ((torch.eye(2),), {}),
    "torch.repeat_interleave": ((torch.tensor([1, 2]),), {}),
    "torch.asarray": (([1, 2],), {"dtype": torch.float32}),
    "torch.as_tensor": (([1, 2], torch.float64), {}),
    "torch.normal": ((torch.zeros(3), torch.ones(3)), {}),
    "torch.where": ((torch.tensor([1, 0], dtype=torch.uint8), torch.ones(2), torch.zeros(2)), {}),
    "torch.polygamma": ((1, torch.ones(2)), {}),
    "torch.special.polygamma": ((2, torch.ones(2)), {}),
    "torch.nn.functional.embedding": ((torch.tensor([0, 1]), torch.eye(3)), {"padding_idx": 1}),
    "torch.nn.functional.embedding_bag": ((torch.tensor([[0, 1]]), torch.eye(3)), {"mode": "sum"}),
    "torch.Tensor.to": ((torch.ones(2), torch.float64, False, True), {}),
    "torch.Tensor.copy_": ((torch.zeros(2), torch.ones(2), False), {}),
    "torch.Tensor.new_zeros": ((torch.zeros(2), (2, 3)), {"dtype": torch.int64}),
    "torch.Tensor.new_ones": ((torch.zeros(2), (2, 3)), {}),
    "torch.Tensor.new_empty": ((torch.zeros(2), (2, 3)), {}),
    "torch.Tensor.new_full": ((torch.zeros(2), (2, 3), 4), {}),
    "torch.Tensor.norm": ((torch.eye(3), "nuc"), {}),
    "torch.norm": ((torch.eye(3), "nuc", (0, 1)), {}),
}
UNDETERMINED = {*opinfo.UNDETERMINED, "rand", "randn", "randperm", "empty", "new_empty"}


@dataclass(frozen=True)
class Form:
    """One way to write a call."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    outs: bool = False


@dataclass(frozen=True)
class Call:
    """A function or method of PyTorch's with valid arguments, and whether two calls give the same values."""

    space: str
    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    determined: bool = True

    @property
    def full(self) -> str:
        return f"{self.space}.{self.name}"

    def function(self, side: int) -> Callable[..., Any] | None:
        path = self.full.removeprefix("torch.")
        found = opinfo.resolve(torch if side else ox, path)
        return found if callable(found) else None


@cache
def calls() -> dict[str, list[Call]]:
    """Sample calls by PyTorch's full name: those of the database, as functions and as methods, and `MORE`."""
    found: dict[str, list[Call]] = {}
    for op in opinfo.operations().values():
        space, _, name = f"torch.{op.name}".rpartition(".")
        for sample in samples(op):
            arguments, same = (sample.input, *sample.args), opinfo.determined(op, sample)
            found.setdefault(f"{space}.{name}", []).append(Call(space, name, arguments, sample.kwargs, same))
            if space == "torch" and hasattr(torch.Tensor, name) and isinstance(sample.input, torch.Tensor):
                found.setdefault(f"torch.Tensor.{name}", []).append(
                    Call("torch.Tensor", name, arguments, sample.kwargs, same)
                )
    for full, (args, kwargs) in MORE.items():
        space, _, name = full.rpartition(".")
        found.setdefault(full, []).append(Call(space, name, args, kwargs))
    return {full: each for full, each in found.items() if each[0].function(0) and each[0].function(1)}


def samples(op: OpInfo) -> Iterator[Any]:
    dtype = next((d for d in (torch.float32, torch.int64, torch.bool) if d in op.dtypes), None)
    if dtype is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        yield from itertools.islice(op.sample_inputs("cpu", dtype), SAMPLES)


def forms(call: Call) -> Iterator[Form]:
    """The forms of a call that PyTorch's own declarations allow."""
    for overload in overloads(call.space, call.name):
        given = bound(overload, call)
        if given is None or any(p.name == "self" for p in overload.parameters):  # a deprecated order of arguments
            continue
        first = call.args[:1] if call.space == "torch.Tensor" else ()
        only_names = {p.name: given[p.name] for p in overload.by_name if p.name in given}
        by_place = [p for p in overload.by_place if p.name in given]
        if by_place == overload.by_place[: len(by_place)]:
            yield Form("by position", (*first, *(given[p.name] for p in by_place)), only_names)
        yield Form("by name", first, given)
        defaults = {p.name: literal(p.default) for p in overload.parameters if p.default != NONE}
        filled = {k: v for k, v in defaults.items() if k not in given and k != "out" and v is not NONE}
        yield Form("with defaults", first, {**given, **filled})
        renamed = {NUMPY.get(name, name): value for name, value in given.items()}
        if renamed != given:
            yield Form("with NumPy's names", first, renamed)
        if any(p.name == "out" for p in overload.parameters) and call.space != "torch.Tensor":
            yield Form("with out", first, given, outs=True)


def bound(overload: Overload, call: Call) -> dict[str, Any] | None:
    """The arguments of a call by the names of an overload; None where they do not fit."""
    args = call.args[call.space == "torch.Tensor" :]
    places = [p.name for p in overload.by_place if p.kind == PLAIN]
    if len(places) != len(overload.by_place) or len(args) > len(places):
        return None
    given = dict(zip(places, args, strict=False))
    names = {p.name: p for p in overload.parameters}
    if any(name not in names or name in given for name in call.kwargs):
        return None
    given |= call.kwargs
    needed = [p.name for p in overload.parameters if p.default == NONE and p.kind in (PLAIN, KEYWORD)]
    return given if all(name in given for name in needed) else None


def literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return NONE


def check(call: Call) -> tuple[int, dict[str, str]]:
    """How many forms PyTorch takes, and of those that ox takes otherwise, what is different."""
    if attempt(call, Form("as it is", call.args, call.kwargs))[1] is not None:
        return 0, {}  # whether the operation agrees is asked by the tests of the database
    counted, wrong, seen = 0, {}, set()
    for form in forms(call):
        taken, text = attempt(call, form)
        key = (form.name, len(form.args), *sorted(form.kwargs))
        if taken and key not in seen:
            seen.add(key)
            counted += 1
            if text is not None:
                wrong[f"{form.name} ({', '.join([str(len(form.args)), *form.kwargs])})"] = text
    return counted, wrong


def attempt(call: Call, form: Form) -> tuple[bool, str | None]:
    """Whether PyTorch takes a form, and what is different here; None where nothing is."""
    named = {call.name, call.full.removeprefix("torch.")}
    values = call.determined and named.isdisjoint(UNDETERMINED)
    try:
        expected = run(call, form, 1)
    except Exception:
        return False, None
    try:
        got = run(call, form, 0)
    except OutsideError:
        return False, None
    except Exception as error:
        return True, f"{type(error).__name__}: {error}".partition("\n")[0]
    return True, difference(got, expected, values)


def run(call: Call, form: Form, side: int) -> Any:
    copy: Any = Theirs() if side else Ours()
    function: Any = call.function(side)
    with warnings.catch_warnings(), torch.no_grad(), ox.no_grad():
        warnings.simplefilter("ignore")
        args, kwargs = copy(form.args), copy(form.kwargs)
        if not form.outs:
            return function(*args, **kwargs)
        made = function(*args, **kwargs)
        package: Any = torch if side else ox
        outs = [package.empty(0, dtype=r.dtype) for r in flat(made)]
        back = function(*args, **kwargs, out=outs[0] if len(outs) == 1 else tuple(outs))
        if any(a is not b for a, b in zip(flat(back), outs, strict=True)):
            raise ValueError("the result is another object than out=")
        return tuple(outs) if len(outs) > 1 else outs[0]
