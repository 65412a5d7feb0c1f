"""Keeps what is served in step with what lies on disk and with what load calls ask.

A new version is loaded beside the old one in a thread, proven there with the golden samples inside the file and warmed
at every size; then the event loop takes it between two requests, and the old one answers what it had accepted before
its memory is freed. What fails to load changes nothing but the reason that the index shows.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ox.errors import ArgumentError, LoadError, OxError, ServeError
from ox.serve.limits import Limits
from ox.serve.options import Options
from ox.serve.repository.entry import LOADING, UNAVAILABLE, UNLOADING, Entry, Slot
from ox.serve.repository.layout import Found, Layout, Scan
from ox.serve.repository.loading import Unsettled, load
from ox.serve.repository.model import Model
from ox.serve.repository.override import override, write
from ox.serve.repository.repository import Repository
from ox.serve.repository.setups import Setups
from ox.serve.repository.thread import in_thread
from ox.serve.repository.watch import Watch

AT_ONCE = 2  # models that are loaded at the same time
TRIES = 3  # of a load call whose files are being written

GONE, UNWANTED, UNLOADED = "its files are gone", "not among the versions to serve", "unloaded by a call"

log = logging.getLogger("ox.serve")


class Keeper:
    """Loads, reloads and unloads the models of a repository. Everything here happens on the event loop's thread.

    Args:
        repository: what is to be filled.
        layout: where models lie.
        options: how they are run where nothing else is said.
        limits: how often the disk is looked at, and what requests may ask.
        watch: whether changes on disk are followed.
    """

    def __init__(
        self, repository: Repository, layout: Layout, options: Options, limits: Limits, *, watch: bool = True
    ) -> None:
        self.repository, self.layout, self.limits = repository, layout, limits
        self.loads: Counter[tuple[str, str]] = Counter()  # by model, and "loaded", "failed" or "unloaded"
        self._setups = Setups(options)
        self._watch = Watch(layout.scan, self._seen, limits.poll_s) if watch else None
        self._settled: dict[str, object] = {}  # what each model was like when it was last seen to
        self._before: dict[str, object] = {}  # and at the last look
        self._held: set[str] = set()  # unloaded by a call: not loaded again before a call says so
        self._folders: dict[str, Path] = {}  # of models whose files a call brought
        self._locks: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._room = asyncio.Semaphore(AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._trouble = ""

    # ---- the server's start and stop

    def open(self) -> None:
        """Loads what lies there; blocks.

        Raises:
            OxError: a file that was named, or everything in the folders, cannot be served.
        """
        scan = self.layout.scan()
        self._setups.read(scan.settings)
        named = {path.stem for path in self.layout.files}
        for name, found in scan.models.items():
            entry = self.repository.entry(name)
            self._prepare(entry, found)
            try:
                while entry.error is None and (due := entry.due(found)):
                    for number in due:
                        self._finish(entry, number, found, _attempt(partial(self._load, entry, number, found)))
                self._settled[name] = self._key(found)
            except Unsettled:  # watching will take it
                entry.error = LoadError(f"the files of '{name}' are still being written", hint="again in a moment")
            if name in named and not entry.running():
                raise _reason(entry)
        if self.repository.entries and not self.repository.models():
            raise _reason(next(iter(self.repository.entries.values())))
        if not scan.models and self._watch is None:
            folders = ", ".join(map(str, self.layout.folders))
            raise ArgumentError(f"there is no model in {folders}", expected="NAME/1/model.onnx, or NAME.onnx")
        self.repository.refresh()

    def start(self) -> None:
        """Has the models answer, and begins to watch."""
        loop = asyncio.get_running_loop()
        for model in self.repository.models():
            model.batcher.start(loop)
        if self._watch is not None:
            self._watch.start(loop)

    def stop(self) -> None:
        """Ends everything; requests have been answered before."""
        if self._watch is not None:
            self._watch.stop()
        for task in self._tasks:
            task.cancel()
        for model in self.repository.models():
            model.batcher.close()
        for folder in self._folders.values():
            shutil.rmtree(folder, ignore_errors=True)

    # ---- what clients ask

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Loads or reloads a model from disk, or from what the call brings along.

        Raises:
            ServeError: there is no such model (404), or it cannot be loaded (400): then what ran before goes on.
        """
        brought = override(parameters)
        if brought is not None and brought.files and not name.isprintable():
            raise ServeError("a model's name is of printable characters", got=repr(name[:100]))
        if not (brought is not None and brought.files) and name not in self.repository.entries:
            await self._on_disk(name)  # before anything is kept for that name
        for attempt in range(TRIES):
            async with self._locks[name]:
                if brought is not None and brought.files:
                    found, folder = await in_thread(lambda: write(name, brought.files), "ox-write")
                else:
                    found, folder = await self._on_disk(name), None
                entry = self.repository.entry(name)
                setup = entry.setup
                for slot in entry.slots.values():
                    slot.failed = None
                try:
                    self._prepare(entry, found, None if brought is None else brought.config)
                    await self._settle(entry, found)
                    self._held.discard(name)
                    if entry.error is not None or any(slot.failed is not None for slot in entry.slots.values()):
                        raise _refused(entry)
                except Unsettled:
                    entry.setup = setup
                    if attempt + 1 == TRIES:
                        raise ServeError(f"the files of '{name}' are still being written", hint="again") from None
                except BaseException:
                    entry.setup = setup or entry.setup
                    if folder is not None:
                        shutil.rmtree(folder, ignore_errors=True)
                    raise
                else:
                    self._forget_folder(name)
                    if folder is not None:
                        self._folders[name] = folder
                    return
            await asyncio.sleep(self.limits.poll_s)

    async def unload(self, name: str) -> None:
        """Stops serving all versions of a model; what was accepted is answered.

        Raises:
            ServeError: there is no such model (404).
        """
        entry = self.repository.entries.get(name)
        if entry is None:
            raise self.repository.unknown(name)
        async with self._locks[name]:
            self._held.add(name)
            entry.error = LoadError(UNLOADED)
            self._retire(entry, entry.running(), UNLOADED)
            self._forget_folder(name)

    # ---- what the disk says

    def _seen(self, scan: Scan | OxError) -> None:
        if isinstance(scan, OxError):
            self._complain(scan)
            return
        try:
            self._setups.read(scan.settings)
        except OxError as error:  # what it said before goes on
            self._complain(error)
        else:
            self._trouble = ""
        keys = {}
        for name in {**dict.fromkeys(self.repository.entries), **scan.models}:
            found = scan.models.get(name)
            key = keys[name] = self._key(found)
            steady = self._before.get(name) == key or (found is not None and self._aged(found))
            told = name in self._folders or (name in self._held and found is not None)  # by a call, which goes first
            if steady and not told and key != self._settled.get(name) and not self._locks[name].locked():
                self._spawn(self._follow(name, found, key))
        self._before = keys

    def _aged(self, found: Found) -> bool:
        """Whether nobody can be writing any more: then a file that was renamed into place is taken at once."""
        return 0 < found.newest_ns < time.time_ns() - 2e9 * self.limits.poll_s

    async def _follow(self, name: str, found: Found | None, key: object) -> None:
        async with self._locks[name]:
            entry = self.repository.entry(name)
            if found is None:
                self._held.discard(name)
                self._settled.pop(name, None)
                self._retire(entry, entry.running(), GONE)
                entry.forget(set())
                self._tidy(entry)
                return
            try:
                self._prepare(entry, found)
                await self._settle(entry, found)
            except Unsettled:
                return  # to be looked at again
            self._settled[name] = key

    async def _on_disk(self, name: str) -> Found:
        scan = await in_thread(self.layout.scan, "ox-scan")
        self._setups.read(scan.settings)
        if name not in scan.models:
            raise self.repository.unknown(name)
        found = scan.models[name]
        self._settled[name] = self._key(found)
        return found

    def _key(self, found: Found | None) -> object:
        return None if found is None else (found.stamps, self._setups.table(found.name))

    # ---- the steps of both

    def _prepare(self, entry: Entry, found: Found, config: Any = None) -> None:
        """What is said about a model, and whether it can be followed."""
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
            self._retire(entry, entry.running(), GONE)
        elif entry.error is None and entry.setup is not None and not entry.setup.choose(set(found.versions)):
            there = ", ".join(map(str, sorted(found.versions)))
            entry.error = LoadError(f"the version policy of '{entry.name}' chooses none", got=f"versions {there}")
        if entry.error is not None:
            self.loads[entry.name, "failed"] += 1
            log.error("%s: %s", entry.name, entry.problem)

    async def _settle(self, entry: Entry, found: Found) -> None:
        if entry.error is not None:
            return
        entry.calm(found)
        while due := entry.due(found):
            for number in due:
                slot = entry.slot(number)
                if slot.model is None:
                    slot.state, slot.reason = LOADING, ""
                async with self._room:
                    call = partial(_attempt, partial(self._load, entry, number, found))
                    outcome = await in_thread(call, f"ox-load-{entry.name}")
                self._finish(entry, number, found, outcome)
        surplus = entry.surplus(found)
        self._retire(entry, [slot for slot in surplus if slot.number not in found.versions], GONE)
        self._retire(entry, [slot for slot in surplus if slot.number in found.versions], UNWANTED)
        entry.forget(set(found.versions))
        self.repository.refresh()

    def _load(self, entry: Entry, number: int, found: Found) -> Model:
        assert entry.setup is not None
        return load(entry.name, number, found.versions[number], entry.setup.running, self.limits)

    def _finish(self, entry: Entry, number: int, found: Found, model: Model | OxError | Unsettled) -> None:
        """What a load came to, on the event loop."""
        slot = entry.slot(number)
        if isinstance(model, Unsettled):
            slot.state = UNAVAILABLE if slot.model is None else slot.state
            raise model
        if isinstance(model, OxError):
            slot.fails(entry.wanted(found.versions[number]), model)
            self.loads[entry.name, "failed"] += 1
            log.error("version %d of '%s' was not loaded: %s", number, entry.name, model.one_line())
            return
        if slot.model is not None:
            model.stages = slot.model.stages  # what is counted goes on
        before = slot.runs(model, entry.wanted(found.versions[number]))
        self.loads[entry.name, "loaded"] += 1
        loop = _running_loop()
        if loop is None:  # not yet: `start` follows
            return
        model.batcher.start(loop)
        self.repository.refresh()
        log.info("%s", model.describe())
        if before is not None:
            self._spawn(before.close())

    def _retire(self, entry: Entry, slots: list[Slot], reason: str) -> None:
        leaving = [(slot, slot.leaves(reason)) for slot in slots]
        if leaving:
            self.repository.refresh()
        for slot, model in leaving:
            self.loads[entry.name, "unloaded"] += 1
            log.info("version %d of '%s' is unloaded: %s", slot.number, entry.name, reason)
            if model is not None:
                self._spawn(self._drain(entry, slot, model))

    async def _drain(self, entry: Entry, slot: Slot, model: Model) -> None:
        await model.close()
        if slot.state == UNLOADING:
            slot.state = UNAVAILABLE
            if slot.reason == GONE:
                entry.slots.pop(slot.number, None)
                self._tidy(entry)

    def _tidy(self, entry: Entry) -> None:
        """Forgets a model that is neither on disk nor in memory."""
        if entry.name not in self._settled and not entry.slots:
            self.repository.entries.pop(entry.name, None)
            if not self._locks[entry.name].locked():
                del self._locks[entry.name]

    def _forget_folder(self, name: str) -> None:
        folder = self._folders.pop(name, None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def _complain(self, error: OxError) -> None:
        """Says a thing once, not at every look."""
        if error.one_line() != self._trouble:
            self._trouble = error.one_line()
            log.error("%s; what is served stays as it is", self._trouble)

    def _spawn(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the repository failed", exc_info=error)


def _attempt(call: Callable[[], Model]) -> Model | OxError | Unsettled:
    try:
        return call()
    except (OxError, Unsettled) as error:
        return error


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _reason(entry: Entry) -> OxError:
    """Why nothing of a model runs."""
    errors = [slot.error for slot in entry.slots.values() if slot.error is not None]
    return entry.error or (errors[0] if errors else LoadError(f"no version of '{entry.name}' can be served"))


def _refused(entry: Entry) -> ServeError:
    error = _reason(entry)
    fields = {name: getattr(error, name) for name in ("where", "expected", "got", "hint")}
    kept = ", ".join(str(slot.number) for slot in entry.running())
    what = error.what + (f"; version {kept} goes on" if kept else "")
    return ServeError(what, **fields)
