"""Keeps the served models in sync with the files on disk and with load calls.

A new version is loaded beside the old one in a thread, proven there with the golden samples inside the file and warmed
at every size; then the event loop takes it between two requests, and the old one answers what it had accepted before
its memory is freed. What fails to load changes nothing but the reason that the index shows.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from ox import temporary_files
from ox.clock import Clock
from ox.errors import ArgumentError, LoadError, OxError, ServeError
from ox.serve.batching.admission import Budget
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.request_limits import RequestLimits
from ox.serve.gpu_budget import GpuBudget
from ox.serve.repository.change_lock import ChangeLocks
from ox.serve.repository.change_steps import GONE, ChangeSteps
from ox.serve.repository.disk_poller import DiskPoller
from ox.serve.repository.entry import UNAVAILABLE, Entry
from ox.serve.repository.first_loads import FirstLoads, reason
from ox.serve.repository.layout import Layout, ModelFiles, Scan
from ox.serve.repository.loading import Cancelled, InterruptedLoad
from ox.serve.repository.model_name import check_name
from ox.serve.repository.other_formats import misplaced, other_format
from ox.serve.repository.override import Override, override, write
from ox.serve.repository.repository import Repository
from ox.serve.repository.setups import Setups
from ox.serve.repository.thread import in_thread
from ox.serve.repository.watchdog import SLOW_S
from ox.serve.response_memory import ResponseMemory

TRIES = 3  # of a load call whose files are being written
UNLOADED = "unloaded by a call"

log = logging.getLogger("ox.serve")


class ModelManager:
    """Loads, reloads and unloads the models of a repository. Everything here happens on the event loop's thread.

    Args:
        repository: what is to be filled.
        layout: where models lie.
        options: the default settings of models.
        limits: how often the disk is looked at, and what requests may ask.
        watch: whether changes on disk are followed.
        workers: processes that serve these models, this one among them.
        show: called with messages about long loads, from any thread; by default they are warnings in the log.
        clock: of loads and models.
    """

    def __init__(
        self,
        repository: Repository,
        layout: Layout,
        options: ModelConfig,
        limits: RequestLimits,
        *,
        watch: bool = True,
        workers: int = 1,
        show: Callable[[str], None] | None = None,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self.repository, self.layout, self.limits = repository, layout, limits
        self._setups = Setups(options, workers)
        self.answers = ResponseMemory(limits.unread, clock)
        budget = Budget(limits.buffered, limits.states, self.answers, GpuBudget(limits.gpu_memory))
        self._steps = ChangeSteps(repository, self._setups, limits, self._tidy, budget, show, clock=clock)
        self._watch = DiskPoller(layout.scan, self._on_scan, limits.poll_s, clock) if watch else None
        self._stable_keys: dict[str, object] = {}  # what each model was like when it was last seen to
        self._before: dict[str, object] = {}  # and at the last look
        self._first = FirstLoads(repository, set(), {})
        self._unloaded_by_call: set[str] = set()  # unloaded by a call: loaded again only by a call
        self._folders: dict[str, Path] = {}  # of models whose files a call brought
        self._change_locks = ChangeLocks(self._steps.cancel)
        self._last_error = ""

    @property
    def loads(self) -> Counter[tuple[str, str]]:
        """How often models were "loaded", "failed" or "unloaded", by (model, what)."""
        return self._steps.loads

    # ---- the server's start and stop

    def open(self, wait: bool = True) -> None:
        """Scans the repository and, unless `start` does it in the background, loads the models; blocks.

        Raises:
            OxError: a file that was named, or everything in the folders, cannot be served.
        """
        scan = self.layout.scan()
        self._setups.read(scan.settings)
        self._first = FirstLoads(self.repository, self.layout.file_names, scan.models)
        for name, files in scan.models.items():
            entry = self.repository.entry(name)
            self._steps.prepare(entry, files)
            if entry.error is not None:
                self._first.check(name)
        for folder in self.layout.folders:
            roots = folder, folder.resolve()
            if not any(files.path.is_relative_to(root) for files in scan.models.values() for root in roots):
                for problem in filter(None, (other_format(folder), misplaced(folder))):
                    raise problem
        if not scan.models and self._watch is None:
            folders = ", ".join(map(str, self.layout.folders))
            raise ArgumentError(f"there is no model in {folders}", expected="NAME/1/model.onnx, or NAME.onnx")
        if wait:
            try:
                self._first.run(self._load_now)
            except BaseException:
                self._steps.cancel_all()
                raise
            self.repository.refresh()

    def start(self) -> None:
        """Has the models answer, begins to load those that are not loaded yet, and to watch."""
        loop = asyncio.get_running_loop()
        self._steps.start(loop)
        if self.ready:
            self._steps.log_all_failures()
        for name, files in self._first.waiting.items():
            self._steps.spawn(self._load_first(name, files))
        if self._watch is not None:
            self._watch.start(loop)

    @property
    def ready(self) -> bool:
        """Whether everything that was there at the start has been loaded, or could not be."""
        return not self._first.waiting

    async def loaded(self) -> None:
        """Waits until `ready`.

        Raises:
            OxError: a file that was named, or everything in the folders, cannot be served.
        """
        async for _ in self._first.settled():
            if self.repository.models():  # else the caller gets to hear it
                self._steps.say()
        self._steps.log_all_failures()

    def _load_now(self, name: str, files: ModelFiles) -> None:
        entry = self.repository.entry(name)
        try:
            self._steps.settle_blocking(entry, files)
            self._stable_keys[name] = self._key(files)
        except InterruptedLoad:  # watching will take it
            entry.error = _changing(name)

    async def _load_first(self, name: str, files: ModelFiles) -> None:
        cancelled = False
        try:
            async with self._change_locks.take(name, self._key(files)):
                entry = self.repository.entry(name)
                try:
                    await self._steps.settle(entry, files)
                    self._stable_keys[name] = self._key(files)
                except Cancelled:
                    cancelled = True
                except InterruptedLoad:
                    entry.error = _changing(name)
        finally:
            self._first.done(name, cancelled)
            if self.ready:
                self.repository.refresh()  # for those who watch whether the server is ready

    def stop(self) -> None:
        """Ends everything; requests have been answered before."""
        self.cancel()
        self._steps.stop()
        for folder in self._folders.values():
            temporary_files.remove_folder(folder)

    def cancel(self) -> None:
        """Loads nothing more: the server is about to stop."""
        if self._watch is not None:
            self._watch.stop()
        self._steps.cancel_all()

    # ---- what clients ask

    async def load(self, name: str, parameters: Mapping[str, Any]) -> None:
        """Loads or reloads a model from disk, or from what the call brings along.

        Raises:
            ServeError: there is no such model (404), or it cannot be loaded or called so (400): then what ran before
                goes on.
        """
        check_name(name)
        brought = override(parameters)
        try:
            if not brought.files and name not in self.repository.entries:
                await self._on_disk(name)  # before anything is kept for that name
            for _ in range(TRIES):
                what = object() if brought else self._key(await self._on_disk(name))
                async with self._change_locks.take(name, what, "another load call replaces it"):
                    if await self._try(name, brought):
                        return
                await asyncio.sleep(self.limits.poll_s)
        except LoadError as error:
            raise _refused(error, "") from error
        raise _refused(_changing(name), "")

    async def _try(self, name: str, brought: Override) -> bool:
        """One attempt; False if the files changed meanwhile."""
        folder = None
        if brought.files:
            files, folder = await in_thread(partial(write, name, brought.files), "ox-write", _unwanted)
        else:
            files = await self._on_disk(name)
        entry = self.repository.entry(name)
        before = entry.setup, entry.error
        entry.retry_failed()
        succeeded = False
        try:
            self._steps.prepare(entry, files, brought.config)
            await self._steps.settle(entry, files)
            if entry.error is not None or any(slot.failed is not None for slot in entry.slots.values()):
                raise _refused(reason(entry), ", ".join(str(slot.number) for slot in entry.running()), folder)
            succeeded = True
        except Cancelled as error:
            raise ServeError(f"the load of '{name}' was ended", got=str(error)) from error
        except InterruptedLoad:
            return False
        finally:
            if succeeded:
                self._forget_folder(name)
                self._unloaded_by_call.discard(name)
                if folder is not None:
                    self._folders[name] = folder
                else:
                    self._stable_keys[name] = self._key(files)
            else:
                if brought and entry.running():  # settings of a failed call do not apply to the running versions
                    entry.setup, entry.error = before
                if folder is not None:
                    temporary_files.remove_folder(folder)
                    self._drop(entry)
        return True

    def give_up(self, name: str) -> None:
        """Ends loads of a model that take long: it is about to be unloaded."""
        self._steps.cancel(name, UNLOADED, SLOW_S)

    async def unload(self, name: str) -> None:
        """Stops serving all versions of a model; what was accepted is answered.

        Raises:
            ServeError: there is no such model (404).
        """
        entry = self.repository.entries.get(name)
        if entry is None:
            raise self.repository.unknown(name)
        async with self._change_locks.take(name, None, UNLOADED):
            self._unloaded_by_call.add(name)
            entry.error = LoadError(UNLOADED)
            self._steps.retire(entry, entry.running(), UNLOADED)
            self._forget_folder(name)

    # ---- scans of the disk

    def _on_scan(self, scan: Scan | OxError) -> None:
        if isinstance(scan, OxError):
            self._log_once(scan)
            return
        try:
            self._setups.read(scan.settings)
        except OxError as error:  # the earlier scan stays valid
            self._log_once(error)
        else:
            self._last_error = ""
        keys = {}
        for name in {**dict.fromkeys(self.repository.entries), **scan.models}:
            files = scan.models.get(name)
            key = keys[name] = self._key(files)
            steady = self._before.get(name) == key or (files is not None and self._is_stable(files))
            # by a call, which goes first
            by_call = name in self._folders or (name in self._unloaded_by_call and files is not None)
            if self._change_locks.locked(name):
                going = self._change_locks.going(name)
                if isinstance(going, tuple) and going != key:  # it is loaded from disk, and would be thrown away
                    self._steps.cancel(name, "its files have changed")
            elif steady and not by_call and (key != self._stable_keys.get(name) or self._file_disappeared(name, files)):
                self._steps.spawn(self._follow(name, files, key))
        self._before = keys

    def _file_disappeared(self, name: str, files: ModelFiles | None) -> bool:
        """Whether the file has gone while it was loaded for the first time."""
        slots = self.repository.entry(name).slots.values()
        return files is None and name not in self._unloaded_by_call and all(slot.state == UNAVAILABLE for slot in slots)

    def _is_stable(self, files: ModelFiles) -> bool:
        """Whether the file is old enough to be complete: a file that was renamed into place is loaded at once."""
        return 0 < files.newest_ns < 1e9 * (self._clock.calendar() - 2 * self.limits.poll_s)

    async def _follow(self, name: str, files: ModelFiles | None, key: object) -> None:
        async with self._change_locks.take(name, key):
            entry = self.repository.entry(name)
            if files is None:
                self._unloaded_by_call.discard(name)
                self._stable_keys.pop(name, None)
                self._steps.retire(entry, entry.running(), GONE)
                entry.forget(set())
                self._tidy(entry)
                return
            try:
                self._steps.prepare(entry, files)
                await self._steps.settle(entry, files)
            except InterruptedLoad:
                return  # to be looked at again
            self._stable_keys[name] = key

    def _log_once(self, error: OxError) -> None:
        """Says a thing once, not at every look."""
        if error.one_line() != self._last_error:
            self._last_error = error.one_line()
            log.error("%s; the served models do not change", self._last_error)

    # ---- both

    async def _on_disk(self, name: str) -> ModelFiles:
        scan = await in_thread(self.layout.scan, "ox-scan")
        self._setups.read(scan.settings)
        if name not in scan.models:
            raise self.repository.unknown(name)
        return scan.models[name]

    def _key(self, files: ModelFiles | None) -> object:
        return None if files is None else (files.stamps, self._setups.table(files.name))

    def _tidy(self, entry: Entry) -> None:
        """Forgets a model that is neither on disk nor in memory."""
        if entry.name not in self._stable_keys and not entry.slots:
            self.repository.entries.pop(entry.name, None)

    def _drop(self, entry: Entry) -> None:
        """Forgets a model of which there never was more than what a call brought: else names would pile up."""
        name = entry.name
        known = name in self._stable_keys or self._before.get(name) is not None or name in self._unloaded_by_call
        if not known and all(slot.state == UNAVAILABLE for slot in entry.slots.values()):
            self.repository.entries.pop(name, None)
            for what in ("loaded", "failed", "unloaded"):
                del self.loads[name, what]

    def _forget_folder(self, name: str) -> None:
        folder = self._folders.pop(name, None)
        if folder is not None:
            temporary_files.remove_folder(folder)


def _changing(name: str) -> LoadError:
    return LoadError(f"the files of '{name}' are still being written", hint="again in a moment")


def _unwanted(written: tuple[ModelFiles, Path]) -> None:
    """The caller went while his files were being written."""
    temporary_files.remove_folder(written[1])


def _refused(error: OxError, running: str, folder: Path | None = None) -> ServeError:
    """The error for the caller, without the path of `folder`, which has the files of the call."""
    fields = {name: getattr(error, name) for name in ("what", "where", "expected", "got", "hint")}
    if folder is not None:
        private = f"{folder / 'model'}/"
        fields = {name: text and text.replace(private, "") for name, text in fields.items()}
    return ServeError(fields.pop("what") + (f"; version {running} keeps serving" if running else ""), **fields)
