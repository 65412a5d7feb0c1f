"""The loader's side of its workers: they are started, asked, listened to and ended here, and their faults reported."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import select
import signal
import socket
import sys
import time
import warnings
import weakref
from collections import deque
from contextlib import suppress
from multiprocessing import util as _at_exit  # noqa: F401  its exit handler must be older than ours
from threading import Lock
from typing import Any

import numpy as np

from ox.data import fetch, wire
from ox.data.channel import Channel, ChannelClosed
from ox.data.segments import Shared
from ox.data.worker import SIGNALS, Job, main
from ox.errors import ArgumentError, WorkerError
from ox.ops.explain import place

_SLICE = 2.0  # seconds after which a silent worker is looked at
_GRACE = 1.0  # seconds that workers get to leave by themselves
_starting = Lock()  # a worker forked between another one's socketpair and its close would keep that one's line open


class Worker:
    """One worker, and what it has been asked for and has not answered."""

    def __init__(self, number: int, process: Any, channel: Channel) -> None:
        self.number, self.process, self.channel, self.pid = number, process, channel, process.pid
        self.asked: deque[tuple[int, int, Any]] = deque()  # epoch, batch, indices
        self.shared = Shared()
        self.status: Any = None

    def receive(self, wait: float | None) -> tuple[dict[str, Any], bytearray, list[int]] | None:
        """The next answer; None when there is none after `wait` seconds. Raises ChannelClosed."""
        while True:
            received = self.channel.receive(wait)
            if received is None or self.status is not None:
                return received
            self._greet(received[2][0])

    def _greet(self, fd: int) -> None:
        from mmap import mmap

        self.status = np.frombuffer(mmap(fd, 64), np.int64)
        os.close(fd)

    def at(self) -> str:
        """What it was doing last: the sample, as far as it is known."""
        if self.status is None:
            with suppress(ChannelClosed):
                self.receive(0)
        if self.status is None:
            return "before its first batch"
        batch, at = int(self.status[fetch.BATCH]), int(self.status[fetch.SAMPLE])
        if at == fetch.IDLE:
            return "between two batches"
        for _, number, indices in self.asked:
            if number == batch:
                return fetch.describe(batch, at, indices)
        return fetch.describe(batch, at, None)


class Pool:
    """Workers of one loader. They end with `close`, with the pool, with the interpreter, and with the process."""

    def __init__(self, job: Job, count: int, seed: int, context: Any, timeout: float) -> None:
        self.count, self.timeout = count, timeout
        self.epoch = 0
        self.workers: list[Worker] = []
        self._close = weakref.finalize(self, _end, self.workers, os.getpid())
        _pools.add(self)
        if multiprocessing.current_process().daemon:
            raise ArgumentError(
                "a worker cannot have workers of its own", where=place(), hint="num_workers=0 in the inner loader"
            )
        try:
            for number in range(count):
                self.workers.append(self._start(number, count, seed, job, context))
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _start(number: int, count: int, seed: int, job: Job, context: Any) -> Worker:
        with _starting:
            ours, theirs = socket.socketpair()
            channel = Channel(ours, ours=True)
            process = context.Process(
                target=main, args=(theirs, number, count, seed, job), daemon=True, name=f"loader-worker-{number}"
            )
            method = context.get_start_method()
            # until it can ignore them; a server of forks would keep them blocked for the processes of others
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS if method == "fork" else ())
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # threads of ours are never used behind a fork
                    process.start()
            except Exception as error:
                channel.close()
                if method == "fork":
                    raise
                raise ArgumentError(
                    f"the start method {method!r} has to pickle the dataset, and cannot",
                    where=place(),
                    got=f"{type(error).__name__}: {error}",
                    hint="multiprocessing_context='fork', or classes and functions of a module",
                ) from error
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
                theirs.close()
        return Worker(number, process, channel)

    @property
    def open(self) -> bool:
        return self._close.alive

    def close(self) -> None:
        """End the workers."""
        self._close()

    def begin(self, seed: int, streams: list[dict[str, Any]] | None) -> None:
        """Begin an epoch: what was asked before is void. `streams`: where each worker's stream goes on."""
        self.epoch += 1
        for worker in self.workers:
            start = streams[worker.number] if streams else {"given": 0, "state": None}
            blob = wire.Blob()
            state = wire.pack(start["state"], blob.put, "the stream's state")
            self._tell(worker, {"epoch": self.epoch, "seed": seed, "given": start["given"], "state": state}, blob)

    def ask(self, worker: Worker, batch: int, indices: Any) -> None:
        """Ask for a batch."""
        blob = wire.Blob()
        worker.asked.append((self.epoch, batch, indices))
        self._tell(worker, {"batch": batch, "indices": wire.pack(indices, blob.put, "the sampler's index")}, blob)

    def _tell(self, worker: Worker, message: dict[str, Any], blob: wire.Blob) -> None:
        with suppress(ChannelClosed):  # whoever waits for the answer finds out, and why
            worker.channel.send({**message, "free": worker.shared.freed()}, blob)

    def listen(self, workers: list[Worker]) -> tuple[Worker, dict[str, Any], bytearray, dict[int, Any]]:
        """The next answer of one of these workers, with the memory of its batch.

        Raises:
            WorkerError: a worker died, or none answered in time. The pool is closed in the first case.
        """
        end = time.monotonic() + self.timeout if self.timeout else None
        while True:
            wait = _SLICE if end is None else max(0.0, min(_SLICE, end - time.monotonic()))
            worker = workers[0] if len(workers) == 1 else self._first(workers, wait)
            try:
                received = worker.receive(wait if len(workers) == 1 else 0) if worker is not None else None
                if received is None:
                    silent = next((w for w in workers if not w.process.is_alive()), None)
                    worker = silent or worker
                    received = silent.receive(0) if silent is not None else None
                    if silent is not None and received is None:
                        raise ChannelClosed
            except ChannelClosed:
                assert worker is not None
                raise self._death(worker) from None
            if received is not None:
                assert worker is not None
                message, blob, fds = received
                epoch, _, _ = worker.asked.popleft()
                bases = worker.shared.take(message, fds) if "segments" in message else {}
                if epoch == self.epoch:
                    return worker, message, blob, bases
            elif end is not None and time.monotonic() >= end:
                raise self._hang(workers[0])

    @staticmethod
    def _first(workers: list[Worker], wait: float) -> Worker | None:
        poll, by_line = select.poll(), {}
        for worker in workers:
            if worker.channel.waiting():
                return worker
            poll.register(worker.channel.line, select.POLLIN)
            by_line[worker.channel.line.fileno()] = worker
        for line, _ in poll.poll(wait * 1000):
            return by_line[line]
        return None

    def _death(self, worker: Worker) -> WorkerError:
        worker.process.join(_GRACE)
        code, at = worker.process.exitcode, worker.at()
        self.close()
        if code is not None and code < 0:
            name = signal.Signals(-code).name if -code in set(signal.Signals) else f"signal {-code}"
            how, hint = (
                f"was killed by {name}",
                _HINTS.get(name, "ulimit -c unlimited, or num_workers=0 under a debugger"),
            )
        else:
            how, hint = f"ended by itself, with exit code {code}", "look for os._exit in what it ran; num_workers=0"
        return WorkerError(
            f"worker {worker.number} of the loader {how}",
            where=at,
            got=f"worker {worker.number} of {self.count}, pid {worker.pid}",
            hint=hint,
        )

    def _hang(self, worker: Worker) -> WorkerError:
        error = WorkerError(
            f"worker {worker.number} of the loader gave no batch for {self.timeout:g} s",
            where=worker.at(),
            got=f"worker {worker.number} of {self.count}, pid {worker.pid}",
            hint="a longer timeout; or num_workers=0 to see where it hangs",
        )
        return _also(TimeoutError, error)


