"""How much the server reads, holds and waits for: everything is bounded before it is allocated."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from ox.errors import ArgumentError

MIB = 1 << 20
SLOWEST = 4 << 10  # bytes a second of its answers that a client has to take


@dataclass(frozen=True, slots=True)
class Limits:
    """Sizes in bytes, times in seconds. `ox serve --limit NAME=VALUE` sets each of them.

    Raises:
        ArgumentError: one is out of range; names it.
    """

    url: int = 8 << 10
    header_bytes: int = 32 << 10
    header_count: int = 100
    body: int = 16 * MIB  # one request, before and after decompression
    json: int = 4 * MIB  # the JSON of one request: up to 20 times its size in memory, up to 20 ms a MiB for everybody
    reply: int = 32 * MIB  # one answer
    buffered: int = 256 * MIB  # all bodies of all connections together
    unread: int = 256 * MIB  # all answers together, from the run that makes them until they have left: runs wait for it
    states: int = 256 * MIB  # what sequences keep between their requests, all models together
    connections: int = 8192
    pipeline: int = 16  # requests of one connection that are worked on at once
    streams: int = 256  # the same over HTTP/2, which clients are told
    rows: int = 4096  # of one request
    memory: int = 0  # for what all runs of a process compute at once, weights aside; 0 is half of what is available
    strings: int = 1 << 16  # of one request's BYTES tensors, which share it evenly: some 20 ms for everybody
    regions: int = 256  # of shared memory; each holds a file open
    request_s: float = 30.0  # a request must have arrived whole this long after its first byte
    timeout_s: float = 60.0  # the longest timeout a request may ask for; a model's deadline_ms may be longer
    idle_s: float = 75.0  # between two requests of one connection
    write_s: float = 30.0  # over which the client takes less of its answer than it has to
    linger_s: float = 2.0  # to read what a refused client still sends, so that it gets to see the refusal
    poll_s: float = 1.0  # between two looks at the models' files
    drain_s: float = 10.0  # to finish what was accepted once the server was told to stop

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
    for entry in fields(Limits)
}
MOST: dict[str, int] = {SIZE: 1 << 50, TIME: 10**9, COUNT: (1 << 31) - 1, "body": 2047 * MIB, "json": 2047 * MIB}
MAY_BE_ZERO = {"memory", "linger_s", "drain_s"}
UNITS: dict[str, dict[str, float]] = {
    SIZE: {"": 1, "b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30},
    TIME: {"": 1, "ms": 1e-3, "s": 1, "min": 60, "h": 3600},
    COUNT: {"": 1},
}


def _range(name: str) -> str:
    """What a limit may be, in words."""
    kind = KINDS[name]
    least = "0 or more" if name in MAY_BE_ZERO else "more than 0"
    return f"{least}, at most {MOST.get(name, MOST[kind]):,} {kind}".rstrip()


def parse_limits(texts: Iterable[str], **others: int) -> Limits:
    """Limits from texts such as "reply=64MiB", "request_s=1min" or "rows=8192".

    Args:
        texts: NAME=VALUE; the last of one name counts.
        others: limits that are known by other options; `texts` go before.

    `buffered`, which holds all bodies, is at least 16 times `body` if nobody says otherwise.

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
        values["buffered"] = max(16 * values["body"], Limits().buffered)
    return replace(Limits(), **values)


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
        raise ArgumentError(f"the limit {name} is no such number", where=f"--limit {text[:80]}", expected=expected)
    number = float(found[1]) * UNITS[kind][found[2]]
    return number if kind == TIME and math.isfinite(number) else int(number)
