"""bench_gpu.py: its times, its file, and what it says of a side that is not there. The stand-in runs its workloads."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bench_gpu
import benchmark_sides as sides
import pytest
from gpu_workloads import CASES, SHORT, Case

Step = Callable[[], Any]
BENCHMARKS = Path(bench_gpu.__file__).parent


@pytest.fixture(autouse=True)
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_STAND_IN", raising=False)
    monkeypatch.delenv("GPU_QUICK", raising=False)
    monkeypatch.setattr(bench_gpu, "MOST_WARM", 0.0)
    monkeypatch.setattr(bench_gpu, "BEGAN", float("inf"))  # its time limit is that of a process


def test_the_median_of_stretches() -> None:
    """A step of 2 ms: stretches of 10 steps, one of which is slow."""
    counts: list[int] = []

    def elapsed(step: Step, count: int) -> float:
        step()
        counts.append(count)
        return 2.0 * count + (500.0 if len(counts) == 6 else 0.0)

    assert bench_gpu.milliseconds(lambda: None, elapsed) == 2.0
    assert counts == [1] * bench_gpu.WARM_STEPS + [10] * bench_gpu.STRETCHES


def test_a_step_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(lib: Any) -> Step:
        raise ValueError("no such layer\nand more")

    captured: list[Step] = []

    def capture(step: Step) -> Step:
        captured.append(step)
        return step

    fine = lambda lib, capturable=False: lambda: None  # noqa: E731
    cases = {"broken": Case(broken, {}, {}), "eager": Case(fine, {}, {}), "whole": Case(fine, {}, {}, captured=True)}
    monkeypatch.setattr(bench_gpu, "CASES", cases)
    lib = SimpleNamespace(manual_seed=lambda seed: None)
    found = bench_gpu.figures(lib, lambda step, count: 3.0 * count, capture, lambda: None)
    assert found == {"broken": "ValueError: no such layer", "eager": 3.0, "whole": 3.0}
    assert len(captured) == 1


def test_what_a_process_does_not_come_to(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = lambda lib: lambda: None  # noqa: E731
    monkeypatch.setattr(bench_gpu, "CASES", {name: Case(fine, {}, {}) for name in ("first", "second")})
    monkeypatch.setattr(bench_gpu, "BEGAN", 0.0)
    now = [0.0]
    monkeypatch.setattr(bench_gpu.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("GPU_SIDE_SECONDS", "10")

    def elapsed(step: Step, count: int) -> float:
        now[0] += 11.0
        return 3.0 * count

    found = bench_gpu.figures(SimpleNamespace(manual_seed=lambda seed: None), elapsed, lambda s: s, lambda: None)
    assert found == {"first": 3.0, "second": bench_gpu.NO_TIME}


def test_processes_alternate_as_long_as_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    shares: list[float] = []
    now = [0.0]

    def run_side(program: str, side: str, environment: dict[str, str], limit: float) -> dict[str, Any]:
        ran.append(side)
        shares.append(float(environment["GPU_SIDE_SECONDS"]))
        now[0] += 10.0
        return {
            "figures": {"matmul": 1.0} if side == "ox" else {"matmul": "RuntimeError: out of memory"},
            "memory": 1.0,
        }

    monkeypatch.setattr(sides, "run_side", run_side)
    monkeypatch.setattr(bench_gpu.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(bench_gpu, "absent", dict)
    bench_gpu.measure(tmp_path / "gpu.json", 70.0)
    assert ran == ["ox", "torch"] * 3
    assert shares[:2] == [0.8 * (70 - 5) / 2, 0.8 * (70 - 5 - 10)]
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["figures"] == {"matmul": {"ox": [1.0] * 3}} and found["rounds"] == 3 and not found["failed"]
    assert found["left out"] == {"matmul": {"torch": "RuntimeError: out of memory"}}


def test_a_side_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_side(program: str, side: str, environment: dict[str, str], limit: float) -> dict[str, Any]:
        if side == "ox":
            raise sides.SideFailed("no device")
        return {"figures": {"matmul": 1.0}, "memory": 1.0}

    monkeypatch.setattr(sides, "run_side", run_side)
    monkeypatch.setattr(bench_gpu, "absent", dict)
    monkeypatch.setenv("GPU_QUICK", "1")
    assert bench_gpu.measure(tmp_path / "gpu.json", 60.0).failed == {"ox": "no device"}
    assert json.loads((tmp_path / "gpu.json").read_text())["failed"] == ["ox: no device"]


ENDS = """
import os, sys
import bench_gpu
from gpu_workloads import Case

def step(lib):
    return lambda: None

def ends(lib):
    os._exit(11)

def figures():
    lib = type("Lib", (), {"manual_seed": lambda seed: None})
    bench_gpu.SHORT = ("one", "ends", "two")
    bench_gpu.CASES = {name: Case(ends if name == "ends" else step, {}, {}) for name in ("one", "ends", "two")}
    return bench_gpu.figures(lib, lambda step, count: 3.0 * count, lambda step: step, lambda: None)

bench_gpu.sides.answer({"ox": figures})
"""


def test_a_workload_that_ends_its_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process goes on with the next one."""
    (tmp_path / "program.py").write_text(ENDS)
    monkeypatch.setattr(bench_gpu, "__file__", str(tmp_path / "program.py"))
    monkeypatch.setattr(bench_gpu, "absent", dict)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("GPU_QUICK", "1")
    result = bench_gpu.measure(tmp_path / "gpu.json", 100.0, "ox")
    assert result.figures == {"one": {"ox": [3.0]}, "two": {"ox": [3.0]}} and not result.failed
    assert result.left_out == {"ends": {"ox": "its process ended: one: 3.0"}}  # its last line
    assert json.loads((tmp_path / "gpu.json").read_text())["failed"] == ["ends, ox: its process ended: one: 3.0"]


def test_sides_that_are_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert bench_gpu.absent() == {"torch": "PyTorch is not installed"}
    monkeypatch.setenv("GPU_STAND_IN", "host_cuda")
    assert bench_gpu.absent() == {"torch": "host_cuda does not run PyTorch"} and bench_gpu.is_tiny()


def test_the_sizes() -> None:
    for name, case in CASES.items():
        assert case.sizes.keys() == case.tiny.keys(), name
    assert {*SHORT} < {*CASES}
