"""One measurement of the eager benchmarks: what was measured, when and where; kept as a JSON file."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import bench_eager
import bench_first_step
import sides
import step_profile
from sides import Reasons, Result, Table
from step_profile import Cost

import ox

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Spread:
    """The median of the processes of a side, the smallest and the largest."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        values = list(values)
        return cls(statistics.median(values), min(values), max(values))


@dataclass(frozen=True)
class Machine:
    cpu: str
    cores: int
    memory: int  # GiB


@dataclass
class Measurement:
    commit: str
    date: str  # UTC
    machine: Machine
    versions: dict[str, str]
    rounds: int
    load: float  # of the machine in the minute before
    times: Table  # ms
    first: Table  # of bench_first_step
    left_out: Reasons = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    profile: dict[str, dict[str, list[Cost] | str]] = field(default_factory=dict)

    def median(self, name: str, side: str) -> float | None:
        values = (self.times.get(name) or self.first.get(name) or {}).get(side)
        return statistics.median(values) if values else None

    def ratio(self, name: str, side: str, ours: str = "ox") -> float | None:
        """ox's median, or that of another side of ox, by that of `side`."""
        mine, theirs = self.median(name, ours), self.median(name, side)
        return mine / theirs if mine is not None and theirs else None

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        fields: dict[str, Any] = json.loads(text)
        fields["machine"] = Machine(**fields["machine"])
        for by_side in fields["profile"].values():
            for side, rows in by_side.items():
                by_side[side] = rows if isinstance(rows, str) else [Cost(**row) for row in rows]
        return cls(**fields)


def machine() -> Machine:
    """This one. A shared host may hide which processor it has."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return Machine(names[0] if names else platform.machine(), os.cpu_count() or 1, round(memory))


def versions() -> dict[str, str]:
    packages = {name: version(name) for name in ("numpy", "onnxruntime", "torch")}
    return {"ox": ox.__version__, "python": platform.python_version(), **packages}


def commit() -> str:
    """The short hash of the checkout that `import ox` finds, with `-dirty` if files were changed."""
    words = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    done = subprocess.run(words, cwd=Path(ox.__file__).parent, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def rounded(table: Mapping[str, Mapping[str, list[float]]]) -> Table:
    """Five digits are more than the clock is worth."""
    return {
        name: {side: [float(f"{v:.5g}") for v in values] for side, values in by_side.items()}
        for name, by_side in table.items()
    }


def measure(words: list[str], rounds: int) -> Measurement:
    """Run the benchmarks of the workloads whose name contains one of the words; all of them if there are none."""
    found = Measurement(commit(), now(), machine(), versions(), rounds, os.getloadavg()[0], {}, {})
    print("== training steps, operators and growth", flush=True)
    eager = sides.measure(bench_eager.__file__, bench_eager.SIDES, {"WORKLOADS": "|".join(words)}, rounds)
    print("== first step and peak memory", flush=True)
    first = bench_first_step.measure(words, rounds)
    print("== profiles", flush=True)
    found.profile = step_profile.measure(words)
    found.times, found.first, found.failed = rounded(eager.figures), rounded(first.figures), eager.failed
    found.left_out = together(eager, first)
    return found


def together(*results: Result) -> Reasons:
    """What the results left out."""
    reasons: Reasons = {}
    for result in results:
        for name, by_side in result.left_out.items():
            if by_side:
                reasons.setdefault(name, {}).update(by_side)
    return reasons


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S")
