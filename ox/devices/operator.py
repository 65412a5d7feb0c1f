"""What executors need to know of an operator. `ox.core.operator.Operator`, on a higher floor, has more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Input(Protocol):
    """An input of an operator's schema. `type` is a type variable or a fixed type; `host`: read on the CPU."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def host(self) -> bool: ...


class Schema(Protocol):
    """The shape of an operator's calls, as ONNX defines it."""

    @property
    def attributes(self) -> dict[str, Any]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...
    @property
    def output_types(self) -> tuple[str, ...]: ...
    @property
    def variadic_output(self) -> bool: ...
    @property
    def host_inputs(self) -> frozenset[int]: ...
    def input_at(self, position: int) -> Input: ...


class Operator(Protocol):
    """An operator with its kernel for NumPy and CuPy."""

    name: str
    domain: str
    kernel: Callable[..., Any]

    @property
    def schema(self) -> Schema: ...
    def __hash__(self) -> int: ...
