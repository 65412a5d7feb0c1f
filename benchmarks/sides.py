"""Side-by-side timing: each side alone in a process of its own, the processes alternating, medians and ratios printed.

A benchmark is a module with one function a side, which returns figures by name:

    if __name__ == "__main__":
        sides.main({"ox": run_ox, "torch": run_torch}, unit="µs")
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping

ROUNDS = int(os.environ.get("ROUNDS", "5"))

Side = Callable[[], Mapping[str, float]]


def main(sides: Mapping[str, Side], *, unit: str) -> None:
    """Run as one side (``--side NAME``), or as the judge that starts the sides in turn. Smaller figures are better."""
    if "--side" in sys.argv:
        print(json.dumps(dict(sides[sys.argv[-1]]())))
        return
    figures: dict[str, dict[str, list[float]]] = {name: {} for name in sides}
    for _ in range(ROUNDS):
        for name in sides:
            done = subprocess.run(
                [sys.executable, sys.argv[0], "--side", name], capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"{name}: {done.stderr}")
            for key, value in json.loads(done.stdout.splitlines()[-1]).items():
                figures[name].setdefault(key, []).append(value)
    first, *others = sides
    print(f"median of {ROUNDS} processes a side, alternating; {os.cpu_count()} cores; {unit}")
    for key, values in figures[first].items():
        mine = statistics.median(values)
        row = f"{key:<34} {first} {mine:10.3f}"
        for other in others:
            if key in figures[other]:
                theirs = statistics.median(figures[other][key])
                row += f"   {other} {theirs:10.3f}" + (f"   {first}/{other} {mine / theirs:5.2f}" if theirs else "")
        print(row)
