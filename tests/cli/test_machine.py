"""Thread limits read from control groups as they are found in the wild."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from rows import rows

from ox.devices import machine


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


V2 = "0::/system.slice/job\n"
V1 = "12:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n"


@rows(
    ("membership", "files", "quota"),
    [
        (V2, {"system.slice/job/cpu.max": "200000 100000\n"}, 2.0),
        (V2, {"system.slice/job/cpu.max": "max 100000\n"}, None),
        (V2, {"system.slice/job/cpu.max": "max 100000\n", "system.slice/cpu.max": "150000 100000\n"}, 1.5),
        (V2, {"system.slice/job/cpu.max": "400000 100000\n", "system.slice/cpu.max": "300000 100000\n"}, 3.0),
        ("0::/\n", {"cpu.max": "50000 100000\n"}, 0.5),
        ("0::/\n", {"unified/cpu.max": "50000 100000\n"}, 0.5),
        (
            V1,
            {"cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "250000", "cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000"},
            2.5,
        ),
        (V1, {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        (V1, {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, None),
        (V2, {"system.slice/job/cpu.max": "nonsense\n"}, None),
        ("", {}, None),
    ],
)
def test_quota(tmp_path: Path, membership: str, files: dict[str, str], quota: float | None) -> None:
    (tmp_path / "membership").write_text(membership)
    assert machine.cgroup_quota(tree(tmp_path / "cgroup", files), tmp_path / "membership") == quota


def test_no_cgroups_at_all(tmp_path: Path) -> None:
    assert machine.cgroup_quota(tmp_path / "none", tmp_path / "none") is None


@rows(
    ("cores", "affinity", "quota", "threads", "reason"),
    [
        (16, 16, 2.0, 2, "cgroup limit 2 of 16 cores"),
        (16, 16, 0.5, 1, "cgroup limit 0.5 of 16 cores"),
        (16, 4, None, 4, "CPU affinity 4 of 16 cores"),
        (16, 4, 8.0, 4, "CPU affinity 4 of 16 cores"),
        (8, 8, None, 8, "all 8 cores"),
        (1, 1, None, 1, "one core"),
    ],
)
def test_the_tightest_limit_wins(
    monkeypatch: pytest.MonkeyPatch, cores: int, affinity: int, quota: float | None, threads: int, reason: str
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)), raising=False)
    monkeypatch.setattr(machine, "cgroup_quota", lambda: quota)
    assert machine.limit() == machine.Limit(threads, cores, reason)
