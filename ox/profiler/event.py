"""What a profiler saw: spans of time, and what they add up to by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ox.errors import ArgumentError

OPERATOR, RANGE, BACKWARD, FLIGHT = "operator", "range", "backward", "flight"
FLIGHT_LANE = 1  # the thread number of collectives in flight


@dataclass
class Event:
    """One span: an operator's kernel, a node of a backward with what it calls, a named range, or an operation that was
    on its way meanwhile. Times in microseconds from the profiler's start, memory in bytes of new outputs."""

    name: str
    kind: str
    start: float
    end: float = 0.0
    inner: float = 0.0  # time of the spans right inside
    memory: int = 0
    inner_memory: int = 0
    flops: int = 0
    backward: bool = False
    shapes: tuple[Any, ...] = ()
    module: str = ""
    line: str = ""
    thread: int = 0

    @property
    def cpu_time_total(self) -> float:
        return self.end - self.start

    @property
    def self_cpu_time_total(self) -> float:
        return self.end - self.start - self.inner

    @property
    def phase(self) -> str:
        return "backward" if self.backward else "forward"


@dataclass
class Average:
    """All events of one name, phase and, if grouped by them, shapes, line or module."""

    key: str
    phase: str
    input_shapes: tuple[Any, ...] = ()
    stack: str = ""
    module: str = ""
    count: int = 0
    cpu_time_total: float = 0.0
    self_cpu_time_total: float = 0.0
    cpu_memory_usage: int = 0
    self_cpu_memory_usage: int = 0
    flops: int = 0
    events: list[Event] = field(default_factory=list, repr=False)

    def add(self, event: Event) -> None:
        self.count += 1
        self.cpu_time_total += event.cpu_time_total
        self.self_cpu_time_total += event.self_cpu_time_total
        self.cpu_memory_usage += event.memory
        self.self_cpu_memory_usage += event.memory - event.inner_memory
        self.flops += event.flops
        self.events.append(event)

    @property
    def cpu_time(self) -> float:
        """The mean of a call."""
        return self.cpu_time_total / self.count if self.count else 0.0


SORTS = ("cpu_time", "cpu_time_total", "self_cpu_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "count")


class Averages(list[Average]):
    """What `key_averages()` returns: a list with a table."""

    def __init__(self, rows: Iterable[Average], shown: Iterable[str] = ()) -> None:
        super().__init__(rows)
        self.shown = set(shown)

    def total_average(self) -> Average:
        """Everything as one row."""
        whole = Average("Total", "")
        for row in self:
            for event in row.events:
                whole.add(event)
        return whole

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        header: str | None = None,
        max_name_column_width: int = 55,
    ) -> str:
        """Text with a row for each name.

        Args:
            sort_by: cpu_time, cpu_time_total, self_cpu_time_total, cpu_memory_usage, self_cpu_memory_usage or count.

        Raises:
            ArgumentError: another `sort_by`.
        """
        if sort_by is not None and sort_by not in SORTS:
            raise ArgumentError(f"a table is not sorted by {sort_by!r}", expected=", ".join(SORTS))
        rows = sorted(self, key=lambda r: -getattr(r, sort_by)) if sort_by else list(self)
        whole = sum(r.self_cpu_time_total for r in self) or 1.0
        columns: list[tuple[str, Callable[[Average], str]]] = [
            (
                "Name",
                lambda r: r.key if len(r.key) <= max_name_column_width else r.key[: max_name_column_width - 3] + "...",
            ),
            ("Phase", lambda r: r.phase),
            ("Self CPU %", lambda r: f"{100 * r.self_cpu_time_total / whole:.2f}%"),
            ("Self CPU", lambda r: duration(r.self_cpu_time_total)),
            ("CPU total %", lambda r: f"{100 * r.cpu_time_total / whole:.2f}%"),
            ("CPU total", lambda r: duration(r.cpu_time_total)),
            ("CPU time avg", lambda r: duration(r.cpu_time)),
            ("# of Calls", lambda r: str(r.count)),
        ]
        if "memory" in self.shown:
            columns.append(("CPU Mem", lambda r: size(r.cpu_memory_usage)))
            columns.append(("Self CPU Mem", lambda r: size(r.self_cpu_memory_usage)))
        if "flops" in self.shown:
            columns.append(("MFLOPs", lambda r: f"{r.flops / 1e6:.3f}" if r.flops else "--"))
        if "shapes" in self.shown:
            columns.append(("Input Shapes", lambda r: str([list(s) for s in r.input_shapes])))
        if "modules" in self.shown:
            columns.append(("Module", lambda r: r.module))
        if "stack" in self.shown:
            columns.append(("Source Location", lambda r: r.stack))
        cells = [[name for name, _ in columns], *([show(r) for _, show in columns] for r in rows[:row_limit])]
        widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
        rule = "  ".join("-" * w for w in widths)
        left = {"Name", "Phase", "Input Shapes", "Module", "Source Location"}

        def line(texts: list[str]) -> str:
            pairs = zip(texts, widths, columns, strict=True)
            return "  ".join(t.ljust(w) if name in left else t.rjust(w) for t, w, (name, _) in pairs).rstrip()

        body = [rule, line(cells[0]), rule, *(line(c) for c in cells[1:]), rule]
        end = f"Self CPU time total: {duration(sum(r.self_cpu_time_total for r in self))}"
        return "\n".join([*([header] if header else []), *body, end]) + "\n"

    def __str__(self) -> str:
        return self.table()


def averages(events: Iterable[Event], shown: set[str], shapes: bool, lines: bool, modules: bool) -> Averages:
    """Events grouped by name and phase, and by further keys."""
    rows: dict[Any, Average] = {}
    for e in events:
        key = (e.name, e.phase, e.shapes if shapes else (), e.line if lines else "", e.module if modules else "")
        if key not in rows:
            rows[key] = Average(*key)
        rows[key].add(e)
    chosen = {name for name, on in (("shapes", shapes), ("stack", lines), ("modules", modules)) if on}
    return Averages(rows.values(), chosen | (shown & {"memory", "flops"}))


def by_module(events: Iterable[Event]) -> Iterator[Average]:
    """The operators' time and memory under each module, with all below it, for forward and backward."""
    rows: dict[Any, Average] = {}
    for e in events:
        if e.kind != OPERATOR or not e.module:
            continue
        parts = e.module.split(".")
        for depth in range(1, len(parts) + 1):
            path = ".".join(parts[:depth])
            row = rows.setdefault((path, e.phase), Average(path, e.phase))
            before = row.self_cpu_time_total
            row.add(e)
            if depth < len(parts):  # the time of an operator is its module's own, and part of those above
                row.self_cpu_time_total = before
    return iter(rows.values())


def duration(microseconds: float) -> str:
    """``12.345us``, ``1.234ms``, ``2.000s``."""
    if microseconds >= 1e6:
        return f"{microseconds / 1e6:.3f}s"
    return f"{microseconds / 1e3:.3f}ms" if microseconds >= 1e3 else f"{microseconds:.3f}us"


def size(count: float) -> str:
    """``12 B``, ``1.50 KB``, ``2.25 MB``."""
    for unit, name in ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")):
        if abs(count) >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count:.0f} B"
