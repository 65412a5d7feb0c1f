"""Events as a file that chrome://tracing, Perfetto and TensorBoard read."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ox.profiler.event import FLIGHT_LANE, OPERATOR, Event
from ox.serialization.files import write_whole


def chrome(events: Iterable[Event], steps: Iterable[tuple[str, float, float]] = ()) -> dict[str, Any]:
    """The trace event format: complete events of microseconds, one lane for spans, one for modules and one for what
    is on its way."""
    pid = os.getpid()
    listed = sorted(events, key=lambda e: (e.start, -e.end))
    made: list[dict[str, Any]] = [
        {"ph": "M", "pid": pid, "tid": 0, "name": "thread_name", "args": {"name": "modules"}},
        {"ph": "M", "pid": pid, "tid": FLIGHT_LANE, "name": "thread_name", "args": {"name": "on its way"}},
        {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": "ox"}},
    ]
    for e in listed:
        args = {"phase": e.phase, "Input Dims": [list(s) for s in e.shapes], "memory": e.memory, "module": e.module}
        args |= {"line": e.line, "flops": e.flops}
        made.append(_span(e.name, e.kind, e.start, e.end, pid, e.thread, {k: v for k, v in args.items() if v}))
    made += [_span(name, "step", start, end, pid, 0, {}) for name, start, end in steps]
    made += [_span(path, "module", start, end, pid, 0, {}) for path, start, end in modules(listed)]
    return {"displayTimeUnit": "ms", "traceEvents": made}


def modules(events: Iterable[Event]) -> list[tuple[str, float, float]]:
    """When each module ran, as its operators tell: spans in which nothing outside it came between."""
    open_: list[list[Any]] = []  # (part of the path, start, end), outermost first
    done: list[tuple[str, float, float]] = []
    for e in events:
        if e.kind != OPERATOR:
            continue
        parts = [*e.module.split("."), e.phase] if e.module else []
        paths = [".".join(parts[: i + 1]) for i in range(len(parts) - 1)]
        if e.backward:
            paths = [f"{path} (backward)" for path in paths]
        common = 0
        while common < min(len(open_), len(paths)) and open_[common][0] == paths[common]:
            common += 1
        done += [tuple(span) for span in open_[common:]]
        open_ = open_[:common] + [[path, e.start, e.end] for path in paths[common:]]
        for span in open_:
            span[2] = e.end
    return done + [tuple(span) for span in open_]


def _span(name: str, kind: str, start: float, end: float, pid: int, tid: int, args: dict[str, Any]) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": kind, "ts": start, "dur": end - start, "pid": pid, "tid": tid, "args": args}


def write(path: str | os.PathLike[str], trace: dict[str, Any]) -> None:
    """Write it whole, compressed where the name ends in .gz. Raises WriteError."""
    data = json.dumps(trace).encode()
    if str(path).endswith(".gz"):
        data = gzip.compress(data)

    def fill(temporary: Path) -> None:
        temporary.write_bytes(data)

    write_whole(path, fill)
