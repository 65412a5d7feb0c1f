"""ONNX Runtime's memory for what runs compute on the CPU: one arena of the process, with an optional limit.

Weights do not lie in it: only what a run allocates between its inputs and the release of its outputs. ONNX Runtime 1.31
gives Python no statistics of an arena, but the error of an allocation that is far too large contains the free bytes.
"""

from __future__ import annotations

import re
from threading import Lock
from types import ModuleType
from typing import Any

import numpy as np

from ox.devices.onnxruntime import node_model
from ox.dtypes import int64

GROWTH = {"arena_extend_strategy": 0, "max_power_of_two_extend_bytes": 64 << 20}  # by doubling, at most so much
SAME_AS_REQUESTED = {"arena_extend_strategy": 1}
TOO_MANY = np.array([1 << 60])  # elements that no machine has
NONE, ONE = np.array([0]), np.array([1])
AVAILABLE_MEMORY = re.compile(r"Available memory of (\d+) is smaller than requested bytes of (\d+)")
USE_ARENA = ("session.use_env_allocators", "1")  # the session option that enables it


class Arena:
    """What sessions that are made from now on with the entry `USE_ARENA` allocate from.

    Args:
        runtime: the module `onnxruntime`.
        limit: the most bytes that all runs together may hold; 0 for no limit.
    """

    def __init__(self, runtime: ModuleType, limit: int) -> None:
        self.limit = limit
        memory = runtime.OrtMemoryInfo(
            "Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT
        )
        config = {"max_mem": limit, **(GROWTH if limit else SAME_AS_REQUESTED)}
        runtime.create_and_register_allocator(memory, runtime.OrtArenaCfg(config))
        self._session: Any = None
        if not limit:
            return
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.add_session_config_entry(*USE_ARENA)
        file = node_model.write("ConstantOfShape", (int64,), {}, 1, node_model.USUAL)
        self._session = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        self._quiet, self._shrinking = runtime.RunOptions(), runtime.RunOptions()
        self._quiet.log_severity_level = 4
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        self._session.run(None, {"x0": ONE})  # the first piece is never given back: may it be a small one

    def bytes_allocated(self) -> int:
        """Bytes that the arena has from the system, in use or kept for the next run; 0 if it has no limit."""
        if self._session is None:
            return 0
        try:
            self._session.run(None, {"x0": TOO_MANY}, self._quiet)
        except Exception as error:  # always
            known = memory_error(error)
            return self.limit - known[0] if known else 0
        return 0

    def shrink(self) -> None:
        """Gives back to the system what no run uses, if the arena has a limit."""
        if self._session is not None:
            self._session.run(None, {"x0": NONE}, self._shrinking)


def memory_error(error: Exception) -> tuple[int, int] | None:
    """(free bytes, requested bytes) if a run failed at the arena's limit."""
    found = AVAILABLE_MEMORY.search(str(error))
    return None if found is None else (int(found[1]), int(found[2]))


_lock = Lock()
_arenas: list[Arena] = []  # at most one


def shared_arena(runtime: ModuleType, limit: int | None = None) -> Arena:
    """The process's arena. Sessions keep the one that was there when they were made.

    Args:
        limit: bytes; where the arena has another limit, a new one takes its place. None takes the one that is there, or
            makes one without a limit.
    """
    with _lock:
        if not _arenas or limit not in (None, _arenas[0].limit):
            _arenas[:] = [Arena(runtime, limit or 0)]
        return _arenas[0]


def current_arena() -> Arena | None:
    """The process's arena, if there is one."""
    return _arenas[0] if _arenas else None
