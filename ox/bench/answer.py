"""Validates responses: a new one is parsed, later ones are compared byte for byte with the first one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import orjson

from ox.bench.inputs import TYPES, from_bytes
from ox.bench.model import Model, as_bytes
from ox.bench.protobuf import Value, fields, integers
from ox.errors import first_line
from ox.tolerance import compare

# the field of InferTensorContents that holds a tensor of each type
CONTENTS = {"BOOL": 1, "INT8": 2, "INT16": 2, "INT32": 2, "INT64": 3, "UINT8": 4, "UINT16": 4, "UINT32": 4, "UINT64": 5}
CONTENTS |= {"FP32": 6, "FP64": 7, "BYTES": 8}
OK = 200  # of both transports: gRPC's own 0 arrives as this


@dataclass(frozen=True)
class Reply:
    """One answer as it came: the status, for gRPC with its code's name, and the message or body."""

    status: int
    body: bytes
    json_length: int | None = None  # of HTTP with binary tensors
    failure: str | None = None  # gRPC: the code and the message


@dataclass
class Output:
    name: str
    datatype: str
    shape: tuple[int, ...]
    values: npt.NDArray[Any]


class Validator(Protocol):
    """Says what is wrong with an answer to request number `place`, or None. An answer with status 200 and the bytes of
    `known` at this place is right."""

    known: Sequence[bytes]

    def problem(self, place: int, reply: Reply) -> str | None: ...


class ResponseValidator:
    """Says what is wrong with an answer to request number `place`, or None.

    Args:
        known: the first answer to each request; an answer with the same bytes is right.
        grpc: whether answers are messages.
        check: whether values count, too.
    """

    def __init__(self, model: Model, known: Sequence[Reply], grpc: bool, check: bool) -> None:
        self.model, self.grpc, self.check = model, grpc, check
        self.known: Sequence[bytes] = [reply.body for reply in known]
        self._first = [read(reply, grpc) for reply in known]

    def problem(self, place: int, reply: Reply) -> str | None:
        if reply.failure is not None:
            return reply.failure
        if reply.status != OK:
            return f"HTTP {reply.status}"
        try:
            outputs = read(reply, self.grpc)
        except (ValueError, KeyError, TypeError) as error:
            return f"wrong: unreadable ({first_line(error)[:80]})"
        first = self._first[place]
        wrong = differs(first, outputs, self.check)
        return None if wrong is None else f"wrong: {wrong}"


def verify(model: Model, outputs: Sequence[Output]) -> str | None:
    """What an answer has that the model's metadata does not promise."""
    for output in outputs:
        promised = next((tensor for tensor in model.outputs if tensor.name == output.name), None)
        if promised is None:
            return f"an output {output.name!r} that the metadata lacks"
        if promised.datatype != output.datatype:
            return f"{output.name!r} is {output.datatype}, expected {promised.datatype}"
        sizes = zip(promised.shape, output.shape, strict=False)
        if len(promised.shape) != len(output.shape) or any(want not in (-1, size) for want, size in sizes):
            return f"{output.name!r} has the shape {list(output.shape)}, expected {list(promised.shape)}"
    lacking = {tensor.name for tensor in model.outputs} - {output.name for output in outputs}
    return f"the output {min(lacking)!r} is missing" if lacking else None


def differs(first: Sequence[Output], now: Sequence[Output], values: bool) -> str | None:
    """How an answer is not like the first one."""
    if [output.name for output in now] != [output.name for output in first]:
        return f"outputs {[output.name for output in now]}"
    for one, other in zip(first, now, strict=True):
        if (one.datatype, one.shape) != (other.datatype, other.shape):
            return f"{one.name!r} is {other.datatype} {list(other.shape)}, was {one.datatype} {list(one.shape)}"
        if values and not compare(other.values, one.values).ok:
            return f"other values of {one.name!r}"
    return None


def read(reply: Reply, grpc: bool) -> list[Output]:
    """Raises ValueError, KeyError or TypeError for an answer that is none."""
    return _from_message(reply.body) if grpc else _from_body(reply.body, reply.json_length)


def _from_body(body: bytes, length: int | None) -> list[Output]:
    text, rest = (body, b"") if length is None else (body[:length], body[length:])
    outputs = []
    for entry in orjson.loads(text)["outputs"]:
        shape, kind = tuple(map(int, entry["shape"])), str(entry["datatype"])
        if "data" in entry:
            data = entry["data"]
            values = np.array([*data, None], object)[:-1] if kind == "BYTES" else np.array(data, TYPES[kind])
            outputs.append(Output(str(entry["name"]), kind, shape, values.reshape(shape)))
            continue
        size = int(entry["parameters"]["binary_data_size"])
        outputs.append(Output(str(entry["name"]), kind, shape, from_bytes(rest[:size], kind, shape)))
        rest = rest[size:]
    if rest:
        raise ValueError(f"{len(rest)} bytes too many")
    return outputs


def _from_message(message: bytes) -> list[Output]:
    """ModelInferResponse: 5 outputs (1 name, 2 datatype, 3 shape, 5 contents), 6 raw_output_contents."""
    heads: list[tuple[str, str, tuple[int, ...], bytes]] = []
    raw = []
    for number, value in fields(message):
        if number == 5:
            parts: dict[int, list[Value]] = {1: [b""], 2: [b""], 3: [], 5: []}
            for inner, part in fields(as_bytes(value)):
                parts.setdefault(inner, []).append(part)
            name, kind = (as_bytes(parts[each][-1]).decode() for each in (1, 2))
            heads.append((name, kind, tuple(integers(parts[3])), b"".join(as_bytes(part) for part in parts[5])))
        elif number == 6:
            raw.append(as_bytes(value))
    if not raw:
        return [Output(name, kind, shape, _typed(data, kind, shape)) for name, kind, shape, data in heads]
    if len(raw) != len(heads):
        raise ValueError(f"{len(heads)} outputs, and bytes of {len(raw)}")
    return [
        Output(name, kind, shape, from_bytes(data, kind, shape))
        for (name, kind, shape, _), data in zip(heads, raw, strict=True)
    ]


def _typed(contents: bytes, kind: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """InferTensorContents: the numbers of a tensor in the field of their kind, packed or one by one."""
    values = [value for number, value in fields(contents) if number == CONTENTS[kind]]
    if kind == "BYTES":
        return np.array([*values, None], object)[:-1].reshape(shape)
    if kind in ("FP32", "FP64"):
        return np.frombuffer(b"".join(as_bytes(value) for value in values), TYPES[kind]).reshape(shape)
    return np.array(integers(values)).astype(TYPES[kind]).reshape(shape)
