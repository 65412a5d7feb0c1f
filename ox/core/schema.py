"""The ONNX schema of an operator, read from its Python definition: inputs, attributes, outputs and their types.

Read once from the kernel's signature; a test compares it with `onnx.defs`, so importing onnx is not needed here.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args

from ox.dtypes import ALL, DType
from ox.errors import DTypeError

REQUIRED = inspect.Parameter.empty


@dataclass(frozen=True)
class Input:
    name: str
    type: str  # a type variable ("T") or a fixed dtype ("int64")
    optional: bool = False
    variadic: bool = False
    host: bool = False


@dataclass(frozen=True)
class Schema:
    """The shape of a call: positional inputs, keyword-only attributes with defaults, outputs, allowed types."""

    name: str
    inputs: tuple[Input, ...]
    attributes: dict[str, Any]
    outputs: tuple[str, ...]
    output_types: tuple[str, ...]
    types: dict[str, tuple[DType, ...]]
    variadic_output: bool
    host_inputs: frozenset[int]  # positions; those of a variadic input are on no host

    def input_at(self, position: int) -> Input:
        return self.inputs[min(position, len(self.inputs) - 1)]

    def allowed(self, type_name: str) -> tuple[DType, ...]:
        return self.types[type_name] if type_name in self.types else (_FIXED[type_name],)

    def check_types(self, arrays: list[Any]) -> None:
        """Raise `DTypeError` unless every input has an allowed type and inputs that share a variable agree."""
        bound: dict[str, tuple[str, DType]] = {}
        for position, array in enumerate(arrays):
            if array is None:
                continue
            parameter = self.input_at(position)
            allowed = self.allowed(parameter.type)
            if array.dtype not in allowed:
                if array.dtype == object:
                    raise _no_tensor(self.name, parameter.name, array)
                raise DTypeError(
                    f"{self.name} does not take {array.dtype} for input '{parameter.name}'",
                    expected=" or ".join(map(str, allowed)),
                    got=str(array.dtype),
                    hint=f"x.to(ox.{allowed[-1] if len(allowed) == 1 else 'float32'})",
                )
            first = bound.setdefault(parameter.type, (parameter.name, array.dtype))
            if first[1] != array.dtype:
                raise DTypeError(
                    f"{self.name} needs one type for '{first[0]}' and '{parameter.name}'",
                    expected=f"{first[1]} for both",
                    got=f"{first[0]} {first[1]}, {parameter.name} {array.dtype}",
                    hint=f"x.to(ox.{first[1]}); an ONNX operator never promotes, Tensor methods such as x + y do",
                )


def _no_tensor(operator: str, parameter: str, array: Any) -> DTypeError:
    """For what NumPy could make no numbers of."""
    kind = type(array.reshape(-1)[0]).__name__ if array.size else "object"
    article = "an" if kind[0] in "aeiouAEIOU" else "a"
    return DTypeError(f"{operator} takes tensors for input '{parameter}', got {article} {kind}", hint="ox.tensor(x)")


_FIXED = {str(dtype): dtype for dtype in ALL}


def read(kernel: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]]) -> Schema:
    """The schema that a kernel's signature ``(xp, *inputs, **attributes) -> types`` declares."""
    signature = inspect.signature(kernel)
    inputs, attributes = [], {}
    for p in list(signature.parameters.values())[1:]:
        if p.kind is p.KEYWORD_ONLY:
            attributes[p.name] = p.default
        else:
            marks = get_args(p.annotation)
            inputs.append(Input(p.name, marks[1], p.default is None, p.kind is p.VAR_POSITIONAL, "host" in marks))
    attributes.pop("outputs", None)
    returns = signature.return_annotation
    parts = get_args(returns) if getattr(returns, "__origin__", None) is tuple else (returns,)
    names = outputs.replace("*", "").split()
    return Schema(
        name=kernel.__name__,
        inputs=tuple(inputs),
        attributes=attributes,
        outputs=tuple(names),
        output_types=tuple(get_args(part)[1] for part in parts),
        types=types,
        variadic_output="*" in outputs,
        host_inputs=frozenset(i for i, each in enumerate(inputs) if each.host),
    )
