"""What lay there when the server was started: until each of it runs or cannot, the server is not ready."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from queue import SimpleQueue

from ox.errors import LoadError, OxError
from ox.serve.repository.entry import Entry
from ox.serve.repository.layout import ModelFiles
from ox.serve.repository.repository import Repository


class FirstLoads:
    """The loads of a start.

    Args:
        repository: which holds an entry for each of the models.
        named: models whose files were named: the start fails if one of them does.
        models: all of them, as they lie on disk.
    """

    def __init__(self, repository: Repository, named: set[str], models: Mapping[str, ModelFiles]) -> None:
        self._repository, self._named = repository, named
        self.waiting = dict(models)
        self._finished: list[str] = []
        self._changed = asyncio.Event()
        self._cancelled = False

    def check(self, name: str) -> None:
        """Raises why a model does not run whose file was named."""
        entry = self._repository.entry(name)
        if name in self._named and not entry.running():
            raise reason(entry)

    def run(self, load: Callable[[str, ModelFiles], None]) -> None:
        """Loads them with `load`, each in its own thread; blocks."""
        results: SimpleQueue[tuple[str, BaseException | None]] = SimpleQueue()

        def work(name: str, found: ModelFiles) -> None:
            try:
                load(name, found)
            except BaseException as error:
                results.put((name, error))
            else:
                results.put((name, None))

        for name, found in self.waiting.items():
            threading.Thread(target=work, args=(name, found), name=f"ox-watchdog {name}", daemon=True).start()
        while self.waiting:
            name, error = results.get()
            del self.waiting[name]
            if error is not None:
                raise error
            self.check(name)
        self._judge()

    def done(self, name: str, cancelled: bool = False) -> None:
        """Marks a model as loaded, failed or not wanted. On the event loop."""
        self.waiting.pop(name, None)
        if cancelled:
            self._cancelled = True
        else:
            self._finished.append(name)
        self._changed.set()

    async def settled(self) -> AsyncIterator[str]:
        """Yields each when it is done. Raises what `check` raises, and an error if none of them runs."""
        while True:
            self._changed.clear()
            while self._finished:
                name = self._finished.pop(0)
                self.check(name)
                yield name
            if not self.waiting:
                break
            await self._changed.wait()
        if not self._cancelled:
            self._judge()

    def _judge(self) -> None:
        entries = self._repository.entries
        if entries and not self._repository.models():
            raise reason(next(iter(entries.values())))


def reason(entry: Entry) -> OxError:
    """Why nothing of a model runs."""
    errors = [slot.error for slot in entry.slots.values() if slot.error is not None]
    return entry.error or (errors[0] if errors else LoadError(f"no version of '{entry.name}' can be served"))
