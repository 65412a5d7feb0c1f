"""The worker processes of a loader: starting, requests, responses, errors and their end."""

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

from ox.data.loading import fetch, serialize
from ox.data.loading.channel import Channel, ChannelClosed
from ox.data.loading.shared_memory import SharedBatches
from ox.data.loading.worker import SIGNALS, Job, main
from ox.errors import ArgumentError, WorkerError

_CHECK_INTERVAL = 2.0  # seconds between checks whether a worker is alive
_GRACE = 1.0  # seconds in which workers may exit before they are killed
_starting = Lock()  # a fork between socketpair and close of another worker would inherit its socket


class Worker:
    """A worker process, and the requests that it has not answered."""

    def __init__(self, number: int, process: Any, channel: Channel) -> None:
        self.number, self.process, self.channel, self.pid = number, process, channel, process.pid
        self.requests: deque[tuple[int, int, Any]] = deque()  # epoch, batch, indices
        self.shared = SharedBatches()
        self.status: Any = None

    def receive(self, wait: float | None) -> tuple[dict[str, Any], bytearray, list[int]] | None:
        """The next response; None if none arrives in `wait` seconds. Raises ChannelClosed."""
        while True:
            received = self.channel.receive(wait)
            if received is None or self.status is not None:
                return received
            self._map_status(received[2][0])

    def _map_status(self, fd: int) -> None:
        from mmap import mmap

        self.status = np.frombuffer(mmap(fd, 64), np.int64)
        os.close(fd)

    def position(self) -> str:
        """The sample that the worker last read, for errors."""
        if self.status is None:
            with suppress(ChannelClosed):
                self.receive(0)
        if self.status is None:
            return "before its first batch"
        batch, at = int(self.status[fetch.BATCH]), int(self.status[fetch.SAMPLE])
        if at == fetch.IDLE:
            return "between two batches"
        for _, number, indices in self.requests:
            if number == batch:
                return fetch.describe(batch, at, indices)
        return fetch.describe(batch, at, None)


