"""The benchmarks as modules, and a small recorded measurement."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"

# tests/parity also has a module `sides`: neither may be found by the other's name.
others = sys.modules.pop("sides", None)
sys.path.insert(0, str(FOLDER))
import bench_call_parts  # noqa: E402, F401
import bench_export_nodes  # noqa: E402, F401
import bench_first_step  # noqa: E402, F401
import bench_gpu  # noqa: E402, F401
import bench_scale  # noqa: E402, F401
import performance_page  # noqa: E402, F401

sys.path.remove(str(FOLDER))
sys.modules["benchmark_sides"] = sys.modules.pop("sides")
if others is not None:
    sys.modules["sides"] = others

from measurement import Measurement  # noqa: E402

RECORDED = Path(__file__).with_name("recorded.json")


@pytest.fixture
def measured() -> Measurement:
    """Three processes a side, fewer workloads, one side that failed and one workload that was left out."""
    return Measurement.from_json(RECORDED.read_text())


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A benchmark of the sides `quick`, `slow`, which has no figure of one name, and `broken`. Each notes its runs."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM.format(benchmarks=str(FOLDER), runs=str(tmp_path / "runs")))
    return path


PROGRAM = """
import sys
sys.path.insert(0, {benchmarks!r})
import sides

def note(side):
    with open({runs!r}, "a") as file:
        file.write(side + " ")

def quick():
    note("quick")
    return {{"add": 1.0, "mul": 2.0}}

def slow():
    note("slow")
    return {{"add": 4.0, "mul": "RuntimeError: no C++ compiler"}}

def broken():
    note("broken")
    raise ValueError("no such library")

if __name__ == "__main__":
    sides.main({{"quick": quick, "slow": slow, "broken": broken}}, unit="ms")
"""
