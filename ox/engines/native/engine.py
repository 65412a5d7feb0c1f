"""The engine `native`."""

from __future__ import annotations

from ox.engines.engine import Task
from ox.engines.native.executable import NativeExecutable
from ox.engines.native.fold import fold
from ox.engines.native.schedule import schedule


class Native:
    """Runs graphs on ox's own kernels, on the CPU."""

    name = "native"

    def build(self, task: Task) -> NativeExecutable:
        """Prepare a task. The sizes of its inputs are those of the recorded call (`Value.shape`).

        Raises:
            LoadError: the graph has an operator that ox does not have.
        """
        folded = fold(task.graph)
        return NativeExecutable(task, schedule(task, folded))
