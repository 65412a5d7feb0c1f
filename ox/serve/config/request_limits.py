"""Limits on the sizes, numbers and times of requests; checked before memory is allocated."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from ox.errors import ArgumentError

MIB = 1 << 20
SLOWEST = 4 << 10  # bytes per second that a client must read of its responses


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits of the server: sizes in bytes, times in seconds. `ox serve --limit NAME=VALUE` sets them.

    Raises:
        ArgumentError: a limit is out of range.
    """

    url: int = 8 << 10
    header_bytes: int = 32 << 10
    header_count: int = 100
    body: int = 16 * MIB  # one request, before and after decompression
    json: int = 4 * MIB  # the JSON of one request: parsing takes up to 20 times its size and 20 ms per MiB
    reply: int = 32 * MIB  # one response
    buffered: int = 256 * MIB  # all bodies of all connections together
    unread: int = 256 * MIB  # all responses together, from the run that computes them until they are sent
    states: int = 256 * MIB  # the states of all sequences of all models
    connections: int = 8192
    pipeline: int = 16  # concurrent requests of one connection
    streams: int = 256  # concurrent requests of one HTTP/2 connection
    rows: int = 4096  # samples of one request
    memory: int = 0  # memory of all runs of a process, without weights; 0: half of the available memory
    gpu_memory: int = 0  # memory of all models of a process on one GPU; 0: no limit
    strings: int = 1 << 16  # elements of a request's BYTES inputs, shared evenly; parsing takes about 20 ms
    regions: int = 256  # shared memory regions; each keeps a file open
    responses: int = 32 * MIB  # the stored responses of /v1/responses, of all processes together; 0 stores none
    request_s: float = 30.0  # time to receive a request, from its first byte
    timeout_s: float = 60.0  # the longest timeout of a request; a model's deadline_ms may be longer
    idle_s: float = 75.0  # between two requests of one connection
    write_s: float = 30.0  # time after which a client that reads too slowly is disconnected
    linger_s: float = 2.0  # time to read what a refused client still sends, so that it receives the error
    responses_s: float = 3600.0  # for how long a response is stored
    poll_s: float = 1.0  # time between two checks of the model files
    drain_s: float = 10.0  # time to finish accepted requests at shutdown

    def __post_init__(self) -> None:
        for name, kind in KINDS.items():
            value = getattr(self, name)
            most, zero = MOST.get(name, MOST[kind]), name in MAY_BE_ZERO
            fits = isinstance(value, int | float) if kind == TIME else type(value) is int
            if not fits or not 0 <= value <= most or (value == 0 and not zero):
                raise ArgumentError(f"the limit {name} is out of range", expected=_range(name), got=repr(value))


SIZE, TIME, COUNT = "bytes", "seconds", ""
COUNTS = {"header_count", "connections", "pipeline", "streams", "rows", "strings", "regions"}
KINDS = {
    entry.name: TIME if entry.name.endswith("_s") else COUNT if entry.name in COUNTS else SIZE
    for entry in fields(RequestLimits)
}
MOST: dict[str, int] = {SIZE: 1 << 50, TIME: 10**9, COUNT: (1 << 31) - 1, "body": 2047 * MIB, "json": 2047 * MIB}
MAY_BE_ZERO = {"memory", "gpu_memory", "responses", "linger_s", "drain_s"}
UNITS: dict[str, dict[str, float]] = {
    SIZE: {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30},
    TIME: {"": 1, "ms": 1e-3, "s": 1, "min": 60, "h": 3600},
    COUNT: {"": 1},
}


def _range(name: str) -> str:
    """The allowed values of a limit, as text."""
    kind = KINDS[name]
    least = "0 or more" if name in MAY_BE_ZERO else "more than 0"
    return f"{least}, at most {MOST.get(name, MOST[kind]):,} {kind}".rstrip()


def parse_limits(texts: Iterable[str], **others: int) -> RequestLimits:
    """Limits from texts such as "reply=64MiB", "request_s=1min" or "rows=8192".

    Args:
        texts: NAME=VALUE; the last of one name counts.
        others: limits that are known by other options; `texts` go before.

    `buffered`, which holds all bodies, is at least 16 times `body` by default.

    Raises:
        ArgumentError: no such limit, no such unit, or out of range.
    """
    values: dict[str, Any] = dict(others)
    for text in texts:
        name, _, value = text.partition("=")
        name = name.strip()
        if name not in KINDS:
            where = f"--limit {text[:80]}"
            raise ArgumentError(f"there is no limit '{name[:40]}'", where=where, expected=", ".join(KINDS))
        values[name] = _value(value.strip(), name, text)
    if "buffered" not in values and "body" in values:
        values["buffered"] = max(16 * values["body"], RequestLimits().buffered)
    return replace(RequestLimits(), **values)


def parse_dims(texts: Iterable[str]) -> dict[str, int]:
    """The most that dimensions may be, from texts such as "tokens=512".

    Raises:
        ArgumentError: a text is no such thing.
    """
    found = {}
    for text in texts:
        name, _, value = text.rpartition("=")
        if not name.strip() or not value.strip().isdecimal() or not int(value):
            raise ArgumentError("that limits no dimension", where=f"--max-dim {text[:80]}", expected="NAME=SIZE")
        found[name.strip()] = int(value)
    return found


def _value(value: str, name: str, text: str) -> float:
    kind = KINDS[name]
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", value.lower())
    if found is None or found[2] not in UNITS[kind] or (kind == COUNT and "." in found[1]):
        units = ", ".join(("KiB", "MiB", "GiB") if kind == SIZE else filter(None, UNITS[kind]))
        expected = f"a number of {kind}, or one with {units}" if kind else "a whole number"
        expected += f"; {_range(name)}"
        raise ArgumentError(f"invalid value for the limit {name}", where=f"--limit {text[:80]}", expected=expected)
    number = float(found[1]) * UNITS[kind][found[2]]
    return number if kind == TIME and math.isfinite(number) else int(number)
