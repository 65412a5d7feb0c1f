"""Models share the cores: while several of them want to run, each gets time by its weight, not by its threads.

Fair queuing over run slots, one a core. A run cannot be interrupted, so a waiter waits no longer than a
moment: beside a model whose runs take seconds, the system's own scheduler divides the cores. A model alone on a server
does not take part.
"""

from __future__ import annotations

import threading

from ox.clock import SYSTEM, Clock
from ox.devices.machine import threads as usable_threads

MAX_WAIT_S = 0.05
CREDIT_S = 0.2  # what a model can save up; more than the moment between one run and the next


class Waiter:
    """A thread that wants to run."""

    __slots__ = ("condition", "share")

    def __init__(self, share: Share, lock: threading.Lock) -> None:
        self.share, self.condition = share, threading.Condition(lock)


class Cores:
    """Run slots, given to the share with the least virtual run time, that is run time per weight."""

    def __init__(self, slots: int, clock: Clock, max_wait_s: float = MAX_WAIT_S) -> None:
        self.slots = self.free = slots  # free slots are negative while a waiter has exceeded its maximum wait
        self._clock, self._max_wait_s = clock, max_wait_s
        self.shares: set[Share] = set()
        self._lock = threading.Lock()
        self._waiters: list[Waiter] = []
        self._min_vruntime = 0.0  # of the shares that wanted to run

    def share(self, weight: float, threads: int) -> Share:
        """A model's part in it, once it is opened; its runs use so many threads."""
        return Share(self, weight, min(threads, self.slots))

    def join(self, share: Share) -> None:
        with self._lock:
            self.shares.add(share)

    def acquire(self, share: Share) -> None:
        with self._lock:
            share.vruntime = max(share.vruntime, self._min_vruntime - CREDIT_S)
            share.active += 1
            if self.free >= share.slots and not self._waiters:
                self.free -= share.slots
                return
            waiter = Waiter(share, self._lock)
            self._waiters.append(waiter)
            if not self._clock.wait(waiter.condition, lambda: waiter not in self._waiters, self._max_wait_s):
                self._waiters.remove(waiter)
                self.free -= share.slots

    def release(self, share: Share, seconds: float) -> None:
        with self._lock:
            self.free += share.slots
            share.vruntime += seconds * share.slots / share.weight
            least = min(other.vruntime for other in (share, *self.shares) if other.active)
            self._min_vruntime = max(self._min_vruntime, least)
            share.active -= 1
            while self._waiters:
                waiter = min(self._waiters, key=lambda waiter: waiter.share.vruntime)
                if waiter.share.slots > self.free:
                    return
                self._waiters.remove(waiter)
                self.free -= waiter.share.slots
                waiter.condition.notify()

    def leave(self, share: Share) -> None:
        with self._lock:
            self.shares.discard(share)


class Share:
    """A model's part of the cores."""

    __slots__ = ("active", "cores", "slots", "vruntime", "weight")

    def __init__(self, cores: Cores, weight: float, slots: int) -> None:
        self.cores, self.weight, self.slots = cores, weight, slots
        self.vruntime = 0.0  # seconds of a core that it has had, for its weight
        self.active = 0  # its threads that run or wait

    def acquire(self) -> bool:
        """Waits for a slot; False, at once, for a model that has the cores to itself."""
        if len(self.cores.shares) < 2:
            return False
        self.cores.acquire(self)
        return True

    def release(self, seconds: float) -> None:
        """Gives it back after so many seconds."""
        self.cores.release(self, seconds)

    def open(self) -> None:
        self.cores.join(self)

    def close(self) -> None:
        self.cores.leave(self)


CORES = Cores(usable_threads(), SYSTEM)  # of the process, whatever clock its servers have
