"""Side-by-side timing: each side alone in a process of its own, the processes alternating; medians, spread and ratios.

A benchmark is a module with one function a side, which returns figures by name. A text instead of a figure says why
there is none:

    if __name__ == "__main__":
        sides.main({"ox": run_ox, "torch": run_torch}, unit="µs")
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROUNDS = int(os.environ.get("ROUNDS", "5"))
LIMIT = 3600  # seconds after which a process counts as failed

Figures = Mapping[str, float | str]
Side = Callable[[], Figures]
Table = dict[str, dict[str, list[float]]]  # by name, then by side: one figure a process
Reasons = dict[str, dict[str, str]]  # by name, then by side: why there is no figure


class SideFailed(Exception):
    """A process of a side ended without figures; the text is the last line of its error."""


@dataclass
class Result:
    """What the processes of all sides measured."""

    figures: Table = field(default_factory=dict)
    left_out: Reasons = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # sides without figures, with the reason
    memory: dict[str, list[float]] = field(default_factory=dict)  # by side: peak_memory() of each process

    def add(self, side: str, report: Mapping[str, Any]) -> None:
        """The report of one process."""
        self.memory.setdefault(side, []).append(report["memory"])
        for name, figure in report["figures"].items():
            if isinstance(figure, str):
                self.left_out.setdefault(name, {})[side] = figure
            else:
                self.figures.setdefault(name, {}).setdefault(side, []).append(figure)


def peak_memory() -> float:
    """The highest resident memory of this process so far, in MiB.

    From /proc, because ru_maxrss of a new process begins with the memory of the process that started it.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def run_side(
    program: str | Path, side: str, environment: Mapping[str, str] | None = None, limit: float | None = None
) -> dict[str, Any]:
    """The report of one process of a side: its figures, and its peak memory in MiB.

    Args:
        environment: variables beside those of this process.
        limit: seconds after which it counts as failed, if not LIMIT.

    Raises:
        SideFailed: it ended with an error, or did not end.
    """
    words = [sys.executable, str(program), "--side", side]
    variables, limit = {**os.environ, **(environment or {})}, LIMIT if limit is None else max(1.0, limit)
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, env=variables, timeout=limit)
    except subprocess.TimeoutExpired:
        raise SideFailed(f"did not end within {limit:g} s") from None
    if done.returncode:
        sys.stderr.write(done.stderr)
        lines = done.stderr.strip().splitlines()
        raise SideFailed(lines[-1] if lines else f"ended with {done.returncode}")
    report: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return report


def measure(
    program: str | Path, names: Iterable[str], environment: Mapping[str, str] | None = None, rounds: int = ROUNDS
) -> Result:
    """Run the processes of all sides in turn. A side that failed is not run again."""
    result, names = Result(), list(names)
    for number in range(rounds):
        for side in names:
            if side not in result.failed:
                print(f"{Path(program).name}: {side}, process {number + 1} of {rounds}", file=sys.stderr, flush=True)
                try:
                    result.add(side, run_side(program, side, environment))
                except SideFailed as error:
                    result.failed[side] = str(error)
    return result


def answer(sides: Mapping[str, Side]) -> None:
    """Run as one side, and print its report for `run_side`."""
    figures = dict(sides[sys.argv[-1]]())
    print(json.dumps({"figures": figures, "memory": peak_memory()}))


def rows(result: Result, names: Iterable[str]) -> Iterable[str]:
    """The result as text: a row for each figure, then what is missing and why."""
    first, *others = names
    for key, values in result.figures.items():
        row = f"{key:<34}"
        for side in (first, *others):
            if side in values:
                row += f"   {side} {_spread(values[side])}"
                theirs = statistics.median(values[side])
                if side != first and first in values and theirs:
                    row += f"   {first}/{side} {statistics.median(values[first]) / theirs:5.2f}"
        yield row
    if result.memory:
        peaks = (f"{side} {statistics.median(values):.0f}" for side, values in result.memory.items())
        yield f"peak memory of a process, MiB: {', '.join(peaks)}"
    for key, reasons in result.left_out.items():
        for side, reason in reasons.items():
            yield f"left out: {key}, {side}: {reason}"
    for side, reason in result.failed.items():
        yield f"failed: {side}: {reason}"


def _spread(values: list[float]) -> str:
    text = f"{statistics.median(values):10.3f}"
    return text + (f" ({min(values):.3f} to {max(values):.3f})" if len(values) > 1 else "")


def main(sides: Mapping[str, Side], *, unit: str) -> None:
    """Run as one side (``--side NAME``), or as the judge that starts the sides in turn. Smaller figures are better."""
    if "--side" in sys.argv:
        answer(sides)
        return
    result = measure(sys.argv[0], sides)
    print(f"median of {ROUNDS} processes a side (smallest to largest), alternating; {os.cpu_count()} cores; {unit}")
    for row in rows(result, sides):
        print(row)
    if result.failed:
        sys.exit(1)
