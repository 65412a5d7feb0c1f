"""The steps by which what is served of one model becomes what should be: look, load beside, swap, drain."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ox.errors import LoadError, OxError
from ox.serve.batching.intake import Budget
from ox.serve.limits import Limits
from ox.serve.repository.entry import LOADING, UNAVAILABLE, UNLOADING, Entry, Slot
from ox.serve.repository.layout import Found
from ox.serve.repository.loading import Unsettled, load
from ox.serve.repository.model import Model
from ox.serve.repository.repository import Repository
from ox.serve.repository.setups import Setups
from ox.serve.repository.thread import in_thread

AT_ONCE = 2  # models that are loaded at the same time
GONE, UNWANTED = "its files are gone", "not among the versions to serve"

log = logging.getLogger("ox.serve")


class Steps:
    """Changes entries of a repository. Whoever calls sees to it that one entry is changed once at a time.

    Args:
        repository: whose entries they are.
        setups: what is said about models.
        limits: what requests may ask.
        gone: is told of entries of which nothing is left in memory, once their files are gone.
        budget: the memory that all models share.
    """

    def __init__(
        self,
        repository: Repository,
        setups: Setups,
        limits: Limits,
        gone: Callable[[Entry], None],
        budget: Budget,
    ) -> None:
        self.loads: Counter[tuple[str, str]] = Counter()  # by model, and "loaded", "failed" or "unloaded"
        self._repository, self._setups, self._limits, self._gone = repository, setups, limits, gone
        self._budget = budget
        self._loop: asyncio.AbstractEventLoop | None = None
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unsaid: list[str] = []

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Has what is loaded answer; from now on what is loaded answers at once."""
        self.say()
        self._loop = loop
        for model in self._repository.models():
            model.batcher.start(loop)

    def stop(self) -> None:
        """Ends everything, at once."""
        for task in self._tasks:
            task.cancel()
        for model in self._repository.models():
            model.batcher.close()

    def say(self) -> None:
        """Logs the failures of the time before `start`, which the caller might have raised instead."""
        while self._unsaid:
            log.error("%s", self._unsaid.pop(0))

    def prepare(self, entry: Entry, found: Found, config: Any = None) -> None:
        """Takes what is said about a model; `entry.error` tells what is wrong with it, or with its files."""
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
            self._failed(entry, f"{entry.name}: {entry.problem}")

    def settle_now(self, entry: Entry, found: Found) -> None:
        """Like `settle`, before there is a loop, and blocking."""
        while entry.error is None and (due := entry.due(found)):
            for number in due:
                self._finish(entry, number, found, _attempt(partial(self._load, entry, number, found)))

    async def settle(self, entry: Entry, found: Found) -> None:
        """Loads what should run and does not, then unloads what should not run any more.

        Raises:
            Unsettled: files changed meanwhile; what ran before goes on.
        """
        if entry.error is not None:
            return
        entry.calm(found)
        while due := entry.due(found):
            for number in due:
                slot = entry.slot(number)
                if slot.model is None:
                    slot.state, slot.reason = LOADING, ""
                try:
                    async with self._room:
                        call = partial(_attempt, partial(self._load, entry, number, found))
                        outcome = await in_thread(call, f"ox-load-{entry.name}")
                finally:
                    if slot.state == LOADING:
                        slot.state = UNAVAILABLE
                self._finish(entry, number, found, outcome)
        surplus = entry.surplus(found)
        self.retire(entry, [slot for slot in surplus if slot.number not in found.versions], GONE)
        self.retire(entry, [slot for slot in surplus if slot.number in found.versions], UNWANTED)
        entry.forget(set(found.versions))
        self._repository.refresh()

    def retire(self, entry: Entry, slots: list[Slot], reason: str) -> None:
        """Has nobody find these any more, then lets them finish what they accepted."""
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

    def _load(self, entry: Entry, number: int, found: Found) -> Model:
        assert entry.setup is not None
        return load(entry.name, number, found.versions[number], entry.setup.running, self._limits, self._budget)

    def _finish(self, entry: Entry, number: int, found: Found, model: Model | OxError | Unsettled) -> None:
        """What a load came to, on the event loop."""
        slot = entry.slot(number)
        if isinstance(model, Unsettled):
            raise model
        if isinstance(model, OxError):
            slot.fails(entry.wanted(found.versions[number]), model)
            self._failed(entry, f"version {number} of '{entry.name}' was not loaded: {model.one_line()}")
            return
        if slot.model is not None:
            model.stages = slot.model.stages  # what is counted goes on
        before = slot.runs(model, entry.wanted(found.versions[number]))
        self.loads[entry.name, "loaded"] += 1
        if self._loop is not None:
            model.batcher.start(self._loop)
            self._repository.refresh()
            log.info("%s", model.describe())
            if before is not None:
                self.spawn(before.close())

    async def _drain(self, entry: Entry, slot: Slot, model: Model) -> None:
        if self._loop is not None:  # else it has accepted nothing
            await model.close()
        if slot.state == UNLOADING:
            slot.state = UNAVAILABLE
            if slot.reason == GONE:
                entry.slots.pop(slot.number, None)
                self._gone(entry)

    def _failed(self, entry: Entry, text: str) -> None:
        self.loads[entry.name, "failed"] += 1
        if self._loop is None:
            self._unsaid.append(text)
        else:
            log.error("%s", text)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the repository failed", exc_info=error)


def _attempt(call: Callable[[], Model]) -> Model | OxError | Unsettled:
    try:
        return call()
    except (OxError, Unsettled) as error:
        return error
