"""Taking the time of a statement."""

from __future__ import annotations

import timeit
from collections.abc import Callable
from typing import Any

from ox.devices import cuda
from ox.errors import ArgumentError
from ox.tensors import settings
from ox.utils.benchmark.measurement import Measurement, TaskSpec


def timer() -> float:
    """The clock; where a GPU is in use, when it has done its work."""
    from ox.devices import cuda_state

    if cuda_state.in_use:
        cuda.synchronize()
    return timeit.default_timer()


class Timer:
    """How long a statement takes. `torch.utils.benchmark.Timer`: like the standard library's `timeit.Timer`, but it
    warms up, waits for a GPU, repeats until the time is precise enough, and reports the spread.

    Args:
        stmt: code that is run again and again; setup: code that is run before.
        globals: names that the code may use.
        label, sub_label, description, env: what tables call it.
        num_threads: how many threads large operators use; they are one pool for the process, so another number than
            the present one is refused once it has started. None is the present one.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int | None = None,
        language: Any = "python",
    ) -> None:
        if str(getattr(language, "name", language)).lower() not in ("python", "py") or global_setup:
            raise ArgumentError("this Timer runs Python", hint="language='python', no global_setup")
        self._names = dict(globals or {})
        # every statement can name ox, as PyTorch's can name torch
        self._names.setdefault("ox", __import__("ox"))
        self._timer = timeit.Timer(stmt, setup, timer, self._names)
        self._clock = timer
        threads = settings.get_num_threads() if num_threads is None else num_threads
        settings.set_num_threads(threads)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, threads)

    def _run(self, number: int) -> float:
        return max(self._timer.timeit(number), 1e-9)

    def _result(self, number: int, times: list[float]) -> Measurement:
        return Measurement(number, times, self._task_spec)

    def timeit(self, number: int = 1000000) -> Measurement:
        """`number` runs as one block, after a short one to warm up."""
        self._run(max(number // 100, 2))
        return self._result(number, [self._run(number)])

    def _block(self, min_run_time: float) -> int:
        """How many runs make a block that the clock's own cost does not matter in."""
        overhead = sorted(timeit.Timer("pass", timer=self._clock).timeit(0) for _ in range(5))[2]
        number = 1
        while True:
            taken = self._run(number)
            if overhead / taken <= 1e-4 and taken >= min_run_time / 1000:
                return number
            if taken > min_run_time:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Blocks of one size until they took `min_run_time` seconds. `callback(number, seconds)` is called for each."""
        number = self._block(min_run_time)
        times: list[float] = []
        while sum(times) < min_run_time or not times:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
        return self._result(number, times)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """Blocks until the quartiles lie within `threshold` of the median (and `min_run_time` seconds have passed), but
        no longer than `max_run_time`."""
        number = self._block(0.05)
        times: list[float] = []
        while True:
            times.append(self._run(number))
            if callback is not None:
                callback(number, times[-1])
            made, whole = self._result(number, times), sum(times)
            enough = len(times) > 3 and whole > min_run_time and made.meets_confidence(threshold)
            if enough or whole > max_run_time:
                return made