_HINTS = {
    "SIGKILL": "where nobody killed it, the system did, out of memory: fewer workers, a smaller prefetch_factor",
    "SIGSEGV": "a library crashed on that sample: read it alone, with python -X faulthandler",
}
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _end(workers: list[Worker], owner: int) -> None:
    if os.getpid() != owner:  # a forked copy of the program: they are not its workers
        return
    for worker in workers:
        worker.channel.close()  # upon which it leaves, whatever it is doing
    end = time.monotonic() + _GRACE
    for worker in workers:
        worker.process.join(max(0.0, end - time.monotonic()))
        if worker.process.is_alive():  # it hangs in a library that does not let go of the interpreter
            worker.process.kill()
            worker.process.join(_GRACE)
        with suppress(ValueError):
            worker.process.close()


@atexit.register
def _end_all() -> None:
    for pool in list(_pools):
        pool.close()


def _also(other: Any, error: WorkerError) -> WorkerError:
    """`error` as an error of another class besides, so that it is caught as that one. Itself where that cannot be."""
    if not isinstance(other, type) or not issubclass(other, Exception) or issubclass(other, StopIteration):
        return error
    try:
        kind: Any = type(other.__name__, (WorkerError, other), {"__module__": other.__module__})
        made: WorkerError = other.__new__(kind, error.what)  # its __init__ may want what we do not have
    except Exception:  # two kinds of C structures, or a class that guards who inherits
        return error
    made.__dict__.update(error.__dict__)
    return made


def raised(report: dict[str, Any], worker: Worker, count: int) -> WorkerError:
    """The error to raise for one that a worker reported: of the same class too, where that can be found."""
    first = report["text"].splitlines()[0] if report["text"] else ""
    extra = {
        "line": report["line"],
        "worker": f"{worker.number} of {count}, pid {worker.pid}",
        "traceback": report["traceback"],
    }
    what = f"worker {worker.number} of the loader: {report['name'].rpartition('.')[2]}" + (
        f": {first}" if first else ""
    )
    return _also(wire.find(report["module"], report["name"]), WorkerError(what, where=report["sample"], extra=extra))


def start_methods(context: Any) -> Any:
    """What `multiprocessing_context` means: a context, a name of one, or None for fork where that is usual.

    Raises:
        ArgumentError: no such start method.
    """
    if not hasattr(socket, "send_fds"):
        raise ArgumentError("workers need Linux or macOS", where=place(), got=sys.platform, hint="num_workers=0")
    if context is None:
        return multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ArgumentError(
                "multiprocessing_context is no start method", where=place(), expected=" or ".join(methods), got=context
            )
        return multiprocessing.get_context(context)
    if not hasattr(context, "Process"):
        raise ArgumentError(
            "multiprocessing_context is a start method's name or a context", where=place(), got=repr(context)
        )
    return context
