"""CPU time, memory and open files of this process, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

SELF = Path("/proc/self")
UPTIME = Path("/proc/uptime")


def figures(now: float, root: Path = SELF) -> dict[str, float]:
    """Seconds of CPU, bytes of memory, open files, and when the process began; empty where there is no /proc. `now`:
    seconds since 1970."""
    try:
        # The second field is the program's name in brackets, and may hold anything.
        fields = (root / "stat").read_text().rpartition(")")[2].split()
        limits = (root / "limits").read_text()
        files = len(os.listdir(root / "fd"))
        up_s = float(UPTIME.read_text().split()[0])
        tick, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return {}
    most = next((line.split()[3] for line in limits.splitlines() if line.startswith("Max open files")), "0")
    return {
        "cpu_s": (int(fields[11]) + int(fields[12])) / tick,
        "resident": float(int(fields[21]) * page),
        "virtual": float(fields[20]),
        "files": float(files),
        "most_files": float(most) if most.isdigit() else 0.0,
        "start_s": now - (up_s - int(fields[19]) / tick),
    }
