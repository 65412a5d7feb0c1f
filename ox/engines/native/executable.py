"""A task that is ready to run on the native engine."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock

import numpy as np

from ox.core.mode import Watch
from ox.engines.engine import Array, Task
from ox.engines.native.explain import explain, groups
from ox.engines.native.input_check import check_inputs
from ox.engines.native.launches import Work
from ox.engines.native.schedule import Schedule
from ox.errors import ArgumentError
from ox.graph.ir import Node


class NativeExecutable:
    """Runs its steps in order. Calls from several threads take turns."""

    def __init__(self, task: Task, schedule: Schedule, work: list[Work], unfused: str | None, lock: Lock) -> None:
        """
        Args:
            work: what the schedule was made of.
            unfused: why no kernels were generated.
            lock: held during a call, by all whose memory this one shares.
        """
        self._work, self._unfused = work, unfused
        self._inputs = task.graph.inputs
        self._states = {i for i, v in enumerate(self._inputs) if v in set(task.updates.values())}
        self._schedule = schedule
        self._lock = lock
        self._ids: list[int] = []  # of the arrays of the last call
        self._scattered: list[int] = []  # inputs of the last call of which a dense copy was made

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs for one array an input, in order; the arrays of state hold their next values afterwards.

        Raises:
            DTypeError: an array of another element type than was recorded.
            ShapeError: another shape.
            ArgumentError: another number of arrays, what is no array, or a state that cannot be written.
            OxError: what eager calls of the operators raise.
        """
        with self._lock:
            slots = self._bound(arrays)
            for step in self._schedule.steps:
                step(slots)
            return self._results(arrays, slots)

    def watched(self, arrays: Sequence[Array], watch: Watch) -> list[Array]:
        """The same, with each step that computes run by the watch."""
        with self._lock:
            slots = self._bound(arrays)
            for step in self._schedule.steps:
                if step.shown is None:
                    step(slots)
                else:
                    step.shown.run(step, slots, watch)
            return self._results(arrays, slots)

    def _results(self, arrays: Sequence[Array], slots: list[Array]) -> list[Array]:
        for i in self._scattered:
            if i in self._states:
                np.copyto(arrays[i], slots[1 + i], casting="no")
                slots[1 + i] = arrays[i]
        return [slots[i] for i in self._schedule.outputs]

    def _bound(self, arrays: Sequence[Array]) -> list[Array]:
        """The slots of a call. Arrays that lie where those of the last call did are not looked at again."""
        ids = [id(array) for array in arrays]
        if ids != self._ids or self._scattered:
            self._ids = []
            self._check(arrays)
            self._scattered = [i for i, array in enumerate(arrays) if not _is_dense(array)]
            first = self._schedule.slots
            first[1 : 1 + len(arrays)] = arrays  # which keeps them, so that their numbers stay their own
            for i in self._scattered:
                first[1 + i] = np.array(arrays[i], order="C")
            for binding in self._schedule.bindings:
                binding.bind(first)
            self._ids = ids
        return [*self._schedule.slots]

    def explain(self) -> list[str]:
        """What runs, for people."""
        return explain(self._work, self._schedule, self._unfused)

    def groups(self) -> list[tuple[str, list[Node]]]:
        """The nodes after the passes; those of a generated kernel together."""
        return groups(self._work)

    def _check(self, arrays: Sequence[Array]) -> None:
        for value, array in zip(self._inputs, arrays, strict=False):
            if not isinstance(array, np.ndarray):
                raise ArgumentError(
                    f"input '{value.name}' is no array", expected="numpy.ndarray", got=type(array).__name__
                )
        check_inputs(self._inputs, arrays)
        for i in self._states:
            if not arrays[i].flags.writeable:
                raise ArgumentError(f"the state '{self._inputs[i].name}' cannot be written: its array is read-only")


def _is_dense(array: Array) -> bool:
    """Whether a kernel can go over its memory in order."""
    return bool(array.flags.c_contiguous and array.flags.aligned)
