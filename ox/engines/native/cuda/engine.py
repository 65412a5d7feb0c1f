"""The engine `native` for calls on a GPU."""

from __future__ import annotations

from threading import Lock

from ox.devices.gpu.cuda_graph import GraphMemory
from ox.devices.gpu.cupy_device import cupy
from ox.engines.engine import Engine, Task
from ox.engines.native.cuda.executable import GpuExecutable


class NativeOnGpu:
    """Runs graphs on a GPU. Its executables share the memory of what lives inside of a call."""

    name = "native"

    def __init__(self, host: Engine) -> None:
        """
        Args:
            host: the engine for what is computed on the CPU.
        """
        self._host = host
        self._lock = Lock()
        self._memory: dict[int, GraphMemory] = {}

    def build(self, task: Task) -> GpuExecutable:
        """Prepare a task: what the first call does not have to."""
        return GpuExecutable(task, self._host, self._memory_of_device, self._lock)

    def _memory_of_device(self) -> GraphMemory:
        device = int(cupy().cuda.Device().id)
        if device not in self._memory:
            self._memory[device] = GraphMemory()
        return self._memory[device]
