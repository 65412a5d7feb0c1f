"""Progress of a load, and its cancellation: at its time limit, or when it is not wanted."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ox.clock import SYSTEM, Clock, Event
from ox.errors import LoadError


class LoadControl:
    """Shared by the loading thread and its watchdog.

    Args:
        what: is loaded, for errors: "version 3 of 'resnet'".
        limit_s: how long that may take; None for as long as it does.
        clock: of the load, and of the model that comes of it.
    """

    def __init__(self, what: str = "the model", limit_s: float | None = None, clock: Clock = SYSTEM) -> None:
        self.what, self.limit_s, self.clock = what, limit_s, clock
        self.stage = "waiting for its turn"
        self.error: Exception | None = None  # why it was ended, if it was
        self.started = self.clock.now()
        self.ended_event = Event(clock)  # it was ended, or is done
        self._lock = threading.Lock()
        self._stops: list[Callable[[], None]] = []

    @property
    def seconds(self) -> float:
        """How long it has been going on."""
        return self.clock.now() - self.started

    def begin(self) -> None:
        """Its turn has come: from now on the time counts."""
        self.started, self.stage = self.clock.now(), "looking at the file"

    def progress(self) -> str:
        """What it is doing, in words."""
        return f"{self.stage}, {self.seconds:.0f} s so far"

    def check(self) -> None:
        """Raises the reason if it has been ended."""
        if self.error is not None:
            raise self.error

    def enter(self, stage: str) -> None:
        """Goes on to another stage; raises the reason if it has been ended."""
        self.check()
        self.stage = stage

    def end(self, error: Exception) -> None:
        """Stops the load. The first reason counts."""
        with self._lock:
            if self.error is not None:
                return
            self.error = error
            stops = list(self._stops)
        self.ended_event.set()
        for stop in stops:
            stop()

    def late(self) -> LoadError:
        """The error at the time limit."""
        return LoadError(
            f"{self.what} takes too long to load",
            expected=f"at most {self.limit_s or 0:g} s (load_timeout_s)",
            got=self.progress(),
            hint="a longer load_timeout_s; in a trial run: a model without an endless loop, or a smaller max_rows",
        )

    def add_stop(self, stop: Callable[[], None]) -> None:
        """From now on `stop` is what ends it, too; called from any thread, at once if it has been ended already."""
        with self._lock:
            self._stops.append(stop)
            ended = self.error is not None
        if ended:
            stop()

    def forget(self, stop: Callable[[], None]) -> None:
        """What `stop` ends has come to its end."""
        with self._lock:
            self._stops.remove(stop)
