"""Measurements side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ox.errors import ArgumentError
from ox.utils.benchmark.measurement import Measurement, select_unit, trim_sigfig

BEST, GOOD, SLOW, WORST, END = "\033[92m\033[1m", "\033[92m", "\033[93m", "\033[91m\033[1m", "\033[0m"


class Compare:
    """A table for each label: a row for each sub-label (and number of threads, and environment), a column for each
    description. `torch.utils.benchmark.Compare`."""

    def __init__(self, results: Iterable[Measurement]) -> None:
        self._results: list[Measurement] = []
        self.extend_results(results)
        self._trim = self._warn = False
        self._color = ""

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements."""
        for result in results:
            if not isinstance(result, Measurement):
                raise ArgumentError("Compare takes Measurements", got=type(result).__name__)
            self._results.append(result)

    def trim_significant_figures(self) -> None:
        """Show only the digits that the spread of a measurement leaves."""
        self._trim = True

    def colorize(self, rowwise: bool = False) -> None:
        """Colour the fast and the slow, of each column or each row."""
        self._color = "row" if rowwise else "column"

    def highlight_warnings(self) -> None:
        """Mark measurements that spread widely."""
        self._warn = True

    def print(self) -> None:
        print(str(self))

    def __str__(self) -> str:
        groups: dict[Any, list[Measurement]] = {}
        for m in Measurement.merge(self._results):
            groups.setdefault(m.label, []).append(m)
        return "\n".join(self._table(label, group) for label, group in groups.items())

    def _table(self, label: str | None, group: list[Measurement]) -> str:
        columns = list(dict.fromkeys(m.description or "" for m in group))
        keys = list(dict.fromkeys((m.num_threads, m.task_spec.env or "", m.as_row_name) for m in group))
        keys.sort(key=lambda key: key[0])
        cells = {((m.num_threads, m.task_spec.env or "", m.as_row_name), m.description or ""): m for m in group}
        unit, scale = select_unit(min(m.median for m in group))
        body: list[tuple[str, list[str]]] = []
        threads = None
        for key in keys:
            if key[0] != threads:
                threads = key[0]
                body.append((f"{threads} threads:", []))
            name = f"      {f'({key[1]})  ' if key[1] else ''}{key[2]}"
            body.append((name, [self._cell(cells.get((key, c)), scale) for c in columns]))
        wide = max(len(name) for name, _ in body)
        widths = [max(len(c), *(len(row[i]) for _, row in body if row)) for i, c in enumerate(columns)]
        head = "  ".join([" " * wide, *("|  " + c.center(w) for c, w in zip(columns, widths, strict=True))])
        lines = [f"[{f' {label} ' if label else ''}".ljust(len(head) - 1, "-") + "]", head.rstrip()]
        for (name, row), key in zip(body, self._keys(body, keys), strict=True):
            if not row:
                lines.append(name.ljust(len(head), "-"))
                continue
            shown = [text.rjust(w) for text, w in zip(row, widths, strict=True)]
            if self._color:
                shown = [self._colored(t, cells, key, c, keys, columns) for t, c in zip(shown, columns, strict=True)]
            lines.append("  ".join([name.ljust(wide), *(f"|  {text}" for text in shown)]))
        names = {"ns": "nanoseconds", "us": "microseconds", "ms": "milliseconds", "s": "seconds"}
        return "\n".join([*lines, "", f"Times are in {names[unit]} ({unit}).", ""])

    @staticmethod
    def _keys(body: list[tuple[str, list[str]]], keys: list[Any]) -> list[Any]:
        """The key of each line of the body; None for one that only names the threads."""
        left = iter(keys)
        return [next(left) if row else None for _, row in body]

    def _cell(self, m: Measurement | None, scale: float) -> str:
        if m is None:
            return ""
        value = m.median / scale
        value = trim_sigfig(value, m.significant_figures) if self._trim else value
        text = f"{value:.0f}" if self._trim and m.significant_figures <= 1 + (value >= 10) else f"{value:.1f}"
        return text + (f" (! {100 * m.iqr / m.median:.0f}%)" if self._warn and m.has_warnings else "")

    def _colored(self, text: str, cells: Any, key: Any, column: str, keys: list[Any], columns: list[str]) -> str:
        own = cells.get((key, column))
        others = (
            [cells.get((key, c)) for c in columns] if self._color == "row" else [cells.get((k, column)) for k in keys]
        )
        medians = [m.median for m in others if m is not None]
        if own is None or len(medians) < 2:
            return text
        ratio = own.median / min(medians)
        color = (
            BEST if ratio <= 1.02 else GOOD if ratio <= 1.1 else WORST if ratio >= 2 else SLOW if ratio >= 1.5 else ""
        )
        return f"{color}{text}{END}" if color else text
