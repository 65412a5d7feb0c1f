"""The steps by which what is served of one model becomes what should be: look, load beside, swap, drain."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from ox.clock import Clock
from ox.errors import LoadError, OxError
from ox.serve.batching.admission import Budget
from ox.serve.config.request_limits import RequestLimits
from ox.serve.repository.entry import LOADING, UNAVAILABLE, UNLOADING, Entry, Slot
from ox.serve.repository.layout import ModelFiles
from ox.serve.repository.loading import Cancelled, InterruptedLoad, load
from ox.serve.repository.model import Model
from ox.serve.repository.repository import Repository
from ox.serve.repository.setups import Setups
from ox.serve.repository.thread import in_thread
from ox.serve.repository.watchdog import Watchdog
from ox.serve.runtime.load_control import LoadControl

GONE, UNWANTED, STOPPED = "its files were deleted", "not among the versions to serve", "the server stops"

log = logging.getLogger("ox.serve")


class ChangeSteps:
    """Changes entries of a repository. Whoever calls sees to it that one entry is changed once at a time.

    Args:
        repository: whose entries they are.
        setups: the settings of models.
        limits: what requests may ask.
        gone: called with entries that are unloaded and whose files are deleted.
        budget: the memory that all models share.
        show: called with messages about long loads, from any thread; by default they are warnings in the log.
        clock: of loads and models.
    """

    def __init__(
        self,
        repository: Repository,
        setups: Setups,
        limits: RequestLimits,
        gone: Callable[[Entry], None],
        budget: Budget,
        show: Callable[[str], None] | None = None,
        *,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self.loads: Counter[tuple[str, str]] = Counter()  # by model, and "loaded", "failed" or "unloaded"
        self._repository, self._setups, self._limits, self._gone = repository, setups, limits, gone
        self._budget = budget
        self._loop: asyncio.AbstractEventLoop | None = None
        self._show = show
        self._watchdog: Watchdog[Model] = Watchdog(self._progress)
        self._controls: dict[str, list[LoadControl]] = {}  # of the loads that go on, by model
        self._draining: set[Model] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unlogged: list[str] = []
        self._starting = True

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has what is loaded answer; from now on what is loaded answers at once."""
        self._loop = loop
        for model in self._repository.models():
            model.start(loop)

    def stop(self) -> None:
        """Ends everything, at once."""
        self.cancel_all()
        for task in self._tasks:
            task.cancel()
        if self._loop is None:
            return
        models = [*self._repository.models(), *self._draining]
        for model in models:  # all at once, then wait for each
            model.abort()
        for model in models:
            model.release()

    def cancel(self, name: str, why: str, older_s: float = 0.0) -> None:
        """Ends the loads of a model, those that have been going on for so long."""
        for control in self._controls.get(name, ()):
            if control.seconds >= older_s:
                control.end(Cancelled(why))

    def cancel_all(self) -> None:
        """Ends all loads: the server stops."""
        for name in list(self._controls):
            self.cancel(name, STOPPED)

    def log_all_failures(self) -> None:
        """From now on logs failures when they happen, and those now that were not logged because the start may fail."""
        self._starting = False
        self.say()

    def say(self) -> None:
        """Logs the failures so far."""
        while self._unlogged:
            log.error("%s", self._unlogged.pop(0))

    def prepare(self, entry: Entry, found: ModelFiles, config: Any = None) -> None:
        """Reads the settings of a model; `entry.error` is what is wrong with them, or with its files."""
        entry.error = found.problem
        try:
            setup = self._setups.of(found, config)
        except LoadError as error:
            entry.error = entry.error or error
        else:
            if setup.unmapped and (entry.setup is None or entry.setup.unmapped != setup.unmapped):
                log.warning("%s: this server does not follow %s", entry.name, ", ".join(setup.unmapped))
            entry.setup = setup
        if entry.error is None and not found.versions:
            entry.error = found.absence()
            self.retire(entry, entry.running(), GONE)
        elif entry.error is None and entry.setup is not None and not entry.setup.choose(set(found.versions)):
            there = ", ".join(map(str, sorted(found.versions)))
            entry.error = LoadError(f"the version policy of '{entry.name}' chooses none", got=f"versions {there}")
        if entry.error is not None:
            problem = entry.problem
            named = problem.startswith(f"{entry.name}: ")
            self._failed(entry, problem if named else f"{entry.name}: {problem}")

    def settle_blocking(self, entry: Entry, found: ModelFiles) -> None:
        """Like `settle`, before there is a loop, and blocking."""
        while entry.error is None and (due := entry.due(found)):
            for number in due:
                with self._controlled(entry, number) as control:
                    outcome = self._attempt(entry, number, found, control)
                self._finish(entry, number, found, control.error or outcome)

    async def settle(self, entry: Entry, found: ModelFiles) -> None:
        """Loads missing versions, then unloads unwanted ones.

        Raises:
            Unsettled: files changed meanwhile, or the load was cancelled; the versions that ran before keep running.
        """
        if entry.error is not None:
            return
        entry.clear_resolved(found)
        while due := entry.due(found):
            for number in due:
                with self._controlled(entry, number) as control:
                    call = partial(self._attempt, entry, number, found, control)
                    outcome = await in_thread(call, f"ox-watchdog {entry.name}")
                self._finish(entry, number, found, control.error or outcome)
        surplus = entry.unwanted_slots(found)
        self.retire(entry, [slot for slot in surplus if slot.number not in found.versions], GONE)
        self.retire(entry, [slot for slot in surplus if slot.number in found.versions], UNWANTED)
        entry.forget(set(found.versions))
        self._repository.refresh()

    def retire(self, entry: Entry, slots: list[Slot], reason: str) -> None:
        """Removes these from routing, then lets them finish accepted requests."""
        leaving = [(slot, slot.leaves(reason)) for slot in slots]
        if leaving:
            self._repository.refresh()
        for slot, model in leaving:
            self.loads[entry.name, "unloaded"] += 1
            log.info("version %d of '%s' is unloaded: %s", slot.number, entry.name, reason)
            if model is not None:
                self.spawn(self._drain(entry, slot, model))

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Runs something beside everything else."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    @contextmanager
    def _controlled(self, entry: Entry, number: int) -> Iterator[LoadControl]:
        """The control of the load of a version, registered for `cancel`; leaving the block early stops the load."""
        assert entry.setup is not None
        slot, limit_s = entry.slot(number), entry.setup.running.options.load_timeout_s
        control = slot.control = LoadControl(f"version {number} of '{entry.name}'", limit_s, self._clock)
        self._controls.setdefault(entry.name, []).append(control)
        if slot.model is None:
            slot.state, slot.reason = LOADING, ""
        try:
            yield control
        except BaseException:
            control.end(Cancelled("no longer needed"))
            raise
        finally:
            slot.control = None
            if slot.state == LOADING:
                slot.state = UNAVAILABLE
            self._controls[entry.name].remove(control)
            if not self._controls[entry.name]:
                del self._controls[entry.name]

    def _attempt(
        self, entry: Entry, number: int, found: ModelFiles, control: LoadControl
    ) -> Model | OxError | InterruptedLoad:
        assert entry.setup is not None
        running = entry.setup.running
        call = partial(load, entry.name, number, found.versions[number], running, self._limits, self._budget, control)
        try:
            return self._watchdog.run(call, control)
        except (OxError, InterruptedLoad) as error:
            return error

    def _finish(self, entry: Entry, number: int, found: ModelFiles, model: Model | Exception) -> None:
        """What a load came to, on the event loop."""
        slot = entry.slot(number)
        if isinstance(model, OxError):
            slot.fails(entry.wanted(found.versions[number]), model)
            self._failed(entry, f"version {number} of '{entry.name}' was not loaded: {model.one_line()}")
            return
        if isinstance(model, Exception):  # Unsettled
            raise model
        if slot.model is not None:
            model.stages = slot.model.stages  # counters continue
            if model.text is not None:
                model.text.stages = model.stages
        before = slot.runs(model, entry.wanted(found.versions[number]))
        self.loads[entry.name, "loaded"] += 1
        if self._loop is not None:
            model.start(self._loop)
            self._repository.refresh()
            log.info("%s", model.describe())
            if before is not None:
                self.spawn(self._close(before))

    async def _close(self, model: Model) -> None:
        """Lets a model finish what it accepted."""
        self._draining.add(model)
        await model.close()
        self._draining.discard(model)

    async def _drain(self, entry: Entry, slot: Slot, model: Model) -> None:
        if self._loop is not None:  # else it has accepted nothing
            await self._close(model)
        if slot.state == UNLOADING:
            slot.state = UNAVAILABLE
            if slot.reason == GONE:
                entry.slots.pop(slot.number, None)
                self._gone(entry)

    def _progress(self, line: str) -> None:
        log.log(logging.WARNING if self._show is None else logging.INFO, "%s", line)
        if self._show is not None:
            self._show(line)

    def _failed(self, entry: Entry, text: str) -> None:
        self.loads[entry.name, "failed"] += 1
        if self._starting:
            self._unlogged.append(text)
        else:
            log.error("%s", text)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the repository failed", exc_info=error)
