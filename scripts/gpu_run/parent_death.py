"""Processes that end with the one that started them, also if SIGKILL ends that: the memory of the GPU is free again."""

from __future__ import annotations

import ctypes
import signal
import sys

PR_SET_PDEATHSIG = 1  # of prctl(2), which only Linux has


def end_with_parent() -> None:
    """For `preexec_fn` of `subprocess`, in programs with one thread."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
