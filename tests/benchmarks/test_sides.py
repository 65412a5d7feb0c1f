"""benchmarks/sides.py: processes of the sides in turn, what they report, and what is said of those that fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from benchmark_sides import Result, SideFailed, measure, rows, run_side


def test_the_sides_alternate_and_a_failed_one_is_not_run_again(program: Path, tmp_path: Path) -> None:
    result = measure(program, ["quick", "broken", "slow"], rounds=3)
    assert (tmp_path / "runs").read_text().split() == ["quick", "broken", "slow", "quick", "slow", "quick", "slow"]
    assert result.figures == {"add": {"quick": [1.0] * 3, "slow": [4.0] * 3}, "mul": {"quick": [2.0] * 3}}
    assert result.left_out == {"mul": {"slow": "RuntimeError: no C++ compiler"}}
    assert result.failed == {"broken": "ValueError: no such library"}
    assert all(len(result.memory[side]) == 3 and min(result.memory[side]) > 1 for side in ("quick", "slow"))


def test_a_process_that_does_not_end(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program.write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setitem(measure.__globals__, "LIMIT", 0.5)
    with pytest.raises(SideFailed, match=r"did not end within 0\.5 s"):
        run_side(program, "quick")


def test_peak_memory_is_the_processes_own(program: Path) -> None:
    """Not that of the process that started it, and with what was freed."""
    here = b"x" * (200 << 20)
    large = program.read_text().replace('note("quick")', 'b"x" * (100 << 20)')
    small = run_side(program, "quick")["memory"]
    program.write_text(large)
    assert small < 150
    assert 95 < run_side(program, "quick")["memory"] - small < 110
    del here


def test_rows_have_median_spread_and_ratio() -> None:
    result = Result()
    for quick, slow in ((1.0, 4.0), (3.0, 4.0), (2.0, 8.0)):
        result.add("quick", {"figures": {"add": quick}, "memory": 10.0})
        result.add("slow", {"figures": {"add": slow}, "memory": 20.0})
    (row, memory) = rows(result, ["quick", "slow"])
    assert " ".join(row.split()) == "add quick 2.000 (1.000 to 3.000) slow 4.000 (4.000 to 8.000) quick/slow 0.50"
    assert memory == "peak memory of a process, MiB: quick 10, slow 20"


def test_main_names_what_is_missing(program: Path) -> None:
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "left out: mul, slow: RuntimeError: no C++ compiler" in done.stdout
    assert "failed: broken: ValueError: no such library" in done.stdout
    assert "ValueError" in done.stderr, "the whole error"
    assert [line.split()[:3] for line in done.stdout.splitlines()[1:3]] == [
        ["add", "quick", "1.000"],
        ["mul", "quick", "2.000"],
    ]
