"""Hardware and its limits: usable threads and memory (affinity, cgroups), instruction sets, the NVIDIA driver.

Only the standard library is imported, so everybody may ask early.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from uuid import UUID

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")
MEMORY = Path("/proc/meminfo")


@dataclass(frozen=True)
class Limit:
    """How many threads can run at once, the number of cores, and the reason."""

    threads: int
    cores: int
    reason: str

    def __str__(self) -> str:
        return f"{self.threads} ({self.reason})"


MOST_THREADS = 256  # of the pool in ox/kernels/source/pool.h

_thread_count: list[int] = []  # set by the program


@cache
def _possible() -> int:
    return limit().threads


def threads() -> int:
    """The number of threads to use: what `use` set, else what can really run at once: cores, CPU affinity and cgroup
    quota together; at least 1, and at most what the pool of the kernels takes."""
    return _thread_count[0] if _thread_count else min(_possible(), MOST_THREADS)


def use(count: int) -> None:
    """Use this many threads, however many could run. Takes effect on pools that are made afterwards."""
    _thread_count[:] = [count]


def limit() -> Limit:
    """`threads()` with the reason. A quota of 1.5 CPUs counts as 1: a thread too many waits for the next period.
    Ranks of one program, and workers of one server, share what there is."""
    alone = _process_limit()
    ranks = _processes()
    if ranks < 2:
        return alone
    return Limit(max(1, alone.threads // ranks), alone.cores, f"{alone.reason}, shared by {ranks} processes")


def _processes() -> int:
    """How many processes share the machine: from the environment that mpiexec or a server's supervisor sets."""
    ranks = os.environ.get("MPI_LOCALNRANKS") or os.environ.get("OX_LOCAL_PROCESSES", "")
    return max(1, int(ranks)) if ranks.isdigit() else 1


def _process_limit() -> Limit:
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
    quotas = [_quota(folder) for folder in _groups("cpu", root, membership)]
    return min((quota for quota in quotas if quota is not None), default=None)


def _groups(controller: str, root: Path, membership: Path) -> list[Path]:
    """The folders of this process's control group and of all above it."""
    folders: list[Path] = []
    for line in _lines(membership):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mounts = [root, root / "unified"]
        elif controller in controllers.split(","):
            mounts = [root / controllers, root / controller]
        else:
            continue
        relative = path.strip("/")
        for mount in mounts:
            above = [mount / relative, *(mount / relative).parents]
            folders += above[: len(Path(relative).parts) + 1]
    return folders


def available_memory(root: Path = CGROUPS, membership: Path = MEMBERSHIP, info: Path = MEMORY) -> int:
    """Bytes that programs can still allocate: available memory of the system, or of the control group if that is less.
    Ranks of one program, and workers of one server, share them."""
    known = [_free_memory(folder) for folder in _groups("memory", root, membership)]
    known += [1024 * int(line.split()[1]) for line in _lines(info) if line.startswith("MemAvailable:")]
    if not any(left is not None for left in known) and hasattr(os, "sysconf"):
        known = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2]
    return min((left for left in known if left is not None), default=4 << 30) // _processes()


def _free_memory(folder: Path) -> int | None:
    """What a control group leaves, None if it has no limit. The page cache counts as free."""
    for most, used, unused in (
        ("memory.max", "memory.current", "inactive_file "),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "),
    ):
        try:
            (limit,), (taken,) = _lines(folder / most), _lines(folder / used)
            kept = [int(line.split()[1]) for line in _lines(folder / "memory.stat") if line.startswith(unused)]
            return max(0, int(limit) - int(taken) + sum(kept))
        except ValueError:  # "max", or no such file
            continue
    return None


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
    """The widest vector instructions of this processor (AVX-512, AVX2, NEON), None if unknown."""
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


# Of CUresult in cuda.h.
CU_INIT_ERRORS = {
    100: ": no device",
    803: ": the library and the kernel's driver are of different versions",
    804: ": its forward compatibility does not work with this device",
}

CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76  # of CUdevice_attribute there


@dataclass(frozen=True)
class Driver:
    """An NVIDIA driver: the newest CUDA version that it runs, and the names and compute capabilities of its devices."""

    cuda: tuple[int, int]
    devices: tuple[str, ...]
    capabilities: tuple[tuple[int, int], ...] = ()


def nvidia_driver_error() -> str | None:
    """Why there is no driver that works: its library is missing, or the code with which it fails; None if it works."""
    try:
        code = ctypes.CDLL("libcuda.so.1").cuInit(0)
    except OSError:
        return "libcuda.so.1 is not installed"
    return f"its cuInit gives error {code}{CU_INIT_ERRORS.get(code, '')}" if code else None


def device_uuid(number: int) -> str | None:
    """The UUID of a device by its number in this process, that of the slice where MIG has split it:
    "9f2b6c1e-...". None without a driver, or without such a device. Source: cuDeviceGetUuid_v2 of CUDA's driver API."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        device, uuid = ctypes.c_int(0), (ctypes.c_ubyte * 16)()
        if library.cuInit(0) or library.cuDeviceGet(ctypes.byref(device), number):
            return None
        if library.cuDeviceGetUuid_v2(ctypes.byref(uuid), device):
            return None
    except (OSError, AttributeError):  # no library, or one before CUDA 11.4
        return None
    return str(UUID(bytes=bytes(uuid)))


def nvidia_driver() -> Driver | None:
    """The NVIDIA driver, read through its library; None if it is missing or fails."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    version, count = ctypes.c_int(0), ctypes.c_int(0)
    if library.cuInit(0) or library.cuDriverGetVersion(ctypes.byref(version)):
        return None
    library.cuDeviceGetCount(ctypes.byref(count))
    names, capabilities = [], []
    for ordinal in range(count.value):
        device, name = ctypes.c_int(0), ctypes.create_string_buffer(128)
        library.cuDeviceGet(ctypes.byref(device), ordinal)
        library.cuDeviceGetName(name, len(name), device)
        names.append(name.value.decode(errors="replace"))
        major, minor = ctypes.c_int(0), ctypes.c_int(0)
        library.cuDeviceGetAttribute(ctypes.byref(major), CAPABILITY_MAJOR, device)
        library.cuDeviceGetAttribute(ctypes.byref(minor), CAPABILITY_MINOR, device)
        capabilities.append((major.value, minor.value))
    return Driver((version.value // 1000, version.value % 1000 // 10), tuple(names), tuple(capabilities))
