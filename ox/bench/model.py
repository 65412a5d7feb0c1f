"""A model's metadata, as the server sends it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ox.bench.protobuf import Value, fields, integers
from ox.errors import ServeError


@dataclass(frozen=True)
class Tensor:
    """An input or output; -1 is an open size."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Model:
    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]


def from_json(entry: Any, name: str) -> Model:
    """A model's metadata as HTTP gives it."""
    try:
        groups = [
            tuple(
                Tensor(str(t["name"]), str(t["datatype"]), tuple(map(int, t["shape"])))
                for t in entry[key]
                if not t.get("parameters", {}).get("optional")  # the file has a value for it
            )
            for key in ("inputs", "outputs")
        ]
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        raise _unreadable(name, f"{entry!r:.200}") from None
    return _whole(Model(name, *groups))


def from_message(message: bytes, name: str) -> Model:
    """A ModelMetadataResponse: 4 inputs, 5 outputs; of a tensor 1 name, 2 datatype, 3 shape."""
    groups: dict[int, list[Tensor]] = {4: [], 5: []}
    try:
        for number, value in fields(message):
            if number in groups:
                groups[number].append(_tensor(fields(as_bytes(value))))
    except ValueError as error:
        raise _unreadable(name, str(error)) from None
    return _whole(Model(name, tuple(groups[4]), tuple(groups[5])))


def _tensor(entries: Iterable[tuple[int, Value]]) -> Tensor:
    names = {1: "", 2: ""}
    shape: list[Value] = []
    for number, value in entries:
        if number in names:
            names[number] = as_bytes(value).decode()
        elif number == 3:
            shape.append(value)
    return Tensor(names[1], names[2], tuple(integers(shape)))


def as_bytes(value: Value) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where text belongs")
    return value


def _whole(model: Model) -> Model:
    if not model.inputs:
        raise _unreadable(model.name, "a model without inputs")
    return model


def _unreadable(name: str, got: str) -> ServeError:
    expected = "inputs and outputs, each a list of tensors with name, datatype and shape"
    return ServeError(f"the server's metadata of {name} cannot be read", expected=expected, got=got)
