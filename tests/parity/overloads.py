"""Every overload that PyTorch's own package declares: of its stubs (functions and methods written in C), of its
operator schemas (linalg, fft, special) and of `inspect` (functions written in Python)."""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch

STUBS = Path(torch.__file__).parent / "_C"
PLAIN, VARIADIC, KEYWORD = "positional or keyword", "*sizes", "keyword"
NONE = "no default"


@dataclass(frozen=True)
class Parameter:
    """One argument: its name, how it may be passed, and its default as text (`NONE` where it must be given)."""

    name: str
    kind: str
    default: str = NONE
    annotation: str = ""


@dataclass(frozen=True)
class Overload:
    """One way to call a PyTorch function or method, without `self`."""

    space: str
    name: str
    parameters: tuple[Parameter, ...] = field(repr=False)

    @property
    def full(self) -> str:
        return f"{self.space}.{self.name}"

    def __str__(self) -> str:
        parts: list[str] = []
        for i, p in enumerate(self.parameters):
            if p.kind == KEYWORD and not any(q.kind == KEYWORD for q in self.parameters[:i]):
                parts.append("*")
            star = "*" if p.kind == VARIADIC else ""
            parts.append(star + p.name + (f"={p.default}" if p.default != NONE else ""))
        return f"{self.full}({', '.join(parts)})"

    @property
    def by_place(self) -> list[Parameter]:
        return [p for p in self.parameters if p.kind != KEYWORD]

    @property
    def by_name(self) -> list[Parameter]:
        return [p for p in self.parameters if p.kind == KEYWORD]


def overloads(space: str, name: str) -> list[Overload]:
    """All that PyTorch declares under a name; none where it declares nothing that can be read."""
    if space == "torch.Tensor":
        found = _stubs("__init__", "TensorBase").get(name, [])
    elif space == "torch":
        found = _stubs("_VariableFunctions", "").get(name, [])
    else:
        found = []
    if not found:
        found = _of_python(space, name)
    if not found and space.startswith("torch."):
        found = _of_schemas(space, name)
    return [Overload(space, name, tuple(each)) for each in found]


@cache
def _stubs(module: str, owner: str) -> dict[str, list[list[Parameter]]]:
    body: list[Any] = ast.parse((STUBS / f"{module}.pyi").read_text()).body
    if owner:
        body = next(node for node in body if isinstance(node, ast.ClassDef) and node.name == owner).body
    found: dict[str, list[list[Parameter]]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef):
            found.setdefault(node.name, []).append(_of_stub(node.args, bool(owner)))
    return found


def _of_stub(arguments: ast.arguments, method: bool) -> list[Parameter]:
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [NONE] * (len(plain) - len(arguments.defaults)) + [ast.unparse(d) for d in arguments.defaults]
    made = [Parameter(a.arg, PLAIN, d, _kind(a)) for a, d in zip(plain, defaults, strict=True)][method:]
    if arguments.vararg is not None:
        made.append(Parameter(arguments.vararg.arg, VARIADIC, NONE, _kind(arguments.vararg)))
    for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        made.append(Parameter(a.arg, KEYWORD, NONE if d is None else ast.unparse(d), _kind(a)))
    return made


def _kind(argument: ast.arg) -> str:
    return "" if argument.annotation is None else ast.unparse(argument.annotation)


def _of_python(space: str, name: str) -> list[list[Parameter]]:
    try:
        thing = getattr(_module(space), name)
        signature = inspect.signature(thing)
    except (AttributeError, TypeError, ValueError):
        return []
    made = []
    for p in list(signature.parameters.values())[space == "torch.Tensor" :]:
        if p.kind is p.VAR_KEYWORD:
            continue
        kind = VARIADIC if p.kind is p.VAR_POSITIONAL else KEYWORD if p.kind is p.KEYWORD_ONLY else PLAIN
        made.append(Parameter(p.name, kind, NONE if p.default is p.empty else repr(p.default), str(p.annotation)))
    return [made]


def _of_schemas(space: str, name: str) -> list[list[Parameter]]:
    prefix = {"torch.linalg": "linalg_", "torch.fft": "fft_", "torch.special": "special_"}.get(space, "")
    own = getattr(getattr(_module(space), name), "__name__", name)
    found = []
    for operator in dict.fromkeys((f"aten::{own}", f"aten::{prefix}{name}", f"aten::{name}")):
        for schema in torch._C._jit_get_schemas_for_operator(operator):
            if any(a.is_out for a in schema.arguments):
                continue
            found.append([_of_argument(a) for a in schema.arguments] + _out_of(operator))
        if found:
            break
    return found


def _out_of(operator: str) -> list[Parameter]:
    """`out=`, where one of the operator's schemas writes into one tensor."""
    for schema in torch._C._jit_get_schemas_for_operator(operator):
        outs = [a for a in schema.arguments if a.is_out]
        if outs:
            return [Parameter("out", KEYWORD, "None", "Tensor" if len(outs) == 1 else "tuple")]
    return []


def _of_argument(argument: Any) -> Parameter:
    default = repr(argument.default_value) if argument.has_default_value() else NONE
    name = "input" if argument.name == "self" else argument.name
    return Parameter(name, KEYWORD if argument.kwarg_only else PLAIN, default, str(argument.type))


def _module(space: str) -> Any:
    thing: Any = torch
    for part in space.split(".")[1:]:
        thing = getattr(thing, part)
    return thing