class Pool:
    """The workers of one loader. They end with `close`, and when the pool, the interpreter or the process ends."""

    def __init__(self, job: Job, count: int, seed: int, context: Any, timeout: float) -> None:
        self.count, self.timeout = count, timeout
        self.epoch = 0
        self.workers: list[Worker] = []
        self._close = weakref.finalize(self, _end_workers, self.workers, os.getpid())
        _pools.add(self)
        if multiprocessing.current_process().daemon:
            raise ArgumentError("a worker cannot have workers of its own", hint="num_workers=0 in the inner loader")
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
            channel = Channel(ours, of_loader=True)
            process = context.Process(
                target=main, args=(theirs, number, count, seed, job), daemon=True, name=f"loader-worker-{number}"
            )
            method = context.get_start_method()
            # blocked until the worker ignores them; not for the fork server, which would keep them blocked for others
            blocked = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS if method == "fork" else ())
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DeprecationWarning)  # the child does not use threads of the parent
                    process.start()
            except Exception as error:
                channel.close()
                if method == "fork":
                    raise
                raise ArgumentError(
                    f"the start method {method!r} has to pickle the dataset, and cannot",
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
        """Ends the workers."""
        self._close()

    def begin(self, seed: int, version: int, streams: list[dict[str, Any]] | None) -> None:
        """Starts an epoch; earlier requests become void. `streams`: the position of each worker's stream."""
        self.epoch += 1
        for worker in self.workers:
            start = streams[worker.number] if streams else {"given": 0, "state": None}
            blob = serialize.Blob()
            state = serialize.pack(start["state"], blob.put, "the stream's state")
            numbers = {"epoch": self.epoch, "seed": seed, "version": version, "given": start["given"]}
            self._send(worker, {**numbers, "state": state}, blob)

    def request(self, worker: Worker, batch: int, indices: Any) -> None:
        """Requests a batch."""
        blob = serialize.Blob()
        worker.requests.append((self.epoch, batch, indices))
        self._send(worker, {"batch": batch, "indices": serialize.pack(indices, blob.put, "the sampler's index")}, blob)

    def _send(self, worker: Worker, message: dict[str, Any], blob: serialize.Blob) -> None:
        with suppress(ChannelClosed):  # `receive` raises the error, with its cause
            worker.channel.send({**message, "free": worker.shared.freed()}, blob)

    def receive(self, workers: list[Worker]) -> tuple[Worker, dict[str, Any], bytearray, dict[int, Any]]:
        """The next response of one of these workers, with the memory of its batch.

        Raises:
            WorkerError: a worker died (then the pool is closed), or none responded in time.
        """
        end = time.monotonic() + self.timeout if self.timeout else None
        while True:
            wait = _CHECK_INTERVAL if end is None else max(0.0, min(_CHECK_INTERVAL, end - time.monotonic()))
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
                raise self._death_error(worker) from None
            if received is not None:
                assert worker is not None
                message, blob, fds = received
                epoch, _, _ = worker.requests.popleft()
                bases = worker.shared.map(message, fds) if "segments" in message else {}
                if epoch == self.epoch:
                    return worker, message, blob, bases
            elif end is not None and time.monotonic() >= end:
                raise self._timeout_error(workers[0])

    @staticmethod
    def _first(workers: list[Worker], wait: float) -> Worker | None:
        poll, by_line = select.poll(), {}
        for worker in workers:
            if worker.channel.has_message():
                return worker
            poll.register(worker.channel.socket, select.POLLIN)
            by_line[worker.channel.socket.fileno()] = worker
        for line, _ in poll.poll(wait * 1000):
            return by_line[line]
        return None

    def _death_error(self, worker: Worker) -> WorkerError:
        worker.process.join(_GRACE)
        code, at = worker.process.exitcode, worker.position()
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

    def _timeout_error(self, worker: Worker) -> WorkerError:
        error = WorkerError(
            f"worker {worker.number} of the loader gave no batch for {self.timeout:g} s",
            where=worker.position(),
            got=f"worker {worker.number} of {self.count}, pid {worker.pid}",
            hint="a longer timeout; or num_workers=0 to see where it hangs",
        )
        return _with_base(TimeoutError, error)


_HINTS = {
    "SIGKILL": "if no user did, the system killed it for lack of memory: fewer workers, a smaller prefetch_factor",
    "SIGSEGV": "a library crashed on that sample: read it alone, with python -X faulthandler",
}
_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _end_workers(workers: list[Worker], owner: int) -> None:
    if os.getpid() != owner:  # a forked child of the program: the workers are not its children
        return
    for worker in workers:
        worker.channel.close()  # the worker exits when its connection is closed
    end = time.monotonic() + _GRACE
    for worker in workers:
        worker.process.join(max(0.0, end - time.monotonic()))
        if worker.process.is_alive():  # it hangs in a library that holds the GIL
            worker.process.kill()
            worker.process.join(_GRACE)
        with suppress(ValueError):
            worker.process.close()


@atexit.register
def _end_all() -> None:
    for pool in list(_pools):
        pool.close()


def _with_base(other: Any, error: WorkerError) -> WorkerError:
    """`error` as an instance of the class `other` too, so that `except` clauses match; `error` itself if impossible."""
    if not isinstance(other, type) or not issubclass(other, Exception) or issubclass(other, StopIteration):
        return error
    try:
        kind: Any = type(other.__name__, (WorkerError, other), {"__module__": other.__module__})
        made: WorkerError = other.__new__(kind, error.what)  # without its __init__, whose arguments are unknown
    except Exception:  # incompatible base classes, or a class that forbids subclasses
        return error
    made.__dict__.update(error.__dict__)
    return made


def worker_error(report: dict[str, Any], worker: Worker, count: int) -> WorkerError:
    """The error to raise for an error report of a worker; of the original class too, if that can be found."""
    first = report["text"].splitlines()[0] if report["text"] else ""
    extra = {
        "line": report["line"],
        "worker": f"{worker.number} of {count}, pid {worker.pid}",
        "traceback": report["traceback"],
    }
    what = f"worker {worker.number} of the loader: {report['name'].rpartition('.')[2]}" + (
        f": {first}" if first else ""
    )
    return _with_base(
        serialize.find_class(report["module"], report["name"]), WorkerError(what, where=report["sample"], extra=extra)
    )


def start_context(context: Any) -> Any:
    """The context of `multiprocessing_context`: a context, the name of a start method, or None for fork on Linux.

    Raises:
        ArgumentError: no such start method.
    """
    if not all((hasattr(os, "fork"), hasattr(socket, "send_fds"), hasattr(signal, "pthread_sigmask"))):
        raise ArgumentError(
            "worker processes of a loader need Linux or macOS", got=sys.platform, hint="num_workers=0 (--workers 0)"
        )
    if context is None:
        return multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    if isinstance(context, str):
        methods = multiprocessing.get_all_start_methods()
        if context not in methods:
            raise ArgumentError(
                "multiprocessing_context is no start method", expected=" or ".join(methods), got=context
            )
        return multiprocessing.get_context(context)
    if not hasattr(context, "Process"):
        raise ArgumentError("multiprocessing_context is a start method's name or a context", got=repr(context))
    return context
