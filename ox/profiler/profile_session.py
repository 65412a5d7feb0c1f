"""The profiler: its schedule, events and reports."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterable
from contextvars import Token
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from time import time_ns
from typing import Any

from ox.autograd.saved_tensor_hooks import SavedTensorObserver
from ox.core.mode import MODE, Mode
from ox.errors import ArgumentError
from ox.profiler.collection import COLLECTOR, Collector, NodeCollector
from ox.profiler.event import Averages, Event, averages, by_module
from ox.profiler.trace import chrome, write


class ProfilerActivity(Enum):
    """What is watched. `torch.profiler.ProfilerActivity`; with CUDA every kernel is waited for, so that times are the
    device's."""

    CPU = 0
    CUDA = 1


class ProfilerAction(Enum):
    """What a step does. `torch.profiler.ProfilerAction`."""

    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


def supported_activities() -> set[ProfilerActivity]:
    """What can be watched here."""
    from ox.devices import cuda

    return {ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.available() else [])}


def schedule(
    *, wait: int, warmup: int, active: int, repeat: int = 0, skip_first: int = 0, skip_first_wait: int = 0
) -> Callable[[int], ProfilerAction]:
    """Skip `skip_first` steps, then again and again (or `repeat` times): wait, warm up, record. With
    `skip_first_wait` the first round does not wait. `torch.profiler.schedule`."""
    if min(wait, warmup, repeat, skip_first) < 0 or active < 1:
        raise ArgumentError(
            "a schedule records one step or more, and waits for none or more",
            got=f"wait {wait}, warmup {warmup}, active {active}, repeat {repeat}",
        )
    length = wait + warmup + active

    def action(step: int) -> ProfilerAction:
        step -= skip_first
        if step < 0:
            return ProfilerAction.NONE
        if skip_first_wait:
            step += wait
        if repeat and step // length >= repeat:
            return ProfilerAction.NONE
        at = step % length
        if at < wait:
            return ProfilerAction.NONE
        if at < wait + warmup:
            return ProfilerAction.WARMUP
        return ProfilerAction.RECORD if at < length - 1 else ProfilerAction.RECORD_AND_SAVE

    return action


class profile:
    """``with ox.profiler.profile() as p: ...``, then ``print(p.key_averages().table("self_cpu_time_total"))``.
    `torch.profiler.profile`.

    It takes the time of each operator's kernel, of each node of a backward, of optimizer steps and of named ranges, in
    the thread (context) that started it. The time between, Python's, belongs to the range around.

    Args:
        activities: `ProfilerActivity`; CUDA waits for every kernel.
        schedule: which steps to record; call `step()` after each.
        on_trace_ready: called with the profiler when a recording is done.
        record_shapes: keep the shapes of inputs; profile_memory: bytes of new outputs; with_stack: the user's line;
            with_flops: of products and convolutions; with_modules: which module called, in backward too.
    """

    def __init__(
        self,
        *,
        activities: Iterable[ProfilerActivity] | None = None,
        schedule: Callable[[int], ProfilerAction] | None = None,
        on_trace_ready: Callable[[Any], Any] | None = None,
        record_shapes: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        with_flops: bool = False,
        with_modules: bool = False,
        experimental_config: Any = None,
        execution_trace_observer: Any = None,
        acc_events: bool = False,
        use_cuda: bool | None = None,
        custom_trace_id_callback: Any = None,
    ) -> None:
        chosen = set(activities or [ProfilerActivity.CPU])
        given = {
            "shapes": record_shapes,
            "memory": profile_memory,
            "stack": with_stack,
            "flops": with_flops,
            "modules": with_modules,
            "cuda": bool(use_cuda) or ProfilerActivity.CUDA in chosen,
        }
        self.options = frozenset(name for name, on in given.items() if on)
        self.schedule, self.on_trace_ready, self.step_num = schedule, on_trace_ready, 0
        self._collector: Collector | None = None
        self._tokens: tuple[Token[Mode], Token[Collector | None]] | None = None
        self._steps: list[tuple[str, float, float]] = []
        self._began = 0.0

    @property
    def current_action(self) -> ProfilerAction:
        return ProfilerAction.RECORD_AND_SAVE if self.schedule is None else self.schedule(self.step_num)

    def start(self) -> None:
        """Begin, as `with` does."""
        self._enter()

    def stop(self) -> None:
        """End; what was recorded is kept."""
        if self._tokens is not None:
            self._leave()
            if self.on_trace_ready is not None:
                self.on_trace_ready(self)

    def __enter__(self) -> profile:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def step(self) -> None:
        """A step of the schedule is over."""
        before = self.current_action
        if self._collector is not None and self._tokens is not None:
            name = f"ProfilerStep#{self.step_num}"
            self._steps.append((name, self._began, self._collector.now()))
            self._began = self._collector.now()
        self.step_num += 1
        if self.schedule is None:
            return
        if before is ProfilerAction.RECORD_AND_SAVE:
            self.stop()
        if self._tokens is None:
            self._enter()

    def _enter(self) -> None:
        """Watch from now on, if the schedule says so."""
        if self.current_action in (ProfilerAction.NONE, ProfilerAction.WARMUP):
            return
        if self._tokens is not None:
            raise ArgumentError("this profiler is running already")
        mode = MODE.get()
        collector = self._collector = Collector(self.options)
        self._steps, self._began = [], 0.0
        held: Any = mode.observer or SavedTensorObserver()
        own = {f.name: getattr(held, f.name) for f in fields(SavedTensorObserver)}
        observer = NodeCollector(**own, collector=collector)
        changed = replace(mode, watch=collector.watch(mode.watch), observer=observer)
        self._tokens = MODE.set(changed), COLLECTOR.set(collector)

    def _leave(self) -> None:
        assert self._tokens is not None and self._collector is not None
        mode, collector = self._tokens
        self._tokens = None
        MODE.reset(mode)
        COLLECTOR.reset(collector)

    # -- reports -----------------------------------------------------------------------------------------------

    def events(self) -> list[Event]:
        """Every span, in the order of their beginnings. Raises ArgumentError when nothing was recorded."""
        if self._collector is None:
            raise ArgumentError("the profiler has recorded nothing yet", hint="with profile() as p: ...")
        return sorted(self._collector.events, key=lambda e: (e.start, -e.end))

    def key_averages(
        self, group_by_input_shape: bool = False, group_by_stack_n: int = 0, group_by_module: bool = False
    ) -> Averages:
        """Spans gathered by name and phase (forward or backward); by shapes, by the user's line or by module besides,
        where these were recorded."""
        shown = set(self.options)
        return averages(
            self.events(), shown, group_by_input_shape and "shapes" in shown, group_by_stack_n > 0, group_by_module
        )

    def module_averages(self) -> Averages:
        """The operators' time in each module, submodules included; needs `with_modules`."""
        return Averages(by_module(self.events()), self.options & {"memory", "flops"})

    def export_chrome_trace(self, path: str | os.PathLike[str]) -> None:
        """Write a file for chrome://tracing or Perfetto. Raises WriteError."""
        write(path, chrome(self.events(), self._steps))


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[profile], None]:
    """An `on_trace_ready` that writes each recording into a folder where TensorBoard's profiler page looks.
    `torch.profiler.tensorboard_trace_handler`."""

    def handler(profiler: profile) -> None:
        folder = Path(dir_name)
        folder.mkdir(parents=True, exist_ok=True)
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        end = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
        profiler.export_chrome_trace(folder / f"{worker}.{time_ns()}{end}")

    return handler
