"""What the kernel says of this process."""

from __future__ import annotations

import os
import resource
from pathlib import Path

import pytest

from ox.clock import SYSTEM
from ox.serve.telemetry.process import SELF, figures

pytestmark = pytest.mark.skipif(not SELF.exists(), reason="no /proc here")


def test_this_process() -> None:
    found = figures(SYSTEM.calendar())
    used = resource.getrusage(resource.RUSAGE_SELF)
    assert found["cpu_s"] == pytest.approx(used.ru_utime + used.ru_stime, abs=0.5)
    assert 1 << 20 < found["resident"] <= 1.1 * 1024 * used.ru_maxrss < found["virtual"] * 10
    assert 3 <= found["files"] <= found["most_files"] == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert 0 < found["start_s"] <= SYSTEM.calendar()


def test_an_open_file_is_counted() -> None:
    before = figures(SYSTEM.calendar())["files"]
    with open(os.devnull):
        assert figures(SYSTEM.calendar())["files"] == before + 1


def test_a_program_with_a_strange_name(tmp_path: Path) -> None:
    tick = os.sysconf("SC_CLK_TCK")
    fields = ["R", *"1" * 10, 2 * tick, 3 * tick, *"1" * 4, 1, 1, 0, 7000, 5, *"1" * 20]
    (tmp_path / "stat").write_text(f"1 (a b) c) {' '.join(map(str, fields))}")
    (tmp_path / "limits").write_text("Max open files  unlimited  unlimited  files\n")
    (tmp_path / "fd").mkdir()
    found = figures(SYSTEM.calendar(), tmp_path)
    assert (found["cpu_s"], found["virtual"], found["resident"]) == (5.0, 7000, 5 * os.sysconf("SC_PAGE_SIZE"))
    assert found["files"] == 0 and found["most_files"] == 0


def test_no_proc_no_figures(tmp_path: Path) -> None:
    assert figures(SYSTEM.calendar(), tmp_path) == {}
