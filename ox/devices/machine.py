"""What the machine really offers: threads within their limits, instruction sets, an NVIDIA driver.

Only the standard library is imported, so everybody may ask early.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class Limit:
    """How many threads can run at once, of how many cores, and what says so."""

    threads: int
    cores: int
    reason: str

    def __str__(self) -> str:
        return f"{self.threads} ({self.reason})"


_wanted: list[int] = []  # what a program asked for


@cache
def _possible() -> int:
    return limit().threads


def threads() -> int:
    """The number of threads to use: what `use` set, else what can really run at once: cores, CPU affinity and cgroup
    quota together; at least 1."""
    return _wanted[0] if _wanted else _possible()


def use(count: int) -> None:
    """Use this many threads, however many could run. Takes effect on pools that are made afterwards."""
    _wanted[:] = [count]


def limit() -> Limit:
    """`threads()` with the reason. A quota of 1.5 CPUs counts as 1: a thread too many waits for the next period.
    Ranks of one program, and workers of one server, share what there is."""
    alone = _alone()
    # what mpiexec, or a server's supervisor, tells each of the processes that it started here
    ranks = os.environ.get("MPI_LOCALNRANKS") or os.environ.get("OX_LOCAL_PROCESSES", "")
    if not ranks.isdigit() or int(ranks) < 2:
        return alone
    return Limit(max(1, alone.threads // int(ranks)), alone.cores, f"{alone.reason}, shared by {ranks} processes")


def _alone() -> Limit:
    cores = os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    quota = cgroup_quota()
    if quota is not None and quota < allowed:
        return Limit(max(1, int(quota)), cores, f"cgroup limit {quota:g} of {cores} cores")
    if allowed < cores:
        return Limit(allowed, cores, f"CPU affinity {allowed} of {cores} cores")
    return Limit(cores, cores, f"all {cores} cores" if cores > 1 else "one core")


def cgroup_quota(root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> float | None:
    """The tightest CPU quota, in CPUs, of this process's control group and all above it; None without one.

    Reads version 2 (`cpu.max`) and version 1 (`cpu.cfs_quota_us`), also where a container sees its own group as root.
    """
    quotas = []
    for line in _lines(membership):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root, root / "unified"]
        elif "cpu" in controllers.split(","):
            mounts = [root / controllers, root / "cpu"]
        else:
            continue
        relative = path.strip("/")
        for mount in mounts:
            folders = [mount / relative, *(mount / relative).parents]
            quotas += [_quota(folder) for folder in folders[: len(Path(relative).parts) + 1]]
    return min((quota for quota in quotas if quota is not None), default=None)


def _quota(folder: Path) -> float | None:
    both = " ".join(_lines(folder / "cpu.max")).split()
    if not both:
        both = _lines(folder / "cpu.cfs_quota_us") + _lines(folder / "cpu.cfs_period_us")
    try:
        quota, period = (int(number) for number in both)
    except ValueError:  # "max 100000", or no such file
        return None
    return quota / period if quota > 0 and period > 0 else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except OSError:
        return []


def instruction_set() -> str | None:
    """The widest vector instructions of this processor (AVX-512, AVX2, NEON), None if it does not say."""
    if platform.machine().lower() in ("arm64", "aarch64"):
        return "NEON"
    flags: set[str] = set()
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("flags"):
            flags = set(line.partition(":")[2].split())
            break
    return next(
        (name for flag, name in (("avx512f", "AVX-512"), ("avx2", "AVX2"), ("avx", "AVX")) if flag in flags), None
    )


@dataclass(frozen=True)
class Driver:
    """An NVIDIA driver: the newest CUDA version that it runs, and the names of its devices."""

    cuda: tuple[int, int]
    devices: tuple[str, ...]


def nvidia_driver() -> Driver | None:
    """The NVIDIA driver, asked through its own library; None where there is none or it does not answer."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    if library.cuInit(0) or library.cuDriverGetVersion(ctypes.byref(version)):
        return None
    library.cuDeviceGetCount(ctypes.byref(count))
    names = []
    for ordinal in range(count.value):
        device, name = ctypes.c_int(0), ctypes.create_string_buffer(128)
        library.cuDeviceGet(ctypes.byref(device), ordinal)
        library.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
    return Driver((version.value // 1000, version.value % 1000 // 10), tuple(names))
